"""Statistics of a graph: sampled entries, reciprocal arcs, connected components."""

import numpy as np

from shoal.kernels.jit import kernel


def sample_entries(indptr: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, positions) of all entries, or of `most` evenly spaced ones."""
    total = int(indptr[-1])
    positions = np.arange(total) if total <= most else np.linspace(0, total - 1, most).astype(np.int64)
    return np.searchsorted(indptr, positions, "right") - 1, positions


def share_mirrored(indptr: np.ndarray, indices: np.ndarray, most: int = 1 << 20) -> float:
    """Share of the entries (i, j), i ≠ j, whose mirror image (j, i) is there, in a sample of at most `most`."""
    rows, positions = sample_entries(indptr, most)
    columns = np.asarray(indices[positions])
    others = rows != columns
    rows, columns = rows[others], columns[others]
    if not len(rows):
        return 1.0
    return float(_count_entries(indptr, indices, columns.astype(np.int64), rows)) / len(rows)


@kernel
def _count_entries(indptr, indices, rows, columns):
    """How many of the entries (rows[k], columns[k]) a pattern with sorted rows has."""
    found = 0
    for k in range(len(rows)):
        low, high = indptr[rows[k]], indptr[rows[k] + 1]
        while low < high:
            middle = (low + high) // 2
            if indices[middle] < columns[k]:
                low = middle + 1
            else:
                high = middle
        if low < indptr[rows[k] + 1] and indices[low] == columns[k]:
            found += 1
    return found


def label_components(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The smallest node of each node's (weakly) connected component. One pass, by union-find with path halving."""
    root = np.arange(len(indptr) - 1, dtype=np.int64)
    _join_ends(indptr, indices, root)
    return root


@kernel
def _join_ends(indptr, indices, root):
    for i in range(len(root)):
        for k in range(indptr[i], indptr[i + 1]):
            a, b = i, np.int64(indices[k])
            while root[a] != a:
                root[a] = root[root[a]]
                a = root[a]
            while root[b] != b:
                root[b] = root[root[b]]
                b = root[b]
            if a < b:
                root[b] = a
            else:
                root[a] = b
    for i in range(len(root)):  # a root is never larger than its nodes
        root[i] = root[root[i]]
