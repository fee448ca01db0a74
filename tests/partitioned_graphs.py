"""Small graphs with a partition, for property tests: directed or not, empty parts, loops, isolated nodes."""

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

import shoal
from random_graphs import edges
from shoal.partitioning.part import Part


@st.composite
def partitioned_graphs(draw):
    """(graph, assignment, num_parts); parts may be empty."""
    n, sources, targets = draw(edges())
    directed = draw(st.booleans())
    graph = shoal.Graph.from_edge_index(np.stack([sources, targets]), n, directed=directed)
    num_parts = draw(st.integers(1, 5))
    assignment = np.array(draw(st.lists(st.integers(0, num_parts - 1), min_size=n, max_size=n)), np.int64)
    return graph, assignment, num_parts


def dense(graph):
    data = np.ones(graph.num_entries, np.int8)
    return sp.csr_array((data, graph.indices, graph.indptr), shape=(graph.num_nodes,) * 2).toarray()


def assert_same_part(one: Part, other: Part):
    for key, value in vars(one).items():
        theirs = getattr(other, key)
        if isinstance(value, np.ndarray):
            assert value.dtype == theirs.dtype, key
            np.testing.assert_array_equal(value, theirs, err_msg=key)
        elif sp.issparse(value):
            assert (value != theirs).nnz == 0
        else:
            assert value == theirs, key
