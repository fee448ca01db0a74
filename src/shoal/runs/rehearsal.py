"""Rehearsal: a few steps and an evaluation of a run, in a process of its own, to see what it takes.

`python -m shoal.runs.rehearsal` reads a job from its input and answers on its output, both JSON.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import closing, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.kernels.jit import count_compiled
from shoal.memory import anonymous_memory, keep_freed_memory, set_memory_budget
from shoal.models.kept_hops import keeping_hops_in
from shoal.runs.config import RunConfig, make_config
from shoal.runs.run import Run
from shoal.training.evaluation import count_forward
from shoal.training.trainer import Trainer

_STEPS, _LONG = 32, 1.0  # steps, and seconds of them, that are enough to time
_LOOK = 0.005  # seconds between two looks at the memory


@dataclass
class Rehearsal:
    """What a run was seen to take.

    Attributes:
        seconds, cpu: of an epoch: the mean of the timed steps, times an epoch's.
        work: multiply-adds of the forward passes of an epoch.
        evaluation: seconds of an evaluation, None without validation nodes.
        memory: most bytes of anonymous memory, from the loading of the graph to the evaluation of the test nodes.
        compiling: seconds of steps that compiled kernels, which happens once on a machine.
    """

    seconds: float
    cpu: float
    work: float
    evaluation: float | None
    memory: int
    compiling: float = 0.0


class ProcessEnded(ShoalError):
    """A process that tried a run ended without an answer.

    Attributes:
        killed: whether the system ended it (SIGKILL), as it does where memory runs out.
    """

    def __init__(self, method: str, code: int) -> None:
        self.killed = code == -signal.SIGKILL
        why = " (killed: out of memory?)" if self.killed else ""
        super().__init__(f"a process that tried method {method} ended with code {code}{why}")


class MemoryWatch:
    """The most anonymous memory that this process holds while the block lasts."""

    most = 0

    def __enter__(self) -> MemoryWatch:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK):
            self.most = max(self.most, anonymous_memory())

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self.most = max(self.most, anonymous_memory())


def rehearse(config: RunConfig, seconds: float) -> Rehearsal:
    """Start the run that `config` describes in this process and take steps for about `seconds`; nothing is left of it."""
    with tempfile.TemporaryDirectory() as place, keeping_hops_in(Path(place)), MemoryWatch() as watch:
        run = Run.create(Path(place) / "run", config)
        trainer = run.trainer
        keep_freed_memory()
        trainer.share.begin(1)
        try:
            epoch, cpu, work, compiling = _time_steps(trainer, seconds)
            trainer.weights.keep_best()
            evaluation = _time_evaluation(trainer, time.monotonic() + seconds / 2)
        finally:
            trainer.share.release()
    return Rehearsal(epoch, cpu, work, evaluation, watch.most, compiling)


def rehearse_apart(config: RunConfig, seconds: float, budget: int | None = None) -> Rehearsal:
    """The same in a process of its own, whose memory is that of the run alone, within a memory budget."""
    job = {"config": config.to_dict(), "seconds": seconds, "budget": budget}
    done = subprocess.run(
        [sys.executable, "-m", "shoal.runs.rehearsal"],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProcessEnded(config.method, done.returncode)
    answer: dict[str, Any] = json.loads(done.stdout)
    if "refused" in answer:
        raise ShoalError(answer["refused"])
    return Rehearsal(**answer)


def _time_steps(trainer: Trainer, seconds: float) -> tuple[float, float, float, float]:
    """Seconds, CPU seconds and work of an epoch, and seconds that compiling took.

    The first step loads kernels, and a few more find cold caches: they do not count, nor does one that compiles.
    """
    steps: list[tuple[float, float, float]] = []
    compiling, ends = 0.0, time.monotonic() + seconds
    with closing(_take_batches(trainer)) as batches:
        while len(steps) <= _STEPS or sum(step[0] for step in steps) < _LONG:
            began, busy, compiled = time.perf_counter(), time.process_time(), count_compiled()
            batch = next(batches)
            trainer.train_step(batch)
            spent = time.perf_counter() - began
            if compiled != count_compiled():
                compiling, ends = compiling + spent, ends + spent
                continue
            steps.append((spent, time.process_time() - busy, count_forward(trainer.model, batch)))
            if len(steps) > 1 and time.monotonic() + spent > ends:
                break
    wall, cpu, work = np.mean(steps[max(len(steps) // 8, 1) :], axis=0) * trainer.sampler.num_batches
    return float(wall), float(cpu), float(work), compiling


def _take_batches(trainer: Trainer) -> Generator[Batch]:
    """The run's batches, epoch after epoch."""
    while True:
        yield from trainer.batches()
        trainer.epoch += 1


def _time_evaluation(trainer: Trainer, ends: float) -> float | None:
    """Seconds of an evaluation behind one that plans it, and that of the test nodes, which a run ends with."""
    spent = None
    if trainer.has_nodes("val"):
        for _ in range(2):
            began = time.perf_counter()
            trainer.evaluate("val")
            spent = time.perf_counter() - began
            if time.monotonic() + spent > ends:
                break
    if trainer.has_nodes("test"):
        trainer.evaluate("test")
    return spent


def main() -> None:
    """Do the job of the input."""
    job = json.load(sys.stdin)
    set_memory_budget(job["budget"])
    config = make_config(job["config"])
    with redirect_stdout(sys.stderr):  # what a plug-in prints is no part of the answer
        try:
            config.validate()  # which loads its plug-ins
            answer = asdict(rehearse(config, job["seconds"]))
        except ShoalError as error:
            answer = {"refused": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
