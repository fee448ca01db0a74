"""Numbers written as text: decimal points or commas, separators of thousands, words for a missing value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

POINT, COMMA = "point", "comma"
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A", "?", "-")
_GAPS = " '’\u00a0\u202f"  # separators of thousands, besides the character that is not the decimal mark
_EXPONENT = r"(?:[eE][+-]?\d+)?$"
_SHAPES = {
    POINT: rf"^[+-]?(?:\d+\.?\d*|\.\d+|\d{{1,3}}(?:[,{_GAPS}]\d{{3}})+(?:\.\d*)?){_EXPONENT}",
    COMMA: rf"^[+-]?(?:\d+|\d{{1,3}}(?:[.{_GAPS}]\d{{3}})+)(?:,\d+)?{_EXPONENT}",
}
_THOUSANDS = {POINT: f"[,{_GAPS}]", COMMA: f"[.{_GAPS}]"}


def blank(cells: pa.Array) -> pa.Array:
    """Large strings, null where a cell stands for a missing value."""
    return pc.if_else(pc.is_in(cells, pa.array(MISSING, cells.type)), pa.scalar(None, cells.type), cells)


def count_shapes(cells: pa.Array) -> dict[str, pa.Array]:
    """For each decimal mark, which of the filled `cells` can be numbers with it."""
    return {mark: pc.match_substring_regex(cells, shape) for mark, shape in _SHAPES.items()}


def parse_plain(cells: pa.Array) -> np.ndarray | None:
    """The cells as float64, NaN where null, if all are numbers in plain notation (-1.5e3); else None."""
    try:
        return np.array(cells.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        return None


def parse_marked(cells: pa.Array, decimal: str | None = None) -> np.ndarray | None:
    """The cells as float64, NaN where null, if all are numbers and it is clear with which decimal mark; else None.

    `decimal` decides where both marks are possible.
    """
    plain = parse_plain(cells) if decimal != COMMA else None
    if plain is not None:
        return plain
    fits = {mark for mark, found in count_shapes(cells).items() if pc.all(found, min_count=0).as_py()}
    mark = decimal if decimal in fits else next(iter(fits)) if len(fits) == 1 else None
    return None if mark is None else parse_numbers(cells, mark)


def parse_numbers(cells: pa.Array, mark: str) -> np.ndarray:
    """The cells as float64 with that decimal mark, NaN where null or no number."""
    plain = parse_plain(cells) if mark == POINT else None
    if plain is not None:
        return plain
    fits = pc.match_substring_regex(cells, _SHAPES[mark])
    cells = pc.if_else(fits, cells, pa.scalar(None, cells.type))
    cells = pc.replace_substring_regex(cells, _THOUSANDS[mark], "")
    cells = pc.replace_substring_regex(cells, r"^\+", "")
    return np.array(pc.replace_substring(cells, ",", ".").cast(pa.float64()).to_numpy(zero_copy_only=False))
