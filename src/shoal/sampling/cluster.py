"""ClusterSampler: batches of whole parts of a partition, with the edges between them (Cluster-GCN)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from torch import Tensor

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.partitioning.partition import partition_graph
from shoal.rng import permute
from shoal.sampling.base import COUNT, SAMPLERS, Count, Coverage, Sampler, TrainingGraph
from shoal.settings import Null, Seed, check_settings

_FIRST_ORDER = 1 << 62


@SAMPLERS.register
class ClusterSampler(Sampler):
    """The subgraph induced by `clusters_per_batch` parts; every part is in one batch per epoch, in a new
    random order each epoch.

    A batch holds c of the P parts, every choice equally likely, so inclusion is known exactly: `p_v = c/P`,
    and `p_uv = c/P` within a part, `c(c-1) / (P(P-1))` between two. An epoch leaves out P mod c parts; no part is
    in two of its batches.

    The partition is given as `assignment`, (num_nodes,), or made with METIS (needs `shoal[partition]`).

    Cost: the size of the batch and its total degree.
    """

    name = "cluster"

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        assignment: Annotated[
            Sequence[int] | np.ndarray | Tensor | None,
            Null("a partition into num_parts"),
            "part of every node, numbered from 0",
        ] = None,
        num_parts: Annotated[
            int | None,
            COUNT,
            Null("the parts of assignment"),
            "parts to make with METIS if no assignment is given",
        ] = None,
        clusters_per_batch: Annotated[Count, "parts in a batch, with the edges between them"] = 1,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        coverage: Coverage = None,
    ) -> None:
        super().__init__(graph, setting=setting, seed=seed, coverage=coverage)
        if assignment is None:
            if num_parts is None:
                raise ShoalError(
                    "a cluster sampler needs parts: give assignment or num_parts (shoal train: --set sampler.num_parts=50)"
                )
            made = partition_graph(self.graph, num_parts, "metis", balance="nodes", seed=seed)
            assignment = made.assignment
        else:
            assignment = self._check_assignment(np.asarray(assignment), graph)
        used, parts = np.unique(assignment, return_inverse=True)
        self.assignment = parts
        self.num_parts = len(used)
        if clusters_per_batch > self.num_parts:
            raise ShoalError(
                f"clusters_per_batch is {clusters_per_batch:,} but there are {self.num_parts:,} parts with nodes"
            )
        self.clusters_per_batch = clusters_per_batch
        by_part = np.argsort(parts, kind="stable")
        self._members = np.split(by_part, np.cumsum(np.bincount(parts))[:-1])

    def _check_assignment(self, assignment: np.ndarray, graph: Graph) -> np.ndarray:
        if assignment.shape != (graph.num_nodes,) or assignment.dtype.kind not in "iu":
            raise ShoalError(
                f"assignment is {assignment.dtype} {assignment.shape}: expected the part of each of the {graph.num_nodes:,} nodes"
            )
        if assignment.min(initial=0) < 0:
            raise ShoalError(f"assignment holds {assignment.min()}: expected parts numbered from 0")
        nodes = self.graph.n_id if self.graph is not graph else None
        return assignment if nodes is None else assignment[nodes]

    def draw_nodes(self, k: int) -> np.ndarray:
        epoch, place = divmod(k, self.num_batches)
        order = permute(self.num_parts, self.seed, _FIRST_ORDER + epoch)
        chosen = order[place * self.clusters_per_batch : (place + 1) * self.clusters_per_batch]
        return np.sort(np.concatenate([self._members[part] for part in chosen]))

    @property
    def num_batches(self) -> int:
        """Batches in an epoch: every part once, but for a remainder smaller than a batch."""
        return self.num_parts // self.clusters_per_batch

    def inclusion_probabilities(self) -> tuple[np.ndarray, np.ndarray]:
        share = self.clusters_per_batch / self.num_parts
        apart = share * (self.clusters_per_batch - 1) / max(self.num_parts - 1, 1)
        part = self.assignment
        together = np.repeat(part, self.graph.degree) == part[self.graph.indices]
        return np.full(self.graph.num_nodes, share), np.where(together, share, apart)
