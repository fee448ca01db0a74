"""Label propagation and Correct & Smooth: training labels spread along edges."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from shoal.batch import as_tensor
from shoal.errors import ShoalError, explain_full_disk
from shoal.files import take_space
from shoal.graph import Graph, require_graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.spmm import multiply
from shoal.memory import memory_left, require_memory
from shoal.scratch import split_columns
from shoal.settings import Above, AtLeast, Null, Rate, check_settings
from shoal.wording import count

_MATRICES = 8  # (num_nodes, num_classes) matrices that Correct & Smooth holds at most
_SPREAD_MATRICES = 4  # matrices of all nodes and some classes that are held while those are spread
_ROWS_AT_ONCE = 1 << 18
Spread = Callable[[Tensor], Tensor]
Alpha = Annotated[float, Rate, "weight of the neighbours in a step"]
Steps = Annotated[int, AtLeast(0), "propagation steps; 0: none"]
Scale = Annotated[
    float | None, Above(0), Null("autoscale: the mean error of the labelled nodes"), "factor on spread errors"
]


@dataclass(frozen=True)
class Smoothing:
    """Settings of Correct & Smooth; 0 steps leave a part out."""

    correct_alpha: float = 0.8
    correct_steps: int = 0
    scale: float | None = None
    smooth_alpha: float = 0.8
    smooth_steps: int = 0

    def __str__(self) -> str:
        said = []
        if self.correct_steps:
            scale = "autoscale" if self.scale is None else f"scale {self.scale:g}"
            said.append(
                f"correct (alpha {self.correct_alpha:g}, {count(self.correct_steps, 'step')}, {scale})"
            )
        if self.smooth_steps:
            said.append(f"smooth (alpha {self.smooth_alpha:g}, {count(self.smooth_steps, 'step')})")
        return " and ".join(said) or "nothing"


@check_settings
def propagate_labels(
    graph: Graph, *, alpha: Alpha = 0.9, steps: Steps = 50, nodes: np.ndarray | None = None
) -> Tensor:
    """Label propagation: class scores of every node, (num_nodes, num_classes), from labels and edges alone.

    `F ← alpha S F + (1 - alpha) Y`, starting with F = Y. Y holds the one-hot labels of `nodes` and 0 elsewhere.
    `S = D^-½ A D^-½`, with A + Aᵀ for a directed graph. A node that no label reaches gets the class frequencies of the
    labelled nodes.

    If memory is short, a few classes are spread at a time, and the result is in an unnamed file.

    Args:
        graph: the graph, with labels.
        alpha: weight of the neighbours' scores.
        steps: number of iterations.
        nodes: mask of the nodes whose labels are used; None for the training nodes.
    """
    known = check_labels(graph, nodes, matrices=0)
    spread = make_spread(graph)
    size = 4 * graph.num_nodes * graph.num_classes
    fits = size <= memory_left() // 2
    scores = torch.empty(graph.num_nodes, graph.num_classes) if fits else _map_file(graph)
    for start, end in split_classes(graph):
        y = encode_labels(graph, known, start, end)
        scores[:, start:end] = last_of(spread_from(y, spread, alpha, (steps,)), y)
    shares = share_classes(graph, known)
    for first in range(0, graph.num_nodes, _ROWS_AT_ONCE):
        fill_unreached(scores[first : first + _ROWS_AT_ONCE], shares)
    return scores


def split_classes(graph: Graph) -> Iterable[tuple[int, int]]:
    """Ranges (first, last + 1) of classes that fit in the memory left when spread together."""
    most = memory_left() // 2 // max(4 * _SPREAD_MATRICES * graph.num_nodes, 1)
    return split_columns(graph.num_classes, most)


def _map_file(graph: Graph) -> Tensor:
    """A (num_nodes, num_classes) matrix in an unnamed file."""
    size = 4 * graph.num_nodes * graph.num_classes
    with explain_full_disk(tempfile.gettempdir()), tempfile.TemporaryFile(prefix="shoal-") as file:
        file.truncate(size)
        take_space(file.fileno(), size)
        return as_tensor(np.memmap(file, np.float32, "r+", shape=(graph.num_nodes, graph.num_classes)))


@check_settings
def correct_and_smooth(
    graph: Graph,
    probabilities: Tensor | np.ndarray,
    *,
    correct_alpha: Alpha = 0.8,
    correct_steps: Steps = 50,
    scale: Scale = None,
    smooth_alpha: Alpha = 0.8,
    smooth_steps: Steps = 50,
    nodes: np.ndarray | None = None,
) -> Tensor:
    """Correct & Smooth: a model's `probabilities` (num_nodes, num_classes), corrected and smoothed by known labels.

    Correct: the errors E₀ = Y - Z of the labelled nodes are spread by `E ← (1 - α) E₀ + α S E` and added to Z. With
    autoscale a node's error is scaled to the mean L1 norm of E₀. With a fixed `scale` s, labelled nodes keep their errors
    in every step, and s E is added. Smooth: labelled nodes get their labels, and `G ← (1 - α) G₀ + α S G` spreads them.
    S is as in `propagate_labels`. The largest value of a row is the predicted class; rows of the result are not
    probabilities.

    Args:
        graph: the graph, with labels.
        probabilities: one row per node, a Tensor or an array.
        correct_alpha, correct_steps: α and number of steps of the correct part; 0 steps leave it out.
        scale: factor on spread errors; None scales them automatically.
        smooth_alpha, smooth_steps: α and number of steps of the smooth part; 0 steps leave it out.
        nodes: mask of the nodes whose labels are used; None for the training nodes.
    """
    known = check_labels(graph, nodes)
    z = check_probabilities(graph, probabilities)
    y, spread = encode_labels(graph, known), make_spread(graph)
    if correct_steps:
        z = z + last_of(correct(z, y, known, spread, correct_alpha, (correct_steps,), scale), z)
    if smooth_steps:
        start = torch.where(known[:, None], y, z)
        z = last_of(spread_from(start, spread, smooth_alpha, (smooth_steps,)), start)
    return z


def correct(
    z: Tensor,
    y: Tensor,
    known: Tensor,
    spread: Spread,
    alpha: float,
    steps: Sequence[int],
    scale: float | None,
) -> Iterator[tuple[int, Tensor]]:
    """Yields (number of steps, correction to add to z) for each of `steps`."""
    errors = torch.where(known[:, None], y - z, 0.0)
    size = errors[known].abs().sum(1).mean()
    for step, found in spread_from(errors, spread, alpha, steps, fixed=None if scale is None else known):
        yield step, _rescale(found, size) if scale is None else scale * found


def _rescale(errors: Tensor, size: Tensor) -> Tensor:
    """Rows with an L1 norm of `size`; rows of zeros stay."""
    norms = errors.abs().sum(1, keepdim=True)
    return torch.where(norms > 0, errors / norms * size, 0.0)


def spread_from(
    start: Tensor, spread: Spread, alpha: float, steps: Sequence[int], fixed: Tensor | None = None
) -> Iterator[tuple[int, Tensor]]:
    """Yields (t, F_t) for each t of `steps`: `F_t = alpha S F_(t-1) + (1 - alpha) F_0`; rows in `fixed` stay."""
    state = start
    for step in range(1, max(steps) + 1):
        state = spread(state).mul_(alpha).add_(start, alpha=1 - alpha)
        if fixed is not None:
            state[fixed] = start[fixed]
        if step in steps:
            yield step, state


def last_of(found: Iterator[tuple[int, Tensor]], start: Tensor) -> Tensor:
    """The state after the last step; `start` if there are no steps."""
    kept = deque(found, maxlen=1)
    return kept[0][1] if kept else start


def make_spread(graph: Graph) -> Spread:
    """The product with `S = D^-½ A D^-½`, with A + Aᵀ for a directed graph. Rows without edges give 0.

    Edge weights are the entries of A, and degrees are their sums.
    """
    indptr, indices = as_tensor(graph.indptr), as_tensor(graph.indices)
    n = graph.num_nodes
    values = None if graph.edge_weight is None else as_tensor(graph.edge_weight)
    degree = indptr.diff().double() if values is None else as_tensor(graph.weighted_degree)
    if graph.directed:
        require_memory(12 * graph.num_entries, "the transposed graph")
        degree = degree + torch.bincount(indices, values, minlength=n)
    scale = degree.where(degree > 0, 1).float().rsqrt()
    adj = Adjacency(
        indptr,
        indices,
        n,
        values=values,
        row_scale=scale,
        column_scale=scale,
        symmetric=not graph.directed,
        checked=True,
    )  # a pair of edges in both directions counts twice
    back = adj.transpose() if graph.directed else None

    def spread(h: Tensor) -> Tensor:
        out = multiply(adj, h)
        return out if back is None else multiply(back, h, out, accumulate=True)

    return spread


def encode_labels(graph: Graph, known: Tensor, start: int = 0, end: int | None = None) -> Tensor:
    """One-hot labels of `known` nodes, zeros elsewhere: (num_nodes, num_classes), or its columns start…end-1."""
    end = graph.num_classes if end is None else end
    encoded = torch.zeros(graph.num_nodes, end - start)
    assert graph.y is not None
    nodes = known.nonzero()[:, 0]
    labels = as_tensor(graph.y)[nodes]
    inside = (labels >= start) & (labels < end)
    encoded[nodes[inside], labels[inside] - start] = 1
    return encoded


def share_classes(graph: Graph, known: Tensor) -> Tensor:
    """Class frequencies among the labels of `known` nodes, (num_classes,)."""
    assert graph.y is not None
    counts = torch.bincount(as_tensor(graph.y)[known], minlength=graph.num_classes)
    return counts.float() / counts.sum().clamp(min=1)


def fill_unreached(scores: Tensor, shares: Tensor) -> Tensor:
    """Replace rows of zeros by the class frequencies, in place."""
    scores[scores.abs().sum(1) == 0] = shares
    return scores


def check_labels(
    graph: Graph, nodes: np.ndarray | Tensor | None = None, *, matrices: int = _MATRICES
) -> Tensor:
    """The mask of labelled nodes, by default the training nodes. Raises if the graph's labels cannot be spread.

    It also raises if `matrices` of shape (num_nodes, num_classes) exceed the memory budget.
    """
    require_graph(graph)
    if graph.y is None or not graph.has_split:
        lacks = "labels" if graph.y is None else "split"
        raise ShoalError(
            f"graph {graph.name!r} has no {lacks}: spreading labels needs labelled training nodes"
        )
    if graph.y.ndim != 1 or graph.y.dtype.kind == "f":
        kind = "multi-label" if graph.y.ndim != 1 else "a regression task"
        raise ShoalError(f"graph {graph.name!r} is {kind}: labels are spread on single-label graphs only")
    mask = np.asarray(graph.train_mask if nodes is None else nodes)
    if mask.dtype != bool or mask.shape != (graph.num_nodes,):
        raise ShoalError(
            f"nodes is {mask.dtype} {mask.shape}: expected a mask, bool ({graph.num_nodes},), of labelled nodes"
        )
    if not mask.any() or (graph.y[mask] < 0).any():
        raise ShoalError(
            "nodes has no labelled node, or one without a label: expected a mask of labelled nodes"
        )
    size = 4 * matrices * graph.num_nodes * graph.num_classes
    require_memory(size, f"spreading {graph.num_classes} classes over {graph.num_nodes:,} nodes")
    return torch.from_numpy(mask)


def check_probabilities(graph: Graph, probabilities: Tensor | np.ndarray) -> Tensor:
    """Predictions as a float32 matrix with a row for every node and a column for every class."""
    z = torch.as_tensor(probabilities).float()
    if tuple(z.shape) != (graph.num_nodes, graph.num_classes):
        raise ShoalError(
            f"probabilities are {tuple(z.shape)}: expected ({graph.num_nodes}, {graph.num_classes}), one row per node and one column per class"
        )
    return z
