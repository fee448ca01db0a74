"""Streaming columns of numbers from CSV files without a header, plain or gzipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from shoal.datasets.importers.files import open_text, reading
from shoal.errors import ShoalError

BLOCK_BYTES = 1 << 24
_LONGEST_LINE = BLOCK_BYTES  # the parser's limit


def stream_numbers(
    path: Path,
    dtype: type[np.generic],
    expected: str,
    *,
    num_columns: int | None = None,
    skip_empty: bool = True,
) -> Iterator[np.ndarray]:
    """Blocks of rows `(rows, columns)` of `dtype`. An empty cell is NaN, or an error if `dtype` is an integer."""
    with reading(path, expected):
        with open_text(path) as file:
            width = len(file.readline(_LONGEST_LINE).split(","))
        if num_columns is not None and width != num_columns:
            raise ShoalError(f"{path} has {width} columns: expected {expected}")
        try:
            for columns in stream_columns(path, [dtype] * width, delimiter=",", skip_empty=skip_empty):
                block = np.empty((len(columns[0]), width), dtype)
                for i, column in enumerate(columns):
                    block[:, i] = column
                yield block
        except pa.ArrowInvalid:
            raise _bad_line(path, width, dtype, expected) from None


def read_numbers(
    path: Path,
    dtype: type[np.generic],
    expected: str,
    *,
    num_columns: int | None = None,
    skip_empty: bool = True,
) -> np.ndarray:
    """All the rows of `stream_numbers` in one array."""
    blocks = list(stream_numbers(path, dtype, expected, num_columns=num_columns, skip_empty=skip_empty))
    if not blocks:
        raise ShoalError(f"{path} holds no numbers: expected {expected}")
    return np.concatenate(blocks)


def stream_columns(
    path: Path,
    kinds: Sequence[type[np.generic]],
    *,
    delimiter: str,
    skip_lines: int = 0,
    skip_empty: bool = True,
) -> Iterator[list[np.ndarray]]:
    """The first columns of a regular file, one for each of `kinds`, block by block; raises ArrowInvalid if the file is
    not regular."""
    types = {f"f{i}": pa.from_numpy_dtype(kind) for i, kind in enumerate(kinds)}
    reader = csv.open_csv(
        pa.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None),
        csv.ReadOptions(block_size=BLOCK_BYTES, skip_rows=skip_lines, autogenerate_column_names=True),
        csv.ParseOptions(delimiter=delimiter, quote_char=False, ignore_empty_lines=skip_empty),
        csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=["", '""', "nan", "NaN"],
        ),
    )
    for batch in reader:
        if any(column.null_count for column in batch.columns if pa.types.is_integer(column.type)):
            raise pa.ArrowInvalid("an empty cell")
        yield [column.to_numpy(zero_copy_only=False) for column in batch.columns]


def _bad_line(path: Path, width: int, dtype: type[np.generic], expected: str) -> ShoalError:
    convert = int if np.issubdtype(dtype, np.integer) else float
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            cells = line.rstrip("\r\n").split(",")
            if line.strip() and len(cells) != width:
                return ShoalError(
                    f"{path}: line {number} has {len(cells)} columns: expected {width} as in line 1"
                )
            for cell in cells if line.strip() else ():
                try:
                    if cell.strip() or convert is int:
                        convert(cell)
                except ValueError:
                    return ShoalError(f"{path}: line {number} holds {cell!r}: expected {expected}")
    return ShoalError(f"{path} holds a number that does not fit {np.dtype(dtype)}: expected {expected}")
