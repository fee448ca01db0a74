"""The degree-corrected stochastic block model: classes that edges reveal better than features do."""

import numpy as np
from numba import prange

from shoal.checks import MAX_EDGES, MAX_NODES, check_number, check_seed, check_whole
from shoal.datasets.attributes import EDGES, MEANS, NUMBERING, draw_classes, draw_normal
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.jit import parallel_kernel
from shoal.rng import below, key, permute, random_u64, uniform
from shoal.split import draw_split

_EDGES_AT_ONCE = 1 << 22


def blocks(
    num_nodes: int = 10_000,
    num_classes: int = 10,
    degree: float = 20,
    num_features: int = 64,
    homophily: float = 0.5,
    signal: float = 1.7,
    skew: float = 0.5,
    seed: int = 0,
) -> Graph:
    """A block-model graph with power-law degrees, weak class features and a 60 / 20 / 20 split.

    An edge picks a class a, then with chance `homophily` the same class, else one of the others; each end
    is then a member of its class, the r-th of m members with chance ((r+1)/m)^(1-skew) - (r/m)^(1-skew).
    Degrees so follow a power law with exponent 1 + 1/skew. Features are `signal · μ_class + noise` with
    standard normal noise and random directions μ of length about 1.

    Args:
        degree: edges drawn, counted per node (`degree * num_nodes / 2` of them). Self loops are dropped and
            repeated edges merged, so the average degree ends a little below.
        homophily: share of edges drawn inside a class; 1 / num_classes makes edges uninformative.
        signal: how far apart classes lie in feature space, in standard deviations of the noise; 0 makes
            features uninformative.
        skew: 0 (all nodes alike) to below 1 (few hubs hold most edges).

    Cost: linear in nodes and edges, in parallel; memory 16 bytes an edge at the peak, besides the features.
    """
    num_nodes = check_whole("num_nodes", num_nodes, 1, MAX_NODES)
    num_classes = check_whole("num_classes", num_classes, 1, num_nodes)
    degree = check_number("degree", degree, 0, num_nodes)
    num_features = check_whole("num_features", num_features, 1, 2**20)
    homophily = check_number("homophily", homophily, 0, 1)
    signal = check_number("signal", signal, 0, 1e6)
    skew = check_number("skew", skew, 0, 1, open_end=True)
    seed = check_seed(seed)
    num_edges = round(degree * num_nodes / 2)
    if num_edges > MAX_EDGES:
        raise ShoalError(f"{num_edges:,} edges were asked for: expected at most {MAX_EDGES:,}")
    y = draw_classes(num_nodes, num_classes, seed)
    return Graph.from_edge_chunks(
        list(_draw_chunks(y, num_classes, num_edges, homophily, skew, seed)),
        num_nodes,
        directed=False,
        x=_draw_features(y, num_classes, num_features, signal, seed),
        y=y,
        num_classes=num_classes,
        name="blocks",
        **draw_split(np.arange(num_nodes), num_nodes, seed=seed),
    )


def _draw_features(
    y: np.ndarray, num_classes: int, num_features: int, signal: float, seed: int
) -> np.ndarray:
    means = draw_normal(num_classes, num_features, seed, MEANS) * np.float32(signal / num_features**0.5)
    x = draw_normal(len(y), num_features, seed)
    _add_rows(x, means, y)
    return x


def _draw_chunks(y, num_classes, num_edges, homophily, skew, seed):
    """The edges in chunks of int32 (sources, targets), self loops left out."""
    order = permute(len(y), seed, NUMBERING)  # so that a node's number says nothing about its degree
    members = order[np.argsort(y[order], kind="stable")]
    offsets = np.searchsorted(y, np.arange(num_classes + 1), sorter=members)
    for start in range(0, num_edges, _EDGES_AT_ONCE):
        size = min(_EDGES_AT_ONCE, num_edges - start)
        sources, targets = np.empty(size, members.dtype), np.empty(size, members.dtype)
        _draw_edges(start, y, members, offsets, homophily, 1 / (1 - skew), seed, sources, targets)
        proper = sources != targets
        yield sources[proper], targets[proper]


@parallel_kernel
def _draw_edges(start, y, members, offsets, homophily, power, seed, sources, targets):
    """The chance of member r has a closed inverse, r = ⌊m · u^power⌋: no table is needed."""
    k = key(seed, EDGES)
    num_classes = len(offsets) - 1
    for e in prange(len(sources)):
        c = 5 * (start + e)
        a = y[below(random_u64(k, c), len(y))]
        b = a
        if num_classes > 1 and uniform(random_u64(k, c + 1)) >= homophily:
            b = (a + 1 + below(random_u64(k, c + 2), num_classes - 1)) % num_classes
        m = offsets[a + 1] - offsets[a]
        sources[e] = members[offsets[a] + int(m * uniform(random_u64(k, c + 3)) ** power)]
        m = offsets[b + 1] - offsets[b]
        targets[e] = members[offsets[b] + int(m * uniform(random_u64(k, c + 4)) ** power)]


@parallel_kernel
def _add_rows(x, means, y):
    for i in prange(len(x)):
        for j in range(x.shape[1]):
            x[i, j] += means[y[i], j]
