"""Runs opened in Python: the best weights, predictions on another graph, the history."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import torch

import shoal
from command_line import run_shoal as command
from shoal.cli import main
from shoal.runs.config import make_config
from shoal.runs.run import Run
from small_graphs import make_labelled

CONFIG = {"model": {"hidden": 16}, "training": {"epochs": 4, "lr": 0.02}}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    graph = make_labelled(400)._copy(class_names=("ash", "elm", "oak"))
    shoal.save_graph(graph, place / "graph")
    new = make_labelled(250, seed=5)._copy(node_ids=np.arange(1000, 1250))
    shoal.save_graph(
        new._copy(y=None, train_mask=None, val_mask=None, test_mask=None, num_classes=None), place / "new"
    )
    return place


def main_code(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code)


def train(place, name, **settings) -> Run:
    config = make_config({"data": str(place / "graph"), **CONFIG, **settings})
    run = Run.create(place / name, config)
    run.train()
    return run


@pytest.fixture(scope="module")
def trained(place) -> Run:
    return train(place, "first")


def test_a_loaded_run_answers_as_the_one_that_was_trained(place, trained):
    run = shoal.load_run(place / "first")
    numbers = trained.trainer.predict().numpy()
    assert np.array_equal(run.predict(names=False), numbers)
    assert np.array_equal(
        run.predict(), np.array(["ash", "elm", "oak"])[numbers]
    )  # as NodeClassifier answers
    for name in ("predict_proba", "embed"):
        found = getattr(run, name)()
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, getattr(trained.trainer, name)().numpy())
    assert run.evaluate("test") == trained.trainer.evaluate("test")
    assert run.graph.class_names == ("ash", "elm", "oak")
    assert run.best_epoch == trained.trainer.best_epoch
    assert "first" in repr(run)
    assert str(run.folder) in run._repr_html_()
    assert f"{run.trainer.best_score:.4f} in epoch {run.best_epoch}" in run._repr_html_()


def test_the_history_of_a_loaded_run_is_what_metrics_say(place, trained):
    lines = [json.loads(line) for line in (place / "first" / "metrics.jsonl").read_text().splitlines()]
    assert shoal.load_run(place / "first").history == lines[:-1]


def test_an_interrupted_run_has_the_best_weights_so_far_and_goes_on_in_memory(place, trained):
    shutil.copytree(place / "first", place / "copy")
    run = shoal.load_run(place / "copy")
    before = sorted((path, path.stat().st_mtime_ns) for path in (place / "copy").rglob("*"))
    run.trainer.fit(6)
    assert [record["epoch"] for record in run.history] == [1, 2, 3, 4, 5, 6]
    assert sorted((path, path.stat().st_mtime_ns) for path in (place / "copy").rglob("*")) == before
    longer = train(place, "longer", training={**CONFIG["training"], "epochs": 6})
    for ours, theirs in zip(run.model.parameters(), longer.trainer.model.parameters()):
        assert torch.equal(ours, theirs)
    resumed = Run.open(place / "copy", epochs=5)
    assert [record["epoch"] for record in resumed.trainer.history] == [1, 2, 3, 4]


@pytest.mark.parametrize("method", ["full", "swapped"])
def test_a_run_of_every_method_is_loaded(place, method):
    run = train(place, method, method=method)
    loaded = shoal.load_run(place / method)
    np.testing.assert_allclose(loaded.predict_proba(), run.trainer.predict_proba(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_run_across_ranks_is_loaded_by_one_process(place):
    options = ["--workers", "2", "--epochs", "2", "--set", "model.hidden=16", "--out", str(place / "ranks")]
    command("train", str(place / "graph"), *options)
    run = shoal.load_run(place / "ranks")
    scores = json.loads((place / "ranks" / "metrics.jsonl").read_text().splitlines()[-1])
    assert run.evaluate("test")["accuracy"] == pytest.approx(scores["test_accuracy"])
    assert run.notices == ()


def test_new_nodes_are_predicted_in_python_and_by_the_command(place, trained):
    run = shoal.load_run(place / "first")
    new = shoal.load(place / "new")
    found = run.predict(new, names=False)
    assert np.array_equal(found, run.predict(str(place / "new"), names=False))
    right = found == make_labelled(250, seed=5).y
    assert right.mean() > 0.7
    command("predict", str(place / "first"), "--data", str(place / "new"), "-o", str(place / "new.parquet"))
    table = pq.read_table(place / "new.parquet")
    assert table["id"].to_pylist() == list(range(1000, 1250))
    assert table["class"].to_pylist() == found.tolist()
    assert table["label"].to_pylist() == [("ash", "elm", "oak")[one] for one in found.tolist()]
    command(
        "predict",
        str(place / "first"),
        "--data",
        str(place / "new"),
        "-o",
        str(place / "p.csv"),
        "--probabilities",
    )
    proba = csv.read_csv(place / "p.csv").to_pydict()
    assert proba["label"] == table["label"].to_pylist()
    np.testing.assert_allclose(proba["probability_elm"], run.predict_proba(new)[:, 1], rtol=1e-4, atol=1e-5)
    command("embed", str(place / "first"), "--data", str(place / "new"), "-o", str(place / "new.npy"))
    np.testing.assert_allclose(np.load(place / "new.npy"), run.embed(new), rtol=1e-4, atol=1e-5)


def test_what_cannot_be_loaded_is_said_in_a_sentence(place, trained, tmp_path):
    with pytest.raises(shoal.ShoalError, match="is not a run folder"):
        shoal.load_run(tmp_path)
    shutil.copytree(place / "first", tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "checkpoints")
    with pytest.raises(shoal.ShoalError, match="has no checkpoint yet"):
        shoal.load_run(tmp_path / "bare")
    shoal.save_graph(make_labelled(400, seed=9), tmp_path / "other")
    with pytest.raises(shoal.ShoalError, match="was trained on another graph"):
        shoal.load_run(place / "first", data=tmp_path / "other")
    wrong = make_labelled(100)
    shoal.save_graph(wrong._copy(x=wrong.x[:, :3]), tmp_path / "narrow")
    with pytest.raises(shoal.ShoalError, match="has 3 features and the model was trained with 8"):
        shoal.load_run(place / "first").predict(tmp_path / "narrow")
    asked = [
        "predict",
        str(place / "first"),
        "--data",
        str(tmp_path / "narrow"),
        "-o",
        str(tmp_path / "a.npy"),
    ]
    assert main_code(asked) == 2
    assert not (tmp_path / "a.npy").exists()


def write_tables(folder, rows, seed):
    """Two teams whose members know each other; ages and towns say a little about the team."""
    generator = np.random.default_rng(seed)
    team = generator.integers(0, 2, rows)
    towns = np.where(generator.random(rows) < 0.8, np.array(["Ulm", "Bonn"])[team], "Rom")
    ages = 30 + 20 * team + generator.normal(0, 5, rows)
    ends = generator.integers(0, rows, (2, 8 * rows))
    ends = ends[:, team[ends[0]] == team[ends[1]]]
    folder.mkdir()
    lines = [f"p{i},{ages[i]:.1f},{towns[i]},{'red' if team[i] else 'blue'}" for i in range(rows)]
    (folder / "nodes.csv").write_text("\n".join(["id,age,town,team", *lines]) + "\n")
    (folder / "edges.csv").write_text("\n".join(["source,target", *(f"p{u},p{v}" for u, v in ends.T)]) + "\n")
    return team


def test_new_tables_are_encoded_and_directed_as_those_of_the_run(tmp_path):
    write_tables(tmp_path / "old", 200, 0)
    team = write_tables(tmp_path / "new", 90, 1)
    trained = shoal.load(tmp_path / "old", labels="team", directed=False, standardize=True)
    shoal.save_graph(trained, tmp_path / "graph")
    config = make_config({"data": str(tmp_path / "graph"), **CONFIG, "method": "full"})
    config.training.epochs = 30
    Run.create(tmp_path / "run", config).train()
    run = shoal.load_run(tmp_path / "run")
    found = run.predict(tmp_path / "new", names=False)
    assert (run.predict(tmp_path / "new") == np.where(team, "red", "blue")).mean() > 0.9
    alike = shoal.load(tmp_path / "new", like=tmp_path / "graph", directed=False)
    assert np.array_equal(run.predict(alike, names=False), found)
    command(
        "predict", str(tmp_path / "run"), "--data", str(tmp_path / "new"), "-o", str(tmp_path / "new.parquet")
    )
    table = pq.read_table(tmp_path / "new.parquet")
    assert table["id"].to_pylist() == [f"p{i}" for i in range(90)]
    assert table["class"].to_pylist() == found.tolist()
    rows = [line.rpartition(",")[0] for line in (tmp_path / "new" / "nodes.csv").read_text().splitlines()]
    shutil.copytree(tmp_path / "new", tmp_path / "bare")
    (tmp_path / "bare" / "nodes.csv").write_text("\n".join(rows) + "\n")  # without the label column
    bare = shoal.load(tmp_path / "bare", like=tmp_path / "graph", directed=False)
    shoal.save_graph(bare, tmp_path / "bare-graph")
    for unlabelled in (bare, tmp_path / "bare", tmp_path / "bare-graph"):
        assert np.array_equal(run.predict(unlabelled, names=False), found)
    otherwise = shoal.load(tmp_path / "new", labels="team", directed=False, standardize=True)
    with pytest.raises(shoal.ShoalError, match="imported with other means or categories"):
        run.predict(otherwise)
    nodes = (tmp_path / "new" / "nodes.csv").read_text().replace("id,age", "id,years")
    (tmp_path / "new" / "nodes.csv").write_text(nodes)
    renamed = shoal.load(tmp_path / "new", labels="team", directed=False, standardize=True)
    with pytest.raises(shoal.ShoalError, match="an additional column 'years'"):
        run.predict(renamed)
    with pytest.raises(shoal.ShoalError, match="age"):
        run.predict(tmp_path / "new")
