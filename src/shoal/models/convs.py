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
from shoal.kernels.spmm import spmm

Input = Tensor | Adjacency


def multiply_weight(h: Input, weight: Tensor) -> Tensor:
    """`h W` for dense features, or for sparse ones without making them dense. W is (f_in, f_out)."""
    return spmm(h, weight) if isinstance(h, Adjacency) else h @ weight


def make_weight(in_features: int, out_features: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_features, out_features)))


class Conv(nn.Module):
    """A layer's linear part. `kind` names the aggregation whose operator `forward` expects.

    `A (H W)` and `(A H) W` are the same; the cheaper one is computed. The first is split in two, `project`
    and `combine`, so that inference in chunks of rows projects every node once.
    """

    kind: ClassVar[str]

    def __init__(self, in_features: int, out_features: int, weight_width: int) -> None:
        super().__init__()
        self.weight = make_weight(in_features, weight_width)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, adj: Adjacency, h: Input, h_self: Input) -> Tensor:
        """Shapes: adj (n, m), h (m, in_features), h_self (n, in_features): the rows' own features."""
        if isinstance(h, Adjacency) or self.plan(adj, h).transform_first:
            return self.combine(adj, self.project(h), h_self, projected=True)
        return self.combine(adj, h, h_self, projected=False)

    def plan(self, adj: Adjacency, h: Tensor) -> LayerPlan:
        """Whether `A (H W)` or `(A H) W` is less work here, forward and backward."""
        f_in, f_out = self.weight.shape
        return plan_layer(
            adj.num_rows,
            adj.num_columns,
            adj.num_entries,
            f_in,
            f_out,
            needs_input_grad=h.requires_grad,
            training=torch.is_grad_enabled(),
        )

    def project(self, h: Input) -> Tensor:
        return multiply_weight(h, self.weight)

    def aggregate(self, adj: Adjacency, z: Tensor, projected: bool) -> Tensor:
        return spmm(adj, z) if projected else spmm(adj, z) @ self.weight

    @abstractmethod
    def combine(self, adj: Adjacency, z: Tensor, h_self: Input, *, projected: bool) -> Tensor:
        """The layer's output from z, which is `project(h)` if `projected` and h otherwise."""


class GCNConv(Conv):
    """`H' = D̃^-½ (A + I) D̃^-½ H W + b`."""

    kind = "gcn"

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, out_features)

    def combine(self, adj: Adjacency, z: Tensor, h_self: Input, *, projected: bool) -> Tensor:
        return self.aggregate(adj, z, projected) + self.bias


class SAGEConv(Conv):
    """`H' = [ D⁻¹A H W_neigh ‖ H W_self ] + b`, each half out_features / 2 wide."""

    kind = "mean"

    def __init__(self, in_features: int, out_features: int) -> None:
        if out_features % 2:
            raise ShoalError(f"a SAGE layer is {out_features} wide: expected an even width, one half each")
        super().__init__(in_features, out_features, out_features // 2)
        self.weight_self = make_weight(in_features, out_features // 2)

    def combine(self, adj: Adjacency, z: Tensor, h_self: Input, *, projected: bool) -> Tensor:
        neighbours = self.aggregate(adj, z, projected)
        return torch.cat([neighbours, multiply_weight(h_self, self.weight_self)], dim=1) + self.bias


CONVS: dict[str, Callable[[int, int], Conv]] = {"sage": SAGEConv, "gcn": GCNConv}
