"""Batch: what one optimizer step works on. Sampler: what draws Batches."""

from __future__ import annotations

import inspect
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from shoal.datasets.settings import check_seed
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.csr import add_diagonal
from shoal.kernels.gather import gather_csr_rows, gather_rows
from shoal.kernels.induce import SubgraphExtractor
from shoal.kernels.spmm import multiply

if TYPE_CHECKING:
    from shoal.sampling.normalize import Norms

KINDS = ("sum", "mean", "gcn", "attention")
_BATCHES_TO_ESTIMATE_SIZE = 8


def as_tensor(array: np.ndarray) -> Tensor:
    """`array` as a tensor that shares its memory; memory-mapped graphs are read-only and stay so."""
    return torch.from_numpy(array)


with warnings.catch_warnings():  # torch warns once in a process that a read-only array must not be written
    warnings.simplefilter("ignore")
    _read_only = np.zeros(1)
    _read_only.flags.writeable = False
    as_tensor(_read_only)


class Block:
    """The pattern one layer aggregates over. Row i reads from the columns listed; the first `num_rows`
    columns are the rows themselves, so a square block is a subgraph and a wide one a neighbourhood or a
    part with its halo.

    Args:
        edge_norm: factor on every entry's weight that makes the aggregation unbiased, or None.
        degree: every column's degree in the graph the batch was drawn from. Normalised aggregation uses it
            when given, and the degree within the block otherwise.
        has_loop: which columns have a self loop there, where `degree` is given and any has: GCN gives those
            no second one.
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        num_columns: int,
        *,
        symmetric: bool = False,
        edge_norm: Tensor | None = None,
        degree: Tensor | None = None,
        has_loop: Tensor | None = None,
    ) -> None:
        self.indptr = indptr
        self.indices = indices
        self.num_columns = num_columns
        self.symmetric = symmetric
        self.edge_norm = edge_norm
        self.degree = degree
        self.has_loop = has_loop
        self._adjacencies: dict[str, Adjacency] = {}

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def adjacency(self, kind: str) -> Adjacency:
        """The operator of a kind of aggregation, made once.

        `sum` A, `mean` D⁻¹A, `gcn` D̃^-½(A + I)D̃^-½, `attention` the pattern of A + I for weights to come.
        """
        if kind not in self._adjacencies:
            if kind not in KINDS:
                raise unknown_name("aggregation", kind, KINDS)
            make = {"gcn": self._normalize_symmetric, "attention": self._add_loops}.get(kind)
            self._adjacencies[kind] = make() if make is not None else self._scale_rows(kind)
        return self._adjacencies[kind]

    def _scale_rows(self, kind: str) -> Adjacency:
        scale = None
        if kind == "mean":
            degree = self.indptr.diff() if self.degree is None else self.degree[: self.num_rows]
            scale = 1.0 / degree.clamp(min=1).float()
        return Adjacency(
            self.indptr,
            self.indices,
            self.num_columns,
            values=self.edge_norm,
            row_scale=scale,
            symmetric=self.symmetric,
        )

    def _add_loops(self) -> Adjacency:
        indptr, indices, _ = add_diagonal(self.indptr.numpy(), self.indices.numpy())
        return Adjacency(
            torch.from_numpy(indptr), torch.from_numpy(indices), self.num_columns, symmetric=self.symmetric
        )

    def _normalize_symmetric(self) -> Adjacency:
        indptr, indices, origin = (
            torch.from_numpy(part) for part in add_diagonal(self.indptr.numpy(), self.indices.numpy())
        )
        values = None
        if self.edge_norm is not None:
            values = torch.where(origin >= 0, self.edge_norm[origin.clamp(min=0)], torch.ones(()))
        if self.degree is not None:
            degree = self.degree + (1 if self.has_loop is None else ~self.has_loop)
        elif self.num_rows == self.num_columns:
            degree = indptr.diff()
        else:
            raise ShoalError("a block with more columns than rows needs `degree` for GCN normalisation")
        scale = degree.float().rsqrt()
        return Adjacency(
            indptr,
            indices,
            self.num_columns,
            values=values,
            row_scale=scale[: self.num_rows],
            column_scale=scale,
            symmetric=self.symmetric,
        )


class Batch:
    """Nodes, the blocks they aggregate over, and (gathered on first use) their features and labels.

    Attributes:
        n_id: the nodes' ids in the graph the user loaded, (num_nodes,) int64.
        blocks: one Block for every layer, or one for all of them.
        x, y: features and labels of the batch's nodes; sparse features are an `Adjacency` (rows × columns).
        train_mask: which of the nodes the loss counts.
        node_norm: factor on every node's loss, or None.
        index: the batch's number.
        fixed: whether the batch serves many steps, so that what depends on x alone is worth keeping.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: np.ndarray,
        blocks: tuple[Block, ...],
        *,
        index: int = 0,
        node_norm: Tensor | None = None,
        fixed: bool = False,
    ) -> None:
        self.graph = graph
        self.nodes = nodes
        self.blocks = blocks
        self.index = index
        self.node_norm = node_norm
        self.fixed = fixed
        self._aggregated: dict[str, Tensor] = {}

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)

    @property
    def num_edges(self) -> int:
        return sum(block.num_edges for block in self.blocks)

    @property
    def num_outputs(self) -> int:
        """Rows the model answers for: the first ones of `nodes`."""
        return self.blocks[-1].num_rows

    @property
    def nodes_per_layer(self) -> list[int]:
        """Nodes whose features each layer reads, input first, and last the outputs: shows how they multiply."""
        return [*(block.num_columns for block in self.blocks), self.num_outputs]

    @property
    def edges_per_layer(self) -> list[int]:
        """Entries that each layer aggregates over, input first."""
        return [block.num_edges for block in self.blocks]

    def block(self, layer: int) -> Block:
        """The pattern of aggregation number `layer`. A single square block serves every layer."""
        if len(self.blocks) == 1 and self.blocks[0].num_rows == self.blocks[0].num_columns:
            return self.blocks[0]
        if layer >= len(self.blocks):
            raise ShoalError(
                f"the model aggregates more than {len(self.blocks)} times but the batch has {len(self.blocks)} blocks: sample as many layers as the model has"
            )
        return self.blocks[layer]

    @cached_property
    def n_id(self) -> Tensor:
        return as_tensor(np.ascontiguousarray(self.graph.global_ids(self.nodes), np.int64))

    @cached_property
    def x(self) -> Tensor | Adjacency:
        x, rows = self.graph.find_features(self.nodes)
        if isinstance(x, np.ndarray):
            return as_tensor(x) if self.fixed and len(rows) == len(x) else _gather(x, rows)
        indptr, indices, data = gather_csr_rows(x.indptr, x.indices, x.data, rows)
        return Adjacency(as_tensor(indptr), as_tensor(indices), int(x.shape[1]), values=as_tensor(data))

    def aggregate_input(self, kind: str) -> Tensor | None:
        """`A x` of the first layer if the batch is fixed and x dense: then it is computed only once."""
        if not self.fixed or not isinstance(self.x, Tensor):
            return None
        if kind not in self._aggregated:
            self._aggregated[kind] = multiply(self.block(0).adjacency(kind), self.x)
        return self._aggregated[kind]

    @cached_property
    def y(self) -> Tensor:
        if self.graph.y is None:
            raise ShoalError(f"graph {self.graph.name!r} has no labels: training needs y")
        return as_tensor(self.graph.y[self.nodes[: self.num_outputs]])

    @cached_property
    def train_mask(self) -> Tensor:
        if self.graph.train_mask is None:
            return torch.ones(self.num_outputs, dtype=torch.bool)
        return as_tensor(self.graph.train_mask[self.nodes[: self.num_outputs]])

    @cached_property
    def edge_index(self) -> Tensor:
        """(2, num_edges) sources and targets in the batch's numbering, for PyG models."""
        block = self.blocks[0]
        targets = torch.repeat_interleave(torch.arange(block.num_rows), block.indptr.diff())
        return torch.stack([block.indices.long(), targets])

    @property
    def edge_norm(self) -> Tensor | None:
        return self.blocks[0].edge_norm

    def __repr__(self) -> str:
        return f"Batch({self.index}, {self.num_nodes:,} nodes, {self.num_edges:,} entries)"


