"""`shoal train` says when a run does not beat what costs nothing: one answer for all nodes, or label propagation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shoal as package
from shoal.graph import Graph
from shoal.store import save_graph
from shoal.training import baselines
from shoal.training.smoothing_choice import choose_propagation, make_score

SMALL = ("--method", "full", "--epochs", 3, "--set", "model.hidden=8", "--out", "run")


def make_graph(*, telling: str, num_nodes: int = 400, rare: float = 0.25) -> Graph:
    """Two classes, one of three quarters; edges or features tell which."""
    generator = np.random.default_rng(3)
    y = (generator.random(num_nodes) < rare).astype(np.int64)
    ends = generator.integers(0, num_nodes, (2, 8 * num_nodes))
    if telling == "edges":
        ends = ends[:, y[ends[0]] == y[ends[1]]]
    x = generator.normal(size=(num_nodes, 4)).astype(np.float32)
    if telling == "features":
        x[:, 0] = 4 * y - 2
    return Graph.from_edge_index(ends, num_nodes, directed=False, x=x, y=y).with_split(seed=0)


def test_a_run_below_label_propagation_says_what_to_try(shoal, tmp_path):
    save_graph(make_graph(telling="edges"), tmp_path / "graph")
    said = shoal("train", "graph", "--model", "mlp", *SMALL)
    assert said.code == 0, said.stderr
    (notice,) = [line for line in said.stdout.splitlines() if "a poor run" in line]
    assert "label propagation scores 1.0000; try" in notice
    for tip in (
        f"`shoal tune {tmp_path / 'graph'}`",
        "`shoal predict run --smooth -o labels.parquet`",
        "training.label_reuse",
    ):
        assert tip in notice


def test_a_run_that_learned_nothing_does_not_beat_one_answer_for_all(shoal, tmp_path):
    save_graph(make_graph(telling="nothing"), tmp_path / "graph")
    said = shoal("train", "graph", "--model", "mlp", "--set", "training.lr=1e-9", *SMALL)
    assert "a poor run: validation accuracy is 0." in said.stdout
    assert "`shoal tune " in said.stdout


def test_a_run_that_beats_both_says_nothing(shoal, tmp_path):
    save_graph(make_graph(telling="features"), tmp_path / "graph")
    given = ("--set", "training.lr=0.1", "--set", "model.num_layers=2", *SMALL)
    said = shoal("train", "graph", "--model", "mlp", *given, "--epochs", 12)
    assert said.code == 0, said.stderr
    assert float(said.stdout.split("test accuracy ")[1].split()[0]) > 0.95
    assert "a poor run" not in said.stdout


def test_a_class_with_most_labels_makes_the_metric_of_a_default_run(shoal, tmp_path):
    graph = make_graph(telling="features", rare=0.1)
    save_graph(graph, tmp_path / "graph")
    share = float(np.mean(graph.y[graph.train_mask] == 0))
    said = shoal("train", "graph", "--model", "mlp", *SMALL).stdout
    line = f"{share:.0%} of the training nodes are of one class, so accuracy tells little: training.metric=roc_auc"
    assert line in said
    baseline = shoal("baseline", "graph").stdout
    assert line in baseline
    assert "most frequent class: roc_auc validation 0.5000, test 0.5000" in baseline
    given = shoal("baseline", "graph", "--set", "training.metric=accuracy").stdout
    assert "most frequent class: accuracy" in given
    assert "best validation roc_auc" in said
    chosen = shoal(
        "train", "graph", "--model", "mlp", "--set", "training.metric=f1_macro", *SMALL[:-1], "run-2"
    )
    assert "of the training nodes are of" not in chosen.stdout
    assert "best validation f1_macro" in chosen.stdout
    found = package.NodeClassifier("mlp", epochs=1, model__hidden=4).fit(graph, progress=False)
    assert any("training.metric=roc_auc" in one for one in found.notices_)
    even = make_graph(telling="features")
    found = package.NodeClassifier("mlp", epochs=1, model__hidden=4).fit(even, progress=False)
    assert not any("training.metric" in one for one in found.notices_)


def test_a_class_with_most_labels_is_said_before_training_unless_a_metric_was_chosen(shoal, tmp_path):
    graph = make_graph(telling="features", rare=0.1)
    graph.class_names = ("fine", "fraud")
    save_graph(graph, tmp_path / "graph")
    share = float(np.mean(graph.y[graph.train_mask] == 0))
    fixed = ("--model", "mlp", "--set", "defaults=fixed", "--set", "model.hidden=4")
    said = shoal("train", "graph", *fixed, *SMALL).stdout
    notice = (
        f"notice: {share:.0%} of the training nodes are of class fine, and accuracy chooses the best weights"
    )
    assert said.index(notice) < said.index("best validation accuracy")
    assert "--set training.metric=f1_macro" in said
    assert "docs/howto/class-imbalance.md" in said
    chosen = shoal("train", "graph", *fixed, "--set", "training.metric=f1_macro", *SMALL[:-1], "run-2")
    assert "of the training nodes are of class" not in chosen.stdout


def test_one_class_of_training_nodes_is_said_before_training(shoal, tmp_path):
    graph = make_graph(telling="features")
    graph.y[graph.train_mask] = 0
    save_graph(graph, tmp_path / "graph")
    said = shoal("train", "graph", "--model", "mlp", "--set", "defaults=fixed", *SMALL).stdout
    assert "notice: all training nodes are of one class: there is nothing to learn" in said


def test_a_run_that_ends_before_the_rate_has_risen_is_told_so(shoal, tmp_path):
    save_graph(make_graph(telling="features"), tmp_path / "graph")
    said = shoal("train", "graph", "--model", "mlp", "--set", "training.warmup=5", *SMALL)
    assert "training.warmup is 5 and the run has 3 epochs: the learning rate does not reach" in said.stdout
    said = shoal("train", "graph", "--model", "mlp", "--set", "training.warmup=2", *SMALL[:-1], "run-2")
    assert "training.warmup is" not in said.stdout


def test_a_tie_with_label_propagation_or_a_perfect_score_is_no_poor_run():
    graph = make_graph(telling="edges")
    trainer = package.Trainer(package.GNN("mlp", 4, 8, 2), graph)
    assert baselines.find_better_baseline(trainer, 0.99) == (baselines.PROPAGATED, 1.0)
    assert baselines.find_better_baseline(trainer, 1.0) is None
    alike = graph._copy(y=np.zeros_like(graph.y))
    assert baselines.find_better_baseline(package.Trainer(package.GNN("mlp", 4, 8, 2), alike), 1.0) is None


def test_label_propagation_that_memory_does_not_suffice_for_is_not_tried(monkeypatch):
    def refuse(*_):
        raise package.ShoalError("the transposed graph needs more memory")

    monkeypatch.setattr(baselines, "score_propagation", refuse)
    trainer = package.Trainer(package.GNN("mlp", 4, 8, 2), make_graph(telling="edges"))
    assert baselines.find_better_baseline(trainer, 0.99) is None


def test_scores_of_baselines_are_those_of_the_command():
    graph = make_graph(telling="edges")
    trainer = package.Trainer(package.GNN("mlp", 4, 8, 2), graph)
    counts = torch.bincount(torch.from_numpy(graph.y[graph.train_mask]))
    assert baselines.score_constant(trainer) == pytest.approx(
        float((graph.y[graph.val_mask] == int(counts.argmax())).mean())
    )
    found = baselines.find_better_baseline(trainer, 0.0)
    scores, _, _ = choose_propagation(graph)
    assert found == ("label propagation", pytest.approx(make_score(graph, graph.val_mask)(scores)))
    assert baselines.find_better_baseline(trainer, 1.1) is None


@pytest.mark.parametrize("kind", ["multi-label", "regression"])
def test_other_tasks_have_one_answer_for_all(kind):
    graph = make_graph(telling="features")
    if kind == "regression":
        graph = graph._copy(y=graph.y.astype(np.float32), num_classes=1)
        expected = 0.0  # R² of the mean
    else:
        graph = graph._copy(y=np.stack([graph.y == 0, graph.y == 1], axis=1).astype(np.uint8))
        expected = float((graph.y[graph.val_mask][:, 0]).mean())
    trainer = package.Trainer(package.GNN("mlp", 4, 8, graph.num_classes), graph)
    assert baselines.score_constant(trainer) == pytest.approx(expected, abs=0.05)


def test_label_propagation_is_tried_where_it_takes_little():
    graph = make_graph(telling="edges")
    assert baselines.choose_steps(graph, 100.0) == (5, 20, 50)
    assert baselines.choose_steps(graph, 1e-9) == ()
    one = 3 * (graph.num_entries + graph.num_nodes) * 2 / 2e8
    assert baselines.choose_steps(graph, 20 * one) == (5, 20)
