"""Planetoid's citation graphs: ind.NAME.{x, tx, allx, y, ty, ally, graph, test.index}."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.files import Progress, check_num_nodes, open_text, reading, silent
from shoal.datasets.importers.restricted_pickle import read_pickle
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.wording import count

NUM_VAL = 500
ENDINGS = ("test.index", "allx", "ally", "graph", "tx", "ty", "x", "y")


def matches(path: Path) -> bool:
    """Whether a path holds Planetoid's files."""
    return any(path.glob("ind.*.graph")) if path.is_dir() else path.name.startswith("ind.")


@FORMATS.named("planetoid")
@recognised(matches, priority=40)
def read_planetoid(
    path: Path, *, directed: bool | None = None, name: str | None = None, progress: Progress = silent
) -> Graph:
    """Planetoid files: ind.NAME.x, .tx, .allx, .y, .ty, .ally, .graph, .test.index; undirected.

    The public split: the first len(y) nodes are for training, the next 500 for validation, those in test.index for test.

    Test rows are put where test.index says. Nodes that fall into its gaps (citeseer) get no features and
    label -1. Self loops are dropped and neighbour lists made symmetric, as is usual for these graphs.
    """
    prefix = _find_prefix(path)
    parts = {}
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph"):
        progress(f"reading {prefix.name}.{part}")
        parts[part] = read_pickle(_part(prefix, part))
    x, tx, allx = (_check_matrix(_part(prefix, part), parts[part]) for part in ("x", "tx", "allx"))
    y, ty, ally = (_check_labels(_part(prefix, part), parts[part]) for part in ("y", "ty", "ally"))
    for part, rows, labels in (("y", x, y), ("ty", tx, ty), ("ally", allx, ally)):
        if rows.shape[0] != len(labels):
            raise ShoalError(
                f"{_part(prefix, part)} has {len(labels):,} rows but the features have {rows.shape[0]:,}: expected one label each"
            )
    test = _read_test_index(_part(prefix, "test.index"), tx.shape[0], allx.shape[0])
    n = check_num_nodes(prefix.parent, max(int(test.max()) + 1, allx.shape[0]))
    if not x.shape[1] == tx.shape[1] == allx.shape[1]:
        raise ShoalError(
            f"{prefix}: x, tx and allx have {x.shape[1]:,}, {tx.shape[1]:,} and {allx.shape[1]:,} columns: expected the same number"
        )
    if len(y) > allx.shape[0]:
        raise ShoalError(
            f"{prefix}: x has {len(y):,} rows and allx {allx.shape[0]:,}: expected x to be part of it"
        )
    order = np.full(n, -1, np.int64)  # the row of each node in allx followed by tx
    order[: allx.shape[0]] = np.arange(allx.shape[0])
    order[test] = allx.shape[0] + np.arange(len(test))
    features = sp.vstack([allx, tx, sp.csr_array((1, allx.shape[1]), dtype=np.float32)], format="csr")
    labels = np.concatenate([ally, ty, [-1]])
    notices = []
    gaps = int((order < 0).sum())
    if gaps:
        notices.append(f"{count(gaps, 'node')} missing from test.index: no features and no label")
    sources, targets = _read_edges(_part(prefix, "graph"), parts["graph"], n)
    loops = sources == targets
    if loops.any():
        notices.append(f"dropped {int(loops.sum())} self loops")
    num_val = min(NUM_VAL, allx.shape[0] - len(y))
    masks: dict[str, Any] = {mask: np.zeros(n, np.bool_) for mask in ("train_mask", "val_mask", "test_mask")}
    masks["train_mask"][: len(y)] = True
    masks["val_mask"][len(y) : len(y) + num_val] = True
    masks["test_mask"][test] = True
    for mask in masks.values():
        mask &= labels[order] >= 0
    return Graph.from_edge_chunks(
        [(sources[~loops], targets[~loops])],
        n,
        directed=bool(directed),
        x=sp.csr_array(features[order]),
        y=labels[order],
        name=name or prefix.name.removeprefix("ind."),
        notices=notices,
        **masks,
    )


def _find_prefix(path: Path) -> Path:
    if path.is_dir():
        found = sorted(path.glob("ind.*.graph"))
        if len(found) != 1:
            names = ", ".join(file.name for file in found) or "none"
            raise ShoalError(
                f"{path} holds {len(found)} files ind.*.graph ({names}): expected one, or name the file"
            )
        path = found[0]
    for ending in ENDINGS:
        if path.name.startswith("ind.") and path.name.endswith(f".{ending}"):
            return path.with_name(path.name.removesuffix(f".{ending}"))
    raise ShoalError(f"{path} is not one of Planetoid's files: expected ind.NAME.{{{', '.join(ENDINGS)}}}")


def _part(prefix: Path, part: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{part}")


def _check_matrix(path: Path, matrix: Any) -> sp.csr_array:
    is_plain = isinstance(matrix, np.ndarray) and matrix.ndim == 2
    if not (sp.issparse(matrix) or is_plain) or matrix.dtype.kind not in "fiub":
        raise ShoalError(f"{path} holds a {type(matrix).__name__}: expected a CSR matrix of features")
    return sp.csr_array(matrix).astype(np.float32)


def _check_labels(path: Path, labels: Any) -> np.ndarray:
    """Class numbers of one-hot rows; a row of zeros is -1."""
    if not (
        isinstance(labels, np.ndarray)
        and labels.ndim == 2
        and labels.shape[1]
        and labels.dtype.kind in "fiub"
    ):
        raise ShoalError(f"{path} holds a {type(labels).__name__}: expected a matrix of one-hot labels")
    wrong = ~((labels == 0) | (labels == 1)).all(axis=1) | (labels.sum(axis=1) > 1)
    if wrong.any():
        raise ShoalError(f"{path}: row {int(np.argmax(wrong))} is not one-hot: expected a single 1")
    return np.where(labels.any(axis=1), labels.argmax(axis=1), -1).astype(np.int64)


def _read_test_index(path: Path, num_rows: int, first: int) -> np.ndarray:
    with reading(path, "one node number per line"), open_text(path) as file:
        test = np.array([int(line) for line in file if line.strip()], np.int64)
    if len(test) != num_rows or len(np.unique(test)) != len(test) or not len(test):
        raise ShoalError(
            f"{path} lists {len(test):,} nodes: expected {num_rows:,} distinct ones, one for each row of tx"
        )
    if int(test.min()) < first:
        raise ShoalError(
            f"{path} lists node {test.min()}: expected {first:,} or more, since allx has the nodes before that"
        )
    return test


def _read_edges(path: Path, graph: Any, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Arcs neighbour → node of the neighbour lists; both directions are usually listed."""
    if not isinstance(graph, dict) or not all(isinstance(row, list) for row in graph.values()):
        raise ShoalError(f"{path} holds a {type(graph).__name__}: expected lists of neighbours by node")
    ends = [(other, node) for node, row in graph.items() for other in row]
    bad = next(
        (end for pair in ends for end in pair if type(end) is not int or not 0 <= end < num_nodes), None
    )
    if bad is not None:
        raise ShoalError(
            f"{path} names node {bad!r}: the graph has {num_nodes:,} nodes, 0 to {num_nodes - 1:,}"
        )
    table = np.array(ends, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
