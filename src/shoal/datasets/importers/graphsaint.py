"""GraphSAINT's folder: adj_full.npz, adj_train.npz, role.json, class_map.json, feats.npy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from shoal.conversion import tidy_ends
from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.class_map import read_class_map
from shoal.datasets.importers.files import (
    Progress,
    check_num_nodes,
    read_json_object,
    read_npy,
    read_npz,
    reading,
    silent,
)
from shoal.datasets.importers.node_lists import masks_from_lists, standardize_features
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.build import build_csr
from shoal.validation import check_csr

ROLES = {"tr": "train_mask", "va": "val_mask", "te": "test_mask"}
FILES = ("adj_full.npz", "adj_train.npz", "role.json", "class_map.json", "feats.npy")


def matches(path: Path) -> bool:
    """Whether a path holds GraphSAINT's files."""
    folder = path if path.is_dir() else path.parent
    return (folder / FILES[0]).is_file() and (path.is_dir() or path.name in FILES)


@FORMATS.named("graphsaint")
@recognised(matches, priority=10)
def read_graphsaint(
    path: Path,
    *,
    directed: bool | None = None,
    name: str | None = None,
    progress: Progress = silent,
    standardize: Annotated[
        bool, "scale features with mean and standard deviation of the training rows"
    ] = True,
) -> Graph:
    """GraphSAINT folder: adj_full.npz, role.json, class_map.json, feats.npy; direction as stored.

    Row i of adj_full lists what i aggregates from; features are standardised as GraphSAINT's loader does.
    """
    folder = path if path.is_dir() else path.parent
    progress("reading adj_full.npz")
    adjacency = _read_adjacency(folder / "adj_full.npz")
    n = adjacency.shape[0]
    role_path = folder / "role.json"
    roles = read_json_object(role_path, 'a JSON object with "tr", "va" and "te"')
    missing = [role for role in ROLES if role not in roles]
    if missing:
        raise ShoalError(
            f'{role_path} lacks {", ".join(missing)}: expected lists of nodes under "tr", "va", "te"'
        )
    fields: dict[str, Any] = masks_from_lists(
        {mask: roles[role] for role, mask in ROLES.items()},
        n,
        {mask: f"{role_path} ({role})" for role, mask in ROLES.items()},
    )
    notices = []
    if (folder / "adj_train.npz").is_file() and not _is_train_part(
        adjacency, _read_adjacency(folder / "adj_train.npz"), fields["train_mask"]
    ):
        notices.append(
            "adj_train.npz differs from adj_full.npz restricted to the training nodes: the training graph is cut from adj_full.npz"
        )
    progress("reading class_map.json")
    fields["y"] = read_class_map(folder / "class_map.json", {str(i): i for i in range(n)}, n)
    if (folder / "feats.npy").is_file():
        progress("reading feats.npy")
        x = read_npy(folder / "feats.npy", "one feature row per node")
        if standardize:
            x = standardize_features(x, fields["train_mask"], folder / "feats.npy")
            notices.append("standardised the features with mean and deviation of the training rows")
        fields["x"] = x
    return Graph.from_scipy(
        adjacency, directed=directed, name=name or folder.resolve().name, notices=notices, **fields
    )


def _read_adjacency(path: Path) -> sp.csr_array:
    expected = "a square sparse matrix written by scipy.sparse.save_npz"
    arrays = read_npz(path, expected, required=("format", "shape", "data"))
    said, shape = arrays["format"], arrays["shape"]
    with reading(path, expected):
        item: Any = said.item() if said.shape == () and said.dtype.kind in "SU" else ""
    kind = item.decode("latin1") if isinstance(item, bytes) else str(item)
    needed = {"coo": ("row", "col"), "csr": ("indptr", "indices"), "csc": ("indptr", "indices")}.get(
        str(kind)
    )
    if needed is None or shape.shape != (2,) or shape.dtype.kind not in "iu" or shape[0] != shape[1]:
        sizes = " × ".join(str(size) for size in shape.ravel()[:3])
        raise ShoalError(f"{path} is {sizes} in format {kind!r}: expected {expected}, csr, csc or coo")
    if missing := [key for key in needed if key not in arrays]:
        raise ShoalError(f"{path} lacks {', '.join(missing)}: expected {expected}")
    n = check_num_nodes(path, int(shape[0]))
    first, second = (arrays[key] for key in needed)
    if kind == "coo":
        for ends in (first, second):
            tidy_ends(ends, n)
        if len(first) != len(second):
            raise ShoalError(
                f"{path} has {len(first):,} row numbers and {len(second):,} column numbers: expected as many of both"
            )
        return sp.csr_array((np.ones(len(first), np.float32), (first, second)), shape=(n, n))
    check_csr(path.name, first, second, n, n)
    made = (sp.csr_array if kind == "csr" else sp.csc_array)(
        (np.ones(len(second), np.float32), second, first), shape=(n, n)
    )
    return sp.csr_array(made)


def _is_train_part(full: sp.csr_array, train: sp.csr_array, train_mask: np.ndarray) -> bool:
    if full.shape != train.shape:
        return False
    n = full.shape[0]
    whole, part = full.tocoo(), train.tocoo()
    kept = train_mask[whole.row] & train_mask[whole.col]
    expected = build_csr([(whole.row[kept], whole.col[kept])], n, n)
    found = build_csr([(part.row, part.col)], n, n)
    return all(np.array_equal(a, b) for a, b in zip(expected[:2], found[:2]))
