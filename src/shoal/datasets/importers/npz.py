"""One .npz file with a CSR pattern, features, labels and split (arrays `indptr, indices, x, y, *_mask`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.files import Progress, read_npz, read_scalar, silent
from shoal.datasets.importers.node_lists import standardize_features
from shoal.edge_weights import NO_WEIGHT, WEIGHT, Chunk, WeightedChunks
from shoal.errors import ShoalError
from shoal.graph import MASKS, Graph
from shoal.labels import TaskChoice
from shoal.memory import memory_left
from shoal.settings import AtLeast, Null
from shoal.validation import check_csr, first_fall

SPARSE = ("x_data", "x_indices", "x_indptr", "x_shape")
KNOWN = {
    "indptr",
    "indices",
    "edge_weight",
    "num_nodes",
    "directed",
    "x",
    *SPARSE,
    "y",
    "num_classes",
    *MASKS,
}
ENTRIES_AT_ONCE = 1 << 22
EXPECTED = "a CSR pattern in indptr and indices"


def matches(path: Path) -> bool:
    """Whether a path is an .npz file."""
    return path.is_file() and path.suffix == ".npz"


@FORMATS.named("npz")
@recognised(matches, priority=80)
def read_npz_graph(
    path: Path,
    *,
    directed: bool | None = None,
    name: str | None = None,
    progress: Progress = silent,
    fold: Annotated[
        int | None, AtLeast(0), Null("train_mask, or the first"), "which of several splits"
    ] = None,
    standardize: Annotated[
        bool, "scale features with mean and standard deviation of the training rows"
    ] = False,
    weight: Annotated[str | None, Null("edge_weight, if any"), WEIGHT] = None,
    labels: Annotated[str | None, Null("y, if any"), "array of labels"] = None,
    task: TaskChoice = None,
) -> Graph:
    """One .npz with indptr, indices, edge_weight, x or x_data …, y and masks; rows are sources.

    Rows of a directed graph are sources, so it is transposed: the target of an arc aggregates from its source.

    If `train_masks`, `val_masks` and `test_masks` hold several folds (rows of bits), `fold` chooses one; without `fold`,
    `train_mask` is used if it is there too. `standardize` gives every feature mean 0 and standard deviation 1 over the
    training rows, which makes sparse features dense.
    """
    progress(f"reading {path.name}")
    arrays = read_npz(path, EXPECTED, required=("indptr", "indices"))
    _check_pattern(path, arrays)
    indptr, indices = arrays["indptr"].astype(np.int64, copy=False), arrays["indices"]
    n = len(indptr) - 1
    fields: dict[str, Any] = {"x": _read_features(path, arrays), "task": task}
    fields["y"] = _find_labels(path, arrays, labels, n)
    if "num_classes" in arrays and task != "regression" and labels in (None, "y"):
        fields["num_classes"] = read_scalar(path, "num_classes", arrays["num_classes"])
    used = {*KNOWN, weight, labels}
    for mask in MASKS:
        fields[mask] = arrays.get(mask)
        if f"{mask}s" in arrays and (fold is not None or fields[mask] is None):
            fields[mask] = _unpack_fold(path, f"{mask}s", arrays[f"{mask}s"], fold or 0, n)
            used.add(f"{mask}s")
    notices = []
    if standardize:
        if fields["x"] is None or fields["train_mask"] is None:
            raise ShoalError(f"{path}: standardize needs x and train_mask, and one of them is missing")
        x = fields["x"]
        dense = _make_dense(path, x) if sp.issparse(x) else x
        fields["x"] = standardize_features(dense, fields["train_mask"], path)
        notices.append("standardised the features with mean and deviation of the training rows")
    ignored = sorted(set(arrays) - used)
    if ignored:
        notices.append(f"ignored the arrays {', '.join(ignored)} of {path.name}")
    said_directed = bool(read_scalar(path, "directed", arrays["directed"])) if "directed" in arrays else None
    if directed is None and said_directed:
        directed = True
    weights = _find_weights(path, arrays, weight, len(indices))
    graph = Graph.from_edge_chunks(
        _list_entries(indptr, indices)
        if weights is None
        else WeightedChunks(_list_weighted(indptr, indices, weights), path.name),
        n,
        directed=directed,
        name=name or path.stem,
        notices=notices,
        expected=len(indices),
        **fields,
    )
    if directed is None and said_directed is False and graph.directed:
        raise ShoalError(
            f"{path} says directed = False but some edges lack their reverse: store both directions, or add them with --undirected (directed=False in Python)"
        )
    return graph


def _make_dense(path: Path, x: sp.csr_array) -> np.ndarray:
    """Sparse features as a dense matrix; raises ShoalError if it does not fit in memory."""
    if 4 * x.shape[0] * x.shape[1] > memory_left():
        raise ShoalError(
            f"{path}: standardized, x would be a dense matrix of {x.shape[0]:,} × {x.shape[1]:,}: leave out standardize"
        )
    dense: np.ndarray = x.toarray()
    return dense


def _find_labels(
    path: Path, arrays: dict[str, np.ndarray], name: str | None, num_nodes: int
) -> np.ndarray | None:
    """The chosen array of labels; None without labels."""
    if name in KNOWN - {"y"}:
        raise ShoalError(f"{path}: array {name!r} has another meaning: expected one with labels")
    y = arrays.get(name or "y")
    if y is None and name is not None:
        raise ShoalError(f"{path} has no array {name!r}: expected one of {', '.join(arrays)}")
    if y is not None and y.ndim == 2 and y.dtype.kind not in "fiub":
        raise ShoalError(f"{path}: {name or 'y'} holds {y.dtype}: expected integers or a 0/1 matrix")
    if y is not None and (y.ndim == 0 or len(y) != num_nodes):
        raise ShoalError(
            f"{path}: {name or 'y'} has shape {y.shape}: expected a label for each of {num_nodes:,} nodes"
        )
    return y


def _find_weights(
    path: Path, arrays: dict[str, np.ndarray], name: str | None, entries: int
) -> np.ndarray | None:
    """The chosen array of weights, one for each entry; None without weights."""
    if name == NO_WEIGHT or (name is None and "edge_weight" not in arrays):
        return None
    weights = arrays.get(name or "edge_weight")
    if weights is None:
        raise ShoalError(f"{path} has no array {name!r}: expected one of {', '.join(arrays)}")
    if weights.shape != (entries,) or weights.dtype.kind not in "fiub":
        raise ShoalError(
            f"{path}: {name or 'edge_weight'} is {weights.dtype} of shape {weights.shape}: expected a number for each of {entries:,} entries"
        )
    return weights


def _list_weighted(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray) -> Iterator[Chunk]:
    done = 0
    for rows, columns in _list_entries(indptr, indices):
        yield rows, columns, weights[done : done + len(rows)]
        done += len(rows)


def _list_entries(indptr: np.ndarray, indices: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, columns) of the entries, a run of rows at a time."""
    start, n = 0, len(indptr) - 1
    while start < n:
        stop = int(np.searchsorted(indptr, indptr[start] + ENTRIES_AT_ONCE, "right")) - 1
        stop = min(max(stop, start + 1), n)
        rows = np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(indptr[start : stop + 1]))
        yield rows, indices[indptr[start] : indptr[stop]]
        start = stop


