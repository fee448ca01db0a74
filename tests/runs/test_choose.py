"""The method that a run takes where none is given: by the graph, said with its reason, and only there."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

import shoal as package
from shoal.memory import set_memory_budget
from shoal.runs import effort
from shoal.runs.choose import choose_method, leave_open, settle_method, settle_ranks
from shoal.runs.config import AUTO, RunConfig, make_config


@pytest.fixture(autouse=True)
def no_budget():
    yield
    set_memory_budget(None)


@pytest.fixture(scope="module")
def blocks():
    return package.load("blocks", num_nodes=3000, num_features=8, seed=1)


def test_batches_as_large_as_the_graph_make_way_to_the_whole_of_it(blocks):
    assert choose_method(RunConfig(), blocks).method == "full"


def test_many_nodes_are_sampled_and_some_take_steps_on_all(blocks, monkeypatch):
    small = make_config({"sampler": {"roots": 50}})
    assert "3,000 nodes allow at least 250 steps" in choose_method(small, blocks).reason
    monkeypatch.setattr(effort, "_WORK", 1e9)
    chosen = choose_method(small, blocks)
    assert chosen.method == "sampled"
    assert "of the 3,000 nodes" in chosen.reason


def test_graphs_with_many_labels_are_sampled_however_many_steps_there_is_time_for(blocks):
    several = blocks._copy(y=np.eye(blocks.num_classes, dtype=np.uint8)[blocks.y])
    chosen = choose_method(make_config({"sampler": {"roots": 50}}), several)
    assert chosen.method == "sampled"
    assert "multi-label graphs need many steps" in chosen.reason
    assert choose_method(RunConfig(), several).method == "full"  # a batch holds most of it


def test_a_step_that_memory_does_not_hold_is_not_taken(blocks):
    set_memory_budget(1)
    chosen = choose_method(RunConfig(), blocks)
    assert chosen.method == "sampled"
    assert "are left" in chosen.reason


def test_ranks_draw_batches():
    config = RunConfig(method=AUTO)
    assert settle_ranks(config, 1) == ()
    assert config.method == AUTO
    assert settle_ranks(config, 2)[0].endswith("(or choose --method partitioned)")
    assert config.method == "sampled"


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ({}, AUTO),
        ({"sampler": {"name": "node"}}, "sampled"),
        ({"features": {"readers": 2}}, "sampled"),
        ({"training": {"sampling_threads": 1}}, "sampled"),
        ({"training": {"epochs": 3}}, AUTO),
    ],
)
def test_what_is_said_about_batches_decides(given, method):
    config = make_config(given)
    leave_open(config)
    assert config.method == method


def test_a_method_that_is_given_stays(blocks):
    config = make_config({"method": "sampled"})
    assert settle_method(config, blocks) == ()
    assert config.method == "sampled"


def test_train_says_which_method_it_takes_and_why(shoal, tmp_path):
    fast = ("--epochs", 1, "--set", "model.hidden=8")
    said = shoal("train", "digits", *fast, "--out", "open").stdout
    assert "method full: a batch of sampler random-walk holds" in said
    assert yaml.safe_load((tmp_path / "open" / "config.yaml").read_text())["method"] == "full"
    for number, options in enumerate(
        (["--method", "sampled"], ["--sampler", "node"], ["--set", "sampler.roots=9"])
    ):
        said = shoal("train", "digits", *fast, *options, "--out", f"given-{number}").stdout
        assert "notice: method" not in said
        config = yaml.safe_load((tmp_path / f"given-{number}" / "config.yaml").read_text())
        assert config["method"] == "sampled"
