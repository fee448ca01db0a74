"""Dense: a layer without aggregation. The model `mlp` has only such layers and is the baseline to beat."""

from __future__ import annotations

from torch import Tensor

from shoal.kernels.adjacency import Adjacency
from shoal.models.conv import CONVS, Conv
from shoal.models.layerwise import Input, multiply_weight


@CONVS.register
class Dense(Conv):
    """`H' = H W`. It is order 0 in the pattern of any model."""

    name = "mlp"
    kind = None
    max_order = 9  # any: it takes no operator

    def forward(self, adj: Adjacency | None, h: Input, aggregated: Tensor | None = None) -> Tensor:
        return multiply_weight(h, self.weight)
