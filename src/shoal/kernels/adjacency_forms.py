"""Conversion of Adjacency from SciPy and PyG, and to torch."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from shoal.errors import ShoalError
from shoal.kernels.build import build_csr
from shoal.kernels.csr import is_symmetric
from shoal.kernels.pattern_checks import check_sparse
from shoal.kernels.patterns import row_of_entries


class AdjacencyForms:
    """Constructors of Adjacency from SciPy matrices and PyG's edge_index, and conversion to torch tensors."""

    if TYPE_CHECKING:
        indptr: Tensor
        indices: Tensor
        values: Tensor | None
        row_scale: Tensor | None
        column_scale: Tensor | None

        def __init__(self, indptr: Tensor, indices: Tensor, num_columns: int, **fields: Any) -> None: ...

        @property
        def shape(self) -> tuple[int, int]: ...

        @property
        def num_entries(self) -> int: ...

        @property
        def device(self) -> torch.device: ...

    @classmethod
    def from_scipy(cls, matrix: Any) -> Self:
        """From any SciPy sparse matrix; row i of the product sums over the entries of row i.

        Args:
            matrix: sparse matrix in any of SciPy's formats.
        """
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
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int) -> Self:
        """From PyG's (2, num_edges): row `edge_index[1]` sums over `edge_index[0]`. Duplicates are merged.

        Args:
            edge_index: (2, num_edges) of sources and targets.
            num_nodes: number of nodes.
        """
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

    def entry_weights(self, dtype: torch.dtype | None = None) -> Tensor:
        """The weight of every entry, (nnz,): values times both scales.

        Args:
            dtype: type of the result. None: torch's default.
        """
        weights = torch.ones(self.num_entries, dtype=dtype, device=self.device)
        if self.values is not None:
            weights = weights * self.values.to(weights.dtype)
        if self.row_scale is not None:
            weights = weights * self.row_scale.to(weights.dtype)[row_of_entries(self.indptr)]
        if self.column_scale is not None:
            weights = weights * self.column_scale.to(weights.dtype)[self.indices.long()]
        return weights

    def to_torch(self, dtype: torch.dtype | None = None) -> Tensor:
        """As a torch sparse CSR tensor.

        Args:
            dtype: type of the values. None: torch's default.
        """
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
