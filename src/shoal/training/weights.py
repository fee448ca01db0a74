"""The weights that a trainer keeps beside the model's: the best, the last, and an exponential moving average."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from shoal.errors import ShoalError
from shoal.training.norm_statistics import list_norms, read_statistics, write_statistics


class KeptWeights:
    """Best, last and averaged weights of a model.

    With a `decay` d there is an exponential moving average (EMA): after the steps 1 … t with weights w_i it is
    `Σ d^(t-i) w_i / Σ d^(t-i)`. Evaluation uses the average; training continues with the raw weights. Buffers are not
    averaged.

    After a step, evaluation also measures the statistics of batch norm anew, with the weights it uses. Best weights keep
    them; training continues with its running statistics. Checkpoints store them if they were measured after their step.

    Args:
        decay: of the moving average; None for none.
        measure: called with the number of steps, sets the statistics of batch norms to those of the model's weights.

    Attributes:
        best: weights of the best evaluation, with buffers; None before the first.
        last: weights of the last step, with buffers, while the model holds others; else None.
        average: averaged weights by name; empty without a decay or before the first step.
        steps: number of averaged steps.
        statistics: means and variances of batch norm in evaluation; None before they are measured after a step.
    """

    def __init__(
        self, model: nn.Module, decay: float | None, measure: Callable[[int], None] = lambda step: None
    ) -> None:
        self.model, self.decay, self._measure = model, decay, measure
        self.best: dict[str, Tensor] | None = None
        self.last: dict[str, Tensor] | None = None
        self.average: dict[str, Tensor] = {}
        self.steps = 0
        self._is_raw = True  # the model has the weights of the last step
        self._step = 0  # optimizer steps before these weights
        self.statistics: list[Tensor] | None = None

    def follow_step(self, step: int) -> None:
        """Add the weights after optimizer step number `step` to the average."""
        self._is_raw, self._step, self.statistics = True, step, None
        if self.decay is None:
            return
        self.steps += 1
        rate = (1 - self.decay) / (1 - self.decay**self.steps)
        for name, weight in self.model.named_parameters():
            if name in self.average:
                self.average[name].lerp_(weight.detach(), rate)
            else:
                self.average[name] = weight.detach().clone()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the `with` block the model has the weights of evaluation, unless it already has a result of training.

        These are the averaged weights, if there are any, and statistics of batch norm without dropout.
        """
        if not self._is_raw:
            yield
            return
        names = self.average.keys()
        raw = {name: one.detach().clone() for name, one in self.model.named_parameters() if name in names}
        running = read_statistics(self.model)
        self._is_raw = False
        try:
            self._fill(self.average)
            self._fill_statistics()
            yield
        finally:
            self._fill(raw)
            write_statistics(self.model, running)
            self._is_raw = True

    def keep_best(self) -> None:
        """Keep a copy of the model's weights as the best."""
        self.best = self._copy()

    def measure_result(self) -> None:
        """Measure the statistics of the result of training, unless it is that of an evaluation."""
        if self.best is None:
            with self.averaged():
                pass

    def set_aside(self) -> None:
        """Load the result of training into the model, the best weights or the average. The last weights are kept."""
        self.last = self._copy()
        self.restore_best()

    def restore_best(self) -> None:
        """Load the weights of the best evaluation into the model; without one, those that an evaluation would use."""
        if self.best is not None:
            self.model.load_state_dict(self.best)
        else:
            self._fill(self.average)
            self._fill_statistics()
        self._is_raw = False

    def take_up(self) -> None:
        """Load the last weights back into the model, if it holds others."""
        if self.last is not None:
            self.model.load_state_dict(self.last)
            self.last, self._is_raw = None, True

    def resume(
        self, path: Path, step: int, average: Mapping[str, Tensor], steps: int, statistics: list[Tensor]
    ) -> None:
        """Resume the average of `steps` steps and the statistics of the checkpoint `path`, written after step `step`.

        Without an average in the checkpoint it starts anew; without statistics an evaluation measures them.
        """
        self._is_raw, self.average, self.steps = True, {}, 0
        self._step, self.statistics = step, statistics or None
        shapes = [one.shape for one in read_statistics(self.model)]
        if statistics and [one.shape for one in statistics] != shapes:
            raise ShoalError(f"{path} does not fit this model: its batch norms have other shapes")
        if self.decay is None and average:
            self.statistics = None  # they are those of the average
        if self.decay is None or not average:
            return
        expected = {name: weight.shape for name, weight in self.model.named_parameters()}
        if {name: value.shape for name, value in average.items()} != expected or steps == 0:
            raise ShoalError(
                f"{path} does not fit this model: its averaged weights have other names or shapes"
            )
        self.average, self.steps = dict(average), steps

    def _fill(self, weights: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                if name in weights:
                    weight.copy_(weights[name])

    def _fill_statistics(self) -> None:
        """Give the model's batch norms the statistics of evaluation; those of untrained weights stay as they are."""
        if self._step == 0 or not list_norms(self.model):
            return
        if self.statistics is None:
            self._measure(self._step)
            self.statistics = read_statistics(self.model)
        write_statistics(self.model, self.statistics)

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}
