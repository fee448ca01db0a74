"""GATConv: graph attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.attention import gat_attention
from shoal.models.convs import Conv, Input, multiply_weight


class GATConv(Conv):
    """`H'[u] = Σ_v α_uv H[v] W`, `α_u· = softmax_v( LeakyReLU( aᵀ[ W h_u ‖ W h_v ] ) )`, v over the neighbours of u and u.

    `heads` attentions run side by side: their results are concatenated, each out_features / heads wide, or with
    `mean` averaged, each out_features wide. A sampler's edge norms play no part: the softmax normalises.
    """

    kind = "attention"

    def __init__(self, in_features: int, out_features: int, *, heads: int = 4, mean: bool = False) -> None:
        if not mean and out_features % heads:
            raise ShoalError(
                f"a GAT layer is {out_features} wide with {heads} heads: expected a multiple of the heads"
            )
        width = out_features if mean else out_features // heads
        super().__init__(in_features, heads * width)
        self.heads = heads
        self.mean = mean
        self.attend = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2, heads, width)))

    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        out = None
        for piece, rows in adj.pieces(multiply_weight(h, self.weight)):
            z, own, other = self.score(rows)
            out = gat_attention(piece, z, own[: piece.num_rows], other, onto=out)
        assert out is not None
        return self.join(out)

    def infer(self, adj: Adjacency, h: Input, rows_at_once: int) -> Iterator[tuple[int, int, Tensor]]:
        z, own, other = self.score(multiply_weight(h, self.weight))
        for start in range(0, adj.num_rows, rows_at_once):
            end = min(start + rows_at_once, adj.num_rows)
            yield start, end, self.join(gat_attention(adj.slice_rows(start, end), z, own[start:end], other))

    def score(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`z = H W` by head, and each node's share of the scores of its own row and of the rows that read it."""
        z = z.unflatten(1, (self.heads, -1))
        own, other = ((z * vector).sum(-1) for vector in self.attend)
        return z, own, other

    def join(self, out: Tensor) -> Tensor:
        return out.mean(1) if self.mean else out.flatten(1)

    def num_macs(self, adj: Adjacency, entries: int, own: int, *, first: bool, known: bool) -> int:
        """The projection, both halves of the scores, and the weighted sums."""
        width = self.weight.shape[1]
        return entries * width + 2 * adj.num_columns * width + adj.num_entries * width
