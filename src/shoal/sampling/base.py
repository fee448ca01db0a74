"""Sampler: the base class of samplers, which draw Batches. SAMPLERS: samplers by name, with their settings."""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np

from shoal.array_files import ask_large_pages
from shoal.batch import Batch, as_tensor
from shoal.block import Block
from shoal.checks import MAX_NODES, MAX_SEED, check_positive, check_whole
from shoal.conversion import check_nodes
from shoal.errors import ShoalError
from shoal.graph import SETTINGS, Graph, require_graph
from shoal.kernels.induce import SubgraphExtractor
from shoal.kernels.orient import MOST_PLACED, OrientedExtractor, OrientedGraph, is_worth_orienting
from shoal.kernels.row_sets import find_loops
from shoal.notebook import show_facts
from shoal.registry import Registry
from shoal.sampling.buffers import Buffers
from shoal.sampling.normalize import Norms, make_norms
from shoal.sampling.oriented import orient_graph
from shoal.settings import Choices, Null, Range, Seed, Setting, check_options, check_settings, list_settings

COUNT = Range(1, MAX_NODES, said="1 to 2^31")
Count = Annotated[int, COUNT]
Budget = Annotated[Count, "nodes in a batch, at most all of the training graph"]
TrainingGraph = Annotated[
    str, Choices(SETTINGS), "what training sees: training nodes only (inductive) or the whole graph"
]
Coverage = Annotated[
    int | None,
    COUNT,
    Null("no normalisation"),
    "GraphSAINT's normalisation, estimated from this many draws of each node, on average",
]
_BATCHES_TO_ESTIMATE_SIZE = 8


