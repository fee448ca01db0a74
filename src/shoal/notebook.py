"""Small HTML tables: how notebooks show graphs, batches, samplers, models and trainers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_LEFT = ' style="text-align: left"'


def show_facts(title: str, facts: Mapping[str, object]) -> str:
    """A table with a title and a row for every fact; numbers have separators, None is left out, text is escaped."""
    rows = "".join(
        f"<tr><th{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(format_value(value))}</td></tr>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<table><thead><tr><th colspan=2{_LEFT}>{escape(title)}</th></tr></thead><tbody>{rows}</tbody></table>"


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], more: int = 0) -> str:
    """A table with a head; `more` is how many rows were left out before the last one."""
    cells = [f"<tr>{''.join(f'<td>{escape(format_value(cell))}</td>' for cell in row)}</tr>" for row in rows]
    if more:
        cells.insert(len(cells) - 1, f"<tr><td colspan={len(columns)}{_LEFT}>… {more:,} more</td></tr>")
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(cells)}</tbody></table>"


def format_value(value: object) -> str:
    """A value as a cell: thousands separated, four significant digits, sequences joined by commas."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(format_value, value))
    return "" if value is None else str(value)
