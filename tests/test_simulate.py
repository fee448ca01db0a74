"""Predicted cost of an epoch: an exchange takes as long as its busiest rank."""

import numpy as np
import pytest

import shoal
from shoal.partitioning.part import split_graph
from shoal.simulate import Machine, count_broadcast_rows, list_exchanges, predict_epoch
from small_graphs import make_labelled


def test_an_exchange_takes_what_its_busiest_rank_takes():
    rows = np.array([[0, 10, 0], [0, 0, 0], [5, 20, 0]])  # rank 1 receives 30 rows in two messages
    model = shoal.GNN("gcn", 8, 16, 3, num_layers=2)
    said = predict_epoch(rows, model, Machine(latency=1e-3, bandwidth=1e6))
    expected = 2e-3 + 30 * 16 * 4 / 1e6
    assert said.seconds == pytest.approx((expected, expected))
    assert said.communication == pytest.approx(2 * expected)
    assert (said.num_bytes, said.num_messages) == (2 * 35 * 16 * 4, 2 * 3)
    weights = 4 * sum(weight.numel() for weight in model.parameters())
    assert said.reduce == pytest.approx(4 * (1e-3 + weights / 3 / 1e6))
    assert predict_epoch(rows, model, Machine(1e-3, 1e6), item_bytes=2).num_bytes == said.num_bytes // 2


def test_layers_exchange_the_narrower_side_and_the_first_one_nothing():
    sage = list_exchanges(shoal.GNN("sage", 8, 16, 3, num_layers=3))
    assert [(one.layer, one.direction, one.width) for one in sage] == [
        (2, "forward", 8),
        (3, "forward", 8),
        (3, "backward", 8),
        (2, "backward", 8),
    ]
    assert list_exchanges(shoal.GNN("mlp", 8, 16, 3)) == []


def test_parts_say_the_same_as_their_rows_and_broadcasts_send_all():
    graph = make_labelled(200)
    parts = split_graph(graph, np.arange(200) % 4, 4)
    model = shoal.GNN("sage", 8, 16, 3, num_layers=2)
    said = predict_epoch(parts, model, Machine(1e-4, 1e8, rate=1e9))
    assert said.num_bytes == 2 * 8 * 4 * sum(part.num_halo for part in parts)
    assert said.compute > 0
    assert said.epoch == pytest.approx(said.compute + said.communication + said.reduce)
    everything = predict_epoch(count_broadcast_rows(parts), model, Machine(1e-4, 1e8))
    assert everything.num_bytes == 2 * 8 * 4 * 200 * 3
