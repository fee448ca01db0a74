"""ClippedSampler: batches whose number of nodes is a given multiple (JPDC'21's node clipping)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.errors import ShoalError
from shoal.rng import permute
from shoal.sampling.base import Sampler
from shoal.sampling.shard import RankSampler

_FIRST_CLIP = 5 << 60  # random streams for dropped nodes, distinct from those of batches, orders and deals


class ClippedSampler(RankSampler):
    """The batches of `source` without up to `multiple` - 1 random nodes, so that `multiple` divides their number.

    A batch of fewer nodes stays as it is. Normalisation is that of `source`: every node of a batch of n is kept with the same
    probability, 1 - (n mod multiple) / n.
    """

    is_for_one_rank = False

    def __init__(self, source: Sampler, multiple: int) -> None:
        if not source.is_shareable():
            raise ShoalError(
                f"sampler {source.name} draws no induced subgraphs to clip: leave out node_multiple, or use a subgraph sampler"
            )
        super().__init__(source, source.graph)
        self.name = source.name  # type: ignore[misc]
        self.multiple = multiple

    def draw_nodes(self, k: int) -> np.ndarray:
        nodes = self.source.draw_nodes(k)
        rest = len(nodes) % self.multiple
        if rest == 0 or len(nodes) == rest:
            return nodes
        dropped = permute(len(nodes), self.seed, _FIRST_CLIP + k)[:rest]
        return np.delete(nodes, dropped)

    @property
    def num_batches(self) -> int:
        return self.source.num_batches

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.source.settings, "node_multiple": self.multiple}
