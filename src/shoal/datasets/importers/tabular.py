"""Streaming record batches from CSV and Parquet files, so that a table is never in memory as a whole."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from shoal.datasets.importers.files import compression_of, open_text, reading
from shoal.datasets.importers.parquet_pages import check_pages
from shoal.errors import ShoalError, suggest_name

CSV_ENDINGS = tuple(f"{kind}{packed}" for packed in ("", ".gz", ".zst") for kind in (".csv", ".tsv"))
PARQUET_ENDINGS = (".parquet", ".pq")
BLOCK_BYTES = 1 << 24
ROWS_AT_ONCE = 1 << 20
EXPECTED = "a CSV or Parquet table"


class Table:
    """Named columns that are read in batches of rows; `delimiter` is that of a CSV file."""

    path: Path
    names: list[str]
    types: dict[str, pa.DataType]
    num_rows: int | None = None
    is_csv = False
    header = True
    delimiter = ""

    def require(self, column: str) -> str:
        """`column`; raises ShoalError if the table has none of that name."""
        if column not in self.names:
            hint = suggest_name(column, self.names)
            held = f"it has {', '.join(self.names)}"
            raise ShoalError(f"{self.path} has no column {column!r}: {f'{hint} ({held})' if hint else held}")
        return column

    def find(self, *usual: str) -> str | None:
        """The first of the `usual` names that a column has, in any case."""
        lower = {name.lower(): name for name in reversed(self.names)}
        return next((lower[name] for name in usual if name in lower), None)

    def batches(self, columns: list[str], rows: int = ROWS_AT_ONCE) -> Iterator[pa.RecordBatch]:
        """The `columns`, about `rows` rows at a time."""
        raise AssertionError(f"{type(self).__name__} reads nothing")

    def locate(self, row: int) -> tuple[Path, int]:
        """The file that row `row` is in, of those read so far, and its number there, from 1."""
        return self.path, row + 1


class TableFile(Table):
    """A CSV or Parquet file read column by column. Cells of a CSV file arrive as strings, null where empty.

    The delimiter is a comma, in a .tsv file a tab. If that does not split the first line, a comma, semicolon or tab that
    does is used.
    `header=False` numbers the columns of a CSV file that has no header line.
    """

    def __init__(self, path: Path, *, header: bool = True) -> None:
        self.path = path
        self._checked: set[str] = set()  # columns of a Parquet file whose page sizes were checked
        self.is_csv = path.name.endswith(CSV_ENDINGS)
        self.header = header
        if not self.is_csv and not path.name.endswith(PARQUET_ENDINGS):
            raise ShoalError(f"{path} is no table: expected {', '.join(CSV_ENDINGS + PARQUET_ENDINGS)}")
        with reading(path, EXPECTED):
            if self.is_csv:
                self.delimiter, first = self._split_first_line()
                self.names = first if header else [str(i) for i in range(len(first))]
                self.types = dict.fromkeys(self.names, pa.string())
            else:
                with pq.ParquetFile(path) as file:
                    self.names = list(file.schema_arrow.names)
                    self.types = {field.name: field.type for field in file.schema_arrow}
                    self.num_rows = file.metadata.num_rows
        if not self.names:
            raise ShoalError(f"{path} has no columns: expected {EXPECTED}")
        repeated = next((name for i, name in enumerate(self.names) if name in self.names[:i]), None)
        if repeated is not None:
            raise ShoalError(f"{path} has two columns {repeated!r}: expected distinct names")

    def batches(self, columns: list[str], rows: int = ROWS_AT_ONCE) -> Iterator[pa.RecordBatch]:
        with reading(self.path, EXPECTED):
            if self.is_csv:
                yield from self._csv_batches(columns)
                return
            with pq.ParquetFile(
                self.path, pre_buffer=False, buffer_size=BLOCK_BYTES, page_checksum_verification=True
            ) as file:
                if new := set(columns) - self._checked:
                    check_pages(self.path, new)
                    self._checked |= new
                for batch in file.iter_batches(rows, columns=columns, use_threads=False):
                    batch.validate(full=True)  # invalid UTF-8, codes outside a dictionary
                    yield batch

    def _csv_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        stream = pa.input_stream(str(self.path), compression=compression_of(self.path))
        try:
            for batch in arrow_csv.open_csv(
                stream,
                arrow_csv.ReadOptions(block_size=BLOCK_BYTES, column_names=self.names, skip_rows=self.header),
                arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                arrow_csv.ConvertOptions(
                    column_types={name: pa.string() for name in columns},
                    include_columns=columns,
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            ):
                trimmed = [pc.ascii_trim_whitespace(column) for column in batch.columns]
                yield pa.RecordBatch.from_arrays(trimmed, names=columns)
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):  # a header and no rows
                return
            ragged = self._find_ragged_line()
            if ragged is None:
                raise
            raise ragged from None

    def _split_first_line(self) -> tuple[str, list[str]]:
        """The delimiter and the first line's cells."""
        usual = "\t" if ".tsv" in self.path.suffixes else ","
        first: dict[str, list[str]] = {}
        for delimiter in dict.fromkeys((usual, ",", ";", "\t")):
            with open_text(self.path) as file:
                cells = next(csv.reader(file, delimiter=delimiter), [])
            first[delimiter] = [cell.strip().removeprefix("\ufeff") for cell in cells]
        chosen = next((delimiter for delimiter, cells in first.items() if len(cells) > 1), usual)
        return chosen, first[chosen]

    def _find_ragged_line(self) -> ShoalError | None:
        with open_text(self.path) as file:
            reader = csv.reader(file, delimiter=self.delimiter)
            for cells in reader:
                if cells and len(cells) != len(self.names):
                    return ShoalError(
                        f"{self.path}: line {reader.line_num} has {len(cells)} columns: expected {len(self.names)} ({', '.join(self.names)})"
                    )
        return None


def plain(column: pa.Array) -> pa.Array:
    """A column without dictionary encoding, its strings as large strings."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if (
        pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_string_view(column.type)
    ):
        return column.cast(pa.large_string())
    return column


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is text, plain or dictionary-encoded."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a number or a boolean."""
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(numeric or pa.types.is_boolean(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a list."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def first_null(column: pa.Array) -> int:
    """The first row that is null or NaN, or -1."""
    return int(pc.index(pc.is_null(column, nan_is_null=True), True).as_py())


def to_integers(text: pa.Array) -> pa.Array | None:
    """Strings as int64 if every one is an integer in canonical form (not `007`), else None."""
    try:
        numbers = text.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    same = pc.equal(numbers.cast(text.type), text)
    return numbers if pc.all(same).as_py() is not False else None
