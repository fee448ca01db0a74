"""Label columns: labels of training nodes as additional feature columns of a batch (label reuse)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.batch import Batch, as_tensor
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.encoding import EncodedRows
from shoal.kernels.gather import gather_rows
from shoal.kernels.patterns import count_up, row_of_entries
from shoal.kernels.row_sets import Rows
from shoal.kernels.spmm import multiply
from shoal.memory import memory_left


class KnownLabels(NamedTuple):
    """The labels of some rows that may be used as input: those of training nodes only.

    Attributes:
        y: classes (rows,), or a multi-label matrix (rows, num_classes); 0 where not known.
        known: which rows are labelled training nodes.
        ids: global node ids of the rows.
    """

    y: Tensor
    known: Tensor
    ids: Tensor

    @classmethod
    def of(cls, graph: Graph, nodes: np.ndarray, ids: Tensor) -> KnownLabels:
        """The known labels of some nodes of a graph; none if it has no split."""
        if graph.y is None or graph.train_mask is None:
            return cls(
                torch.zeros(len(nodes), dtype=torch.int64), torch.zeros(len(nodes), dtype=torch.bool), ids
            )
        y, known = as_tensor(graph.y[nodes]), as_tensor(graph.train_mask[nodes])
        known = known if y.dim() == 2 else known & (y >= 0)
        return cls(torch.where(known if y.dim() == 1 else known[:, None], y, 0), known, ids)


@dataclass(frozen=True)
class LabelColumns:
    """The label columns (rows, num_classes): labels of the rows in `shown`; predictions, or zeros, in the others."""

    labels: KnownLabels
    shown: Tensor
    num_classes: int
    predicted: Tensor | None = None

    def dense(self, rows: Rows = slice(None)) -> Tensor:
        """Some rows as a matrix."""
        y, at = self.labels.y[rows], self.shown[rows].nonzero()[:, 0]
        if self.predicted is None:
            out = torch.zeros(len(y), self.num_classes)
        else:
            out = self.predicted[rows].clone()
        if y.dim() == 2:
            out[at] = y[at].to(out.dtype)
        else:
            out[at] = 0
            out[at, y[at].long()] = 1
        return out


class SparseJoin:
    """Sparse features with an entry for every known label. The pattern is fixed; only values change between steps.

    If predictions replace hidden labels (`full`), every row has an entry for every class.
    """

    def __init__(self, x: Adjacency, labels: KnownLabels, num_classes: int, *, full: bool = False) -> None:
        n = x.num_rows
        y, known = labels.y[:n], labels.known[:n]
        if full:
            rows = torch.arange(n).repeat_interleave(num_classes)
            columns = torch.arange(num_classes).repeat(n)
        elif y.dim() == 2:
            rows, columns = (y.bool() & known[:, None]).nonzero().unbind(1)
        else:
            rows = known.nonzero()[:, 0]
            columns = y[rows].long()
        added = torch.bincount(rows, minlength=n)
        indptr = count_up(x.indptr.diff() + added)
        before = torch.arange(x.num_entries) + (indptr[:-1] - x.indptr[:-1])[row_of_entries(x.indptr)]
        first = indptr[1:] - added  # a row's labels stand behind its features
        self.places = first[rows] + torch.arange(len(rows)) - count_up(added)[:-1][rows]
        indices = torch.empty(int(indptr[-1]), dtype=x.indices.dtype)
        indices[before] = x.indices
        indices[self.places] = (columns + x.num_columns).to(indices.dtype)
        values = torch.zeros(len(indices), dtype=torch.float32 if x.values is None else x.values.dtype)
        values[before] = 1 if x.values is None else x.values
        self.rows, self.full = rows, full
        self.pattern = Adjacency(indptr, indices, x.num_columns + num_classes, values=values, checked=True)

    def fill(self, columns: LabelColumns) -> Adjacency:
        """The features with these label columns."""
        assert self.pattern.values is not None
        values = self.pattern.values.clone()
        shown = (
            columns.dense(slice(0, self.pattern.num_rows)).flatten()
            if self.full
            else columns.shown[self.rows]
        )
        values[self.places] = shown.to(values.dtype)
        return self.pattern.with_values(values)


class JoinedRows:
    """Features and label columns of all nodes, concatenated as rows are taken: the features are not copied."""

    def __init__(self, x: Tensor | EncodedRows, columns: LabelColumns) -> None:
        self.x, self.columns = x, columns
        self.shape = (x.shape[0], x.shape[1] + columns.num_classes)

    def take(self, rows: Rows) -> Tensor:
        """Some rows, decoded."""
        if isinstance(self.x, EncodedRows):
            numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            x = gather_rows(self.x, numbers)
        else:
            x = self.x[rows]
        return torch.cat([x, self.columns.dense(rows).to(x.dtype)], dim=1)


class LabelledBatch(Batch):
    """A batch whose last features are label columns. They change every step; `A x` of the others is still computed once.

    Args:
        base: the batch without label columns.
        columns: label columns of the rows of x; if `A x` is cached, of all rows that the first layer reads, halo included.
        join: the SparseJoin of an earlier step, to be reused for sparse features.
    """

    def __init__(self, base: Batch, columns: LabelColumns, join: SparseJoin | None = None) -> None:
        kept = {name: value for name, value in base.__dict__.items() if name not in ("x", "dense_x")}
        self.__dict__.update(kept)
        self.base, self.columns, self._join = base, columns, join

    @cached_property
    def x(self) -> Tensor | Adjacency:
        x, columns = self.base.x, self.columns
        if isinstance(x, Adjacency):
            join = self._join or SparseJoin(
                x, columns.labels, columns.num_classes, full=columns.predicted is not None
            )
            return join.fill(columns)
        return torch.cat([x, columns.dense(slice(0, len(x))).to(x.dtype)], dim=1)

    @property
    def stored_x(self) -> Tensor | Adjacency | EncodedRows | JoinedRows:
        x = self.base.stored_x
        if isinstance(x, Adjacency | JoinedRows):
            return self.x
        joined = JoinedRows(x, self.columns)
        fits = isinstance(x, Tensor) and 4 * joined.shape[0] * joined.shape[1] <= memory_left() // 4
        return self.x if fits else joined

    def aggregate_input(self, kind: str) -> Tensor | None:
        known = self.base.aggregate_input(kind)
        block = self.blocks[0].for_input()
        if known is None or block is None:
            return None
        shown = multiply(block.over_columns(kind), self.columns.dense().to(known.dtype))
        return torch.cat([known, shown], dim=1)
