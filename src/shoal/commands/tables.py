"""Plain tables for terminals and pipes: aligned by spaces, wrapped at words, no wider than the console."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

_GAP = 2
_NARROWEST = 30  # characters of a wrapped last column
_INDENT = 4


class PlainTable:
    """Rows of text. The last column wraps at words; columns in `wide` are shown only if rows fit in a line.

    If the last column would become too narrow, the columns that do not fit follow below each row, indented.

    Args:
        columns: heads of the columns; if all are empty, no head is shown.
        right: columns that hold numbers.
        wide: columns that narrow consoles leave out.
    """

    def __init__(self, columns: Sequence[str], right: Sequence[str] = (), wide: Sequence[str] = ()) -> None:
        self.columns, self.right, self.wide = tuple(columns), right, wide
        self.rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row, one text for each column."""
        self.rows.append(cells)

    @property
    def width(self) -> int:
        """Characters of a line that holds all columns."""
        return sum(self._measure()) + _GAP * (len(self.columns) - 1)

    def format_lines(self, width: int) -> list[str]:
        """The table as lines of at most `width` characters; the head, if there is one, first."""
        kept, widths = list(range(len(self.columns))), self._measure()
        while sum(widths[column] + _GAP for column in kept) - _GAP > width:
            optional = [column for column in kept if self.columns[column] in self.wide]
            if not optional:
                break
            kept.remove(optional[-1])
        rows = [self.columns, *self.rows] if any(self.columns) else self.rows
        rows = [tuple(row[column] for column in kept) for row in rows]
        sides = [self.columns[column] in self.right for column in kept]
        return _align(rows, [widths[column] for column in kept], sides, width)

    def _measure(self) -> list[int]:
        return [max(map(len, cells)) for cells in zip(self.columns, *self.rows)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, the head in bold."""
        for number, line in enumerate(self.format_lines(options.max_width)):
            yield Segment(line, Style(bold=number == 0 and any(self.columns)))
            yield Segment.line()


def _align(rows: list[tuple[str, ...]], widths: list[int], right: list[bool], width: int) -> list[str]:
    """Rows as lines: all columns beside each other, or the first ones with the others below."""
    longest = max([_NARROWEST, *(len(word) for row in rows for word in row[-1].split())])
    before = sum(widths[:-1]) + _GAP * (len(widths) - 1)
    if before + min(longest, widths[-1]) <= width:
        last = [[row[-1]] if right[-1] else _wrap(row[-1], width - before) for row in rows]
        beside = len(widths) - 1
        indent = before
        widths = [*widths[:-1], min(widths[-1], width - before)]
    else:
        beside = 1
        while sum(widths[: beside + 1]) + _GAP * beside <= width:
            beside += 1
        below = [" · ".join(cell for cell in row[beside:] if cell) for row in rows]
        last = [["", *_wrap(text, width - _INDENT)] for text in below]
        indent = _INDENT
    lines = []
    for row, cells in zip(rows, last):
        first = [*row[:beside], *cells[:1]]
        padded = [
            cell.rjust(size) if side else cell.ljust(size) for cell, size, side in zip(first, widths, right)
        ]
        lines.append((" " * _GAP).join(padded).rstrip())
        lines += [" " * indent + text for text in cells[1:]]
    return lines


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def plain_table(*columns: str, right: Sequence[str] = (), wide: Sequence[str] = ()) -> PlainTable:
    """A table with these heads; the columns in `right` hold numbers, those in `wide` are for wide consoles only."""
    return PlainTable(columns, right, wide)


def fact_table(facts: Mapping[str, str | Sequence[str] | None]) -> PlainTable:
    """A table of names and values without a head. Several values get a line each; empty ones are left out."""
    table = PlainTable(("", ""))
    for name, value in facts.items():
        for number, line in enumerate([value] if isinstance(value, str) else value or ()):
            if line:
                table.add_row("" if number else name, line)
    return table
