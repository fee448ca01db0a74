"""Boundary sampling: every epoch exchanges only some of the halo rows (BNS-GCN), or those of some edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.batch import Batch
from shoal.distributed.batch import thin_batch
from shoal.distributed.cover import count_before
from shoal.distributed.halo import HaloPlan, list_spans
from shoal.distributed.ledger import IDS, INPUT, SAMPLING
from shoal.errors import ShoalError, unknown_name
from shoal.kernels.jit import kernel
from shoal.partitioning.part import Part
from shoal.rng import key, random_u64, uniform
from shoal.sampling.base import Sampler

WAYS = ("nodes", "edges", "dropedge")
_PURPOSE = 0xB0DA  # keeps these draws apart from those of samplers with the same seed


class BoundarySampler(Sampler):
    """Full-batch training on a halo that is sampled in every epoch (BNS-GCN).

    - `nodes` keeps each halo row, or with covers each row and each sum, with probability p and scales it by 1/p, so that
      every aggregation stays unbiased.
    - `edges` keeps each entry in a halo column with probability p and exchanges the rows that some kept entry reads.
    - `dropedge` drops entries of the whole graph except self loops, as many as the others on average: each with
      probability (1 - p) times the share of entries that cross parts.

    `edges` and `dropedge` are the alternatives of the paper's ablation (table 9). Owners receive one bit for each row
    that they might send. These bits count as traffic and are sent during the previous epoch.

    What an epoch keeps is a pure function of (seed, epoch, rank and node, or edge). An edge's random number depends on
    neither ranks nor direction. The first layer's halo input is exchanged once before training and not sampled, except
    for MixHop's higher powers; `sample_input` samples it too, as the paper does. In the softmax of attention, kept halo
    entries have the weight 1/p. With `dropedge`, which drops local entries too, all kept entries have the weight 1.

    Args:
        batch: all rows of this rank's part.
        plan: of the whole part.
        rate: p of the first epoch; 1 exchanges everything by the plan as it is, 0 nothing.
        last_rate: p of the last epoch, reached in equal steps; `rate` if None.
        sample_input: exchange the features of the kept halo rows in every epoch, and let the first layer read only those.

    With rate 1 throughout it is plain full-batch training on the part.

    Attributes:
        epochs: number of epochs, from which a changing rate is computed.
    """

    name = "boundary"
    is_for_one_rank = True

    def __init__(
        self,
        batch: Batch,
        plan: HaloPlan,
        *,
        rate: float = 1.0,
        last_rate: float | None = None,
        way: str = "nodes",
        sample_input: bool = False,
        seed: int = 0,
    ) -> None:
        if way not in WAYS:
            raise unknown_name("boundary sampling", way, WAYS)
        for name, value in (("rate", rate), ("last rate", rate if last_rate is None else last_rate)):
            if not 0 <= value <= 1:
                raise ShoalError(f"the boundary's {name} is {value}: expected 0 to 1")
        super().__init__(batch.graph, seed=seed)
        self.batch, self.plan = batch, plan
        self.rate, self.last_rate = rate, last_rate
        self.way, self.sample_input = way, sample_input
        self.epochs = 1
        self._crossing = find_crossing(plan) if way == "dropedge" else 1.0
        self._coming: Choice | None = None

    def rate_of(self, epoch: int) -> float:
        """p in an epoch, counted from 0."""
        return find_rate(self.rate, self.last_rate, epoch, self.epochs)

    def draw_nodes(self, k: int) -> np.ndarray:
        return self.batch.nodes

    @property
    def num_batches(self) -> int:
        return 1

    def sample(self, k: int) -> Batch:
        choice = self._coming
        if choice is None or choice.epoch != k:
            self.settle()
            choice = self._choose(k)
        self._coming = None
        batch = self.batch if choice is None else self._thin(choice)
        if k + 1 < self.epochs:  # sent while this epoch trains
            self._coming = self._choose(k + 1)
        return batch

    def settle(self) -> None:
        """Drain pending messages of an epoch that will not run."""
        if self._coming is not None:
            self._coming.hear()
            self._coming = None

    def _choose(self, epoch: int) -> Choice | None:
        """Draw what an epoch keeps; None for everything."""
        rate, plan = self.rate_of(epoch), self.plan
        if self.way == "dropedge":
            rate = 1 - (1 - rate) * self._crossing
        if rate == 1:
            return None
        with plan.ledger.timing(SAMPLING):
            return Choice(plan, rate, self.way, self.seed, epoch)

    def _thin(self, choice: Choice) -> Batch:
        with self.plan.ledger.timing(SAMPLING):
            plan = choice.thin()
        return thin_batch(self.batch, plan, sample_input=self.sample_input)


class Choice:
    """The halo rows that this rank keeps in an epoch, and the exchange that sends this list to their owners.

    Rows, or sums, are kept with probability `rate`; with `edges` and `dropedge`, entries are. The list has one bit for
    each row, in the order of both ranks. Every rank makes a Choice, and receives those of others, at the same points
    between its exchanges.
    """

    def __init__(self, plan: HaloPlan, rate: float, way: str, seed: int, epoch: int) -> None:
        self.plan, self.rate, self.epoch = plan, rate, epoch
        self.part = plan.part
        self._norms: tuple[Tensor, None] | None = None
        spans, send_spans = plan.halo_spans, plan.send_spans
        if plan.items is not None:
            self.kept = draw_nodes(plan.items.ids, rate, seed, epoch, self.part.rank)
            spans, send_spans = (
                list_spans(offsets, self.part.rank)
                for offsets in (plan.items.offsets, plan.items.send_offsets)
            )
        elif way == "nodes":
            self.kept = draw_nodes(self.part.halo_id, rate, seed, epoch, self.part.rank)
        else:
            self.part = drop_entries(self.part, rate, seed, epoch, local=way == "dropedge")
            self._norms = (weigh_edges(self.part, rate), None) if way == "dropedge" else None
            self.kept = np.zeros(self.part.num_halo, np.bool_)
            self.kept[self.part.halo_indices] = True
        self._told: dict[int, Tensor] = {}
        self._said: dict[int, Tensor] = {}
        if rate:
            self._told = {q: torch.from_numpy(np.packbits(self.kept[a:b])) for q, a, b in spans}
            self._said = {q: torch.empty((b - a + 7) // 8, dtype=torch.uint8) for q, a, b in send_spans}
        self._spans = send_spans
        self._exchange = plan.transport.start(self._said)
        for q, bits in self._told.items():
            self._exchange.send(q, bits)

    def thin(self) -> HaloPlan:
        """The epoch's plan, once the lists of the other ranks have arrived."""
        sent = self.hear()
        self.plan.ledger.begin(INPUT, IDS)
        for q, bits in self._told.items():
            self.plan.ledger.count(INPUT, IDS, q, len(bits))
        scale = 1 / self.rate if self.rate else 1.0
        if self.plan.items is not None:
            return self.plan.thinned(self.part, halo_scale=scale, items=self.plan.items.thin(self.kept, sent))
        part = thin_halo(self.part, self.kept, sent)
        return self.plan.thinned(part, halo_scale=scale, edge_norms=self._norms)

    def hear(self) -> np.ndarray:
        """Receive the other ranks' lists: which of this rank's rows to send they keep, one bool for each."""
        self.plan.transport.phase = "the choice of boundary rows"
        for _ in self._exchange.arrivals():
            pass
        self._exchange.finish()
        sent = np.zeros(sum(b - a for _, a, b in self._spans), np.bool_)
        for q, a, b in self._spans if self._said else ():
            sent[a:b] = np.unpackbits(self._said[q].numpy(), count=b - a)
        return sent


