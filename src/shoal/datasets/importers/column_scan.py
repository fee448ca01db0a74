"""Detection of what a column of a node table holds, by reading all of it: numbers, dates, yes/no, categories, text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.datasets.importers.cell_dates import FORMS, LOOKS_LIKE, NATIVE, is_date, parse_dates
from shoal.datasets.importers.cell_numbers import (
    COMMA,
    POINT,
    blank,
    count_shapes,
    parse_numbers,
    parse_plain,
)
from shoal.datasets.importers.feature_columns import (
    CategoryColumn,
    Column,
    DateColumn,
    ListColumn,
    NumberColumn,
    WordsColumn,
    YesNoColumn,
    split_words,
    to_floats,
    to_text,
)
from shoal.datasets.importers.tabular import Table, is_list, is_number, is_text, plain
from shoal.errors import ShoalError

PAIRS = (
    ("yes", "no"),
    ("true", "false"),
    ("y", "n"),
    ("t", "f"),
    ("on", "off"),
    ("ja", "nein"),
    ("oui", "non"),
    ("sí", "no"),
    ("si", "no"),
    ("sì", "no"),
    ("sim", "não"),
    ("да", "нет"),
)
_KEY_SHARE = 0.8  # share of distinct values from which a column is a key
_WORDS_OF_TEXT = 2.5  # words per cell, on average, from which a column is prose
_CELLS_LOOKED_AT = 1 << 16  # for the two figures above
# One word, with any characters (an address, a path), in scripts that have spaces between words.
_ONE_WORD = r"^[^\s,;|\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+$"


@dataclass(frozen=True)
class ColumnOptions:
    """Options for columns: see the settings of the table format."""

    categories: tuple[str, ...] = ()
    max_categories: int = 32
    words: int = 64
    decimal: str | None = None
    day_first: bool | None = None
    standardize: bool | None = None


class Moments:
    """Count, mean and sum of squared deviations of values, updated by blocks."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, values: np.ndarray) -> None:
        """Update count, mean and squared deviations by finite `values`."""
        values = values[np.isfinite(values)]
        if not len(values):
            return
        mean, total = float(values.mean()), self.count + len(values)
        gap = mean - self.mean
        self.squares += float(((values - mean) ** 2).sum()) + gap * gap * self.count * len(values) / total
        self.mean += gap * len(values) / total
        self.count = total

    @property
    def deviation(self) -> float:
        """The standard deviation; exactly 0 for a constant column, despite rounding."""
        found = float(np.sqrt(self.squares / self.count)) if self.count else 0.0
        return found if found > 1e-9 * abs(self.mean) else 0.0


