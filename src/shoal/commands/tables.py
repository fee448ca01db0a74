"""Tables for terminals of any width: words are never cut; where columns do not fit, the last ones go to a second line."""

from __future__ import annotations

import textwrap

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table

_GAP = 2
_NARROWEST = 30  # characters that a last column is wrapped to
_INDENT = 4


class FoldingTable(Table):
    """A table whose last column wraps at words. Where that would leave it too narrow, what does not fit beside the
    first columns follows each row on lines of its own."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._read_rows(console)
        widths = [max(map(len, cells)) for cells in zip(*rows)]
        last = max(_NARROWEST, *(len(word) for row in rows for word in row[-1].split() or [""]))
        if sum(widths[:-1]) + _GAP * (len(widths) - 1) + min(last, widths[-1]) <= options.max_width:
            for column in self.columns[:-1]:
                column.no_wrap = True
            yield from super().__rich_console__(console, options)
            return
        beside = 1
        while sum(widths[: beside + 1]) + _GAP * beside <= options.max_width:
            beside += 1
        for number, row in enumerate(rows):
            style = Style(bold=True) if number == 0 and self.show_header else Style()
            for line in self._stack(row, widths[:beside], options.max_width):
                yield Segment(line, style)
                yield Segment.line()

    def _read_rows(self, console: Console) -> list[list[str]]:
        """The head and all rows as plain text."""
        columns = [
            [console.render_str(cell).plain if isinstance(cell, str) else str(cell) for cell in column.cells]
            for column in self.columns
        ]
        head = [str(column.header) for column in self.columns]
        return [head, *map(list, zip(*columns))]

    def _stack(self, row: list[str], widths: list[int], most: int) -> list[str]:
        """A row as lines: the first columns beside each other, the others below, wrapped."""
        first = [
            cell.rjust(width) if column.justify == "right" else cell.ljust(width)
            for cell, width, column in zip(row, widths, self.columns)
        ]
        below = " · ".join(cell for cell in row[len(widths) :] if cell)
        wrapped = textwrap.wrap(below, most - _INDENT, break_long_words=False, break_on_hyphens=False)
        return [(" " * _GAP).join(first).rstrip(), *(" " * _INDENT + line for line in wrapped)]


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table with one rule below its head; the columns in `right` hold numbers."""
    table = FoldingTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table
