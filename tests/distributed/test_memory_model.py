"""BNS-GCN's memory model of a rank, beside what is stored."""

import numpy as np
import scipy.sparse as sp

from rank_jobs import Job, make_graph
from shoal.distributed.costs import model_memory
from shoal.partitioning.part import make_part

WIDTHS, FIRST = [12, 16, 16], 16


def make_first_part(*, sparse):
    graph = make_graph(Job(sparse=sparse))
    return make_part(graph, np.arange(graph.num_nodes) % 2, 2, 0)


def test_dense_inputs_follow_the_papers_formula():
    part = make_first_part(sparse=False)
    assert model_memory(part, 10, WIDTHS, FIRST) == 4 * (12 + 16 + 16) * (3 * part.num_local + 10)


def test_sparse_inputs_count_as_stored():
    """Wider features with the same entries take no more; stored bytes and (2·n + halo) projected rows."""
    part = make_first_part(sparse=True)
    x, n = part.x, part.num_local
    stored = x.data.nbytes + x.indices.nbytes + x.indptr.nbytes
    found = model_memory(part, n, WIDTHS, FIRST)
    assert found == 2 * stored + 4 * (FIRST * 3 * n + 32 * 4 * n)
    wide = sp.csr_array((x.data, x.indices, x.indptr), (n, 10_000))
    object.__setattr__(part, "x", wide)
    assert model_memory(part, n, [10_000, 16, 16], FIRST) == found
