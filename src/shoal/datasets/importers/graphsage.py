"""GraphSAGE's files: PREFIX-G.json (node-link), PREFIX-id_map.json, PREFIX-class_map.json, PREFIX-feats.npy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.class_map import read_class_map
from shoal.datasets.importers.files import Progress, read_json_object, read_npy, silent
from shoal.datasets.importers.node_lists import standardize_features
from shoal.errors import ShoalError
from shoal.graph import Graph

ENDINGS = ("-G.json", "-id_map.json", "-class_map.json", "-feats.npy")
EXPECTED = 'a NetworkX node-link object with "nodes" and "links"'


def matches(path: Path) -> bool:
    """Whether a path holds GraphSAGE's files."""
    return any(path.glob("*-G.json")) if path.is_dir() else path.name.endswith(ENDINGS)


@FORMATS.named("graphsage")
@recognised(matches, priority=20)
def read_graphsage(
    path: Path,
    *,
    directed: bool | None = None,
    name: str | None = None,
    progress: Progress = silent,
    standardize: Annotated[
        bool, "scale features with mean and standard deviation of the training rows"
    ] = False,
) -> Graph:
    """GraphSAGE files: PREFIX-G.json, PREFIX-id_map.json, PREFIX-class_map.json, PREFIX-feats.npy; undirected unless the file says so.

    Nodes are numbered by id_map. `standardize` scales features with the training rows, as GraphSAGE's loader does.
    """
    prefix = _find_prefix(path)
    graph_path, map_path = Path(f"{prefix}-G.json"), Path(f"{prefix}-id_map.json")
    progress(f"reading {graph_path.name}")
    data = read_json_object(graph_path, EXPECTED)
    nodes, links = data.get("nodes"), data.get("links", data.get("edges"))
    if not isinstance(nodes, list) or not isinstance(links, list):
        raise ShoalError(f"{graph_path} holds {', '.join(sorted(data)) or 'nothing'}: expected {EXPECTED}")
    number = _read_id_map(map_path, len(nodes))
    numbers, masks = _read_nodes(graph_path, nodes, number, map_path)
    ends, notices = _read_links(graph_path, nodes, links, numbers)
    fields: dict[str, Any] = dict(masks)
    progress("reading labels and features")
    fields["y"] = read_class_map(Path(f"{prefix}-class_map.json"), number, len(nodes))
    feats_path = Path(f"{prefix}-feats.npy")
    if feats_path.is_file():
        fields["x"] = read_npy(feats_path, "one feature row per node")
        if standardize:
            fields["x"] = standardize_features(fields["x"], masks["train_mask"], feats_path)
            notices.append("standardised the features with mean and deviation of the training rows")
    unlabelled = fields["y"] < 0 if fields["y"].ndim == 1 else np.zeros(len(nodes), np.bool_)
    if unlabelled.any():
        for mask in masks.values():
            mask &= ~unlabelled
        notices.append(f"left {int(unlabelled.sum()):,} nodes without a class out of the split")
    if directed is None:
        directed = bool(data.get("directed", False))
    return Graph.from_edge_chunks(
        [(ends[0], ends[1])],
        len(nodes),
        directed=directed,
        name=name or Path(prefix).name,
        notices=notices,
        **fields,
    )


def _find_prefix(path: Path) -> str:
    if path.is_dir():
        found = sorted(path.glob("*-G.json"))
        if len(found) != 1:
            names = ", ".join(file.name for file in found) or "none"
            raise ShoalError(
                f"{path} holds {len(found)} files *-G.json ({names}): expected one, or name the file"
            )
        path = found[0]
    ending = next((ending for ending in ENDINGS if path.name.endswith(ending)), None)
    if ending is None:
        raise ShoalError(f"{path} is not one of GraphSAGE's files: expected PREFIX{', PREFIX'.join(ENDINGS)}")
    return str(path)[: -len(ending)]


def _read_id_map(path: Path, num_nodes: int) -> dict[str, int]:
    number = read_json_object(path, "a JSON object from node id to its row")
    if len(number) != num_nodes:
        raise ShoalError(
            f"{path} lists {len(number):,} nodes but the graph has {num_nodes:,}: expected every node once"
        )
    seen = np.zeros(num_nodes, np.bool_)
    for key, row in number.items():
        if type(row) is not int or not 0 <= row < num_nodes or seen[row]:
            raise ShoalError(
                f"{path} gives node {key!r} the row {row!r}: expected each of 0 to {num_nodes - 1:,} once"
            )
        seen[row] = True
    return number


def _read_nodes(
    path: Path, nodes: list[Any], number: dict[str, int], map_path: Path
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    numbers = np.empty(len(nodes), np.int64)
    masks = {mask: np.zeros(len(nodes), np.bool_) for mask in ("train_mask", "val_mask", "test_mask")}
    for i, node in enumerate(nodes):
        if not isinstance(node, dict) or "id" not in node:
            raise ShoalError(f'{path}: entry {i} of "nodes" is {node!r:.60}: expected an object with an "id"')
        row = number.get(str(node["id"]))
        if row is None:
            raise ShoalError(
                f"{path}: node {node['id']!r} is not in {map_path.name}: expected every node there"
            )
        if "val" not in node or "test" not in node:
            raise ShoalError(
                f'{path}: node {node["id"]!r} has no "val" and "test" flag: expected both on every node'
            )
        numbers[i] = row
        role = "test_mask" if node["test"] else "val_mask" if node["val"] else "train_mask"
        masks[role][row] = True
    return numbers, masks


def _read_links(
    path: Path, nodes: list[Any], links: list[Any], numbers: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Ends as node numbers. Links hold ids (NetworkX 2 and later) or positions in "nodes" (NetworkX 1, as published)."""
    try:
        ends = [link[key] for key in ("source", "target") for link in links]
        place = {node["id"]: i for i, node in enumerate(nodes)}
        by_id = all(end in place for end in ends)
    except (TypeError, KeyError):
        raise ShoalError(f'{path}: an entry of "links" lacks "source" or "target": expected both') from None
    by_place = all(type(end) is int and 0 <= end < len(nodes) for end in ends)
    notices = []
    if by_id and by_place and any(node["id"] != i for i, node in enumerate(nodes)):
        notices.append('links could be node ids or positions in "nodes": read them as ids')
    if not by_id and not by_place:
        bad = next(end for end in ends if end not in place)
        raise ShoalError(f'{path}: a link names node {bad!r}, which "nodes" lacks: expected ids listed there')
    places = np.array([place[end] for end in ends] if by_id else ends, np.int64)
    return numbers[places].reshape(2, len(links)), notices
