"""Predicted all-reduces of batch norm; those of real ranks are in tests/distributed."""

import numpy as np
import pytest

import shoal
from shoal.analysis.machine import Machine
from shoal.analysis.simulate import predict_epoch
from shoal.distributed.exchanges.p2p import PointToPoint
from shoal.partitioning.part import split_graph
from small_graphs import make_labelled


def test_batch_norm_adds_all_reduces_that_overlap_with_nothing():
    parts = split_graph(make_labelled(200), np.arange(200) % 4, 4)
    machine = Machine(1e-3, 1e6, sums=((16, 1e-2), (1016, 2e-2)), ranks=4, dense_rate=1e9, sparse_rate=1e8)
    layer, batch = (
        shoal.GNN("sage", 8, "16-24", 3, num_layers=2, head_layers=2, norm=norm)
        for norm in ("layer", "batch")
    )
    for exchange in ("p2p", PointToPoint(staleness=1), "broadcast"):
        plain, normal = (predict_epoch(parts, one, machine, exchange=exchange) for one in (layer, batch))
        sums = (8 * 33, 8 * 49, 8 * 49, 8 * 48, 8 * 48, 8 * 32)
        assert (plain.norm_sums, normal.norm_sums) == ((), sums)
        seconds = sum(0.01 + (size - 16) / 1000 * 0.01 for size in sums)
        assert normal.norms == pytest.approx(seconds)
        assert normal.reduce == pytest.approx(plain.reduce + seconds)
        assert normal.epoch == pytest.approx(plain.epoch + seconds)
        same = {"norm_sums": None, "norms": None, "reduce": None, "epoch": None}
        assert normal.to_dict() | same == plain.to_dict() | same
    rows = PointToPoint().count_rows(parts)
    assert predict_epoch(rows, batch, machine).norms == pytest.approx(seconds)
    assert predict_epoch(parts, batch, machine, label_iterations=2).norm_sums == 2 * sums[:3] + sums
    alone = predict_epoch(split_graph(make_labelled(200), np.zeros(200, int), 1), batch, machine)
    assert (alone.norms, alone.reduce) == (0, 0)


def test_the_command_shows_what_batch_norm_adds(shoal):
    """With a ring of two ranks an all-reduce takes two latencies and its bytes once."""
    wire = ("--parts", "2", "--method", "random", "--latency", "1000", "--bandwidth", "1")
    stack = ("--model", "gcn", "--set", "model.hidden=16", "--set", "model.num_layers=3")
    told, plain = (
        {line.split("  ")[0]: line.split()[-1] for line in run.stdout.splitlines()}
        for run in (
            shoal("simulate", "digits", *wire, *stack, "--set", f"model.norm={norm}")
            for norm in ("batch", "layer")
        )
    )
    seconds = 2 * (2e-3 + 8 * 33 / 1e6) + 2 * (2e-3 + 8 * 32 / 1e6)  # the last layer gives logits
    assert float(told["batch norm, ms"]) == pytest.approx(1e3 * seconds, abs=0.01)
    assert told["gradients, ms"] == plain["gradients, ms"]
    assert "batch norm, ms" not in plain
