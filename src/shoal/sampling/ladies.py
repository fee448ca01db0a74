"""LadiesSampler: nodes for each layer drawn among the neighbours of the layer above."""

from functools import partial
from typing import Annotated

import numpy as np

from shoal.graph import Graph
from shoal.sampling.base import SAMPLERS, TrainingGraph
from shoal.sampling.importance import ImportanceSampler, LayerSize, find_column_norms, make_distribution
from shoal.sampling.layered import Grown, NumLayers
from shoal.sampling.targets import BatchSize
from shoal.settings import Seed, check_settings


@SAMPLERS.register
class LadiesSampler(ImportanceSampler):
    """Like FastGCN, but a layer's nodes are drawn among the neighbours of the layer above, with
    `q_v ∝ Σ_{u in rows} Â_uv²`: every drawn node is used. Rows are normalised, as its authors do; without that
    aggregations are unbiased, but have more variance.

    Cost: O(num_nodes + layer_size + total degree of the rows) per layer.
    """

    name = "ladies"

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        batch_size: BatchSize = 1000,
        layer_size: LayerSize = 4000,
        num_layers: NumLayers = 2,
        row_normalize: Annotated[
            bool, "scale a row's weights to their sum in the whole graph, as the authors do; false: unbiased"
        ] = True,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
    ) -> None:
        super().__init__(
            graph,
            batch_size=batch_size,
            layer_size=layer_size,
            num_layers=num_layers,
            setting=setting,
            seed=seed,
        )
        self.row_normalize = row_normalize

    def grow(self, nodes: np.ndarray, layer: int, k: int) -> Grown:
        law = self.find_candidates(partial(find_column_norms, self.graph, nodes))
        return self.draw_columns(nodes, layer, k, make_distribution(*law))
