"""Plan: time and memory of each method on a graph and a machine, measured by a few steps, and the best choice."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.analysis.machine import Machine
from shoal.analysis.simulate import predict_epoch
from shoal.analysis.speed import probe_rates
from shoal.distributed.transport import LocalTransport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.memory import anonymous_memory, memory_budget, memory_left
from shoal.models.conv import CONVS
from shoal.models.gnn import GNN
from shoal.partitioning.part import split_graph
from shoal.runs.build import make_model, make_trainer
from shoal.runs.choose import choose_method
from shoal.runs.config import RunConfig
from shoal.runs.data import partition_for_run
from shoal.runs.defaults import may_reverse
from shoal.runs.need import Need, estimate_need
from shoal.runs.rehearsal import ProcessEnded, Rehearsal, rehearse_apart
from shoal.settings import list_settings
from shoal.training.evaluation import count_forward
from shoal.wording import format_bytes

SAMPLERS = ("random-walk", "frontier", "node")  # tried beside the run's own
_FASTER = 0.7  # several hosts are worth it below this share of one host's time
_KERNELS = 40 << 20  # bytes of kernels that a process loads


@dataclass
class Candidate:
    """A way of training with its expected time and memory.

    Attributes:
        options: options of `shoal train`.
        memory: peak memory in bytes, of the process or of the largest rank.
        seconds: seconds of a training epoch; None if not predicted.
        cpu: CPU seconds of an epoch; None if not measured.
        evaluation: seconds of an evaluation; None if not measured.
        interval: epochs from one evaluation to the next.
        sent: bytes that ranks send in an epoch.
        how: `measured`, or `predicted` from other measurements.
        fits: whether memory suffices.
        failed: why measuring failed; None if it did not.
    """

    name: str
    options: tuple[str, ...]
    memory: int
    seconds: float | None
    cpu: float | None = None
    evaluation: float | None = None
    interval: int = 1
    sent: int = 0
    how: str = "predicted"
    fits: bool = True
    failed: str | None = None

    @property
    def method(self) -> str:
        """The value of `--method`."""
        return self.options[self.options.index("--method") + 1]

    def count_seconds(self, epochs: int) -> float | None:
        """Seconds of `epochs` epochs with evaluations, without early stopping; None if not measured."""
        if self.how != "measured" or self.seconds is None:
            return None
        return epochs * self.seconds + -(-epochs // self.interval) * (self.evaluation or 0.0)


@dataclass
class Plan:
    """All candidates, the best one, and the reason for it."""

    candidates: list[Candidate]
    best: Candidate
    reason: str
    memory: int

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON data."""
        return {
            "best": self.best.name,
            "options": list(self.best.options),
            "reason": self.reason,
            "memory": self.memory,
            "candidates": [asdict(one) for one in self.candidates],
        }


