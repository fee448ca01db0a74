"""ShardedSampler: one rank's share of a sampler's batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from shoal.batch import Batch
from shoal.checks import check_whole
from shoal.graph import Graph
from shoal.sampling.base import Count, Sampler
from shoal.sampling.normalize import Norms
from shoal.settings import check_settings


class RankSampler(Sampler):
    """One rank's share of the batches that `source` draws; normalisation is that of `source`, the same on every rank."""

    is_for_one_rank = True

    def __init__(self, source: Sampler, graph: Graph) -> None:
        super().__init__(graph, seed=source.seed)
        self.source = source
        self.coverage = source.coverage
        self.notices = source.notices

    @property
    def norms(self) -> Norms | None:
        return self.source.norms

    def normalize(
        self,
        coverage: int = 50,
        *,
        num_threads: int | None = None,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> Norms:
        norms = self.source.normalize(coverage, num_threads=num_threads, progress=progress)
        self.coverage, self.notices = self.source.coverage, self.source.notices
        return norms


class ShardedSampler(RankSampler):
    """Rank r of R draws the batches r, R + r, 2R + r, … of `sampler` (JPDC'21 §8).

    The ranks' batches are disjoint and together are the whole sequence. With gradients averaged over ranks, a step uses R
    batches of the sequence that one process would draw; this needs no communication. Normalisation is that of `sampler`,
    the same on every rank.

    An epoch has `⌈num_batches / R⌉` steps on every rank.

    Args:
        sampler: draws the common sequence.
        rank: this rank's number, from 0.
    """

    @check_settings
    def __init__(
        self, sampler: Sampler, rank: int, num_ranks: Annotated[Count, "ranks that share the batches"]
    ) -> None:
        super().__init__(sampler, sampler.graph)
        self.rank = check_whole("rank", rank, 0, num_ranks - 1)
        self.num_ranks = num_ranks
        self.name = sampler.name  # type: ignore[misc]

    def batch_number(self, step: int) -> int:
        """The number, in the common sequence, of this rank's batch in a step.

        Args:
            step: number of the step.
        """
        return step * self.num_ranks + self.rank

    def draw_nodes(self, k: int) -> np.ndarray:
        return self.source.draw_nodes(self.batch_number(k))

    def list_inputs(self, k: int) -> np.ndarray:
        return self.source.list_inputs(self.batch_number(k))

    def sample(self, k: int) -> Batch:
        return self.source.sample(self.batch_number(k))

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.source.settings, "rank": self.rank, "num_ranks": self.num_ranks}

    @property
    def num_batches(self) -> int:
        return -(-self.source.num_batches // self.num_ranks)
