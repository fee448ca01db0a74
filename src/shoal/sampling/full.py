"""FullSampler: every batch is the whole training graph."""

from functools import cached_property

import numpy as np

from shoal.batch import Batch, as_tensor
from shoal.block import Block
from shoal.graph import Graph
from shoal.sampling.base import SAMPLERS, Sampler, TrainingGraph
from shoal.settings import Seed, check_settings


@SAMPLERS.register
class FullSampler(Sampler):
    """Full-batch training as a sampler: one batch per epoch, always the same."""

    name = "full"
    draws_subgraphs = False
    can_prefetch = False

    @check_settings
    def __init__(self, graph: Graph, *, setting: TrainingGraph = "transductive", seed: Seed = 0) -> None:
        super().__init__(graph, setting=setting, seed=seed)

    def draw_nodes(self, k: int) -> np.ndarray:
        return np.arange(self.graph.num_nodes)

    @cached_property
    def _whole(self) -> Batch:
        graph = self.graph
        block = Block(
            as_tensor(graph.indptr),
            as_tensor(graph.indices),
            graph.num_nodes,
            symmetric=not graph.directed,
            edge_weight=None if graph.edge_weight is None else as_tensor(graph.edge_weight),
            checked=True,
        )
        return Batch(graph, self.draw_nodes(0), (block,), fixed=True)

    def sample(self, k: int) -> Batch:
        return self._whole

    def inclusion_probabilities(self) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(self.graph.num_nodes), np.ones(self.graph.num_entries)

    @property
    def num_batches(self) -> int:
        return 1
