"""Plan: what each method would take on a graph and a machine, measured by a few steps, and which one fits."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.analysis.simulate import Machine, predict_epoch
from shoal.analysis.speed import probe_rates
from shoal.distributed.transport import LocalTransport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.memory import anonymous_memory
from shoal.models.conv import CONVS
from shoal.models.gnn import GNN
from shoal.partitioning.part import split_graph
from shoal.runs.build import make_model, make_trainer
from shoal.runs.choose import choose_method
from shoal.runs.config import RunConfig
from shoal.runs.data import partition_for_run
from shoal.runs.need import Need, estimate_need
from shoal.training.evaluation import count_forward
from shoal.training.trainer import Trainer
from shoal.wording import format_bytes

SAMPLERS = ("random-walk", "frontier", "node")  # beside the run's own
_STEPS = 5  # of a candidate that are timed, behind one that is not
_FASTER = 0.7  # of one machine's time, from which on several are worth it
_KERNELS = 40 << 20  # bytes that a process loads when it works


@dataclass
class Candidate:
    """A way of training and what it is expected to take.

    Attributes:
        options: of `shoal train`.
        memory: bytes that the process holds at most, or the largest rank.
        seconds: of an epoch of training; None where a model's time is not predicted.
        evaluation: seconds of an evaluation, None where it was not measured.
        sent: bytes that ranks send in an epoch.
        how: measured, or predicted from what was.
        fits: whether memory suffices.
    """

    name: str
    options: tuple[str, ...]
    memory: int
    seconds: float | None
    evaluation: float | None = None
    sent: int = 0
    how: str = "measured"
    fits: bool = True


@dataclass
class Plan:
    """All candidates, the one to take, and why."""

    candidates: list[Candidate]
    best: Candidate
    reason: str
    memory: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "best": self.best.name,
            "options": list(self.best.options),
            "reason": self.reason,
            "memory": self.memory,
            "candidates": [asdict(one) for one in self.candidates],
        }


class Planner:
    """Measures candidates one after the other, within `seconds` in all.

    Args:
        config: model and training settings, and the sampler where one is given.
        graph: to be trained on.
        memory: bytes that a host has for training.
        hosts, machine: how many, and the wire between them.
        empty: bytes that a process holds without a graph.
    """

    def __init__(
        self,
        config: RunConfig,
        graph: Graph,
        *,
        memory: int,
        hosts: int = 1,
        machine: Machine | None = None,
        seconds: float = 60.0,
        empty: int = 0,
        on_step: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.config, self.graph, self.memory = config, graph, memory
        self.hosts, self.machine, self.empty, self.on_step = hosts, machine, empty, on_step
        self.end = time.monotonic() + seconds
        self.turn = seconds / (3 + len(SAMPLERS))  # of one candidate
        self.held = anonymous_memory()  # with the graph
        self.rate: float | None = None  # multiply-adds a second of steps that were timed

    def plan(self) -> Plan:
        """Measure what fits, predict the rest, and choose."""
        names = dict.fromkeys([self.config.sampler.name, *SAMPLERS])
        if "name" in self.config.sampler.given:
            names = dict.fromkeys([self.config.sampler.name])
        found = [self._try_sampled(name) for name in names if not self._is_late(name)]
        if self.config.model.name in CONVS and CONVS[self.config.model.name].trains_on_rows:
            return Plan(found, found[0], "the model trains on rows of nodes", self.memory)
        full, need = self._try_full()
        found.append(full)
        if not full.fits:
            with suppress(ShoalError):  # some settings allow no swapped parts
                found.append(self._try_swapped(full))
        if self.hosts > 1 and self.graph.edge_weight is None:
            found.append(self._try_partitioned(full, need))
        best, reason = self._choose(found)
        return Plan(found, best, reason, self.memory)

    def _is_late(self, name: str) -> bool:
        return name != self.config.sampler.name and time.monotonic() + self.turn > self.end

    def _vary(self, method: str, sampler: str | None = None) -> RunConfig:
        config = copy.deepcopy(self.config)
        config.method = method
        if sampler is None:
            config.sampler.clear()
        elif sampler != config.sampler.name:
            config.sampler.clear()
            config.sampler.name = sampler
        return config

    def _try_sampled(self, name: str) -> Candidate:
        self.on_step(f"measuring batches of {name}")
        trainer = make_trainer(self._vary("sampled", name), self.graph)
        need = estimate_need(trainer, Path("."))
        seconds, work = [], 0.0
        ends = time.monotonic() + self.turn
        for k in range(_STEPS + 1):
            began = time.perf_counter()
            batch = trainer.sampler.sample(k)
            trainer.train_step(batch)
            if k:  # the first one loads kernels
                seconds.append(time.perf_counter() - began)
                work += count_forward(trainer.model, batch)
            if seconds and time.monotonic() > ends:
                break
        self.rate = self.rate or work / sum(seconds)
        epoch = trainer.sampler.num_batches * statistics.median(seconds)
        return self._make(
            f"sampled, {name}",
            ("--method", "sampled", "--sampler", name),
            need,
            epoch,
            _time_evaluation(trainer, ends),
        )

    def _try_full(self) -> tuple[Candidate, Need]:
        """Full-batch training: measured where memory holds it and a step is not too long, else predicted by its work."""
        self.on_step("measuring the whole graph")
        trainer = make_trainer(self._vary("full"), self.graph)
        need = estimate_need(trainer, Path("."))
        options = ("--method", "full")
        candidate = self._make("full", options, need, None)
        assert self.rate is not None
        expected = count_forward(trainer.model, trainer.share.whole) / self.rate
        if not candidate.fits or time.monotonic() + 2 * expected > self.end:
            candidate.seconds, candidate.how = expected, "predicted"
            return candidate, need
        seconds: list[float] = []
        ends = time.monotonic() + self.turn
        while len(seconds) <= _STEPS and (len(seconds) < 2 or time.monotonic() < ends):
            seconds.append(trainer.train_epoch()["seconds"])
        epoch = statistics.median(seconds[1:])
        return self._make("full", options, need, epoch, _time_evaluation(trainer, ends)), need

    def _try_swapped(self, full: Candidate) -> Candidate:
        """Swapped parts: their memory is known, their time that of the whole graph without its files."""
        self.on_step("cutting the graph into parts to swap")
        config = self._vary("swapped")
        num_parts = 8
        while True:
            parts = partition_for_run(config, self.graph, num_parts)
            trainer = make_trainer(config, self.graph, swapped=parts)
            options = ("--method", "swapped", "--parts", str(num_parts))
            found = self._make("swapped", options, estimate_need(trainer, Path(".")), full.seconds)
            if found.fits or num_parts >= 64 or time.monotonic() > self.end:
                found.how = "predicted, without reading and writing"
                return found
            num_parts *= 2

    def _try_partitioned(self, full: Candidate, need: Need) -> Candidate:
        """Parts on hosts: bytes exactly, time by the simulator, scaled by what the whole graph took here."""
        self.on_step(f"cutting the graph into {self.hosts} parts")
        assert self.machine is not None
        config, graph = self._vary("partitioned"), self.graph
        model = make_model(config, graph.num_features, graph.num_classes)
        if not isinstance(model, GNN):
            raise ShoalError(
                f"an epoch across hosts is predicted for stacks of convs and {config.model.name} is none: leave out --hosts"
            )
        pattern = Graph(graph.indptr, graph.indices, directed=graph.directed, checked=True)
        assignment = partition_for_run(config, graph, self.hosts).assignment
        parts = split_graph(pattern, assignment, self.hosts)
        alone = split_graph(pattern, np.zeros(graph.num_nodes, np.int32), 1)
        rates = Machine(self.machine.latency, self.machine.bandwidth, **probe_rates(LocalTransport()))
        sparse = sp.issparse(graph.x)
        said = predict_epoch(parts, model, rates, exchange=config.make_exchange(), sparse_features=sparse)
        one = predict_epoch(alone, model, rates, sparse_features=sparse)
        scale = 1.0 if full.seconds is None else full.seconds / one.compute
        largest = max((part.num_local + part.num_halo) / graph.num_nodes for part in parts)
        graph_bytes = max(self.held - self.empty, 0)
        memory = self.empty + _KERNELS + int(largest * (graph_bytes + need.step + need.evaluation))
        options = ("--method", "partitioned", "--workers", str(self.hosts))
        return Candidate(
            f"partitioned, {self.hosts} parts",
            options,
            memory,
            scale * said.compute + sum(said.exposed) + said.reduce,
            None,
            said.num_bytes,
            "predicted",
            memory <= self.memory,
        )

    def _make(
        self,
        name: str,
        options: tuple[str, ...],
        need: Need,
        seconds: float | None,
        evaluation: float | None = None,
    ) -> Candidate:
        """A candidate of one process that has just loaded the graph; matrices that do not fit go to files."""
        least = self.held + need.code + max(need.step, need.ahead + need.evaluation)
        whole = max(least, self.held + need.code + need.ahead + need.evaluation + need.matrices)
        memory = whole if whole <= self.memory else least
        return Candidate(name, options, memory, seconds, evaluation, fits=memory <= self.memory)

    def _choose(self, found: list[Candidate]) -> tuple[Candidate, str]:
        """Several hosts where one does not hold the graph or is much slower, else what `shoal train` takes by itself."""
        by_method = {one.options[1]: one for one in reversed(found)}
        full, sampled, parts = by_method["full"], by_method["sampled"], by_method.get("partitioned")
        if parts is not None and parts.fits:
            if not full.fits:
                return (
                    parts,
                    f"the whole graph takes {format_bytes(full.memory)} and a host has {format_bytes(self.memory)}",
                )
            assert parts.seconds is not None
            assert full.seconds is not None
            if parts.seconds < _FASTER * full.seconds:
                return (
                    parts,
                    f"an epoch takes {parts.seconds:.2g} s on {self.hosts} hosts and {full.seconds:.2g} s on one",
                )
        chosen = choose_method(self.config, self.graph)
        if chosen.method == "full" and full.fits:
            return full, chosen.reason
        if sampled.fits:
            why = chosen.reason if chosen.method == "sampled" else "memory does not hold the whole graph"
            return sampled, why
        swapped = by_method.get("swapped")
        if swapped is not None and swapped.fits:
            return swapped, f"neither the whole graph nor a batch fits in {format_bytes(self.memory)}"
        raise ShoalError(
            f"nothing fits in {format_bytes(self.memory)}: the least is {format_bytes(min(one.memory for one in found))}; "
            "give smaller batches, a smaller model.hidden, or more memory"
        )


def _time_evaluation(trainer: Trainer, ends: float) -> float | None:
    """Seconds of an evaluation behind one that plans it; None without validation nodes."""
    if not trainer.has_nodes("val"):
        return None
    for _ in range(2):
        began = time.perf_counter()
        trainer.evaluate("val")
        spent = time.perf_counter() - began
        if time.monotonic() > ends:
            break
    return spent
