"""The facts of a graph that its default settings follow from."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import numpy as np
import pytest
import scipy.sparse as sp

import shoal
from shoal.partitioning.part import Part, make_part
from shoal.runs.facts import Facts, draw_values, measure_facts
from small_graphs import make_labelled


def measure_together(parts: list[Part]) -> list[Facts]:
    """The facts that ranks find, each in a thread."""
    meeting, given = Barrier(len(parts)), [np.empty(0)] * len(parts)

    def measure(part: Part) -> Facts:
        def total(counts: np.ndarray) -> np.ndarray:
            given[part.rank] = counts
            meeting.wait()
            found = np.sum(given, axis=0)
            meeting.wait()
            return found

        return measure_facts(part, total)

    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(measure, parts))


def test_facts_are_those_of_a_dense_count():
    graph = make_labelled()
    facts = measure_facts(graph)
    assert (facts.num_nodes, facts.num_entries) == (graph.num_nodes, graph.num_entries)
    assert facts.num_labels == graph.train_mask.sum()
    assert facts.labels_per_class == facts.num_labels / graph.num_classes
    assert facts.num_features == graph.num_features


def label_by_edges(share: float, seed: int = 0) -> shoal.Graph:
    """A block model of 1,000 nodes whose edges join equal classes with probability `share`; 30 labels a class."""
    graph = shoal.load("blocks", num_nodes=1000, num_classes=4, degree=12, homophily=share, seed=seed)
    mask = np.zeros(graph.num_nodes, np.bool_)
    for one in range(4):
        mask[np.flatnonzero(graph.y == one)[:30]] = True
    return graph._copy(train_mask=mask)


@pytest.mark.parametrize("share", [0.02, 0.9])
def test_homophily_is_bounded_by_edges_between_training_nodes(share: float):
    graph = label_by_edges(share)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    seen = graph.train_mask[rows] & graph.train_mask[graph.indices] & (rows != graph.indices)
    same, joined = (graph.y[rows] == graph.y[graph.indices])[seen].sum() / 2, seen.sum() / 2
    assert joined > 20
    # Wilson's upper limit is the share from which the one seen is 1.645 deviations away.
    found = measure_facts(graph).homophily
    chance = np.sum((np.bincount(graph.y[rows[seen]]) / seen.sum()) ** 2)
    highest = found * (1 - chance) + chance
    assert highest > same / joined
    assert highest - same / joined == pytest.approx(1.645 * np.sqrt(highest * (1 - highest) / joined))
    assert (found < 0.3) == (share == 0.02)


def test_a_bound_of_homophily_is_rarely_below_the_true_one():
    bounds = [measure_facts(label_by_edges(0.55, seed)).homophily for seed in range(60)]
    assert np.mean(np.array(bounds) < (0.55 - 0.25) / 0.75) < 0.15  # 5 % are expected


def test_without_edges_between_training_nodes_homophily_is_not_bounded():
    graph = label_by_edges(0.02)
    lone = np.zeros(graph.num_nodes, np.bool_)
    lone[[np.flatnonzero(graph.y == one)[0] for one in range(4)]] = True
    assert measure_facts(graph._copy(train_mask=lone)).homophily == 1
    assert measure_facts(graph._copy(train_mask=None)).homophily == 1


def test_edges_inside_a_class_that_has_most_labels_are_not_mixed():
    y = (np.arange(400) % 20 == 0).astype(np.int64)
    ring = np.stack([np.arange(400), (np.arange(400) + 1) % 400])
    near, mask = y[ring[0]] == y[ring[1]], np.arange(400) < 80
    graph = shoal.Graph.from_edge_index(ring[:, near], num_nodes=400, y=y, directed=False)
    assert measure_facts(graph._copy(train_mask=mask)).homophily == 1


def test_loops_and_arcs_and_unlabelled_nodes_count_as_they_should():
    arcs = np.array([[0, 1, 2, 3, 0, 4], [1, 2, 3, 0, 0, 5]])
    graph = shoal.Graph.from_edge_index(arcs, num_nodes=6, y=np.array([0, 1, 0, 1, 0, -1]), directed=True)
    seen = graph._copy(train_mask=np.array([1, 1, 1, 1, 0, 0], np.bool_))
    found = measure_facts(seen).homophily  # four arcs, none inside a class, as two edges
    assert found == pytest.approx((1.645**2 / 2 / (1 + 1.645**2 / 2) - 0.5) / 0.5)


def test_homophily_is_measured_where_it_is_heeded():
    graph = label_by_edges(0.02)
    seen = measure_facts(graph)
    asked = []
    assert measure_facts(graph, heeds=lambda facts: bool(asked.append(facts))).homophily == 1
    assert asked == [replace(seen, homophily=1.0)]


def test_labels_of_other_splits_change_no_fact():
    graph = make_labelled()
    y = np.where(graph.train_mask, graph.y, (graph.y + 1) % graph.num_classes)
    masks = {name: getattr(graph, name) for name in ("train_mask", "val_mask", "test_mask")}
    other = shoal.Graph(graph.indptr, graph.indices, x=graph.x, y=y, directed=graph.directed, **masks)
    assert measure_facts(other) == measure_facts(graph)


def test_ranks_with_parts_find_the_facts_of_the_graph():
    graph = make_labelled()
    assignment = np.arange(graph.num_nodes) % 3
    parts = [make_part(graph, assignment, 3, rank) for rank in range(3)]
    whole = measure_facts(graph)
    assert measure_facts(parts) == whole
    for found in measure_together(parts):
        for name in ("num_nodes", "num_entries", "num_features", "num_labels", "num_classes", "multi_label"):
            assert getattr(found, name) == getattr(whole, name)
        assert found.largest_class == whole.largest_class > 0


@pytest.mark.parametrize("directed", [False, True])
def test_ranks_with_parts_find_the_homophily_of_the_graph(directed: bool):
    graph = label_by_edges(0.3)._copy(directed=directed)
    assignment = np.arange(graph.num_nodes) % 3
    parts = [make_part(graph, assignment, 3, rank) for rank in range(3)]
    whole = measure_facts(graph)
    assert whole.homophily < 0.6
    assert measure_facts(parts) == whole
    assert [one.homophily for one in measure_together(parts)] == [whole.homophily] * 3


@pytest.mark.parametrize("density", [0.02, 0.6])
def test_fractions_that_come_late_in_a_large_matrix_are_seen_by_any_number_of_ranks(density: float):
    width, num_nodes = 2000, int(2**21 / (2000 * density)) + 1000
    graph = make_labelled(num_nodes)
    counts = sp.random_array((num_nodes, width), density=density, rng=np.random.default_rng(0)).tocsr().ceil()
    words = graph._copy(x=sp.csr_array(counts, dtype=np.float32))
    late = words.x.copy()
    late.data[int(0.9 * late.nnz) :] *= 0.5
    assert late.nnz > 2**21
    drawn = draw_values(late, np.arange(num_nodes), num_nodes, late.nnz)
    assert 0.8 * 2**20 / 2 < len(drawn) <= 1.1 * 2**20
    assert np.mean(drawn == 0.5) == pytest.approx(0.1, abs=0.03)
    for x, expected in ((words.x, True), (late, False)):
        given = words._copy(x=x)
        assert measure_facts(given).words == expected
        for size in (2, 3):
            parts = [make_part(given, np.arange(num_nodes) % size, size, rank) for rank in range(size)]
            assert [one.words for one in measure_together(parts)] == [expected] * size
            some = [draw_values(part.x, part.n_id, num_nodes, late.nnz) for part in parts]
            assert sum(map(len, some)) == len(drawn)
