"""GCNConv: aggregation with symmetric normalisation."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from shoal.kernels.adjacency import Adjacency
from shoal.kernels.spmm import spmm
from shoal.models.conv import CONVS, Conv, Input, list_chunks, multiply_weight


@CONVS.register
class GCNConv(Conv):
    """`H' = D̃^-½ (A + I) D̃^-½ H W`."""

    name = "gcn"
    kind = "gcn"
    starts_from_aggregate = True

    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        return self.aggregate(adj, h, aggregated)

    def infer(self, adj: Adjacency | None, h: Input, rows_at_once: int) -> Iterator[tuple[int, int, Tensor]]:
        """Chunks of rows share h, or `H W` of sparse features."""
        assert adj is not None
        z = h if isinstance(h, Tensor) else multiply_weight(h, self.weight)
        for start, end in list_chunks(adj.num_rows, rows_at_once):
            out = spmm(adj.slice_rows(start, end), z)
            yield start, end, out @ self.weight if z is h else out
