"""Tensors in safetensors files with checksums, replaced atomically; large ones are split into shards."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from shoal.errors import ShoalError
from shoal.files import parse_json, replace_file

SHARD_BYTES = 1 << 30  # more than this is split
_SHARD_FORMAT = "shoal-shard-1"
_TYPES = {  # names in safetensors
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
_ALIGNED = 8  # bytes
_VERSIONS = ("-1", "-2", "-3")  # the first has no checksum, the third has shards
_SHARD = re.compile(r"([^/]+)\.([0-9a-f]{16})\.safetensors")
_UNREADABLE = (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError)


def save_tensors(
    path: Path,
    tensors: dict[str, Tensor],
    kind: str,
    progress: Mapping[str, Any] | None = None,
    before: Callable[[], None] | None = None,
) -> None:
    """Write tensors to `path` atomically, with a checksum. They are written one by one, without a copy in memory.

    More than `SHARD_BYTES` are written to shards beside it, `STEM.DIGEST.safetensors`; the file at `path` then lists
    their checksums. The digest covers content and progress, so that no shard of an earlier file is overwritten or
    shared. A tensor is never split: a larger one has a shard of its own.
    """
    said = json.dumps(progress or {})
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        groups, listed = list(_group(tensors)), ""
        if len(groups) > 1:
            listed, tensors = json.dumps(dict(_write_shard(path, group, said) for group in groups)), {}
        version = _VERSIONS[2 if listed else 1]
        metadata = {"format": kind + version, "progress": said, "sha256": _digest(tensors, said + listed)}
        _write(path, tensors, metadata | ({"shards": listed} if listed else {}), before)
    finally:
        drop_shards(path)


def _group(tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Tensors in order, in groups of at most SHARD_BYTES or of one tensor."""
    group, size = dict[str, Tensor](), 0
    for name, one in tensors.items():
        if group and size + one.nbytes > SHARD_BYTES:
            yield group
            group, size = {}, 0
        group[name] = one
        size += one.nbytes
    yield group


def _write_shard(path: Path, tensors: Mapping[str, Tensor], said: str) -> tuple[str, str]:
    """A shard's name and checksum."""
    checksum = _digest(tensors, said)
    name = f"{path.stem}.{checksum[:16]}.safetensors"
    _write(path.with_name(name), tensors, {"format": _SHARD_FORMAT})
    return name, checksum


def _write(
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: dict[str, str],
    before: Callable[[], None] | None = None,
) -> None:
    header, order = _describe(tensors, metadata)
    with replace_file(path, before) as scratch, open(scratch, "wb") as file:
        file.write(header)
        for name in order:
            file.write(_view_bytes(tensors[name]))


def _describe(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> tuple[bytes, list[str]]:
    """The header of a safetensors file, and the order of its tensors: wide types first, so that all are aligned."""
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    about: dict[str, Any] = {"__metadata__": metadata}
    place = 0
    for name in order:
        one = tensors[name]
        start, place = place, place + one.nbytes
        about[name] = {"dtype": _TYPES[one.dtype], "shape": list(one.shape), "data_offsets": [start, place]}
    text = json.dumps(about).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(8, "little") + text, order


def _view_bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors that `save_tensors` wrote, and the progress stored with them, verified by the checksums.

    Tensors are memory-mapped, shard by shard.
    """
    if not path.is_file():
        raise ShoalError(
            f"{path} does not exist: expected a checkpoint written by `shoal train` or a shoal.Trainer"
        )
    tensors, metadata = _open(path)
    if metadata.get("format") not in [kind + version for version in _VERSIONS]:
        raise ShoalError(f"{path} is not a Shoal checkpoint: expected format {kind + _VERSIONS[1]!r}")
    said, listed = metadata.get("progress", ""), metadata.get("shards", "")
    if metadata["format"] != kind + _VERSIONS[0] and metadata.get("sha256") != _digest(
        tensors, said + listed
    ):
        raise ShoalError(f"{path} is damaged: its checksum does not match its content")
    try:
        progress, shards = parse_json(said), parse_json(listed or "{}")
        if not isinstance(progress, dict) or not isinstance(shards, dict):
            raise ValueError
    except ValueError:
        raise ShoalError(f"{path} is damaged: its progress or list of shards is not a JSON object") from None
    for name, checksum in shards.items():
        tensors |= _read_shard(path, name, said, checksum)
    return tensors, progress


def _read_shard(path: Path, name: str, said: str, checksum: Any) -> dict[str, Tensor]:
    shard = path.with_name(name) if _SHARD.fullmatch(name) else None
    if shard is None or not shard.is_file():
        raise ShoalError(f"{path} is damaged: its shard {name!r:.80} does not exist beside it")
    tensors, _ = _open(shard)
    if _digest(tensors, said) != checksum:
        raise ShoalError(f"{path} is damaged: the checksum of its shard {name} does not match its content")
    return tensors


def _open(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except _UNREADABLE:
        raise ShoalError(f"{path} is damaged: it is not a readable safetensors file") from None


def read_progress(path: Path) -> dict[str, Any] | None:
    """The progress stored in a file, without reading its tensors; None if the file is not readable."""
    try:
        progress = parse_json(_read_metadata(path)["progress"])
    except _UNREADABLE:
        return None
    return progress if isinstance(progress, dict) else None


def _read_metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def drop_shards(path: Path) -> None:
    """Remove the shards of `path` that neither it nor an earlier version, `STEM-N.safetensors`, lists.

    If one of these is not readable, all shards stay.
    """
    shards = _list_shards(path)
    if not shards:
        return
    older = re.compile(rf"{re.escape(path.stem)}(-\d+)?\.safetensors")
    needed = set[str]()
    for one in [other for other in path.parent.iterdir() if older.fullmatch(other.name)]:
        try:
            needed |= set(parse_json(_read_metadata(one).get("shards", "{}")))
        except _UNREADABLE:
            return
    for shard in [one for one in shards if one.name not in needed]:
        shard.unlink(missing_ok=True)


def drop_all_shards(folder: Path) -> None:
    """Remove the shards in a folder that no file there lists. The caller is the folder's only writer."""
    found = [named for one in folder.glob("*.safetensors") if (named := _SHARD.fullmatch(one.name))]
    for stem in {named[1] for named in found}:
        drop_shards(folder / f"{stem}.safetensors")


def remove_tensors(path: Path) -> None:
    """Remove a file of tensors after its shards, so that a killed process leaves no shard without its file."""
    for shard in _list_shards(path):
        shard.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _list_shards(path: Path) -> list[Path]:
    named = ((one, _SHARD.fullmatch(one.name)) for one in path.parent.iterdir())
    return [one for one, found in named if found and found[1] == path.stem]


def _digest(tensors: Mapping[str, Tensor], said: str) -> str:
    """The SHA-256 of names, types, shapes and bytes of all tensors, and of the metadata `said`."""
    digest = hashlib.sha256(said.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(_view_bytes(tensor))
    return digest.hexdigest()
