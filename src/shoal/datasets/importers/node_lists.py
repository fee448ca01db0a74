"""Masks from lists of nodes, and standardised features."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import ShoalError
from shoal.workspace import FeatureRows

_ROWS_AT_ONCE = 1 << 16


def masks_from_lists(
    lists: Mapping[str, Any], num_nodes: int, where: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """One bool mask for each list of node numbers; `where` names the place of each list for messages."""
    masks = {}
    for name, nodes in lists.items():
        try:
            given = np.asarray(nodes)
        except (ValueError, OverflowError):  # lists in the list, of several lengths
            given = np.empty((), object)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise ShoalError(
                f"{where[name]} is not a list of node numbers: expected integers below {num_nodes:,}"
            )
        if given.size and (int(given.min()) < 0 or int(given.max()) >= num_nodes):
            row = int(np.argmax((given < 0) | (given >= num_nodes)))
            raise ShoalError(
                f"{where[name]} lists node {given[row]} at position {row}: the graph has {num_nodes:,} nodes, 0 to {num_nodes - 1:,}"
            )
        mask = np.zeros(num_nodes, np.bool_)
        mask[given.astype(np.int64)] = True
        masks[name] = mask
    return masks


def standardize_features(x: np.ndarray, train_mask: np.ndarray, path: Path) -> np.ndarray:
    """`(x - mean) / std` with mean and population standard deviation of the training rows, in float32.

    A column that is constant on the training rows is only centred. Sums run in float64 over blocks of
    rows, so that only one block is in memory besides the result.
    """
    if x.ndim != 2 or x.dtype.kind not in "fiub":
        raise ShoalError(f"{path} holds {x.dtype} of shape {x.shape}: expected one row of numbers per node")
    if len(x) != len(train_mask):
        raise ShoalError(
            f"{path} has {len(x):,} rows but the graph has {len(train_mask):,} nodes: give one feature row per node"
        )
    rows = int(train_mask.sum())
    if not rows:
        raise ShoalError(f"{path} cannot be standardised: the split names no training node")
    blocks = [slice(start, start + _ROWS_AT_ONCE) for start in range(0, len(x), _ROWS_AT_ONCE)]
    mean = np.zeros(x.shape[1])
    for block in blocks:
        mean += np.asarray(x[block], np.float64)[train_mask[block]].sum(axis=0)
    mean /= rows
    variance = np.zeros(x.shape[1])
    for block in blocks:
        variance += ((np.asarray(x[block], np.float64)[train_mask[block]] - mean) ** 2).sum(axis=0)
    scale = np.sqrt(variance / rows)
    scale[scale <= 10 * np.finfo(np.float64).eps * np.maximum(np.abs(mean), 1e-300)] = 1.0
    result = FeatureRows(x.shape[1], len(x))
    for block in blocks:
        result.append((np.asarray(x[block], np.float64) - mean) / scale)
    return result.finish()
