"""OGB node-property folders: raw/*.csv.gz (or the binary raw/data.npz) and split/<scheme>/*.csv.gz."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.files import Progress, check_num_nodes, cut_edges, read_npz, silent
from shoal.datasets.importers.node_lists import masks_from_lists
from shoal.datasets.importers.number_csv import read_numbers, stream_numbers
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.progress import follow_work
from shoal.settings import Null
from shoal.workspace import FeatureRows

SPLIT_FILES = {"train_mask": "train.csv.gz", "val_mask": "valid.csv.gz", "test_mask": "test.csv.gz"}
Chunks: TypeAlias = Iterator[tuple[np.ndarray, np.ndarray]]
# OGB's own loader adds the reverse of every edge to these.
INVERSE_EDGES = ("ogbn_products", "ogbn_proteins")


def matches(path: Path) -> bool:
    """Whether a path is a folder of an OGB data set."""
    raw = path / "raw"
    return (raw / "edge.csv.gz").is_file() or (raw / "data.npz").is_file()


@FORMATS.named("ogb")
@recognised(matches, priority=30)
def read_ogb(
    path: Path,
    *,
    directed: bool | None = None,
    name: str | None = None,
    progress: Progress = silent,
    split: Annotated[str | None, Null("the only one there is"), "scheme in the folder split/"] = None,
) -> Graph:
    """OGB node-property folder: raw/ and split/; directed as published.

    Edge (u, v) is the arc u → v: node v aggregates from u. A NaN label is -1, unlabelled.

    `directed=False` adds reverse edges; by default this is done for the datasets for which OGB does
    it, recognised by folder name. `split` names the scheme if the split folder holds several.
    """
    notices: list[str] = []
    if directed is None and path.resolve().name.startswith(INVERSE_EDGES):
        directed = False
        notices.append("added the reverse of every edge, as OGB does for this dataset")
    raw = path / "raw"
    if (raw / "data.npz").is_file():
        progress("reading raw/data.npz")
        chunks, n, fields = _read_binary(raw, notices)
    else:
        chunks, n, fields = _read_text(raw, progress)
    fields |= _read_split(path, split, n)
    return Graph.from_edge_chunks(
        chunks, n, directed=directed, name=name or path.resolve().name, notices=notices, **fields
    )


def _read_text(raw: Path, progress: Progress) -> tuple[Chunks, int, dict[str, Any]]:
    counts = read_numbers(raw / "num-node-list.csv.gz", np.int64, "the number of nodes", num_columns=1)
    if len(counts) != 1:
        raise ShoalError(
            f"{raw / 'num-node-list.csv.gz'} counts {len(counts):,} graphs: expected one, Shoal reads node-property datasets"
        )
    n = check_num_nodes(raw, int(counts[0, 0]))

    def read_edges() -> Chunks:
        progress("reading raw/edge.csv.gz")
        path = raw / "edge.csv.gz"
        for block in stream_numbers(path, np.int64, "two node numbers per line", num_columns=2):
            yield _check_range(path, block, n)

    fields: dict[str, Any] = {}
    path = raw / "node-feat.csv.gz"
    if path.is_file():
        progress("reading raw/node-feat.csv.gz")
        fields["x"] = _fill_features(path, n)
    path = raw / "node-label.csv.gz"
    if path.is_file():
        progress("reading raw/node-label.csv.gz")
        fields["y"] = _read_labels(
            path, read_numbers(path, np.float64, "a label number per line", skip_empty=False)
        )
    return read_edges(), n, fields


def _check_range(path: Path, block: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    if len(block) and (int(block.min()) < 0 or int(block.max()) >= num_nodes):
        bad = int(block.min()) if int(block.min()) < 0 else int(block.max())
        raise ShoalError(
            f"{path} names node {bad}: the graph has {num_nodes:,} nodes, 0 to {num_nodes - 1:,}"
        )
    dtype = np.int32 if num_nodes <= np.iinfo(np.int32).max else np.int64
    return block[:, 0].astype(dtype), block[:, 1].astype(dtype)


def _fill_features(path: Path, num_nodes: int) -> np.ndarray:
    x: FeatureRows | None = None
    filled = 0
    for block in stream_numbers(path, np.float32, "one row of features per node"):
        if x is None:
            x = FeatureRows(block.shape[1], num_nodes)
        if filled + len(block) <= num_nodes:
            x.append(block)
            follow_work("nodes", filled + len(block), num_nodes)
        filled += len(block)
    if x is None or filled != num_nodes:
        raise ShoalError(
            f"{path} has {filled:,} rows but the graph has {num_nodes:,} nodes: give one feature row per node"
        )
    return x.finish()


def _read_labels(path: Path, labels: np.ndarray) -> np.ndarray:
    """One column: int64 with -1 for NaN. Several: a 0/1 matrix, one column per task."""
    labels = labels.reshape(len(labels), -1)
    if labels.shape[1] > 1:
        wrong = ~((labels == 0) | (labels == 1)).all(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ShoalError(
                f"{path}: row {row} holds a label other than 0 and 1: expected a 0/1 column per class"
            )
        return labels.astype(np.uint8)
    y = np.where(np.isnan(labels[:, 0]), -1, labels[:, 0])
    wrong = (y != np.floor(y)) | (y < -1) | (y >= 2**31)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ShoalError(f"{path}: row {row} holds label {y[row]}: expected a class number or nothing")
    return y.astype(np.int64)


def _read_binary(raw: Path, notices: list[str]) -> tuple[Chunks, int, dict[str, Any]]:
    path = raw / "data.npz"
    arrays = read_npz(path, "OGB's edge_index and node_feat", required=("edge_index",))
    edge_index = arrays["edge_index"]
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.dtype.kind not in "iu":
        raise ShoalError(
            f"{path}: edge_index is {edge_index.dtype} of shape {edge_index.shape}: expected integers (2, num_edges)"
        )
    fields: dict[str, Any] = {}
    if arrays.get("node_feat") is not None and arrays["node_feat"].ndim == 2:
        fields["x"] = arrays["node_feat"]
    label_path = raw / "node-label.npz"
    if label_path.is_file():
        labels = read_npz(label_path, "an array node_label", required=("node_label",))["node_label"]
        if labels.ndim not in (1, 2) or labels.dtype.kind not in "fiub":
            raise ShoalError(
                f"{label_path}: node_label is {labels.dtype} of shape {labels.shape}: expected a row of labels per node"
            )
        fields["y"] = _read_labels(label_path, labels.astype(np.float64))
    if "num_nodes_list" in arrays:
        counts = np.ravel(arrays["num_nodes_list"])
        if len(counts) != 1 or counts.dtype.kind not in "iu":
            raise ShoalError(
                f"{path}: num_nodes_list is {counts.dtype} of {len(counts):,} graphs: expected one number of nodes"
            )
        n = int(counts[0])
    elif fields:
        n = len(next(iter(fields.values())))
    else:
        n = int(edge_index.max(initial=-1)) + 1
    ignored = sorted(set(arrays) - {"edge_index", "node_feat", "num_nodes_list", "num_edges_list"})
    if ignored:
        notices.append(f"ignored the arrays {', '.join(ignored)} of {path.name}")
    return cut_edges(edge_index[0], edge_index[1]), check_num_nodes(raw, n), fields


def _read_split(path: Path, scheme: str | None, num_nodes: int) -> dict[str, np.ndarray]:
    folder = path / "split"
    schemes = sorted(child.name for child in folder.iterdir() if child.is_dir()) if folder.is_dir() else []
    if scheme is not None and scheme not in schemes:
        raise unknown_name(f"split of {path.name}", scheme, schemes)
    if not schemes:
        return {}
    if scheme is None and len(schemes) > 1:
        raise ShoalError(
            f"{folder} holds {len(schemes)} schemes ({', '.join(schemes)}): choose one with --option split=NAME (split= in Python)"
        )
    files = {mask: folder / (scheme or schemes[0]) / file for mask, file in SPLIT_FILES.items()}
    lists = {
        mask: read_numbers(file, np.int64, "one node number per line", num_columns=1)[:, 0]
        for mask, file in files.items()
    }
    return masks_from_lists(lists, num_nodes, {mask: str(file) for mask, file in files.items()})
