"""How often edges join training nodes of the same class, with a bound for how often they may, where labels are few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt

import numpy as np

from shoal.graph import Graph
from shoal.partitioning.part import Part

MOST_LABELS = 1 << 16  # training nodes; more of them are not few
_DEVIATIONS = 1.28  # of a normal distribution, above which lie 10 %
_PRIOR = 2.0  # edges of each kind that are added before a share is estimated


def bound_homophily(
    pieces: Sequence[Graph | Part], total: Callable[[np.ndarray], np.ndarray], classes: np.ndarray
) -> float:
    """The upper 90 % bound of adjusted homophily, `(share - chance) / (1 - chance)`, by edges between training nodes.

    `share` is that of edges whose ends have the same class, `chance` what shares of classes alone would give. Few edges
    leave a bound near 1.

    Args:
        pieces: the graph, some of its parts, or a rank's part.
        total: sums counts over ranks.
        classes: training nodes of each class, of the whole graph.
    """
    if not 0 < classes.sum() <= MOST_LABELS:
        return 1.0
    chance = float(np.sum((classes / classes.sum()) ** 2))
    if chance == 1:
        return 1.0
    ids, labels = _gather_labels(pieces, total)
    counts = np.sum([_count_edges(piece, ids, labels) for piece in pieces], 0)
    same, joined = total(counts / (1.0 if pieces[0].directed else 2.0)).tolist()
    number = joined + 2 * _PRIOR
    share = (same + _PRIOR) / number
    highest = share + _DEVIATIONS * sqrt(share * (1 - share) / number)
    return min((highest - chance) / (1 - chance), 1.0)


def _gather_labels(
    pieces: Sequence[Graph | Part], total: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(ids, ascending, classes) of all training nodes that have a label, those of other ranks included."""
    size = pieces[0].num_parts if isinstance(pieces[0], Part) else 1
    found, counts = {}, np.zeros(size)
    for piece in pieces:
        assert piece.train_mask is not None
        assert piece.y is not None
        rows = np.flatnonzero(piece.train_mask & (piece.y >= 0))
        rank, ids = (piece.rank, piece.n_id[rows]) if isinstance(piece, Part) else (0, rows)
        found[rank] = np.stack([ids, piece.y[rows]]).astype(np.float64)
        counts[rank] = len(rows)
    ends = np.cumsum(total(counts)).astype(np.int64)
    table = np.zeros((2, int(ends[-1])))
    for rank, own in found.items():
        table[:, ends[rank] - own.shape[1] : ends[rank]] = own
    ids, labels = total(table.ravel()).reshape(2, -1).astype(np.int64)
    order = np.argsort(ids)
    return ids[order], labels[order]


def _count_edges(piece: Graph | Part, ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Entries between training nodes: (those of the same class, all); self loops do not count."""
    same = joined = 0
    for rows, columns in _list_entries(piece, ids):
        places = np.minimum(np.searchsorted(ids, columns), len(ids) - 1)
        kept = (ids[places] == columns) & (rows != columns)
        own = labels[np.searchsorted(ids, rows[kept])]
        joined += len(own)
        same += int(np.count_nonzero(own == labels[places[kept]]))
    return np.array([same, joined], np.float64)


def _list_entries(piece: Graph | Part, ids: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(row, column) by global ids, of entries in the rows of the nodes `ids` that a piece holds."""
    if not isinstance(piece, Part):
        yield _read_rows(piece.indptr, piece.indices, ids, ids)
        return
    rows = np.flatnonzero(np.isin(piece.n_id, ids))
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
