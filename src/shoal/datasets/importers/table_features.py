"""The feature columns of a node table and their encodings, detected or taken from another graph, with notices."""

from __future__ import annotations

import numpy as np

from shoal.datasets.importers.cell_numbers import POINT
from shoal.datasets.importers.column_scan import ColumnOptions, ColumnScan
from shoal.datasets.importers.feature_columns import (
    CategoryColumn,
    Column,
    ListColumn,
    NumberColumn,
    Tally,
    WordsColumn,
    YesNoColumn,
)
from shoal.datasets.importers.tabular import Table, is_list, is_number
from shoal.errors import ShoalError
from shoal.wording import list_some

ROWS_AT_ONCE = 1 << 16
_FAR_APART = 100  # ratio of standard deviations above which numbers are standardised


def find_columns(
    table: Table,
    names: list[str],
    options: ColumnOptions,
    train: np.ndarray | None,
    notices: list[str],
    *,
    named: bool,
) -> list[Column]:
    """The encoding of each column; means are those of the rows that `train` marks.

    A column that cannot be a feature is left out with a notice, or an error if the user `named` it.
    """
    for name in options.categories:
        table.require(name)
    scans = {name: ColumnScan(table, name, options) for name in names}
    read = [name for name in names if not _needs_no_scan(table, name)]
    done = 0
    for batch in table.batches(read, ROWS_AT_ONCE) if read else ():
        for name in read:
            scans[name].add(batch.column(name), None if train is None else train[done : done + len(batch)])
        done += len(batch)
    columns: list[Column] = []
    left: dict[str, str] = {}
    for name, scan in scans.items():
        found = scan.decide()
        if not named and scan.is_constant and isinstance(found, CategoryColumn | YesNoColumn):
            left[name] = "the same in every row"
        elif isinstance(found, Column):
            columns.append(found)
            if isinstance(found, WordsColumn) and 2 * (few := scan.count_words()) <= found.width:
                notices.append(
                    f"{name} has {few} different words, hashed into {found.width} features: --option words=N makes fewer, some of which words share"
                )
        elif named:
            row, cell = scan.odd.get(POINT, (0, ""))
            path, number = table.locate(row)
            held = f"holds {cell!r} in row {number}" if cell else f"cannot be a feature ({found})"
            raise ShoalError(
                f"{path}: column {name!r} {held}: expected a number, a date or a category that rows share"
            )
        else:
            left[name] = found
    if left:
        said = [f"{name} ({reason})" for name, reason in left.items()]
        notices.append(f"left out the columns {list_some(said)} of {table.path.name}")
    _standardize(columns, scans, options.standardize, notices)
    return columns


def _needs_no_scan(table: Table, name: str) -> bool:
    kind = table.types[name]
    return is_list(kind) and is_number(kind.value_type)


def _standardize(
    columns: list[Column], scans: dict[str, ColumnScan], wanted: bool | None, notices: list[str]
) -> None:
    """Standardise all numbers if `wanted`; None: if their standard deviations are far apart."""
    numbers = [column for column in columns if isinstance(column, NumberColumn)]
    spread = {one.column: scans[one.column].moments[one.mark or POINT].deviation for one in numbers}
    sizes = [size for size in spread.values() if size > 0]
    if wanted is None and sizes and max(sizes) > _FAR_APART * min(1.0, *sizes):
        wanted = True
        low, high = (pick(spread, key=lambda name: spread[name] or 1.0) for pick in (min, max))
        other = f" and that of {low} {spread[low]:,.3g}" if low != high else ""
        notices.append(
            f"standardised the numbers, since the deviation of {high} is {spread[high]:,.3g}{other}; --option standardize=false leaves them as they are"
        )
    if wanted:
        for column in numbers:
            column.deviation = spread[column.column] or 1.0


def require_columns(
    table: Table, columns: list[Column], place: str, others: list[str], notices: list[str]
) -> list[Column]:
    """The columns of another graph, all of which this table must have."""
    missing = [column.column for column in columns if column.column not in table.names]
    if missing:
        raise ShoalError(
            f"{table.path} has no column {missing[0]!r}, a feature of {place}: expected all of {list_some([column.column for column in columns])}"
        )
    used = {column.column for column in columns}
    extra = [name for name in others if name not in used]
    if extra:
        notices.append(
            f"left out the columns {list_some(extra)} of {table.path.name}: {place} does not have them"
        )
    return columns


def describe_columns(columns: list[Column], *, trained: bool) -> list[str]:
    """One sentence for each kind of column that is not simply a number."""
    said = []
    by_kind: dict[str, list[Column]] = {}
    for column in columns:
        by_kind.setdefault(column.kind, []).append(column)
    commas = [one.column for one in columns if isinstance(one, NumberColumn) and one.mark == "comma"]
    if commas:
        said.append(f"read decimal commas in {list_some(commas)}")
    for kind, text in {
        "category": "categories, one feature per value: {}",
        "yes/no": "yes/no as 1 and 0: {}",
        "date": "dates as years since the mean date and sine and cosine of the time of year: {}",
        "words": "texts as hashed words: {}; embeddings of your own, as a column of lists (Parquet), carry more information",
    }.items():
        if kind in by_kind:
            said.append(text.format(list_some([_show(column) for column in by_kind[kind]])))
    marked = [column for column in columns if column.marked]
    if marked:
        of = "training rows" if trained else "rows"
        said.append(
            f"missing values are the mean of the {of} (0 if not numeric), with a feature that marks them: {list_some([column.column for column in marked])}"
        )
    return said


def _show(column: Column) -> str:
    wide = isinstance(column, CategoryColumn | ListColumn) or column.kind == "words"
    return f"{column.column} ({len(column.names)})" if wide else column.column


def describe_tally(tally: Tally, place: str | None) -> list[str]:
    """Notices of values that the graph whose encoding is used did not have."""
    said = []
    unknown = [f"{name} ({count:,})" for name, count in tally.unknown.items() if count]
    if unknown:
        said.append(f"values that {place or 'the table'} lacks are zeros: {list_some(unknown)}")
    missing = [f"{name} ({count:,})" for name, count in tally.missing.items()]
    if missing:
        said.append(
            f"missing values where {place or 'the table'} had none are the mean, or 0: {list_some(missing)}"
        )
    return said
