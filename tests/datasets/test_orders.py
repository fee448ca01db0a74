"""Renumbered graphs: the same graph under other numbers, with neighbours nearer to each other."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import shoal
from shoal.datasets.orders import ORDERS
from shoal.datasets.orders.rcm import order_by_rcm
from shoal.datasets.reorder import mean_gap, reorder_graph, take_order
from shoal.graph import MASKS, Graph
from shoal.memory import set_memory_budget
from shoal.names import Names
from shoal.store import save_graph, verify_graph
from shoal.workspace import open_workspace


@pytest.fixture(autouse=True)
def no_budget():
    yield
    set_memory_budget(None)


def make_grid(side: int, seed: int = 0, **fields) -> Graph:
    """A square grid whose nodes are numbered at random."""
    number = np.random.default_rng(seed).permutation(side * side).reshape(side, side)
    ends = [(number[:-1], number[1:]), (number[:, :-1], number[:, 1:])]
    ends = np.concatenate([np.stack([a.ravel(), b.ravel()]) for a, b in ends], axis=1)
    return Graph.from_edge_index(ends, side * side, directed=False, **fields)


def make_labelled(ids=None, sparse: bool = False, directed: bool = False) -> Graph:
    rng = np.random.default_rng(1)
    n = 60
    x = rng.random((n, 4), np.float32)
    masks = {name: np.arange(n) % 3 == i for i, name in enumerate(MASKS)}
    return Graph.from_edge_index(
        rng.integers(0, n - 5, (2, 150)),  # the last five are isolated
        n,
        directed=directed,
        x=sp.csr_array(np.where(x > 0.5, x, 0)) if sparse else x,
        y=rng.integers(0, 3, n),
        node_ids=ids,
        **masks,
    )


def by_old_number(graph: Graph, old: np.ndarray) -> dict:
    """Everything a graph holds, with nodes called by their old numbers."""
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    x = graph.x.toarray() if sp.issparse(graph.x) else graph.x
    back = np.argsort(old)
    return {
        "entries": sorted(zip(old[rows].tolist(), old[graph.indices].tolist())),
        **{key: getattr(graph, key)[back].tolist() for key in ("y", *MASKS)},
        "x": x[back].tolist(),
    }


@pytest.mark.parametrize("by", ["rcm", "parts", "communities", "degree"])
@pytest.mark.parametrize(("sparse", "directed"), [(False, False), (True, True)])
def test_ordered_graph_is_the_same_graph(by, sparse, directed):
    graph = make_labelled(sparse=sparse, directed=directed)
    ordered = reorder_graph(graph, by).validate()
    assert sorted(ordered.node_ids) == list(range(60))  # the old numbers
    everything = by_old_number(graph, np.arange(60))
    assert by_old_number(ordered, ordered.node_ids) == everything
    assert ordered.notices[-1].startswith(f"ordered the nodes by {by}: neighbours are ")


def test_users_ids_stay_with_their_nodes():
    numbers = np.arange(60) * 7 + 3
    order = np.random.default_rng(0).permutation(60)
    assert take_order(make_labelled(numbers), order).node_ids.tolist() == numbers[order].tolist()
    texts = take_order(make_labelled(Names.from_texts([f"n{i}" for i in range(60)])), order).node_ids
    assert [texts[i] for i in range(60)] == [f"n{i}" for i in order]


def test_rcm_makes_a_path_of_a_path_and_a_narrow_band_of_a_grid():
    numbers = np.random.default_rng(3).permutation(500)
    path = reorder_graph(Graph.from_edge_index([numbers[:-1], numbers[1:]], 500, directed=False), "rcm")
    rows = np.repeat(np.arange(500), np.diff(path.indptr))
    assert np.abs(rows - path.indices).max() == 1
    grid = make_grid(30)
    ordered = reorder_graph(grid, "rcm")
    rows = np.repeat(np.arange(900), np.diff(ordered.indptr))
    theirs = sp.csgraph.reverse_cuthill_mckee(
        sp.csr_matrix((np.ones(grid.num_entries), grid.indices, grid.indptr)), symmetric_mode=True
    )
    other = take_order(grid, theirs)
    assert np.abs(rows - ordered.indices).max() <= 1.1 * np.abs(rows - other.indices).max()


@pytest.mark.parametrize("by", ["rcm", "parts", "communities"])
def test_orders_bring_neighbours_together(by):
    grid = make_grid(100)
    ordered = reorder_graph(grid, by, **({"parts": 40} if by == "parts" else {}))
    assert mean_gap(ordered) < mean_gap(grid) / 10


def test_communities_lie_together():
    cliques, size = 50, 12
    rng = np.random.default_rng(5)
    group = rng.permutation(np.repeat(np.arange(cliques), size))
    inside = [np.flatnonzero(group == c) for c in range(cliques)]
    ends = [np.stack(np.triu_indices(size, 1)) for _ in inside]
    ends = np.concatenate([nodes[pair] for nodes, pair in zip(inside, ends)], axis=1)
    bridges = rng.integers(0, cliques * size, (2, 100))
    graph = Graph.from_edge_index(np.concatenate([ends, bridges], axis=1), cliques * size, directed=False)
    ordered = reorder_graph(graph, "communities", most=50)
    changes = (np.diff(group[ordered.node_ids]) != 0).sum()
    assert changes <= 2 * cliques  # in random order there are about 590


def test_degree_puts_hubs_first():
    graph = shoal.load("kronecker", scale=8, num_features=0, directed=True)
    ordered = reorder_graph(graph, "degree")
    read = np.bincount(ordered.indices, minlength=256)
    assert (np.diff(read) <= 0).all()
    assert read[0] > read[-1]


def test_unknown_order_and_setting_are_refused_with_the_nearest():
    with pytest.raises(shoal.ShoalError, match="unknown order 'rmc': did you mean 'rcm'"):
        reorder_graph(make_grid(3), "rmc")
    with pytest.raises(shoal.ShoalError, match="setting of communities 'mots': did you mean 'most'"):
        reorder_graph(make_grid(3), "communities", mots=3)


def test_ordering_in_files_gives_the_same_bytes(tmp_path):
    for name, budget in (("memory", None), ("disk", 0)):
        set_memory_budget(budget)
        with open_workspace(tmp_path / name) as place:
            graph = reorder_graph(make_grid(120, x=np.ones((14400, 3), np.float32)), "communities")
            assert isinstance(graph.indices, np.memmap) == (name == "disk")
            graph.name = "g"
            save_graph(graph, tmp_path / name)
            assert len(list(place.folder.glob("indices*.npy"))) == (name == "disk")  # of the graph before
    files = [{path.name: path.read_bytes() for path in (tmp_path / n).iterdir()} for n in ("memory", "disk")]
    assert files[0] == files[1]
    assert verify_graph(tmp_path / "disk") == []


def test_every_order_is_a_permutation_of_graphs_without_edges():
    graph = Graph.from_edge_index(np.empty((2, 0), np.int64), 9)
    for by in ORDERS:
        assert sorted(reorder_graph(graph, by).node_ids) == list(range(9))
    assert sorted(order_by_rcm(graph)) == list(range(9))
