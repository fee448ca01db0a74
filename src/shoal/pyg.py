"""Optional import of PyG, and graphs as PyG `Data` objects."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from shoal.errors import missing_extra
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.arrays import as_tensor
from shoal.kernels.encoding import EncodedRows
from shoal.kernels.patterns import list_edges
from shoal.validation import MASKS


def load_pyg(purpose: str, module: str = "data") -> Any:
    """A module of torch_geometric; if it is not installed, the error names the extra to install."""
    try:
        return import_module(f"torch_geometric.{module}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("torch_geometric"):
            raise
        raise missing_extra("torch-geometric", "pyg", purpose) from None


def make_data(graph: Any, *, dense: bool = True) -> Any:
    """A Graph as a PyG `Data` object."""
    kind = load_pyg("Graph.to_pyg").Data
    fields: dict[str, Tensor] = {}
    if graph.num_features:
        fields["x"] = _make_features(graph.x, dense)
    if graph.y is not None:
        fields["y"] = as_tensor(graph.y).float() if graph.multi_label else as_tensor(graph.y)
    for name in (*MASKS, "edge_weight"):
        if getattr(graph, name) is not None:
            fields[name] = as_tensor(getattr(graph, name))
    edges = list_edges(as_tensor(graph.indptr), as_tensor(graph.indices))
    return kind(edge_index=edges, num_nodes=graph.num_nodes, **fields)


def _make_features(x: Any, dense: bool) -> Tensor:
    if isinstance(x, EncodedRows):
        return as_tensor(x[:])
    if not sp.issparse(x):
        return as_tensor(x)
    if dense:
        return as_tensor(x.toarray())
    parts = as_tensor(x.indptr).long(), as_tensor(x.indices), int(x.shape[1])
    return Adjacency(*parts, values=as_tensor(x.data), checked=True).to_torch(torch.float32)
