"""Deeper default models where nodes have few neighbours, seldom of their own class."""

from dataclasses import replace

import pytest

import shoal
from shoal.memory import set_memory_budget
from shoal.runs.config import FROM_GRAPH, make_config
from shoal.runs.defaults import choose_settings, follow_graph
from shoal.runs.facts import Facts

MIXED = Facts(20_000, 120_000, 100, 5, 9_999, homophily=0.05)


def take(facts: Facts, **given: object) -> dict[str, object]:
    found = {}
    for choice in choose_settings(facts, given=given):
        found |= choice.settings
    return found


def test_few_neighbours_of_other_classes_take_eight_layers():
    found = take(MIXED)
    expected = {"num_layers": 8, "hidden": 64, "dropout": 0.2, "input_dropout": 0.2, "norm": "batch"}
    assert {name: found[f"model.{name}"] for name in expected} == expected
    assert found["training.warmup"] == 20


def test_deep_models_are_wider_with_many_labels_and_time():
    many = replace(MIXED, num_labels=10_000)
    assert take(many)["model.hidden"] == 128
    assert take(replace(many, num_nodes=150_000, num_entries=900_000))["model.hidden"] == 64
    assert take(many, hidden=32)["model.num_layers"] == 8


@pytest.mark.parametrize(
    "other",
    [
        {"homophily": 0.3},
        {"num_entries": 320_000},
        {"num_entries": 160_000, "two_way": True},
        {"multi_label": True},
        {"num_labels": 200},
        {"num_nodes": 10**6, "num_entries": 6 * 10**6},
    ],
)
def test_other_graphs_keep_their_depth(other: dict[str, object]):
    found = take(replace(MIXED, **other))
    assert found["model.num_layers"] in (2, 3, 4)
    assert found.get("model.input_dropout") != 0.2


def test_deep_models_take_at_most_half_of_a_memory_budget():
    step = 4 * 4 * MIXED.num_nodes * 8 * 64
    try:
        for budget, layers in ((2 * step, 8), (2 * step - 1, 4)):
            set_memory_budget(budget)
            assert take(MIXED)["model.num_layers"] == layers
    finally:
        set_memory_budget(None)


@pytest.mark.parametrize(
    "given", [{"num_layers": 3}, {"orders": "1-0-1", "num_layers": None}, {"name": "gat"}, {"name": "mlp"}]
)
def test_a_given_depth_or_another_conv_keeps_the_width(given: dict[str, object]):
    assert take(MIXED, **given)["model.hidden"] == 128


def test_a_run_on_a_graph_of_low_homophily_says_why_it_is_deep():
    shape = {"num_nodes": 2000, "num_classes": 4, "degree": 6, "num_features": 8, "seed": 1}
    for homophily, layers in ((0.05, 8), (0.8, 4)):
        graph = shoal.load("blocks", homophily=homophily, **shape)
        config = make_config({"data": "digits", "method": "full"})
        config.defaults = FROM_GRAPH
        lines = follow_graph(config, graph)
        assert config.model.num_layers == layers
        assert any(line.startswith("nodes have few neighbours") for line in lines) == (layers == 8)
