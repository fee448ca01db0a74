"""The column of an edge table that holds weights: numbers, or text whose decimal mark is detected."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.datasets.importers.cell_numbers import COMMA, POINT, blank, count_shapes, parse_marked, parse_plain
from shoal.datasets.importers.column_scan import ColumnOptions, ColumnScan
from shoal.datasets.importers.feature_columns import read_numbers
from shoal.datasets.importers.table_parts import open_table
from shoal.datasets.importers.tabular import Table, is_number, is_text, plain
from shoal.edge_weights import NO_WEIGHT
from shoal.errors import ShoalError

WEIGHT_NAMES = ("weight", "edge_weight")
_CELLS_LOOKED_AT = 1000
_REMEDY = f"--option weight={NO_WEIGHT} leaves the weights out"


class WeightColumn:
    """Column `name` of an edge table, read block by block; `decimal` decides where the mark may be either."""

    def __init__(self, edges: Table, name: str, decimal: str | None) -> None:
        self.edges, self.name, self.decimal = edges, name, decimal
        self.mark: str | None = None  # None: not known yet

    def read(self, values: pa.Array, done: int) -> np.ndarray:
        """The weights of some rows, the first of which is row `done` of the table, as float64."""
        values = plain(values)
        if self.mark is None and is_text(values.type):
            self._find_mark(blank(values))
        found, missing = read_numbers(values, self.mark or POINT)
        wrong = missing | np.isnan(found)
        if wrong.any():
            row = int(np.argmax(wrong))
            path, number = self.edges.locate(done + row)
            held = "is empty" if missing[row] else f"holds {str(values[row].as_py())!r}"
            raise ShoalError(
                f"{path}: column {self.name!r} {held} in row {number}: expected a weight, a number; {_REMEDY}"
            )
        return found

    def _find_mark(self, cells: pa.Array) -> None:
        """Set the decimal mark, unless `cells` are whole numbers, which read the same with either one."""
        if parse_plain(cells) is not None and self.decimal != COMMA:
            if not pc.any(pc.match_substring(cells, ".")).as_py():
                return
            if not pc.all(count_shapes(cells)[COMMA]).as_py():
                self.mark = POINT
                return
        scan = self._scan()
        found = scan.choose_mark()
        if found is None:
            raise scan.refuse_odd(self.decimal or POINT, "a weight, a number")
        self.mark = found

    def _scan(self) -> ColumnScan:
        """A scan of the whole column, from files of its own: those of `edges` are being read."""
        table = open_table(self.edges.path, header=self.edges.header)
        scan = ColumnScan(table, self.name, ColumnOptions(decimal=self.decimal))
        scan.remedy = _REMEDY
        for batch in table.batches([self.name]):
            scan.add(batch.column(self.name), None)
        return scan


def choose_weight(
    edges: Table, ends: list[str], weight: str | None, decimal: str | None
) -> WeightColumn | None:
    """The column of weights: as named by the caller, else by convention; None for none."""
    if weight == NO_WEIGHT:
        return None
    if weight is not None:
        return WeightColumn(edges, edges.require(weight), decimal)
    found = (edges.find(name) for name in WEIGHT_NAMES)
    name = next((name for name in found if name is not None and name not in ends), None)
    return None if name is None else WeightColumn(edges, name, decimal)


def find_number_column(edges: Table, names: list[str]) -> str | None:
    """The first of the columns `names` whose first cells are numbers."""
    first = next(edges.batches(names), None)
    for name, column in zip(names, [] if first is None else first.columns):
        cells = plain(column.slice(0, _CELLS_LOOKED_AT))
        if is_number(cells.type) or (is_text(cells.type) and parse_marked(blank(cells), COMMA) is not None):
            return name
    return None
