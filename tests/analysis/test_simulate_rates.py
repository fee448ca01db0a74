"""Predicted bytes of boundary rates: the mean of what epochs keep, and exactly what they send for what they keep."""

import numpy as np
import pytest

import shoal
from shoal.analysis.simulate import Machine, predict_epoch
from shoal.distributed.boundary import draw_nodes, drop_entries
from shoal.distributed.exchanges.p2p import PointToPoint
from shoal.partitioning.part import split_graph
from small_graphs import make_labelled

RANKS, RATE, EPOCHS = 3, 0.3, 300
WIRE = Machine(1e-4, 1e8)


@pytest.fixture(scope="module")
def parts():
    graph = make_labelled(150)
    return split_graph(graph, np.random.default_rng(0).integers(0, RANKS, 150), RANKS)


def count_kept(parts, way, epoch):
    """Rows that every rank keeps of its halo."""
    if way == "nodes":
        return [draw_nodes(part.halo_id, RATE, 7, epoch, part.rank).sum() for part in parts]
    rate = PointToPoint(boundary_rate=RATE, boundary_sampling=way).expect_entries(parts)[1]
    thin = [drop_entries(part, rate, 7, epoch, local=way == "dropedge") for part in parts]
    return [len(np.unique(part.halo_indices)) for part in thin]


@pytest.mark.parametrize("way", ["nodes", "edges", "dropedge"])
def test_expected_rows_are_the_mean_of_draws(parts, way):
    """300 epochs, every rank's mean within 4.5 standard errors."""
    method = PointToPoint(boundary_rate=RATE, boundary_sampling=way)
    kept = np.array([count_kept(parts, way, epoch) for epoch in range(EPOCHS)])
    expected = method.expect_rows(parts)[0].sum(0)
    error = kept.std(0, ddof=1) / np.sqrt(EPOCHS)
    assert (np.abs(kept.mean(0) - expected) < 4.5 * error + 1e-9).all()


def test_ways_are_ordered_as_in_the_paper_and_a_rate_of_one_is_the_whole_boundary(parts):
    model = shoal.GNN("gcn", 8, 16, 3, num_layers=2)
    whole = predict_epoch(parts, model, WIRE, exchange=PointToPoint(cover=False))
    said = [
        predict_epoch(parts, model, WIRE, exchange=PointToPoint(boundary_rate=RATE, boundary_sampling=way))
        for way in ("nodes", "edges", "dropedge")
    ]
    assert said[0].num_bytes < said[1].num_bytes < said[2].num_bytes < whole.num_bytes * 1.05
    rows = sum(part.num_halo for part in parts)
    ids = sum(-(-int(span) // 8) for part in parts for span in np.diff(part.halo_offsets))
    assert whole.num_bytes == 2 * rows * 16 * 4
    assert said[0].num_bytes == round(2 * RATE * rows * 16 * 4 + ids)
    nothing = predict_epoch(parts, model, WIRE, exchange=PointToPoint(boundary_rate=0.0))
    assert (nothing.num_bytes, nothing.num_messages) == (0, 0)


def test_a_sampled_input_adds_its_features_forward(parts):
    model = shoal.GNN("sage", 8, 16, 3, num_layers=2)
    plain, more = (
        predict_epoch(
            parts, model, WIRE, exchange=PointToPoint(boundary_rate=RATE, sample_input=given), item_bytes=4
        )
        for given in (False, True)
    )
    rows = sum(part.num_halo for part in parts)
    assert more.num_bytes - plain.num_bytes == pytest.approx(RATE * rows * 8 * 4, abs=1)
    assert (more.exchanges[0].layer, more.exchanges[0].width) == (0, 8)


def test_the_command_takes_graphs_without_features_and_rates(shoal, tmp_path):
    ends = np.random.default_rng(0).integers(0, 200, (900, 2))
    (tmp_path / "edges.csv").write_text("\n".join(f"{a},{b}" for a, b in ends) + "\n")
    assert shoal("data", "import", str(tmp_path / "edges.csv"), "-o", "bare").code == 0
    line = ("simulate", "bare", "--latency", "50", "--bandwidth", "100", "--parts", "2", "--method", "random")
    sent = []
    for more in ((), ("--features", "300"), ("--features", "300", "--set", "partition.boundary_rate=0.1")):
        answer = shoal(*line, "--set", "partition.cover=false", *more)
        assert answer.code == 0, answer.stderr
        row = next(one for one in answer.stdout.splitlines() if "MB sent" in one)
        sent.append(float(row.split()[-1]))
    assert sent[0] == sent[1] > 5 * sent[2] > 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("--set", "model.directions=both"), "undirected, its edges go both ways already"),
        (("--set", "method=sampled", "--sampler", "asgcn"), "trained by one process and there are 2 ranks"),
        (("--set", "training.history=true"), "an epoch with histories is not predicted"),
    ],
)
def test_what_training_refuses_is_not_predicted(shoal, settings, said):
    wire = ("--parts", "2", "--latency", "10", "--bandwidth", "1", "--model", "gcn")
    assert said in shoal("simulate", "digits", *wire, *settings).refusal()
