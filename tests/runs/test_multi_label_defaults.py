"""Defaults of multi-label graphs: the bias of the logits and the size of batches."""

from dataclasses import replace

import numpy as np
import torch

import shoal
from shoal.memory import set_memory_budget
from shoal.runs.build import make_trainer
from shoal.runs.config import FROM_GRAPH, make_config
from shoal.runs.defaults import choose_settings, follow_graph
from shoal.runs.facts import Facts
from small_graphs import make_labelled


def take(facts: Facts) -> dict[str, object]:
    return {name: value for choice in choose_settings(facts) for name, value in choice.settings.items()}


def test_only_multi_label_logits_start_at_the_frequency_of_labels():
    facts = Facts(10**4, 10**5, 100, 5, 5000)
    assert "training.prior_bias" not in take(facts)
    assert take(replace(facts, multi_label=True))["training.prior_bias"] is True


class Plain(torch.nn.Linear):
    def forward(self, batch):
        return super().forward(batch.dense_x)


def test_only_models_of_convs_start_at_the_frequency_of_labels(monkeypatch):
    monkeypatch.setattr(shoal.MODELS, "_components", dict(shoal.MODELS))
    shoal.MODELS.add("plain", Plain)
    graph = make_labelled()
    several = graph._copy(y=np.eye(3, dtype=np.uint8)[graph.y])
    for name, expected in (("mlp", True), ("plain", False)):
        config = make_config({"data": "digits", "method": "full", "model": {"name": name}})
        config.defaults = FROM_GRAPH
        follow_graph(config, several)
        assert config.training.prior_bias is expected
        assert make_trainer(config, several).train_epoch()["loss"] > 0


def test_batches_of_multi_label_graphs_are_as_large_as_800_steps_allow():
    facts = Facts(60_000, 1_500_000, 50, 121, 40_000, multi_label=True)
    assert take(replace(facts, num_nodes=30_000))["sampler.roots"] == 5000
    large = replace(facts, num_nodes=10**6, num_entries=10**7)
    assert take(large)["sampler.roots"] == 10**6 * take(large)["training.epochs"] // 1600
    assert take(replace(facts, num_nodes=10**8))["sampler.roots"] == 2**16
    assert "sampler.roots" not in take(replace(facts, num_nodes=15_000)) | take(
        replace(facts, multi_label=False)
    )


def test_batches_stay_small_with_a_budget_other_walks_or_only_training_nodes():
    graph = shoal.load("blocks", num_nodes=30_000, num_features=8, degree=4, seed=1)
    several = graph._copy(y=np.eye(graph.num_classes, dtype=np.uint8)[graph.y])

    def settle(**given: object) -> int | None:
        config = make_config({"data": "digits", **given})
        config.defaults = FROM_GRAPH
        follow_graph(config, several)
        return config.sampler.given.get("roots")

    assert settle() == 5000
    assert settle(sampler={"depth": 4}) is None
    assert settle(sampler={"name": "node"}) is None
    assert settle(sampler={"roots": 40}) == 40
    assert settle(method="full") is None
    assert settle(training={"setting": "inductive"}) is None
    try:
        set_memory_budget(2**40)
        assert settle() is None
    finally:
        set_memory_budget(None)
