"""FastGCNSampler: nodes for each layer drawn from one distribution over the whole graph."""

from functools import cached_property

import numpy as np

from shoal.sampling.base import SAMPLERS
from shoal.sampling.importance import Distribution, ImportanceSampler, find_column_norms, make_distribution
from shoal.sampling.layered import Grown


@SAMPLERS.register
class FastGCNSampler(ImportanceSampler):
    """For each layer `layer_size` nodes drawn independently with `q_v ∝ ‖Â_:,v‖²`, independent of the layer above.

    Rows may come out empty, a known weakness of this method on sparse graphs. Entries are weighted as in
    ImportanceSampler.

    Cost: O(layer_size + total degree of the rows) per layer.
    """

    name = "fastgcn"

    def grow(self, nodes: np.ndarray, layer: int, k: int) -> Grown:
        return self.draw_columns(nodes, layer, k, self._law)

    @cached_property
    def _law(self) -> Distribution:
        graph = self.graph
        weights: np.ndarray = 1.0 / (graph.weighted_degree + 1.0) ** 2
        find_column_norms(graph, np.arange(graph.num_nodes), weights)
        return make_distribution(weights)
