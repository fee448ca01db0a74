"""Tables in several files: a folder of Parquet or CSV parts, or files named `edges-1.csv`, `edges-2.csv`, …"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from shoal.datasets.importers.tabular import CSV_ENDINGS, PARQUET_ENDINGS, ROWS_AT_ONCE, Table, TableFile
from shoal.errors import ShoalError

ENDINGS = PARQUET_ENDINGS + CSV_ENDINGS


class TableParts(Table):
    """Files with the same columns, read one after the other."""

    def __init__(self, path: Path, files: list[Path], *, header: bool = True) -> None:
        self.path = path
        self.parts = [TableFile(file, header=header) for file in files]
        first = self.parts[0]
        self.names, self.is_csv, self.header = first.names, first.is_csv, header
        self.delimiter = first.delimiter
        self._starts: list[int] = []  # the first row of every part that was read so far
        for part in self.parts[1:]:
            if sorted(part.names) != sorted(first.names) or part.is_csv != first.is_csv:
                raise ShoalError(
                    f"{part.path} has the columns {', '.join(part.names)}: expected {', '.join(first.names)} as in {first.path.name}"
                )
        self.types = {name: self._find_type(name) for name in self.names}
        counts = [part.num_rows for part in self.parts]
        self.num_rows = None if None in counts else sum(count or 0 for count in counts)

    def batches(self, columns: list[str], rows: int = ROWS_AT_ONCE) -> Iterator[pa.RecordBatch]:
        self._starts, done = [], 0
        for part in self.parts:
            self._starts.append(done)
            for batch in part.batches(columns, rows):
                done += len(batch)
                empty = [name for name in columns if pa.types.is_null(batch.column(name).type)]
                for name in empty:
                    at = columns.index(name)
                    batch = batch.set_column(at, name, pa.nulls(len(batch), self.types[name]))
                yield batch

    def locate(self, row: int) -> tuple[Path, int]:
        part = max(bisect_right(self._starts, row) - 1, 0)
        return self.parts[part].path, row - (self._starts[part] if self._starts else 0) + 1

    def _find_type(self, name: str) -> pa.DataType:
        """The type of a column; a part in which the column is empty may have none."""
        types = {str(part.types[name]): part.types[name] for part in self.parts}
        types.pop("null", None)
        if len(types) > 1:
            raise ShoalError(
                f"{self.path}: column {name!r} holds {' in some files and '.join(types)} in others: expected one type"
            )
        return next(iter(types.values()), pa.null())


def open_table(path: Path, *, header: bool = True) -> Table:
    """The table in a file, or in the parts that a folder holds."""
    if not path.is_dir():
        parts = list_parts(path) if not path.exists() else []
        return TableParts(path, parts, header=header) if parts else TableFile(path, header=header)
    files = list_files(path)
    if not files:
        raise ShoalError(f"{path} holds no table: expected files ending in {', '.join(ENDINGS)}")
    return TableParts(path, files, header=header)


def list_files(folder: Path) -> list[Path]:
    """The table files in a folder, by name, without hidden files and those that begin with `_` (metadata of writers)."""
    found = [path for path in folder.iterdir() if path.name.endswith(ENDINGS) and path.is_file()]
    return sorted(path for path in found if not path.name.startswith((".", "_")))


def list_parts(path: Path) -> list[Path]:
    """The files STEM-*.csv, STEM_*.csv and the like of a path that ends in STEM."""
    if not path.parent.is_dir():
        return []
    starts = (f"{path.name}-", f"{path.name}_")
    return [file for file in list_files(path.parent) if file.name.startswith(starts)]


def find_table(folder: Path, stem: str) -> Path | None:
    """STEM.csv, STEM.parquet and the like in `folder`, a folder STEM/ or STEM.parquet/ of parts, or several files STEM-*."""
    found = [folder / f"{stem}{ending}" for ending in ENDINGS]
    for path in found:
        if path.is_file() or (path.is_dir() and list_files(path)):
            return path
    whole = folder / stem
    if whole.is_dir() and list_files(whole):
        return whole
    return whole if list_parts(whole) else None