class Sampler(Buffers, ABC):
    """Draws Batches from the part of `graph` that training may see.

    `sample(k)` is batch number k, a pure function of (graph, settings, seed, k): it may be called from any thread and in
    any order. A subclass implements `draw_nodes`, the nodes of batch k; the base class takes the induced subgraph. Every
    argument of a subclass's constructor is kept as an attribute of the same name: `settings` reads them.
    Those with an annotated meaning are settings of a run (`shoal.settings`).

    Args:
        graph: the graph, with its split.
        seed: decides every batch.
        setting: what training sees. `"inductive"`: training nodes and the edges between them; `"transductive"`: the whole graph.
        coverage: GraphSAINT's normalisation (`shoal.sampling.normalize`), estimated before the first batch from this many
            draws of each node, on average. None: no normalisation.

    Attributes:
        notices: what was adapted to the graph, one sentence each.
    """

    name: ClassVar[str]
    is_for_one_rank: ClassVar[bool] = False  # its batches are already those of one rank
    draws_subgraphs: ClassVar[bool] = True  # a batch is an induced subgraph, whose rows ranks can share
    can_prefetch: ClassVar[bool] = True  # threads may draw its batches ahead of the step
    needs_edges: ClassVar[bool] = False  # a training graph without edges is refused

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        coverage: Coverage = None,
    ) -> None:
        require_graph(graph)
        self.graph = graph.train_graph(setting) if graph.has_split else graph
        ask_large_pages(self.graph.indptr, self.graph.indices)
        self.setting = setting
        self.seed = seed
        self.coverage = coverage
        self.notices: tuple[str, ...] = ()
        self._local = threading.local()
        self._norms: Norms | None = None
        self._orientation: OrientedGraph | None = None
        self._is_orientation_known = False
        self._lock = threading.Lock()
        self._norms_lock = threading.Lock()
        self._loops: np.ndarray | None = None
        self._loops_lock = threading.Lock()
        if self.needs_edges and self.graph.num_entries == 0:
            others = " or ".join(name for name, known in SAMPLERS.items() if not known.needs_edges)
            raise ShoalError(
                f"the training graph of {self.graph.name!r} has no edges to sample along: use sampler {others}"
            )

    @classmethod
    def is_shareable(cls) -> bool:
        """Whether ranks with parts of the graph can share a batch, each computing its own rows."""
        return cls.draws_subgraphs and not cls.is_for_one_rank

    @classmethod
    def require_shareable(cls) -> None:
        """Raise if ranks cannot share this sampler's batches."""
        if not cls.is_shareable():
            others = ", ".join(name for name, known in SAMPLERS.items() if known.is_shareable())
            raise ShoalError(
                f"sampler {cls.name!r} draws no induced subgraphs, which ranks could share: expected one of {others}"
            )

    @abstractmethod
    def draw_nodes(self, k: int) -> np.ndarray:
        """The increasing node numbers (in `self.graph`) of batch k. Safe to call from any thread.

        Args:
            k: number of the batch.
        """

    def list_inputs(self, k: int) -> np.ndarray:
        """The nodes (in `self.graph`) whose features batch k reads, in the batch's own order.

        Args:
            k: number of the batch.
        """
        return self.draw_nodes(k)

    def sample(self, k: int) -> Batch:
        """Batch number k.

        Args:
            k: number of the batch, from 0.
        """
        k = check_whole("k", k, 0, MAX_SEED)
        norms = self.norms
        nodes = self.draw_nodes(k)
        weights = self.graph.edge_weight
        both = norms is not None and weights is not None
        values = weights if norms is None else norms.edge_norm
        indptr, indices, found = self.extract_drawn(nodes, with_entries=both, values=None if both else values)
        block = Block(
            as_tensor(indptr), as_tensor(indices), len(nodes), symmetric=not self.graph.directed, checked=True
        )
        node_norm = None
        if weights is not None:
            assert found is not None
            block.edge_weight = as_tensor(weights[found] if both else found)
        if norms is not None:
            assert found is not None
            block.edge_norm = as_tensor(norms.edge_norm[found] if both else found)
            block.degree = as_tensor(self.graph.indptr[nodes + 1] - self.graph.indptr[nodes])
            if both:
                block.degree = as_tensor(self.graph.weighted_degree[nodes])
            block.has_loop = None if self._has_loop is None else as_tensor(self._has_loop[nodes])
            node_norm = as_tensor(norms.node_norm[nodes])
        return Batch(self.graph, nodes, (block,), index=k, node_norm=node_norm)

    def extract(
        self, nodes: np.ndarray, *, with_entries: bool = False, values: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """(indptr, indices, entries) of the subgraph that increasing `nodes` induce; safe in any thread.

        Args:
            nodes: increasing node numbers in `self.graph`.
            with_entries: return which of the graph's entries the subgraph has. False: None in their place.
            values: one for every entry of the graph; those of the subgraph's entries are returned in place of `entries`.
        """
        nodes = check_nodes(np.asarray(nodes), self.graph.num_nodes)
        return self._extract(nodes, with_entries=with_entries, values=values)

    def extract_drawn(
        self, nodes: np.ndarray, *, with_entries: bool = False, values: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """`extract` for nodes from `draw_nodes`: those of Shoal's own samplers are not checked.

        Args:
            nodes: the result of `draw_nodes`.
            with_entries: as in `extract`.
            values: as in `extract`.
        """
        if not type(self).draw_nodes.__module__.startswith("shoal."):
            try:
                nodes = check_nodes(np.asarray(nodes), self.graph.num_nodes)
            except ShoalError as error:
                raise ShoalError(
                    f"{type(self).__name__}.draw_nodes returned a wrong batch: {error}"
                ) from None
        return self._extract(nodes, with_entries=with_entries, values=values)

    def _extract(
        self, nodes: np.ndarray, *, with_entries: bool, values: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        places = with_entries or values is not None  # positions of entries are stored for smaller graphs only
        oriented = None if places and self.graph.num_entries > MOST_PLACED else self._oriented
        make = lambda: (  # noqa: E731
            OrientedExtractor(oriented)
            if oriented is not None
            else SubgraphExtractor(self.graph.indptr, self.graph.indices)
        )
        with self.borrow("extractor" if oriented is None else "oriented extractor", make) as extractor:
            extracted: tuple[np.ndarray, np.ndarray, np.ndarray | None]
            extracted = extractor.extract(nodes, with_entries=with_entries, values=values)
        return extracted

    @property
    def _oriented(self) -> OrientedGraph | None:
        """The degree-oriented graph, if extraction from it is faster (batch 0 decides) and it fits in memory."""
        if not self._is_orientation_known:
            with self._lock:
                if not self._is_orientation_known:
                    graph = self.graph
                    if not graph.directed and is_worth_orienting(
                        graph.indptr, graph.indices, self.draw_nodes(0)
                    ):
                        self._orientation = orient_graph(graph)
                    self._is_orientation_known = True
        return self._orientation

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
        """Make batches unbiased from now on.

        Args:
            coverage: draws of each node to count, on average.
            num_threads: threads that draw. None: all cores.
            progress: called as `progress(done, total, seconds_left)` while batches are counted.
        """
        check_positive(coverage=coverage)
        self._norms = make_norms(self, coverage, num_threads=num_threads, progress=progress)
        self.coverage = coverage
        self.notices += self._norms.notices
        return self._norms

    def inclusion_probabilities(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Probabilities to be in a batch, (p_v of every node, p_uv of every entry); None without a closed form."""
        return None

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, which with the graph determine what `sample` returns."""
        names = list(inspect.signature(type(self)).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        kinds = (int, float, str, list, tuple)
        simple = {name: value for name, value in self.settings.items() if isinstance(value, kinds)}
        said = "".join(f", {name}={value!r}" for name, value in simple.items())
        return f"{type(self).__name__}({self.graph.name!r}{said})"

    def _repr_html_(self) -> str:
        facts = {"graph": self.graph.name, "batches per epoch": self.num_batches}
        return show_facts(type(self).__name__, facts | self.settings)

    @property
    def _has_loop(self) -> np.ndarray | None:
        """Which nodes have a self loop, None if no node has; computed once, safe in any thread."""
        if self._loops is None:
            with self._loops_lock:
                if self._loops is None:
                    found = find_loops(as_tensor(self.graph.indptr), as_tensor(self.graph.indices)).numpy()
                    self._loops = found if found.any() else found[:0]
        return self._loops if len(self._loops) else None

    # -- epochs --------------------------------------------------------------------------------------------

    @cached_property
    def batch_size(self) -> float:
        """Expected number of nodes in a batch, estimated from the first few."""
        return float(np.mean([len(self.draw_nodes(k)) for k in range(_BATCHES_TO_ESTIMATE_SIZE)]))

    @property
    def num_batches(self) -> int:
        """Batches in an epoch: the training graph's nodes over the expected nodes of a batch (JPDC'21 §3.2)."""
        return max(1, round(self.graph.num_nodes / self.batch_size))

    def epoch(self, number: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch.

        Args:
            number: number of the epoch, from 0.
            first: the batch of the epoch to begin with.
        """
        count = self.num_batches
        for k in range(number * count + first, (number + 1) * count):
            yield self.sample(k)

    # -- for subclasses ------------------------------------------------------------------------------------

    def clip_to_graph(self, name: str, size: int) -> int:
        """`size`, or the number of nodes of the graph, with a notice, if that is smaller.

        Args:
            name: name of the setting, for the notice.
            size: requested number of nodes.
        """
        if size > self.graph.num_nodes:
            self.notices += (
                f"{name} {size:,} is more than the training graph's {self.graph.num_nodes:,} nodes: took all of them",
            )
        return min(size, self.graph.num_nodes)


LOADER_ARGUMENTS = ("outputs", "shuffle")  # arguments of constructors that are not settings of a run
SAMPLERS: Registry[type[Sampler]] = Registry("sampler", "shoal.sampling")


def sampler_settings(name: str) -> Mapping[str, Setting]:
    """The settings of the sampler called `name`, without `setting` and `seed`, which a run gives to every sampler."""
    declared = list_settings(SAMPLERS[name])
    return {key: setting for key, setting in declared.items() if key not in ("setting", "seed")}


def make_sampler(name: str, graph: Graph, **options: Any) -> Sampler:
    """The sampler called `name` on `graph`; an unknown setting raises ShoalError with the nearest one.

    A run gives `setting` and `seed` to every sampler, a loader gives `outputs` and `shuffle`.
    """
    sampler = SAMPLERS[name]
    takes = inspect.signature(sampler).parameters
    given = {one: options.pop(one) for one in ("setting", "seed", *LOADER_ARGUMENTS) if one in options}
    for one in given:
        if one not in takes:
            raise ShoalError(
                f"sampler {name!r} takes no {one}: give its constructor the arguments setting and seed, and pass them on"
            )
    checked = check_options(list_settings(sampler), options, what=f"sampler {name!r}")
    return sampler(graph, **given, **checked)
