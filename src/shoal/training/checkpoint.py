"""Checkpoints: weights, optimizer state and counters, replaced atomically; the ranks' own state beside them."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shoal.errors import ShoalError
from shoal.training.tensor_files import read_progress, read_tensors, remove_tensors, save_tensors

FORMAT = "shoal-checkpoint"
HALO_FORMAT = "shoal-halo"
BUFFER_FORMAT = "shoal-buffers"
HISTORY_FORMAT = "shoal-history"
SAMPLER_FORMAT = "shoal-sampler"
_OWN = re.compile(r"(?:halo|buffers|history|sampler)-(\d{1,15})-\d+\.safetensors")
_STATE = frozenset({"step", "exp_avg", "exp_avg_sq"})  # Adam's state of a weight


def save_checkpoint(
    path: Path,
    weights: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer | None = None,
    progress: Mapping[str, Any] | None = None,
    before: Callable[[], None] | None = None,
) -> None:
    """Write a model's weights (its `state_dict`) with the state that training resumes from.

    The file is replaced atomically: a killed writer leaves the previous checkpoint under `path`. `progress` has numbers,
    the list `losses` of an unfinished epoch, the averaged weights `average`, if any, and the list `statistics` of batch
    norm in evaluation, if they were measured. `before` is called before the rename.
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
    statistics: list[Tensor] = numbers.pop("statistics", [])
    tensors |= {f"statistics.{place}": value.contiguous() for place, value in enumerate(statistics)}
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
    if statistics := _select(tensors, "statistics."):
        places = map(str, range(len(statistics)))
        progress["statistics"] = [statistics[place] for place in places if place in statistics]
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
        remove_tensors(others.pop(late))
    save_tensors(name_own(folder, kind, step, rank), tensors, kind)
    for old in sorted({*others, step})[:-keep]:
        remove_tensors(others[old])


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
    progress = [read_progress(path) for path in kept]
    steps = [one.get("step") for one in progress if one is not None]
    if len(steps) < len(kept) or None in steps:  # the steps they need are unknown
        return
    for path, step in found.items():
        if step not in steps:
            remove_tensors(path)


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
