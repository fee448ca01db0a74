"""Checkpoints: weights, optimizer state and counters in one safetensors file, written in one rename."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from shoal.errors import ShoalError
from shoal.files import replace_file

FORMAT = "shoal-checkpoint-1"
HALO_FORMAT = "shoal-halo-1"


def save_checkpoint(
    path: Path,
    weights: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer | None = None,
    progress: dict[str, Any] | None = None,
) -> None:
    """Write a model's weights (its `state_dict`) with what training needs to go on; a killed writer leaves the
    previous checkpoint under `path`."""
    tensors: dict[str, Tensor] = {}
    for name, value in weights.items():
        is_tied = value.numel() and any(value.data_ptr() == other.data_ptr() for other in tensors.values())
        tensors[f"model.{name}"] = value.clone() if is_tied else value.contiguous()
    if optimizer is not None:
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value).contiguous()
    save_tensors(path, tensors, FORMAT, progress)


def load_checkpoint(
    path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> dict[str, Any]:
    """Read a checkpoint into `model` and `optimizer`; returns the progress stored with it."""
    tensors, progress = read_tensors(path, FORMAT)
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in weights.items()}
    if found != expected:
        odd = sorted(set(found.items()) ^ set(expected.items()))[0][0]
        raise ShoalError(
            f"{path} does not fit this model: {odd} is {found.get(odd, 'missing')}, expected {expected.get(odd, 'none')}"
        )
    model.load_state_dict(weights)
    if optimizer is not None:
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".", 2)
                state.setdefault(int(index), {})[key] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        for (
            weight,
            kept,
        ) in optimizer.state.items():  # a fused optimizer needs its state in the weight's own layout
            for key, value in kept.items():
                if value.shape == weight.shape and value.stride() != weight.stride():
                    kept[key] = torch.empty_like(weight).copy_(value)
    return progress


def save_halo(folder: Path, epoch: int, rank: int, tensors: dict[str, Tensor]) -> None:
    """Write what a rank needs beside the weights of an epoch to go on with stale halos.

    Until the weights are written the checkpoint is that of the epoch before, whose file stays; older ones go.
    """
    path = _name_halo(folder, epoch, rank)
    save_tensors(path, tensors, HALO_FORMAT)
    for other in folder.glob(f"halo-*-{rank}.safetensors"):
        if other not in (path, _name_halo(folder, epoch - 1, rank)):
            other.unlink(missing_ok=True)


def read_halo(folder: Path, epoch: int, rank: int) -> dict[str, Tensor]:
    return read_tensors(_name_halo(folder, epoch, rank), HALO_FORMAT)[0]


def _name_halo(folder: Path, epoch: int, rank: int) -> Path:
    return folder / f"halo-{epoch}-{rank}.safetensors"


def save_tensors(
    path: Path, tensors: dict[str, Tensor], kind: str, progress: dict[str, Any] | None = None
) -> None:
    """Write tensors under `path` in one rename."""
    content = save(tensors, metadata={"format": kind, "progress": json.dumps(progress or {})})
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as scratch:
        scratch.write_bytes(content)  # a full disk is then an OSError like any other


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors that `save_tensors` wrote, and the progress stored with them."""
    if not path.is_file():
        raise ShoalError(f"{path} does not exist: expected a checkpoint written by `shoal train`")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != kind:
                raise ShoalError(f"{path} is not a Shoal checkpoint: expected format {kind!r}")
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(metadata["progress"])  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError):
        raise ShoalError(f"{path} is damaged: it is not a readable safetensors file") from None
