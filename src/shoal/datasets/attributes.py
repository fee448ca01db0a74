"""Random node attributes for generated graphs: balanced classes and normal features."""

import numpy as np
from numba import prange

from shoal.kernels.jit import parallel_kernel
from shoal.rng import key, normal_pair, permute, random_u64

# One stream of the counter-based generator for each purpose.
LABELS, FEATURES, MEANS, EDGES, NUMBERING = range(5)


def draw_classes(num_nodes: int, num_classes: int, seed: int) -> np.ndarray:
    """A class for every node, int64: class sizes differ by at most one, the order is random."""
    return permute(num_nodes, seed, LABELS).astype(np.int64) % num_classes


def draw_normal(num_rows: int, num_columns: int, seed: int, stream: int = FEATURES) -> np.ndarray:
    """Independent standard normals, float32 `(num_rows, num_columns)`. A row does not depend on num_rows."""
    values = np.empty((num_rows, num_columns), np.float32)
    _fill_normal(values, seed, stream)
    return values


@parallel_kernel
def _fill_normal(values, seed, stream):
    k = key(seed, stream)
    columns = values.shape[1]
    pairs = (columns + 1) // 2
    for i in prange(values.shape[0]):
        for p in range(pairs):
            first, second = normal_pair(random_u64(k, i * pairs + p))
            values[i, 2 * p] = first
            if 2 * p + 1 < columns:
                values[i, 2 * p + 1] = second
