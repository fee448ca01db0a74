"""open_stores: a graph as PyG's FeatureStore and GraphStore. Rows are read from its files on demand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from shoal.batch import as_tensor
from shoal.datasets import load
from shoal.edge_weights import require_unweighted
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.pyg import load_pyg
from shoal.validation import MASKS


def open_stores(data: Graph | str | Path) -> tuple[Any, Any]:
    """(feature store, graph store) of a graph, which PyG's loaders accept instead of `Data`.

        stores = shoal.open_stores("my-graph/")
        loader = torch_geometric.loader.NeighborLoader(stores, num_neighbors=[10, 5], input_nodes=nodes)

    Features of a stored graph stay in its files: only requested rows are read. Edges are held by target (`csc`) as
    int64, as PyG's samplers need. Both stores are read-only. They have one node type and one edge type, called None.

    Args:
        data: a Graph, or the name, folder or file that `shoal.load` takes.
    """
    graph = data if isinstance(data, Graph) else load(data)
    require_unweighted(graph, "PyG's stores do")
    features, edges = _make_kinds()
    return features(graph), edges(graph)


@cache
def _make_kinds() -> tuple[Any, Any]:
    """The two store classes. They subclass PyG's, so they are made when PyG is first needed."""
    pyg, kinds = load_pyg("shoal.open_stores"), load_pyg("shoal.open_stores", "data.graph_store")

    class GraphFeatures(pyg.FeatureStore):  # type: ignore[name-defined]
        """x, y and the masks of a graph's nodes."""

        def __init__(self, graph: Graph) -> None:
            super().__init__()
            self.__dict__["graph"] = graph  # PyG's stores have attributes of their own

        def _get_tensor(self, attr: Any) -> Tensor:
            return take_rows(self.graph, attr.attr_name, attr.index)

        def _get_tensor_size(self, attr: Any) -> tuple[int, ...] | None:
            graph, name = self.graph, attr.attr_name
            if name == "x" and graph.num_features:
                return graph.num_nodes, graph.num_features
            values = getattr(graph, name) if name in ("y", *MASKS) else None
            return None if values is None else tuple(values.shape)

        def get_all_tensor_attrs(self) -> list[Any]:
            return [pyg.TensorAttr(group_name=None, attr_name=name) for name in list_attributes(self.graph)]

        def _put_tensor(self, tensor: Any, attr: Any) -> NoReturn:
            refuse_write()

        def _remove_tensor(self, attr: Any) -> NoReturn:
            refuse_write()

    class GraphEdges(pyg.GraphStore):  # type: ignore[name-defined]
        """A graph's edges by target."""

        def __init__(self, graph: Graph) -> None:
            super().__init__()
            self.graph = graph
            self._edges: tuple[Tensor, Tensor] | None = None

        def _get_edge_index(self, edge_attr: Any) -> tuple[Tensor, Tensor] | None:
            if edge_attr.edge_type is not None or edge_attr.layout != kinds.EdgeLayout.CSC:
                return None
            if self._edges is None:
                self._edges = as_tensor(self.graph.indices).long(), as_tensor(self.graph.indptr)
            return self._edges

        def get_all_edge_attrs(self) -> list[Any]:
            size = self.graph.num_nodes, self.graph.num_nodes
            return [kinds.EdgeAttr(edge_type=None, layout="csc", size=size)]

        def _put_edge_index(self, edge_index: Any, edge_attr: Any) -> NoReturn:
            refuse_write()

        def _remove_edge_index(self, edge_attr: Any) -> NoReturn:
            refuse_write()

    return GraphFeatures, GraphEdges


def list_attributes(graph: Graph) -> list[str]:
    """The attributes that a graph's nodes have."""
    held = [name for name in ("y", *MASKS) if getattr(graph, name) is not None]
    return ["x", *held] if graph.num_features else held


def take_rows(graph: Graph, name: str, index: Any) -> Tensor:
    """Rows of a node attribute; an unknown one is refused. An index of None means all nodes."""
    if name not in (known := list_attributes(graph)):
        raise unknown_name("attribute of the graph's nodes", name, known)
    if isinstance(index, int):
        index = [index]
    rows = index.numpy() if isinstance(index, Tensor) else index
    if rows is None or isinstance(rows, slice):
        rows = np.arange(graph.num_nodes)[slice(None) if rows is None else rows]
    rows = np.asarray(rows)
    if rows.dtype == np.bool_:
        rows = np.flatnonzero(rows)
    if name != "x":
        values = getattr(graph, name)[rows]
        return as_tensor(values).float() if name == "y" and graph.multi_label else as_tensor(values)
    x: Any = graph.take_features(rows)
    return as_tensor(x.toarray() if sp.issparse(x) else x)


def refuse_write() -> NoReturn:
    """Raise an error: the stores are read-only."""
    raise ShoalError("the stores of a graph are read-only: change the graph and call open_stores again")
