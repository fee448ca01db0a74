"""PartShare: the share of a rank that holds a part of the graph (VLDB'22, BNS-GCN)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from shoal.aggregation import AGGREGATIONS
from shoal.batch import Batch, as_tensor
from shoal.distributed.batch import local_graph, make_part_batch
from shoal.distributed.batch_norm import share_batch_norms
from shoal.distributed.costs import model_memory, summarize_costs
from shoal.distributed.exchange import STALE_BATCHES, ExchangeMethod
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import INPUT
from shoal.distributed.minibatch import RestrictedSampler
from shoal.distributed.operator import exchange_rows
from shoal.distributed.training_part import take_training_part
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.label_columns import KnownLabels
from shoal.memory import anonymous_memory
from shoal.partitioning.part import Part
from shoal.sampling.base import Sampler
from shoal.scratch import Scratch
from shoal.training.checkpoint import HALO_FORMAT, read_own, save_own
from shoal.training.inference import classify_nodes, evaluating, has_embeddings
from shoal.training.share import SPLITS, EpochState, Progress, Record, Share
from shoal.wording import count

_MAX_TABULATED = 32  # ranks up to which an epoch's record has what each sent to each


class PartShare(Share):
    """Training on a part, together with the ranks that hold the others: the same steps as one process.

    Every rank computes its rows of every layer, the loss is divided by the training nodes of all ranks, and
    gradients are summed, so that all ranks hold the same weights.

    Args:
        sampler: draws batches of the whole graph, of which every rank takes its rows; None for the whole graph
            every step.
        exchange: how halo rows travel.
        model: asked which aggregations it uses (`kinds`) and whether its first layer needs the halo's features
            (`needs_halo_input`); one that answers neither exchanges rows in every aggregation.
        setting: what steps on the whole graph see. `inductive`: training nodes and the edges between them, of which every
            rank has a part of its own (`training`); a sampler draws from what its own setting says.
    """

    can_prefetch = False  # making a batch may take messages, whose order all ranks must share

    def __init__(
        self,
        part: Part,
        sampler: Sampler | None,
        transport: Transport,
        exchange: ExchangeMethod,
        model: nn.Module,
        setting: str = "transductive",
    ) -> None:
        super().__init__(transport)
        if sampler is not None and exchange.thins:
            raise ShoalError(
                "a boundary rate below 1 is for training on the whole graph: leave out the sampler, or the rate"
            )
        if sampler is not None and not exchange.serves_batches:
            raise ShoalError(
                f"exchange {exchange.name!r} sends every row: leave out the sampler, or use another exchange"
            )
        if sampler is not None and exchange.is_stale:
            raise ShoalError(STALE_BATCHES)
        self.part = part
        self.exchange = exchange
        kinds = getattr(model, "kinds", AGGREGATIONS)
        self.plan = exchange.make_plan(part, transport, self.ledger, kinds)
        self.graph = local_graph(part)
        self.n_id = as_tensor(part.n_id)
        share_batch_norms(model, transport, self.ledger)
        self._counts = self._count_splits()
        ask: Callable[..., bool] = getattr(model, "needs_halo_input", lambda sparse: False)
        wide = ask(sparse=not isinstance(part.x, np.ndarray))
        num_train = self._counts["train"]
        self.batch = self.whole = make_part_batch(self.plan, self.graph, wide=wide, num_train=num_train)
        self.training = part
        self._rows: int | None = (
            None  # halo rows of the training graph on all ranks, where that is another one
        )
        if setting == "inductive" and sampler is None:
            self.training = take_training_part(part, transport, self.ledger)
            self._rows = int(transport.gather(np.array([self.training.num_halo])).sum())
            self.plan = exchange.make_plan(self.training, transport, self.ledger, kinds)
            self.batch = make_part_batch(
                self.plan, local_graph(self.training), wide=wide, num_train=num_train
            )
        self.boundary = exchange.make_sampler(self.batch, self.plan)
        self.sampler = self.boundary
        if sampler is not None:
            scales = any(AGGREGATIONS[kind].scales_columns for kind in kinds)
            self.sampler = RestrictedSampler(sampler, self.graph, self.plan, scales_columns=scales)
        self._input_widths: list[int] = getattr(model, "input_widths", [])
        self._first_width = next(iter(getattr(model, "widths", [])), 0)
        self._tells_peers = transport.size <= _MAX_TABULATED
        self._labels: dict[int, tuple[HaloPlan, KnownLabels]] = {}
        self._start_memory = self._peak_memory = 0
        self._kept_rows = 0  # halo rows of the largest training step

    def prepare(self, model: nn.Module) -> None:
        """Exchange now what is exchanged only once."""
        _ = self.batch.y, self.batch.train_mask
        prepare: Callable[[Batch], None] = getattr(model, "prepare", lambda batch: None)
        for batch in (self.batch, self.whole):
            prepare(batch)
            if self.reuse is not None:
                self.find_labels(batch)
        self.input_costs = self.ledger.take()
        self._start_memory = anonymous_memory()

    def begin(self, epochs: int, *, saves: bool = False) -> None:
        self.boundary.epochs = epochs
        if self.plan.wire.stale is not None:
            self.transport.phase = "the folders of checkpoints"
            if len(set(self.transport.gather(np.array([saves], np.int64))[:, 0].tolist())) > 1:
                raise ShoalError(
                    "every rank writes its stale halos: give checkpoints on all ranks, or on none"
                )

    def end(self) -> None:
        self.boundary.settle()
        if (stale := self.plan.wire.stale) is not None:
            with self.ledger.aside():
                stale.settle()

    def stepping(self, step: int) -> AbstractContextManager[None]:
        return self.plan.wire.training(step)

    def save(self, folder: Path, step: int, model: nn.Module, *, keep: int, in_epoch: bool = False) -> None:
        """Write the rank's halo state, which the weights do not hold, before rank 0 writes the weights."""
        if (stale := self.plan.wire.stale) is not None:
            save_own(folder, HALO_FORMAT, step, self.transport.rank, stale.export(), keep)
            self.transport.phase = f"the halos of epoch {step}"
            self.transport.barrier()

    def resume(self, folder: Path, step: int, model: nn.Module, *, in_epoch: bool = False) -> None:
        if (stale := self.plan.wire.stale) is not None and self.to_train:
            stale.restore(read_own(folder, HALO_FORMAT, step, self.transport.rank))

    def adopt(self, ranks: int, done: EpochState | None) -> list[str]:
        """The steps are the same on any number of ranks, to rounding, but for what depends on who is whose neighbour."""
        if self.plan.wire.stale is not None:
            return [
                f"the halos of {count(ranks, 'rank')} do not fit {self.transport.size}: the next step waits for its own"
            ]
        return []

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        for batch in self.sampler.epoch(epoch, first):
            assert batch.exchange is not None
            self._kept_rows = max(self._kept_rows, batch.exchange.num_received)
            yield batch
        if self._peak_memory == 0:  # evaluation, which comes after an epoch, leaves memory behind
            self._peak_memory = anonymous_memory()  # what a step frees is kept (`keep_freed_memory`)

    def example(self) -> Batch:
        return self.batch

    def find_labels(self, batch: Batch) -> KnownLabels:
        """Those of the halo too, where the batch is a part: exchanged once. A step's mask needs no message then."""
        if not batch.fixed:
            return super().find_labels(batch)
        return self._spread_labels(batch)[1]

    def spread(self, rows: Tensor, batch: Batch) -> Tensor:
        return exchange_rows(rows, self._spread_labels(batch)[0], INPUT) if batch.fixed else rows

    def _spread_labels(self, batch: Batch) -> tuple[HaloPlan, KnownLabels]:
        """A plan for rows of a part that travel as they are, and the labels of its local and halo rows."""
        base = self.whole if batch is self.whole else self.batch
        if id(base) not in self._labels:
            part = self.part if base is self.whole else self.training
            plan = HaloPlan(part, self.transport, self.ledger)
            own = KnownLabels.of(base.graph, base.nodes, as_tensor(part.n_id))
            y = own.y[:, None] if own.y.dim() == 1 else own.y
            table = torch.cat([own.known[:, None], y], dim=1).to(torch.int64)
            both = exchange_rows(table, plan, INPUT)
            ids = torch.cat([as_tensor(part.n_id), as_tensor(part.halo_id)])
            y = both[:, 1] if own.y.dim() == 1 else both[:, 1:].to(torch.uint8)
            self._labels[id(base)] = plan, KnownLabels(y, both[:, 0] > 0, ids)
        return self._labels[id(base)]

    def sum(self, counts: Tensor) -> Tensor:
        return self.transport.sum(counts)

    def collect(self, rows: Tensor) -> Tensor:
        sizes = self.transport.gather(np.array([len(rows)]))[:, 0].tolist()
        table = torch.zeros(sum(sizes), *rows.shape[1:], dtype=rows.dtype)
        first = sum(sizes[: self.transport.rank])
        table[first : first + len(rows)] = rows
        return self.transport.sum(table)

    def count_nodes(self, split: str) -> int:
        return self._counts[split]

    def embed(
        self,
        model: nn.Module,
        progress: Progress | None = None,
        out: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Tensor:
        """By a plain forward pass: a part's matrices are in memory."""
        embed: Callable[[Batch], Tensor] | None = getattr(model, "embed", None)
        if embed is None:
            raise ShoalError(f"{type(model).__name__} has no embed(batch): it gives predictions only")
        embedding = self._evaluate(model, embed)
        return embedding if out is None else out.copy_(embedding)

    def predict(
        self,
        model: nn.Module,
        rows: Tensor | None = None,
        progress: Progress | None = None,
        *,
        take: Callable[[Tensor], Tensor] = lambda logits: logits,
        out: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Tensor:
        if has_embeddings(model):
            embedding = self.embed(model)
            found = take(classify_nodes(model, embedding if rows is None else embedding[rows]))
        else:
            logits = self._evaluate(model, model)
            found = take(logits if rows is None else logits[rows])
        return found if out is None else out.copy_(found)

    def _evaluate(self, model: nn.Module, run: Callable[[Batch], Tensor]) -> Tensor:
        try:
            with (
                evaluating(model),
                self.ledger.aside(),
            ):  # what evaluation sends is no part of an epoch's costs
                return run(self.show_labels(model))
        finally:
            if self.sampler is not self.boundary or self.exchange.thins or self.batch is not self.whole:
                assert self.whole.exchange is not None
                self.whole.exchange.wire.release()  # training needs smaller ones

    def take_costs(self, epoch: int, nodes: int, seconds: float) -> Record:
        tells_peers = self._tells_peers
        self._tells_peers &= self.sampler is not self.boundary or self.exchange.thins
        costs, slowest = summarize_costs(self.ledger, self.transport, epoch, seconds, peers=tells_peers)
        trained: float = self.training.num_global_nodes
        if self.sampler is not self.boundary:
            trained = self.sampler.batch_size * self.sampler.num_batches
        rate = self.boundary.rate_of(epoch - 1)
        return {"nodes_per_second": trained / slowest, "boundary_rate": rate} | costs

    def describe_exchange(self, rows: int) -> str:
        """What is sent in an exchange of training, of which `rows` would be rows of the whole graph without covers."""
        rows = rows if self._rows is None else self._rows
        items = self.plan.total_items
        return f"{rows:,} rows" if items is None else f"{items:,} rows and sums for {rows:,} rows"

    def describe_ranks(self) -> list[dict[str, int]]:
        """What every rank holds and took: rows, and bytes of training beside BNS-GCN's model of them; [] if not trained.

        `peak` is the most memory the process held in the first epoch it trained, before any evaluation, `growth` how
        much of that came with the epoch; `model` is `(3·n_local + n_halo)·d` values summed over the layers' input
        widths d, with the halo rows that the largest step kept; sparse features count as stored (`model_memory`).
        """
        if self._peak_memory == 0:
            return []
        part = self.training
        model = model_memory(part, self._kept_rows, self._input_widths, self._first_width)
        growth = max(self._peak_memory - self._start_memory, 0)
        entries = len(part.local_indices) + len(part.halo_indices)
        own = [part.num_local, part.num_halo, entries, self._kept_rows, self._peak_memory, growth, model]
        names = ("local_rows", "halo_rows", "entries", "kept_halo_rows", "peak", "growth", "model")
        self.transport.phase = "the memory of ranks"
        return [dict(zip(names, row)) for row in self.transport.gather(np.array(own, np.int64)).tolist()]

    def _count_splits(self) -> dict[str, int]:
        masks = [getattr(self.part, f"{split}_mask") for split in SPLITS]
        own = np.array([0 if mask is None else int(np.count_nonzero(mask)) for mask in masks])
        return dict(zip(SPLITS, self.transport.gather(own).sum(0).tolist()))
