"""Adjacency: the sparse operator of `spmm`, with its transpose."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from shoal.errors import ShoalError
from shoal.kernels.adjacency_forms import AdjacencyForms
from shoal.kernels.arrays import as_tensor
from shoal.kernels.entry_weights import sum_rows
from shoal.kernels.pattern_checks import check_lengths, check_pattern
from shoal.kernels.patterns import find_mirrors, transpose_pattern


class Adjacency(AdjacencyForms):
    """The operator `diag(row_scale) · (A ∘ values) · diag(column_scale)`, A a CSR pattern.

    Mean and symmetric normalisation are scales, so that no weight per entry is stored for them:
    `D⁻¹A` is a row scale, `D^-½ A D^-½` both. The transpose swaps the scales; it is made on first use and kept.
    For a symmetric pattern it shares `indptr` and `indices`, and without `values` nothing is copied at all.

    Args:
        indptr: int64 (num_rows + 1,): where the entries of each row begin.
        indices: int32 or int64 (nnz,): the column of each entry.
        num_columns: number of columns.
        values: (nnz,), a weight for each entry. None: all 1.
        row_scale: (num_rows,), a factor for each row. None: all 1.
        column_scale: (num_columns,), a factor for each column. None: all 1.
        symmetric: whether the pattern is symmetric; the weights need not be.
        checked: whether the arrays are known to be valid; others are validated in one pass, since kernels rely on them.
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        num_columns: int,
        *,
        values: Tensor | None = None,
        row_scale: Tensor | None = None,
        column_scale: Tensor | None = None,
        symmetric: bool = False,
        checked: bool = False,
    ) -> None:
        if not checked:
            check_pattern(indptr, indices, num_columns, symmetric=symmetric)
            check_lengths(len(indices), "entries", values=values)
            check_lengths(len(indptr) - 1, "rows", row_scale=row_scale)
            check_lengths(num_columns, "columns", column_scale=column_scale)
        self.indptr = indptr
        self.indices = indices
        self.num_columns = num_columns
        self.values = values
        self.row_scale = row_scale
        self.column_scale = column_scale
        self.symmetric = symmetric  # of the pattern; the weights need not be
        self._transpose: Adjacency | None = None
        # The operator whose transpose this is. Weak: a cycle would keep every batch until the next garbage collection.
        self._origin: weakref.ref[Adjacency] | None = None
        self._permutation: Tensor | None = None  # of the entries, from this operator to its transpose
        self._pattern: tuple[Tensor, Tensor, Tensor] | None = None  # the transpose's, and that permutation
        self._normal: Tensor | None = None  # values of normalised rows: the operator itself would refer back
        self._like: Adjacency | None = None  # an operator with the same pattern, which caches the transpose
        self._first_rows: Adjacency | None = None
        self._reversed: Adjacency | None = None
        # Computes `out (+)= self · h` where that needs a halo exchange (a rank's part); None: by a kernel.
        self.product: Callable[[Tensor, Tensor, bool], Tensor] | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.num_rows, self.num_columns

    @property
    def num_entries(self) -> int:
        """Number of stored entries."""
        return len(self.indices)

    @property
    def device(self) -> torch.device:
        """The device of the arrays."""
        return self.indices.device

    def transpose(self) -> Adjacency:
        """The transposed operator, made once."""
        origin = None if self._origin is None else self._origin()
        if origin is not None:
            return origin
        if self._transpose is None:
            self._transpose = self._make_transpose()
            self._transpose._origin = weakref.ref(self)
        return self._transpose

    def give_transpose(self, indptr: Tensor, indices: Tensor, permutation: Tensor) -> None:
        """Set the pattern of the transpose, if it is known already.

        Args:
            indptr: where the rows of the transpose begin.
            indices: columns of the transpose's entries.
            permutation: entry k of the transpose is entry `permutation[k]` of this operator.
        """
        self._pattern = indptr, indices, permutation

    def transpose_permutation(self) -> Tensor:
        """The permutation (nnz,) of the transpose: its entry k is entry `permutation[k]` of this operator.

        Values per entry, such as attention weights, are transposed by it.
        """
        if self._permutation is None:
            origin = None if self._origin is None else self._origin()
            back = None if origin is None else origin._permutation
            if self.symmetric or self._like is not None:
                self._permutation = self._transpose_pattern()[2]
            elif back is not None:  # this is the transpose: the way back is the inverse
                numbers = torch.arange(len(back), dtype=back.dtype, device=back.device)
                return torch.empty_like(back).index_copy_(
                    0, back.long(), numbers
                )  # not kept: the origin may die
            else:
                self.transpose()
        assert self._permutation is not None
        return self._permutation

    def _make_transpose(self) -> Adjacency:
        indptr, indices, values = self.indptr, self.indices, self.values
        if not (self.symmetric and values is None):
            indptr, indices, self._permutation = self._transpose_pattern()
        if values is not None:
            values = torch.index_select(values, 0, self.transpose_permutation())
        return Adjacency(
            indptr,
            indices,
            self.num_rows,
            values=values,
            row_scale=self.column_scale,
            column_scale=self.row_scale,
            symmetric=self.symmetric,
            checked=True,
        )

    def _transpose_pattern(self) -> tuple[Tensor, Tensor, Tensor]:
        """(indptr, indices, permutation) of the transpose, made once for all operators with this pattern."""
        if self._like is not None:
            return self._like._transpose_pattern()
        if self._pattern is None:
            if self.symmetric:
                self._pattern = self.indptr, self.indices, self._mirror()
            else:
                self._pattern = transpose_pattern(self.indptr, self.indices, self.num_columns)
        return self._pattern

    def _mirror(self) -> Tensor:
        mirror = find_mirrors(self.indptr, self.indices)
        if mirror is None:
            raise ShoalError("the adjacency is marked symmetric but its pattern is not")
        return mirror

    def pieces(self, z: Tensor) -> Iterator[tuple[Adjacency, Tensor]]:
        """Yield (operator, z) pairs whose columns are all local.

        Without a halo there is one pair: this operator and z. With a halo, the rows without halo columns may come first,
        while the halo exchange is under way (the other rows are empty), and the others once z is extended by halo rows.

        Args:
            z: rows of this operator's local columns.
        """
        yield self, z

    def column_ids(self, ids: Tensor) -> Tensor:
        """The global ids of the columns of `pieces`, from those of z's rows.

        Args:
            ids: global ids of z's rows.
        """
        return ids

    def column_counts(self) -> Tensor | None:
        """Multiplicity of the entries in each column of `pieces`, for layers that normalise by themselves; None for 1."""
        return None

    def without_scales(self, counts: Tensor | None = None) -> Adjacency:
        """The same pattern and values with column scale `counts` and no row scale.

        Args:
            counts: the column scale of the result. None: no column scale.
        """
        other = Adjacency(
            self.indptr,
            self.indices,
            self.num_columns,
            values=self.values,
            column_scale=counts,
            symmetric=self.symmetric,
            checked=True,
        )
        other._like = self if self._like is None else self._like
        return other

    def reverse(self, scale: Callable[[Tensor], Tensor]) -> Adjacency:
        """The operator of the same kind over the reversed edges, made once.

        Args:
            scale: makes a scale from the degrees of the reversed edges.
        """
        if self.symmetric:
            raise ShoalError(
                "the graph is undirected: leave out directions=both, which is for directed graphs"
            )
        if self._reversed is None:
            turned = self.transpose()
            degree = turned.indptr.diff()
            if turned.values is not None:
                degree = as_tensor(sum_rows(turned.indptr.numpy(), turned.values.numpy()))
            by_degree = scale(degree)
            other = Adjacency(
                turned.indptr,
                turned.indices,
                turned.num_columns,
                values=turned.values,
                row_scale=None if self.row_scale is None else by_degree,
                column_scale=None if self.column_scale is None else by_degree,
                checked=True,
            )
            other._transpose = Adjacency(
                self.indptr,
                self.indices,
                self.num_columns,
                values=self.values,
                row_scale=other.column_scale,
                column_scale=other.row_scale,
                checked=True,
            )
            other._transpose._origin = weakref.ref(other)
            self._reversed = other
        return self._reversed

    def slice_rows(self, start: int, end: int) -> Adjacency:
        """Rows start…end-1 as an operator of their own, sharing this one's memory.

        Args:
            start: the first row.
            end: the row after the last.
        """
        first, last = int(self.indptr[start]), int(self.indptr[end])
        return Adjacency(
            self.indptr[start : end + 1] - first,
            self.indices[first:last],
            self.num_columns,
            values=None if self.values is None else self.values[first:last],
            row_scale=None if self.row_scale is None else self.row_scale[start:end],
            column_scale=self.column_scale,
            checked=True,
        )

    def take_first(self, count: int) -> Adjacency:
        """The first rows as an operator; it and its transpose are made once.

        Args:
            count: number of rows.
        """
        if count == self.num_rows:
            return self
        first = self._first_rows
        if first is None or first.num_rows != count:
            if self._like is None:
                first = self.slice_rows(0, count)
            else:
                pattern = self._like.take_first(count)
                assert self.values is not None
                first = pattern.with_values(self.values[: pattern.num_entries])
            self._first_rows = first
        return first

    def with_values(self, values: Tensor) -> Adjacency:
        """The same pattern with values (nnz,) and no scales; both operators share the pattern of the transpose.

        Args:
            values: (nnz,), a weight for each entry.
        """
        check_lengths(len(self.indices), "entries", values=values)
        other = Adjacency(
            self.indptr, self.indices, self.num_columns, values=values, symmetric=self.symmetric, checked=True
        )
        other._like = self if self._like is None else self._like
        return other

    def normalize_rows(self) -> Adjacency:
        """The same pattern with every row divided by the sum of its absolute values; the values are computed once.

        A row of zeros stays as it is.
        """
        if self._normal is None:
            values = self.entry_weights()
            sums = torch.segment_reduce(values.abs().double(), "sum", offsets=self.indptr)
            factors = torch.where(sums > 0, 1 / sums, 1.0).repeat_interleave(self.indptr.diff())
            self._normal = (values * factors).to(values.dtype)
        return self.with_values(self._normal)

    def to(self, device: torch.device | str) -> Adjacency:
        """A copy on another device.

        Args:
            device: a device, or its name.
        """
        moved = {
            name: None if (part := getattr(self, name)) is None else part.to(device)
            for name in ("values", "row_scale", "column_scale")
        }
        return Adjacency(
            self.indptr.to(device),
            self.indices.to(device),
            self.num_columns,
            symmetric=self.symmetric,
            **moved,
            checked=True,
        )

    def __repr__(self) -> str:
        return f"Adjacency({self.num_rows:,} × {self.num_columns:,}, {self.num_entries:,} entries)"
