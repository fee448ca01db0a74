"""Regression: losses, scores and predictions of float labels."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import shoal
from shoal import open_graph
from shoal.errors import ShoalError
from shoal.training.metrics import is_better, reaches, score_predictions
from shoal.training.regression import huber, mae, mse
from shoal.training.targets import measure_targets


def make_graph(num_nodes=400, unit=1000.0, **fields):
    """Targets that are the mean of the neighbours' first feature, in large units."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(num_nodes, 4)).astype(np.float32)
    ends = generator.integers(0, num_nodes, (2, 4 * num_nodes))
    graph = shoal.Graph.from_edge_index(ends, num_nodes, directed=False, x=x)
    sums = np.add.reduceat(x[graph.indices, 0], np.minimum(graph.indptr[:-1], graph.num_entries - 1))
    y = 5 * unit + unit * sums / np.maximum(graph.degree, 1)
    y[::50] = np.nan
    return shoal.Graph.from_edge_index(
        ends, num_nodes, directed=False, x=x, y=y.astype(np.float32), **fields
    ).with_split(0.5, 0.25)


def make_trainer(graph, **settings):
    model = shoal.GNN("sage", graph.num_features, 32, graph.num_classes, num_layers=1, seed=0)
    return shoal.Trainer(model, graph, lr=0.02, **settings)


def test_scores_are_the_means_over_targets_of_what_is_known():
    generator = np.random.default_rng(1)
    y, predicted = generator.normal(1e4, 3, (50, 2)), generator.normal(1e4, 3, (50, 2))
    y[::7, 1] = np.nan
    scores = score_predictions(torch.from_numpy(predicted), torch.from_numpy(y))
    error = predicted - y
    r2 = 1 - np.nansum(error**2, 0) / np.nansum((y - np.nanmean(y, 0)) ** 2, 0)
    assert scores == pytest.approx(
        {
            "r2": r2.mean(),
            "mae": np.nanmean(abs(error), 0).mean(),
            "rmse": np.sqrt(np.nanmean(error**2, 0)).mean(),
        },
        rel=1e-12,
    )


@pytest.mark.parametrize(("predicted", "r2"), [([2.0, 2.0], 1.0), ([2.0, 3.0], 0.0)])
def test_r2_of_equal_targets_is_one_only_if_all_are_right(predicted, r2):
    scores = score_predictions(torch.tensor(predicted)[:, None], torch.full((2,), 2.0))
    assert scores["r2"] == r2


def test_lower_errors_and_higher_r2_are_better():
    assert is_better("rmse", 1.0, 2.0)
    assert is_better("r2", 0.9, 0.2)
    assert not is_better("mae", 2.0, 2.0)
    assert reaches("mae", 1.05, 1.0, 0.1)
    assert not reaches("mae", 1.15, 1.0, 0.1)
    assert reaches("r2", 0.95, 1.0, 0.1)


@pytest.mark.parametrize(
    ("loss", "of"),
    [(mse, np.square), (mae, np.abs), (huber, lambda e: np.where(abs(e) < 1, e**2 / 2, abs(e) - 0.5))],
)
def test_losses_average_the_known_targets_of_a_node(loss, of):
    predicted = torch.tensor([[0.5, 4.0], [1.0, 1.0], [0.0, 2.0]], requires_grad=True)
    y = torch.tensor([[0.0, 1.0], [float("nan"), 3.0], [float("nan"), float("nan")]])
    losses = loss(predicted, y)
    error = of((predicted.detach() - y).numpy())
    assert losses.tolist() == pytest.approx([error[0].mean(), error[1, 1], 0])
    losses.sum().backward()
    assert torch.isfinite(predicted.grad).all()
    assert predicted.grad[2].tolist() == [0, 0]


def test_targets_are_standardised_by_the_training_nodes_alone_and_come_back_in_their_units():
    graph = make_graph()
    scale = measure_targets(graph)
    y = graph.y[graph.train_mask]
    assert float(scale.mean) == pytest.approx(np.nanmean(y.astype(float)), rel=1e-12)
    assert float(scale.deviation) == pytest.approx(np.nanstd(y.astype(float)), rel=1e-12)
    y = torch.from_numpy(y)
    torch.testing.assert_close(scale.restore(scale.standardize(y).float()), y, rtol=1e-6, atol=1e-3)


def test_training_does_not_depend_on_the_units_of_targets():
    small, large = (make_trainer(make_graph(unit=unit), patience=50) for unit in (1e-3, 1e5))
    losses = [[record["loss"] for record in trainer.fit(60)] for trainer in (small, large)]
    np.testing.assert_allclose(*losses, rtol=1e-3)
    scores = large.evaluate("test")
    assert scores["r2"] > 0.9
    assert scores["r2"] == pytest.approx(small.evaluate("test")["r2"], abs=0.01)
    predicted, y = large.predict(), torch.from_numpy(large.graph.y)
    mask = torch.from_numpy(large.graph.test_mask)
    assert predicted.shape == y.shape
    assert float((predicted - y)[mask].abs().mean()) == pytest.approx(scores["mae"], rel=1e-5)


