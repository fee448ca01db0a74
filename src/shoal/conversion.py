"""Conversion of user input to the arrays of a Graph: edges, PyG, DGL and NetworkX graphs, features, labels, masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.checks import MAX_EDGES, check_whole
from shoal.errors import ShoalError
from shoal.external import RunSorter
from shoal.kernels.build import build_csr
from shoal.kernels.csr import index_dtype, is_symmetric
from shoal.kernels.encoding import EncodedRows
from shoal.kernels.pattern_checks import check_sparse
from shoal.labels import number_classes, tidy_labels
from shoal.memory import BUILDING, memory_left
from shoal.names import name_nodes
from shoal.progress import follow_work
from shoal.validation import MASKS
from shoal.wording import list_some
from shoal.workspace import FeatureRows, find_workspace

_ROWS_AT_ONCE = 1 << 16


def build_pattern(
    chunks: Iterable[tuple[np.ndarray, np.ndarray]],
    num_nodes: int,
    directed: bool | None,
    expected: int = 0,
) -> tuple[np.ndarray, np.ndarray, bool, list[str]]:
    """(indptr, indices, directed, notices) of the edges in many (sources, targets) arrays.

    `directed=False` adds the reverse of every edge; `None` checks whether all reverses are there. A list is emptied: each
    chunk is freed once its edges are copied. If a workspace is open and the edges exceed the memory budget, they are
    sorted and merged in its files. `expected` is the number of edges, 0 if unknown.
    """
    num_nodes = check_num_nodes(num_nodes)
    symmetrize = directed is False
    indptr, indices, merged = _build(_tidy_chunks(chunks, num_nodes), num_nodes, symmetrize, expected)
    notices = []
    if merged:
        both = " (an edge and its reverse are one)" if symmetrize else ""
        notices.append(f"merged {merged:,} duplicate edges{both}")
    if directed is None:
        directed = not is_symmetric(indptr, indices)
    return indptr, indices, directed, notices


def check_num_nodes(num_nodes: Any) -> int:
    """`num_nodes` as an int; raises ShoalError if a graph cannot have that many nodes."""
    whole = check_whole("num_nodes", num_nodes, -MAX_EDGES, MAX_EDGES)
    if whole < 1:
        raise ShoalError(f"the graph has {whole} nodes: expected at least one")
    return whole


def _build(
    chunks: Iterator[tuple[np.ndarray, np.ndarray]], num_nodes: int, symmetrize: bool, expected: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """`build_csr` of all chunks: in memory, or on disk if they do not fit and a workspace is open."""
    place, free = find_workspace(), memory_left() - BUILDING // 2
    column = np.dtype(index_dtype(num_nodes)).itemsize * (2 if symmetrize else 1)

    def fits(edges: int, size: int) -> bool:
        """Whether `edges` edges in chunks of `size` bytes can be built in memory: columns, indptr, counts, cursors."""
        return place is None or size + column * edges + 24 * num_nodes <= free

    held: list[tuple[np.ndarray, np.ndarray]] = []
    edges = size = 0
    if fits(expected, 8 * expected):
        for rows, columns in chunks:
            held.append((rows, columns))
            edges, size = edges + len(rows), size + rows.nbytes + columns.nbytes
            follow_work("edges", edges, max(edges, expected))
            if not fits(edges, size):
                break
        else:
            return build_csr(_hand_over(held), num_nodes, num_nodes, symmetrize=symmetrize)
    assert place is not None
    sorter = RunSorter(place, num_nodes, symmetrize=symmetrize, expected=expected)
    for rows, columns in chain(_hand_over(held), chunks):
        sorter.add(rows, columns)
        follow_work("edges", sorter.given, max(sorter.given, expected))
    return sorter.merge()


def _tidy_chunks(
    chunks: Iterable[tuple[np.ndarray, np.ndarray]], num_nodes: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The (rows, columns) of edge chunks, checked."""
    for sources, targets in _hand_over(chunks) if isinstance(chunks, list) else chunks:
        if len(sources) != len(targets):
            raise ShoalError(
                f"{len(sources):,} sources were given for {len(targets):,} targets: expected one source per target"
            )
        yield tidy_ends(targets, num_nodes), tidy_ends(sources, num_nodes)


