"""What users hand over, as the arrays a Graph holds: edge ends, node numbers, features, labels, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.errors import ShoalError
from shoal.validation import MASKS


def guess_num_nodes(edge_index: np.ndarray, fields: dict[str, Any]) -> int:
    for key in ("x", "y", *MASKS):
        if fields.get(key) is not None:
            value = fields[key]
            return int(value.shape[0]) if hasattr(value, "shape") else len(value)
    return int(edge_index.max()) + 1 if edge_index.size else 0


def tidy_ends(ends: Any, num_nodes: int) -> np.ndarray:
    """Sources or targets of edges as an integer array, checked against the number of nodes."""
    ends = np.asarray(ends)
    if not ends.size:
        return np.empty(0, np.int32)
    if ends.ndim != 1 or ends.dtype.kind not in "iu":
        raise ShoalError(
            f"edge ends are {ends.dtype} of shape {ends.shape}: expected integers of one dimension"
        )
    low, high = int(ends.min()), int(ends.max())
    if low < 0 or high >= num_nodes:
        raise ShoalError(
            f"edge end {low if low < 0 else high} is out of range: the graph has {num_nodes:,} nodes, 0 to {num_nodes - 1:,}"
        )
    return ends


def check_nodes(nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    """`nodes` as int64, refused unless they are increasing node numbers."""
    if nodes.ndim != 1 or (nodes.size and nodes.dtype.kind not in "iu"):
        raise ShoalError(
            f"nodes are {nodes.dtype} of shape {nodes.shape}: expected node numbers of one dimension (np.flatnonzero turns a mask into them)"
        )
    nodes = nodes.astype(np.int64, copy=False)
    if len(nodes) and (int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes):
        raise ShoalError(
            f"nodes run from {nodes.min()} to {nodes.max()}: the graph has {num_nodes:,} nodes, 0 to {num_nodes - 1:,}"
        )
    if (nodes[1:] <= nodes[:-1]).any():
        at = int(np.argmax(nodes[1:] <= nodes[:-1]))
        raise ShoalError(
            f"node {nodes[at + 1]} follows node {nodes[at]}: expected increasing numbers without repeats (np.unique makes them so)"
        )
    return nodes


def to_numpy(value: Any) -> Any:
    """A torch tensor as NumPy; dense as it is, sparse as SciPy CSR."""
    if hasattr(value, "is_sparse") and (value.is_sparse or str(value.layout) == "torch.sparse_csr"):
        coo = value.to_sparse_coo().coalesce()
        return sp.csr_array((coo.values().numpy(), coo.indices().numpy()), shape=tuple(coo.shape))
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def tidy_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Features as float32, labels as int64 or uint8, masks as bool; anything odd is left for validate()."""
    tidy = dict(fields)
    x, y = tidy.get("x"), tidy.get("y")
    if x is not None:
        if sp.issparse(x):
            x = sp.csr_array(x)
            if not x.has_canonical_format:
                x = x.copy()  # it may share its arrays with the caller's matrix
                x.sum_duplicates()
        else:
            x = np.asarray(x)
        if x.dtype != np.float32 and x.dtype.kind in "fiub":
            with np.errstate(over="ignore"):  # validate() names the row that became infinite
                x = x.astype(np.float32)
        tidy["x"] = x
    if y is not None:
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim == 2 and y.dtype.kind in "fiub" and ((y == 0) | (y == 1)).all():
            y = y.astype(np.uint8)
        elif (y.ndim == 1 and y.dtype.kind in "iub") or (
            y.ndim == 1 and y.dtype.kind == "f" and (y == np.floor(y)).all()
        ):
            y = y.astype(np.int64)
        tidy["y"] = y
    for name in MASKS:
        mask = tidy.get(name)
        if mask is not None:
            mask = np.asarray(mask)
            if mask.dtype.kind in "iu" and ((mask == 0) | (mask == 1)).all():
                mask = mask.astype(np.bool_)
            tidy[name] = mask
    return tidy
