"""MixHopConv: several powers of the adjacency side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import Tensor

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.row_sets import Rows
from shoal.kernels.spmm import spmm
from shoal.models.conv import CONVS, Conv, ConvStep
from shoal.models.layerwise import Input, LayerWork, Stored, multiply_weight, read_rows
from shoal.models.neighbourhood import take_rows
from shoal.scratch import Matrix


@CONVS.register
class MixHopConv(Conv):
    """`H' = ‖_{k=0..K} Â^k H W_k`, Â as in GCN, by repeated sparse products. The weight holds the W_k side by side.

    The parts share out_features as evenly as possible; lower powers get the wider parts.

    Args:
        order: the highest power K.
    """

    name = "mixhop"
    kind = "gcn"
    starts_from_aggregate = True
    default_order = 2
    max_order = 9

    def __init__(self, in_features: int, out_features: int, *, order: int = 2) -> None:
        if out_features < order + 1:
            raise ShoalError(
                f"a MixHop layer of order {order} is {out_features} wide: expected at least {order + 1}"
            )
        super().__init__(in_features, out_features)
        each, left = divmod(out_features, order + 1)
        self.widths = [each + (k < left) for k in range(order + 1)]
        self.starts = [sum(self.widths[:k]) for k in range(order + 1)]

    @classmethod
    def make(
        cls, in_features: int, out_features: int, *, order: int = 2, last: bool = False, **settings: Any
    ) -> Self:
        return cls(in_features, out_features, order=order, **settings)

    @classmethod
    def count_parts(cls, order: int) -> int:
        return order + 1

    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        """`h W_k` is projected first. Each sparse product then applies A to all higher powers at once.

        These are K products, or K - 1 if `A h` is precomputed.
        """
        if adj.num_rows != adj.num_columns and len(self.widths) > 2:
            raise ShoalError("MixHop of order 2 and more needs whole subgraphs: use a subgraph sampler")
        if aggregated is None or len(self.widths) == 1:
            parts = multiply_weight(h, self.weight).split(self.widths, dim=1)
            return self._multiply_powers(adj, parts)
        own = multiply_weight(take_rows(h, 0, adj.num_rows), self.weight[:, : self.widths[0]])
        parts = (aggregated @ self.weight[:, self.widths[0] :]).split(self.widths[1:], dim=1)
        return torch.cat([own, self._multiply_powers(adj, parts)], dim=1)

    def _multiply_powers(self, adj: Adjacency, parts: Sequence[Tensor]) -> Tensor:
        """`‖_k A^k parts[k]`."""
        out = parts[-1]
        for part in reversed(parts[:-1]):
            out = torch.cat([part[: adj.num_rows], spmm(adj, out)], dim=1)
        return out

    def steps(self) -> list[ConvStep]:
        """One step per power, the highest first: `[h W_k ‖ A z]`. In the first step z is `h W_K`."""
        highest = len(self.widths) - 1

        def step(power: int) -> ConvStep:
            def compute(adj: Adjacency, z: Input, own: Input) -> Tensor:
                if power == highest - 1:
                    z = multiply_weight(z, self.weight[:, self.starts[highest] :])
                assert isinstance(z, Tensor)
                start = self.starts[power]
                weight = self.weight[:, start : start + self.widths[power]]
                return torch.cat([multiply_weight(own, weight), spmm(adj, z)], dim=1)

            return ConvStep(compute, sum(self.widths[power:]))

        return [step(power) for power in range(highest - 1, -1, -1)] or super().steps()

    def infer(self, adj: Adjacency | None, h: Stored, work: LayerWork) -> Iterator[tuple[Rows, Tensor]]:
        """One pass over the rows per power, the highest first. Each pass appends `h W_k` of its power.

        No matrix is wider than the input of the next pass.
        """
        assert adj is not None
        highest = len(self.widths) - 1
        if highest == 0:
            for rows in work.chunks(adj.num_rows):
                yield rows, self._project(h, rows, 0)
            return
        with ExitStack() as kept:
            z = kept.enter_context(work.project(h, self.weight[:, self.starts[highest] :], highest))
            for power in range(highest - 1, 0, -1):
                width = sum(self.widths[power:])
                read, z = (
                    z,
                    kept.enter_context(
                        work.hold(adj.num_rows, width, self._raise_power(adj, h, z, power, work))
                    ),
                )
                for matrix in read:
                    matrix.close()
            yield from self._raise_power(adj, h, z, 0, work)

    def _raise_power(
        self, adj: Adjacency, h: Stored, z: list[Matrix], power: int, work: LayerWork
    ) -> Iterator[tuple[Rows, Tensor]]:
        """`[h W_power ‖ A z]`."""
        for rows, out in work.multiply(adj, z, power):
            yield rows, torch.cat([self._project(h, rows, power), out], dim=1)

    def _project(self, h: Stored, rows: Rows, power: int) -> Tensor:
        start = self.starts[power]
        return multiply_weight(read_rows(h, rows), self.weight[:, start : start + self.widths[power]])

    def exchange_widths(self, *, first: bool = False, known: bool = False) -> list[int]:
        """One width per power, the highest first. A precomputed `A x` saves the widest."""
        lowest = 2 if first and known else 1
        return [sum(self.widths[power:]) for power in range(len(self.widths) - 1, lowest - 1, -1)]

    def exchange_input(self, *, sparse: bool, training: bool = True) -> tuple[list[int], bool]:
        return self.exchange_widths(), True

    def num_macs(
        self, adj: Adjacency | None, entries: int, own: int, *, first: bool = False, known: bool = False
    ) -> int:
        assert adj is not None
        aggregated = sum((power - known) * width for power, width in enumerate(self.widths) if power)
        return entries * self.out_features + adj.num_entries * aggregated

    def explain(self, adj: Adjacency, *, first: bool, known: bool, sparse: bool) -> str:
        return ""
