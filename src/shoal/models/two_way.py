"""TwoWayConv: a conv over the edges and one over the reversed edges, for directed graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from shoal.aggregation import find_aggregation
from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.row_sets import LoopedAdjacency, Rows
from shoal.models.conv import Conv, conv_name
from shoal.models.layerwise import Input, LayerWork, Stored, count_rows

DIRECTIONS = ("in", "both")


def can_reverse(conv: type[Conv]) -> bool:
    """Whether a model of this conv can aggregate over reversed edges too (`directions=both`)."""
    return conv.kind is not None and not conv.needs_whole_rows and not conv.trains_on_rows


class TwoWayConv(Conv):
    """`H' = conv_in(A, H) + conv_out(Aᵀ, H)`. Each conv has its own weights and scales by its own degrees.

    For SAGE that is `[ D_in⁻¹A H W_in + D_out⁻¹Aᵀ H W_out ‖ H (W_self + W_self') ]`, for GCN
    `Â H W_in + Â' H W_out` with Â' of the reversed edges. H is projected before it is aggregated. The product over
    reversed edges is the transposed product, so ranks need no second halo: rows are sent as gradients are.
    """

    def __init__(self, inward: Conv, outward: Conv) -> None:
        if inward.needs_whole_rows:
            raise ShoalError(
                f"{conv_name(type(inward))} supports incoming edges only: leave out directions=both"
            )
        nn.Module.__init__(self)  # its weights are those of the two convs
        self.in_features, self.out_features = inward.in_features, inward.out_features
        self.inward, self.outward = inward, outward
        self.kind, self.norm_widths = inward.kind, inward.norm_widths
        inward.projects = outward.projects = True

    def reverse(self, adj: Adjacency) -> Adjacency:
        """The operator over the reversed edges."""
        if adj.num_rows != adj.num_columns:
            raise ShoalError("directions=both needs whole subgraphs: use a subgraph sampler")
        assert self.kind is not None
        return adj.reverse(find_aggregation(self.kind).scale_degrees)

    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        out: Tensor = self.inward(adj, h) + self.outward(self.reverse(adj), h)
        return out

    def infer(self, adj: Adjacency | None, h: Stored, work: LayerWork) -> Iterator[tuple[Rows, Tensor]]:
        """The result over reversed edges is computed first and kept; then the result over edges is added."""
        assert adj is not None
        adj = adj.whole() if isinstance(adj, LoopedAdjacency) else adj
        work = replace(work, needed=[work.needed[0]] * ((self.inward.count_hops() or 0) + 1))
        kept = work.store(count_rows(h), self.outward.infer(self.reverse(adj), h, work))
        for rows, out in self.inward.infer(adj, h, work):
            yield rows, out + kept.tensor[rows]
        kept.close()

    def count_hops(self) -> int | None:
        """None: all rows are computed, because the plan covers rows read along edges, not along reversed ones."""
        return None

    def exchange_widths(self, *, first: bool = False, known: bool = False) -> list[int]:
        return self.inward.exchange_widths() + self.outward.exchange_widths()

    def exchange_input(self, *, sparse: bool, training: bool = True) -> tuple[list[int], bool]:
        return self.exchange_widths(), True

    def num_macs(
        self, adj: Adjacency | None, entries: int, own: int, *, first: bool = False, known: bool = False
    ) -> int:
        assert adj is not None
        given: dict[str, Any] = {"entries": entries, "own": own, "first": first}
        return self.inward.num_macs(adj, **given) + self.outward.num_macs(self.reverse(adj), **given)

    def explain(self, adj: Adjacency, *, first: bool, known: bool, sparse: bool) -> str:
        return "A (H W) over edges and reversed edges"
