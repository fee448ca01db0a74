"""Adjacency: a weighted sparse operator with its transpose; the thing `spmm` multiplies by."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from shoal.errors import ShoalError
from shoal.kernels.arrays import as_tensor
from shoal.kernels.build import build_csr
from shoal.kernels.csr import is_symmetric
from shoal.kernels.entry_weights import sum_rows
from shoal.kernels.pattern_checks import check_lengths, check_pattern, check_sparse
from shoal.kernels.patterns import find_mirrors, row_of_entries, transpose_pattern


class Adjacency:
    """The operator `diag(row_scale) · (A ∘ values) · diag(column_scale)`, A a CSR pattern.

    Mean and symmetric normalisation are scales, so that no weight per entry is stored for them:
    `D⁻¹A` is a row scale, `D^-½ A D^-½` both. The transpose swaps the scales; it is made on first use and kept.
    For a symmetric pattern it shares `indptr` and `indices`, and without `values` nothing is copied at all.

    Shapes: indptr (num_rows + 1,) int64; indices (nnz,) int32 or int64; values (nnz,); row_scale (num_rows,);
    column_scale (num_columns,). Values and scales default to one. All are checked, in one pass, unless `checked` says
    that they hold what they should: kernels trust them.
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
        # What this is the transpose of. Weak: a cycle would keep every batch until the next garbage collection.
        self._origin: weakref.ref[Adjacency] | None = None
        self._permutation: Tensor | None = None  # of the entries, on the way to the transpose
        self._pattern: tuple[Tensor, Tensor, Tensor] | None = None  # the transpose's, and that permutation
        self._like: Adjacency | None = None  # has the same pattern, and keeps what is made of it
        self._first_rows: Adjacency | None = None
        self._reversed: Adjacency | None = None
        # How to compute `out (+)= self · h` where it takes more than this memory (a rank's part); None: by a kernel.
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
        """Where the arrays are."""
        return self.indices.device

    @classmethod
    def from_scipy(cls, matrix: Any) -> Adjacency:
        """From any SciPy sparse matrix; row i of the product sums over the entries of row i."""
        check_sparse(matrix)
        csr = sp.csr_array(matrix)
        csr.sum_duplicates()
        indptr, indices = csr.indptr.astype(np.int64), csr.indices
        symmetric = csr.shape[0] == csr.shape[1] and is_symmetric(indptr, indices)
        values = torch.from_numpy(np.ascontiguousarray(csr.data))
        if not values.is_floating_point():
            values = values.to(torch.get_default_dtype())
        return cls(
            torch.from_numpy(indptr),
            torch.from_numpy(indices),
            csr.shape[1],
            values=values,
            symmetric=symmetric,
            checked=True,
        )

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int) -> Adjacency:
        """From PyG's (2, num_edges): row `edge_index[1]` sums over `edge_index[0]`. Duplicates are merged."""
        source, target = edge_index.cpu().numpy()
        if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= num_nodes):
            raise ShoalError(
                f"edge_index runs from {int(edge_index.min())} to {int(edge_index.max())}: expected nodes 0 to {num_nodes - 1}"
            )
        indptr, indices, _ = build_csr([(target, source)], num_nodes, num_nodes)
        symmetric = is_symmetric(indptr, indices)
        return cls(
            torch.from_numpy(indptr), torch.from_numpy(indices), num_nodes, symmetric=symmetric, checked=True
        )

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
        """Say what the transpose's pattern is, and where its entries come from, where that is known already."""
        self._pattern = indptr, indices, permutation

    def transpose_permutation(self) -> Tensor:
        """Where the transpose's entries come from, (nnz,): entry k of it is entry `permutation[k]` of this.

        Anything that belongs to entries (attention weights) follows the transpose through it.
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
        """(indptr, indices, permutation) of the transpose, made once for all that have the pattern."""
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
        """Operators whose columns are all in this process, each with z's rows for them.

        It is this operator and z themselves, unless columns lie on other ranks: then the rows that need none of them
        may come first, the others being empty, and the rest once z is extended by what has arrived meanwhile.
        """
        yield self, z

    def column_ids(self, ids: Tensor) -> Tensor:
        """The global ids of the columns of `pieces`, from those of z's rows."""
        return ids

    def column_counts(self) -> Tensor | None:
        """How often an entry in each column of `pieces` counts, where a layer normalises by itself; None for once."""
        return None

    def without_scales(self, counts: Tensor | None = None) -> Adjacency:
        """The same pattern and values with `counts` for its column scale and no row scale."""
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
        """The operator of the same kind over the reversed edges, made once: `scale` makes scales of their degrees."""
        if self.symmetric:
            raise ShoalError(
                "the edges go both ways: leave out directions=both, which is for directed graphs"
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
        """Rows start…end-1 as an operator of their own, sharing this one's memory."""
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
        """The first rows as an operator of their own, made once, and so is its transpose."""
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
        """The same pattern with values (nnz,) and no scales; what is made of the pattern, both have together."""
        check_lengths(len(self.indices), "entries", values=values)
        other = Adjacency(
            self.indptr, self.indices, self.num_columns, values=values, symmetric=self.symmetric, checked=True
        )
        other._like = self if self._like is None else self._like
        return other

    def entry_weights(self, dtype: torch.dtype | None = None) -> Tensor:
        """The weight of every entry, (nnz,): values times both scales."""
        weights = torch.ones(self.num_entries, dtype=dtype, device=self.device)
        if self.values is not None:
            weights = weights * self.values.to(weights.dtype)
        if self.row_scale is not None:
            weights = weights * self.row_scale.to(weights.dtype)[row_of_entries(self.indptr)]
        if self.column_scale is not None:
            weights = weights * self.column_scale.to(weights.dtype)[self.indices.long()]
        return weights

    def to_torch(self, dtype: torch.dtype | None = None) -> Tensor:
        """As a torch sparse CSR tensor."""
        weights = self.entry_weights(dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
            return torch.sparse_csr_tensor(
                self.indptr, self.indices.long(), weights, size=self.shape, check_invariants=False
            )

    def to_dense(self) -> Tensor:
        """As a dense float32 matrix."""
        dense = torch.zeros(self.shape)
        dense[row_of_entries(self.indptr), self.indices.long()] = self.entry_weights(torch.float32)
        return dense

    def to(self, device: torch.device | str) -> Adjacency:
        """A copy on another device."""
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