def find_rate(rate: float, last: float | None, epoch: int, epochs: int) -> float:
    """p of an epoch, counted from 0; it goes from `rate` to `last`, that of the last epoch, in equal steps."""
    if last is None or epochs < 2:
        return rate
    return rate + (last - rate) * min(epoch / (epochs - 1), 1.0)


def find_crossing(plan: HaloPlan) -> float:
    """Share of the graph's entries, without self loops, that are in halo columns; a collective call."""
    plan.transport.phase = "the count of boundary edges"
    own = np.array(count_crossing(plan.part), np.int64)
    crossing, total = plan.transport.gather(own).sum(0).tolist()
    return crossing / max(total, 1)


def count_crossing(part: Part) -> tuple[int, int]:
    """A part's entries in halo columns, and all its entries but self loops."""
    loops = 0 if part.has_loop is None else int(np.count_nonzero(part.has_loop[: part.num_local]))
    crossing = len(part.halo_indices)
    return crossing, crossing + len(part.local_indices) - loops


def weigh_edges(part: Part, rate: float) -> Tensor:
    """Weight of every kept local entry: 1/p, and 1 for self loops, which are never dropped."""
    norm = torch.full((len(part.local_indices),), 1 / rate if rate else 1.0)
    if part.has_loop is not None:
        rows = np.repeat(np.arange(part.num_local), np.diff(part.local_indptr))
        norm[torch.from_numpy(rows == part.local_indices)] = 1
    return norm


