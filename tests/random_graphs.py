"""Random patterns for property tests: empty rows, isolated nodes, hubs, self loops, repeated edges."""

import numpy as np
from hypothesis import strategies as st


@st.composite
def edges(draw, max_nodes=12, max_edges=40):
    """(num_nodes, sources, targets). Few distinct ends, so that hubs, loops and repeats are common."""
    n = draw(st.integers(1, max_nodes))
    node = st.integers(0, n - 1)
    busy = st.sampled_from(draw(st.lists(node, min_size=1, max_size=3)))
    pairs = draw(st.lists(st.tuples(st.one_of(node, busy), st.one_of(node, busy)), max_size=max_edges))
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    return n, ends[:, 0].copy(), ends[:, 1].copy()
