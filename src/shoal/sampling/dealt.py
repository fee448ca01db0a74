"""DealtSampler: every rank samples its own clusters, which are dealt to the ranks again every few epochs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from shoal.batch import Batch
from shoal.checks import check_whole
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.rng import permute
from shoal.sampling.base import Count, Sampler, TrainingGraph, make_sampler
from shoal.sampling.normalize import Norms
from shoal.settings import Seed, check_settings

_FIRST_DEAL = 3 << 61  # random streams of the deals, distinct from those of batches and epochs


class DealtSampler(Sampler):
    """Batches of one rank's part only, drawn by any subgraph sampler (JPDC'21 §8).

    The graph is cut into K ≥ num_ranks clusters. Every `reshuffle_every` epochs they are shuffled and dealt to the ranks
    in turn. Edges between clusters of different ranks are in no batch until a later deal brings these clusters together.
    In step s rank r draws batch `s · num_ranks + r` of the common sequence. Every rank computes the same deal from the
    seed, without communication.

    Args:
        sampler: the name of a subgraph sampler, made anew on each part with `options`.
        assignment: the cluster of every node of `graph`, (num_nodes,) from 0.
        reshuffle_every: epochs between deals.
        rank: this rank's number, from 0.
        options: settings of the subgraph sampler.

    Cost: extracting the part once per deal, then the inner sampler's.
    """

    name = "dealt"
    is_for_one_rank = True

    @check_settings
    def __init__(
        self,
        graph: Graph,
        sampler: str,
        *,
        assignment: np.ndarray,
        rank: int,
        num_ranks: Annotated[Count, "ranks that clusters are dealt to"],
        reshuffle_every: Annotated[Count, "epochs between deals"] = 1,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        **options: Any,
    ) -> None:
        rank = check_whole("rank", rank, 0, num_ranks - 1)
        assignment = np.asarray(assignment)
        if assignment.shape != (graph.num_nodes,):
            raise ShoalError(
                f"assignment has shape {assignment.shape}: expected the cluster of each of the {graph.num_nodes:,} nodes"
            )
        super().__init__(graph, setting=setting, seed=seed)
        kept = assignment if self.graph is graph or self.graph.n_id is None else assignment[self.graph.n_id]
        used, self.assignment = np.unique(kept, return_inverse=True)
        self.num_clusters = len(used)
        if self.num_clusters < num_ranks:
            raise ShoalError(
                f"{self.num_clusters} clusters cannot be dealt to {num_ranks} ranks: cut the graph into more"
            )
        mask = self.graph.train_mask
        trained = self.assignment if mask is None else self.assignment[mask]
        bare = np.setdiff1d(np.arange(self.num_clusters), trained)
        if len(bare):
            raise ShoalError(
                f"cluster {used[bare[0]]} has no training nodes, so a rank could be dealt none: cut the graph into fewer clusters"
            )
        self.sampler, self.options = sampler, options
        self.rank, self.num_ranks = rank, num_ranks
        self.reshuffle_every = reshuffle_every
        whole = make_sampler(sampler, self.graph, seed=seed, **options)
        self._num_batches = -(-whole.num_batches // num_ranks)
        self._made: dict[int, Sampler] = {}
        self._lock = threading.Lock()

    def part_nodes(self, deal: int) -> np.ndarray:
        """The increasing nodes (in `self.graph`) of this rank's part in a deal.

        Args:
            deal: number of the deal, from 0.
        """
        return np.flatnonzero(self.deal_owners(deal)[self.assignment] == self.rank)

    def count_moved(self, deal: int) -> np.ndarray:
        """Rows that rank q sends to rank r when `deal` replaces the previous one, (num_ranks, num_ranks).

        Args:
            deal: number of the deal, from 1.
        """
        owners = [self.deal_owners(one) for one in (deal - 1, deal)]
        moved = np.zeros((self.num_ranks, self.num_ranks), np.int64)
        np.add.at(moved, (owners[0][self.assignment], owners[1][self.assignment]), 1)
        np.fill_diagonal(moved, 0)
        return moved

    def deal_owners(self, deal: int) -> np.ndarray:
        """The rank that every cluster is dealt to.

        Args:
            deal: number of the deal, from 0.
        """
        order = permute(self.num_clusters, self.seed, _FIRST_DEAL + deal)
        owners = np.empty(self.num_clusters, np.int64)
        owners[order] = np.arange(self.num_clusters) % self.num_ranks
        return owners

    def part_sampler(self, deal: int) -> Sampler:
        """The sampler of this rank's part in a deal; the last two are kept.

        Args:
            deal: number of the deal, from 0.
        """
        with self._lock:
            if deal not in self._made:
                part = self.graph.subgraph(self.part_nodes(deal))
                self._made = {d: s for d, s in self._made.items() if abs(d - deal) == 1}
                self._made[deal] = make_sampler(self.sampler, part, seed=self.seed, **self.options)
            return self._made[deal]

    def normalize(
        self,
        coverage: int = 50,
        *,
        num_threads: int | None = None,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> Norms:
        raise ShoalError("each part is normalised on its own: give coverage= among the sampler's options")

    def sample(self, k: int) -> Batch:
        """Batch number k of this rank."""
        return self._of_step(k).sample(k * self.num_ranks + self.rank)

    def draw_nodes(self, k: int) -> np.ndarray:
        nodes = self._of_step(k).draw_nodes(k * self.num_ranks + self.rank)
        drawn: np.ndarray = self.part_nodes(self._deal_of(k))[nodes]
        return drawn

    @property
    def num_batches(self) -> int:
        """Batches in an epoch, the same on every rank."""
        return self._num_batches

    def _deal_of(self, k: int) -> int:
        return k // self._num_batches // self.reshuffle_every

    def _of_step(self, k: int) -> Sampler:
        return self.part_sampler(self._deal_of(k))
