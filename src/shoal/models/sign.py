"""SIGN: features propagated before training, then a stack of dense layers on each node's own row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.models.conv import CONVS, Conv
from shoal.models.hops import Hops, Operator, stack_hops


@CONVS.register
class HopsConv(Conv):
    """`H' = [x W_0 | S x W_1 | … | S^K x W_K]` of hops that are computed once, before training; dense layers follow.

    It is the first layer of model sign. The K + 1 products share its width evenly.

    Shapes: x `(n, (K + 1) f)`, the hops side by side (`shoal.stack_hops`); weight `(f, out_features)`.
    """

    name = "sign"
    kind = None
    trains_on_rows = True

    def __init__(
        self, in_features: int, out_features: int, *, hops: Hops = 3, operator: Operator = "gcn"
    ) -> None:
        if in_features % (hops + 1):
            raise ShoalError(
                f"model sign reads {hops} hops and got {in_features:,} features: "
                f"expected the features of shoal.stack_hops(graph, hops={hops})"
            )
        if out_features <= hops:
            raise ShoalError(
                f"model sign splits {out_features} columns among {hops + 1} hops: set a larger hidden"
            )
        super().__init__(in_features // (hops + 1), out_features)
        self.in_features, self.hops, self.operator = in_features, hops, operator

    @classmethod
    def prepare_graph(cls, graph: Graph, folder: Path | None = None, **settings: Any) -> Graph:
        return stack_hops(graph, folder=folder, **settings)

    def forward(self, adj: Adjacency | None, h: Any, aggregated: Tensor | None = None) -> Tensor:
        inputs = h.tensor_split(self.hops + 1, dim=1)
        weights = self.weight.tensor_split(self.hops + 1, dim=1)
        return torch.cat([one @ weight for one, weight in zip(inputs, weights)], dim=1)

    def num_macs(
        self, adj: Adjacency | None, entries: int, own: int, *, first: bool = False, known: bool = False
    ) -> int:
        return entries * self.out_features // (self.hops + 1)
