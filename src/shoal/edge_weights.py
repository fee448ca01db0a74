"""Edge weights: given per edge, stored per CSR entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import ShoalError
from shoal.kernels.arrays import as_tensor
from shoal.kernels.entry_weights import place_weights
from shoal.kernels.patterns import find_mirrors
from shoal.memory import require_memory

if TYPE_CHECKING:
    from shoal.graph import Graph

_SAME = 1e-6  # relative difference up to which two weights are the same


Chunk = tuple[np.ndarray, np.ndarray, np.ndarray]
NO_WEIGHT = "none"
REFUSE = "refuse"
MERGES = (REFUSE, "sum", "mean", "max")  # of the weights of an edge and its reverse, in an undirected graph
WEIGHT = "edge weights; none: unweighted"
_HELD_BYTES = (
    40  # per edge while weights are assigned to entries: both ends, the weight, the sums of both entries
)
REMEDY = "leave them out with --option weight=none"


class WeightedChunks:
    """Chunks of weighted edges: iterating yields (sources, targets) and keeps the weights until the pattern is built.

    Edges of weight 0 are left out. A weight that is negative, not finite or outside the range of float32 is an error.
    Weights of duplicate edges are added up. If all weights are 1, the graph is unweighted. `lenient` is for values that
    need not be weights: if one of them is invalid or 0, all are ignored and every edge is kept. `merge` is how an edge and
    its reverse become one undirected edge, if the user may choose (`MERGES`).
    """

    def __init__(
        self, chunks: Iterable[Chunk], where: str, *, lenient: bool = False, merge: str | None = None
    ) -> None:
        self._chunks, self.where, self._lenient, self._merge = chunks, where, lenient, merge
        self._held: list[Chunk] = []
        self._given = self._zeros = 0
        self._odd: str | None = None

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for sources, targets, given in self._chunks:
            if self._odd is not None:
                yield sources, targets
                continue
            weights = np.asarray(given, np.float64)
            held = _narrow(weights)
            wrong = ~(np.isfinite(held) & ((held > 0) if self._lenient else ((held > 0) | (weights == 0))))
            if wrong.any():
                at = int(np.argmax(wrong))
                self._odd = f"edge {self._given + at + 1:,} has weight {weights[at]:g}"
                if np.isfinite(weights[at]) and weights[at] > 0:
                    self._odd += ", outside the range of float32"
                if not self._lenient:
                    raise ShoalError(f"{self.where}: {self._odd}: expected 0 or more; {REMEDY}")
                self._held = []
                yield sources, targets
                continue
            self._given += len(weights)
            kept = weights > 0
            if not kept.all():
                self._zeros += int(np.count_nonzero(~kept))
                sources, targets, weights = sources[kept], targets[kept], weights[kept]
            self._held.append((sources, targets, weights))
            require_memory(_HELD_BYTES * self._given, f"keeping the weights of {self._given:,} edges", REMEDY)
            yield sources, targets

    def attach(self, graph: Graph, *, directed: bool | None) -> Graph:
        """The graph that was built from the chunks, with their weights."""
        notices = graph.notices
        if self._odd is not None:
            said = f"ignored the weights of {self.where}: {self._odd}, expected numbers above 0"
            return graph._copy(notices=(*notices, said))
        if self._zeros:
            notices += (f"left out {self._zeros:,} edges of weight 0 of {self.where}",)
        weighted = place_chunks(
            graph._copy(notices=notices), self._held, directed=directed, merge=self._merge
        )
        assert weighted.edge_weight is not None
        return weighted if (weighted.edge_weight != 1).any() else weighted.without_weights()


def attach_weights(graph: Graph, edge_index: np.ndarray, edge_weight: Any, *, directed: bool | None) -> Graph:
    """`graph`, built from `edge_index`, with a weight for every entry.

    Weights of duplicate edges are added up. An undirected edge that is given in both directions must have the same weight
    in both; with `directed=None`, different weights make the graph directed.
    """
    given = _tidy_weights(edge_weight, edge_index.shape[1])
    return place_chunks(graph, [(edge_index[0], edge_index[1], given)], directed=directed)


def place_chunks(
    graph: Graph, chunks: Iterable[Chunk], *, directed: bool | None, merge: str | None = None
) -> Graph:
    """`attach_weights` of (sources, targets, weights); `merge` as in WeightedChunks."""
    placed, repeated = np.zeros(graph.num_entries), 0
    for sources, targets, weights in chunks:
        place_weights(graph.indptr, graph.indices, targets, sources, weights, placed)
        repeated += len(weights)
    repeated -= int(np.count_nonzero(placed))
    if repeated:
        said = f"duplicate edges have the sum of their weights: {repeated:,} were added to another; leave out those that are copies"
        graph = graph._copy(notices=(*graph.notices, said))
    if graph.directed:
        return graph._copy(edge_weight=_narrow_sums(graph, placed))
    mirror = find_mirrors(as_tensor(graph.indptr), as_tensor(graph.indices))
    assert mirror is not None
    reverse = placed[mirror.numpy()]
    if merge not in (None, REFUSE):
        is_loop = mirror.numpy() == np.arange(len(placed))
        both = (placed > 0) & (reverse > 0) & ~is_loop
        together = np.maximum(placed, reverse)
        if merge != "max":
            together[both] = (placed + reverse)[both] / (2 if merge == "mean" else 1)
        said = f"{int(np.count_nonzero(both)) // 2:,} edges had a reverse: each pair has the {merge} of the two weights"
        return graph._copy(edge_weight=_narrow_sums(graph, together), notices=(*graph.notices, said))
    differ = (placed > 0) & (reverse > 0) & (abs(placed - reverse) > _SAME * np.maximum(placed, reverse))
    if not differ.any():
        return graph._copy(edge_weight=_narrow_sums(graph, np.maximum(placed, reverse)))
    at = int(np.argmax(differ))
    said = f"edge {_name_edge(graph, at)} weighs {placed[at]:g} and its reverse {reverse[at]:g}"
    if directed is False:
        joined = "" if merge is None else "join the two (--option merge=sum, mean or max), "
        raise ShoalError(
            f"{said}: an undirected edge has one weight; {joined}import it as directed (--directed, directed=True), leave "
            "weights out (--option weight=none), or give equal weights"
        )
    notices = (*graph.notices, f"{said}: treated the graph as directed")
    return graph._copy(directed=True, edge_weight=_narrow_sums(graph, placed), notices=notices)


def _narrow(weights: np.ndarray) -> np.ndarray:
    """The weights in float32: inf above its range, 0 below."""
    with np.errstate(over="ignore", under="ignore"):
        return weights.astype(np.float32)


def _narrow_sums(graph: Graph, placed: np.ndarray) -> np.ndarray:
    """The weights of entries in float32; raises ShoalError if duplicate edges sum to more than its maximum."""
    held = _narrow(placed)
    if np.isinf(held).any():
        at = int(np.argmax(np.isinf(held)))
        raise ShoalError(
            f"the edges {_name_edge(graph, at)} weigh {placed[at]:g} together: expected up to 3.4e38; give smaller weights"
        )
    return held


def _name_edge(graph: Graph, entry: int) -> str:
    """Source → target of an entry, by the users' ids."""
    ends = int(graph.indices[entry]), int(np.searchsorted(graph.indptr, entry, "right")) - 1
    return " → ".join(str(end if graph.node_ids is None else graph.node_ids[end]) for end in ends)


