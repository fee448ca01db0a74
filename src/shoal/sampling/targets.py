"""TargetSampler: batches of training nodes as outputs, each once per epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from shoal.conversion import check_rows
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.rng import permute
from shoal.sampling.base import Count, Sampler, TrainingGraph
from shoal.sampling.normalize import Norms
from shoal.settings import Seed, check_settings

_FIRST_ORDER = 1 << 62  # random streams of the epochs' orders, distinct from those of the batches
BatchSize = Annotated[Count, "output nodes in a batch"]


class TargetSampler(Sampler):
    """Batches of `batch_size` output nodes, each training node once per epoch in a new random order.

    Other `outputs` than the training nodes may be given, and with `shuffle=False` they keep their order.
    """

    draws_subgraphs = False

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        batch_size: BatchSize,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        outputs: Any = None,
        shuffle: bool = True,
    ) -> None:
        super().__init__(graph, setting=setting, seed=seed)
        mask = self.graph.train_mask
        self._targets = np.arange(self.graph.num_nodes) if mask is None else np.flatnonzero(mask)
        if outputs is not None:
            self._targets = _check_outputs(outputs, graph, self.graph)
        self.outputs, self.shuffle = outputs, shuffle
        self.batch_size = batch_size
        self._orders: dict[
            int, np.ndarray
        ] = {}  # of the last two epochs, since threads that sample ahead use both

    def draw_outputs(self, k: int) -> np.ndarray:
        """The output nodes of batch k: slice k mod num_batches of the epoch's order.

        Args:
            k: number of the batch.
        """
        nodes: np.ndarray = self._targets[self.draw_places(k)]
        return nodes

    def draw_places(self, k: int) -> np.ndarray:
        """Positions of the output nodes of batch k among all output nodes.

        Args:
            k: number of the batch.
        """
        epoch, place = divmod(k, self.num_batches)
        known = self._orders
        order = known.get(epoch)
        if order is None:
            count = len(self._targets)
            order = permute(count, self.seed, _FIRST_ORDER + epoch) if self.shuffle else np.arange(count)
            self._orders = dict([*list(known.items())[-1:], (epoch, order)])
        start = place * int(self.batch_size)
        places: np.ndarray = order[start : start + int(self.batch_size)]
        return places

    @property
    def num_batches(self) -> int:
        """Batches in an epoch: every training node is an output once."""
        return -(-len(self._targets) // int(self.batch_size))

    def normalize(
        self,
        coverage: int = 50,
        *,
        num_threads: int | None = None,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> Norms:
        raise ShoalError(
            f"sampler {self.name!r} normalises its own batches: leave out coverage, which is for subgraph samplers"
        )


def _check_outputs(outputs: Any, graph: Graph, trained: Graph) -> np.ndarray:
    """Output nodes as numbers, from numbers or a mask; raises ShoalError if training does not see all of them."""
    given = np.asarray(outputs)
    if given.dtype == np.bool_ and given.ndim == 1:
        if len(given) != graph.num_nodes:
            raise ShoalError(
                f"the mask of output nodes has {len(given):,} entries but the graph has {graph.num_nodes:,} nodes: expected one entry per node"
            )
        given = np.flatnonzero(given)
    nodes = check_rows(given, graph.num_nodes).astype(np.int64)
    if not len(nodes):
        raise ShoalError("there are no output nodes: expected at least one")
    if trained is not graph:
        raise ShoalError(
            "outputs are nodes of the whole graph: leave out setting=inductive, or leave out outputs"
        )
    return nodes
