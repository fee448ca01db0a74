"""The search space: what it proposes is valid, follows declarations and leaves alone what is fixed."""

from __future__ import annotations

import random

import pytest
import scipy.sparse as sp

import shoal
from shoal.models.layers import NORMS
from shoal.runs.build import make_trainer
from shoal.runs.config import RunConfig, make_config
from shoal.runs.space import SPACE, STARTS, Interval, list_values, propose, select_start
from shoal.settings import list_settings
from small_graphs import make_labelled


@pytest.fixture(scope="module")
def digits():
    return shoal.load("digits")


def draw(seed):
    """A suggestion drawn uniformly, and what was asked."""
    random_state, asked = random.Random(seed), {}

    def suggest(key, values):
        asked[key] = values
        if isinstance(values, Interval):
            return random_state.uniform(values.low, values.high)
        return random_state.choice(values)

    return suggest, asked


@pytest.mark.parametrize("seed", range(60))
def test_every_proposal_is_a_configuration_that_can_be_made(digits, seed):
    suggest, _ = draw(seed)
    config = propose(RunConfig(data="digits"), (), digits, suggest)
    config.validate()
    assert make_config(config.to_dict()).to_dict() == config.to_dict()
    make_trainer(config, digits)


@pytest.mark.parametrize("seed", range(20))
def test_directions_are_searched_for_directed_graphs_only(digits, seed):
    graph = make_labelled(300, directed=True)
    suggest, asked = draw(seed)
    config = propose(RunConfig(data="digits"), (), graph, suggest)
    config.validate()
    make_trainer(config, graph)
    assert ("model.directions" in asked) == (config.model.name in ("gcn", "sage", "mixhop"))
    suggest, asked = draw(seed)
    propose(RunConfig(data="digits"), (), digits, suggest)
    assert "model.directions" not in asked


def test_both_directions_leave_models_that_have_them():
    base = make_config({"data": "digits", "model": {"directions": "both"}})
    graph = make_labelled(300, directed=True)
    for seed in range(10):
        suggest, asked = draw(seed)
        propose(base, {"model.directions"}, graph, suggest)
        assert set(asked["model.name"]) == {"gcn", "sage", "mixhop"}
    base.model.directions = "in"
    suggest, asked = draw(0)
    propose(base, {"model.directions"}, graph, suggest)
    assert "gat" in asked["model.name"]


def test_choices_come_from_the_declarations(digits):
    suggest, asked = draw(0)
    propose(RunConfig(data="digits"), {"model.name"}, digits, suggest)
    assert set(asked["model.norm"]) == set(NORMS)
    assert "model.name" not in asked
    assert set(asked["model.residual"]) == set(RunConfig().model.declared["residual"].choices.names)
    declared = RunConfig().training.declared
    for key, values in SPACE.items():
        if key.startswith("training.") and values is not None:
            setting = declared[key.partition(".")[2]]
            for value in (values.low, values.high) if isinstance(values, Interval) else values:
                assert setting.check(value) == value


@pytest.mark.parametrize("name", ["gcn", "sign"])
@pytest.mark.parametrize("kind", ["counts", "negative", "dense"])
def test_rows_of_sparse_features_that_are_not_negative_may_be_normalised(digits, kind, name):
    x = sp.csr_array(digits.x)
    graph = digits._copy(x={"counts": x, "negative": -x, "dense": digits.x}[kind])
    base, found = make_config({"data": "digits", "model": {"name": name}}), set()
    for seed in range(10):
        suggest, asked = draw(seed)
        config = propose(base, {"model.name"}, graph, suggest)
        found.add(config.model.input_norm)
        assert ("model.input_norm" in asked) == (kind == "counts" and name == "gcn")
        make_trainer(config, graph)
    assert found == ({"none", "rows"} if kind == "counts" and name == "gcn" else {"none"})


def test_what_is_fixed_stays_and_decides_what_models_there_are(digits):
    base = make_config({"data": "digits", "model": {"heads": 2}, "method": "full"})
    for seed in range(10):
        suggest, asked = draw(seed)
        config = propose(base, {"model.heads", "method"}, digits, suggest)
        assert (config.model.name, config.model.heads, config.method) == ("gat", 2, "full")
        assert "batches" not in asked


def test_batches_fit_the_graph_that_training_sees(digits):
    base = make_config({"data": "digits", "training": {"setting": "inductive"}})
    seen = int(digits.train_mask.sum())
    for seed in range(30):
        suggest, asked = draw(seed)
        config = propose(base, {"model.name"}, digits, suggest)
        if asked.get("sampler.share") == 0.5 and config.sampler.name in ("node", "frontier"):
            assert config.sampler.budget == min(max(seen // 2, 500), seen)


@pytest.mark.parametrize("number", range(len(STARTS)))
def test_starts_are_in_the_space(digits, number):
    start = select_start(RunConfig(data="digits"), (), number)
    assert start is not None

    def suggest(key, values):
        value = start.get(key, values[0] if isinstance(values, tuple) else values.low)
        assert isinstance(values, Interval) or value in values
        return value

    config = propose(RunConfig(data="digits"), (), digits, suggest)
    assert config.model.name == STARTS[number]["model.name"]


def test_a_start_keeps_what_is_fixed():
    base = make_config({"data": "digits", "model": {"name": "gat"}})
    start = select_start(base, {"model.name", "model.dropout"}, 0)
    assert start is not None
    assert not {"model.name", "model.dropout"} & set(start)


def test_a_number_without_values_cannot_be_searched():
    with pytest.raises(shoal.ShoalError, match="no choices to search"):
        list_values(list_settings(shoal.Trainer)["lr"])
