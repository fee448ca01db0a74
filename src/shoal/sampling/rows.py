"""RowSampler: training nodes by themselves, without edges, for models that read a node's own row only."""

import numpy as np
import torch

from shoal.batch import Batch
from shoal.block import Block
from shoal.graph import Graph
from shoal.sampling.base import SAMPLERS, TrainingGraph
from shoal.sampling.targets import BatchSize, TargetSampler
from shoal.settings import Seed, check_settings


@SAMPLERS.register
class RowSampler(TargetSampler):
    """`batch_size` training nodes without edges, each once per epoch in a new random order; for models mlp and sign.

    Cost: a random order of the training nodes per epoch; a batch reads its own feature rows and nothing else.
    """

    name = "rows"

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        batch_size: BatchSize = 1024,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
    ) -> None:
        super().__init__(graph, batch_size=batch_size, setting=setting, seed=seed)

    def draw_nodes(self, k: int) -> np.ndarray:
        return np.sort(self.draw_outputs(k))

    def sample(self, k: int) -> Batch:
        nodes = self.draw_nodes(k)
        pattern = torch.zeros(len(nodes) + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32)
        return Batch(self.graph, nodes, (Block(*pattern, len(nodes), symmetric=True, checked=True),), index=k)
