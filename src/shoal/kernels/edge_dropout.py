"""Edge dropout: which entries of an operator a training step keeps, a pure function of the key and both end nodes."""

import numpy as np
import torch
from numba import prange
from torch import Tensor

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.dispatch import implements, kernel_of
from shoal.kernels.fused import hash_row, is_kept, keep_mask_reference, make_mask
from shoal.kernels.jit import new_counter, next_chunk, parallel_kernel, worker_threads
from shoal.kernels.patterns import row_of_entries

_ROWS_PER_CHUNK = 256


def keep_entries(adj: Adjacency, rate: float, key: int, ids: Tensor, *, loops: bool = True) -> Tensor:
    """`kept[k] = 1` with probability 1 − rate, drawn from a hash of (key, i, j); with `loops`, self loops are always kept.

    i and j are the global ids of the entry's row and column, so that the result is the same for every node order, batch
    and rank. (i, j) and (j, i) are drawn independently.

    Shapes: adj (n, m) whose first n columns are its rows; ids (m,) int64; result (nnz,) bool.
    """
    if ids.shape != (adj.num_columns,):
        raise ShoalError(
            f"ids have shape {tuple(ids.shape)}: expected ({adj.num_columns},), one for each column"
        )
    kept: Tensor = kernel_of("keep_entries", adj.indices)(adj, rate, key, ids, loops)
    return kept


@implements("keep_entries")
def keep_entries_reference(adj: Adjacency, rate: float, key: int, ids: Tensor, loops: bool = True) -> Tensor:
    """The same in plain torch, on any device."""
    rows, columns = ids[row_of_entries(adj.indptr)], ids[adj.indices.long()]
    kept = keep_mask_reference(key, rows, columns, rate)
    return kept | (rows == columns) if loops else kept


@implements("keep_entries", "cpu")
def _keep_entries_cpu(adj: Adjacency, rate: float, key: int, ids: Tensor, loops: bool) -> Tensor:
    _, *mask = make_mask(torch.empty(0), rate, key, ids)
    kept = torch.empty(adj.num_entries, dtype=torch.bool)
    with worker_threads(8 * adj.num_entries) as threads:
        _keep(adj.indptr.numpy(), adj.indices.numpy(), *mask, loops, kept.numpy(), threads)
    return kept


@parallel_kernel
def _keep(indptr, indices, threshold, key, ids, loops, kept, num_threads):
    n = len(indptr) - 1
    num_chunks = (n + _ROWS_PER_CHUNK - 1) // _ROWS_PER_CHUNK
    counter = new_counter()
    for _ in prange(num_threads):
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            for i in range(chunk * _ROWS_PER_CHUNK, min(n, (chunk + 1) * _ROWS_PER_CHUNK)):
                low, high = hash_row(ids[i], key)
                for k in range(indptr[i], indptr[i + 1]):
                    j = np.int64(indices[k])
                    kept[k] = (loops and j == i) or is_kept(ids[j], threshold, low, high)
            chunk = next_chunk(counter)
