"""Deeper default models where nodes have few neighbours, seldom of their own class."""

from dataclasses import replace

import pytest

import shoal
from shoal.memory import set_memory_budget
from shoal.runs.config import FROM_GRAPH, make_config
from shoal.runs.defaults import choose_settings, follow_graph
from shoal.runs.facts import Facts

MIXED = Facts(20_000, 120_000, 100, 5, 9_999, homophily=0.05)


def take(facts: Facts, epochs: int | None = None, **given: object) -> dict[str, object]:
    found = {}
    for choice in choose_settings(facts, epochs, given):
        assert not found.keys() & choice.settings.keys()
        found |= choice.settings
    return found


def settle(graph: shoal.Graph, **settings: object) -> tuple[int | None, list[str]]:
    config = make_config({"data": "digits", **settings})
    config.defaults = FROM_GRAPH
    lines = follow_graph(config, graph)
    return config.model.num_layers, [line for line in lines if line.startswith("nodes have few neighbours")]


def draw(homophily: float) -> shoal.Graph:
    return shoal.load(
        "blocks", num_nodes=2000, num_classes=4, degree=6, num_features=8, homophily=homophily, seed=1
    )


def test_few_neighbours_of_other_classes_take_eight_layers():
    found = take(MIXED)
    expected = {"num_layers": 8, "hidden": 64, "dropout": 0.2, "input_dropout": 0.2, "norm": "batch"}
    assert {name: found[f"model.{name}"] for name in expected} == expected
    assert found["training.warmup"] == 20


def test_deep_models_are_wider_with_many_labels_and_time():
    many = replace(MIXED, num_labels=10_000)
    assert take(many)["model.hidden"] == 128
    assert take(replace(many, num_nodes=150_000, num_entries=900_000))["model.hidden"] == 64
    assert take(replace(many, num_nodes=10**6, num_entries=6 * 10**6))["model.num_layers"] == 4


@pytest.mark.parametrize(
    "other",
    [
        {"homophily": 0.3},
        {"num_entries": 320_000},
        {"num_entries": 160_000, "two_way": True},
        {"multi_label": True},
        {"regression": True},
        {"num_labels": 200},
    ],
)
def test_other_graphs_keep_their_depth(other: dict[str, object]):
    found = take(replace(MIXED, **other))
    assert found["model.num_layers"] in (2, 3, 4)
    assert found.get("model.input_dropout") != 0.2


@pytest.mark.parametrize(
    "given",
    [
        {"num_layers": 3},
        {"orders": "1-0-1", "num_layers": None},
        {"hidden": 32},
        {"norm": "layer"},
        {"dropout": 0.5},
        {"name": "sage"},
        {"name": "mlp"},
        {"epochs": 249},
    ],
)
def test_what_was_not_measured_with_eight_layers_keeps_its_depth(given: dict[str, object]):
    assert "model.input_dropout" not in take(MIXED, **given)
    assert take(MIXED, epochs=250)["model.num_layers"] == 8


def test_with_a_memory_budget_deep_models_are_narrow():
    try:
        set_memory_budget(2**40)
        assert take(replace(MIXED, num_labels=10_000))["model.hidden"] == 64
    finally:
        set_memory_budget(None)


def test_a_run_on_a_graph_of_low_homophily_says_why_it_is_deep():
    for method in ("auto", "full", "partitioned"):
        depth, lines = settle(draw(0.05), method=method)
        assert depth == 8
        assert len(lines) == 1
    assert settle(draw(0.8), method="full") == (4, [])


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "sampled"},
        {"method": "sampled", "training": {"history": True}},
        {"method": "partitioned", "partition": {"boundary_rate": 0.5}},
        {"method": "partitioned", "partition": {"staleness": 1}},
    ],
)
def test_steps_that_are_not_exact_keep_the_usual_depth(settings: dict[str, object]):
    assert settle(draw(0.05), **settings) == (4, [])


def test_a_given_depth_above_four_keeps_the_rest_of_a_deep_model():
    chosen = take(MIXED)
    assert take(MIXED, num_layers=8) == chosen
    assert take(MIXED, num_layers=12) | {"training.epochs": 0, "training.patience": 0} == chosen | {
        "training.epochs": 0,
        "training.patience": 0,
    }


def test_a_sampler_that_decides_the_depth_keeps_it():
    depth, lines = settle(draw(0.05), method="sampled", sampler={"name": "neighbor", "fanouts": "5-5-5"})
    assert (depth, lines) == (3, [])
