"""Row masks: which nodes a training step keeps, a pure function of the key and the global id."""

import torch
from numba import prange
from torch import Tensor

from shoal.kernels.dispatch import implements, kernel_of
from shoal.kernels.fused import hash_row, is_kept, keep_mask_reference, make_mask
from shoal.kernels.jit import parallel_kernel, worker_threads


def keep_ids(ids: Tensor, rate: float, key: int) -> Tensor:
    """`kept[i] = 1` with probability 1 − rate, drawn from a hash of (key, ids[i]): column 0 of the mask of `dropout`.

    Shapes: ids (n,) int64; result (n,) bool. One pass.
    """
    kept: Tensor = kernel_of("keep_ids", ids)(ids, rate, key)
    return kept


@implements("keep_ids")
def keep_ids_reference(ids: Tensor, rate: float, key: int) -> Tensor:
    """The same in plain torch, on any device."""
    return keep_mask_reference(key, ids, torch.zeros(1, dtype=torch.int64, device=ids.device), rate)


@implements("keep_ids", "cpu")
def _keep_ids_cpu(ids: Tensor, rate: float, key: int) -> Tensor:
    _, *mask = make_mask(torch.empty(0), rate, key, ids)
    kept = torch.empty(len(ids), dtype=torch.bool)
    with worker_threads(8 * len(ids)) as threads:
        _keep(*mask, kept.numpy(), threads)
    return kept


@parallel_kernel
def _keep(threshold, key, ids, kept, num_threads):
    n = len(ids)
    for piece in prange(num_threads):
        for i in range(piece * n // num_threads, (piece + 1) * n // num_threads):
            low, high = hash_row(ids[i], key)
            kept[i] = is_kept(0, threshold, low, high)
