"""python benchmarks/bench_recipe.py [--recipes ppi-rw acl-anthology] [--seconds 30] [--threads 2]

An epoch of GraphSAINT's recipes, sampling included, beside

- the same layers in plain torch operations, in GraphSAINT's order (dropout, `torch.sparse` product, then a linear map, ReLU and norm of
  each half), on the batches of one epoch, drawn beforehand: sampling costs it nothing;
- the epoch's dense products alone, by `torch.mm` into memory that is there already.

Freed memory is kept in the process for all of them, as the trainer does. Ratios are peer / ours: above 1 is faster here.
"""

import argparse
import warnings
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from shoal.datasets.places import find_graph
from shoal.memory import keep_freed_memory
from shoal.runs.build import make_trainer
from shoal.runs.config import read_config
from shoal.runs.data import load_graph
from shoal.runs.recipes import find_recipe

from timing import describe, interleave, print_environment, save, use_threads  # isort: skip

warnings.filterwarnings("ignore")


class PlainLayer(nn.Module):
    """`norm(relu(W h))` of the nodes and, in a layer that aggregates, of their neighbours' mean beside it."""

    def __init__(self, f_in: int, f_out: int, order: int, rate: float) -> None:
        super().__init__()
        width = f_out // (order + 1)
        self.maps = nn.ModuleList(nn.Linear(f_in, width) for _ in range(order + 1))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(order + 1))
        self.rate = rate

    def forward(self, adjacency: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        h = functional.dropout(h, self.rate)
        inputs = [h] if len(self.maps) == 1 else [adjacency @ h, h]
        parts = [
            norm(functional.relu(linear(x)))
            for linear, norm, x in zip(self.maps, self.norms, inputs, strict=True)
        ]
        return torch.cat(parts, 1)


class PlainModel(nn.Module):
    def __init__(self, widths: list[int], orders: list[int], num_classes: int, rate: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            PlainLayer(a, b, order, rate) for a, b, order in zip(widths[:-1], widths[1:], orders, strict=True)
        )
        self.classifier = nn.Linear(widths[-1], num_classes)

    def forward(self, adjacency: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            h = layer(adjacency, h)
        return self.classifier(functional.normalize(h))


def plain_epoch(batches, widths, orders, num_classes, rate, lr, clip):
    torch.manual_seed(0)
    model = PlainModel(widths, orders, num_classes, rate)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    given = []
    for batch in batches:
        weight = torch.ones(batch.num_nodes) if batch.node_norm is None else batch.node_norm.float()
        adjacency = batch.blocks[0].adjacency("mean").to_torch(torch.float32)
        given.append((adjacency, batch.x, batch.y, weight))

    def run():
        for adjacency, x, y, weight in given:
            logits = model(adjacency, x)
            if y.ndim == 2:
                losses = functional.binary_cross_entropy_with_logits(logits, y.float(), reduction="none").sum(
                    1
                )
            else:
                losses = functional.cross_entropy(logits, y, reduction="none")
            optimizer.zero_grad()
            (losses * weight).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()

    return run


def product_epoch(sizes, widths, num_classes):
    """All dense products of an epoch: forward, the weights' gradients and, but for the first layer, the inputs'."""
    jobs, operations = [], 0
    # A layer's halves read different rows: as many multiply-adds as one product of its width.
    shapes = [*pairwise(widths), (widths[-1], num_classes)]
    for n in sizes:
        for number, (f_in, f_out) in enumerate(shapes):
            h, weight, grad = torch.randn(n, f_in), torch.randn(f_in, f_out), torch.randn(n, f_out)
            jobs += [(h, weight, torch.empty(n, f_out)), (h.t(), grad, torch.empty(f_in, f_out))]
            jobs += [(grad, weight.t(), torch.empty(n, f_in))] if number else []
            operations += 2 * n * f_in * f_out * (3 if number else 2)

    def run():
        for a, b, out in jobs:
            torch.mm(a, b, out=out)

    return run, operations


def compare(name: str, seconds: float) -> dict:
    config = read_config(find_recipe(name))
    graph, _ = load_graph(config)
    trainer = make_trainer(config, graph)
    sampler = trainer.sampler
    batches = [sampler.sample(k) for k in range(sampler.num_batches)]
    widths = [graph.num_features, *map(int, str(config.model.hidden).split("-"))]
    orders = list(map(int, str(config.model.orders).split("-")))
    rate, training = config.model.dropout, config.training
    plain = plain_epoch(batches, widths, orders, graph.num_classes, rate, training.lr, training.clip)
    products, operations = product_epoch([batch.num_nodes for batch in batches], widths, graph.num_classes)
    contenders = {"shoal": trainer.train_epoch, "plain torch": plain, "dense products alone": products}
    times = interleave(contenders, seconds)
    nodes = sum(batch.num_nodes for batch in batches) / len(batches)
    print(f"{name}: {len(batches)} batches of {nodes:,.0f} nodes, {operations / 1e9:.1f} GFLOP of dense products an epoch, "
          f"{operations / times['dense products alone']['min'] / 1e6:.0f} GFLOP/s alone")  # fmt: skip
    print(describe(times, "shoal"), flush=True)
    return {"recipe": name, "batches": len(batches), "nodes": nodes, "operations": operations, "times": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=["ppi-rw", "acl-anthology"])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    use_threads(options.threads)
    keep_freed_memory()
    results = []
    for name in options.recipes:
        if find_graph(read_config(find_recipe(name)).data) is None:
            print(f"{name}: its graph is not on this machine, skipped")
            continue
        results.append(compare(name, options.seconds))
        save("recipe", results)
    print_environment()


if __name__ == "__main__":
    main()
