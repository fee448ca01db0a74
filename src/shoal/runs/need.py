"""Need: what a run will hold in memory, estimated before it starts, and where the rest goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.memory import anonymous_memory, given_budget, memory_budget
from shoal.models.gnn import GNN
from shoal.models.layers import Layer
from shoal.models.layerwise import ENTRIES_AT_ONCE, ROWS_AT_ONCE
from shoal.sampling.full import FullSampler
from shoal.training.inference import free_for_matrices
from shoal.training.share import ReplicaShare
from shoal.training.trainer import Trainer
from shoal.wording import format_bytes

_VALUE = 4  # bytes
_BATCHES_HELD = 3  # the features of a step's batch, and of those drawn ahead of it
_WEIGHT_COPIES = 6  # of a weight: itself, its gradient, Adam's two, the best and the last


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
        """What is needed and where it goes, in a line; refused where the budget cannot hold it."""
        budget = memory_budget()
        least = self.held + max(self.step, self.evaluation)
        if least > budget:
            said = "--memory allows" if given_budget() is not None else "there is"
            largest = "a training step" if self.step >= self.evaluation else "evaluation"
            helps = "a smaller model.hidden"
            if largest == "a training step":
                helps = f"smaller batches of the sampler, {helps}"
            raise ShoalError(
                f"this needs about {format_bytes(least)} of memory ({format_bytes(self.held)} held already, "
                f"{largest} {format_bytes(least - self.held)}) and {said} {format_bytes(budget)}: give {helps}, or more memory"
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
        return f"memory: {format_bytes(budget)} allowed; {', '.join(parts)}"


def estimate_need(trainer: Trainer, place: Path, *, to_train: bool = True) -> Need:
    """What training with `trainer`, or only evaluating its model, will hold."""
    graph = trainer.graph
    n, entries = graph.num_nodes, graph.num_entries
    widths = list(trainer.model.widths) if isinstance(trainer.model, GNN) else []
    inputs = [graph.num_features, *widths]
    weights = sum(weight.numel() for weight in trainer.model.parameters())
    whole = isinstance(trainer.share, ReplicaShare)
    step = 0
    if to_train:
        draws = whole and not isinstance(trainer.sampler, FullSampler)
        nodes = min(n, int(trainer.sampler.batch_size)) if draws else n
        batch_entries = min(entries, nodes * (entries // max(n, 1) + 1))
        dense = 0 if graph.num_features > 10**5 else graph.num_features
        step = _VALUE * (
            nodes * (3 * sum(widths) + _BATCHES_HELD * dense) + 2 * batch_entries + _WEIGHT_COPIES * weights
        )
    if whole:
        widest = max([*widths, *(layer.linear.out_features for layer in _list_layers(trainer))], default=0)
        rows = 24 * n + graph.num_classes * _VALUE * n // 5
        evaluation = rows + _VALUE * (4 * min(n, ROWS_AT_ONCE) * widest + 8 * min(entries, ENTRIES_AT_ONCE))
        pairs = [a + 2 * b for a, b in zip([0, *widths[:-1]], widths)]
        matrices = _VALUE * n * max(pairs, default=0)
    else:
        evaluation = _VALUE * n * sum(inputs)
        matrices = 0
    return Need(anonymous_memory(), step, evaluation, matrices, _count_mapped(graph), place)


def _list_layers(trainer: Trainer) -> list[Layer]:
    return list(trainer.model.list_layers()) if isinstance(trainer.model, GNN) else []


def _count_mapped(graph: Graph) -> int:
    arrays = [graph.indptr, graph.indices, graph._x]
    return sum(array.nbytes for array in arrays if isinstance(array, np.memmap))
