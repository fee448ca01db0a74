"""Checkpoints: weights, optimizer state and counters in one safetensors file, replaced atomically."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from shoal.errors import ShoalError
from shoal.files import parse_json, replace_file

FORMAT = "shoal-checkpoint"
HALO_FORMAT = "shoal-halo"
BUFFER_FORMAT = "shoal-buffers"
HISTORY_FORMAT = "shoal-history"
SAMPLER_FORMAT = "shoal-sampler"
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
_OWN = re.compile(r"(?:halo|buffers|history|sampler)-(\d{1,15})-\d+\.safetensors")
_STATE = frozenset({"step", "exp_avg", "exp_avg_sq"})  # Adam's state of a weight
_VERSIONS = ("-1", "-2")  # the first has no checksum


def save_checkpoint(
    path: Path,
    weights: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer | None = None,
    progress: Mapping[str, Any] | None = None,
    before: Callable[[], None] | None = None,
) -> None:
    """Write a model's weights (its `state_dict`) with the state that training resumes from.

    The file is replaced atomically: a killed writer leaves the previous checkpoint under `path`. `progress` has numbers,
    the list `losses` of an unfinished epoch, and the averaged weights `average`, if any. `before` is called before the
    rename.
    """
    tensors: dict[str, Tensor] = {}
    for name, value in weights.items():
        is_tied = value.numel() and any(value.data_ptr() == other.data_ptr() for other in tensors.values())
        tensors[f"model.{name}"] = value.clone() if is_tied else value.contiguous()
    if optimizer is not None:
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value).contiguous()
    numbers = dict(progress or {})
    if (losses := numbers.pop("losses", None)) is not None:
        tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    average: Mapping[str, Tensor] = numbers.pop("average", {})
    tensors |= {f"average.{name}": value.contiguous() for name, value in average.items()}
    save_tensors(path, tensors, FORMAT, numbers, before)


def load_checkpoint(
    path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> dict[str, Any]:
    """Load a checkpoint into `model` and `optimizer`; returns the progress stored with it."""
    tensors, progress = read_tensors(path, FORMAT)
    weights, average = _select(tensors, "model."), _select(tensors, "average.")
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in weights.items()}
    if found != expected:
        odd = sorted(set(found.items()) ^ set(expected.items()))[0][0]
        raise ShoalError(
            f"{path} does not fit this model: {odd} is {found.get(odd, 'missing')}, expected {expected.get(odd, 'none')}"
        )
    model.load_state_dict(weights)
    if optimizer is not None:
        state = _read_state(path, tensors, optimizer)
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        for (
            weight,
            kept,
        ) in optimizer.state.items():  # a fused optimizer needs its state in the weight's layout
            for key, value in kept.items():
                if value.shape == weight.shape and value.stride() != weight.stride():
                    kept[key] = torch.empty_like(weight).copy_(value)
    progress |= {"average": average} if average else {}
    if "losses" not in tensors:
        return progress
    if tensors["losses"].ndim != 1 or not tensors["losses"].is_floating_point():
        raise ShoalError(f"{path} is damaged: its losses are not a list of numbers")
    return progress | {"losses": tensors["losses"].tolist()}


def _select(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}


def check_progress(path: Path, progress: dict[str, Any]) -> tuple[int, int, float]:
    """(epoch, best epoch, best score) of a trainer's checkpoint, checked."""
    epoch, best_epoch, best_score = (progress.get(name) for name in ("epoch", "best_epoch", "best_score"))
    if type(epoch) is not int or type(best_epoch) is not int or not 0 <= best_epoch <= epoch < 2**53:
        raise ShoalError(f"{path} is damaged: its epoch is {epoch!r:.40}, the best one {best_epoch!r:.40}")
    if not isinstance(best_score, int | float) or isinstance(best_score, bool):
        raise ShoalError(f"{path} is damaged: its best score is {best_score!r:.40}, expected a number")
    return epoch, best_epoch, best_score


def _read_state(
    path: Path, tensors: dict[str, Tensor], optimizer: torch.optim.Optimizer
) -> dict[int, dict[str, Tensor]]:
    """The optimizer's state of every weight: tensors of the weight's shape, or scalars."""
    shapes = [weight.shape for group in optimizer.param_groups for weight in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            index, _, key = name.removeprefix("optimizer.").partition(".")
            place = int(index) if index.isdecimal() and len(index) < 9 else -1
            if not (0 <= place < len(shapes) and key and tensor.shape in ((), shapes[place])):
                raise ShoalError(f"{path} does not fit this optimizer: it has {name} {tuple(tensor.shape)}")
            state.setdefault(place, {})[key] = tensor
    keys = {frozenset(kept) for kept in state.values()}  # weights without a gradient have none
    is_adam = (
        isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW) and not optimizer.defaults["amsgrad"]
    )
    if len(keys) > 1 or (is_adam and keys - {_STATE}):
        raise ShoalError(f"{path} is damaged: it lacks part of the optimizer's state")
    return state


