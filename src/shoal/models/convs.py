"""Graph convolutions. Each maps features of a block's columns to features of its rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.plan import LayerPlan, plan_layer
from shoal.kernels.sage import sage_linear
from shoal.kernels.spmm import spmm

Input = Tensor | Adjacency
MIN_NORM_WIDTH = 8  # narrower halves have too few columns for a mean and a spread of their own


def multiply_weight(h: Input, weight: Tensor) -> Tensor:
    """`h W` for dense features, or for sparse ones without making them dense. W is (f_in, f_out)."""
    return spmm(h, weight) if isinstance(h, Adjacency) else h @ weight


def take_rows(h: Input, start: int, end: int) -> Input:
    """Rows start…end-1 of dense or sparse features, without a copy; all of them are h itself."""
    if isinstance(h, Adjacency):
        return h.take_first(end) if start == 0 else h.slice_rows(start, end)
    return h if (start, end) == (0, h.shape[0]) else h[start:end]


def count_entries(h: Input) -> int:
    """Stored values of dense or sparse features: what a product with them reads."""
    return h.num_entries if isinstance(h, Adjacency) else h.numel()


class Conv(nn.Module):
    """A layer's linear part, without bias. `kind` names the aggregation whose operator it expects."""

    kind: ClassVar[str]
    norm_widths: list[int] | None = None  # of parts of the result that are normalised by themselves

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_features, out_features)))

    def extra_repr(self) -> str:
        return "{}, {}".format(*self.weight.shape)

    @abstractmethod
    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        """Shapes: adj (n, m), h (m, in_features), its first n rows those of the result; result (n, out_features).

        `aggregated` is `adj · h` where it is known already, because h is fixed; a layer may ignore it.
        """

    @abstractmethod
    def infer(self, adj: Adjacency, h: Input, rows_at_once: int) -> Iterator[tuple[int, int, Tensor]]:
        """`forward` for a whole graph, without gradients: yields (start, end, rows start…end-1 of the result)."""

    @abstractmethod
    def num_macs(self, adj: Adjacency, entries: int, own: int, *, first: bool, known: bool) -> int:
        """Multiply-adds of `forward`. `entries` are the stored values of h, `own` those of its first n rows; `first`
        says that h are the features, `known` that their aggregate is."""


class OnePassConv(Conv):
    """A convolution that aggregates once: `A (H W)`, or `(A H) W` where that is less work."""

    aggregated_width: int | None = None  # columns of H W that are aggregated, where not all are

    def infer(self, adj: Adjacency, h: Input, rows_at_once: int) -> Iterator[tuple[int, int, Tensor]]:
        z, projected = (h, False) if isinstance(h, Tensor) else (self.project(h), True)
        for start in range(0, adj.num_rows, rows_at_once):
            end = min(start + rows_at_once, adj.num_rows)
            yield start, end, self.combine(adj.slice_rows(start, end), z, take_rows(h, start, end), projected)

    def project(self, h: Input) -> Tensor:
        return multiply_weight(h, self.weight)

    @abstractmethod
    def combine(self, adj: Adjacency, z: Tensor, h_self: Input, projected: bool) -> Tensor:
        """The rows of the result whose entries `adj` has and whose own features are `h_self`.

        z is `project(h)` if `projected`, and h otherwise.
        """

    def plan(self, adj: Adjacency, *, needs_input_grad: bool, training: bool = True) -> LayerPlan:
        """Whether `A (H W)` or `(A H) W` is less work here, forward and backward."""
        f_in, f_out = self.weight.shape
        return plan_layer(
            adj.num_rows,
            adj.num_columns,
            adj.num_entries,
            f_in,
            self.aggregated_width or f_out,
            needs_input_grad=needs_input_grad,
            training=training,
        )

    def num_macs(self, adj: Adjacency, entries: int, own: int, *, first: bool, known: bool) -> int:
        f_in, f_out = self.weight.shape
        width = self.aggregated_width or f_out
        rest = own * (f_out - width)
        if known:
            return own * width + rest
        if entries < adj.num_columns * f_in or self.plan(adj, needs_input_grad=not first).transform_first:
            return entries * width + adj.num_entries * width + rest
        return adj.num_entries * f_in + own * width + rest

    def projects_first(self, adj: Adjacency, h: Tensor) -> bool:
        plan = self.plan(adj, needs_input_grad=h.requires_grad, training=torch.is_grad_enabled())
        return plan.transform_first


class GCNConv(OnePassConv):
    """`H' = D̃^-½ (A + I) D̃^-½ H W`."""

    kind = "gcn"

    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        if aggregated is not None:
            return aggregated @ self.weight
        if isinstance(h, Adjacency) or self.projects_first(adj, h):
            return spmm(adj, self.project(h))
        return spmm(adj, h) @ self.weight

    def combine(self, adj: Adjacency, z: Tensor, h_self: Input, projected: bool) -> Tensor:
        return spmm(adj, z) if projected else spmm(adj, z) @ self.weight


class SAGEConv(OnePassConv):
    """`H' = [ D⁻¹A H W_neigh ‖ H W_self ]`, each half out_features / 2 wide; the weight holds both side by side."""

    kind = "mean"

    def __init__(self, in_features: int, out_features: int) -> None:
        if out_features % 2:
            raise ShoalError(f"a SAGE layer is {out_features} wide: expected an even width, one half each")
        super().__init__(in_features, out_features)
        self.split_at = self.aggregated_width = out_features // 2
        if self.split_at >= MIN_NORM_WIDTH:
            self.norm_widths = [self.split_at, self.split_at]

    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        if isinstance(h, Adjacency):
            return self.combine(adj, self.project(h), take_rows(h, 0, adj.num_rows), True)
        if aggregated is not None:
            return self._join(aggregated @ self.weight[:, : self.split_at], take_rows(h, 0, adj.num_rows))
        return sage_linear(adj, h, self.weight, self.split_at, self.projects_first(adj, h))

    def project(self, h: Input) -> Tensor:
        return multiply_weight(h, self.weight[:, : self.split_at])

    def combine(self, adj: Adjacency, z: Tensor, h_self: Input, projected: bool) -> Tensor:
        neighbors = spmm(adj, z)
        return self._join(neighbors if projected else neighbors @ self.weight[:, : self.split_at], h_self)

    def _join(self, neighbors: Tensor, h_self: Input) -> Tensor:
        return torch.cat([neighbors, multiply_weight(h_self, self.weight[:, self.split_at :])], dim=1)
