"""KeptLayers: results of layers that later layers, or the classifier, still read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.kernels.row_sets import Rows
from shoal.scratch import Matrix, Scratch


class KeptLayers:
    """The last finished layer's result, and for `jumping` the results of all layers, or their maximum so far."""

    def __init__(
        self, scratch: Scratch, num_rows: int, widths: Sequence[int], jumping: str, dtype: torch.dtype
    ) -> None:
        self.scratch, self.num_rows, self.widths, self.dtype = scratch, num_rows, widths, dtype
        self.jumping = jumping
        self._layers: dict[int, Matrix] = {}
        self._most: dict[int, Matrix] = {}

    @property
    def input(self) -> Tensor:
        """The last finished layer's result."""
        return self._layers[max(self._layers)].tensor

    def find(self) -> int:
        """The layer to start with: the first one that no earlier process has finished."""
        for number in range(len(self.widths) - 2, -1, -1):
            wanted = range(number + 1) if self.jumping == "concat" else (number,)
            found = {one: self._find("layer", one) for one in wanted}
            most = self._find("most", number) if self.jumping == "max" else None
            if all(found.values()) and (self.jumping != "max" or most is not None):
                self._layers = {one: matrix for one, matrix in found.items() if matrix is not None}
                self._most = {} if most is None else {number: most}
                return number + 1
        return 0

    def write(self, number: int, rows: Rows, out: Tensor) -> None:
        """Store rows of a layer's output; for max jumping also the maximum over the layers so far."""
        if number not in self._layers:
            self._layers[number] = self._make("layer", number)
        self._layers[number].write(rows, out)
        if self.jumping == "max":
            if number not in self._most:
                self._most[number] = self._make("most", number)
            before = self._most.get(number - 1)
            out = out if before is None else torch.maximum(before.tensor[rows], out)
            self._most[number].write(rows, out)

    def read(self, rows: Rows, out: Tensor) -> list[Tensor]:
        """The inputs of `GNN.jump` in the last layer, whose own result is `out`."""
        kept = {"concat": self._layers, "max": self._most}.get(self.jumping, {})
        return [*(kept[number].tensor[rows] for number in sorted(kept)), out]

    def finish(self, number: int) -> None:
        """Mark layer `number` as computed, and free its input unless the classifier reads all layers."""
        is_last = number == len(self.widths) - 1
        for kept in (self._most, self._layers):
            if number in kept:
                self.scratch.keep(kept[number])
        for kept in (self._most, self._layers):
            if is_last or kept is self._most or self.jumping != "concat":
                for one in [one for one in kept if is_last or one < number]:
                    kept.pop(one).close()

    def _make(self, what: str, number: int) -> Matrix:
        return self.scratch.make(self.num_rows, self.widths[number], self.dtype, f"{what}-{number + 1}")

    def _find(self, what: str, number: int) -> Matrix | None:
        return self.scratch.find(self.num_rows, self.widths[number], self.dtype, f"{what}-{number + 1}")
