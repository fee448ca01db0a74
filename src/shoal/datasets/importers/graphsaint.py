"""GraphSAINT's folder: adj_full.npz, adj_train.npz, role.json, class_map.json, feats.npy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.class_map import read_class_map
from shoal.datasets.importers.files import Progress, read_json_object, read_npy, reading, silent
from shoal.datasets.importers.node_lists import masks_from_lists, standardize_features
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.build import build_csr

ROLES = {"tr": "train_mask", "va": "val_mask", "te": "test_mask"}
FILES = ("adj_full.npz", "adj_train.npz", "role.json", "class_map.json", "feats.npy")


def matches(path: Path) -> bool:
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
    standardize: Annotated[bool, "scale features with mean and deviation of the training rows"] = True,
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
    with reading(path, expected), open(path, "rb") as file:
        matrix = sp.csr_array(sp.load_npz(file))
        matrix.check_format(full_check=True)
    if matrix.shape[0] != matrix.shape[1]:
        raise ShoalError(f"{path} is {matrix.shape[0]:,} × {matrix.shape[1]:,}: expected {expected}")
    return matrix


def _is_train_part(full: sp.csr_array, train: sp.csr_array, train_mask: np.ndarray) -> bool:
    if full.shape != train.shape:
        return False
    n = full.shape[0]
    whole, part = full.tocoo(), train.tocoo()
    kept = train_mask[whole.row] & train_mask[whole.col]
    expected = build_csr([(whole.row[kept], whole.col[kept])], n, n)
    found = build_csr([(part.row, part.col)], n, n)
    return all(np.array_equal(a, b) for a, b in zip(expected[:2], found[:2]))
