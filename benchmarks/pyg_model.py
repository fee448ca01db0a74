"""Shoal's SAGE over PyG's message passing, and full-batch training with it."""

import torch
from torch import nn
from torch.nn import functional

import shoal
from shoal.training.metrics import score_predictions


class PygModel(nn.Module):
    """The same stack: neighbours' and own halves, ReLU, a layer norm for each half, dropout, a linear classifier."""

    def __init__(self, num_features, hidden, num_classes, layers, rate):
        from torch_geometric.nn import SimpleConv

        super().__init__()
        widths = [num_features] + [hidden] * layers
        pairs = list(zip(widths, widths[1:]))  # noqa: RUF007
        self.neighbours = nn.ModuleList(nn.Linear(a, b // 2) for a, b in pairs)
        self.own = nn.ModuleList(nn.Linear(a, b // 2) for a, b in pairs)
        self.norms = nn.ModuleList(nn.LayerNorm(b // 2) for _, b in pairs for _ in range(2))
        self.classifier = nn.Linear(hidden, num_classes)
        self.conv = SimpleConv(aggr="mean")
        self.rate = rate

    def forward(self, h, edge_index):
        for number, (neighbours, own) in enumerate(zip(self.neighbours, self.own)):
            halves = (self.conv(multiply(h, neighbours), edge_index), multiply(h, own))
            norms = self.norms[2 * number : 2 * number + 2]
            h = torch.cat([norm(torch.relu(half)) for norm, half in zip(norms, halves)], 1)
            h = functional.dropout(h, self.rate, self.training)
        return self.classifier(h)


def multiply(h, linear):
    """`linear(h)` for dense features, and for sparse ones without making them dense."""
    if h.layout == torch.strided:
        return linear(h)
    return torch.sparse.mm(h, linear.weight.t()) + linear.bias


class PygStepper:
    """Full-batch training, some steps at a time, and the validation and test scores between."""

    def __init__(self, graph, shape, metric, seed, lr):
        torch.manual_seed(seed)
        hidden, layers, rate = shape["hidden"], shape["num_layers"], shape["dropout"]
        self.model = PygModel(graph.num_features, hidden, graph.num_classes, layers, rate)
        self.metric = metric or ("f1_micro" if graph.multi_label else "accuracy")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr, fused=True)
        self.graph = graph
        self.batch = shoal.FullSampler(graph).sample(0)
        x = self.batch.x
        self.x = x if isinstance(x, torch.Tensor) else x.to_torch()

    def train(self, steps):
        y, mask = self.batch.y, self.batch.train_mask
        self.model.train()
        for _ in range(steps):
            logits = self.model(self.x, self.batch.edge_index)[mask]
            if y.dim() == 2:
                loss = functional.binary_cross_entropy_with_logits(logits, y[mask].float())
            else:
                loss = functional.cross_entropy(logits, y[mask])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def prepare(self):
        """Nothing to count."""

    def count_work(self):
        return None  # that of shoal's full batch

    def score(self):
        self.model.eval()
        with torch.no_grad():
            logits = self.model(self.x, self.batch.edge_index)
        masks = (torch.from_numpy(self.graph.val_mask), torch.from_numpy(self.graph.test_mask))
        return [score_predictions(logits[mask], self.batch.y[mask])[self.metric] for mask in masks]
