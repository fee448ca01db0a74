"""Encodings of node-table columns as features: one class per kind, stored with the graph to encode new tables the same way."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.datasets.importers.cell_dates import NATIVE, encode_days, is_date, parse_dates
from shoal.datasets.importers.cell_numbers import blank, parse_numbers
from shoal.datasets.importers.tabular import Table, is_list, is_number, is_text, plain
from shoal.errors import ShoalError

VERSION = 1


@dataclass
class Tally:
    """Counts of missing and unknown values by column, for notices."""

    missing: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)


@dataclass
class Column:
    """One column. `marked`: an additional feature is 1 where the value is missing."""

    column: str
    marked: bool = False

    kind: ClassVar[str] = ""

    @property
    def names(self) -> list[str]:
        """The names of its features."""
        return [self.column]

    @property
    def all_names(self) -> list[str]:
        """The names of its features, the one that marks missing values last."""
        return [*self.names, *([f"{self.column} missing"] if self.marked else [])]

    def encode(self, table: Table, values: pa.Array, done: int, tally: Tally) -> np.ndarray:
        """float32 features `(rows, width)` of some rows, the first of which is row `done` of the table."""
        if pa.types.is_null(values.type):  # a column without any value
            values = values.cast(pa.large_string())
        block, missing = self._encode(table, values, done, tally)
        block = block.reshape(len(values), -1)
        count = int(np.count_nonzero(missing))
        if count and not self.marked:
            tally.missing[self.column] += count
        return np.hstack([block, missing[:, None].astype(np.float32)]) if self.marked else block

    def _encode(
        self, table: Table, values: pa.Array, done: int, tally: Tally
    ) -> tuple[np.ndarray, np.ndarray]:
        raise AssertionError(f"{type(self).__name__} encodes nothing")

    def _refuse(self, table: Table, values: pa.Array, row: int, done: int, expected: str) -> ShoalError:
        path, number = table.locate(done + row)
        cell = str(values[row].as_py())
        shown = repr(cell) if cell[-1:].isalpha() or not cell else cell
        return ShoalError(
            f"{path}: column {self.column!r} holds {shown} in row {number}: expected {expected}"
        )


@dataclass
class NumberColumn(Column):
    """A number, standardised if `deviation` is set; a missing one becomes the mean."""

    mark: str = ""  # the decimal mark of numbers in text
    mean: float = 0.0
    deviation: float = 0.0  # 0: not standardised

    kind: ClassVar[str] = "number"

    def _encode(
        self, table: Table, values: pa.Array, done: int, tally: Tally
    ) -> tuple[np.ndarray, np.ndarray]:
        found, missing = read_numbers(values, self.mark)
        wrong = ~np.isfinite(found) & ~missing
        with np.errstate(over="ignore"):
            wrong |= np.isinf(found.astype(np.float32))
        if wrong.any():
            row = int(np.argmax(wrong))
            how = "a number" if np.isnan(found[row]) else "a finite number"
            raise self._refuse(
                table, plain(values), row, done, f"{how}; --option exclude={self.column} leaves it out"
            )
        found = np.where(missing, self.mean, found)
        return ((found - self.mean) / self.deviation if self.deviation else found).astype(np.float32), missing


@dataclass
class ListColumn(Column):
    """A list of numbers, equally long in every row, such as an embedding."""

    width: int = 0

    kind: ClassVar[str] = "list"

    @property
    def names(self) -> list[str]:
        return [f"{self.column}[{i}]" for i in range(self.width)]

    def _encode(
        self, table: Table, values: pa.Array, done: int, tally: Tally
    ) -> tuple[np.ndarray, np.ndarray]:
        if not is_list(values.type) or not is_number(values.type.value_type):
            raise ShoalError(
                f"{table.path}: column {self.column!r} holds {values.type}: expected lists of numbers"
            )
        lengths = pc.fill_null(pc.list_value_length(values), -1)
        if not self.width and len(values):
            self.width = max(lengths[0].as_py(), 0)
        uneven = int(pc.index(pc.not_equal(lengths, self.width), True).as_py())
        if uneven >= 0:
            path, row = table.locate(done + uneven)
            found = "is empty" if lengths[uneven].as_py() < 0 else f"has {lengths[uneven]} values"
            raise ShoalError(
                f"{path}: column {self.column!r} {found} in row {row}: expected {self.width} values as in the rows before"
            )
        flat = values.flatten()
        with np.errstate(over="ignore"):
            block = to_floats(flat).astype(np.float32).reshape(len(values), self.width)
        wrong = ~np.isfinite(block).all(axis=1)
        if wrong.any():
            path, row = table.locate(done + int(np.argmax(wrong)))
            raise ShoalError(
                f"{path}: column {self.column!r} holds a missing or infinite value in row {row}: expected finite numbers"
            )
        return block, np.zeros(len(values), np.bool_)


@dataclass
class CategoryColumn(Column):
    """One-hot: one feature per value. Unknown values are all zeros."""

    values: list[str] = field(default_factory=list)

    kind: ClassVar[str] = "category"

    @property
    def names(self) -> list[str]:
        return [f"{self.column}={value}" for value in self.values]

    def _encode(
        self, table: Table, values: pa.Array, done: int, tally: Tally
    ) -> tuple[np.ndarray, np.ndarray]:
        cells = blank(to_text(table, self.column, values))
        missing = np.asarray(pc.is_null(cells))
        codes = pc.fill_null(pc.index_in(cells, pa.array(self.values, cells.type), skip_nulls=True), -1)
        numbers = np.asarray(codes)
        tally.unknown[self.column] += int(np.count_nonzero((numbers < 0) & ~missing))
        block = np.zeros((len(cells), len(self.values)), np.float32)
        rows = np.flatnonzero(numbers >= 0)
        block[rows, numbers[rows]] = 1
        return block, missing


@dataclass
class YesNoColumn(Column):
    """1 for `yes`, 0 for `no`, two words in any case."""

    yes: str = "yes"
    no: str = "no"

    kind: ClassVar[str] = "yes/no"

    def _encode(
        self, table: Table, values: pa.Array, done: int, tally: Tally
    ) -> tuple[np.ndarray, np.ndarray]:
        cells = pc.utf8_lower(blank(to_text(table, self.column, values)))
        missing = np.asarray(pc.is_null(cells))
        yes = np.asarray(pc.fill_null(pc.equal(cells, self.yes), False))
        no = np.asarray(pc.fill_null(pc.equal(cells, self.no), False))
        tally.unknown[self.column] += int(np.count_nonzero(~(yes | no | missing)))
        return yes.astype(np.float32), missing


@dataclass
class DateColumn(Column):
    """Years since the mean date, and sine and cosine of the time of year."""

    form: str = NATIVE
    mean: float = 0.0

    kind: ClassVar[str] = "date"

    @property
    def names(self) -> list[str]:
        return [f"{self.column} {part}" for part in ("years", "sine", "cosine")]

    def _encode(
        self, table: Table, values: pa.Array, done: int, tally: Tally
    ) -> tuple[np.ndarray, np.ndarray]:
        values = plain(values)
        form = self.form
        if is_date(values.type):
            form, missing = NATIVE, np.asarray(pc.is_null(values))
        else:
            form = "year-month-day" if form == NATIVE else form
            values = blank(to_text(table, self.column, values))
            missing = np.asarray(pc.is_null(values))
        days = parse_dates(values, form)
        wrong = np.isnan(days) & ~missing
        if wrong.any():
            expected = "a date between the years 1 and 9999" if form == NATIVE else f"a date, {form}"
            raise self._refuse(table, values, int(np.argmax(wrong)), done, expected)
        return encode_days(days, self.mean), missing


@dataclass
class WordsColumn(Column):
    """The words of a text, hashed into `width` signed features and scaled to length 1."""

    width: int = 64

    kind: ClassVar[str] = "words"

    @property
    def names(self) -> list[str]:
        return [f"{self.column} words {i}" for i in range(self.width)]

    def _encode(
        self, table: Table, values: pa.Array, done: int, tally: Tally
    ) -> tuple[np.ndarray, np.ndarray]:
        cells = blank(to_text(table, self.column, values))
        lists = split_words(pc.fill_null(cells, ""))
        lengths = np.asarray(pc.list_value_length(lists))
        words = lists.flatten().dictionary_encode()
        hashes = np.array([zlib.crc32(word.encode()) for word in words.dictionary.to_pylist()], np.int64)
        empty = np.asarray(pc.equal(words.dictionary, ""))
        signs = np.where(empty, 0, np.where(hashes & (1 << 31), -1, 1)).astype(np.float32)
        codes = np.asarray(words.indices)
        block = np.zeros((len(cells), self.width), np.float32)
        rows = np.repeat(np.arange(len(cells)), lengths)
        if len(codes):
            np.add.at(block, (rows, hashes[codes] % self.width), signs[codes])
        length = np.sqrt((block**2).sum(axis=1, keepdims=True))
        return block / np.where(length > 0, length, 1), np.asarray(pc.is_null(cells))


KINDS: dict[str, type[Column]] = {
    kind.kind: kind
    for kind in (NumberColumn, ListColumn, CategoryColumn, YesNoColumn, DateColumn, WordsColumn)
}


def split_words(cells: pa.Array) -> pa.Array:
    """The words of each cell as lists, in lower case; some words are empty."""
    return pc.split_pattern_regex(pc.utf8_lower(cells), r"[^\pL\pN]+")


def to_text(table: Table, name: str, values: pa.Array) -> pa.Array:
    """A column as large strings."""
    values = plain(values)
    try:
        return values.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ShoalError(f"{table.path}: column {name!r} holds {values.type}: expected text") from None


def read_numbers(values: pa.Array, mark: str) -> tuple[np.ndarray, np.ndarray]:
    """(cells as float64, NaN where missing or no number; which are missing); `mark` is the decimal mark of text."""
    values = plain(values)
    if is_text(values.type):
        cells = blank(values)
        return parse_numbers(cells, mark or "point"), np.asarray(pc.is_null(cells))
    if is_number(values.type):
        found = to_floats(values)
        return found, np.isnan(found)
    return np.full(len(values), np.nan), np.asarray(pc.is_null(values))


def to_floats(values: pa.Array) -> np.ndarray:
    """Numbers as float64, NaN where null."""
    return np.array(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def dump_columns(columns: list[Column]) -> dict[str, Any]:
    """The columns as JSON, to be stored with the graph."""
    return {
        "version": VERSION,
        "columns": [{"kind": column.kind, **asdict(column)} for column in columns],
    }


def load_columns(encoding: dict[str, Any], place: str) -> list[Column]:
    """The columns that `dump_columns` wrote; raises ShoalError for anything else."""
    damaged = ShoalError(f"{place} has no column encoding that this version reads: import it again")
    if encoding.get("version") != VERSION or not isinstance(encoding.get("columns"), list):
        raise damaged
    called = [encoding.get("id", ""), *(encoding.get("labels") or [])]
    if not all(isinstance(name, str) for name in called):
        raise damaged
    columns = []
    for entry in encoding["columns"]:
        if not isinstance(entry, dict) or entry.get("kind") not in [*KINDS]:
            raise damaged
        fresh: Any = KINDS[entry["kind"]]("")
        expected = asdict(fresh)
        given = {key: value for key, value in entry.items() if key != "kind"}
        if set(given) != set(expected) or not all(_is_like(given[key], expected[key]) for key in expected):
            raise damaged
        columns.append(KINDS[entry["kind"]](**given))
    return columns


def _is_like(value: Any, example: Any) -> bool:
    if isinstance(example, list):
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if isinstance(example, float):
        return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
    if type(example) is int:
        return type(value) is int and 0 <= value < 1 << 24
    return type(value) is type(example)