def _hand_over(chunks: list[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The chunks of a list, each removed from it, so that it can be freed."""
    while chunks:
        yield chunks.pop()


def read_edge_index(edge_index: Any) -> np.ndarray:
    """`edge_index` as an array (2, num_edges)."""
    try:
        edge_index = np.asarray(edge_index)
    except ValueError:
        raise ShoalError("edge_index has rows of several lengths: expected (2, num_edges)") from None
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        turned = edge_index.ndim == 2 and edge_index.shape[1] == 2
        hint = ": transpose it (edge_index.T), or give tables to Graph.from_pandas" if turned else ""
        raise ShoalError(f"edge_index has shape {edge_index.shape}: expected (2, num_edges){hint}")
    if edge_index.size and edge_index.dtype.kind not in "iu":
        raise ShoalError(
            f"edge_index is {edge_index.dtype} of shape {edge_index.shape}: expected integers, which edge_index.long() makes of a tensor"
        )
    found: np.ndarray = edge_index
    return found


def read_scipy(matrix: Any) -> sp.coo_array:
    """The entries of a square SciPy matrix."""
    if sp.issparse(matrix):
        check_sparse(matrix)
    try:
        coo = sp.coo_array(matrix)
    except (ValueError, TypeError):
        raise ShoalError(f"a {type(matrix).__name__} was given: expected a SciPy sparse matrix") from None
    if coo.ndim != 2 or coo.shape[0] != coo.shape[1]:
        said = " × ".join(map(str, coo.shape))
        raise ShoalError(f"the adjacency is {said}: expected a square matrix")
    return coo


def read_pyg(data: Any, fields: dict[str, Any]) -> tuple[np.ndarray, int, dict[str, Any]]:
    """(edge_index, num_nodes, fields) of a PyG `Data` object; `fields` override its attributes."""
    if hasattr(data, "edge_types"):
        raise ShoalError(
            f"the {type(data).__name__} object has several types of nodes or edges: heterogeneous graphs are not supported, "
            "give data.to_homogeneous()"
        )
    if getattr(data, "edge_index", None) is None:
        has = (
            " but adj_t: convert it before ToSparseTensor,"
            if getattr(data, "adj_t", None) is not None
            else ":"
        )
        raise ShoalError(
            f"the {type(data).__name__} object has no edge_index{has} expected (2, num_edges) integers"
        )
    found = {key: getattr(data, key, None) for key in ("x", "y", *MASKS)}
    for key in MASKS:
        mask = found[key]
        if mask is not None and mask.ndim == 2:
            raise ShoalError(
                f"{key} has {mask.shape[1]} columns, one per split: choose one, e.g. data.{key} = data.{key}[:, 0]"
            )
    found = {key: to_numpy(value) for key, value in found.items() if value is not None}
    edge_index, num_nodes = np.asarray(to_numpy(data.edge_index)), int(data.num_nodes)
    x = found.get("x")
    if x is not None and x.shape[0] == num_nodes and edge_index.max(initial=0) >= num_nodes:
        raise ShoalError(
            f"x has {num_nodes:,} rows but edge_index names node {edge_index.max():,}: give one feature row per node, or correct edge_index"
        )
    weights = [key for key in ("edge_weight", "edge_attr") if getattr(data, key, None) is not None]
    if weights and is_weight(getattr(data, weights[0])) and "edge_weight" not in fields:
        found["edge_weight"] = to_numpy(getattr(data, weights.pop(0)))
    left = [*weights, *_list_unused(data, fields)]
    if left:
        reason = (
            "an edge has at most one weight" if left == weights else "a Graph has x, y, masks and edge_weight"
        )
        said = f"left out {list_some(left)}: {reason}"
        fields = {**fields, "notices": (*fields.get("notices", ()), said)}
    return edge_index, num_nodes, {**found, **fields}


def _list_unused(data: Any, fields: dict[str, Any]) -> list[str]:
    """Attributes of a PyG `Data` object that a Graph has no place for."""
    keys = getattr(data, "keys", ())
    known = {"x", "y", *MASKS, "edge_index", "edge_weight", "edge_attr", "num_nodes", *fields}
    return sorted(key for key in (keys() if callable(keys) else keys) if key not in known)


def read_dgl(graph: Any, fields: dict[str, Any]) -> tuple[np.ndarray, int, dict[str, Any]]:
    """(edge_index, num_nodes, fields) of a homogeneous DGL graph; `fields` override its data."""
    if not all(hasattr(graph, name) for name in ("edges", "num_nodes", "ndata")):
        raise ShoalError(f"a {type(graph).__name__} was given: expected a DGL graph")
    if not getattr(graph, "is_homogeneous", True):
        raise ShoalError(
            "the DGL graph has several types of nodes or edges: choose one, or dgl.to_homogeneous"
        )
    found = {key: graph.ndata[key] for key in MASKS if key in graph.ndata}
    for key, names in (("x", ("feat", "x")), ("y", ("label", "y"))):
        if name := next((name for name in names if name in graph.ndata), None):
            found[key] = graph.ndata[name]
    sources, targets = (np.asarray(to_numpy(ends)) for ends in graph.edges())
    tidy = {key: to_numpy(value) for key, value in found.items()}
    return np.stack([sources, targets]), int(graph.num_nodes()), {**tidy, **fields}


def is_weight(values: Any) -> bool:
    """Whether there is one number per edge."""
    return len(values.shape) == 1 or (len(values.shape) == 2 and values.shape[1] == 1)


def read_networkx(graph: Any, fields: dict[str, Any]) -> tuple[np.ndarray, int, dict[str, Any]]:
    """(edge_index, num_nodes, fields) of a NetworkX graph; `fields` override its attributes."""
    if not hasattr(graph, "nodes") or not hasattr(graph, "edges"):
        raise ShoalError(f"a {type(graph).__name__} was given: expected a NetworkX graph")
    number = {node: i for i, node in enumerate(graph.nodes)}
    ends = np.array([(number[u], number[v]) for u, v in graph.edges()], np.int64).reshape(-1, 2).T
    found: dict[str, Any] = {"node_ids": name_nodes(list(number)), "directed": graph.is_directed()}
    weights = [weight for _, _, weight in graph.edges(data="weight")]
    if any(weight is not None for weight in weights):  # a missing weight is 1, as in NetworkX
        found["edge_weight"] = np.array([1.0 if weight is None else weight for weight in weights])
    for key in ("x", "y", *MASKS):
        values = [attributes.get(key) for _, attributes in graph.nodes(data=True)]
        if any(value is not None for value in values):
            missing = next((node for node, value in zip(graph.nodes, values) if value is None), None)
            if missing is not None and key != "y":  # a node without y is unlabelled
                raise ShoalError(
                    f"node {missing!r} has no attribute {key!r} but other nodes have: give it to every node"
                )
            try:
                found[key] = np.asarray(values)
            except ValueError:
                raise ShoalError(
                    f"attribute {key!r} of the nodes differs in length from node to node: expected the same for all"
                ) from None
    return ends, len(number), {**found, **fields}


def guess_num_nodes(edge_index: np.ndarray, fields: dict[str, Any]) -> int:
    """Nodes of a graph given by edges: the rows of features, labels or masks, else the largest id plus one."""
    for key in ("x", "y", *MASKS):
        if fields.get(key) is not None:
            value = fields[key]
            rows = int(value.shape[0]) if hasattr(value, "shape") else len(value)
            if edge_index.size and edge_index.dtype.kind in "iu" and edge_index.max() >= rows:
                raise ShoalError(
                    f"{key} has {rows:,} rows and edge_index names node {edge_index.max()}: expected a row for every node"
                )
            return rows
    return int(edge_index.max()) + 1 if edge_index.size else 0


def tidy_ends(ends: Any, num_nodes: int) -> np.ndarray:
    """Sources or targets of edges as an integer array, checked against the number of nodes."""
    ends = np.asarray(ends)
    if not ends.size:
        return np.empty(0, np.int32)
    if ends.ndim != 1 or ends.dtype.kind not in "iu":
        raise ShoalError(
            f"edge ends are {ends.dtype} of shape {ends.shape}: expected integers of one dimension"
        )
    low, high = int(ends.min()), int(ends.max())
    if low < 0 or high >= num_nodes:
        raise ShoalError(
            f"edge end {low if low < 0 else high} is out of range: the graph has {num_nodes:,} nodes, 0 to {num_nodes - 1:,}"
        )
    return ends


def check_rows(nodes: Any, num_nodes: int) -> np.ndarray:
    """`nodes` as an array, refused unless they are node numbers, in any order."""
    try:
        nodes = np.asarray(nodes)
    except ValueError:
        nodes = np.empty((), object)
    if nodes.ndim != 1 or (nodes.size and nodes.dtype.kind not in "iu"):
        raise ShoalError(f"nodes are {nodes.dtype} of shape {nodes.shape}: expected node numbers")
    if nodes.size and (int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes):
        raise ShoalError(
            f"nodes run from {nodes.min()} to {nodes.max()}: the graph has {num_nodes:,} nodes, 0 to {num_nodes - 1:,}"
        )
    return nodes if nodes.size else nodes.astype(np.int64)


def check_nodes(nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    """`nodes` as int64, refused unless they are increasing node numbers."""
    if nodes.ndim != 1 or (nodes.size and nodes.dtype.kind not in "iu"):
        raise ShoalError(
            f"nodes are {nodes.dtype} of shape {nodes.shape}: expected node numbers of one dimension (np.flatnonzero turns a mask into them)"
        )
    nodes = nodes.astype(np.int64, copy=False)
    if len(nodes) and (int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes):
        raise ShoalError(
            f"nodes run from {nodes.min()} to {nodes.max()}: the graph has {num_nodes:,} nodes, 0 to {num_nodes - 1:,}"
        )
    if (nodes[1:] <= nodes[:-1]).any():
        at = int(np.argmax(nodes[1:] <= nodes[:-1]))
        raise ShoalError(
            f"node {nodes[at + 1]} follows node {nodes[at]}: expected increasing numbers without repeats (np.unique makes them so)"
        )
    return nodes


def to_numpy(value: Any) -> Any:
    """A torch tensor as a NumPy array, a sparse one as SciPy CSR; anything else unchanged."""
    if hasattr(value, "is_sparse") and (value.is_sparse or str(value.layout) == "torch.sparse_csr"):
        coo = value.to_sparse_coo().coalesce()
        return sp.csr_array((coo.values().numpy(), coo.indices().numpy()), shape=tuple(coo.shape))
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def tidy_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Features as float32, labels by their `task` (`tidy_labels`), masks as bool; anything odd is left for validate()."""
    tidy = dict(fields)
    task = tidy.pop("task", None)
    x: Any = tidy.get("x")
    y = tidy.get("y")
    if x is not None:
        if sp.issparse(x):
            x = sp.csr_array(x)
            if not x.has_canonical_format:
                x = x.copy()  # it may share its arrays with the caller's matrix
                x.sum_duplicates()
        elif not isinstance(x, EncodedRows):
            x = np.asarray(x)
        if x.dtype != np.float32 and x.dtype.kind in "fiub":
            with np.errstate(over="ignore"):  # validate() names the row that became infinite
                x = x.astype(np.float32) if sp.issparse(x) or x.ndim != 2 else _convert_rows(x)
        tidy["x"] = x
    if y is not None:
        y, names = number_classes(y, tidy.get("class_names"), task)
        tidy |= {"y": tidy_labels(y, task)} | ({} if names is None else {"class_names": names})
    for name in MASKS:
        mask = tidy.get(name)
        if mask is not None:
            mask = np.asarray(mask)
            if mask.dtype.kind in "iu" and ((mask == 0) | (mask == 1)).all():
                mask = mask.astype(np.bool_)
            tidy[name] = mask
    return tidy


def _convert_rows(x: np.ndarray) -> np.ndarray | EncodedRows:
    """Features as float32, or in the open workspace's type, converted by blocks of rows: they may be memory-mapped."""
    rows = FeatureRows(x.shape[1], len(x))
    for start in range(0, len(x), _ROWS_AT_ONCE):
        rows.append(x[start : start + _ROWS_AT_ONCE])
    return rows.finish()
