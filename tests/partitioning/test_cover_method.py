"""The method `cover`: its items, its mixed hypergraph, and partitions whose covers shrink."""

import numpy as np
import pytest

import shoal
from shoal.datasets import load
from shoal.partitioning import costs
from shoal.partitioning.cover import count_covers
from shoal.partitioning.cover_items import cover_again, list_entries, make_items, mix_nets
from shoal.partitioning.cover_search import make_scratch, move_node, price_peaks, search_covers
from shoal.partitioning.methods import cover
from shoal.partitioning.methods.random import partition_at_random
from shoal.partitioning.nets import count_rows, make_nets
from shoal.partitioning.work import EFFORTS, Work, weigh_nodes
from small_graphs import make_graph, make_labelled


@pytest.fixture(scope="module", params=[False, True], ids=["undirected", "directed"])
def graph(request):
    """A power law with loops, and nodes without entries."""
    rng = np.random.default_rng(5)
    edges = np.minimum((rng.pareto(1.0, (2500, 2)) * 20).astype(int), 399)
    return make_graph(edges.tolist(), 420, request.param)


def recount(entries, assignment, carrier):
    """Items by net and part, from the carriers alone."""
    pairs = set()
    for v in range(len(assignment)):
        for k in range(entries.indptr[v], entries.indptr[v + 1]):
            net = v + entries.shift if k >= entries.split[v] else v
            c = assignment[entries.other[k]]
            if carrier[entries.number[k]] == net and c != assignment[v]:
                pairs.add((net, int(c)))
    return pairs


def test_items_are_those_of_minimum_covers_and_the_mixed_hypergraph_counts_them(graph):
    entries, weights = list_entries(graph), weigh_nodes(graph, "edges")
    for num_parts in (2, 7):
        assignment = partition_at_random(graph.num_nodes, num_parts, 3)
        items = make_items(entries, assignment, weights, num_parts)
        sent = count_covers(graph, assignment, num_parts)
        np.testing.assert_array_equal(items.loads.send, sent.sum(1))
        np.testing.assert_array_equal(items.loads.receive, sent.sum(0))
        nets = mix_nets(entries, items.carrier, graph.num_nodes)
        assert count_rows(nets, assignment, num_parts) == sent.sum()
        for seed in range(5):  # any other partition: a bound from above
            other = partition_at_random(graph.num_nodes, num_parts, 10 + seed)
            assert count_rows(nets, other, num_parts) >= count_covers(graph, other, num_parts).sum()


def test_moves_keep_what_is_counted(graph):
    num_parts, rng = 6, np.random.default_rng(0)
    entries, weights = list_entries(graph), weigh_nodes(graph, "edges")
    assignment = partition_at_random(graph.num_nodes, num_parts, 1)
    items = make_items(entries, assignment, weights, num_parts)
    scratch, peak = make_scratch(entries, num_parts), 0.9 * items.loads.send.mean()
    above = lambda: sum(np.maximum(load - peak, 0).sum() for load in items.loads[:2])  # noqa: E731
    for v in rng.integers(0, graph.num_nodes, 150):
        b = int(rng.choice(np.setdiff1d(np.arange(num_parts), assignment[v])))
        before, priced = above(), price_peaks(entries, items, assignment, v, b, peak, scratch)
        move_node(entries, items, assignment, v, b, scratch)
        assert above() - before == pytest.approx(priced)
    found = recount(entries, assignment, items.carrier)
    assert items.counts.spread.sum() == len(found)
    assert items.loads.send.sum() == len(found) * (1 if graph.directed else 2)
    cut = (np.repeat(assignment, graph.degree) != assignment[graph.indices]).sum()
    assert (items.carrier >= 0).sum() == cut // (1 if graph.directed else 2)
    least = count_covers(graph, assignment, num_parts).sum()
    assert len(found) * (1 if graph.directed else 2) >= least
    assert cover_again(items, entries, assignment, num_parts) == least


def test_search_lowers_the_cover_within_the_balance_and_repeats(graph):
    num_parts, weights = 8, weigh_nodes(graph, "edges")
    start = shoal.partition_graph(graph, num_parts, "streaming", imbalance=0.1).assignment
    limit = max(1.1 * weights.sum() / num_parts, np.bincount(start, weights).max())
    arguments = (list_entries(graph), start, weights, num_parts, limit)
    found = search_covers(*arguments, sweeps=20, seed=2)
    np.testing.assert_array_equal(found, search_covers(*arguments, sweeps=20, seed=2))
    assert np.bincount(found, weights).max() <= limit
    before, after = (count_covers(graph, one, num_parts) for one in (start, found))
    assert after.sum() < before.sum()
    assert after.sum(1).max() <= before.sum(1).max()