def _tidy_weights(edge_weight: Any, num_edges: int) -> np.ndarray:
    weights = np.asarray(edge_weight.detach().cpu() if hasattr(edge_weight, "detach") else edge_weight)
    if weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if weights.shape != (num_edges,) or weights.dtype.kind not in "fiub":
        raise ShoalError(
            f"edge_weight is {weights.dtype} of shape {weights.shape}: expected a number for each of {num_edges:,} edges"
        )
    weights = _narrow(weights)
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ShoalError(
            f"edge {at} has weight {weights[at]:g}: expected numbers above 0; leave out such edges, or leave out edge_weight"
        )
    return weights


def validate_weights(graph: Graph, weights: np.ndarray) -> None:
    """Raise unless there is one positive weight per entry, equal in both directions of an undirected graph."""
    if weights.dtype != np.float32 or weights.shape != graph.indices.shape:
        raise ShoalError(
            f"edge_weight is {weights.dtype} of shape {weights.shape}: expected float32, one for each of {graph.num_entries:,} entries"
        )
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ShoalError(f"entry {at} has weight {weights[at]:g}: expected numbers above 0")
    if not graph.directed:
        mirror = find_mirrors(as_tensor(graph.indptr), as_tensor(graph.indices))
        if mirror is not None and not np.allclose(weights, weights[mirror.numpy()], rtol=_SAME, atol=0):
            raise ShoalError(
                "the graph is declared undirected but some edges have another weight than their reverse: give directed=True"
            )


def require_unweighted(graph: Graph, what: str) -> None:
    """Raise if the graph has edge weights, which `what` would ignore."""
    if graph.edge_weight is not None:
        raise ShoalError(
            f"graph {graph.name!r} has edge weights, which {what} not take: use graph.without_weights(), in a run training.edge_weights=false"
        )
