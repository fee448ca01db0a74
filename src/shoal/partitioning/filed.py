"""FiledParts: the parts of a graph in files, for one process that works on one part at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from shoal.aggregation import find_aggregation
from shoal.batch import Batch, as_tensor
from shoal.block import Block
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.csr import index_dtype
from shoal.kernels.entry_weights import take_weights
from shoal.kernels.patterns import join_columns
from shoal.partitioning.cut import find_halo, list_members, mark_loops, split_rows
from shoal.partitioning.partition import Partition
from shoal.scratch import Matrix, Scratch

_SCALARS = {np.int32: torch.int32, np.int64: torch.int64}


@dataclass(frozen=True)
class PartSizes:
    """Sizes of parts, counted before any is cut.

    Attributes:
        local: (P,) rows of each part.
        halo: (P, P) halo rows of part p that part q owns; zeros where the model aggregates nothing.
        entries: (P,) entries of the operator's rows, self loops included where it has them.
        halo_entries: of the halo rows' sparse features; 0 for dense ones.
        weighted: whether every entry of an operator has a weight.
    """

    local: np.ndarray
    halo: np.ndarray
    entries: np.ndarray
    halo_entries: int = 0
    weighted: bool = False

    @cached_property
    def largest(self) -> tuple[int, int, int]:
        """The most local rows, halo rows and entries of a part."""
        return int(self.local.max()), int(self.halo.sum(1).max()), int(self.entries.max())

    @property
    def pattern_bytes(self) -> int:
        """Bytes of the operators of all parts that have rows."""
        entry = 8 if self.weighted else 4
        return int(8 * (self.local + (self.local > 0)).sum() + entry * self.entries.sum())

    @property
    def transpose_bytes(self) -> int:
        """Bytes of their transposes, which backward passes read."""
        columns = self.local + self.halo.sum(1) + (self.local > 0)
        return int(8 * columns.sum() + (12 if self.weighted else 8) * self.entries.sum())


def measure_parts(graph: Graph, partition: Partition, kind: str | None) -> PartSizes:
    """The sizes of the parts for an aggregation, in one pass over the entries, a part at a time."""
    num_parts = partition.num_parts
    nodes, offsets = list_members(partition.assignment, num_parts)
    halo = np.zeros((num_parts, num_parts), np.int64)
    entries = np.zeros(num_parts, np.int64)
    x = graph.find_features(np.empty(0, np.int64))[0]
    found = 0
    for part in range(num_parts if kind is not None else 0):
        own = nodes[offsets[part] : offsets[part + 1]]
        halo_id, starts = find_halo(graph.indptr, graph.indices, partition.assignment, own, part, num_parts)
        halo[part] = np.diff(starts)
        entries[part] = (graph.indptr[own + 1] - graph.indptr[own]).sum()
        if find_aggregation(kind or "sum").loops:
            entries[part] += len(own) - int(mark_loops(graph.indptr, graph.indices, own).sum())
        if isinstance(x, sp.csr_array):
            rows = graph.find_features(halo_id)[1]
            found += int((x.indptr[rows + 1] - x.indptr[rows]).sum())
    return PartSizes(np.diff(offsets), halo, entries, found, graph.edge_weight is not None)


class FiledParts:
    """The parts of `partition` in files of `scratch`: the nodes of each, its halo, and its operator with the transpose.

    Nodes are renumbered, part after part, so that a part's rows are consecutive in every matrix of all nodes: a node's
    number there is its *place*. Halo rows are sorted by owner, ascending within one.

    Attributes:
        sizes: from `measure_parts`.
        starts: (P + 1,) the place of each part's first row.
        halo_starts: (P + 1,) offsets of each part's halo in a matrix of all halo rows.
    """

    def __init__(
        self, graph: Graph, partition: Partition, kind: str | None, sizes: PartSizes, scratch: Scratch
    ) -> None:
        self.graph, self.kind, self.sizes = graph, kind, sizes
        self.num_parts = len(sizes.local)
        self.starts = np.concatenate([[0], sizes.local.cumsum()])
        self.halo_starts = np.concatenate([[0], sizes.halo.sum(1).cumsum()])
        self._owned = np.pad(sizes.halo.cumsum(1), ((0, 0), (1, 0)))
        self._entry_starts = np.concatenate([[0], sizes.entries.cumsum()])
        self._arrays: dict[str, Matrix] = {}
        self._cut(partition, scratch)
        for matrix in self._arrays.values():
            matrix.settle()

    def slice_rows(self, part: int) -> slice:
        """The places of a part's rows."""
        return slice(int(self.starts[part]), int(self.starts[part + 1]))

    def slice_halo(self, part: int, owner: int | None = None) -> slice:
        """Positions of a part's halo rows among those of all parts; with `owner`, only of those that it owns."""
        first = int(self.halo_starts[part])
        if owner is None:
            return slice(first, int(self.halo_starts[part + 1]))
        return slice(first + int(self._owned[part, owner]), first + int(self._owned[part, owner + 1]))

    def halo_places(self, rows: slice) -> Tensor:
        """The places of the halo rows at positions `rows` among those of all parts."""
        return self._read("halo", rows)

    def make_batch(self, part: int, *, with_halo: bool) -> Batch:
        """A part's rows, followed by its halo's, over its operator. Features and labels are read on use."""
        rows = self.slice_rows(part)
        own = self._read("order", rows)
        if with_halo:
            halo = self._read("order")[self.halo_places(self.slice_halo(part))]
            nodes = torch.cat([own, halo])
        else:
            nodes = own.clone()
        return Batch(self.graph, nodes.numpy(), (self.make_block(part),))

    def make_block(self, part: int) -> Block:
        """A part's operator, memory-mapped: it is read when it is multiplied."""
        rows, halo = self.slice_rows(part), self.slice_halo(part)
        count, columns = rows.stop - rows.start, rows.stop - rows.start + halo.stop - halo.start
        if self.kind is None:
            return Block(
                torch.zeros(count + 1, dtype=torch.int64),
                torch.empty(0, dtype=torch.int32),
                count,
                checked=True,
            )
        entries = slice(int(self._entry_starts[part]), int(self._entry_starts[part + 1]))
        wide = slice(rows.start + halo.start, rows.start + halo.start + columns)
        indptr = self._read("indptr", slice(rows.start + part, rows.stop + part + 1))
        indices = self._read("indices", entries)
        adj = Adjacency(
            indptr,
            indices,
            columns,
            values=self._read("values", entries) if "values" in self._arrays else None,
            row_scale=self._read("row_scale", rows) if "row_scale" in self._arrays else None,
            column_scale=self._read("column_scale", wide) if "column_scale" in self._arrays else None,
            checked=True,
        )
        turned = self._read("turned_indptr", slice(wide.start + part, wide.stop + part + 1))
        adj.give_transpose(turned, self._read("turned_indices", entries), self._read("permutation", entries))
        block = Block(indptr, indices, columns, checked=True)
        block.give_operator(self.kind, adj)
        return block

    def _cut(self, partition: Partition, scratch: Scratch) -> None:
        """Write every part to the files, one after the other."""
        graph, assignment = self.graph, partition.assignment
        nodes, _ = list_members(assignment, self.num_parts)
        self._make(scratch, "order", len(nodes), torch.int64)
        self._write("order", 0, as_tensor(nodes))
        if self.kind is None:
            return
        rows, halo, entries = (int(one[-1]) for one in (self.starts, self.halo_starts, self._entry_starts))
        narrow = _SCALARS[index_dtype(max(sum(self.sizes.largest[:2]), self.sizes.largest[2]))]
        kind = find_aggregation(self.kind)
        for name, size, dtype in (
            ("halo", halo, torch.int64),
            ("indptr", rows + self.num_parts, torch.int64),
            ("indices", entries, narrow),
            ("turned_indptr", rows + halo + self.num_parts, torch.int64),
            ("turned_indices", entries, narrow),
            ("permutation", entries, narrow),
            *([("values", entries, torch.float32)] if self.sizes.weighted else []),
            *([("row_scale", rows, torch.float32)] if kind.scale != "none" else []),
            *([("column_scale", rows + halo, torch.float32)] if kind.scales_columns else []),
        ):
            self._make(scratch, name, size, dtype)
        number = np.empty(graph.num_nodes, index_dtype(graph.num_nodes))  # the place of every node
        scratch_places = np.empty_like(number)
        for part in range(self.num_parts):
            rows_of = self.slice_rows(part)
            number[nodes[rows_of]] = np.arange(rows_of.start, rows_of.stop)
        for part in range(self.num_parts):
            own = nodes[self.slice_rows(part)]
            halo_id, _ = find_halo(graph.indptr, graph.indices, assignment, own, part, self.num_parts)
            self._write("halo", self.halo_starts[part], as_tensor(number[halo_id].astype(np.int64)))
            self._write_operator(part, self._make_operator(own, halo_id, scratch_places))

    def _make_operator(self, own: np.ndarray, halo_id: np.ndarray, places: np.ndarray) -> Adjacency:
        graph, columns = self.graph, np.concatenate([own, halo_id])
        split = [as_tensor(one) for one in split_rows(graph.indptr, graph.indices, own, halo_id, places)]
        pattern = join_columns((split[0], split[1]), (split[2], split[3]), len(own), len(halo_id))
        loops = mark_loops(graph.indptr, graph.indices, columns)
        degree = np.asarray(graph.indptr[columns + 1] - graph.indptr[columns], np.int64)
        weights = None
        if graph.edge_weight is not None:
            degree = graph.weighted_degree[columns]
            sub = (one.numpy() for one in pattern)
            weights = as_tensor(
                take_weights(graph.indptr, graph.indices, graph.edge_weight, own, columns, *sub)
            )
        block = Block(
            *pattern,
            len(columns),
            edge_weight=weights,
            degree=as_tensor(degree),
            has_loop=as_tensor(loops),
            checked=True,
        )
        assert self.kind is not None
        return block.adjacency(self.kind)

    def _write_operator(self, part: int, adj: Adjacency) -> None:
        first, wide = int(self.starts[part]), int(self.starts[part] + self.halo_starts[part])
        entries = int(self._entry_starts[part])
        turned = adj.transpose()
        self._write("indptr", first + part, adj.indptr)
        self._write("indices", entries, adj.indices)
        self._write("turned_indptr", wide + part, turned.indptr)
        self._write("turned_indices", entries, turned.indices)
        self._write("permutation", entries, adj.transpose_permutation())
        if adj.values is not None:
            self._write("values", entries, adj.values)
        if adj.row_scale is not None:
            self._write("row_scale", first, adj.row_scale)
        if adj.column_scale is not None:
            self._write("column_scale", wide, adj.column_scale)

    def _make(self, scratch: Scratch, name: str, size: int, dtype: torch.dtype) -> None:
        self._arrays[name] = scratch.make(size, 1, dtype)

    def _write(self, name: str, start: int, values: Tensor) -> None:
        self._arrays[name].write(slice(int(start), int(start) + len(values)), values.view(-1, 1))

    def _read(self, name: str, rows: slice = slice(None)) -> Tensor:
        return self._arrays[name].tensor.view(-1)[rows]
