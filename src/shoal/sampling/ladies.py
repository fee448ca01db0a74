"""LadiesSampler: nodes for each layer drawn among the neighbours of the layer above."""

import numpy as np

from shoal.sampling.base import SAMPLERS
from shoal.sampling.importance import ImportanceSampler, add_column_norms, make_distribution
from shoal.sampling.layered import Grown


@SAMPLERS.register
class LadiesSampler(ImportanceSampler):
    """Like FastGCN, but a layer's nodes are drawn among the neighbours of the layer above, with
    `q_v ∝ Σ_{u in rows} Â_uv²`: every drawn node is used.

    Cost: O(num_nodes + layer_size + total degree of the rows) a layer.
    """

    name = "ladies"

    def grow(self, nodes: np.ndarray, layer: int, k: int) -> Grown:
        with self.borrow_factor() as sums:
            add_column_norms(self.graph.indptr, self.graph.indices, nodes, sums)
            candidates = np.flatnonzero(sums)
            weights = sums[candidates]
            sums[candidates] = 0
        return self.draw_columns(nodes, layer, k, make_distribution(weights, candidates))
