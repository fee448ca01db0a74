"""The manifest of stored parts, manifest.json: their graph, how it was partitioned, and a checksum for each part."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

from shoal.array_files import find_odd_entries, hash_file, is_kind, map_array, write_array
from shoal.datasets import known_names
from shoal.datasets.places import absolute_data, locate_data
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.names import ID_ARRAYS, ID_TEXTS, Called, list_id_arrays, read_ids
from shoal.partitioning.part import MAX_PARTS
from shoal.partitioning.partition import Partition
from shoal.partitioning.quality import Quality
from shoal.store import is_stored_graph, read_meta
from shoal.verified import SEAL, check_seal, seal

FORMAT = "shoal-parts"
VERSION = 1
MANIFEST = "manifest.json"
PART = "part.json"
KINDS: dict[str, type] = {
    **dict.fromkeys(("num_parts", "num_nodes", "num_features", "num_classes"), int),
    **dict.fromkeys(("directed", "multi_label"), bool),
    **dict.fromkeys(("name", "checksum"), str),
}
AGAIN = "partition again"


def write_manifest(
    graph: Graph,
    partition: Partition,
    quality: Quality,
    fresh: Path,
    data: str | None = None,
    asked: dict[str, Any] | None = None,
) -> None:
    """Write the manifest of the parts in `fresh`, of the graph loaded as `data`, partitioned with options `asked`."""
    ids = {
        name: write_array(fresh, name, a, flushed=False) for name, a in list_id_arrays(graph.node_ids).items()
    }
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "name": graph.name,
        "checksum": graph.checksum,
        "content": graph.content_checksum,
        "source": None if data is None else describe_source(data),
        "num_parts": partition.num_parts,
        "num_nodes": graph.num_nodes,
        "num_entries": graph.num_entries,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "multi_label": graph.multi_label,
        "directed": graph.directed,
        "class_names": graph.class_names,
        "node_ids": ids,
        "asked": asked,
        "method": partition.method,
        "balance": partition.balance,
        "imbalance": partition.imbalance,
        "seed": partition.seed,
        "parts_per_host": partition.parts_per_host,
        "seconds": partition.seconds,
        "notices": list(partition.notices),
        "quality": quality.to_dict(),
        "assignment_sha256": hash_file(fresh / "assignment.npy"),
        "parts": [
            {"folder": name_folder(q), "sha256": hash_file(fresh / name_folder(q) / PART)}
            for q in range(partition.num_parts)
        ],
    }
    manifest[SEAL] = seal(manifest)
    (fresh / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def name_folder(rank: int) -> str:
    """The folder of a rank's part."""
    return f"part-{rank:05d}"


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest.json of stored parts, checked for format and version."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise ShoalError(
            f"{folder} holds no stored parts: `shoal partition DATA --parts P -o DIR` writes them"
        )
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if manifest.get("format") != FORMAT:
            raise ValueError
        if manifest.get("version") != VERSION:
            raise ShoalError(
                f"{path} has format version {manifest.get('version')}: this Shoal reads version {VERSION}; {AGAIN}"
            )
        odd = [key for key, kind in KINDS.items() if not is_kind(manifest[key], kind)]
        if odd or len(manifest["parts"]) != manifest["num_parts"] or manifest["num_parts"] > MAX_PARTS:
            raise ValueError
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise ShoalError(f"{path} is damaged or not Shoal's: expected format {FORMAT!r}") from None
    check_seal(path, manifest, AGAIN)
    return manifest


def open_names(folder: str | Path) -> Called:
    """Node ids and class names of stored parts; parts of older versions have none."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    names, entries = manifest.get("class_names"), manifest.get("node_ids", {})
    damaged = ShoalError(f"{folder} is damaged: its names of nodes or classes cannot be read; {AGAIN}")
    if not (names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))):
        raise damaged
    if (
        not isinstance(entries, dict)
        or find_odd_entries(entries, ID_ARRAYS)
        or len(set(ID_TEXTS) & set(entries)) == 1
    ):
        raise damaged
    ids = read_ids({name: map_array(folder, name, entry) for name, entry in entries.items()}, folder)
    if ids is not None and len(ids) != manifest["num_nodes"]:
        raise damaged
    return Called(ids, names, manifest["num_classes"])


def describe_source(data: str) -> dict[str, str] | None:
    """The stored graph of a path or a name, and a digest of its arrays' digests; no array is read."""
    path = locate_data(data)
    if path is None or not is_stored_graph(path):
        return None
    digests = {name: str(entry["sha256"]) for name, entry in sorted(read_meta(path)["arrays"].items())}
    return {
        "data": absolute_data(data),
        "digest": hashlib.sha256(json.dumps(digests).encode()).hexdigest(),
    }


def check_source(folder: Path, manifest: dict[str, Any]) -> None:
    """Raise if the stored graph of the parts has changed since; a graph that is no longer there is not checked."""
    source = manifest.get("source")
    if not isinstance(source, dict) or not isinstance(data := source.get("data"), str):
        return
    now = describe_source(data)
    if now is not None and now["digest"] != source.get("digest"):
        raise ShoalError(
            f"graph {data} has changed since the parts in {folder} were made: make new ones with `shoal partition "
            f"{shlex.quote(data)} --parts {manifest['num_parts']} -o {shlex.quote(str(folder))} --refresh` and the same options"
        )


def is_of_another(manifest: dict[str, Any], data: str) -> bool:
    """Whether stored parts are known to be of another graph than `data`; no array is read."""
    source, now = manifest.get("source"), describe_source(data)
    if now is not None:
        return isinstance(source, dict) and source.get("digest") != now["digest"]
    return source is None and data in known_names() and manifest["name"] != data


def is_current(manifest: dict[str, Any], graph: Graph, data: str, asked: dict[str, Any]) -> bool:
    """Whether stored parts match a graph as it is now, names and ids included, and the options `asked`."""
    source, now = manifest.get("source"), describe_source(data)
    if isinstance(source, dict) and now is not None and source.get("digest") != now["digest"]:
        return False
    names = None if graph.class_names is None else list(graph.class_names)
    if manifest.get("class_names") != names or manifest.get("asked") != asked:
        return False
    return graph.has_checksum(manifest["checksum"]) and manifest.get("content") == graph.content_checksum
