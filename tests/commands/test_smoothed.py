"""`shoal predict --smooth` and `shoal baseline` as a person uses them."""

import re

import numpy as np
import pyarrow.parquet as pq
import pytest

import shoal as package

SMALL = ("--model", "mlp", "--epochs", "3", "--set", "model.hidden=16", "--out", "run")


def read_scores(text):
    return [float(number) for number in re.findall(r"(\d\.\d{4})", text)]


@pytest.fixture
def trained(shoal):
    assert shoal("train", "digits", *SMALL).code == 0
    return shoal


def score(labels, mask):
    graph = package.load("digits")
    return np.mean(graph.y[getattr(graph, mask)] == labels[getattr(graph, mask)])


def test_smoothed_labels_are_written_with_their_scores(trained):
    done = trained("predict", "run", "-o", "labels.npy", "--smooth")
    assert done.code == 0, done.stderr
    labels = np.load("labels.npy")
    before, after, test = (
        *read_scores(done.stdout.splitlines()[0])[:2],
        *read_scores(done.stdout.splitlines()[1]),
    )
    assert after > before
    assert after == pytest.approx(score(labels, "val_mask"), abs=1e-4)
    assert test == pytest.approx(score(labels, "test_mask"), abs=1e-4)
    assert trained("predict", "run", "-o", "plain.npy").code == 0
    assert before == pytest.approx(score(np.load("plain.npy"), "val_mask"), abs=1e-4)


def test_validation_labels_are_spread_only_when_asked_for(trained):
    plain = trained("predict", "run", "-o", "labels.npy", "--smooth")
    done = trained("predict", "run", "-o", "labels.parquet", "--smooth-with-validation")
    assert "use labels of validation nodes too" in done.stdout
    assert "use labels of validation nodes" not in plain.stdout
    assert read_scores(done.stdout)[:2] == read_scores(plain.stdout)[:2]
    labels = pq.read_table("labels.parquet")["class"].to_numpy()
    assert score(labels, "val_mask") > score(np.load("labels.npy"), "val_mask")


def test_a_run_on_stored_parts_alone_is_not_smoothed(shoal):
    assert shoal("partition", "digits", "--parts", "1", "-o", "parts").code == 0
    assert shoal("train", "--parts", "parts", *SMALL).code == 0
    done = shoal("predict", "run", "-o", "labels.npy", "--smooth")
    assert done.code == 2
    assert "a single process needs the whole graph" in done.stderr


def test_the_baseline_needs_no_features(shoal):
    graph = package.load("digits")
    package.save_graph(graph._copy(x=None), "bare")
    done = shoal("baseline", "bare", "-o", "labels.npy")
    assert done.code == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("label propagation"))
    labels = np.load("labels.npy")
    found = read_scores(line)
    assert found == pytest.approx([score(labels, "val_mask"), score(labels, "test_mask")], abs=1e-4)
    assert found[1] > 0.9
    assert shoal("baseline", "digits").stdout.splitlines()[-1] == line


def test_the_baseline_refuses_what_has_no_single_labels(shoal):
    graph = package.load("digits")
    package.save_graph(graph._copy(y=np.eye(10, dtype=np.uint8)[graph.y]), "several")
    done = shoal("baseline", "several")
    assert done.code == 2
    assert "is multi-label" in done.stderr
    package.save_graph(package.Graph(graph.indptr, graph.indices, name="bare"), "bare")
    assert "has no labels" in shoal("baseline", "bare").stderr