def test_the_best_epoch_has_the_lowest_error_where_the_metric_is_one(tmp_path):
    trainer = make_trainer(make_graph(), metric="mae", loss="huber", checkpoints=tmp_path)
    errors = [record["val_mae"] for record in trainer.fit(15)]
    assert trainer.best_score == min(errors)
    assert trainer.best_epoch == 1 + int(np.argmin(errors))
    resumed = make_trainer(make_graph(), metric="mae", loss="huber")
    resumed.resume(tmp_path)
    assert resumed.best_score == trainer.best_score


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"loss": "cross_entropy"},
            "loss 'cross_entropy' is for classes and the labels of graph 'g' are numbers",
        ),
        (
            {"class_weights": "balanced"},
            "class_weights are for classes and the labels of graph 'g' are numbers",
        ),
        ({"metric": "accuracy"}, "unknown score of graph 'g' 'accuracy'"),
    ],
)
def test_settings_of_classes_are_refused_for_targets(settings, message):
    with pytest.raises(ShoalError, match=message):
        make_trainer(make_graph(name="g"), **settings)


def test_losses_and_scores_of_targets_are_refused_for_classes():
    graph = shoal.load("digits")
    with pytest.raises(
        ShoalError, match="loss 'mae' is for numbers and the labels of graph 'digits' are classes"
    ):
        make_trainer(graph, loss="mae")
    with pytest.raises(ShoalError, match="unknown score of graph 'digits' 'r2'"):
        make_trainer(graph, metric="r2")


def write_tables(folder, values, name="price"):
    generator = np.random.default_rng(0)
    folder.mkdir()
    ends = "\n".join(f"{a},{b}" for a, b in generator.integers(0, len(values), (4 * len(values), 2)))
    (folder / "edges.csv").write_text(f"source,target\n{ends}\n")
    rows = "\n".join(f"{i},{value},{generator.normal():.3f}" for i, value in enumerate(values))
    (folder / "nodes.csv").write_text(f"id,{name},a\n{rows}\n")


def test_a_table_with_prices_is_imported_trained_and_predicted_as_numbers(shoal, tmp_path):
    write_tables(tmp_path / "t", ["" if i % 9 == 0 else f"{i * 0.5:.1f}" for i in range(80)])
    said = shoal("data", "import", "t", "-o", "g", "--label", "price").stdout
    assert "the labels are numbers: a regression" in said
    assert "1 target" in said
    assert "numbers (regression), 1 target a node" in shoal("data", "info", "g").stdout
    said = shoal("train", "g", "--epochs", "2", "--method", "full", "--out", "r").stdout
    assert "test r2" in said
    assert "1 target" in said
    for out in ("y.npy", "y.parquet"):
        shoal("predict", "r", "-o", out)
    table = pq.read_table(tmp_path / "y.parquet").to_pydict()
    assert list(table) == ["node", "label"]
    assert np.load(tmp_path / "y.npy").tolist() == table["label"]
    assert len(set(table["label"])) > 10
    assert 0 < np.mean(table["label"]) < 40


def test_settings_of_a_loss_of_classes_are_refused_for_targets(shoal, tmp_path):
    write_tables(tmp_path / "t", [i / 2 for i in range(40)], "label")
    refused = shoal(
        "train", "t", "--epochs", "1", "--method", "full", "--set", "training.label_smoothing=0.1"
    )
    assert "loss 'mse'" in refused.refusal()
    assert "label_smoothing" in refused.refusal()
    kept = ("--set", "training.loss=huber", "--set", "training.delta=2", "--out", "r")
    assert shoal("train", "t", "--epochs", "1", "--method", "full", *kept).code == 0
    assert "delta: 2" in (tmp_path / "r" / "config.yaml").read_text()


def test_the_task_option_decides_where_labels_are_whole_numbers(shoal, tmp_path):
    write_tables(tmp_path / "t", range(30))
    arguments = ["data", "import", "t", "--label", "price"]
    assert "--task regression takes numbers" in shoal(*arguments, "-o", "classes").refusal()
    assert "1 target" in shoal(*arguments, "-o", "g", "--task", "regression").stdout
    assert open_graph(tmp_path / "g").y.tolist() == list(range(30))
    write_tables(tmp_path / "names", ["a", "b", "c"])
    refused = shoal("data", "import", "names", "-o", "n", "--task", "regression", "--label", "price")
    assert "label column 'price' holds values that are not numbers" in refused.refusal()
    assert "did you mean" in shoal(*arguments, "-o", "n", "--task", "regresion").refusal()
