"""The facts of a graph that its default settings follow from."""

from concurrent.futures import ThreadPoolExecutor
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