def save_own(folder: Path, kind: str, step: int, rank: int, tensors: dict[str, Tensor], keep: int) -> None:
    """Write a rank's own state after a step, such as its stale halos, beside the checkpoint with the weights.

    The files of the `keep` newest steps stay, because the checkpoint of this step is not written yet. Older files are
    deleted, and so are those of later steps, which belong to training before it was resumed.
    """
    others = _list_own(folder, kind, rank)
    for late in [other for other in others if other > step]:
        others.pop(late).unlink(missing_ok=True)
    save_tensors(name_own(folder, kind, step, rank), tensors, kind)
    for old in sorted({*others, step})[:-keep]:
        others[old].unlink(missing_ok=True)


def drop_own(folder: Path, kept: list[Path], newest: int) -> None:
    """Remove files of `save_own`, of any rank, that none of the `kept` checkpoints needs.

    Files of step `newest` and later stay, because other ranks may be ahead.
    """
    found = {
        path: int(named[1])
        for path in folder.glob("*-*-*.safetensors")
        if (named := _OWN.fullmatch(path.name)) and int(named[1]) < newest
    }
    if not found:
        return
    try:
        steps = {json.loads(_read_metadata(path)["progress"])["step"] for path in kept}
    except (SafetensorError, ValueError, KeyError, TypeError):  # the steps they need are unknown
        return
    for path, step in found.items():
        if step not in steps:
            path.unlink(missing_ok=True)


def _read_metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def _list_own(folder: Path, kind: str, rank: int) -> dict[int, Path]:
    """A rank's files by step."""
    found = folder.glob(f"{_stem(kind)}-*-{rank}.safetensors")
    named = ((path.name.split("-")[1], path) for path in found)
    return {int(step): path for step, path in named if step.isdecimal()}


def read_own(folder: Path, kind: str, step: int, rank: int) -> dict[str, Tensor]:
    """The tensors that `save_own` wrote for a rank and step."""
    return read_tensors(name_own(folder, kind, step, rank), kind)[0]


def name_own(folder: Path, kind: str, step: int, rank: int) -> Path:
    """The file of a rank's own tensors after a step."""
    return folder / f"{_stem(kind)}-{step}-{rank}.safetensors"


def _stem(kind: str) -> str:
    return kind.removeprefix("shoal-")


def save_tensors(
    path: Path,
    tensors: dict[str, Tensor],
    kind: str,
    progress: Mapping[str, Any] | None = None,
    before: Callable[[], None] | None = None,
) -> None:
    """Write tensors to `path` atomically, with a checksum. They are written one by one, without a copy in memory."""
    said = json.dumps(progress or {})
    metadata = {"format": kind + _VERSIONS[-1], "progress": said, "sha256": _digest(tensors, said)}
    header, order = _describe(tensors, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
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
        start, place = place, place + one.numel() * one.dtype.itemsize
        about[name] = {"dtype": _TYPES[one.dtype], "shape": list(one.shape), "data_offsets": [start, place]}
    text = json.dumps(about).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(8, "little") + text, order


def _view_bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors that `save_tensors` wrote, and the progress stored with them, verified by the checksum."""
    if not path.is_file():
        raise ShoalError(
            f"{path} does not exist: expected a checkpoint written by `shoal train` or a shoal.Trainer"
        )
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") not in [kind + version for version in _VERSIONS]:
                raise ShoalError(
                    f"{path} is not a Shoal checkpoint: expected format {kind + _VERSIONS[-1]!r}"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            progress = parse_json(metadata["progress"])
            if not isinstance(progress, dict):
                raise ValueError
    except (SafetensorError, ValueError, KeyError, RuntimeError):
        raise ShoalError(f"{path} is damaged: it is not a readable safetensors file") from None
    if metadata["format"] != kind + _VERSIONS[0] and metadata.get("sha256") != _digest(
        tensors, metadata["progress"]
    ):
        raise ShoalError(f"{path} is damaged: its checksum does not match its content")
    return tensors, progress


def _digest(tensors: Mapping[str, Tensor], progress: str) -> str:
    """The SHA-256 of names, types, shapes and bytes of all tensors, and of the progress."""
    digest = hashlib.sha256(progress.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(_view_bytes(tensor))
    return digest.hexdigest()
