"""SAGEConv: the mean of the neighbours concatenated with a node's own features."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.row_sets import Rows
from shoal.kernels.sage import sage_linear
from shoal.kernels.spmm import spmm
from shoal.models.conv import CONVS, Conv
from shoal.models.layerwise import Input, LayerWork, Stored, multiply_weight, read_rows
from shoal.models.neighbourhood import take_rows

MIN_NORM_WIDTH = 8  # narrower halves have too few columns for a separate mean and variance


@CONVS.register
class SAGEConv(Conv):
    """`H' = [ D⁻¹A H W_neigh ‖ H W_self ]`, each half out_features / 2 wide. The weight is `[ W_neigh ‖ W_self ]`."""

    name = "sage"
    kind = "mean"
    starts_from_aggregate = True

    def __init__(self, in_features: int, out_features: int) -> None:
        if out_features % 2:
            raise ShoalError(
                f"a SAGE layer is {out_features} wide: expected an even width, for two equal halves"
            )
        super().__init__(in_features, out_features)
        self.split_at = self.aggregated_width = out_features // 2
        if self.split_at >= MIN_NORM_WIDTH:
            self.norm_widths = [self.split_at, self.split_at]

    @classmethod
    def count_parts(cls, order: int) -> int:
        return 2

    def forward(self, adj: Adjacency, h: Input, aggregated: Tensor | None = None) -> Tensor:
        if isinstance(h, Adjacency):
            return self._join(spmm(adj, self._project(h)), take_rows(h, 0, adj.num_rows))
        if aggregated is not None:
            return self._join(self._project(aggregated), take_rows(h, 0, adj.num_rows))
        return sage_linear(adj, h, self.weight, self.split_at, self.projects_first(adj, h))

    def infer(self, adj: Adjacency | None, h: Stored, work: LayerWork) -> Iterator[tuple[Rows, Tensor]]:
        assert adj is not None
        if self.projects_inference(h, work):
            with work.project(h, self.weight[:, : self.split_at]) as z:
                for rows, neighbors in work.multiply(adj, z):
                    yield rows, self._join(neighbors, read_rows(h, rows))
        else:
            assert isinstance(h, Tensor)
            for rows, neighbors in work.multiply(adj, h):
                yield rows, self._join(self._project(neighbors), read_rows(h, rows))

    def _project(self, h: Input) -> Tensor:
        return multiply_weight(h, self.weight[:, : self.split_at])

    def _join(self, neighbors: Tensor, own: Input) -> Tensor:
        return torch.cat([neighbors, multiply_weight(own, self.weight[:, self.split_at :])], dim=1)
