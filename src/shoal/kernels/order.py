"""Node orders that place neighbours close together, and patterns renumbered by them.

A call processes some nodes and the next call continues, so that progress can be shown and Ctrl-C works.
"""

import numpy as np

from shoal.kernels.jit import kernel


@kernel
def visit_breadth_first(indptr, indices, degree, starts, order, seen, state, stop):
    """Append nodes to `order` breadth first, neighbours by increasing degree, until `stop` nodes are expanded.

    `state` is (nodes expanded, nodes found, starts tried). `starts` lists the nodes at which new components may begin.
    """
    head, tail, tried = state[0], state[1], state[2]
    while head < stop:
        if head == tail:
            while seen[starts[tried]]:
                tried += 1
            seen[starts[tried]] = True
            order[tail] = starts[tried]
            tail += 1
        v = order[head]
        head += 1
        first = tail
        for k in range(indptr[v], indptr[v + 1]):
            c = indices[k]
            if not seen[c]:
                seen[c] = True
                order[tail] = c
                tail += 1
        if tail - first > 1:
            found = np.empty(tail - first, np.int64)
            for i in range(first, tail):
                found[i - first] = (np.int64(degree[order[i]]) << 32) | np.int64(order[i])
            found.sort()
            for i in range(first, tail):
                order[i] = found[i - first] & 0xFFFFFFFF
    state[0], state[1], state[2] = head, tail, tried


@kernel
def propagate_labels(indptr, indices, first, last, most, labels, sizes, near):
    """Give each node the most frequent label of its neighbours, among labels with fewer than `most` nodes.

    Nodes see the new labels of earlier nodes. On a tie a node keeps its own label, else takes the smallest. `near` has a
    zero for every label and is left so. Returns how many labels changed.
    """
    changed = 0
    for v in range(first, last):
        own = labels[v]
        for k in range(indptr[v], indptr[v + 1]):
            if indices[k] != v:
                near[labels[indices[k]]] += 1
        best, count = own, near[own]
        for k in range(indptr[v], indptr[v + 1]):
            one = labels[indices[k]]
            more = near[one] > count or (near[one] == count and best != own and one < best)
            if more and one != own and sizes[one] < most:
                best, count = one, near[one]
        for k in range(indptr[v], indptr[v + 1]):
            near[labels[indices[k]]] = 0
        if best != own:
            labels[v] = best
            sizes[own] -= 1
            sizes[best] += 1
            changed += 1
    return changed


@kernel
def renumber_rows(indptr, indices, rows, number, columns):
    """The columns of `rows` one after the other, renumbered and sorted within each row; returns how many."""
    size = 0
    for i in range(len(rows)):
        begin = size
        for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
            columns[size] = number[indices[k]]
            size += 1
        columns[begin:size].sort()
    return size


@kernel
def sum_gaps(indptr, indices, first, last):
    """The sum of |row - column| over the entries of some rows."""
    total = 0.0
    for r in range(first, last):
        for k in range(indptr[r], indptr[r + 1]):
            total += abs(np.int64(indices[k]) - r)
    return total
