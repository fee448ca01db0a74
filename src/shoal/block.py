"""Block: the pattern one layer of a batch aggregates over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from shoal.aggregation import Aggregation, find_aggregation
from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.arrays import as_tensor as as_tensor
from shoal.kernels.entry_weights import sum_rows
from shoal.kernels.pattern_checks import check_lengths, check_pattern
from shoal.kernels.patterns import add_diagonal
from shoal.kernels.row_sets import LoopedAdjacency, find_loops


class Block:
    """The CSR pattern one layer aggregates over: row i aggregates from the columns it lists.

    The first `num_rows` columns are the rows themselves. A square block is a subgraph; a wide one is a sampled
    neighbourhood, or a part with its halo.

    Args:
        edge_weight: the weight of every entry; degrees are then sums of weights. None: all 1.
        edge_norm: factor on every entry's weight that makes the aggregation unbiased, or None.
        degree: every column's degree in the graph the batch was drawn from. Normalised aggregation uses it
            when given, and the degree within the block otherwise.
        has_loop: which columns have a self loop in that graph, so that GCN adds no second one; goes with `degree`.
            None: no column has one.
        outside: nodes of the last columns, whose embeddings come from histories (`shoal.sampling.histories`).
        checked: whether the tensors are known to be valid. Others are validated in one pass, since kernels rely on them.
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        num_columns: int,
        *,
        symmetric: bool = False,
        edge_weight: Tensor | None = None,
        edge_norm: Tensor | None = None,
        degree: Tensor | None = None,
        has_loop: Tensor | None = None,
        outside: np.ndarray | None = None,
        checked: bool = False,
    ) -> None:
        if not checked:
            check_pattern(indptr, indices, num_columns, symmetric=symmetric)
            check_lengths(len(indices), "entries", edge_norm=edge_norm, edge_weight=edge_weight)
            check_lengths(num_columns, "columns", degree=degree, has_loop=has_loop)
            if len(indptr) - 1 > num_columns:
                raise ShoalError(
                    f"the block has {len(indptr) - 1:,} rows and {num_columns:,} columns: expected at least as many columns as rows, since the rows are the first columns"
                )
        self.indptr = indptr
        self.indices = indices
        self.num_columns = num_columns
        self.symmetric = symmetric
        self.edge_weight = edge_weight
        self.edge_norm = edge_norm
        self.degree = degree
        self.has_loop = has_loop
        self.outside = outside
        self.planned: Any = None  # the last plan of rows to evaluate (`shoal.models.layerwise`)
        self._adjacencies: dict[str, Adjacency] = {}
        self._loops: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """Nodes that the block computes."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Entries of the pattern."""
        return len(self.indices)

    def at_layer(self, layer: int) -> Block:
        """This pattern for aggregation number `layer`; a part with a halo counts its messages by layer."""
        return self

    def for_input(self) -> Block | None:
        """This pattern for aggregating the input features once, before training; None where x has halo rows."""
        return self

    def adjacency(self, kind: str) -> Adjacency:
        """The operator of a kind of aggregation (`shoal.aggregation`), made once."""
        if kind not in self._adjacencies:
            self._adjacencies[kind] = self._make_operator(find_aggregation(kind))
        return self._adjacencies[kind]

    def over_columns(self, kind: str) -> Adjacency:
        """`adjacency(kind)` over all columns, halo columns included: its products need no halo exchange."""
        return self.adjacency(kind)

    def give_operator(self, kind: str, adj: Adjacency) -> None:
        """Set the operator of a kind, if it is known already."""
        self._adjacencies[kind] = adj

    def by_rows(self, kind: str, fits: Callable[[int], bool]) -> Adjacency:
        """`adjacency(kind)` to take rows from. If self loops need a copy of the pattern that does not fit in memory,
        they are added as rows are taken."""
        aggregation = find_aggregation(kind)
        copied = (
            (self.indices.element_size() + 8) * (self.num_edges + self.num_rows) if aggregation.loops else 0
        )
        if (
            kind in self._adjacencies
            or not copied
            or self._entry_values(aggregation) is not None
            or fits(copied)
        ):
            return self.adjacency(kind)
        if self._loops is None:
            self._loops = find_loops(self.indptr, self.indices)
        degree = count_loops(self.indptr.diff(), self._loops)
        scale = None if aggregation.scale == "none" else aggregation.scale_degrees(degree)
        columns = scale if aggregation.scales_columns else None
        return LoopedAdjacency(
            self.indptr, self.indices, self.num_columns, row_scale=scale, column_scale=columns, checked=True
        )

    def _entry_values(self, aggregation: Aggregation) -> Tensor | None:
        """The values of an operator's entries, without its scales; None for all 1."""
        if not aggregation.weighted:
            return self.edge_weight
        if self.edge_weight is None or self.edge_norm is None:
            return self.edge_norm if self.edge_weight is None else self.edge_weight
        return self.edge_weight * self.edge_norm

    def _make_operator(self, aggregation: Aggregation) -> Adjacency:
        indptr, indices = self.indptr, self.indices
        values = self._entry_values(aggregation)
        if aggregation.loops:
            indptr, indices, origin = add_diagonal(indptr, indices)
            if values is not None:
                before = origin >= 0
                norms, values = values, values.new_ones(len(origin))
                values[before] = norms[origin[before]]
        row_scale, column_scale = self._make_scales(aggregation, indptr)
        return Adjacency(
            indptr,
            indices,
            self.num_columns,
            values=values,
            row_scale=row_scale,
            column_scale=column_scale,
            symmetric=self.symmetric,
            checked=True,
        )

    def _make_scales(
        self, aggregation: Aggregation, indptr: Tensor
    ) -> tuple[Tensor, Tensor | None] | tuple[None, None]:
        if aggregation.scale == "none":
            return None, None
        if self.degree is not None:
            degree = count_loops(self.degree, self.has_loop) if aggregation.loops else self.degree
        elif self.num_rows == self.num_columns or not aggregation.scales_columns:
            degree = indptr.diff()
            if self.edge_weight is not None:
                degree = as_tensor(sum_rows(self.indptr.numpy(), self.edge_weight.numpy()))
                if aggregation.loops:
                    degree = count_loops(degree, find_loops(self.indptr, self.indices))
        else:
            raise ShoalError(
                f"a block with more columns than rows needs `degree` for {aggregation.name} normalisation"
            )
        scale = aggregation.scale_degrees(degree)
        return scale[: self.num_rows], scale if aggregation.scales_columns else None


def count_loops(degree: Tensor, has_loop: Tensor | None) -> Tensor:
    """Degrees after a self loop is added to every node that has none (`has_loop`)."""
    return degree + (1 if has_loop is None else ~has_loop)
