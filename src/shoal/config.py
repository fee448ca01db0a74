"""A run's configuration: one dataclass per component, read from YAML and from `key=value` settings."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from shoal.errors import ShoalError, unknown_name

METHODS = ("sampled", "full")


@dataclass
class ModelConfig:
    name: str = "sage"
    hidden: int = 256
    num_layers: int = 2
    orders: str | int | None = None
    heads: int = 4
    norm: str = "layer"
    dropout: float = 0.1
    l2_normalize: bool = False


@dataclass
class SamplerConfig:
    name: str = "random-walk"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class TrainingConfig:
    epochs: int = 50
    lr: float = 0.01
    weight_decay: float = 0.0
    clip: float | None = None
    patience: int | None = 10
    eval_every: int = 1
    sampling_threads: int = 1
    setting: str = "transductive"
    seed: int = 0
    threads: int | None = None


@dataclass
class RunConfig:
    """Everything that decides a run's result. `config.yaml` in a run folder and recipes hold exactly this."""

    data: str = ""
    data_options: dict[str, Any] = field(default_factory=dict)
    method: str = "sampled"
    model: ModelConfig = field(default_factory=ModelConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def to_yaml(self) -> str:
        return yaml.safe_dump(asdict(self), sort_keys=False)


def read_config(path: Path) -> RunConfig:
    """A RunConfig from a YAML file; missing keys keep their defaults, unknown ones are refused."""
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ShoalError(f"{path} does not exist: expected a YAML file with a run's configuration") from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = f"{path}, line {line + 1}" if line is not None else str(path)
        raise ShoalError(f"{where}: not valid YAML") from None
    config = RunConfig()
    update_config(config, content or {}, str(path))
    return config


def update_config(config: Any, values: Any, where: str) -> None:
    """Put nested `values` into a config dataclass, checking names and types."""
    if not isinstance(values, dict):
        raise ShoalError(f"{where}: expected keys and values, found {values!r}")
    hints = get_type_hints(type(config))
    for key, value in values.items():
        if key not in hints:
            raise unknown_name(f"key in {where}", str(key), hints)
        current = getattr(config, key)
        if dataclasses.is_dataclass(current):
            update_config(current, value, f"{where}, {key}")
        else:
            setattr(config, key, _check_type(value, hints[key], f"{where}, {key}"))


def apply_setting(config: RunConfig, setting: str) -> None:
    """Apply one `key=value`, such as `model.hidden=128` or `sampler.roots=2000`."""
    path, found, text = setting.partition("=")
    if not found:
        raise ShoalError(f"setting {setting!r}: expected key=value, such as model.hidden=128")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ShoalError(f"setting {setting!r}: {text!r} is not a valid value") from None
    names = path.split(".")
    if len(names) == 2 and names[0] == "sampler" and names[1] not in ("name", "options"):
        config.sampler.options[names[1]] = value
    elif len(names) == 2 and names[0] == "data":
        config.data_options[names[1]] = value
    else:
        for name in reversed(names):
            value = {name: value}
        update_config(config, value, f"setting {setting!r}")


def _check_type(value: Any, expected: Any, where: str) -> Any:
    """`value` if it is of the type a field's annotation names; a whole number is a float too."""
    accepted = get_args(expected) or (expected,)
    plain = (
        tuple(get_origin(kind) or kind for kind in accepted) if get_origin(expected) is not dict else (dict,)
    )
    if isinstance(value, int) and not isinstance(value, bool) and int not in plain and float in plain:
        value = float(value)
    if not isinstance(value, plain) or (isinstance(value, bool) and bool not in plain):
        name = getattr(expected, "__name__", None) if not get_args(expected) else str(expected)
        raise ShoalError(f"{where}: got {value!r}, expected {name}")
    return value
