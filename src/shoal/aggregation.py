"""Kinds of aggregation: how a block turns its sparsity pattern into an operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from shoal.errors import unknown_name


@dataclass(frozen=True)
class Aggregation:
    """How `Block.adjacency` normalises a pattern A. D is the diagonal matrix of its degrees.

    Attributes:
        loops: add self loops: A + I. Degrees count them.
        scale: `none` A, `mean` D⁻¹A, `symmetric` D^-½ A D^-½.
        weighted: multiply entries by the sampler's edge norms and by the factor of a sampled halo. False for layers that
            normalise by themselves (attention): edge norms are ignored; a factor or an edge weight is an entry's multiplicity.
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
        """Scale factors of rows with these degrees; with `scales_columns` also those of columns."""
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
    """The aggregation of that name; raises ShoalError for an unknown one."""
    if name not in AGGREGATIONS:
        raise unknown_name("aggregation", name, AGGREGATIONS)
    return AGGREGATIONS[name]
