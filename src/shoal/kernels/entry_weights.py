"""Weights of a pattern's entries: assigned to entries, summed over rows, looked up for a sampled pattern."""

import numpy as np

from shoal.kernels.jit import kernel


@kernel
def find_entry(indices, start, end, column):
    """Where a sorted row lists `column`, or -1."""
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        if indices[middle] < column:
            low = middle + 1
        else:
            high = middle
    return low if low < end and indices[low] == column else -1


@kernel
def place_weights(indptr, indices, rows, columns, weights, placed):
    """Add the weights given for entries to `placed`, one float64 for every entry of the pattern."""
    for i in range(len(rows)):
        at = find_entry(indices, indptr[rows[i]], indptr[rows[i] + 1], columns[i])
        if at >= 0:
            placed[at] += weights[i]


@kernel
def sum_rows(indptr, weights):
    """The sum of every row's weights, float64, in the order of the entries."""
    sums = np.zeros(len(indptr) - 1, np.float64)
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            sums[row] += weights[k]
    return sums


@kernel
def take_weights(indptr, indices, weights, nodes, columns, sub_indptr, sub_indices):
    """The weights of a sampled pattern's entries: row i is node `nodes[i]`, column j is node `columns[j]`."""
    taken = np.empty(len(sub_indices), np.float32)
    for i in range(len(nodes)):
        start, end = indptr[nodes[i]], indptr[nodes[i] + 1]
        for k in range(sub_indptr[i], sub_indptr[i + 1]):
            taken[k] = weights[find_entry(indices, start, end, columns[sub_indices[k]])]
    return taken
