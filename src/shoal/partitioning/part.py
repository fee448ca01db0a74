"""Part: one rank's share of a graph: its local rows, its halo rows and its send lists."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.checks import check_whole
from shoal.errors import ShoalError
from shoal.graph import MASKS, Graph
from shoal.kernels.csr import index_dtype
from shoal.kernels.entry_weights import take_weights
from shoal.notebook import show_facts
from shoal.partitioning.cover import cover_halo
from shoal.partitioning.cut import find_halo, find_receivers, list_members, mark_loops, split_rows
from shoal.partitioning.part_checks import check_part

MAX_PARTS = 1 << 20


@dataclass(frozen=True, eq=False)
class Part:
    """One rank's share of a graph; the same whether cut in memory or opened from its folder.

    Attributes:
        rank, num_parts: number of this part, and of all parts.
        num_global_nodes: nodes of the whole graph.
        directed, num_classes, multi_label, name: as of the whole graph.
        n_id: int64 (num_local,), global numbers of the local rows, in local order.
        halo_id: int64 (num_halo,), global numbers of the halo rows, by owner, ascending within one.
        halo_offsets: int64 (P + 1,): rank q owns `halo_id[halo_offsets[q]:halo_offsets[q + 1]]`, and sends
            them in that order.
        send_rows: local rows to send, by receiver, each receiver's in the order of its halo.
        send_offsets: int64 (P + 1,), offsets of each receiver's rows in `send_rows`.
        local_indptr, local_indices: the pattern (num_local × num_local) of the entries in local columns.
        halo_indptr, halo_indices: the pattern (num_local × num_halo) of the entries in halo columns.
        degree: (num_local + num_halo,), every column's degree (row length, with weights their sum) in the whole graph.
        has_loop: which columns have a self loop, None if none has.
        keep: which halo rows are received as rows by minimum covers (`cover_halo`), the others in sums; None if not
            computed yet.
        local_weight, halo_weight: float32, of the entries of both patterns; None where all are 1.
        x, y, train_mask, val_mask, test_mask: of the local rows; None where the graph has none.
        checksum: of the whole graph, `Graph.checksum`.
        checked: whether the caller guarantees consistent sizes and numbers. Otherwise they are checked, since kernels
            rely on them.
    """

    rank: int
    num_parts: int
    num_global_nodes: int
    directed: bool
    num_classes: int
    multi_label: bool
    name: str
    checksum: str
    n_id: np.ndarray
    halo_id: np.ndarray
    halo_offsets: np.ndarray
    send_rows: np.ndarray
    send_offsets: np.ndarray
    local_indptr: np.ndarray
    local_indices: np.ndarray
    halo_indptr: np.ndarray
    halo_indices: np.ndarray
    degree: np.ndarray
    has_loop: np.ndarray | None = None
    keep: np.ndarray | None = None
    local_weight: np.ndarray | None = None
    halo_weight: np.ndarray | None = None
    x: np.ndarray | sp.csr_array | None = None
    y: np.ndarray | None = None
    train_mask: np.ndarray | None = None
    val_mask: np.ndarray | None = None
    test_mask: np.ndarray | None = None
    checked: InitVar[bool] = False

    def __post_init__(self, checked: bool) -> None:
        if not checked:
            check_part(self)

    @property
    def num_local(self) -> int:
        """Rows that this rank owns."""
        return len(self.n_id)

    @property
    def num_halo(self) -> int:
        """Rows of other ranks that this rank's rows read."""
        return len(self.halo_id)

    @property
    def num_sent(self) -> int:
        """Rows sent in one exchange; a row sent to two ranks counts twice."""
        return len(self.send_rows)

    @property
    def num_features(self) -> int:
        """Columns of x, 0 without features."""
        return 0 if self.x is None else int(self.x.shape[1])

    def __repr__(self) -> str:
        return (
            f"Part({self.rank} of {self.num_parts}, {self.num_local:,} local and {self.num_halo:,} halo rows)"
        )

    def _repr_html_(self) -> str:
        facts = {
            "local rows": self.num_local,
            "halo rows": self.num_halo,
            "rows sent in one exchange": self.num_sent,
            "features": self.num_features or None,
        }
        return show_facts(f"Part {self.rank} of {self.num_parts}", facts)


def make_part(graph: Graph, assignment: np.ndarray, num_parts: int, rank: int) -> Part:
    """The part of one rank. In a directed graph all entries are read, in an undirected one only the rank's rows."""
    assignment = check_assignment(assignment, graph.num_nodes, num_parts)
    check_whole("rank", rank, 0, num_parts - 1)
    nodes = np.flatnonzero(assignment == rank)
    place = np.empty(graph.num_nodes, index_dtype(graph.num_nodes))
    sent, offsets = find_receivers(
        graph.indptr, graph.indices, assignment, nodes, rank, num_parts, graph.directed
    )
    return cut_part(graph, assignment, num_parts, rank, nodes, place, (sent, offsets))


