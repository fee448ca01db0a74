"""GCNConv: aggregation with symmetric normalisation."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from shoal.kernels.adjacency import Adjacency
from shoal.kernels.row_sets import Rows
from shoal.models.conv import CONVS, Conv
from shoal.models.layerwise import Input, LayerWork, Stored


@CONVS.register
class GCNConv(Conv):
    """`H' = D̃^-½ (A + I) D̃^-½ H W`."""

    name = "gcn"
    kind = "gcn"
    starts_from_aggregate = True

    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        return self.aggregate(adj, h, aggregated)

    def infer(self, adj: Adjacency | None, h: Stored, work: LayerWork) -> Iterator[tuple[Rows, Tensor]]:
        assert adj is not None
        if self.projects_inference(h, work):
            with work.project(h, self.weight) as z:
                yield from work.multiply(adj, z)
        else:
            assert isinstance(h, Tensor)
            for rows, out in work.multiply(adj, h):
                yield rows, out @ self.weight
