"""How often edges join training nodes of the same class, with a bound for how often they may."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt

import numpy as np

from shoal.graph import Graph
from shoal.partitioning.part import Part

LOW_HOMOPHILY = 0.3  # bound, below which neighbours are taken for nodes of other classes
_DEVIATIONS = 1.645  # of a normal distribution, above which lie 5 %
_ROWS = 1024  # rows whose entries are read at once


def bound_homophily(
    pieces: Sequence[Graph | Part], total: Callable[[np.ndarray], np.ndarray], classes: np.ndarray
) -> float:
    """The upper 95 % bound of adjusted homophily, `(share - chance) / (1 - chance)`, by edges between training nodes.

    `share` is that of edges whose ends have the same class, bounded by Wilson's interval; `chance` is what the classes
    of their ends alone would give. 1 if there are no such edges, or if all join equal classes.
    Arcs of directed graphs count half, since an arc and its reverse say the same.

    Args:
        pieces: the graph, all of its parts, or a rank's part.
        total: sums counts over ranks.
        classes: training nodes of each class, of the whole graph.
    """
    if not classes.sum():
        return 1.0
    ids, labels = _gather_labels(pieces, total)
    counts = total(np.sum([_count_edges(piece, ids, labels, len(classes)) for piece in pieces], 0) / 2)
    same, ends = float(counts[0]), counts[1:]
    joined = float(ends.sum())
    chance = float(np.sum((ends / max(joined, 1e-9)) ** 2))
    if joined == 0 or chance == 1:
        return 1.0
    share, prior = same / joined, _DEVIATIONS**2 / joined
    spread = _DEVIATIONS * sqrt(share * (1 - share) / joined + prior / (4 * joined))
    highest = (share + prior / 2 + spread) / (1 + prior)
    return (highest - chance) / (1 - chance)


def _gather_labels(
    pieces: Sequence[Graph | Part], total: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(ids, ascending, classes) of all training nodes that have a label, those of other ranks included."""
    size = pieces[0].num_parts if isinstance(pieces[0], Part) else 1
    found, counts = {}, np.zeros(size)
    for piece in pieces:
        assert piece.y is not None
        rows = _find_labelled(piece)
        rank, ids = (piece.rank, piece.n_id[rows]) if isinstance(piece, Part) else (0, rows)
        found[rank] = np.stack([ids, piece.y[rows]]).astype(np.float64)
        counts[rank] = len(rows)
    stops = np.cumsum(total(counts)).astype(np.int64)
    table = np.zeros((2, int(stops[-1])))
    for rank, own in found.items():
        table[:, stops[rank] - own.shape[1] : stops[rank]] = own
    ids, labels = total(table.ravel()).reshape(2, -1).astype(np.int64)
    order = np.argsort(ids)
    return ids[order], labels[order]


def _find_labelled(piece: Graph | Part) -> np.ndarray:
    """Rows of training nodes that have a label."""
    assert piece.train_mask is not None
    assert piece.y is not None
    return np.flatnonzero(piece.train_mask & (piece.y >= 0))


def _count_edges(piece: Graph | Part, ids: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Entries between training nodes: those of the same class, then all, by the class of the row; no self loops."""
    found = np.zeros(1 + num_classes)
    for rows, columns in _list_entries(piece):
        places = np.minimum(np.searchsorted(ids, columns), len(ids) - 1)
        kept = (ids[places] == columns) & (rows != columns)
        own = labels[np.searchsorted(ids, rows[kept])]
        found[0] += np.count_nonzero(own == labels[places[kept]])
        found[1:] += np.bincount(own, minlength=num_classes)
    return found


def _list_entries(piece: Graph | Part) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(row, column) by global ids, of entries in the rows of a piece's labelled training nodes, some rows at a time."""
    labelled = _find_labelled(piece)
    for start in range(0, len(labelled), _ROWS):
        rows = labelled[start : start + _ROWS]
        if not isinstance(piece, Part):
            yield _read_rows(piece.indptr, piece.indices, rows, rows)
            continue
        for indptr, indices, numbers in (
            (piece.local_indptr, piece.local_indices, piece.n_id),
            (piece.halo_indptr, piece.halo_indices, piece.halo_id),
        ):
            owners, columns = _read_rows(indptr, indices, rows, piece.n_id[rows])
            yield owners, numbers[columns]


def _read_rows(
    indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray, owners: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The columns of `rows` of a CSR pattern, and for each the row's owner."""
    starts, lengths = indptr[rows], indptr[rows + 1] - indptr[rows]
    places = np.arange(int(lengths.sum())) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    return np.repeat(owners, lengths), indices[places]