class ColumnScan:
    """The scan of one column: `add` takes its cells block by block, `decide` returns its encoding.

    Means and standard deviations are those of the rows that `train` marks.
    """

    def __init__(self, table: Table, name: str, options: ColumnOptions) -> None:
        self.table, self.name, self.options = table, name, options
        self.remedy = f"--option categories={name} takes it as text, exclude={name} leaves it out"
        self.rows = self.filled = 0
        self.native = plain(pa.array([], table.types[name])).type
        self.as_category = name in options.categories
        self.is_text = is_text(self.native) or self.as_category
        self.numbers = {POINT: 0, COMMA: 0}  # filled cells that are numbers with that decimal mark
        self.dates = dict.fromkeys([NATIVE] if is_date(self.native) else FORMS, 0)
        self.moments = {key: Moments() for key in (*self.numbers, *self.dates)}
        self.comma: str | None = None  # the first cell that has one
        self.odd: dict[
            str, tuple[int, str]
        ] = {}  # the first row that is no such number or date, and its cell
        self.plain = False  # a block of cells was numbers throughout
        self.counts: Counter[str] = Counter()
        self.looked = self.words = self.single = 0
        self.different: set[str] = set()

    def add(self, values: pa.Array, train: np.ndarray | None) -> None:
        """Update the scan by a chunk of the column; `train` marks rows of training nodes, None for all."""
        done = self.rows
        self.rows += len(values)
        if not (self.is_text or is_number(self.native) or is_date(self.native)):
            return
        if not self.is_text:
            found = parse_dates(values, NATIVE) if is_date(self.native) else to_floats(plain(values))
            self.filled += int(np.count_nonzero(~np.isnan(found)))
            self._note(NATIVE if is_date(self.native) else POINT, found, train)
            return
        cells = blank(to_text(self.table, self.name, values))
        filled = len(cells) - cells.null_count
        self.filled += filled
        if filled and not self.as_category:
            as_before = self.numbers[POINT] == self.filled - filled and self.options.decimal != COMMA
            numbers = parse_plain(cells) if as_before else None
            if numbers is not None:
                self._add_plain(cells, numbers, filled, train, done)
                return
            self._add_numbers(cells, train, done)
            self._add_dates(cells, train, done)
        self._add_values(cells)

    def _note(self, key: str, found: np.ndarray, train: np.ndarray | None) -> None:
        self.moments[key].add(found if train is None else found[train])

    def _add_plain(
        self, cells: pa.Array, found: np.ndarray, filled: int, train: np.ndarray | None, done: int
    ) -> None:
        """Add cells that are all numbers in plain notation; their distinct values are not counted."""
        self.plain = True
        self.numbers[POINT] += filled
        self._note(POINT, found, train)
        points = pc.match_substring(cells, ".")
        self.numbers[COMMA] += filled - (pc.sum(points).as_py() or 0)
        self._note(COMMA, found, train)
        self._note_odd(COMMA, points, cells, done)

    def _add_numbers(self, cells: pa.Array, train: np.ndarray | None, done: int) -> None:
        comma = int(pc.index(pc.match_substring(cells, ","), True).as_py())
        if comma >= 0 and self.comma is None:
            self.comma = cells[comma].as_py()
        for mark, fits in count_shapes(cells).items():
            self.numbers[mark] += pc.sum(fits).as_py() or 0
            self._note(mark, parse_numbers(cells, mark), train)
            self._note_odd(mark, pc.invert(fits), cells, done)

    def _add_dates(self, cells: pa.Array, train: np.ndarray | None, done: int) -> None:
        if not pc.any(pc.match_substring_regex(cells, LOOKS_LIKE)).as_py():
            return
        for form in FORMS:
            days = parse_dates(cells, form)
            self.dates[form] += int(np.count_nonzero(~np.isnan(days)))
            self._note(form, days, train)
            self._note_odd(form, pa.array(np.isnan(days) & np.asarray(pc.is_valid(cells))), cells, done)

    def _note_odd(self, key: str, odd: pa.Array, cells: pa.Array, done: int) -> None:
        row = int(pc.index(odd, True).as_py())
        if row >= 0 and key not in self.odd:
            self.odd[key] = (done + row, str(cells[row].as_py()))

    def _add_values(self, cells: pa.Array) -> None:
        filled = cells.drop_null()
        if len(self.counts) <= self.options.max_categories:
            for count in pc.value_counts(filled).to_pylist():
                self.counts[count["values"]] += count["counts"]
        some = filled.slice(0, max(_CELLS_LOOKED_AT - self.looked, 0))
        self.looked += len(some)
        self.words += len(split_words(some).flatten())
        self.single += pc.sum(pc.match_substring_regex(some, _ONE_WORD)).as_py() or 0
        self.different.update(pc.unique(some).to_pylist())

    @property
    def is_constant(self) -> bool:
        """Whether every row of a column of text has the same value; never of columns taken as categories by name."""
        return len(self.counts) == 1 and self.filled == self.rows > 1 and not self.as_category

    def count_words(self) -> int:
        """How many different words there are in the cells that were looked at."""
        words = split_words(pa.array(sorted(self.different), pa.large_string())).flatten()
        return len({*words.to_pylist()} - {""})

    def decide(self) -> Column | str:
        """How the column is encoded, or why it is left out."""
        marked = self.filled < self.rows
        if is_list(self.native) and is_number(self.native.value_type):
            return ListColumn(self.name)
        if not (self.is_text or is_number(self.native) or is_date(self.native)):
            return f"holds {self.native}"
        if not self.filled:
            return "empty"
        if is_date(self.native):
            return DateColumn(self.name, marked, NATIVE, self.moments[NATIVE].mean)
        if not self.is_text:
            return NumberColumn(self.name, marked, "", self.moments[POINT].mean)
        if self.as_category:
            if len(self.counts) > self.options.max_categories:
                raise ShoalError(
                    f"{self.table.path}: column {self.name!r} has more than {self.options.max_categories} values: "
                    "expected fewer, or raise --option max_categories=N"
                )
            return CategoryColumn(self.name, marked, sorted(self.counts))
        mark = self.choose_mark()
        if mark is not None:
            return NumberColumn(self.name, marked, mark, self.moments[mark].mean)
        form = self._choose_form()
        if form == "":
            return "dates whose order of day and month is unclear: --option day_first=true or false"
        if form is not None:
            return DateColumn(self.name, marked, form, self.moments[form].mean)
        return self._decide_text(marked)

    def choose_mark(self) -> str | None:
        """The decimal mark of a column of numbers; None if the column is not numeric."""
        whole = [mark for mark, count in self.numbers.items() if count == self.filled]
        if self.options.decimal in whole:
            return self.options.decimal
        if self.options.decimal is not None and len(whole) > 1:
            whole = []
        if len(whole) == 2 and self.comma is not None:  # 1,234 may be either
            if self.table.delimiter == ";":  # where a comma in a cell is usual
                return COMMA
            raise ShoalError(
                f"{self.table.path}: column {self.name!r} holds numbers such as {self.comma!r}, "
                "whose comma may mark thousands or decimals: say --option decimal=point or decimal=comma"
            )
        if whole:
            return whole[0]
        mark = self.options.decimal or max(self.numbers, key=lambda mark: self.numbers[mark])
        if self.plain or 2 * self.numbers[mark] >= self.filled:
            raise self.refuse_odd(mark, "a number, as in most rows")
        return None

    def _choose_form(self) -> str | None:
        """The form of a column of dates; None if the column has no dates, "" if the form is ambiguous."""
        forms = [form for form, count in self.dates.items() if count == self.filled]
        if self.options.day_first is not None:
            first = "day" if self.options.day_first else "month"
            forms = [form for form in forms if form.startswith(("year", first)) or "." in form]
        if len(forms) == 1:
            return forms[0]
        if forms:
            return ""
        form = max(self.dates, key=lambda form: self.dates[form])
        if 2 * self.dates[form] >= self.filled:
            raise self.refuse_odd(form, f"a date, {form}, as in most rows")
        return None

    def refuse_odd(self, key: str, expected: str) -> ShoalError:
        """The error for the first cell that does not have the decimal mark or the form of dates `key`."""
        row, cell = self.odd[key]
        path, number = self.table.locate(row)
        return ShoalError(
            f"{path}: column {self.name!r} holds {cell!r} in row {number}: expected {expected}; {self.remedy}"
        )

    def _decide_text(self, marked: bool) -> Column | str:
        lower = {value.lower() for value in self.counts}
        pair = next((pair for pair in PAIRS if lower <= {*pair}), None)
        if pair is not None:
            return YesNoColumn(self.name, marked, *pair)
        names_rows = len(self.different) > _KEY_SHARE * self.looked
        if len(self.counts) <= self.options.max_categories and not names_rows:
            return CategoryColumn(self.name, marked, sorted(self.counts))
        is_prose = self.words >= _WORDS_OF_TEXT * self.looked and self.single <= _KEY_SHARE * self.looked
        if names_rows and not is_prose:
            return "differs in nearly every row"
        if not self.options.words:
            return "text"
        return WordsColumn(self.name, marked, self.options.words)
