"""Random node attributes for generated graphs: balanced classes and normal features."""

from collections.abc import Callable

import numpy as np
from numba import prange

from shoal.kernels.jit import parallel_kernel
from shoal.progress import follow_work
from shoal.rng import key, normal_pair, permute, random_u64
from shoal.workspace import FeatureRows, Rows

# One stream of the counter-based generator for each purpose.
LABELS, FEATURES, MEANS, EDGES, NUMBERING = range(5)


_ROWS_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 24


def draw_classes(num_nodes: int, num_classes: int, seed: int) -> np.ndarray:
    """A class for every node, int64: class sizes differ by at most one, the order is random."""
    order = permute(num_nodes, seed, LABELS)
    y = Rows("y", np.int64, (), num_nodes)
    for start in range(0, num_nodes, _ROWS_AT_ONCE):
        y.append(order[start : start + _ROWS_AT_ONCE].astype(np.int64) % num_classes)
    return y.finish()


def draw_normal(
    num_rows: int,
    num_columns: int,
    seed: int,
    stream: int = FEATURES,
    shift: Callable[[int, np.ndarray], None] = lambda start, block: None,
) -> np.ndarray:
    """Independent standard normals, float32 `(num_rows, num_columns)`. A row does not depend on num_rows.

    Features are stored in the open workspace's type, if it has one.
    `shift` may change the block of rows that begins with row `start`, before it is stored.
    """
    values = (
        FeatureRows(num_columns, num_rows)
        if stream == FEATURES
        else Rows("means", np.float32, (num_columns,), num_rows)
    )
    size = max(min(_BYTES_AT_ONCE // (4 * num_columns), num_rows), 1)
    for start in range(0, num_rows, size):
        block = np.empty((min(size, num_rows - start), num_columns), np.float32)
        _fill_normal(block, start, seed, stream)
        shift(start, block)
        values.append(block)
        follow_work("generating features", start + len(block), num_rows)
    return values.finish()


@parallel_kernel
def _fill_normal(values, start, seed, stream):
    k = key(seed, stream)
    columns = values.shape[1]
    pairs = (columns + 1) // 2
    for i in prange(values.shape[0]):
        for p in range(pairs):
            first, second = normal_pair(random_u64(k, (start + i) * pairs + p))
            values[i, 2 * p] = first
            if 2 * p + 1 < columns:
                values[i, 2 * p + 1] = second
