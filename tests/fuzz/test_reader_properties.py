"""Readers of texts and small files take any bytes: they answer, or refuse with a ShoalError."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.analysis.machine import read_machine
from shoal.datasets.importers import import_graph
from shoal.errors import ShoalError
from shoal.runs.config import read_config
from shoal.runs.folder import read_metrics
from shoal.training.checkpoint import HALO_FORMAT, read_own

numbers = st.integers(-3, 40).map(str) | st.sampled_from(
    ["1e3", "nan", "-0", "9" * 30, "2147483648", "٣", "", '"1"']
)
cells = numbers | st.text(max_size=4)
rows = st.lists(st.lists(cells, max_size=4), max_size=8)


def table(separator: str, first: str = "") -> st.SearchStrategy[bytes]:
    return rows.map(
        lambda found: (first + "\n".join(map(separator.join, found))).encode("utf-8", "surrogatepass")
    )


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(
    st.sampled_from(["latency", "bandwidth", "dense_rate", "sparse_rate", "ranks", "crowd", "epoch", "loss"]),
    values,
)


def read(path: Path) -> Any:
    return import_graph(path, name="g")


READERS: dict[str, tuple[Callable[[Path], Any], st.SearchStrategy[bytes]]] = {
    "edges.csv": (read, table(",", "source,target\n")),
    "edges.tsv": (read, table("\t", "src\tdst\n")),
    "graph.txt": (read, table(" ", "# a comment\n")),
    "graph.mtx": (read, table(" ", "%%MatrixMarket matrix coordinate real general\n")),
    "edges.npy": (read, st.binary(max_size=80).map(lambda rest: b"\x93NUMPY\x01\x00" + rest)),
    "graph.npz": (read, st.binary(max_size=80).map(lambda rest: b"PK\x03\x04" + rest)),
    "recipe.yaml": (read_config, table(": ")),
    "machine.json": (
        read_machine,
        objects.map(lambda found: repr(found).replace("'", '"').encode("utf-8", "replace")),
    ),
    "metrics.jsonl": (
        read_metrics,
        st.lists(objects, max_size=3).map(
            lambda found: "\n".join(map(repr, found)).replace("'", '"').encode("utf-8", "replace")
        ),
    ),
    "halo-3-1.safetensors": (
        lambda path: read_own(path.parent, HALO_FORMAT, 3, 1),
        st.binary(max_size=60).map(lambda rest: len(rest).to_bytes(8, "little") + rest),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_any_content_is_read_or_refused(name: str, tmp_path: Path) -> None:
    reader, content = READERS[name]

    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(content | st.binary(max_size=60))
    def check(found: bytes) -> None:
        (tmp_path / name).write_bytes(found)
        with suppress(ShoalError):
            reader(tmp_path / name)

    check()