class Planner:
    """Measures candidates one after the other, within `seconds` in total. Each runs in its own process, as in `shoal train`.

    Args:
        config: settings of model, training and sampler, with those chosen by the graph.
        graph: the graph to train on.
        memory: bytes that a host has for training.
        asked: the configuration before the graph chose settings, which the processes start from; None for `config`.
        budget: memory budget of the processes in bytes, as of `--memory`; None for the free memory.
        hosts, machine: number of hosts, and the network between them.
        seconds: time limit of the measurements.
        empty: bytes that a process holds without a graph.
        on_step: called with a sentence before each measurement.
        rehearse: measures a configuration, given seconds and a budget.
    """

    def __init__(
        self,
        config: RunConfig,
        graph: Graph,
        *,
        memory: int,
        asked: RunConfig | None = None,
        budget: int | None = None,
        hosts: int = 1,
        machine: Machine | None = None,
        seconds: float = 60.0,
        empty: int = 0,
        on_step: Callable[[str], None] = lambda sentence: None,
        rehearse: Callable[[RunConfig, float, int | None], Rehearsal] = rehearse_apart,
    ) -> None:
        self.config, self.graph, self.memory = config, graph, memory
        self.asked = asked if asked is not None else config
        self.hosts, self.machine, self.empty, self.on_step = hosts, machine, empty, on_step
        self.budget, self._rehearse = budget, rehearse
        self.end = time.monotonic() + seconds
        self.turn = seconds / 10  # for one candidate's steps; its start and evaluation take as long
        self.last = 0.0  # seconds that the last candidate took in total
        self.held = anonymous_memory()  # with the graph
        self.rate: float | None = None  # measured multiply-adds per second

    def plan(self) -> Plan:
        """Measure the candidates that fit, predict the others, and choose one."""
        own = self.config.sampler.name
        if self.config.model.name in CONVS and CONVS[self.config.model.name].trains_on_rows:
            rows = self._try_sampled(own)
            return Plan([rows], rows, "the model trains on rows of nodes", self.memory)
        is_full = choose_method(self.config, self.graph).method == "full"
        first = None if is_full else self._try_sampled(own)  # the default method is always measured
        full, need = self._try_full()
        sampled = [first or self._try_sampled(own)]
        if "name" not in self.config.sampler.given:
            for name in SAMPLERS:
                if name != own and not self._is_late():
                    with suppress(ShoalError):  # some graphs do not allow this sampler
                        sampled.append(self._try_sampled(name))
        found = [*sampled, full]
        if "name" not in self.asked.model.given and not self._is_late():
            with suppress(ShoalError):  # given settings may belong to another model
                found.append(self._try_precomputed())
        if not full.fits:
            with suppress(ShoalError):  # some settings do not allow swapped parts
                found.append(self._try_swapped(full))
        if self.hosts > 1:
            found.append(self._try_partitioned(full, need))
        best, reason = self._choose(found)
        return Plan(found, best, reason, self.memory)

    def _is_late(self) -> bool:
        """Whether another candidate would exceed the time limit; the first never does."""
        return self.last > 0 and time.monotonic() + self.last > self.end

    def _vary(self, method: str, sampler: str | None = None, *, start: bool = False) -> RunConfig:
        """The configuration of a candidate; `start`: the one that its process starts from."""
        config = copy.deepcopy(self.asked if start else self.config)
        config.method = method
        if sampler is None:
            config.sampler.clear()
        elif sampler != config.sampler.name:
            config.sampler.clear()
            config.sampler.name = sampler
        is_open = "directions" not in self.asked.model.given and "directions" in config.model.declared
        if is_open and not may_reverse(config):
            config.model.directions = "in"
        return config

    def _measure(self, candidate: Candidate, config: RunConfig) -> None:
        """Measure a candidate in another process. If that process fails, the prediction stays."""
        began = time.monotonic()
        try:
            seen = self._rehearse(config, self.turn, self.budget)
            if seen.compiled:  # a process that compiles holds the compiler too: measure one that does not
                self.end += time.monotonic() - began
                began = time.monotonic()
                seen = self._rehearse(config, self.turn, self.budget)
        except ProcessEnded as error:
            self.last = time.monotonic() - began
            candidate.failed, candidate.fits = str(error), candidate.fits and not error.killed
            return
        apart = seen.compiling + seen.starting  # not counted in the time limit
        self.end += apart
        self.last = time.monotonic() - began - apart
        candidate.seconds, candidate.cpu = seen.seconds, seen.cpu
        candidate.evaluation, candidate.interval = seen.evaluation, seen.interval
        candidate.memory, candidate.how = seen.memory, "measured"
        candidate.fits = seen.memory <= self.memory
        self.rate = self.rate or seen.work / seen.seconds

    def _can_measure(self, candidate: Candidate) -> bool:
        return candidate.memory <= min(self.memory, memory_budget()) and not self._is_late()

    def _try_sampled(self, name: str) -> Candidate:
        self.on_step(f"measuring batches of {name}")
        trainer = make_trainer(self._vary("sampled", name), self.graph)
        options = ("--method", "sampled", "--sampler", name)
        found = self._make(f"sampled, {name}", options, estimate_need(trainer, Path(".")))
        if self._can_measure(found):
            self._measure(found, self._vary("sampled", name, start=True))
        if found.how == "predicted" and self.rate is not None:
            batch = trainer.sampler.sample(0)
            found.seconds = trainer.sampler.num_batches * count_forward(trainer.model, batch) / self.rate
        return found

    def _try_full(self) -> tuple[Candidate, Need]:
        """Full-batch training: measured if memory suffices and a step is short enough, else predicted by multiply-adds."""
        self.on_step("measuring the whole graph")
        trainer = make_trainer(self._vary("full"), self.graph)
        need = estimate_need(trainer, Path("."))
        found = self._make("full", ("--method", "full"), need)
        work = count_forward(trainer.model, trainer.share.whole)
        if self.rate is not None:
            found.seconds = work / self.rate
        left = self.end - time.monotonic()
        if self._can_measure(found) and (found.seconds is None or 4 * found.seconds < left):
            self._measure(found, self._vary("full", start=True))
        return found, need

    def _try_precomputed(self) -> Candidate:
        """SIGN: another model, whose features are propagated once before training."""
        self.on_step("measuring features propagated beforehand (model sign)")
        config = self._vary("sampled", start=True)
        config.model.name = "sign"
        config.validate()
        hops = list_settings(CONVS["sign"])["hops"].default
        size = 4 * (hops + 1) * self.graph.num_nodes * self.graph.num_features
        options = ("--model", "sign", "--method", "sampled")
        found = Candidate("precomputed, sign", options, self.held + _KERNELS + size, None)
        found.fits = found.memory <= self.memory
        if self._can_measure(found) and size < memory_left() // 2:
            self._measure(found, config)
        return found

    def _try_swapped(self, full: Candidate) -> Candidate:
        """Swapped parts: measured if there is time, else predicted as full-batch training without file traffic."""
        self.on_step("cutting the graph into parts to swap")
        config = self._vary("swapped")
        num_parts = 8
        while True:
            parts = partition_for_run(config, self.graph, num_parts)
            trainer = make_trainer(config, self.graph, swapped=parts)
            options = ("--method", "swapped", "--parts", str(num_parts))
            found = self._make("swapped", options, estimate_need(trainer, Path(".")))
            if found.fits or num_parts >= 64 or time.monotonic() > self.end:
                break
            num_parts *= 2
        found.seconds, found.how = full.seconds, "predicted, without reading and writing"
        if self._can_measure(found):
            config = self._vary("swapped", start=True)
            config.partition.parts = num_parts
            self._measure(found, config)
        return found

    def _try_partitioned(self, full: Candidate, need: Need) -> Candidate:
        """Parts on hosts: exact bytes, and the simulator's time, scaled by the measured time of full-batch training."""
        self.on_step(f"cutting the graph into {self.hosts} parts")
        assert self.machine is not None
        config, graph = self._vary("partitioned"), self.graph
        model = make_model(config, graph.num_features, graph.num_classes)
        if not isinstance(model, GNN):
            raise ShoalError(
                f"epochs across hosts are predicted for stacks of convs only, and {config.model.name} is none: leave out --hosts"
            )
        seen = graph.train_graph(config.training.setting)
        pattern, trained = (
            Graph(one.indptr, one.indices, directed=graph.directed, checked=True) for one in (graph, seen)
        )
        assignment = partition_for_run(config, graph, self.hosts).assignment
        parts = cut = split_graph(pattern, assignment, self.hosts)
        if seen is not graph:
            cut = split_graph(trained, assignment[graph.train_mask], self.hosts)
        alone = split_graph(trained, np.zeros(seen.num_nodes, np.int32), 1)
        rates = Machine(self.machine.latency, self.machine.bandwidth, **probe_rates(LocalTransport()))
        given: dict[str, Any] = {"sparse_features": sp.issparse(graph.x)}
        given["label_iterations"] = config.training.label_iterations
        said = predict_epoch(cut, model, rates, exchange=config.make_exchange(), **given)
        one = predict_epoch(alone, model, rates, **given)
        scale = 1.0 if full.seconds is None else full.seconds / one.compute
        cpu = None if full.cpu is None else full.cpu / one.compute * said.compute
        largest = max((part.num_local + part.num_halo) / graph.num_nodes for part in parts)
        graph_bytes = max(self.held - self.empty, 0)
        memory = self.empty + _KERNELS + int(largest * (graph_bytes + need.step + need.evaluation))
        return Candidate(
            f"partitioned, {self.hosts} parts",
            ("--method", "partitioned"),
            memory,
            scale * said.compute + sum(said.exposed) + said.reduce,
            cpu,
            sent=said.num_bytes,
            fits=memory <= self.memory,
        )

    def _make(self, name: str, options: tuple[str, ...], need: Need) -> Candidate:
        """A candidate with the memory of one process that has loaded the graph; matrices that do not fit go to files."""
        least = self.held + need.code + max(need.step, need.ahead + need.evaluation)
        whole = max(least, self.held + need.code + need.ahead + need.evaluation + need.matrices)
        memory = whole if whole <= self.memory else least
        return Candidate(name, options, memory, None, fits=memory <= self.memory)

    def _choose(self, found: list[Candidate]) -> tuple[Candidate, str]:
        """Several hosts if the graph does not fit on one or training there is much slower, else the default method."""
        by_method = {one.method: one for one in reversed(found) if "--model" not in one.options}
        full, sampled, parts = by_method["full"], by_method["sampled"], by_method.get("partitioned")
        if parts is not None and parts.fits:
            if not full.fits:
                return (
                    parts,
                    f"the whole graph takes {format_bytes(full.memory)} and a host has {format_bytes(self.memory)}",
                )
            assert parts.seconds is not None
            if full.seconds is not None and parts.seconds < _FASTER * full.seconds:
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
