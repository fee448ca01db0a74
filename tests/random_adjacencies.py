"""Hypothesis strategies for small awkward graphs: empty rows, hubs, self loops, merged duplicates, no entries."""

import numpy as np
import scipy.sparse as sp
import torch
from hypothesis import strategies as st

from shoal.kernels.adjacency import Adjacency


@st.composite
def adjacencies(draw, weighted=None, scaled=None, index_dtype=torch.int32):
    """An Adjacency of up to 30 × 30, square and symmetric in a third of the cases.

    float64 weights: the kernels convert. A hub row and column touch everything; duplicate entries are drawn
    and merged; the rest of the rows are often empty.
    """
    symmetric = draw(st.integers(0, 2)) == 0
    n = draw(st.integers(1, 30))
    m = n if symmetric else draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(0, 80))
    rows, columns = rng.integers(0, n, count), rng.integers(0, m, count)
    if draw(st.booleans()):  # a hub, with its self loop where there is one
        rows = np.concatenate([rows, np.full(m, n - 1), np.arange(n)])
        columns = np.concatenate([columns, np.arange(m), np.full(n, m - 1)])
    pattern = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, m))
    pattern.sum_duplicates()
    if symmetric:
        pattern = sp.csr_array(pattern + pattern.T)
        pattern.sort_indices()
    adj = Adjacency.from_scipy(pattern)
    adj.indices = adj.indices.to(index_dtype)
    weighted = draw(st.booleans()) if weighted is None else weighted
    scaled = draw(st.booleans()) if scaled is None else scaled
    adj.values = torch.from_numpy(rng.standard_normal(adj.num_entries)) if weighted else None
    adj.row_scale = torch.from_numpy(rng.random(n)) if scaled else None
    adj.column_scale = torch.from_numpy(rng.random(m)) if scaled else None
    return adj