@pytest.mark.parametrize(("name", "settings"), [("kronecker", {"scale": 9, "degree": 10}), ("digits", {})])
def test_cover_sends_no_more_than_hypergraph_by_covers(name, settings):
    graph = load(name, **settings)
    for num_parts in (4, 16):
        size = {}
        for method in ("cover", "hypergraph", "metis"):
            found = shoal.partition_graph(graph, num_parts, method, imbalance=0.05)
            quality = found.quality(relative=False)
            size[method] = quality.cover_volume
            assert quality.cover_volume == count_covers(graph, found.assignment, num_parts).sum()
            assert quality.cover_volume <= quality.total_volume
        assert size["cover"] <= min(size["hypergraph"], size["metis"])


def test_more_effort_sends_no_more_than_its_starts(graph):
    fast, default, best = (
        shoal.partition_graph(graph, 5, "cover", effort=effort, imbalance=0.1).quality(relative=False)
        for effort in EFFORTS
    )
    other = shoal.partition_graph(graph, 5, "hypergraph", imbalance=0.1).quality(relative=False)
    assert best.cover_volume <= min(fast.cover_volume, default.cover_volume, other.cover_volume)
    with pytest.raises(shoal.ShoalError, match="effort"):
        shoal.partition_graph(graph, 5, "cover", effort="quick")


@pytest.mark.parametrize("effort", EFFORTS)
def test_efforts_say_once_what_they_will_take_and_more_is_more(effort):
    graph, said = make_labelled(300), []
    found = [
        shoal.partition_graph(graph, 6, "cover", effort=effort, progress=said.append, seed=2)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(found[0].assignment, found[1].assignment)
    lines = [one for one in said if one.startswith("effort")]
    assert len(lines) == 2
    assert lines[0].startswith(f"effort {effort}: about ")
    work = Work(graph, 6, weigh_nodes(graph, "edges"), refine=True)
    seconds = [cover.estimate_seconds(work, make_nets(graph), cover._EFFORTS[one]) for one in EFFORTS]
    assert 0 < seconds[0] < seconds[1] < seconds[2]


def test_searches_are_shorter_where_they_would_take_too_long(monkeypatch):
    graph = make_labelled(300)
    work, nets = Work(graph, 8, weigh_nodes(graph, "edges")), make_nets(graph)
    tried = cover._EFFORTS["default"]
    assert cover._count_sweeps(work, nets, tried) == tried.sweeps
    factor = tried.search / 10.5 / costs.estimate_sweep(nets, 8)
    monkeypatch.setattr(costs, "SWEEP", tuple(factor * one for one in costs.SWEEP))
    assert cover._count_sweeps(work, nets, tried) == 10
    monkeypatch.setattr(costs, "SWEEP", (1e3, 1e3))
    assert cover._count_sweeps(work, nets, tried) == cover._FEW
    assert cover._count_sweeps(work, nets, cover._EFFORTS["best"]) == cover._EFFORTS["best"].sweeps


@pytest.mark.parametrize("directed", [False, True])
def test_no_part_sends_more_than_randoms_busiest_where_all_read_hubs(directed):
    """Nodes along a line that each read six of forty hubs."""
    rng, n = np.random.default_rng(0), 2000
    pairs = [np.stack([np.arange(n), rng.integers(0, 40, n)]) for _ in range(6)]
    pairs.append(np.stack([np.arange(n - 1), np.arange(1, n)]))
    graph = shoal.Graph.from_edge_index(np.concatenate(pairs, 1), n, directed=directed)
    found = shoal.partition_graph(graph, 64, "cover", effort="fast").quality()
    assert found.relative["max_cover_send"] <= 1
    assert found.relative["max_cover_receive"] <= 1


def test_auto_covers():
    assert shoal.partition_graph(make_labelled(200), 4).method == "cover"


def test_quality_counts_covers_when_asked(graph):
    partition = shoal.partition_graph(graph, 4, "random")
    sent = count_covers(graph, partition.assignment, 4)
    quality = partition.quality()
    assert (quality.cover_volume, quality.max_cover_send, quality.max_cover_receive) == (
        sent.sum(),
        sent.sum(1).max(),
        sent.sum(0).max(),
    )
    assert quality.relative["cover_volume"] == 1.0
    assert quality.to_dict()["cover_volume"] == sent.sum()
    assert partition.quality(relative=False, covers=False).cover_volume is None
