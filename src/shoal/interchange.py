"""Interchange: graphs from and to the forms of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shoal.conversion import (
    build_pattern,
    guess_num_nodes,
    read_dgl,
    read_edge_index,
    read_networkx,
    read_pyg,
    read_scipy,
    tidy_fields,
)
from shoal.edge_weights import WeightedChunks, attach_weights
from shoal.frames import read_frames
from shoal.pyg import make_data
from shoal.validation import validate_attributes

if TYPE_CHECKING:
    from shoal.graph import Graph


class Interchange:
    """Constructors of Graph from edge lists, DataFrames, SciPy, PyG, NetworkX and DGL, and conversion to PyG."""

    if TYPE_CHECKING:

        def __init__(self, indptr: np.ndarray, indices: np.ndarray, **fields: Any) -> None: ...

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        num_nodes: int | None = None,
        *,
        directed: bool | None = None,
        edge_weight: Any = None,
        **fields: Any,
    ) -> Self:
        """From `(2, num_edges)` sources and targets: target `edge_index[1]` aggregates from source `[0]`.

        Args:
            edge_index: array or tensor (2, num_edges) of sources and targets.
            num_nodes: number of nodes. None: the number of rows of x, y or a mask, else the largest number in edge_index plus one.
            directed: False adds the reverse of every edge. True keeps the arcs as they are. None calls the graph undirected if every arc's reverse is there, as PyG does.
            edge_weight: a number above 0 for each edge; those of duplicates are added up. None: unweighted.
            fields: other arguments of Graph, such as x, y and train_mask. A y of names, or other objects, is numbered, and class_names keeps the names; None and NaN are unlabelled.
        """
        edge_index = read_edge_index(edge_index)
        if num_nodes is None:
            num_nodes = guess_num_nodes(edge_index, fields)
        ends = [(edge_index[0], edge_index[1])]
        graph: Any = cls.from_edge_chunks(ends, num_nodes, directed=directed, **fields)
        if edge_weight is not None:
            graph = attach_weights(graph, edge_index, edge_weight, directed=directed)
        made: Self = graph
        return made

    @classmethod
    def from_edge_chunks(
        cls,
        chunks: Iterable[tuple[np.ndarray, np.ndarray]] | WeightedChunks,
        num_nodes: int,
        *,
        directed: bool | None = None,
        notices: Iterable[str] = (),
        expected: int = 0,
        **fields: Any,
    ) -> Self:
        """Like `from_edge_index`, from many (sources, targets) arrays, so that no joined copy is needed.

        Where a workspace is open, edges that exceed the memory budget are built on disk.

        Args:
            chunks: (sources, targets) arrays, or WeightedChunks with a weight for each edge. A list is emptied: each chunk is freed once its edges are copied.
            num_nodes: number of nodes.
            directed: as in `from_edge_index`.
            notices: notices of earlier steps, kept with the graph.
            expected: total number of edges, 0 if unknown.
            fields: other arguments of Graph, such as x, y and train_mask.
        """
        given = directed
        indptr, indices, directed, said = build_pattern(chunks, num_nodes, directed, expected)
        tidy = tidy_fields(fields)
        graph: Any = cls(indptr, indices, directed=directed, notices=[*notices, *said], checked=True, **tidy)
        validate_attributes(graph)  # the pattern is right by the way it was built
        if isinstance(chunks, WeightedChunks):
            graph = chunks.attach(graph, directed=given)
        made: Self = graph
        return made

    @classmethod
    def from_pandas(
        cls,
        edges: Any,
        nodes: Any = None,
        *,
        source: str | None = None,
        target: str | None = None,
        id: str | None = None,
        label: str | Sequence[str] | None = None,
        directed: bool | None = None,
        name: str = "graph",
        **options: Any,
    ) -> Graph:
        """From DataFrames of edges and nodes, with any integer or string ids, encoded as `shoal data import` does.

            graph = shoal.Graph.from_pandas(payments, customers, source="payer", target="payee", label="status")

        Args:
            edges: a row for each edge; a DataFrame of pandas, or an Arrow table (of Polars: `frame.to_arrow()`).
            nodes: a row for each node: id, label, `split`, and features. None: nodes are the ends of edges, without features.
            source: column of `edges`. None: source, src, from or the first.
            target: column of `edges`. None: target, dst, to or the second.
            id: column of `nodes`. None: its index if that has a name, else id, node_id, node or the first.
            label: column of `nodes`, or several 0/1 columns. None: label, y, class or target, if any.
            directed: False adds the reverse of every edge. None: arcs, unless every arc's reverse is there.
            name: the graph's name.
            options: other settings of the table importer, such as weight="amount", exclude=["name"] or like=graph, which encodes new tables as those of `graph`.
        """
        options |= {"source": source, "target": target, "id": id, "labels": label}
        return read_frames(edges, nodes, name, directed, options)

    @classmethod
    def from_scipy(cls, matrix: Any, *, directed: bool | None = None, **fields: Any) -> Self:
        """From a square SciPy sparse matrix: row i aggregates from the columns stored in row i.

        Args:
            matrix: square sparse matrix in any of SciPy's formats.
            directed: as in `from_edge_index`.
            fields: other arguments of Graph, such as x, y and train_mask.
        """
        coo = read_scipy(matrix)
        return cls.from_edge_chunks([(coo.col, coo.row)], coo.shape[0], directed=directed, **fields)

    @classmethod
    def from_pyg(cls, data: Any, **fields: Any) -> Self:
        """From a PyG `Data` object (or anything with its attributes).

        Args:
            data: the `Data` object.
            fields: arguments of Graph that replace those of `data`.
        """
        edge_index, num_nodes, fields = read_pyg(data, fields)
        return cls.from_edge_index(edge_index, num_nodes, **fields)

    @classmethod
    def from_networkx(cls, graph: Any, **fields: Any) -> Self:
        """From a NetworkX graph with any node ids; node attributes x, y and the masks are used.

        Nodes are numbered in the graph's own order; `node_ids` holds their ids.

        Args:
            graph: a NetworkX graph, directed or undirected.
            fields: arguments of Graph that replace those of `graph`.
        """
        edge_index, num_nodes, fields = read_networkx(graph, fields)
        return cls.from_edge_index(edge_index, num_nodes, **fields)

    @classmethod
    def from_dgl(cls, graph: Any, **fields: Any) -> Self:
        """From a homogeneous DGL graph: `ndata` feat (or x), label (or y) and the masks are used.

        It is read by `edges()`, `num_nodes()` and `ndata`; DGL itself is not imported.

        Args:
            graph: a homogeneous DGL graph.
            fields: arguments of Graph that replace those of `graph`, such as `x=graph.ndata["h"]`.
        """
        edge_index, num_nodes, fields = read_dgl(graph, fields)
        return cls.from_edge_index(edge_index, num_nodes, **fields)

    def to_pyg(self, *, dense: bool = True) -> Any:
        """As a PyG `Data` object with x, edge_index, y and the masks; arrays are shared, not copied, where they can be.

        Multi-label y is float, as PyG's losses want it. An undirected graph has both directions of every edge. Needs the extra `pyg`.

        Args:
            dense: make sparse features dense. False: a torch sparse CSR tensor.
        """
        return make_data(self, dense=dense)
