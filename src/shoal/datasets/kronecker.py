"""The stochastic Kronecker (R-MAT) generator: skewed graphs of any size with uninformative attributes."""

import numpy as np
from numba import prange

from shoal.checks import check_number, check_seed, check_whole
from shoal.datasets.attributes import EDGES, NUMBERING, draw_classes, draw_normal
from shoal.graph import Graph
from shoal.kernels.jit import parallel_kernel
from shoal.rng import key, permute, random_u64
from shoal.split import draw_split

# Chance that an edge falls in quadrant (0,0), (0,1), (1,0), (1,1): [[0.9, 0.5], [0.5, 0.1]] over its sum.
INITIATOR = (0.45, 0.25, 0.25, 0.05)
_BOUNDS = np.round(np.cumsum(INITIATOR)[:3] * 2**32).astype(np.uint64)
_EDGES_AT_ONCE = 1 << 22


def kronecker(
    scale: int = 16,
    degree: float = 16,
    num_features: int = 50,
    num_classes: int = 2,
    seed: int = 0,
    directed: bool = False,
) -> Graph:
    """A stochastic Kronecker graph of 2^scale nodes, random features and classes, 60 / 20 / 20 split.

    Every edge picks one quadrant of the adjacency matrix with the chances of `INITIATOR`, then one quadrant
    of that quadrant, and so on, `scale` times. Nodes are then renumbered at random, so that a node's number
    says nothing about its degree. Self loops are dropped and repeated edges merged, so that the average
    degree ends below `degree`, the more so the smaller the graph.

    Args:
        scale: the graph has 2^scale nodes.
        degree: edges drawn, counted per node: `degree * 2^scale / 2` of them, `degree * 2^scale` arcs if
            directed.
        num_features: standard normal features, telling nothing about the classes; 0 for none.
        num_classes: classes of equal size, drawn at random.
        directed: keep the arcs as drawn instead of adding the reverse of each.

    Cost: linear in edges × scale, in parallel; memory 16 bytes an edge at the peak, besides the features.
    """
    scale = check_whole("scale", scale, 1, 31)
    num_nodes = 1 << scale
    degree = check_number("degree", degree, 0, num_nodes)
    num_features = check_whole("num_features", num_features, 0, 2**20)
    num_classes = check_whole("num_classes", num_classes, 1, num_nodes)
    seed = check_seed(seed)
    num_edges = round(degree * num_nodes / (1 if directed else 2))
    number = permute(num_nodes, seed, NUMBERING)
    chunks = []
    for start in range(0, num_edges, _EDGES_AT_ONCE):
        sources, targets = draw_edges(start, min(_EDGES_AT_ONCE, num_edges - start), scale, seed)
        proper = sources != targets
        chunks.append((number[sources[proper]], number[targets[proper]]))
    return Graph.from_edge_chunks(
        chunks,
        num_nodes,
        directed=directed,
        x=draw_normal(num_nodes, num_features, seed) if num_features else None,
        y=draw_classes(num_nodes, num_classes, seed),
        num_classes=num_classes,
        name="kronecker",
        **draw_split(np.arange(num_nodes), num_nodes, seed=seed),
    )


def draw_edges(start: int, count: int, scale: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges number `start` to `start + count - 1`, before renumbering: int32 (sources, targets)."""
    sources, targets = np.empty(count, np.int32), np.empty(count, np.int32)
    _descend(start, scale, seed, _BOUNDS, sources, targets)
    return sources, targets


@parallel_kernel
def _descend(start, scale, seed, bounds, sources, targets):
    """One level takes 32 random bits: the number of `bounds` they reach is the quadrant."""
    k = key(seed, EDGES)
    first, second, third = bounds[0], bounds[1], bounds[2]
    draws = (scale + 1) // 2
    for e in prange(len(sources)):
        row = 0
        column = 0
        for d in range(draws):
            bits = random_u64(k, (start + e) * draws + d)
            for half in range(min(2, scale - 2 * d)):
                level = (bits >> np.uint64(32 * half)) & np.uint64(0xFFFFFFFF)
                quadrant = int(level >= first) + int(level >= second) + int(level >= third)
                row = 2 * row + (quadrant >> 1)
                column = 2 * column + (quadrant & 1)
        sources[e] = row
        targets[e] = column
