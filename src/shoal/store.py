"""On-disk graphs: a folder of memory-mappable .npy files and a meta.json with sizes and checksums."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.array_files import find_odd_entries, hash_file, is_kind, map_array, write_array
from shoal.errors import ShoalError, unknown_name
from shoal.files import create_array, flush
from shoal.graph import MASKS, Features, Graph
from shoal.kernels.encoding import FEATURE_TYPES, STORED_AS, EncodedRows, describe_type, encode_matrix
from shoal.lock import building
from shoal.names import ID_ARRAYS, ID_TEXTS, list_id_arrays, read_ids
from shoal.verified import SEAL, Verified, check_seal, seal

FORMAT = "shoal-graph"
VERSIONS = (1, 2)  # 2 if features are encoded, which readers of version 1 would misread
META = "meta.json"
_KINDS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "num_nodes": int,
    "num_entries": int,
    "num_edges": int,
    "num_features": int,
    "num_classes": int,
    "directed": bool,
    "notices": list,
    "class_names": (list, type(None)),
    "checksum": str,
    "arrays": dict,
}
_AGAIN = "import the graph again"
_SPARSE = ("x_data", "x_indices", "x_indptr")
_ARRAYS = ("indptr", "indices", "edge_weight", "x", *_SPARSE, "y", *MASKS, *ID_ARRAYS)


def save_graph(
    graph: Graph, folder: str | Path, *, overwrite: bool = False, features: str | None = None
) -> Path:
    """Write `graph` to `folder`, all or nothing: the files appear under their final name in one rename.

    Dense `features` are stored as float32, float16, bfloat16, or int8 with one scale per row; by default in the type they
    have. The graph's notices report the loss of precision. Sparse features are stored as they are.

    Args:
        graph: the graph.
        folder: folder to write.
        overwrite: replace a stored graph that is there.
        features: type of stored dense features; None keeps theirs.
    """
    folder = Path(folder)
    if features is not None and features not in FEATURE_TYPES:
        raise unknown_name("type of features", features, FEATURE_TYPES)
    with building(folder) as scratch:
        if folder.exists() and not overwrite:
            raise ShoalError(
                f"{folder} exists already: choose another name, or allow overwriting it (overwrite=True)"
            )
        if folder.exists() and not is_stored_graph(folder):
            raise ShoalError(f"{folder} is not a stored graph: refusing to overwrite it")
        fresh = scratch / "new"
        fresh.mkdir()  # with the usual permissions; a temporary folder is private to its owner
        graph = encode_features(graph, features, fresh)
        encoded = isinstance(graph.x, EncodedRows)
        files = {name: write_array(fresh, name, array) for name, array in _arrays(graph).items()}
        meta = {
            "format": FORMAT,
            "version": VERSIONS[encoded],
            "name": graph.name,
            "num_nodes": graph.num_nodes,
            "num_entries": graph.num_entries,
            "num_edges": graph.num_edges,
            "num_features": graph.num_features,
            "num_classes": graph.num_classes,
            "multi_label": graph.multi_label,
            "directed": graph.directed,
            "class_names": graph.class_names,
            "notices": list(graph.notices),
            "checksum": graph.checksum,
            **({"features": graph.x.type} if isinstance(graph.x, EncodedRows) else {}),
            **({"encoding": graph.encoding} if graph.encoding is not None else {}),
            "arrays": files,
        }
        meta[SEAL] = seal(meta)
        (fresh / META).write_text(json.dumps(meta, indent=2) + "\n")
        flush(fresh / META)
        flush(fresh)
        put_in_place(fresh, folder, old=scratch.with_suffix(".old"))
    _know(folder, meta).remember()
    return folder


def encode_features(graph: Graph, type: str | None, folder: Path) -> Graph:
    """`graph` with dense features of another type, written to `folder` by chunks, and a notice of the loss of precision."""
    x = graph.x
    if (
        isinstance(x, EncodedRows) and x.lost is not None and type in (None, x.type)
    ):  # encoded while it was read
        return graph._copy(notices=(*graph.notices, x.lost))
    if type is None or x is None or type == getattr(x, "type", x.dtype):
        return graph
    if isinstance(x, sp.csr_array):
        return graph._copy(
            notices=(*graph.notices, f"features are sparse: stored as they are, not as {type}")
        )
    dtype, width = describe_type(type, x.shape[1])
    codes = create_array(folder / "x.npy", (len(x), width), dtype)
    said = encode_matrix(x, type, codes)
    codes.flush()
    others = [notice for notice in graph.notices if not notice.startswith(STORED_AS)]
    return graph._copy(
        x=codes if type == "float32" else EncodedRows(codes, type),
        notices=(*others, *([said] if said else [])),
    )


def put_in_place(fresh: Path, folder: Path, old: Path) -> None:
    """Rename `fresh` to `folder`; a graph already there is replaced, and restored if that fails."""
    if not folder.exists():
        os.rename(fresh, folder)
    else:
        os.rename(folder, old)
        try:
            os.rename(fresh, folder)
        except BaseException:
            os.rename(old, folder)
            raise
        shutil.rmtree(old)
    flush(folder.parent)


def open_graph(folder: str | Path) -> Graph:
    """Open a stored graph, memory-mapped.

    Sizes are checked every time, checksums and array contents once per machine; `verify_graph` checks them again.

    Args:
        folder: folder that `save_graph` or `shoal data import` wrote.
    """
    folder = Path(folder)
    meta = read_meta(folder)
    _check_shapes(folder, meta)
    arrays = {name: map_array(folder, name, entry) for name, entry in meta["arrays"].items()}
    x: Features | None = arrays.get("x")
    if "features" in meta:
        x = EncodedRows(arrays["x"], meta["features"])
    if "x_indptr" in arrays:
        parts = (arrays["x_data"], arrays["x_indices"], arrays["x_indptr"])
        try:
            x = sp.csr_array(parts, shape=(meta["num_nodes"], meta["num_features"]))
        except (ValueError, TypeError):
            raise ShoalError(
                f"{folder} is damaged: {', '.join(_SPARSE)} do not form a sparse matrix; import the graph again"
            ) from None
    node_ids = read_ids(arrays, folder)
    known = _know(folder, meta)
    known.check(_AGAIN)
    graph = Graph(
        arrays["indptr"],
        arrays["indices"],
        checked=True,
        x=x,
        y=arrays.get("y"),
        edge_weight=arrays.get("edge_weight"),
        **{name: arrays.get(name) for name in MASKS},
        directed=meta["directed"],
        num_classes=meta["num_classes"],
        name=meta["name"],
        node_ids=node_ids,
        class_names=meta["class_names"],
        notices=meta["notices"],
    )
    if not known.sound:
        try:
            graph.validate()
        except ShoalError as error:
            raise ShoalError(f"{folder} is damaged: {error}; {_AGAIN}") from None
    known.remember()
    graph.encoding = meta.get("encoding")
    graph._checksum = meta["checksum"]
    held = _arrays(graph)
    graph._digests = {name: (held[name], entry["sha256"]) for name, entry in meta["arrays"].items()}
    return graph


def _know(folder: Path, meta: dict[str, Any]) -> Verified:
    return Verified(meta, folder, {entry["file"]: entry["sha256"] for entry in meta["arrays"].values()})


def verify_graph(folder: str | Path) -> list[str]:
    """Read every byte of a stored graph; returns the problems found, an empty list if there are none."""
    folder = Path(folder)
    problems = []
    for name, entry in read_meta(folder)["arrays"].items():
        path = folder / entry["file"]
        try:
            map_array(folder, name, entry)
        except ShoalError as error:
            problems.append(str(error))
            continue
        if hash_file(path) != entry["sha256"]:
            problems.append(f"{path} has changed since it was written: its checksum does not match {META}")
    if not problems:
        try:
            open_graph(folder).validate()
        except ShoalError as error:
            problems.append(f"{folder}: {error}")
    return problems


def is_stored_graph(folder: str | Path) -> bool:
    """Whether a folder holds a stored graph."""
    return (Path(folder) / META).is_file()


def stores_targets(meta: dict[str, Any]) -> bool:
    """Whether the labels of a stored graph are targets of a regression."""
    entry = meta["arrays"].get("y")
    return entry is not None and str(entry["dtype"]).startswith("float")


def read_meta(folder: Path) -> dict[str, Any]:
    """The meta.json of a stored graph, checked for format and version."""
    if not folder.is_dir():
        raise ShoalError(f"{folder} does not exist: expected a folder written by `shoal data import`")
    path = folder / META
    if not path.is_file():
        raise ShoalError(f"{folder} is not a stored graph: it has no {META}; `shoal data import` makes one")
    try:
        meta: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if meta.get("format") != FORMAT:
            raise ValueError
    except (ValueError, AttributeError, RecursionError):
        raise ShoalError(f"{path} is damaged or not Shoal's: expected format {FORMAT!r}") from None
    if meta.get("version") not in VERSIONS:
        raise ShoalError(
            f"{path} has format version {meta.get('version')}: this Shoal reads version {VERSIONS[0]} or {VERSIONS[1]}; import the graph again"
        )
    _check_meta(path, meta)
    return meta


def _check_meta(path: Path, meta: dict[str, Any]) -> None:
    """Raise if meta.json lacks a field, has a value of another type, or names files outside its folder."""
    missing = [key for key in _KINDS if key not in meta]
    if isinstance(meta.get("arrays"), dict):
        missing += [f"arrays/{name}" for name in ("indptr", "indices") if name not in meta["arrays"]]
        for group in (_SPARSE, ID_TEXTS):
            if any(name in meta["arrays"] for name in group):
                missing += [f"arrays/{name}" for name in group if name not in meta["arrays"]]
    if missing:
        raise ShoalError(f"{path} is damaged: it lacks {', '.join(missing)}; import the graph again")
    odd = [key for key, kind in _KINDS.items() if not is_kind(meta[key], kind)]
    if not odd:
        type_known = meta.get("features", "float32") in [*FEATURE_TYPES]
        if not type_known or ("features" in meta and "x" not in meta["arrays"]):
            odd.append("features")
        if not isinstance(meta.get("encoding", {}), dict):
            odd.append("encoding")
        texts = {key: meta[key] or () for key in ("notices", "class_names")}
        odd += [key for key, given in texts.items() if not all(isinstance(text, str) for text in given)]
    odd = odd or find_odd_entries(meta["arrays"], _ARRAYS)
    if odd:
        raise ShoalError(f"{path} is damaged: malformed {', '.join(odd)}; {_AGAIN}")
    check_seal(path, meta, _AGAIN)


def _check_shapes(folder: Path, meta: dict[str, Any]) -> None:
    """Raise if shapes of arrays do not match the graph's sizes, which kernels rely on."""
    n, f = meta["num_nodes"], meta["num_features"]
    dtype, width = describe_type(meta.get("features", "float32"), f)
    rows = {"indptr": n + 1, "x": n, "x_indptr": n + 1, "y": n, **dict.fromkeys(MASKS, n)}
    rows |= {"node_ids": n, "node_id_offsets": n + 1, "edge_weight": meta["num_entries"]}
    for name, entry in meta["arrays"].items():
        shape = entry["shape"]
        dimensions = {"x": (2,), "y": (1, 2)}.get(name, (1,))
        if (
            len(shape) not in dimensions
            or shape[0] != rows.get(name, shape[0])
            or (name == "x" and (shape[1] != width or ("features" in meta and entry["dtype"] != dtype)))
        ):
            raise ShoalError(
                f"{folder / META} is damaged: {name} has shape {tuple(shape)} but the graph has {n:,} nodes and {f:,} features; import the graph again"
            )


def _arrays(graph: Graph) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {"indptr": graph.indptr, "indices": graph.indices}
    x = graph.x
    if isinstance(x, EncodedRows):
        arrays["x"] = x.codes
    elif isinstance(x, np.ndarray):
        arrays["x"] = x
    elif x is not None:
        arrays |= {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr}
    for name in ("y", "edge_weight", *MASKS):
        value = getattr(graph, name)
        if value is not None:
            arrays[name] = value
    return arrays | list_id_arrays(graph.node_ids)
