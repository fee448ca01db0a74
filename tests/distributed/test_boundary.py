"""Boundary sampling on real ranks: unbiased, counted, the same run for the same seed, whatever carries it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from boundary_ranks import DRAWS, EPOCHS, WIDTH, assign, check_all, dense_operator, train_all
from rank_jobs import Job, make_graph, make_model
from shoal.analysis.simulate import Machine, predict_epoch
from shoal.distributed.boundary import draw_nodes
from shoal.distributed.exchanges.p2p import PointToPoint
from shoal.distributed.transport import LocalTransport
from shoal.partitioning.cover import cover_halo
from shoal.partitioning.part import split_graph

RANKS = 3


@pytest.fixture(scope="module")
def answer(ranks):
    """What the ranks found; products and gradients they check themselves. Training alone first compiles the kernels once."""

    @cache
    def ask(transport: str) -> dict[str, Any]:
        train_all(LocalTransport())
        found: dict[str, Any] = ranks(transport, RANKS).call(check_all)
        return found

    return ask


TRANSPORTS = pytest.mark.parametrize("transport", ["gloo", "mpi"])


def test_mean_over_many_draws_is_the_whole_aggregation(answer):
    """Every entry's error over its standard error is about normal: none beyond 5.5, and their mean square near 1."""
    for name in answer("gloo")["draws"][0]:
        scores = np.concatenate([np.ravel(rank[name]["scores"]) for rank in answer("gloo")["draws"]])
        assert len(scores) > 200, name
        assert np.abs(scores).max() < 5.5, name
        assert 0.7 < np.mean(scores**2) < 1.4, name


def test_variance_is_what_independent_draws_give_and_within_the_bound(answer):
    """Var = (1 - p)/p Σ ‖P_vu h_u‖², and at most γ²‖P_V,B‖² / p (BNS-GCN, appendix A)."""
    graph = make_graph(Job())
    assignment = assign(graph.num_nodes, RANKS)
    p = dense_operator(graph, "gcn") * (assignment[:, None] != assignment[None])
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(graph.num_nodes, WIDTH, generator=generator, dtype=torch.float64).numpy()
    lengths = (h**2).sum(1)
    for rate in (0.5, 0.1):
        found = sum(rank[f"gcn nodes {rate}"]["variance"] for rank in answer("gloo")["draws"])
        exact = (1 - rate) / rate * float((p**2 @ lengths).sum())
        assert found == pytest.approx(exact, rel=0.1)
        assert found <= lengths.max() * (p**2).sum() / rate


def test_variance_on_covers_is_that_of_rows_and_sums(answer):
    """Var = (1 - p)/p Σ ‖what a row or a sum adds to v‖²: a sum of several rows counts as a whole."""
    graph = make_graph(Job())
    assignment = assign(graph.num_nodes, RANKS)
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(graph.num_nodes, WIDTH, generator=generator, dtype=torch.float64).numpy()
    parts = split_graph(graph, assignment, RANKS)
    for kind, rate in (("gcn", 0.5), ("mean", 0.1)):
        p, exact = dense_operator(graph, kind), 0.0
        for part in parts:
            keep = cover_halo(part.halo_indptr, part.halo_indices, part.halo_offsets)
            rows = part.halo_id[keep]
            exact += float((p[np.ix_(part.n_id, rows)] ** 2 @ (h[rows] ** 2).sum(1)).sum())
            for owner in range(RANKS):
                span = slice(part.halo_offsets[owner], part.halo_offsets[owner + 1])
                rest = part.halo_id[span][~keep[span]]
                exact += float(((p[np.ix_(part.n_id, rest)] @ h[rest]) ** 2).sum())
        found = sum(rank[f"{kind} cover {rate}"]["variance"] for rank in answer("gloo")["draws"])
        assert found == pytest.approx((1 - rate) / rate * exact, rel=0.1)


def test_counted_traffic_is_the_rate_times_the_full_volume_and_the_ids(answer):
    for case, rate in (("gcn nodes", 0.5), ("gcn nodes", 0.1), ("gcn cover", 0.5), ("mean cover", 0.1)):
        rows = [rank[f"{case} {rate}"] for rank in answer("gloo")["draws"]]
        full = DRAWS * sum(rank["full"] for rank in rows)
        found = sum(rank["sent"] for rank in rows)
        assert abs(found - rate * full) <= 3 * np.sqrt(rate * (1 - rate) * full)
        assert all(rank["sent"] == rank["counted"] and rank["ids"] == rank["told"] for rank in rows)


def test_edges_left_out_save_fewer_rows_than_nodes_left_out(answer):
    nodes, edges = (
        sum(rank[f"gcn {way} 0.5"]["sent"] for rank in answer("gloo")["draws"]) for way in ("nodes", "edges")
    )
    full = DRAWS * sum(rank["gcn nodes 0.5"]["full"] for rank in answer("gloo")["draws"])
    assert nodes < edges < full


