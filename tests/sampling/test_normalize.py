"""Normalised batches estimate the full graph's aggregation and loss without bias."""

import json
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import shoal
from shoal.kernels.row_sets import find_loops
from shoal.kernels.spmm import spmm_reference as spmm
from shoal.sampling import base
from shoal.sampling.base import make_sampler
from shoal.sampling.normalize import FIRST_COUNTED_BATCH, cache_folder, cache_key, count_batches
from shoal.sampling.shard import ShardedSampler
from shoal.training.loss import compute_loss
from small_graphs import make_graph, make_labelled

COUNTED = {
    "frontier": {"budget": 120, "frontier": 20},
    "random-walk": {"roots": 50, "depth": 2},
    "multi-random-walk": {"budget": 120, "walkers": 20},
    "forest-fire": {"budget": 120},
}
EXACT = {"edge": {"num_edges": 40}, "node": {"budget": 120}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def graph():
    return make_labelled(300)


def full_aggregate(sampler, h, kind):
    full = shoal.FullSampler(sampler.graph).sample(0)
    return spmm(full.block(0).adjacency(kind), h)


def mean_loss(sampler, logits, factors=None):
    """Loss of all training nodes when every node has its own fixed logits, each times its factor."""
    graph = sampler.graph
    mask = torch.from_numpy(graph.train_mask)
    losses = torch.nn.functional.cross_entropy(logits, torch.from_numpy(graph.y), reduction="none")
    return float((losses if factors is None else losses * factors)[mask].mean())


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("setting", ["inductive", "transductive"])
def test_over_the_counted_batches_both_estimates_follow_from_the_counts(graph, name, setting):
    """C counts exactly these batches, so their mean is the full graph's value but for C + 1 in place of C, to rounding."""
    sampler = make_sampler(name, graph, setting=setting, **COUNTED[name])
    norms = sampler.normalize(coverage=60)
    assert norms.notices == ()
    n = sampler.graph.num_nodes
    torch.manual_seed(0)
    h, logits = torch.randn(n, 4), torch.randn(n, graph.num_classes)
    aggregate, seen, losses = torch.zeros(n, 4), torch.zeros(n, 1), []
    for k in range(norms.num_batches):
        batch = sampler.sample(FIRST_COUNTED_BATCH + k)
        nodes = torch.from_numpy(batch.nodes)
        aggregate[nodes] += spmm(batch.block(0).adjacency("mean"), h[nodes])
        seen[nodes] += 1
        losses.append(float(compute_loss(logits[nodes], batch)))
    nodes, entries = count_batches(sampler, norms.num_batches)
    assert (entries > 0).all(), "an edge was never counted: raise the coverage of this test"
    shares = nodes / norms.num_batches * (norms.num_batches + 1) / (nodes + 1)
    assert np.mean(losses) == pytest.approx(mean_loss(sampler, logits, torch.from_numpy(shares)), rel=1e-5)
    adj = shoal.FullSampler(sampler.graph).sample(0).block(0).adjacency("mean")
    drawn = np.repeat(nodes, sampler.graph.degree)
    factors = torch.from_numpy(entries / (entries + 1) * (drawn + 1) / drawn).float()
    adj = adj.with_values(adj.entry_weights() * factors)
    torch.testing.assert_close(aggregate / seen, spmm(adj, h), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("directed", [False, True])
def test_gcn_aggregation_is_exact_when_everything_is_drawn_self_loops_included(name, directed):
    """A sampler that always draws all nodes must reproduce the full graph's operator."""
    graph = make_graph([(0, 1), (0, 2), (1, 2), (2, 2)], 3, directed=directed)
    options = {"edge": {"num_edges": 600}, "node": {"budget": 3}}[name]
    sampler = make_sampler(name, graph, coverage=1, **options)
    sampler.budget = 600
    h = torch.randn(3, 2)
    batch = sampler.sample(0)
    assert batch.num_nodes == 3
    for kind in ("gcn", "mean"):
        ours = spmm(batch.block(0).adjacency(kind), h)
        torch.testing.assert_close(ours, full_aggregate(sampler, h, kind), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("directed", [False, True])
def test_closed_forms_give_unbiased_estimates_on_fresh_batches(name, directed):
    """2,500 batches: loss, and aggregation of every (node, column), within 4.5 standard errors."""
    graph = make_labelled(60, directed=directed)
    options = {"edge": {"num_edges": 12}, "node": {"budget": 25}}[name]
    sampler = make_sampler(name, graph, coverage=1, seed=3, **options)
    n = graph.num_nodes
    torch.manual_seed(1)
    h, logits = torch.randn(n, 2), torch.randn(n, graph.num_classes)
    exact = full_aggregate(sampler, h, "mean")
    losses, sums, squares, seen = [], torch.zeros(n, 2), torch.zeros(n, 2), torch.zeros(n, 1)
    for k in range(2500):
        batch = sampler.sample(k)
        nodes = torch.from_numpy(batch.nodes)
        error = spmm(batch.block(0).adjacency("mean"), h[nodes]) - exact[nodes]
        sums[nodes] += error
        squares[nodes] += error**2
        seen[nodes] += 1
        losses.append(float(compute_loss(logits[nodes], batch)))
    standard_error = np.std(losses) / np.sqrt(len(losses))
    assert abs(np.mean(losses) - mean_loss(sampler, logits)) < 4.5 * standard_error
    z = (sums / (squares.sqrt() + 1e-6))[seen[:, 0] > 200]
    assert float(z.abs().max()) < 4.5


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("directed", [False, True])
def test_closed_forms_equal_counted_frequencies(name, directed):
    """Self loops and arcs included: 20,000 batches, every node and entry within 5 standard errors."""
    edges = [(0, 1), (0, 2), (1, 2), (0, 3), (4, 4), (4, 0)]
    graph = make_graph(edges, 6, directed=directed)
    sampler = make_sampler(name, graph, **{"edge": {"num_edges": 2}, "node": {"budget": 3}}[name])
    num_batches = 20_000
    for p, counts in zip(sampler.inclusion_probabilities(), count_batches(sampler, num_batches)):
        error = np.sqrt(p * (1 - p) / num_batches)
        assert (np.abs(counts / num_batches - p) <= 5 * error + 1e-12).all()


def test_counts_do_not_depend_on_the_number_of_threads(graph):
    sampler = make_sampler("frontier", graph, **COUNTED["frontier"])
    one, three = (count_batches(sampler, 40, num_threads=threads) for threads in (1, 3))
    assert np.array_equal(one[0], three[0])
    assert np.array_equal(one[1], three[1])


def test_counting_reports_progress_and_time_left(graph):
    said = []
    sampler = make_sampler("random-walk", graph, **COUNTED["random-walk"])
    sampler.normalize(5, progress=lambda *args: said.append(args))
    done, total, left = zip(*said)
    assert list(done) == list(range(1, total[0] + 1))
    assert left[-1] == 0
    assert min(left) >= 0


def test_nodes_never_drawn_are_named_not_divided_by_zero():
    graph = make_graph([(0, 1), (2, 3)], 40)
    sampler = shoal.EdgeSampler(graph, num_edges=2, coverage=1)
    batch = sampler.sample(0)
    assert torch.isfinite(batch.node_norm).all()
    assert "36 of 40 nodes were never drawn by this sampler: 4, 5, 6, 7, 8, …" in sampler.notices[0]
    walk = shoal.RandomWalkSampler(graph, roots=1, depth=1, coverage=1, seed=1)
    assert np.isfinite(walk.norms.node_norm).all()
    assert np.isfinite(walk.norms.edge_norm).all()
    assert "were never drawn in" in walk.notices[0]


def test_the_cache_is_used_for_the_same_sampler_and_only_for_it(graph, monkeypatch):
    sampler = make_sampler("frontier", graph, seed=1, **COUNTED["frontier"])
    first = sampler.normalize(5)
    folder = cache_folder() / cache_key(sampler, first.num_batches)
    assert json.loads((folder / "meta.json").read_text())["graph"] == graph.checksum
    monkeypatch.setattr(
        "shoal.sampling.normalize.count_batches", lambda *a, **b: pytest.fail("counted again")
    )
    again = make_sampler("frontier", graph, seed=1, **COUNTED["frontier"]).normalize(5)
    assert np.array_equal(first.edge_norm, again.edge_norm)
    keys = {
        cache_key(make_sampler("frontier", g, **{**COUNTED["frontier"], **options}), 7)
        for g, options in [
            (graph, {"seed": 1}),
            (graph, {"seed": 2}),
            (graph, {"seed": 1, "budget": 121}),
            (graph, {"seed": 1, "method": "fenwick"}),
            (graph, {"seed": 1, "pin_cap": 3}),
            (graph, {"seed": 1, "setting": "inductive"}),
            (make_labelled(301), {"seed": 1}),
        ]
    }
    assert len(keys) == 7


def test_concurrent_first_batches_normalise_once(graph):
    sampler = make_sampler("frontier", graph, coverage=5, **COUNTED["frontier"])
    threads = [threading.Thread(target=sampler.sample, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(cache_folder().iterdir())) == 1
    assert sampler.sample(0).edge_norm is not None


def test_a_shard_is_normalised_as_its_sampler_is(monkeypatch, tmp_path):
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))
    graph = shoal.load("blocks", num_nodes=500)
    inner = shoal.FrontierSampler(graph, budget=np.int64(60), frontier=20, coverage=3)
    shard = ShardedSampler(inner, 1, 2)
    assert shard.coverage == 3
    assert shard.norms is inner.norms
    assert shard.sample(0).node_norm is not None
    assert shard.settings["budget"] == 60


def test_a_cache_that_cannot_be_written_costs_nothing_else(monkeypatch):
    monkeypatch.setenv("SHOAL_HOME", "/proc/nowhere")
    graph = shoal.load("blocks", num_nodes=500)
    assert shoal.FrontierSampler(graph, budget=60, frontier=20, coverage=3).sample(0).node_norm is not None


def test_edges_that_are_never_drawn_are_counted_in_a_notice():
    graph = shoal.load("blocks", num_nodes=500)
    sampler = shoal.ClusterSampler(graph, assignment=np.arange(500) % 4, coverage=1)
    assert sampler.norms is not None
    assert any("never drawn" in notice for notice in sampler.notices)


def test_self_loops_are_found_once_without_arrays_of_entries(monkeypatch):
    n = 3000
    ends = np.concatenate([np.random.default_rng(0).integers(0, n, (2, 400_000)), [[7, 90], [7, 90]]], axis=1)
    graph = shoal.Graph.from_edge_index(ends, n, directed=True)
    sampler = make_sampler("node", graph, budget=100)
    calls = []
    monkeypatch.setattr(base, "find_loops", lambda *given: calls.append(1) or find_loops(*given))
    find_loops(*(base.as_tensor(one) for one in (graph.indptr, graph.indices)))  # compiled
    tracemalloc.start()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: sampler._has_loop, range(8)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < graph.num_entries
    assert len(calls) == 1
    loops = np.unique(ends[0][ends[0] == ends[1]])
    for one in found:
        np.testing.assert_array_equal(np.flatnonzero(one), loops)
