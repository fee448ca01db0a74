"""Kernels that look at a graph, against SciPy on random graphs."""

import numpy as np
import pytest
import scipy.sparse as sp

from shoal.graph import Graph
from shoal.kernels.survey import label_components, sample_entries, share_mirrored


@pytest.mark.parametrize("edges", [0, 30, 120, 1000])
def test_components_and_mirrored_arcs_equal_scipy(edges):
    rng = np.random.default_rng(edges)
    graph = Graph.from_edge_index(rng.integers(0, 80, (2, edges)), 80, directed=True)
    matrix = sp.csr_array((np.ones(graph.num_entries), graph.indices, graph.indptr), shape=(80, 80))
    count, labels = sp.csgraph.connected_components(matrix, directed=True, connection="weak")
    found = label_components(graph.indptr, graph.indices)
    assert len(np.unique(found)) == count
    assert len({*zip(found.tolist(), labels.tolist())}) == count
    others = matrix - sp.diags_array(matrix.diagonal())
    both = others.multiply(others.T).sum()
    expected = both / others.sum() if edges else 1.0
    assert share_mirrored(graph.indptr, graph.indices) == pytest.approx(expected)


def test_a_sample_of_entries_names_their_rows():
    graph = Graph.from_edge_index(np.random.default_rng(0).integers(0, 50, (2, 400)), 50, directed=True)
    rows, positions = sample_entries(graph.indptr, 37)
    assert len(rows) == len(np.unique(positions)) == 37
    assert (graph.indptr[rows] <= positions).all()
    assert (positions < graph.indptr[rows + 1]).all()