def draw_nodes(ids: np.ndarray, rate: float, seed: int, epoch: int, rank: int) -> np.ndarray:
    """Which of these nodes a rank keeps in an epoch, each with probability `rate`."""
    kept = np.empty(len(ids), np.bool_)
    _draw_nodes(ids, seed, epoch, rank, rate, kept)
    return kept


def drop_entries(part: Part, rate: float, seed: int, epoch: int, *, local: bool) -> Part:
    """The part with each entry in a halo column kept with probability `rate`; with `local`, each local entry too."""
    fields: dict[str, Any] = {}
    for name, columns in (("local", part.n_id), ("halo", part.halo_id)):
        if name == "halo" or local:
            indptr, indices = getattr(part, f"{name}_indptr"), getattr(part, f"{name}_indices")
            weights, numbers = getattr(part, f"{name}_weight"), indices
            if weights is not None:  # entry numbers in place of columns, to select weights
                columns, numbers = columns[indices], np.arange(len(indices))
            thin_indptr, thin_indices = np.zeros_like(indptr), np.empty(len(indices) + 1, numbers.dtype)
            count = _drop_entries(
                indptr,
                numbers,
                part.n_id,
                columns,
                part.directed,
                seed,
                epoch,
                rate,
                thin_indptr,
                thin_indices,
            )
            thin_indices = thin_indices[:count]
            if weights is not None:
                fields[f"{name}_weight"] = weights[thin_indices]
                thin_indices = indices[thin_indices]
            fields |= {f"{name}_indptr": thin_indptr, f"{name}_indices": thin_indices}
    return replace(part, **fields, checked=True)


def thin_halo(part: Part, kept: np.ndarray, sent: np.ndarray) -> Part:
    """The part with the halo rows `kept` and those of its rows to send that are `sent`, one bool for each."""
    indptr, indices = keep_columns(part.halo_indptr, part.halo_indices, kept)
    columns = np.concatenate([np.ones(part.num_local, np.bool_), kept])
    return replace(
        part,
        halo_id=part.halo_id[kept],
        halo_offsets=count_before(kept)[part.halo_offsets],
        send_rows=part.send_rows[sent],
        send_offsets=count_before(sent)[part.send_offsets],
        halo_indptr=indptr,
        halo_indices=indices,
        halo_weight=None if part.halo_weight is None else part.halo_weight[kept[part.halo_indices]],
        degree=part.degree[columns],
        has_loop=None if part.has_loop is None else part.has_loop[columns],
        keep=None,
        checked=True,
    )


def keep_columns(indptr: np.ndarray, indices: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A pattern's entries in the columns that are `kept`, renumbered."""
    number = np.cumsum(kept, dtype=indices.dtype) - 1
    number[~kept] = -1
    thin_indptr, thin_indices = np.zeros_like(indptr), np.empty(len(indices) + 1, number.dtype)
    count = _renumber(indptr, indices, number, thin_indptr, thin_indices)
    return thin_indptr, thin_indices[:count]


@kernel
def _make_stream(seed, epoch, rank):
    return key(key(key(seed, _PURPOSE), rank), epoch)


@kernel
def _draw_nodes(ids, seed, epoch, rank, rate, kept):
    stream = _make_stream(seed, epoch, rank)
    for i in range(len(ids)):
        kept[i] = uniform(random_u64(stream, ids[i])) < rate


@kernel
def _drop_entries(
    indptr, indices, row_ids, column_ids, directed, seed, epoch, rate, thin_indptr, thin_indices
):
    stream = _make_stream(seed, epoch, 0)
    count = 0
    for r in range(len(indptr) - 1):
        u = row_ids[r]
        for k in range(indptr[r], indptr[r + 1]):
            v = column_ids[indices[k]]
            low, high = (u, v) if directed or u < v else (v, u)
            thin_indices[count] = indices[k]
            count += u == v or uniform(random_u64(random_u64(stream, low), high)) < rate
        thin_indptr[r + 1] = count
    return count


@kernel
def _renumber(indptr, indices, number, thin_indptr, thin_indices):
    """Keep the entries whose column has a number of at least 0, and renumber them."""
    count = 0
    for r in range(len(indptr) - 1):
        for k in range(indptr[r], indptr[r + 1]):
            c = number[indices[k]]
            thin_indices[count] = c
            count += c >= 0
        thin_indptr[r + 1] = count
    return count
