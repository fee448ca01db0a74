"""PartitionedTrainer: the trainer of one rank's part, full-graph training across ranks (VLDB'22)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.batch import Batch, as_tensor
from shoal.distributed.batch import PartBatch
from shoal.distributed.batch_norm import share_batch_norms
from shoal.distributed.boundary import BoundarySampler
from shoal.distributed.broadcast import BroadcastPlan
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import BACKWARD, FORWARD, IDLE, IDS, INPUT, KINDS, REDUCE, Ledger
from shoal.distributed.minibatch import SharedBatch, SharedBatchSampler
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError, unknown_name
from shoal.memory import forget_peak, read_memory
from shoal.models.gnn import GNN
from shoal.models.layers import Layer
from shoal.partitioning.part import Part
from shoal.sampling.base import Sampler
from shoal.training.inference import classify_nodes, evaluating
from shoal.training.loss import balance_classes, count_classes
from shoal.training.metrics import compute_roc_auc, count_outcomes, known_metrics, score_outcomes
from shoal.training.trainer import SPLITS, Record, Trainer

EXCHANGES = ("p2p", "broadcast")
_PEERS_TOLD = 32  # ranks up to which an epoch's record tells what each sent to each


def make_plan(
    part: Part, transport: Transport, ledger: Ledger, exchange: str, message_dtype: torch.dtype | None = None
) -> HaloPlan:
    """The plan of an exchange by its name."""
    if exchange not in EXCHANGES:
        raise unknown_name("exchange", exchange, EXCHANGES)
    if exchange == "p2p":
        return HaloPlan(part, transport, ledger, message_dtype)
    if message_dtype is not None:
        raise ShoalError("messages of another type need the p2p exchange: broadcast sends rows as they are")
    return BroadcastPlan(part, transport, ledger)


class PartitionedTrainer(Trainer):
    """Trains on a part, together with the ranks that hold the others: the same steps as one process.

    Every rank computes its rows of every layer, the loss is divided by the training nodes of all ranks, and
    gradients are summed in one message, so that all ranks hold the same weights. `embed` and `predict` answer
    this rank's rows (`part.n_id`); scores are those of the whole graph, from summed counts.

    Args:
        part: this rank's.
        transport: the door to the others.
        sampler: draws batches of the whole graph, of which every rank takes its rows; None for the whole graph
            every step.
        exchange: `"p2p"`, only the rows needed between the ranks concerned, or `"broadcast"`, the baseline.
        message_dtype: what rows travel as between layers; `torch.bfloat16` halves the bytes.
        boundary_rate: how much of the halo every epoch keeps, from 0 to 1 (BNS-GCN); evaluation keeps all of it.
        last_boundary_rate: that of the last epoch, reached in equal steps; as the first if None.
        boundary_sampling: what is kept or left out: `"nodes"`, `"edges"` of the boundary, or any edge, `"dropedge"`.
        seed: of what is kept.
        settings: the Trainer's.
    """

    def __init__(
        self,
        model: GNN,
        part: Part,
        transport: Transport,
        sampler: Sampler | None = None,
        *,
        exchange: str = "p2p",
        message_dtype: torch.dtype | None = None,
        boundary_rate: float = 1.0,
        last_boundary_rate: float | None = None,
        boundary_sampling: str = "nodes",
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self.part = part
        self.transport = transport
        self.ledger = Ledger()
        share_batch_norms(model, transport, self.ledger)
        self.plan = make_plan(part, transport, self.ledger, exchange, message_dtype)
        self._counts = self._count_nodes()
        self.batch = PartBatch(self.plan, model, self._counts["train"])
        if settings.get("class_weights") == "balanced":
            settings["class_weights"] = self._balance_classes()
        self.boundary = BoundarySampler(
            self.batch, rate=boundary_rate, last_rate=last_boundary_rate, way=boundary_sampling, seed=seed
        )
        if not self.boundary.keeps_all or sampler is not None:
            self._check_thinned(exchange, sampler)
        batches: Sampler = self.boundary
        if sampler is not None:
            scales = "gcn" in {layer.kind for layer in model.layers if isinstance(layer, Layer)}
            batches = SharedBatchSampler(sampler, self.batch.graph, self.plan, scales_columns=scales)
        super().__init__(model, self.batch.graph, batches, **settings)
        self.rank, self.num_ranks = transport.rank, transport.size
        transport.phase = "the start of training"
        for tensor in model.state_dict().values():
            transport.broadcast(tensor, 0)
        self.batch.prepare()
        self.input_costs = self.ledger.take()  # exchanged once
        self._tells_peers = self.num_ranks <= _PEERS_TOLD
        self._bucket: Tensor | None = None
        self._start_memory = read_memory()[0]
        self._peak_memory = 0
        self._kept_rows = 0  # halo rows of the largest training step

    def fit(self, epochs: int, on_epoch: Callable[[Record], None] | None = None) -> list[Record]:
        self.boundary.epochs = epochs
        records = super().fit(epochs, on_epoch)
        self.boundary.settle()
        return records

    @property
    def has_trained(self) -> bool:
        """Whether this process has trained an epoch."""
        return self._peak_memory > 0

    def describe_ranks(self) -> list[dict[str, int]]:
        """What every rank holds and took: rows, and bytes of training beside BNS-GCN's model of them.

        `peak` is the most memory the process held in the first epoch it trained, before any evaluation, `growth` how much
        of that came with the epoch; `model` is `(3·n_local + n_halo)·d` values summed over the layers' input widths d,
        with the halo rows that the largest step kept.
        """
        part = self.part
        widths = sum(layer.linear.weight.shape[0] for layer in self.model.layers if isinstance(layer, Layer))
        model = 4 * widths * (3 * part.num_local + self._kept_rows)
        growth = max(self._peak_memory - self._start_memory, 0)
        own = [part.num_local, part.num_halo, self._kept_rows, self._peak_memory, growth, model]
        names = ("local_rows", "halo_rows", "kept_halo_rows", "peak", "growth", "model")
        self.transport.phase = "the memory of ranks"
        return [dict(zip(names, row)) for row in self.transport.gather(np.array(own, np.int64)).tolist()]

    def has_nodes(self, split: str) -> bool:
        return self._counts[split] > 0

    def embed(
        self, progress: Callable[[int, int], None] | None = None, *, out: Tensor | None = None
    ) -> Tensor:
        """The embeddings of this rank's rows, (num_local, embedding_width), in the order of `part.n_id`."""
        self.plan.ledger = Ledger()  # what evaluation sends is no part of an epoch's costs
        try:
            with evaluating(self.model):
                embedding = self.model.embed(self.batch)
            return embedding if out is None else out.copy_(embedding)
        finally:
            self.plan.ledger = self.ledger
            if self.sampler is not self.boundary or not self.boundary.keeps_all:
                self.plan.release()  # training needs smaller ones

    def _check_thinned(self, exchange: str, sampler: Sampler | None) -> None:
        """Refuse what does not go with exchanging less than everything."""
        if exchange == "broadcast":
            raise ShoalError("sampled rows need the p2p exchange: broadcast sends every row")
        if sampler is not None and not self.boundary.keeps_all:
            raise ShoalError(
                "a boundary rate below 1 is for training on the whole graph: leave out the sampler, or the rate"
            )

    def _batches(self) -> Iterator[Batch]:
        """The epoch's batches, made by this thread: making one may take messages, whose order all ranks must share."""
        forget_peak()
        for batch in self.sampler.epoch(self.epoch):
            assert isinstance(batch, PartBatch | SharedBatch)
            self._kept_rows = max(self._kept_rows, batch.plan.part.num_halo)
            yield batch
        if self._peak_memory == 0:  # evaluation, which comes after an epoch, leaves memory behind
            self._peak_memory = read_memory()[1]

    def _count_nodes(self) -> dict[str, int]:
        """Nodes of each split on all ranks."""
        masks = [getattr(self.part, f"{split}_mask") for split in SPLITS]
        own = np.array([0 if mask is None else int(np.count_nonzero(mask)) for mask in masks])
        return dict(zip(SPLITS, self.transport.gather(own).sum(0).tolist()))

    def _balance_classes(self) -> list[float]:
        y = self.batch.y[self.batch.train_mask]
        counts = self.transport.sum(count_classes(y, self.part.num_classes).contiguous())
        weights = balance_classes(counts, self._counts["train"], multi_label=y.dim() == 2)
        return [float(weight) for weight in weights]

    def _score(self, split: str) -> dict[str, float]:
        embedding = self.embed()
        mask = as_tensor(getattr(self.graph, f"{split}_mask"))
        logits, y = classify_nodes(self.model, embedding[mask]), self.batch.y[mask]
        self.transport.phase = f"the {split} scores"
        outcomes = self.transport.sum(count_outcomes(logits, y).contiguous())
        scores = score_outcomes(outcomes, multi_label=self.graph.multi_label)
        if "roc_auc" in known_metrics(self.part.num_classes, multi_label=self.graph.multi_label):
            margins = (logits[:, 1] - logits[:, 0]).double()
            scores["roc_auc"] = compute_roc_auc(self._collect(margins), self._collect(y.double()))
        return scores

    def _collect(self, values: Tensor) -> Tensor:
        """One number of each of some local nodes, from all ranks, on every rank."""
        sizes = self.transport.gather(np.array([len(values)]))[:, 0]
        padded = np.zeros(int(sizes.max()))
        padded[: len(values)] = values.numpy()
        table = self.transport.gather(padded)
        return torch.from_numpy(np.concatenate([row[:size] for row, size in zip(table, sizes)]))

    def _join_step(self, loss: Tensor) -> float:
        total = loss.double().reshape(1).clone()
        with self.ledger.timing(
            IDLE
        ):  # the loss is one number: what it takes is waiting for the slowest rank
            self.transport.phase = f"the loss of epoch {self.epoch + 1}"
            self.transport.sum(total)
        with self.ledger.timing(REDUCE):
            self.transport.phase = f"the gradients of epoch {self.epoch + 1}"
            self._sum_gradients()
        return float(total)

    def _sum_gradients(self) -> None:
        """Replace every gradient by its sum over all ranks, in one message."""
        weights = [p for p in self.model.parameters() if p.requires_grad]
        sizes = [p.numel() for p in weights]
        if self._bucket is None:
            self._bucket = torch.empty(sum(sizes), dtype=weights[0].dtype)
        pieces = self._bucket.split(sizes)
        for weight, piece in zip(weights, pieces):
            if weight.grad is None:
                piece.zero_()
            else:
                piece.copy_(weight.grad.reshape(-1))
        self.transport.sum(self._bucket)
        for weight, piece in zip(weights, pieces):
            if weight.grad is None:
                weight.grad = torch.empty_like(weight)
            weight.grad.copy_(piece.view_as(weight))

    def _join_number(self, value: float) -> float:
        return value  # it came out of a sum over all ranks already

    def _join_buffers(self) -> None:
        pass  # they were measured over all ranks

    def _count_trained(self) -> float:
        """Nodes that all ranks together work on in an epoch."""
        if self.sampler is self.boundary:
            return self.part.num_global_nodes
        return self.sampler.batch_size * self.sampler.num_batches

    def _take_costs(self, seconds: float) -> Record:
        """Bytes and messages of all ranks by layer, direction and peer, and how the mean and the slowest rank spent time.

        Peers are told, where ranks are not too many, for the first epoch and for the others where they change.
        """
        spent = self.ledger.take()
        depth = range(1, self.model.num_aggregations + 1)
        exchanges = [
            (INPUT, IDS),
            *((layer, way) for layer in depth for way in (FORWARD, BACKWARD)),
        ]
        tells_peers = self._tells_peers
        self._tells_peers &= self.sampler is not self.boundary or not self.boundary.keeps_all
        table = np.zeros((len(exchanges), self.num_ranks if tells_peers else 1, 2))
        for (layer, way, peer), entry in spent.sent.items():
            table[exchanges.index((layer, way)), peer if tells_peers else 0] += entry
        spans = np.array([spent.seconds[kind] for kind in KINDS])
        own = np.concatenate([table.ravel(), spans, [seconds]])
        self.transport.phase = f"the costs of epoch {self.epoch}"
        everyone = self.transport.gather(own)
        by_peer = everyone[:, : table.size].reshape(-1, *table.shape).astype(int)
        counts = by_peer.sum((0, 2)).tolist()
        spans, total = everyone[:, table.size : -1], everyone[:, -1]
        computing = total - spans.sum(1)
        times = {"compute": computing} | dict(zip(KINDS, spans.T))
        record: Record = {
            "seconds": float(total.max()),
            "nodes_per_second": self._count_trained() / float(total.max()),
            "boundary_rate": self.boundary.rate_of(self.epoch - 1),
            "bytes": sum(entry[0] for entry in counts),
            "messages": sum(entry[1] for entry in counts),
            "exchanges": [
                {"layer": layer, "direction": way, "bytes": entry[0], "messages": entry[1]}
                for (layer, way), entry in zip(exchanges, counts)
                if entry[1]
            ],
            "time": {name: float(value.mean()) for name, value in times.items()},
            "slowest": {name: float(value.max()) for name, value in times.items()},
        }
        if tells_peers:
            record["peers"] = [
                [int(rank), int(peer), *exchanges[exchange], *by_peer[rank, exchange, peer].tolist()]
                for rank, exchange, peer in np.argwhere(by_peer[..., 1])
            ]
        return record
