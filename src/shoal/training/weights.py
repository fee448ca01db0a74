"""The weights that a trainer keeps beside those it trains: the best ones, the last ones and their moving average."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from shoal.errors import ShoalError


class KeptWeights:
    """What a trainer knows of its model's weights beside the model itself.

    With a `decay` d there is an exponential moving average: after the steps 1 … t with weights w_i it is
    `Σ d^(t-i) w_i / Σ d^(t-i)`. Evaluation uses it; steps go on with the weights they made. Buffers, such as the running
    statistics of batch norm, are moving averages already: those of the model are used beside averaged weights.

    Attributes:
        best: of the best evaluation, buffers included; None before there is one.
        last: those of the last step, buffers included, while the model has others; else None.
        average: by name of the weight; empty without a decay or a step.
        steps: how many are averaged.
    """

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self.model, self.decay = model, decay
        self.best: dict[str, Tensor] | None = None
        self.last: dict[str, Tensor] | None = None
        self.average: dict[str, Tensor] = {}
        self.steps = 0
        self._is_raw = True  # the model has the weights of the last step

    def follow_step(self) -> None:
        """Take a step's weights into the average."""
        self._is_raw = True
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
        """The model has the average inside the block, unless the weights in it are a result already."""
        if not self._is_raw or not self.average:
            yield
            return
        raw = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
        self._fill(self.average)
        self._is_raw = False
        try:
            yield
        finally:
            self._fill(raw)
            self._is_raw = True

    def keep_best(self) -> None:
        """Remember what the model has now."""
        self.best = self._copy()

    def set_aside(self) -> None:
        """Put the result of training into the model, the best weights or the average; the last ones are kept."""
        self.last = self._copy()
        self.restore_best()

    def restore_best(self) -> None:
        """Put in the weights of the best evaluation; where there is none, the average."""
        if self.best is not None:
            self.model.load_state_dict(self.best)
        elif self.average:
            self._fill(self.average)
        self._is_raw = False

    def take_up(self) -> None:
        """Put back the last weights, if others are in the model."""
        if self.last is not None:
            self.model.load_state_dict(self.last)
            self.last, self._is_raw = None, True

    def load_average(self, path: Path, average: Mapping[str, Tensor], steps: int) -> None:
        """Go on with the average of a checkpoint in `path`; from one without it starts anew."""
        self._is_raw, self.average, self.steps = True, {}, 0
        if self.decay is None or not average:
            return
        expected = {name: weight.shape for name, weight in self.model.named_parameters()}
        if {name: value.shape for name, value in average.items()} != expected or steps == 0:
            raise ShoalError(f"{path} does not fit this model: its averaged weights are others")
        self.average, self.steps = dict(average), steps

    def _fill(self, weights: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                weight.copy_(weights[name])

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}
