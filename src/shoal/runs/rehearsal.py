"""Rehearsal: time and memory of a run, measured by a few steps and an evaluation in another process.

`python -m shoal.runs.rehearsal` reads a job from stdin and writes the result to stdout, both JSON.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext, redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.kernels.jit import count_compiled
from shoal.memory import anonymous_memory, set_memory_budget
from shoal.models.kept_hops import keeping_hops_in
from shoal.runs.config import RunConfig, make_config
from shoal.runs.run import Run
from shoal.training.evaluation import count_forward
from shoal.training.trainer import Trainer

_STEPS, _LONG = 32, 1.0  # number of steps, and seconds of them, that are enough
_FIRST = 0.125  # share of the first steps that are dropped: caches are cold
_LOOK = 0.005  # seconds between two readings of memory


@dataclass
class Rehearsal:
    """Measured time and memory of a run.

    Attributes:
        seconds: seconds of a training epoch, from the median time per multiply-add, so that steps disturbed by other
            processes do not count.
        cpu: CPU seconds of a training epoch, from the mean.
        work: multiply-adds of the forward passes of an epoch.
        evaluation: seconds of an evaluation; None without validation nodes.
        memory: peak anonymous memory in bytes, from loading the graph to evaluating the test nodes.
        interval: epochs from one evaluation to the next.
        compiling: seconds of steps that compiled kernels, which happens once per machine.
        compiled: number of kernels that were compiled; the compiler's memory is then part of `memory`.
        starting: seconds to load the graph and prepare batches.
    """

    seconds: float
    cpu: float
    work: float
    evaluation: float | None
    memory: int
    interval: int = 1
    compiling: float = 0.0
    compiled: int = 0
    starting: float = 0.0


class ProcessEnded(ShoalError):
    """A rehearsal's process ended without a result.

    Attributes:
        killed: whether it was killed (SIGKILL), as the system does if memory runs out.
    """

    def __init__(self, method: str, code: int) -> None:
        self.killed = code == -signal.SIGKILL
        why = " (killed: out of memory?)" if self.killed else ""
        super().__init__(f"the process that measured method {method} ended with code {code}{why}")


class MemoryWatch:
    """Peak anonymous memory of this process inside the `with` block."""

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
    """Start the run that `config` describes in this process and train for about `seconds`. Its files are removed."""
    with tempfile.TemporaryDirectory() as place, keeping_hops_in(Path(place)), MemoryWatch() as watch:
        began, compiled = time.monotonic(), count_compiled()
        run = Run.create(Path(place) / "run", config)
        trainer, starting = run.trainer, time.monotonic() - began
        trainer.share.settle_memory()
        trainer.share.begin(1)
        try:
            timed = _time_epochs(trainer, seconds)
            if trainer.has_nodes("val") and not timed.evaluations:
                timed.evaluate(trainer)
            if trainer.has_nodes("test"):  # as at the end of a run
                trainer.evaluate("test")
        finally:
            trainer._stream.close()
            trainer.share.release()
    wall, cpu, work = timed.sum_up()
    batches, evaluations = trainer.sampler.num_batches, timed.evaluations
    return Rehearsal(
        seconds=wall * batches,
        cpu=cpu * batches,
        work=work * batches,
        evaluation=float(np.median(evaluations[len(evaluations) > 1 :])) if evaluations else None,
        memory=watch.most,
        interval=trainer.eval_interval if evaluations else 1,
        compiling=timed.compiling,
        compiled=count_compiled() - compiled,
        starting=starting,
    )


def rehearse_apart(config: RunConfig, seconds: float, budget: int | None = None) -> Rehearsal:
    """`rehearse` in another process, whose memory is that of the run alone, within a memory budget."""
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


@dataclass
class _Timed:
    """Steps without compilation (seconds, CPU seconds, work), evaluations (seconds), and seconds of compilation."""

    steps: list[tuple[float, float, float]] = field(default_factory=list)
    evaluations: list[float] = field(default_factory=list)
    compiling: float = 0.0

    @property
    def is_enough(self) -> bool:
        return len(self.steps) > _STEPS and sum(step[0] for step in self.steps) >= _LONG

    def step(self, trainer: Trainer, batches: Iterator[Batch]) -> bool:
        """Draw a batch and train on it; False at the end of an epoch."""
        began, busy, compiled = time.perf_counter(), time.process_time(), count_compiled()
        batch = next(batches, None)
        if batch is None:
            return False
        trainer.train_step(batch)
        spent = time.perf_counter() - began
        if compiled != count_compiled():
            self.compiling += spent
        else:
            work = count_forward(trainer.model, batch)
            self.steps.append((spent, time.process_time() - busy, work))
        return True

    def evaluate(self, trainer: Trainer) -> None:
        """Evaluate as a run does after an epoch; seconds of compilation are left out."""
        record = trainer.evaluate_epoch()
        self.compiling += record["eval_compile_seconds"]
        self.evaluations.append(record["eval_seconds"] - record["eval_compile_seconds"])

    def sum_up(self) -> tuple[float, float, float]:
        """(seconds, CPU seconds, work) of a step. The first steps are dropped, at least one if there are several."""
        wall, cpu, work = np.array(self.steps[max(int(_FIRST * len(self.steps)), len(self.steps) > 1) :]).T
        return float(np.median(wall / work) * work.mean()), float(cpu.mean()), float(work.mean())


def _time_epochs(trainer: Trainer, seconds: float) -> _Timed:
    """Time steps for about `seconds`, at least two, and evaluations between epochs, as in a run.

    After the first, evaluations take at most half of that time.
    """
    timed, began = _Timed(), time.monotonic()

    def is_over() -> bool:
        steps = timed.steps
        if timed.is_enough or len(steps) < 2:
            return timed.is_enough
        spent = time.monotonic() - began - timed.compiling - sum(timed.evaluations)
        return spent + steps[-1][0] > seconds

    while not is_over():
        batches = iter(trainer.batches())
        with closing(batches) if isinstance(batches, Generator) else nullcontext():
            while not is_over() and timed.step(trainer, batches):
                pass
        trainer.epoch += 1
        is_due = trainer.epoch % trainer.eval_interval == 0 and trainer.has_nodes("val")
        known = timed.evaluations
        if is_due and (not known or sum(known) + known[-1] < seconds / 2):
            timed.evaluate(trainer)
    return timed


def main() -> None:
    """Run the job on stdin and print its result."""
    job = json.load(sys.stdin)
    set_memory_budget(job["budget"])
    config = make_config(job["config"])
    with redirect_stdout(sys.stderr):  # output of plug-ins is not part of the result
        try:
            config.validate()  # loads plug-ins
            answer = asdict(rehearse(config, job["seconds"]))
        except ShoalError as error:
            answer = {"refused": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