def _gather(x: np.ndarray, rows: np.ndarray) -> Tensor:
    """`x[rows]`: by all threads in the training thread, by one in a thread that samples beside it."""
    if threading.current_thread() is threading.main_thread():
        return gather_rows(x, rows)
    out = torch.empty(len(rows), x.shape[1])
    np.take(x, rows, axis=0, out=out.numpy())
    return out


class Sampler(ABC):
    """Draws Batches from the part of `graph` that training may see.

    `sample(k)` is batch number k, a pure function of (graph, settings, seed, k), whoever calls it and in
    whatever order. Subclasses say which nodes batch k has; the induced subgraph is taken here. Every
    argument of a subclass's constructor is kept as an attribute of the same name: `settings` reads them.

    Args:
        setting: `"inductive"` or `"transductive"`: what of the graph training sees.
        coverage: normalise batches by counts from so many draws of each node on average (see
            `shoal.sampling.normalize`); they are made before the first batch. None for no normalisation.

    Attributes:
        notices: what was adapted to the graph, one sentence each.
    """

    name: ClassVar[str]

    def __init__(
        self, graph: Graph, *, setting: str = "transductive", seed: int = 0, coverage: int | None = None
    ) -> None:
        if coverage is not None:
            check_positive(coverage=coverage)
        check_seed(seed)
        self.graph = graph.train_graph(setting) if graph.has_split else graph
        self.setting = setting
        self.seed = seed
        self.coverage = coverage
        self.notices: tuple[str, ...] = ()
        self._local = threading.local()
        self._norms: Norms | None = None
        self._norms_lock = threading.Lock()

    @abstractmethod
    def draw_nodes(self, k: int) -> np.ndarray:
        """The increasing node numbers (in `self.graph`) of batch k. Safe to call from any thread."""

    def sample(self, k: int) -> Batch:
        """Batch number k."""
        norms = self.norms
        nodes = self.draw_nodes(k)
        indptr, indices, entries = self.extract(nodes, with_entries=norms is not None)
        block = Block(as_tensor(indptr), as_tensor(indices), len(nodes), symmetric=not self.graph.directed)
        node_norm = None
        if norms is not None:
            assert entries is not None
            block.edge_norm = as_tensor(norms.edge_norm[entries])
            block.degree = as_tensor(self.graph.indptr[nodes + 1] - self.graph.indptr[nodes])
            block.has_loop = None if self._has_loop is None else as_tensor(self._has_loop[nodes])
            node_norm = as_tensor(norms.node_norm[nodes])
        return Batch(self.graph, nodes, (block,), index=k, node_norm=node_norm)

    def extract(
        self, nodes: np.ndarray, *, with_entries: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """(indptr, indices, entries) of the subgraph that increasing `nodes` induce; safe in any thread."""
        make = lambda: SubgraphExtractor(self.graph.indptr, self.graph.indices)  # noqa: E731
        extractor: SubgraphExtractor = self.keep_for_thread("extractor", make)
        return extractor.extract(nodes, with_entries=with_entries)

    # -- normalisation -------------------------------------------------------------------------------------

    @property
    def norms(self) -> Norms | None:
        """The normalisation of this sampler's batches; None without `coverage`."""
        if self.coverage is not None and self._norms is None:
            with self._norms_lock:
                if self._norms is None:
                    self.normalize(self.coverage)
        return self._norms

    def normalize(
        self,
        coverage: int = 50,
        *,
        num_threads: int | None = None,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> Norms:
        """Make batches unbiased from now on; `progress(done, total, seconds_left)` follows the counting."""
        from shoal.sampling.normalize import make_norms

        check_positive(coverage=coverage)
        self._norms = make_norms(self, coverage, num_threads=num_threads, progress=progress)
        self.coverage = coverage
        self.notices += self._norms.notices
        return self._norms

    def inclusion_probabilities(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(p_v for every node, p_uv for every entry) to be in a batch, where a closed form exists."""
        return None

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments: with the graph, all that decides what `sample` returns."""
        names = list(inspect.signature(type(self)).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    @cached_property
    def _has_loop(self) -> np.ndarray | None:
        """Which nodes have a self loop, None if no node has."""
        graph = self.graph
        rows = np.repeat(np.arange(graph.num_nodes, dtype=graph.indices.dtype), graph.degree)
        loops = rows[rows == graph.indices]
        if len(loops) == 0:
            return None
        has_loop = np.zeros(graph.num_nodes, np.bool_)
        has_loop[loops] = True
        return has_loop

    # -- epochs --------------------------------------------------------------------------------------------

    @cached_property
    def batch_size(self) -> float:
        """Expected number of nodes in a batch, estimated from the first few."""
        return float(np.mean([len(self.draw_nodes(k)) for k in range(_BATCHES_TO_ESTIMATE_SIZE)]))

    @property
    def num_batches(self) -> int:
        """Batches in an epoch: the training graph's nodes over the expected nodes of a batch (JPDC'21 §3.2)."""
        return max(1, round(self.graph.num_nodes / self.batch_size))

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of epoch `number`, counted from 0."""
        count = self.num_batches
        for k in range(number * count, (number + 1) * count):
            yield self.sample(k)

    # -- what subclasses build on --------------------------------------------------------------------------

    def keep_for_thread(self, name: str, make: Callable[[], Any]) -> Any:
        """A buffer of the calling thread's own, made on first use."""
        if not hasattr(self._local, name):
            setattr(self._local, name, make())
        return getattr(self._local, name)

    def require_edges(self) -> None:
        """Refuse a training graph on which nothing can walk."""
        if self.graph.num_entries == 0:
            raise ShoalError(
                f"the training graph of {self.graph.name!r} has no edges to sample along: use the node or full sampler"
            )

    def clip_to_graph(self, name: str, size: int) -> int:
        """`size` nodes, or all of the graph's with a notice where that is fewer."""
        if size > self.graph.num_nodes:
            self.notices += (
                f"{name} {size:,} is more than the training graph's {self.graph.num_nodes:,} nodes: took all of them",
            )
        return min(size, self.graph.num_nodes)


def check_positive(**settings: Any) -> None:
    """Refuse settings that are not positive whole numbers."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ShoalError(f"{name} is {value!r}: expected a whole number of at least 1")
