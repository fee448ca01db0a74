"""Graph convolutions. Each maps features of a block's columns to features of its rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.plan import LayerPlan, plan_layer
from shoal.kernels.sage import sage_linear
from shoal.kernels.spmm import spmm

Input = Tensor | Adjacency


def multiply_weight(h: Input, weight: Tensor) -> Tensor:
    """`h W` for dense features, or for sparse ones without making them dense. W is (f_in, f_out)."""
    return spmm(h, weight) if isinstance(h, Adjacency) else h @ weight


def take_rows(h: Input, start: int, end: int) -> Input:
    """Rows start…end-1 of dense or sparse features, without a copy; all of them are h itself."""
    count = h.num_rows if isinstance(h, Adjacency) else h.shape[0]
    if (start, end) == (0, count):
        return h
    return h.slice_rows(start, end) if isinstance(h, Adjacency) else h[start:end]


class Conv(nn.Module):
    """A layer's linear part, without bias. `kind` names the aggregation whose operator it expects.

    `A (H W)` and `(A H) W` are the same; `forward` computes the cheaper one. Inference in chunks of rows uses
    the two halves on their own: `project` once for all nodes where H is sparse, then `combine` for each chunk.
    """

    kind: ClassVar[str]

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_features, out_features)))

    @abstractmethod
    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        """Shapes: adj (n, m), h (m, in_features), its first n rows those of the result; result (n, out_features).

        `aggregated` is `adj · h` where it is known already, because h is fixed.
        """

    @abstractmethod
    def combine(self, adj: Adjacency, z: Tensor, h_self: Input, *, projected: bool) -> Tensor:
        """Some rows of the result: `adj` has their entries, `h_self` their own features.

        z is `project(h)` if `projected`, and h otherwise.
        """

    def project(self, h: Input) -> Tensor:
        return multiply_weight(h, self.weight)

    def plan(self, adj: Adjacency, h: Tensor, f_out: int) -> LayerPlan:
        """Whether `A (H W)` or `(A H) W` is less work here, forward and backward."""
        return plan_layer(
            adj.num_rows,
            adj.num_columns,
            adj.num_entries,
            h.shape[1],
            f_out,
            needs_input_grad=h.requires_grad,
            training=torch.is_grad_enabled(),
        )


class GCNConv(Conv):
    """`H' = D̃^-½ (A + I) D̃^-½ H W`."""

    kind = "gcn"

    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        if aggregated is not None:
            return aggregated @ self.weight
        if isinstance(h, Adjacency) or self.plan(adj, h, self.weight.shape[1]).transform_first:
            return spmm(adj, self.project(h))
        return spmm(adj, h) @ self.weight

    def combine(self, adj: Adjacency, z: Tensor, h_self: Input, *, projected: bool) -> Tensor:
        return spmm(adj, z) if projected else spmm(adj, z) @ self.weight


class SAGEConv(Conv):
    """`H' = [ D⁻¹A H W_neigh ‖ H W_self ]`, each half out_features / 2 wide; the weight holds both side by side."""

    kind = "mean"

    def __init__(self, in_features: int, out_features: int) -> None:
        if out_features % 2:
            raise ShoalError(f"a SAGE layer is {out_features} wide: expected an even width, one half each")
        super().__init__(in_features, out_features)
        self.split_at = out_features // 2

    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        if isinstance(h, Adjacency):
            return self.combine(adj, self.project(h), take_rows(h, 0, adj.num_rows), projected=True)
        if aggregated is not None:
            return self._join(aggregated @ self.weight[:, : self.split_at], take_rows(h, 0, adj.num_rows))
        return sage_linear(
            adj, h, self.weight, self.split_at, self.plan(adj, h, self.split_at).transform_first
        )

    def project(self, h: Input) -> Tensor:
        return multiply_weight(h, self.weight[:, : self.split_at])

    def combine(self, adj: Adjacency, z: Tensor, h_self: Input, *, projected: bool) -> Tensor:
        neighbors = spmm(adj, z)
        return self._join(neighbors if projected else neighbors @ self.weight[:, : self.split_at], h_self)

    def _join(self, neighbors: Tensor, h_self: Input) -> Tensor:
        return torch.cat([neighbors, multiply_weight(h_self, self.weight[:, self.split_at :])], dim=1)


CONVS: dict[str, Callable[[int, int], Conv]] = {"sage": SAGEConv, "gcn": GCNConv}
