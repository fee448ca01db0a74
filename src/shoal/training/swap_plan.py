"""Traffic and memory of an epoch with swapped parts, predicted before any part is cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.graph import Graph
from shoal.kernels.encoding import EncodedRows
from shoal.models.stages import FEATURES, Stage
from shoal.partitioning.filed import PartSizes
from shoal.wording import format_bytes

FORWARD, BACKWARD, BOTH = "forward", "backward", "both"  # both: the last stage, in one pass
_CUT_BYTES = (
    40  # per entry while a part is cut: patterns of local and halo entries, joined, with loops, transposed
)
_SMALL = 1 << 23  # bytes that the C library's heap and threads keep
_NOBODY = np.empty(0, np.int64)


@dataclass
class Traffic:
    """Bytes read and written, by layer and direction: rows of matrices, features and patterns."""

    moved: dict[tuple[int, str], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def count(self, layer: int, direction: str, *, read: int = 0, written: int = 0) -> None:
        """Add bytes read and written for a layer and direction."""
        entry = self.moved[layer, direction]
        entry[0] += read
        entry[1] += written

    @property
    def read(self) -> int:
        """Bytes read."""
        return sum(entry[0] for entry in self.moved.values())

    @property
    def written(self) -> int:
        """Bytes written."""
        return sum(entry[1] for entry in self.moved.values())

    def to_record(self) -> dict[str, Any]:
        """The traffic as entries of an epoch's record."""
        swaps = [
            {"layer": layer, "direction": way, "read": entry[0], "written": entry[1]}
            for (layer, way), entry in self.moved.items()
        ]
        return {"bytes_read": self.read, "bytes_written": self.written, "swaps": swaps}


@dataclass(frozen=True)
class SwapPlan:
    """The stages of a model on parts of certain sizes.

    Attributes:
        item: bytes per value.
        further: label columns after the features; they are not in a file.
    """

    graph: Graph
    stages: Sequence[Stage]
    sizes: PartSizes
    item: int
    further: int = 0

    def list_passes(self) -> list[tuple[Stage, str, bool]]:
        """The passes of a step in order: (stage, direction, whether it only computes the sums of a batch norm)."""
        *others, last = self.stages
        passes = []
        for stage in others:
            passes += [(stage, FORWARD, True)] if stage.norm is not None else []
            passes.append((stage, FORWARD, False))
        passes.append((last, BOTH, False))
        for stage in reversed(others):
            passes += [(stage, BACKWARD, True)] if stage.norm is not None else []
            passes.append((stage, BACKWARD, False))
        return passes

    def width(self, value: int) -> int:
        """Columns of a value."""
        if value == FEATURES:
            return self.graph.num_features + self.further
        return self.stages[value - 1].width

    def is_read_wide(self, value: int) -> bool:
        """Whether halo rows of a value are read, and their gradients returned."""
        return any(stage.source == value and stage.is_wide for stage in self.stages)

    def adds_to(self, stage: Stage, value: int) -> bool:
        """Whether a later stage, which the backward pass visits first, has written gradients of the value."""
        behind = self.stages[self.stages.index(stage) + 1 :]
        return any(value in (one.source, *one.others) for one in behind)

    def predict(self) -> Traffic:
        """The exact number of bytes that an epoch reads and writes."""
        traffic = Traffic()
        rows, halo = int(self.sizes.local.sum()), int(self.sizes.halo.sum())
        for stage, way, measures in self.list_passes():
            read = self._count_inputs(stage, rows, halo)
            if stage.is_wide:
                read += self.sizes.pattern_bytes + (self.sizes.transpose_bytes if way != FORWARD else 0)
            written = 0
            result = self.stages.index(stage) + 1
            if way == BACKWARD:
                both = rows + (halo if self.is_read_wide(result) else 0)
                read += self.item * both * stage.width
            if way == FORWARD and not measures:
                written += self.item * rows * stage.width
            if way != FORWARD and not measures:
                for value in {stage.source, *stage.others} - {FEATURES}:
                    own = self.item * rows * self.width(value)
                    read += own if self.adds_to(stage, value) else 0
                    written += own
                if stage.is_wide and stage.source != FEATURES:
                    written += self.item * halo * self.width(stage.source)
            traffic.count(stage.layer, way, read=read, written=written)
        return traffic

    def describe(self, place: Path) -> str:
        """The size and traffic of the files in a folder, in words."""
        moved = self.predict()
        return (
            f" and files of {format_bytes(self.filed)} in {place}, of which an epoch reads {format_bytes(moved.read)} "
            f"and writes {format_bytes(moved.written)}"
        )

    def _count_inputs(self, stage: Stage, rows: int, halo: int) -> int:
        """Bytes of the values that a pass of a stage reads."""
        wide = halo if stage.is_wide else 0
        read = self.item * rows * self.graph.num_features if stage.knows else 0
        for value in {stage.source, *stage.others}:
            more = wide if value == stage.source else 0
            if value != FEATURES:
                read += self.item * (rows + more) * self.width(value)
            else:
                read += count_features(self.graph, rows, more, self.sizes.halo_entries if more else 0)
        return read

    @property
    def filed(self) -> int:
        """Bytes of the files: activations, gradients, gradients of halo rows, patterns, and the precomputed `A x`."""
        rows, halo = int(self.sizes.local.sum()), int(self.sizes.halo.sum())
        total = 8 * (rows + halo) + self.sizes.pattern_bytes + self.sizes.transpose_bytes
        total -= (
            4 * int(self.sizes.entries.sum()) if self.sizes.weighted else 0
        )  # both directions share one file of weights
        for value in range(1, len(self.stages)):
            both = 2 * rows + (halo if self.is_read_wide(value) else 0)
            total += self.item * both * self.width(value)
        known = rows * self.graph.num_features if self.stages[0].knows else 0
        return total + self.item * known

    @property
    def held(self) -> int:
        """Bytes of memory that computing or cutting the largest part takes."""
        local, halo, entries = self.sizes.largest
        most = 0
        for stage in self.stages:
            wide = local + (halo if stage.is_wide else 0)
            source = wide * self.width(stage.source)
            others = local * sum(self.width(value) for value in stage.others)
            known = local * self.graph.num_features if stage.knows else 0
            inputs = source + others + known
            results = (3 * wide + 4 * local) * max(stage.width, stage.inner) + entries * stage.per_entry
            most = max(
                most, 4 * inputs + results
            )  # inputs of this part, of the next, gradients, and gradients being written
        vectors = 24 * int(self.sizes.local.sum())  # members, positions, and the index of halo nodes
        return _SMALL + max(self.item * most + 16 * (local + halo), _CUT_BYTES * entries + vectors)


def count_features(graph: Graph, rows: int, halo: int = 0, halo_entries: int = 0) -> int:
    """Bytes of the stored features of all `rows`, and of `halo` rows with `halo_entries` sparse entries."""
    x = graph.find_features(_NOBODY)[0]
    if isinstance(x, sp.csr_array):
        return (x.nnz + halo_entries) * (x.data.itemsize + x.indices.itemsize) + 8 * (rows + halo)
    codes = x.codes if isinstance(x, EncodedRows) else x
    return int((rows + halo) * codes.shape[1] * codes.dtype.itemsize)
