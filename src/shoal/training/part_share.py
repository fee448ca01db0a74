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
from shoal.training.epoch_state import EpochState, Record
from shoal.training.inference import classify_nodes, evaluating, has_embeddings
from shoal.training.share import SPLITS, Progress, Share
from shoal.wording import count

_MAX_TABULATED = 32  # up to this many ranks, an epoch's record has the bytes sent between every pair


class PartShare(Share):
    """Training on a part of the graph, together with the ranks that hold the other parts: the same steps as one process.

    Every rank computes its rows of every layer. The loss is divided by the training nodes of all ranks, and gradients are
    summed, so that all ranks hold the same weights.

    Args:
        sampler: draws batches of the whole graph; every rank takes its rows of them. None: full-batch training.
        exchange: how halo rows are sent.
        model: declares its aggregations (`kinds`) and whether its first layer needs features of halo nodes
            (`needs_halo_input`). A model that declares neither exchanges rows in every aggregation.
        setting: the graph of full-batch steps. `inductive`: training nodes and the edges between them; every rank holds
            its part of that graph (`training`). A sampler has its own setting.
    """

    can_prefetch = False  # a batch may need messages, which all ranks must send in the same order

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
        self._rows: int | None = None  # halo rows on all ranks of the inductive training graph
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
        """Exchange what is exchanged only once, such as the features of halo nodes or `A x`."""
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
            self.transport.phase = "the comparison of checkpoint folders"
            if len(set(self.transport.gather(np.array([saves], np.int64))[:, 0].tolist())) > 1:
                raise ShoalError(
                    "every rank writes its stale halos: set checkpoints on all ranks, or on none"
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
        """Steps are the same on any number of ranks, to rounding. Stale halos are lost: they depend on the parts."""
        if self.plan.wire.stale is not None:
            return [
                f"the stale halos of {count(ranks, 'rank')} do not fit {self.transport.size}: the next step exchanges fresh ones"
            ]
        return []

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        for batch in self.sampler.epoch(epoch, first):
            assert batch.exchange is not None
            self._kept_rows = max(self._kept_rows, batch.exchange.num_received)
            yield batch
        if self._peak_memory == 0:  # measured before the first evaluation, which takes memory too
            self._peak_memory = anonymous_memory()  # includes what a step frees (`keep_freed_memory`)

    def draw_measured(self, epoch: int) -> Iterator[Batch]:
        """In full-batch training the part with its complete halo."""
        return iter([self.batch]) if self.sampler is self.boundary else super().draw_measured(epoch)

    def example(self) -> Batch:
        return self.batch

    def find_labels(self, batch: Batch) -> KnownLabels:
        """The labels of local rows, and if the batch is a part of its halo rows. These are exchanged once, so that the
        label masks of steps need no messages."""
        if not batch.fixed:
            return super().find_labels(batch)
        return self._spread_labels(batch)[1]

    def spread(self, rows: Tensor, batch: Batch) -> Tensor:
        return exchange_rows(rows, self._spread_labels(batch)[0], INPUT) if batch.fixed else rows

    def _spread_labels(self, batch: Batch) -> tuple[HaloPlan, KnownLabels]:
        """A plan that sends a part's rows unencoded, and the labels of its local and halo rows."""
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
        """One forward pass, because a part's matrices are in memory."""
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
            ):  # messages of evaluation are not counted as costs of the epoch
                return run(self.show_labels(model))
        finally:
            if self.sampler is not self.boundary or self.exchange.thins or self.batch is not self.whole:
                assert self.whole.exchange is not None
                self.whole.exchange.wire.release()  # buffers: training needs smaller ones

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
        """What an exchange of training sends, in words. Without covers it would send `rows` rows of the whole graph."""
        rows = rows if self._rows is None else self._rows
        items = self.plan.total_items
        return f"{rows:,} rows" if items is None else f"{items:,} rows and sums for {rows:,} rows"

    def describe_ranks(self) -> list[dict[str, int]]:
        """Rows and memory of every rank, measured and by BNS-GCN's model; [] before training.

        `peak` is the process's memory after its first epoch, before any evaluation. `growth` is the part of it that the
        epoch added. `model` is `(3·n_local + n_halo)·d` values summed over the layers' input widths d, with the halo rows
        that the largest step kept; sparse features count as stored (`model_memory`).
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
