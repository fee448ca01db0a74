"""class_map.json of GraphSAGE and GraphSAINT: node id → class number, or → list of 0/1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shoal.datasets.importers.files import read_json_object
from shoal.errors import ShoalError

EXPECTED = "a JSON object from node id to class number or to a list of 0 and 1"


def read_class_map(path: Path, number: Mapping[str, int], num_nodes: int) -> np.ndarray:
    """Labels in node order: int64 with -1 where a node is not listed, or a uint8 matrix.

    `number` gives the node number of an id as JSON spells it.
    """
    classes = read_json_object(path, EXPECTED)
    width = next((len(value) for value in classes.values() if isinstance(value, list)), None)
    y = np.full(num_nodes, -1, np.int64) if width is None else np.zeros((num_nodes, width), np.uint8)
    for key, value in classes.items():
        node = number.get(key)
        if node is None:
            raise ShoalError(
                f"{path} gives a class to node {key!r}, which the graph lacks: expected its node ids"
            )
        y[node] = _check_class(path, key, value, width)
    if width is not None and len(classes) < num_nodes:
        listed = np.zeros(num_nodes, np.bool_)
        listed[[number[key] for key in classes]] = True
        raise ShoalError(
            f"{path} lacks node {int(np.argmin(listed))}: a multi-label class map must list every node"
        )
    return y


def _check_class(path: Path, key: str, value: object, width: int | None) -> int | list[int]:
    if width is None:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or not -1 <= value < 2**31:
            raise ShoalError(f"{path} gives node {key!r} the class {value!r}: expected {EXPECTED}")
        return int(value)
    if not isinstance(value, list) or len(value) != width:
        raise ShoalError(
            f"{path} gives node {key!r} {value!r:.60}: expected a list of {width} classes as for other nodes"
        )
    if any(not isinstance(entry, int | float) or entry not in (0, 1) for entry in value):
        raise ShoalError(f"{path} gives node {key!r} a class entry other than 0 and 1: expected {EXPECTED}")
    return [int(entry) for entry in value]
