"""Need: the memory of a run, estimated before it starts, and what goes to files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from torch import nn

from shoal.batch import Batch
from shoal.distributed.transport import LocalTransport, Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.encoding import EncodedRows
from shoal.kernels.jit import load_kernels
from shoal.kernels.orient import MOST_PLACED
from shoal.memory import (
    anonymous_memory,
    base_memory,
    given_budget,
    memory_budget,
    memory_left,
    return_freed_memory,
)
from shoal.models.calling import count_one_pass
from shoal.models.gnn import GNN
from shoal.sampling.base import Sampler
from shoal.sampling.full import FullSampler
from shoal.sampling.layered import LayeredSampler
from shoal.sampling.oriented import LEAST_KEPT, SHARE, find_folder
from shoal.sampling.row_file import count_buffers
from shoal.sampling.shard import RankSampler
from shoal.sampling.stream import count_batches_held
from shoal.training.history_share import HistoryShare
from shoal.training.inference import count_held, free_for_matrices
from shoal.training.part_share import PartShare
from shoal.training.share import ReplicaShare
from shoal.training.step_memory import (
    VALUE,
    count_prepared,
    count_row,
    count_weights,
    count_whole,
    keeps_aggregate,
    list_layers,
)
from shoal.training.swapped_share import SwappedShare
from shoal.training.trainer import Trainer
from shoal.wording import format_bytes

_AVERAGE_COPIES = 2  # with a moving average: the average, and the raw weights during an evaluation
_ORIENTED_BYTES = 2  # per entry of the oriented graph, which stores each edge once
_DRAWN_BYTES = 20  # per node: its row in the oriented graph, and tables to sample from
_WINDOW_BYTES = 20  # per row that a batch of the window reads: its number, two positions for each one used
_NORM_BYTES = 4  # per entry: its normalisation factor
_PLACED_BYTES = 8  # per entry: its position in the oriented graph, and both factors there
_EXACT_BYTES, _COUNTED_BYTES = 40, 20  # per entry, while factors are computed from probabilities or counts
_FRAGMENTED = 1.25  # extra heap per byte of a whole-graph step if freed memory is kept; .6 and .8 measured
_NOBODY = np.empty(0, np.int64)


@dataclass
class Need:
    """An estimate of anonymous memory, in bytes.

    Attributes:
        held: held by the process now.
        code: kernels that are still to be loaded.
        step: added by training: a step and prefetched batches; 0 without training.
        ahead: the part of `step` that stays during an evaluation.
        evaluation: always added by an evaluation: vectors of all nodes, and chunks of rows.
        cache: the cache of feature rows.
        matrices: matrices of all nodes that evaluation and histories hold at once, in memory or in files.
        mapped: bytes of the graph that stay in memory-mapped files.
        place: folder of the files.
        helps: what would make a step smaller, in words.
        swaps: traffic of swapped parts, in words.
        enough: a budget that lets the heap keep what steps free, if the given one is smaller; else 0.
    """

    held: int
    code: int
    step: int
    ahead: int
    evaluation: int
    cache: int
    matrices: int
    mapped: int
    place: Path
    helps: str = "smaller batches of the sampler"
    swaps: str = ""
    enough: int = 0

    @property
    def least(self) -> int:
        """Peak memory if matrices are in files and freed memory is returned."""
        return self.held + self.code + self.cache + max(self.step, self.ahead + self.evaluation)

    def check(self, transport: Transport | None = None) -> str:
        """The estimate in a line. Raises if it exceeds a given budget.

        All ranks raise the same error.
        """
        budget = memory_budget()
        if given_budget() is not None:
            self._refuse(transport if transport is not None else LocalTransport(), budget)
        fits = self.matrices <= free_for_matrices(self.code + self.cache + self.ahead + self.evaluation)
        place = "" if fits else f" in files of {self.place}"
        parts = [f"{format_bytes(self.held)} in use, compiled kernels {format_bytes(self.code)}"]
        if self.step:
            parts.append(f"a step takes about {format_bytes(self.step)}{self.swaps}")
        if self.enough:
            where = " per rank" if transport is not None and transport.size > 1 else ""
            parts[-1] += f" (steps are faster with --memory {format_bytes(self.enough)} or more{where})"
        matrices = (
            f" and layer outputs of all nodes {format_bytes(self.matrices)}{place}" if self.matrices else ""
        )
        parts.append(f"evaluation {format_bytes(self.evaluation)}{matrices}")
        if self.cache:
            parts.append(f"a cache of features {format_bytes(self.cache)}")
        if self.mapped:
            parts.append(f"{format_bytes(self.mapped)} of the graph stay in its files")
        allowed = "allowed" if given_budget() is not None else "free or in use"
        if self.least > budget:
            allowed += ", which may not suffice"
        return f"memory: {format_bytes(budget)} {allowed}; {', '.join(parts)}"

    def _refuse(self, transport: Transport, budget: int) -> None:
        """Raise on every rank if one of them needs more than it is allowed."""
        transport.phase = "the estimate of memory"
        base, trained, step = self.held + self.code, self.cache + self.step, self.step
        own = [self.least, budget, base, trained, step]
        known = transport.gather(np.array(own, np.int64))
        least, budget, base, trained, step = known[(known[:, 0] - known[:, 1]).argmax()].tolist()
        if least <= budget:
            return
        helps = ["fewer --workers"] if transport.size > 1 else []
        largest = f"training {format_bytes(trained)}" if base + trained == least else "evaluation"
        if largest == "evaluation":
            largest += f" {format_bytes(least - base)}"
        if base < budget:
            if step and base + trained == least:
                helps.append(self.helps)
            helps.append("a smaller model.hidden")
        ranks, total = "", format_bytes(budget)
        if transport.size > 1:
            ranks = f" on a rank, {format_bytes(int(known[:, 0].sum()))} on all {transport.size} ranks"
            total = f"{total} per rank, {format_bytes(int(known[:, 1].sum()))} in total, beside the launching process"
        raise ShoalError(
            f"this needs about {format_bytes(least)} of memory{ranks} ({format_bytes(base)} for Python, torch, kernels "
            f"and loaded data, {largest}) and --memory allows {total}: "
            f"give {', '.join([*helps, 'or more memory'] if helps else ['more memory'])}"
        )


def estimate_need(trainer: Trainer, place: Path, *, to_train: bool = True) -> Need:
    """The memory that training with `trainer`, or only evaluating its model, will take.

    The feature cache gets the rest; steps on the whole graph keep freed memory only if a given budget allows for it.
    """
    graph = trainer.graph
    n = graph.num_nodes
    widths = list(trainer.model.widths) if isinstance(trainer.model, GNN) else []
    weights = sum(weight.numel() for weight in trainer.model.parameters())
    whole = isinstance(trainer.share, ReplicaShare)
    halo, _ = _count_halo(trainer)
    step = ahead = 0
    if to_train:
        step, ahead = _count_step(trainer)
        averages = _AVERAGE_COPIES if trainer.weights.decay is not None else 0
        ahead += count_weights(trainer.model) + VALUE * averages * weights
    if whole:
        ahead += n * (len(widths) + 2) if to_train else 0  # the masks of rows that an evaluation reads
        scored = n if graph.val_mask is None else int(np.count_nonzero(graph.val_mask))
        computed = trainer.model, trainer.share.whole
        evaluation = count_held(*computed) + count_one_pass(*computed) + VALUE * graph.num_classes * scored
        copies = [2 if layer.norm_place == "input" else 1 for layer in list_layers(trainer.model)]
        pairs = [k * a + 2 * b for k, a, b in zip(copies, [0, *widths[:-1]], widths)]
        matrices = VALUE * n * max(pairs, default=0)
        if to_train and isinstance(trainer.share, HistoryShare):
            matrices += trainer.share.count_bytes()
    else:
        evaluation = int((n + halo) * (VALUE * sum(widths) + _row_bytes(graph)))
        if getattr(trainer.model, "input_norm", "none") != "none":
            evaluation += VALUE * n * count_prepared(trainer.model, sparse=_is_sparse(graph))
        matrices = 0
    if given_budget() is not None:
        load_kernels()
        return_freed_memory()
    held = anonymous_memory()
    code = base_memory() - held
    found = Need(held, code, step + ahead, ahead, evaluation, 0, matrices, _count_mapped(graph), place)
    if to_train and trainer.share.can_prefetch:
        left = max(memory_budget() - found.least, 0)
        room = left if given_budget() is not None else left // 2
        if trainer.features.count_slots(trainer.sampler.graph, room) is not None:
            more = _count_reading(trainer)
            found.step, found.ahead, room = found.step + more, found.ahead + more, max(room - more, 0)
        trainer.features.room = room
        found.cache = trainer.features.count_bytes(trainer.sampler.graph, trainer.features.room)
    if isinstance(trainer.share, SwappedShare):
        found.helps = "more --parts"
        found.swaps = trainer.share.plan.describe(place) if to_train else ""
    elif whole and isinstance(trainer.sampler, FullSampler):
        found.helps = "--method swapped, which holds one part of the graph at a time"
    steps_whole = not whole or isinstance(trainer.sampler, FullSampler)
    swaps = isinstance(trainer.share, SwappedShare)
    if to_train and given_budget() is not None and steps_whole and not swaps:
        enough = found.least + int(_FRAGMENTED * max(found.step, found.ahead + found.evaluation))
        trainer.share.keeps_freed = enough <= memory_budget()
        found.enough = 0 if trainer.share.keeps_freed else enough
    return found


def _count_step(trainer: Trainer) -> tuple[int, int]:
    """(bytes of a step's activations, bytes that stay during an evaluation).

    The latter are sampled batches and the sampler's tables, or operators and `A x` of the whole graph.
    """
    graph = trainer.graph
    n, entries = graph.num_nodes, graph.num_entries
    sampler, threads = trainer.sampler, trainer.sampling_threads
    if isinstance(trainer.share, SwappedShare):
        return trainer.share.plan.held, 0
    if not isinstance(trainer.share, ReplicaShare) or isinstance(sampler, FullSampler):
        values, kept = _count_whole(graph, trainer.model, *_count_halo(trainer))
        return values, kept + _count_training_part(trainer)
    source = _find_source(sampler)
    nodes = _count_read(trainer)
    own = making = 0
    if isinstance(source, LayeredSampler):
        batch = source.sample(0)
        values, drawn = _count_values(trainer, batch), sum(batch.edges_per_layer)
    else:
        values = nodes * count_row(trainer.model)
        drawn = min(entries, nodes * (entries // max(n, 1) + 1))
        own, making = _count_drawing(source)
    values += nodes * count_prepared(trainer.model, sparse=_is_sparse(graph))
    batches = count_batches_held(threads, cached=False)
    taken = drawn if graph.edge_weight is None else 2 * drawn
    held = int(VALUE * (2 + 2 * threads) * taken + batches * nodes * _row_bytes(graph)) + own
    return max(VALUE * values, making), held


def _count_whole(graph: Graph, model: nn.Module, halo: int = 0, more: int = 0) -> tuple[int, int]:
    """(bytes of a step's activations on all local and `halo` rows, bytes held throughout: operators and `A x`)."""
    size = graph.num_nodes, graph.num_entries, graph.num_features
    kind = {"sparse": _is_sparse(graph), "weighted": graph.edge_weight is not None}
    return count_whole(model, *size, **kind, halo=halo, more=more)


def count_whole_step(graph: Graph, model: nn.Module) -> int:
    """Bytes that full-batch training of a model takes, its weights included."""
    return sum(_count_whole(graph, model)) + count_weights(model)


def _count_drawing(source: Sampler) -> tuple[int, int]:
    """(bytes of a subgraph sampler's tables, bytes needed to make them before the first step)."""
    graph = source.graph
    entries = graph.num_entries
    oriented = 0
    if not graph.directed:
        kept = entries if find_folder(graph) is None else min(entries, LEAST_KEPT)
        oriented = min(_ORIENTED_BYTES * kept, int(SHARE * memory_left()))
    own = oriented + _DRAWN_BYTES * graph.num_nodes
    if source.coverage is None:
        return own, 0
    own += _PLACED_BYTES * entries if oriented and entries <= MOST_PLACED else 0
    if source._norms is not None:
        return own, 0
    is_exact = type(source).inclusion_probabilities is not Sampler.inclusion_probabilities
    return own + _NORM_BYTES * entries, (_EXACT_BYTES if is_exact else _COUNTED_BYTES) * entries


def _count_reading(trainer: Trainer) -> int:
    """Bytes that reading features ahead takes beside the cache: more batches, rows of the window, pending reads."""
    caching, graph, threads = trainer.features, trainer.graph, trainer.sampling_threads
    nodes = _count_read(trainer)
    more = count_batches_held(threads, cached=True) - count_batches_held(threads, cached=False)
    window = caching.window if caching.policy == "lookahead" else 0
    x = graph.find_features(_NOBODY)[0]
    buffers = count_buffers(x.nbytes // max(len(x), 1), caching.readers, caching.direct is not False)
    return int(more * nodes * _row_bytes(graph)) + _WINDOW_BYTES * window * nodes + buffers


def _count_read(trainer: Trainer) -> int:
    """Nodes whose features a batch reads. The batch_size of a layered sampler counts output nodes only."""
    source = _find_source(trainer.sampler)
    if isinstance(source, LayeredSampler):
        return source.sample(0).num_nodes
    return min(trainer.graph.num_nodes, int(trainer.sampler.batch_size))


def _find_source(sampler: Sampler) -> Sampler:
    return sampler.source if isinstance(sampler, RankSampler) else sampler


def _count_halo(trainer: Trainer) -> tuple[int, int]:
    """(halo rows of this rank's part, entries in halo columns); zeros without a part."""
    if not isinstance(trainer.share, PartShare):
        return 0, 0
    part = trainer.share.part
    return part.num_halo, len(part.halo_indices)


def _count_training_part(trainer: Trainer) -> int:
    """Bytes of a rank's part of an inductive training graph: pattern, features, and `A x` if it is precomputed."""
    share = trainer.share
    if not isinstance(share, PartShare) or share.training is share.part:
        return 0
    part = share.training
    copies = 2 if keeps_aggregate(trainer.model, sparse=_is_sparse(trainer.graph)) else 1
    features = int(copies * part.num_local * _row_bytes(trainer.graph))
    return features + 2 * VALUE * (len(part.local_indices) + len(part.halo_indices))


def _count_values(trainer: Trainer, batch: Batch) -> int:
    """Values that a model's layers keep for a batch of a layered sampler."""
    values, depth, rows = 0, 0, batch.num_nodes
    for layer in list_layers(trainer.model):
        read = rows
        if layer.kind is not None:
            rows, depth = batch.block(depth).num_rows, depth + 1
        values += layer.linear.out_features * (read + (2 if layer.residual is None else 3) * rows)
        values += layer.linear.in_features * read if layer.norm_place == "input" else 0
    return values


def _row_bytes(graph: Graph) -> float:
    """Bytes of a node's features in a batch; for sparse features the mean of the stored values."""
    x = graph.find_features(_NOBODY)[0]
    if isinstance(x, sp.csr_array):
        return 8 + x.nnz / max(x.shape[0], 1) * (x.data.itemsize + x.indices.itemsize)
    return VALUE * graph.num_features


def _is_sparse(graph: Graph) -> bool:
    return isinstance(graph.find_features(_NOBODY)[0], sp.csr_array)


def _count_mapped(graph: Graph) -> int:
    x = graph._x.codes if isinstance(graph._x, EncodedRows) else graph._x
    features = [x.data, x.indices, x.indptr] if isinstance(x, sp.csr_array) else [x]
    arrays = [graph.indptr, graph.indices, *features]
    return sum(array.nbytes for array in arrays if isinstance(array, np.memmap))
