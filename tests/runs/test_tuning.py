"""Searches: repeatable, resumable, within their time, and blind to test labels."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import scipy.sparse as sp

import shoal
from shoal.errors import ShoalError
from shoal.runs.config import make_config, read_config
from shoal.runs.folder import METRICS, read_metrics
from shoal.runs.journal import NoLock
from shoal.runs.run import Run
from shoal.runs.trial import Clock, hide_test_labels
from shoal.runs.tuning import JOURNAL, RECIPE, RESULT, TABLE, Asked, Search
from shoal.store import save_graph

FAST = ("training.epochs=4", "model.hidden=16", "model.num_layers=2")


def search(folder, trials, data="digits", **asked):
    found = Search.create(folder, Asked(str(data), asked.pop("settings", FAST), **asked))
    found.run(Clock(None), trials)
    return found


def describe(found):
    return [(one.config, one.score, one.epochs, one.ended) for one in found.tried]


def store(graph, folder):
    save_graph(graph, folder)
    return folder


def change_test_labels(graph):
    y = np.array(graph.y)
    y[graph.test_mask] = (y[graph.test_mask] + 1) % graph.num_classes
    return shoal.Graph(
        graph.indptr,
        graph.indices,
        x=graph.x,
        y=y,
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
        name=graph.name,
    )


def test_test_labels_change_nothing_but_the_test_scores(tmp_path):
    graph = shoal.load("digits")
    results = []
    for name, one in (("a", graph), ("b", change_test_labels(graph))):
        found = search(tmp_path / name, 3, store(one, tmp_path / f"graph-{name}"), seeds=2)
        scores = found.confirm(Clock(None))
        tests = {key: scores.pop(key) for key in list(scores) if key.startswith("test_")}
        tried = [(config | {"data": ""}, *rest) for config, *rest in describe(found)]
        results.append((scores, tried, (tmp_path / name / TABLE).read_text(), tests))
    (scores, tried, table, tests), (other_scores, other_tried, other_table, other_tests) = results
    assert scores == other_scores
    assert tried == other_tried
    assert without_seconds(table) == without_seconds(other_table)
    assert tests["test_accuracy"]["mean"] > other_tests["test_accuracy"]["mean"] + 0.1


def without_seconds(table):
    rows = [line.split(",") for line in table.splitlines()]
    place = rows[0].index("seconds")
    return [row[:place] + row[place + 1 :] for row in rows]


@pytest.mark.parametrize(
    ("convert", "unknown"),
    [
        (lambda y: y, -1),
        (lambda y: np.eye(10, dtype=np.uint8)[y], 0),
        (lambda y: y.astype(np.float32), np.nan),
    ],
    ids=["single-label", "multi-label", "regression"],
)
def test_hidden_labels_are_gone(convert, unknown):
    graph = shoal.load("digits")
    graph = graph._copy(y=convert(graph.y), num_classes=None)
    hidden = hide_test_labels(graph)
    assert hidden.num_classes == graph.num_classes
    assert np.array_equal(
        hidden.y[graph.test_mask], np.full_like(graph.y[graph.test_mask], unknown), equal_nan=True
    )
    assert np.array_equal(hidden.y[~graph.test_mask], graph.y[~graph.test_mask])


def test_the_first_trial_has_the_defaults_and_the_best_is_no_worse(tmp_path):
    found = search(tmp_path / "tune", 4, settings=("training.epochs=3",))
    config = make_config({"data": "digits", "method": "auto", "defaults": "graph", "training": {"epochs": 3}})
    run = Run.create(tmp_path / "run", config)
    run.train()
    first = found.tried[0]
    assert first.score == run.trainer.best_score
    assert found.best.score >= first.score


def test_trials_on_counts_search_the_norm_of_features(tmp_path):
    digits = shoal.load("digits")
    counts = store(digits._copy(x=sp.csr_array(digits.x)), tmp_path / "counts")
    found = search(tmp_path / "search", 7, counts, settings=(*FAST, "model.name=gcn", "method=full"))
    chosen = {one.config["model"].get("input_norm", "none") for one in found.tried[1:]}
    assert chosen == {"none", "rows"}
    assert all(one.score is not None and one.score > 0 for one in found.tried)


def test_a_resumed_search_equals_an_uninterrupted_one(tmp_path):
    whole = search(tmp_path / "whole", 7)
    search(tmp_path / "halves", 3)
    journal = tmp_path / "halves" / JOURNAL
    begun = Search.open(tmp_path / "halves")
    begun._study.ask()  # a trial that never ends
    journal.write_bytes(journal.read_bytes() + b'{"op_code":4,"wor')  # and a line cut short by a kill
    halves = Search.open(tmp_path / "halves")
    halves.run(Clock(None), 7)
    assert describe(halves) == describe(whole)
    assert [one.number for one in halves.tried] == list(range(7))


@pytest.mark.parametrize("more", [(), ("training.ema=0.9",)], ids=["plain", "averaged"])
def test_the_recipe_trains_to_the_score_that_was_found(tmp_path, more):
    found = search(tmp_path / "tune", 3, settings=FAST + more)
    result = found.confirm(Clock(None))
    config = read_config(tmp_path / "tune" / RECIPE)
    run = Run.create(tmp_path / "run", config)
    run.train()
    assert run.trainer.best_score == found.best.score
    assert result["seeds"] == [1, 2, 3]
    assert json.loads((tmp_path / "tune" / RESULT).read_text()) == result
    config.training.seed = 1
    again = Run.create(tmp_path / "again", config)
    again.train()
    final = read_metrics(tmp_path / "again" / METRICS)[-1]
    assert final["test_accuracy"] == result["test_accuracy"]["each"][0]


def test_bad_trials_end_before_their_last_epoch(tmp_path):
    settings = ("training.epochs=20", "model.hidden=16", "training.patience=null")
    found = search(tmp_path / "tune", 14, settings=settings)
    pruned = [one for one in found.tried if one.ended == "pruned"]
    assert pruned
    assert all(5 <= one.epochs < 20 and one.score < found.best.score for one in pruned)
    assert all(one.epochs == 20 for one in found.tried if one.ended == "done")


def test_time_is_kept_to_within_an_epoch_and_the_last_evaluation(tmp_path):
    search(tmp_path / "warm", 1)  # kernels are loaded
    found = Search.create(tmp_path / "tune", Asked("digits", ("training.patience=null",)))
    began = time.monotonic()
    clock = Clock(3 / 60)
    epochs = []
    found.run(clock, on_epoch=lambda trainer, record: epochs.append(record["seconds"]))
    assert time.monotonic() - began < 3
    result = found.confirm(clock)
    assert time.monotonic() - began < 3 + 2 * max(epochs) + 1
    assert 1 <= len(result["seeds"]) <= 3


def test_a_first_trial_that_would_take_all_the_time_leaves_some_for_another(tmp_path):
    search(tmp_path / "warm", 1)  # kernels are loaded
    endless = ("training.patience=null", "training.epochs=100000", "model.hidden=16")
    found = Search.create(tmp_path / "tune", Asked("digits", endless, seeds=1))
    found.run(Clock(8 / 60))
    assert found.tried[0].ended == "out of time"
    assert len(found.tried) >= 2
    assert max(one.seconds for one in found.tried) < 8 / 4 + 1


def test_a_seed_without_time_is_cut_and_said_to_be(tmp_path):
    found = search(tmp_path / "tune", 1)
    result = found.confirm(Clock(1e-9))
    assert (result["seeds"], result["is_cut"]) == ([1], True)


def test_failing_trials_are_told_and_end_the_search(tmp_path):
    found = Search.create(tmp_path / "tune", Asked("digits", ("training.lr=1e30", "training.epochs=3")))
    with pytest.raises(ShoalError, match="the last 10 trials failed: failed: the loss became nan"):
        found.run(Clock(None))
    with pytest.raises(ShoalError, match="no trial has a validation score"):
        found.confirm(Clock(None))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("method=partitioned",), "method partitioned is not searched"),
        (("training.seed=3",), "give --seed"),
        (("model.hiden=3",), "did you mean 'hidden'"),
        (("model.directions=both",), "'digits' is undirected: leave out model.directions=both"),
    ],
)
def test_what_cannot_be_searched_is_refused(tmp_path, settings, message):
    with pytest.raises(ShoalError, match=message):
        Search.create(tmp_path / "tune", Asked("digits", settings))
    assert not (tmp_path / "tune").exists()


def test_numbers_are_searched_by_r2_and_not_by_an_error(tmp_path):
    graph = shoal.load("digits")
    data = store(graph._copy(y=graph.y.astype(np.float32), num_classes=None), tmp_path / "graph")
    found = search(tmp_path / "tune", 2, data)
    result = found.confirm(Clock(None))
    assert [one.ended for one in found.tried] == ["done", "done"]
    assert {"val_r2", "test_r2", "test_mae"} <= set(result)
    with pytest.raises(ShoalError, match="mae is lower for better models"):
        Search.create(tmp_path / "other", Asked(str(data), ("training.metric=mae",)))


def test_a_graph_without_validation_nodes_is_refused(tmp_path):
    graph = shoal.load("digits")
    store(graph._copy(val_mask=np.zeros_like(graph.val_mask)), tmp_path / "graph")
    with pytest.raises(ShoalError, match="no validation nodes"):
        Search.create(tmp_path / "tune", Asked(str(tmp_path / "graph")))


def test_another_graph_under_the_same_path_is_refused(tmp_path):
    graph = shoal.load("digits")
    store(graph, tmp_path / "graph")
    search(tmp_path / "tune", 1, tmp_path / "graph")
    other = graph._copy(val_mask=graph.train_mask, train_mask=graph.val_mask)
    (tmp_path / "graph").rename(tmp_path / "before")
    store(other, tmp_path / "graph")
    with pytest.raises(ShoalError, match="searched on another graph"):
        Search.open(tmp_path / "tune")


@pytest.mark.parametrize("damage", [b"{}\n", b"nonsense\n"])
def test_a_damaged_journal_is_refused(tmp_path, damage):
    search(tmp_path / "tune", 1)
    path = tmp_path / "tune" / JOURNAL
    path.write_bytes(damage + path.read_bytes())
    with pytest.raises(ShoalError, match="is damaged"):
        Search.open(tmp_path / "tune")


def test_no_lock_of_another_process_is_waited_for():
    assert NoLock().acquire()
    NoLock().release()
