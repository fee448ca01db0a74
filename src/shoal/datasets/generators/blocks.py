"""The generator `blocks`: a block-model graph with features and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from shoal.checks import MAX_EDGES, MAX_NODES, check_number, check_whole
from shoal.datasets.generators import GENERATORS
from shoal.errors import ShoalError
from shoal.settings import AtLeast, Range, Rate, Seed, Share, check_settings

if TYPE_CHECKING:
    from shoal.graph import Graph


@GENERATORS.named("blocks")
@check_settings
def blocks(
    num_nodes: Annotated[int, Range(1, MAX_NODES), "nodes of the graph"] = 10_000,
    num_classes: Annotated[int, AtLeast(1), "classes of equal size, at most one per node"] = 10,
    degree: Annotated[
        float, AtLeast(0), "average degree before self loops and repeated edges are removed"
    ] = 20,
    num_features: Annotated[int, Range(1, 2**20), "features of a node"] = 64,
    homophily: Annotated[float, Share, "share of edges drawn inside a class"] = 0.5,
    signal: Annotated[
        float, Range(0, 1e6), "distance of classes in feature space, in deviations of the noise"
    ] = 1.7,
    skew: Annotated[float, Rate, "0 (all nodes alike) to below 1 (few hubs hold most edges)"] = 0.5,
    seed: Seed = 0,
) -> Graph:
    """Degree-corrected stochastic block model with features and labels, any size (drawn from a seed).

    Features alone are too weak to classify nodes. The split is 60 / 20 / 20 percent train, validation and test.

    An edge picks a class a, then with probability `homophily` the same class, else one of the others; each end
    is then a member of its class, the r-th of m members with probability ((r+1)/m)^(1-skew) - (r/m)^(1-skew).
    Degrees then follow a power law with exponent 1 + 1/skew. Features are `signal · μ_class + noise` with
    standard normal noise and random directions μ of length about 1.

    `degree * num_nodes / 2` edges are drawn. Self loops are dropped and repeated edges merged, so the average degree
    is a little lower. A homophily of 1 / num_classes makes edges uninformative, a signal of 0 makes features uninformative.

    Cost: linear in nodes and edges, in parallel; memory 16 bytes per edge at the peak, besides the features. `shoal data
    generate` keeps to its memory budget instead.
    """  # fmt: skip
    check_whole("num_classes", num_classes, 1, num_nodes)
    check_number("degree", degree, 0, num_nodes)
    num_edges = round(degree * num_nodes / 2)
    if num_edges > MAX_EDGES:
        raise ShoalError(f"{num_edges:,} edges were asked for: expected at most {MAX_EDGES:,}")
    import numpy as np

    from shoal.datasets.attributes import draw_classes
    from shoal.datasets.blocks import draw_edges, draw_features
    from shoal.graph import Graph
    from shoal.split import draw_split
    from shoal.workspace import check_sizes

    check_sizes(num_nodes, 2 * num_edges, num_features)
    y = draw_classes(num_nodes, num_classes, seed)
    masks: dict[str, Any] = draw_split(np.arange(num_nodes), num_nodes, seed=seed)
    return Graph.from_edge_chunks(
        draw_edges(y, num_classes, num_edges, homophily, skew, seed),
        num_nodes,
        directed=False,
        x=draw_features(y, num_classes, num_features, signal, seed),
        y=y,
        num_classes=num_classes,
        name="blocks",
        expected=num_edges,
        **masks,
    )
