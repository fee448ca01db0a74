"""The method `kaminpar`: fewest edges between parts, by KaMinPar, also of graphs that are too large for METIS."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Annotated

import numpy as np

from shoal.errors import ShoalError, explain_full_disk
from shoal.partitioning import kaminpar_job
from shoal.partitioning.methods.metis import clean_for_metis
from shoal.partitioning.work import PARTITION_METHODS, Work, traits
from shoal.settings import Choices

PRESETS = ("terapart", "terapart-eco", "terapart-largek", "default", "eco", "strong")
_AT_ONCE = 1 << 22  # entries that are written at once
_NO_EDGE_WEIGHTS, _NODES_32, _EDGE_WEIGHTS_32 = 1, 8, 32  # of a file's first number


@PARTITION_METHODS.named("kaminpar")
@traits(entry_bytes=40, node_bytes=150, needs={"kaminpar": "shoal[partition]"}, preference=3)
def assign_by_kaminpar(
    work: Work,
    *,
    preset: Annotated[
        str, Choices(PRESETS), "KaMinPar's preset; those of terapart compress the graph in memory"
    ] = "terapart",
) -> np.ndarray:
    """KaMinPar, fewest edges between parts, on one thread: with more threads its partitions differ from run to run."""
    return run_kaminpar(work, preset)


def has_kaminpar() -> bool:
    """Whether KaMinPar is installed."""
    return find_spec("kaminpar") is not None


def run_kaminpar(work: Work, preset: str = "default", seed: int | None = None) -> np.ndarray:
    """KaMinPar with the settings of a call of partition_graph, its seed among them unless one is given.

    It runs in a process of its own (`kaminpar_job.py` says why), and takes graphs as files of the ParHIP format only.
    """
    seed = work.seed if seed is None else seed
    with explain_full_disk(tempfile.gettempdir()), tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        with Path(folder, "graph").open("wb") as file:
            write_graph(file, *clean_for_metis(work.graph), work.weights)
        settings = (preset, seed % 2**31, work.num_parts, max(work.imbalance, 1e-4))
        ended = subprocess.run(
            [sys.executable, "-P", kaminpar_job.__file__, "graph", *map(str, settings), "assignment"],
            cwd=folder,
            env=os.environ | {"MALLOC_PERTURB_": "255"},  # uninitialised memory reads as 0
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"])[-1]
            raise ShoalError(f"KaMinPar failed ({last}): use another method, such as streaming")
        return np.fromfile(Path(folder, "assignment"), np.int32)


def write_graph(
    file: IO[bytes],
    indptr: np.ndarray,
    indices: np.ndarray,
    edge_weights: np.ndarray | None,
    node_weights: np.ndarray,
) -> None:
    """Write a graph without loops in the ParHIP format: 24 bytes, byte offsets of the rows, columns, weights."""
    is_short = len(indptr) <= 2**31
    flags = (_NODES_32 if is_short else 0) | (_NO_EDGE_WEIGHTS if edge_weights is None else _EDGE_WEIGHTS_32)
    np.array([flags, len(indptr) - 1, len(indices)], np.uint64).tofile(file)
    first = 24 + 8 * len(indptr)
    _write(file, indptr, np.uint64, factor=4 if is_short else 8, shift=first)
    _write(file, indices, np.uint32 if is_short else np.uint64)
    _write(file, node_weights, np.uint64)
    if edge_weights is not None:
        _write(file, edge_weights, np.uint32)
    file.flush()


def _write(file: IO[bytes], values: np.ndarray, dtype: type, factor: int = 1, shift: int = 0) -> None:
    for start in range(0, len(values), _AT_ONCE):
        chunk = values[start : start + _AT_ONCE]
        (chunk * factor + shift if factor > 1 else chunk).astype(dtype).tofile(file)
