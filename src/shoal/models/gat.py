"""GATConv: graph attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

import torch
from torch import Tensor, nn

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.attention import gat_attention
from shoal.kernels.edge_dropout import keep_entries
from shoal.kernels.fused import mix_key
from shoal.kernels.row_sets import Rows
from shoal.models.conv import CONVS, Conv, Draw
from shoal.models.layerwise import Input, LayerWork, Stored, multiply_weight, read_rows
from shoal.settings import AtLeast, Null, Rate

_EDGES, _ATTENTION = 0xED6E, 0xA77E  # keep these draws apart from those of dropout


@CONVS.register
class GATConv(Conv):
    """`H'[u] = Σ_v α_uv H[v] W`, `α_u· = softmax_v( LeakyReLU( aᵀ[ W h_u ‖ W h_v ] ) )`, v over u and its neighbours.

    With `symmetric` it is `H' = D^½ A_att D^-½ H W`, where D are the degrees with self loops. Uniform attention is then
    GCN's aggregation, and `D^-½ H W` gives a neighbour's part of the scores. `edge_dropout` leaves edges out of the
    softmax in training, never self loops. `attention_dropout` is dropout of `A_att`, self loops included. What they leave
    out depends on seed, step, layer and both ends of the edge, with attention_dropout on the head too.

    The results of the `heads` are concatenated, each out_features / heads wide, or with `mean` those of `output_heads`
    averaged, each out_features wide. A sampler's edge norms are ignored, because the softmax normalises.

    Args:
        mean: average the heads. False: concatenate them.
    """

    name = "gat"
    kind = "attention"
    needs_whole_rows = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        heads: Annotated[
            int, AtLeast(1), "attention heads; concatenated, averaged in the last aggregation"
        ] = 4,
        output_heads: Annotated[
            int | None, AtLeast(1), Null("as many as heads"), "attention heads of the last aggregation"
        ] = None,
        symmetric: Annotated[
            bool, "scale attention by degrees, D^½ A_att D^-½, as GCN scales its aggregation"
        ] = False,
        edge_dropout: Annotated[
            float, Rate, "share of the edges left out of attention in a training step"
        ] = 0.0,
        attention_dropout: Annotated[
            float, Rate, "dropout of the attention that the softmax gives, for each head and edge"
        ] = 0.0,
        mean: bool = False,
    ) -> None:
        if mean and output_heads is not None:
            heads = output_heads
        if not mean and out_features % heads:
            raise ShoalError(
                f"a GAT layer is {out_features} wide with {heads} heads: expected a multiple of the heads"
            )
        width = out_features if mean else out_features // heads
        super().__init__(in_features, heads * width)
        self.heads = heads
        self.mean = mean
        self.edge_dropout, self.attention_dropout = edge_dropout, attention_dropout
        self.draws = max(edge_dropout, attention_dropout) > 0
        self.values_per_entry = heads * (4 if attention_dropout else 2)
        if symmetric:
            self.kind = "symmetric-attention"
        self.attend = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2, heads, width)))

    @classmethod
    def make(
        cls, in_features: int, out_features: int, *, order: int = 1, last: bool = False, **settings: Any
    ) -> Self:
        return cls(in_features, out_features, mean=last, **settings)

    def forward(
        self, adj: Adjacency, h: Input, aggregated: Tensor | None = None, draw: Draw | None = None
    ) -> Tensor:
        """`Conv.forward` with dropout of edges and attention.

        Args:
            draw: what dropout depends on. None: nothing is dropped.
        """
        projected = multiply_weight(h, self.weight)
        row_scale = self.scale_rows(adj, projected.dtype)
        if row_scale is not None and adj.column_scale is not None:
            projected = projected * adj.column_scale[:, None].to(projected.dtype)
        ids = adj.column_ids(draw.ids) if draw is not None else None
        counts = adj.column_counts()
        out = None
        for piece, rows in adj.pieces(projected):
            z, own, other = self.score(rows)
            own = own[: piece.num_rows]
            kept, factors = self.drop(piece, draw, ids)
            if row_scale is not None:
                own = own / row_scale
                piece = piece.without_scales(None if counts is None else counts[: piece.num_columns])
            out = gat_attention(piece, z, own, other, onto=out, kept=kept, factors=factors)
        assert out is not None
        return self.join(out, row_scale)

    def drop(
        self, adj: Adjacency, draw: Draw | None, ids: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Which entries a training step keeps, and by what it multiplies their attention; None for all and for 1.

        Args:
            adj: the operator.
            draw: what dropout depends on.
            ids: global ids of the operator's columns, and of more behind them.
        """
        kept = factors = None
        if draw is not None and ids is not None:
            ids = ids[: adj.num_columns]
            if self.edge_dropout:
                kept = keep_entries(adj, self.edge_dropout, mix_key(draw.key, _EDGES, 0), ids)
            if rate := self.attention_dropout:
                keys = [mix_key(draw.key, _ATTENTION, head) for head in range(self.heads)]
                heads = [keep_entries(adj, rate, key, ids, loops=False) for key in keys]
                factors = torch.stack(heads, 1).to(self.weight.dtype).div_(1 - rate)
        return kept, factors

    def scale_rows(self, adj: Adjacency, dtype: torch.dtype) -> Tensor | None:
        """`D^-½` of the rows, (num_rows, 1); None if attention is not scaled.

        Args:
            adj: the operator.
            dtype: type of the result.
        """
        if self.kind != "symmetric-attention":
            return None
        assert adj.row_scale is not None
        return adj.row_scale[:, None].to(dtype)

    def infer(self, adj: Adjacency | None, h: Stored, work: LayerWork) -> Iterator[tuple[Rows, Tensor]]:
        """Chunks of rows share `H W` and the neighbours' part of the scores. Column slices hold whole heads."""
        assert adj is not None
        width = self.attend.shape[2]
        scores = work.scratch.make(adj.num_columns, self.heads, work.dtype)
        scale = self.scale_rows(adj, work.dtype)  # of all nodes: the same for rows and columns

        def project() -> Iterator[tuple[Rows, Tensor]]:
            for rows in work.chunks(adj.num_columns, hop=1):
                z = multiply_weight(read_rows(h, rows), self.weight)
                if scale is not None:
                    z = z * scale[rows]
                scores.write(rows, self.score(z)[2])
                yield rows, z

        with work.hold(adj.num_columns, self.heads * width, project(), unit=width) as made:
            scores.settle()
            slices = [one.tensor.unflatten(1, (-1, width)) for one in made]
            firsts = [sum(one.shape[1] for one in slices[:number]) for number in range(len(slices))]

            def attend(rows: Rows, part: Adjacency, number: int) -> Tensor:
                z, first = slices[number], firsts[number]
                heads = slice(first, first + z.shape[1])
                own = (z[rows] * self.attend[0, heads]).sum(-1)
                if scale is not None:
                    own, part = own / scale[rows], part.without_scales()
                return gat_attention(part, z, own, scores.tensor[:, heads]).flatten(1)

            for rows, out in work.combine(adj, slices, attend):
                out = out.unflatten(1, (self.heads, -1))
                yield rows, self.join(out, None if scale is None else scale[rows])
        scores.close()

    def score(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`z = H W` by head, and each node's part of the scores as target and as source: `a_1ᵀ z` and `a_2ᵀ z`.

        Args:
            z: `H W`, (rows, heads × width).
        """
        z = z.unflatten(1, (self.heads, -1))
        own, other = ((z * vector).sum(-1) for vector in self.attend)
        return z, own, other

    def join(self, out: Tensor, row_scale: Tensor | None = None) -> Tensor:
        """The heads' results concatenated or averaged, and divided by `row_scale`.

        Args:
            out: results of the heads, (rows, heads, width).
            row_scale: `D^-½` of the rows. None: attention is not scaled.
        """
        joined = out.mean(1) if self.mean else out.flatten(1)
        return joined if row_scale is None else joined / row_scale

    def exchange_widths(self, *, first: bool = False, known: bool = False) -> list[int]:
        return [] if first else [self.out_features]

    def exchange_input(self, *, sparse: bool, training: bool = True) -> tuple[list[int], bool]:
        return self.exchange_widths(), True

    def num_macs(
        self, adj: Adjacency | None, entries: int, own: int, *, first: bool = False, known: bool = False
    ) -> int:
        """The projection, both halves of the scores, and the weighted sums."""
        assert adj is not None
        return (entries + 2 * adj.num_columns + adj.num_entries) * self.out_features

    def explain(self, adj: Adjacency, *, first: bool, known: bool, sparse: bool) -> str:
        return ""