def test_all_ways_leave_out_as_many_entries_and_dropedge_saves_least(answer):
    """(1 - p) of the crossing entries on average, within 4.5 standard errors of the exact law of each way.

    Of e edges, two entries each, d are left out: 4·e·d·(1 - d). A halo node takes all entries that read it: p·(1 - p)·Σ c².
    """
    rate, rows = 0.4, {}
    for way in ("nodes", "edges", "dropedge"):
        ranks = [rank[way] for rank in answer("gloo")["left out"]]
        left, halo, squares, entries, rows[way] = (
            sum(rank[key] for rank in ranks) for key in ("left", "halo", "squares", "entries", "rows")
        )
        expected = (1 - rate) * halo
        share = expected / entries
        variance = {
            "nodes": rate * (1 - rate) * squares,
            "edges": 2 * halo * rate * (1 - rate),
            "dropedge": 2 * entries * share * (1 - share),
        }[way]
        assert abs(left / DRAWS - expected) < 4.5 * np.sqrt(variance / DRAWS), way
    assert rows["nodes"] < rows["edges"] < rows["dropedge"]


@TRANSPORTS
def test_rate_one_is_the_unsampled_run_and_rate_zero_sends_nothing(transport, answer):
    trained = answer(transport)["trained"]
    assert trained["one"]["losses"] == trained["whole"]["losses"]
    assert trained["one"]["weights"] == trained["whole"]["weights"]
    assert trained["one"]["bytes"] == trained["whole"]["bytes"]
    assert trained["none"]["bytes"] == trained["no edges"]["bytes"] == [0] * EPOCHS
    assert trained["none"]["losses"] == trained["no edges"]["losses"]
    assert trained["none"]["losses"] != trained["whole"]["losses"]


def test_rows_are_sampled_unless_covers_are_asked_for(answer):
    trained = answer("gloo")["trained"]
    assert sum(trained["cover"]["bytes"]) < sum(trained["gcn"]["bytes"])
    assert trained["cover"]["losses"] == trained["cover again"]["losses"]


@TRANSPORTS
def test_same_seed_gives_the_same_run(transport, answer):
    trained = answer(transport)["trained"]
    assert trained["again"]["losses"] == trained["gcn"]["losses"]
    assert trained["again"]["weights"] == trained["gcn"]["weights"]
    for model in ("sage", "gcn", "mixhop", "gat", "edges", "dropedge", "input dropout", "sparse", "empty"):
        assert np.isfinite(trained[model]["losses"]).all()
        assert max(trained[model]["bytes"]) > 0
        assert trained[model]["sampling"] > 0


def test_a_sampled_input_costs_its_kept_rows_in_every_epoch(answer):
    """To the byte: 12 features of 4 bytes for every halo row that a rank keeps, forward only."""
    graph = make_graph(Job())
    parts = split_graph(graph, assign(graph.num_nodes, RANKS), RANKS)
    kept = np.array(
        [[draw_nodes(part.halo_id, 0.3, 9, e, part.rank).sum() for part in parts] for e in range(EPOCHS)]
    ).sum(1)
    trained = answer("gloo")["trained"]
    for model in ("sage", "gcn", "mixhop", "gat"):
        extra = np.subtract(trained[f"{model} input"]["bytes"], trained[model]["bytes"])
        np.testing.assert_array_equal(extra, kept * 12 * 4, err_msg=model)
        assert trained[f"{model} input"]["losses"] != trained[model]["losses"]
    assert sum(trained["sparse input"]["bytes"]) > sum(trained["sparse"]["bytes"])
    assert np.isfinite(trained["dropedge input"]["losses"]).all()


def test_the_simulator_predicts_what_ranks_send_for_what_they_keep(answer):
    """To the byte, the bits that tell owners included."""
    graph = make_graph(Job())
    parts = split_graph(graph, assign(graph.num_nodes, RANKS), RANKS)
    ids = PointToPoint(boundary_rate=0.3).count_ids(parts).sum()
    for model in ("sage", "gcn"):
        for epoch, sent in enumerate(answer("gloo")["trained"][model]["bytes"]):
            rows = np.zeros((RANKS, RANKS), np.int64)
            for part in parts:
                kept = draw_nodes(part.halo_id, 0.3, 9, epoch, part.rank)
                owner = np.repeat(np.arange(RANKS), np.diff(part.halo_offsets))
                rows[:, part.rank] = np.bincount(owner[kept], minlength=RANKS)
            assert sent == predict_epoch(rows, make_model(Job(model)), Machine(1, 1)).num_bytes + ids


def test_transport_does_not_matter(answer):
    one, other = answer("gloo")["trained"], answer("mpi")["trained"]
    for name in one:
        np.testing.assert_allclose(one[name]["losses"], other[name]["losses"], rtol=1e-5, err_msg=name)
        assert one[name]["bytes"] == other[name]["bytes"]


def test_rate_changes_in_equal_steps_over_the_epochs(answer):
    rising = answer("gloo")["trained"]["rising"]
    np.testing.assert_allclose(rising["rates"], np.linspace(0.25, 1, EPOCHS))
    assert rising["bytes"][0] < rising["bytes"][-1] == answer("gloo")["trained"]["rows"]["bytes"][-1]
