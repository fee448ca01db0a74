"""Reference of frontier sampling in NumPy, O(m) per pop. The fast methods are tested against it."""

import numpy as np


def draw_by_definition(
    indptr: np.ndarray,
    indices: np.ndarray,
    pin_cap: int,
    frontier: int,
    budget: int,
    max_pops: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """The increasing nodes of one batch. Cost: O(m·n): every pop sums the weights of the whole frontier."""
    num_nodes = len(indptr) - 1
    walkers = generator.choice(num_nodes, frontier, replace=False)
    inside = np.zeros(num_nodes, np.bool_)
    inside[walkers] = True
    count = frontier
    for _ in range(max_pops):
        if count == budget:
            break
        weights = np.clip(indptr[walkers + 1] - indptr[walkers], 1, pin_cap).cumsum()
        slot = np.searchsorted(weights, generator.integers(weights[-1]), side="right")
        row = indices[indptr[walkers[slot]] : indptr[walkers[slot] + 1]]
        v = row[generator.integers(len(row))] if len(row) else generator.integers(num_nodes)
        walkers[slot] = v
        count += not inside[v]
        inside[v] = True
    return np.flatnonzero(inside)
