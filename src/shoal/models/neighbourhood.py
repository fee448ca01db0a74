"""Rows of dense and sparse inputs, and rows of an operator with only the inputs they read."""

from __future__ import annotations

import torch
from torch import Tensor

from shoal.kernels.adjacency import Adjacency
from shoal.kernels.encoding import EncodedRows
from shoal.kernels.row_sets import Rows
from shoal.label_columns import JoinedRows
from shoal.models.layerwise import Input, select_rows


def take_rows(h: Input, start: int, end: int) -> Input:
    """Rows start…end-1 of dense or sparse features, without a copy. The full range is h itself."""
    return select_rows(h, slice(start, end))


def take_neighbourhood(
    part: Adjacency, h: Tensor | EncodedRows | JoinedRows, rows: Rows
) -> tuple[Adjacency, Input]:
    """(`part` with columns renumbered, the rows of h it reads): first the rows of h at `rows`, then their neighbours."""
    if isinstance(rows, slice) and rows == slice(0, h.shape[0]):
        return part, select_rows(h, rows)
    read, position = torch.unique(part.indices, return_inverse=True)
    own = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    columns = torch.cat([own, read.long()])
    scale = part.column_scale
    block = Adjacency(
        part.indptr,
        position + len(own),
        len(columns),
        values=part.values,
        row_scale=part.row_scale,
        column_scale=None if scale is None else scale[columns],
        checked=True,
    )
    return block, select_rows(h, columns)


def count_entries(h: Input) -> int:
    """Stored values of dense or sparse features."""
    return h.num_entries if isinstance(h, Adjacency) else h.numel()
