"""The profile of a step: it changes nothing, and what it finds is part of the step."""

import sys

import pytest
import torch

import shoal


def train(conv: str, *, profiled: bool) -> shoal.Trainer:
    graph = shoal.load("digits")
    sampler = shoal.RandomWalkSampler(graph, roots=50, depth=2, seed=0)
    model = shoal.GNN(conv, graph.num_features, 16, graph.num_classes, num_layers=2, seed=0)
    trainer = shoal.Trainer(model, graph, sampler)
    trainer.profile.is_on = profiled
    trainer.fit(2)
    return trainer


@pytest.mark.parametrize("conv", ["sage", "gat"])
def test_a_profiled_run_has_the_weights_of_another(conv):
    known = "torch._dynamo" in sys.modules
    profiled, plain = train(conv, profiled=True), train(conv, profiled=False)
    for name, weight in plain.model.state_dict().items():
        assert torch.equal(weight, profiled.model.state_dict()[name]), name
    found = profiled.profile.found
    assert found is not None
    assert found["epoch"] == 2
    assert found["aggregation"] > 0
    assert found["dense"] > 0
    assert found["aggregation"] + found["dense"] <= found["seconds"]
    assert plain.profile.found is None
    assert ("torch._dynamo" in sys.modules) == known  # which takes seconds to import


def test_an_epoch_says_how_long_it_drew_batches():
    record = train("sage", profiled=False).history[-1]
    assert record["time"]["sampling"] > 0
    assert sum(record["time"].values()) == pytest.approx(record["seconds"])
