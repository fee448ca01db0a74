"""The weights that training starts from."""

import numpy as np
import pytest
import torch

import shoal
from shoal.errors import ShoalError
from shoal.training.baselines import count_training_nodes
from shoal.training.start import find_prior
from small_graphs import make_labelled


def make_rare(*, multi_label: bool) -> shoal.Graph:
    """A graph whose last class is rare, or whose classes are (multi-label)."""
    graph = make_labelled(600)
    kept = np.arange(graph.num_nodes) % 10 > 0
    y = np.where((graph.y == 2) & kept, 0, graph.y)
    return graph._copy(y=np.stack([y == 0, y == 1, y == 2], 1).astype(np.uint8) if multi_label else y)


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_constant_prediction_of_the_prior_has_the_frequencies_of_training(multi_label: bool) -> None:
    counts = torch.tensor([30.0, 5.0, 0.0, 65.0, 100.0])
    prior = find_prior(counts, multi_label=multi_label)
    shares = torch.sigmoid(prior) if multi_label else torch.softmax(prior, 0)
    wanted = (counts[:-1].double() + 1) / (102 if multi_label else 104)
    torch.testing.assert_close(shares, wanted)


def test_balanced_classes_begin_alike() -> None:
    for multi_label in (False, True):
        trainer = train(make_rare(multi_label=multi_label), class_weights="balanced")
        start = trainer.model.output_bias.detach()
        assert (start - start.mean()).abs().max() < 0.15  # but for the one that is added to counts
        if multi_label:
            assert start.abs().max() < 0.15


def train(graph: shoal.Graph, head_layers: int = 1, **settings: object) -> shoal.Trainer:
    model = shoal.GNN("gcn", graph.num_features, 8, graph.num_classes, head_layers=head_layers, num_layers=2)
    return shoal.Trainer(model, graph, prior_bias=True, **settings)


@pytest.mark.parametrize("head_layers", [0, 1, 2])
@pytest.mark.parametrize("multi_label", [False, True])
def test_the_bias_of_the_logits_starts_at_the_prior(multi_label: bool, head_layers: int) -> None:
    graph = make_rare(multi_label=multi_label)
    trainer = train(graph, head_layers)
    labels = graph.y[graph.train_mask]
    counts = labels.sum(0) if multi_label else np.bincount(labels, minlength=3)
    found = count_training_nodes(trainer.share)
    assert found.tolist() == [*counts.tolist(), len(labels)]
    prior = find_prior(found, multi_label=multi_label).float()
    torch.testing.assert_close(trainer.model.output_bias.detach(), prior)
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():
            if weight is not trainer.model.output_bias and not name.endswith("bias"):
                weight.zero_()
    trainer.model.eval()
    torch.testing.assert_close(trainer.model(trainer.share.whole)[0].detach(), prior)


def test_models_without_such_a_bias_and_regression_are_refused() -> None:
    class Own(torch.nn.Linear):
        def forward(self, batch):
            return super().forward(batch.dense_x)

    graph = make_labelled()
    with pytest.raises(ShoalError, match="and the model, a Own, has none: leave it out"):
        shoal.Trainer(Own(graph.num_features, 3), graph, prior_bias=True)
    bare = shoal.GNN("gcn", 8, 8, 3)
    bare.classifier = torch.nn.Linear(8, 3, bias=False)
    with pytest.raises(ShoalError, match="a GNN, has none"):
        shoal.Trainer(bare, graph, prior_bias=True)
    y = np.sin(graph.y).astype(np.float32)
    numbers = shoal.Graph(graph.indptr, graph.indices, x=graph.x, y=y, directed=False).with_split(0.5, 0.25)
    with pytest.raises(ShoalError, match="prior_bias is for classes"):
        shoal.Trainer(shoal.GNN("gcn", 8, 8, 1), numbers, prior_bias=True)
