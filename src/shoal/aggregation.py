"""The kinds of aggregation, declared: which operator a block makes of its pattern for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from shoal.errors import unknown_name


@dataclass(frozen=True)
class Aggregation:
    """What `Block.adjacency` makes of a pattern A, D the diagonal of its degrees.

    Attributes:
        loops: whether every node reads itself too: A + I, and a degree counts that.
        scale: `none` A, `mean` D⁻¹A, `symmetric` D^-½ A D^-½.
        weighted: whether a sampler's edge norms and a thinned halo's factor are weights of the entries. Otherwise the
            layer normalises by itself: edge norms play no part, and a factor, or an edge's weight, is how often an entry counts.
    """

    name: str
    loops: bool = False
    scale: Literal["none", "mean", "symmetric"] = "none"
    weighted: bool = True

    @property
    def scales_columns(self) -> bool:
        """Whether the weight of an entry depends on the degree of its column."""
        return self.scale == "symmetric"

    def scale_degrees(self, degree: Tensor) -> Tensor:
        """What rows, and with `scales_columns` columns too, of these degrees are multiplied by."""
        known = degree.clamp(min=1) if not degree.is_floating_point() else degree.where(degree > 0, 1.0)
        known = known.float()
        return known.rsqrt() if self.scale == "symmetric" else 1.0 / known


AGGREGATIONS = {
    kind.name: kind
    for kind in (
        Aggregation("sum"),
        Aggregation("mean", scale="mean"),
        Aggregation("gcn", loops=True, scale="symmetric"),
        Aggregation("attention", loops=True, weighted=False),
        Aggregation("symmetric-attention", loops=True, scale="symmetric", weighted=False),
    )
}


def find_aggregation(name: str) -> Aggregation:
    """The aggregation of that name; an unknown one is refused."""
    if name not in AGGREGATIONS:
        raise unknown_name("aggregation", name, AGGREGATIONS)
    return AGGREGATIONS[name]
