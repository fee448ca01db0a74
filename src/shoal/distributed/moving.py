"""MovingSampler: a rank holds only the features of its part, which move when clusters are redistributed (JPDC'21 §8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.distributed.ledger import FORWARD, INPUT, Ledger
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.gather import gather_rows
from shoal.sampling.base import Sampler, make_sampler
from shoal.sampling.dealt import DealtSampler


class MovingSampler(DealtSampler):
    """A DealtSampler whose rank holds only the feature rows of its part; rows of clusters that change owners are sent.

    Batches are those of DealtSampler. All ranks draw the first batch of a deal at the same step, so batches cannot be
    prefetched. Every rank holds the adjacency and labels of the whole graph; features must be dense.

    Attributes:
        ledger: bytes and messages of the rows that this rank sent.
    """

    can_prefetch = False

    def __init__(self, graph: Graph, sampler: str, *, transport: Transport, **options: Any) -> None:
        super().__init__(graph, sampler, rank=transport.rank, num_ranks=transport.size, **options)
        self.transport, self.ledger = transport, Ledger()
        if not isinstance(self.graph.find_features(np.arange(0))[0], np.ndarray):
            raise ShoalError(
                "features that move between ranks must be dense: make them dense, or use DealtSampler"
            )
        self._held: tuple[int, Tensor] | None = None  # a deal, and the rows of its part

    def part_sampler(self, deal: int) -> Sampler:
        with self._lock:
            if deal not in self._made:
                nodes = self.part_nodes(deal)
                part = self.graph.subgraph(nodes)
                part._x = self._take_rows(deal, nodes).numpy()
                self._made = {deal: make_sampler(self.sampler, part, seed=self.seed, **self.options)}
            return self._made[deal]

    def _take_rows(self, deal: int, nodes: np.ndarray) -> Tensor:
        """The features of this rank's part in a deal: from the ranks that had them, at first from the graph."""
        if self._held is None:
            x, places = self.graph.find_features(nodes)
            assert isinstance(x, np.ndarray)
            self._held = deal, gather_rows(x, places)
        before, held = self._held
        if before != deal:
            self._held = deal, self._move(before, deal, held, nodes)
        return self._held[1]

    def _move(self, before: int, deal: int, held: Tensor, nodes: np.ndarray) -> Tensor:
        had, has = (self.deal_owners(one)[self.assignment] for one in (before, deal))
        mine = self.part_nodes(before)
        out = torch.empty(len(nodes), held.shape[1], dtype=held.dtype)
        comes = {q: np.flatnonzero(had[nodes] == q) for q in range(self.num_ranks)}
        rows = {
            q: torch.empty(len(comes[q]), held.shape[1], dtype=held.dtype)
            for q in comes
            if q != self.rank and len(comes[q])
        }
        self.transport.phase = f"the rows of deal {deal}"
        exchange = self.transport.start(rows)
        leaving = []
        for q in range(self.num_ranks):
            goes = np.flatnonzero(has[mine] == q)
            if q == self.rank:
                out[torch.from_numpy(comes[q])] = held[torch.from_numpy(goes)]
            elif len(goes):
                leaving.append(held[torch.from_numpy(goes)])
                exchange.send(q, leaving[-1])
                self.ledger.count(INPUT, FORWARD, q, leaving[-1].nbytes)
        for q in exchange.arrivals():
            out[torch.from_numpy(comes[q])] = rows[q]
        exchange.finish()
        return out