def _check_pattern(path: Path, arrays: dict[str, np.ndarray]) -> None:
    indptr, indices = arrays["indptr"], arrays["indices"]
    for key, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ShoalError(
                f"{path}: {key} is {array.dtype} of shape {array.shape}: expected integers of one dimension"
            )
    if len(indptr) < 2 or indptr[0] != 0 or int(indptr[-1]) != len(indices) or first_fall(indptr) >= 0:
        raise ShoalError(
            f"{path}: indptr is not a CSR row pointer: expected it to rise from 0 to {len(indices):,}, the length of indices"
        )
    said = read_scalar(path, "num_nodes", arrays["num_nodes"]) if "num_nodes" in arrays else len(indptr) - 1
    if said != len(indptr) - 1:
        raise ShoalError(
            f"{path}: num_nodes is {said:,} but indptr has {len(indptr) - 1:,} rows: expected the same number"
        )


def _read_features(path: Path, arrays: dict[str, np.ndarray]) -> np.ndarray | sp.csr_array | None:
    if "x" in arrays:
        return arrays["x"]
    given = [key for key in SPARSE if key in arrays]
    if not given:
        return None
    if len(given) < len(SPARSE):
        raise ShoalError(f"{path} holds {', '.join(given)}: sparse features need all of {', '.join(SPARSE)}")
    data, indices, indptr, shape = (arrays[key] for key in SPARSE)
    if data.ndim != 1 or data.dtype.kind not in "fiub" or shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise ShoalError(
            f"{path}: x_data and x_shape do not form a CSR matrix: expected values and two sizes"
        )
    rows, columns = (int(size) for size in shape)
    try:
        check_csr("x", indptr, indices, rows, columns)
        return sp.csr_array((data.astype(np.float32), indices, indptr), shape=(rows, columns))
    except (ShoalError, ValueError, TypeError, OverflowError) as error:
        raise ShoalError(
            f"{path}: x_data, x_indices and x_indptr do not form a CSR matrix ({error})"
        ) from None


def _unpack_fold(path: Path, key: str, packed: np.ndarray, fold: int, num_nodes: int) -> np.ndarray:
    """Row `fold` of masks stored one fold per row, as bool or as bits packed by np.packbits."""
    bits = packed if packed.dtype == np.bool_ else None
    if packed.ndim != 2 or (bits is None and packed.dtype != np.uint8):
        raise ShoalError(
            f"{path}: {key} is {packed.dtype} of shape {packed.shape}: expected one row of bits per fold"
        )
    if not 0 <= fold < len(packed):
        raise ShoalError(
            f"{path}: {key} has {len(packed)} folds and fold is {fold}: expected 0 to {len(packed) - 1}"
        )
    if packed.shape[1] != (num_nodes if bits is not None else (num_nodes + 7) // 8):
        raise ShoalError(
            f"{path}: {key} has {packed.shape[1]:,} columns, which does not fit {num_nodes:,} nodes"
        )
    row = packed[fold]
    return row if bits is not None else np.unpackbits(row, count=num_nodes).astype(np.bool_)
