"""The generator `kronecker`: a skewed graph of any scale with uninformative attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from shoal.checks import check_number, check_whole
from shoal.datasets.generators import GENERATORS
from shoal.settings import AtLeast, Range, Seed, check_settings

if TYPE_CHECKING:
    from shoal.graph import Graph


@GENERATORS.named("kronecker")
@check_settings
def kronecker(
    scale: Annotated[int, Range(1, 31), "the graph has 2^scale nodes"] = 16,
    degree: Annotated[
        float, AtLeast(0), "average degree before self loops and repeated edges are removed"
    ] = 16,
    num_features: Annotated[
        int, Range(0, 2**20), "standard normal features, independent of the classes; 0 for none"
    ] = 50,
    num_classes: Annotated[int, AtLeast(1), "classes of equal size, drawn at random"] = 2,
    seed: Seed = 0,
    directed: Annotated[bool, "keep the arcs as drawn instead of adding the reverse of each"] = False,
) -> Graph:
    """Power-law R-MAT graph with random features and classes, any scale (drawn from a seed).

    The split is 60 / 20 / 20 percent train, validation and test.

    Every edge picks one quadrant of the adjacency matrix with probabilities ∝ [[.9, .5], [.5, .1]], then one quadrant
    of that quadrant, and so on, `scale` times. Nodes are then renumbered at random, so that a node's number
    says nothing about its degree. `degree * 2^scale / 2` edges are drawn, `degree * 2^scale` arcs if directed. Self
    loops are dropped and repeated edges merged, so that the average degree is below `degree`, the more so the
    smaller the graph.

    Cost: linear in edges × scale, in parallel; memory 16 bytes per edge at the peak, besides the features. `shoal data
    generate` keeps to its memory budget instead.
    """  # fmt: skip
    num_nodes = 1 << scale
    check_number("degree", degree, 0, num_nodes)
    check_whole("num_classes", num_classes, 1, num_nodes)
    import numpy as np

    from shoal.datasets.attributes import draw_classes, draw_normal
    from shoal.datasets.kronecker import draw_numbered
    from shoal.graph import Graph
    from shoal.split import draw_split
    from shoal.workspace import check_sizes

    num_edges = round(degree * num_nodes / (1 if directed else 2))
    check_sizes(num_nodes, num_edges * (1 if directed else 2), num_features)
    masks: dict[str, Any] = draw_split(np.arange(num_nodes), num_nodes, seed=seed)
    return Graph.from_edge_chunks(
        draw_numbered(num_edges, scale, seed),
        num_nodes,
        directed=directed,
        x=draw_normal(num_nodes, num_features, seed) if num_features else None,
        y=draw_classes(num_nodes, num_classes, seed),
        num_classes=num_classes,
        name="kronecker",
        expected=num_edges,
        **masks,
    )
