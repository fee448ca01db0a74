"""Need: what a run will hold in memory, estimated before it starts, and where the rest goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.encoding import EncodedRows
from shoal.memory import anonymous_memory, given_budget, memory_budget
from shoal.models.gnn import GNN
from shoal.models.layers import Layer
from shoal.models.layerwise import ENTRIES_AT_ONCE, ROWS_AT_ONCE
from shoal.sampling.full import FullSampler
from shoal.sampling.layered import LayeredSampler
from shoal.sampling.shard import RankSampler
from shoal.training.inference import free_for_matrices
from shoal.training.share import ReplicaShare
from shoal.training.trainer import Trainer
from shoal.wording import format_bytes

_VALUE = 4  # bytes
_BATCHES_HELD = 3  # the features of a step's batch, and of those drawn ahead of it
_WEIGHT_COPIES = 6  # of a weight: itself, its gradient, Adam's two, the best and the last
_NOBODY = np.empty(0, np.int64)


@dataclass
class Need:
    """Bytes of anonymous memory, estimated.

    Attributes:
        held: what the process holds now.
        step: what a training step adds; 0 where nothing is trained.
        evaluation: what evaluation adds whatever happens: vectors of all nodes, and chunks of rows.
        matrices: of all nodes, that evaluation holds at once, in memory or in files.
        mapped: bytes of the graph that are read from its files and held by nobody.
    """

    held: int
    step: int
    evaluation: int
    matrices: int
    mapped: int
    place: Path

    def check(self) -> str:
        """What is needed and where it goes, in a line; refused where a budget that was given cannot hold it."""
        budget = memory_budget()
        least = self.held + max(self.step, self.evaluation)
        if least > budget and given_budget() is not None:
            largest = "a training step" if self.step >= self.evaluation else "evaluation"
            helps = "a smaller model.hidden"
            if largest == "a training step":
                helps = f"smaller batches of the sampler, {helps}"
            raise ShoalError(
                f"this needs about {format_bytes(least)} of memory ({format_bytes(self.held)} held already, "
                f"{largest} {format_bytes(least - self.held)}) and --memory allows {format_bytes(budget)}: "
                f"give {helps}, or more memory"
            )
        fits = self.matrices <= free_for_matrices()
        place = "" if fits else f" in files of {self.place}"
        parts = [f"{format_bytes(self.held)} held"]
        if self.step:
            parts.append(f"a step takes about {format_bytes(self.step)}")
        parts.append(
            f"evaluation {format_bytes(self.evaluation)} and matrices of {format_bytes(self.matrices)}{place}"
        )
        if self.mapped:
            parts.append(f"{format_bytes(self.mapped)} of the graph stay in its files")
        allowed = "allowed" if given_budget() is not None else "free or held"
        if least > budget:
            allowed += ", which may not suffice"
        return f"memory: {format_bytes(budget)} {allowed}; {', '.join(parts)}"


def estimate_need(trainer: Trainer, place: Path, *, to_train: bool = True) -> Need:
    """What training with `trainer`, or only evaluating its model, will hold."""
    graph = trainer.graph
    n, entries = graph.num_nodes, graph.num_entries
    widths = list(trainer.model.widths) if isinstance(trainer.model, GNN) else []
    weights = sum(weight.numel() for weight in trainer.model.parameters())
    whole = isinstance(trainer.share, ReplicaShare)
    step = _count_step(trainer, widths) + _VALUE * _WEIGHT_COPIES * weights if to_train else 0
    if whole:
        step += n * (len(widths) + 2) if to_train else 0  # which rows an evaluation reads is kept
        widest = max([*widths, *(layer.linear.out_features for layer in _list_layers(trainer))], default=0)
        rows = 24 * n + graph.num_classes * _VALUE * n // 5
        evaluation = rows + _VALUE * (4 * min(n, ROWS_AT_ONCE) * widest + 8 * min(entries, ENTRIES_AT_ONCE))
        pairs = [a + 2 * b for a, b in zip([0, *widths[:-1]], widths)]
        matrices = _VALUE * n * max(pairs, default=0)
    else:
        evaluation = int(n * (_VALUE * sum(widths) + _row_bytes(graph)))
        matrices = 0
    return Need(anonymous_memory(), step, evaluation, matrices, _count_mapped(graph), place)


def _count_step(trainer: Trainer, widths: list[int]) -> int:
    """Bytes of a step's activations, and of the features and patterns of batches where they are drawn."""
    graph = trainer.graph
    n, entries = graph.num_nodes, graph.num_entries
    sampler = trainer.sampler
    if not isinstance(trainer.share, ReplicaShare) or isinstance(sampler, FullSampler):
        first = next(iter(_list_layers(trainer)), None)
        keeps = first is not None and first.kind is not None and first.linear.starts_from_aggregate
        known = n * graph.num_features if keeps and not _is_sparse(graph) else 0
        return _VALUE * (3 * n * sum(widths) + 2 * entries + known)  # `A x`; x is read where it is
    source = sampler.source if isinstance(sampler, RankSampler) else sampler
    if isinstance(
        source, LayeredSampler
    ):  # its batch_size counts outputs, of which layers read many times as many
        batch = source.sample(0)
        nodes, values, drawn = batch.num_nodes, _count_values(trainer, batch), sum(batch.edges_per_layer)
    else:
        nodes = min(n, int(sampler.batch_size))
        values, drawn = 3 * nodes * sum(widths), min(entries, nodes * (entries // max(n, 1) + 1))
    return int(_VALUE * (values + 2 * drawn) + _BATCHES_HELD * nodes * _row_bytes(graph))


def _count_values(trainer: Trainer, batch: Batch) -> int:
    """Values that the layers of a model keep of a batch whose layers shrink."""
    values, depth, rows = 0, 0, batch.num_nodes
    for layer in _list_layers(trainer):
        read = rows
        if layer.kind is not None:
            rows, depth = batch.block(depth).num_rows, depth + 1
        values += layer.linear.out_features * (read + 2 * rows)
    return values


def _row_bytes(graph: Graph) -> float:
    """Bytes of a node's features in a batch: of sparse ones, only what is stored."""
    x = graph.find_features(_NOBODY)[0]
    if isinstance(x, sp.csr_array):
        return 8 + x.nnz / max(x.shape[0], 1) * (x.data.itemsize + x.indices.itemsize)
    return _VALUE * graph.num_features


def _list_layers(trainer: Trainer) -> list[Layer]:
    return list(trainer.model.list_layers()) if isinstance(trainer.model, GNN) else []


def _is_sparse(graph: Graph) -> bool:
    return isinstance(graph.find_features(_NOBODY)[0], sp.csr_array)


def _count_mapped(graph: Graph) -> int:
    x = graph._x.codes if isinstance(graph._x, EncodedRows) else graph._x
    features = [x.data, x.indices, x.indptr] if isinstance(x, sp.csr_array) else [x]
    arrays = [graph.indptr, graph.indices, *features]
    return sum(array.nbytes for array in arrays if isinstance(array, np.memmap))