def split_graph(graph: Graph, assignment: np.ndarray, num_parts: int) -> list[Part]:
    """The parts of all ranks. Each rank's send lists are taken from the other ranks' halos."""
    assignment = check_assignment(assignment, graph.num_nodes, num_parts)
    nodes, offsets = list_members(assignment, num_parts)
    members = [nodes[offsets[q] : offsets[q + 1]] for q in range(num_parts)]
    halos = [
        find_halo(graph.indptr, graph.indices, assignment, members[q], q, num_parts) for q in range(num_parts)
    ]
    place = np.empty(graph.num_nodes, index_dtype(graph.num_nodes))
    sent = gather_sent(halos, assignment)
    return [
        cut_part(graph, assignment, num_parts, q, members[q], place, sent[q], halos[q])
        for q in range(num_parts)
    ]


def gather_sent(
    halos: list[tuple[np.ndarray, np.ndarray]], assignment: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(sent, send_offsets) of every rank: its rows in each of the other ranks' halos, in the halo's order."""
    num_parts = len(halos)
    sizes = np.stack([np.diff(offsets) for _, offsets in halos])  # (reader, owner)
    rows = np.concatenate([halo_id for halo_id, _ in halos])
    rows = rows[np.argsort(assignment[rows], kind="stable")]
    first = np.zeros(num_parts + 1, np.int64)
    np.cumsum(sizes.sum(0), out=first[1:])
    offsets = np.zeros((num_parts, num_parts + 1), np.int64)
    np.cumsum(sizes.T, axis=1, out=offsets[:, 1:])
    return [(rows[first[q] : first[q + 1]], offsets[q]) for q in range(num_parts)]


def cut_part(
    graph: Graph,
    assignment: np.ndarray,
    num_parts: int,
    rank: int,
    nodes: np.ndarray,
    place: np.ndarray,
    receivers: tuple[np.ndarray, np.ndarray],
    halo: tuple[np.ndarray, np.ndarray] | None = None,
) -> Part:
    """The part of `rank`, which owns `nodes`, from its send lists and its halo; `place` is one scratch integer per node."""
    indptr, indices = graph.indptr, graph.indices
    halo_id, halo_offsets = halo or find_halo(indptr, indices, assignment, nodes, rank, num_parts)
    patterns = split_rows(indptr, indices, nodes, halo_id, place)
    sent, send_offsets = receivers
    send_rows = place[sent].astype(index_dtype(len(nodes)))  # split_rows left every local row's number there
    columns = np.concatenate([nodes, halo_id])
    loops = mark_loops(indptr, indices, columns)
    fields: dict[str, Any] = {
        "x": graph.take_features(nodes) if graph.num_features else None,
    }
    fields |= {key: None if (value := getattr(graph, key)) is None else value[nodes] for key in ("y", *MASKS)}
    degree = np.asarray(indptr[columns + 1] - indptr[columns], np.int64)
    if graph.edge_weight is not None:
        degree = graph.weighted_degree[columns]
        for name, ids, own in (("local", nodes, patterns[:2]), ("halo", halo_id, patterns[2:])):
            fields[f"{name}_weight"] = take_weights(indptr, indices, graph.edge_weight, nodes, ids, *own)
    return Part(
        rank,
        num_parts,
        graph.num_nodes,
        graph.directed,
        graph.num_classes,
        graph.multi_label,
        graph.name,
        graph.checksum,
        nodes,
        halo_id,
        halo_offsets,
        send_rows,
        send_offsets,
        *patterns,
        degree=degree,
        has_loop=loops if loops.any() else None,
        keep=cover_halo(*patterns[2:], halo_offsets),
        **fields,
        checked=True,
    )


def check_assignment(assignment: np.ndarray, num_nodes: int, num_parts: int) -> np.ndarray:
    """`assignment` as int32; raises unless it gives every node a part from 0 to num_parts - 1."""
    check_whole("num_parts", num_parts, 1, MAX_PARTS)
    assignment = np.asarray(assignment)
    if assignment.shape != (num_nodes,) or assignment.dtype.kind not in "iu":
        raise ShoalError(
            f"assignment is {assignment.dtype} {assignment.shape}: expected the part of each of the {num_nodes:,} nodes"
        )
    if num_nodes and (assignment.min() < 0 or assignment.max() >= num_parts):
        raise ShoalError(
            f"assignment holds parts {assignment.min()} to {assignment.max()}: expected 0 to {num_parts - 1}"
        )
    return np.ascontiguousarray(assignment, np.int32)
