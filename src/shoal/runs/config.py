"""A run's configuration: one dataclass per component, read from YAML and from `key=value` settings."""

from __future__ import annotations

import dataclasses
import math
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from shoal.checks import MAX_SEED, MAX_THREADS
from shoal.errors import ShoalError, unknown_name

METHODS = ("sampled", "full", "partitioned")
EXCHANGES = ("p2p", "broadcast")
MESSAGES = ("float32", "bfloat16")
BOUNDARY_SAMPLINGS = ("nodes", "edges", "dropedge")
OPTIMIZERS = ("adam", "adamw")
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # YAML 1.1 reads 1e-3, without a point, as text


@dataclass
class ModelConfig:
    name: str = "sage"
    hidden: int | str = 256
    num_layers: int | None = None
    orders: str | int | None = None
    heads: int = 4
    norm: str = "layer"
    norm_first: bool = False
    dropout: float = 0.1
    input_dropout: float = 0.0
    residual: bool = False
    jumping: str = "none"
    head_layers: int = 1
    l2_normalize: bool = False

    def validate(self) -> None:
        """Refuse names that do not exist and numbers out of range."""
        from shoal.models.gnn import JUMPS, MODELS, check_head, parse_orders, parse_widths
        from shoal.models.layers import NORMS

        for what, name, known in (
            ("model", self.name, MODELS),
            ("norm", self.norm, NORMS),
            ("jumping", self.jumping, JUMPS),
        ):
            if name not in known:
                raise unknown_name(what, name, known)
        for what, rate in (("dropout", self.dropout), ("input_dropout", self.input_dropout)):
            _check(what, rate, 0 <= rate < 1, "a rate from 0 up to, not including, 1")
        _check("heads", self.heads, self.heads >= 1, "at least 1")
        check_head(self.head_layers, self.jumping, self.l2_normalize)
        num_layers = len(parse_orders(self.orders, self.num_layers))
        parse_widths(self.hidden, num_layers, 1 if self.head_layers == 0 else None)


@dataclass
class SamplerConfig:
    name: str = "random-walk"
    options: dict[str, Any] = field(default_factory=dict)

    def validate(self, *, with_options: bool = True, shared: bool = False) -> None:
        """Refuse a sampler that does not exist and, `with_options`, an option that it does not have.

        With `shared`, one whose batches cannot be shared among ranks is refused too.
        """
        from shoal.sampling.registry import SAMPLERS, default_options

        known = default_options(self.name)
        if shared:
            SAMPLERS[self.name].require_shareable()
        for option in self.options if with_options else ():
            if option not in known:
                raise unknown_name(f"option of sampler {self.name!r}", option, known)


@dataclass
class TrainingConfig:
    epochs: int = 50
    optimizer: str = "adam"
    lr: float = 0.01
    schedule: str = "constant"
    warmup: int = 0
    weight_decay: float = 0.0
    class_weights: str | list[float] | None = None
    clip: float | None = None
    patience: int | None = 10
    eval_every: int = 1
    metric: str | None = None
    sampling_threads: int = 0
    setting: str = "transductive"
    seed: int = 0
    threads: int | None = None

    def validate(self) -> None:
        """Refuse what no run can be made with, in one sentence, before any work starts."""
        _check("epochs", self.epochs, self.epochs >= 1, "at least 1")
        _check("lr", self.lr, 0 < self.lr < math.inf, "a number above 0")
        _check("weight_decay", self.weight_decay, 0 <= self.weight_decay < math.inf, "0 or more")
        _check(
            "clip", self.clip, self.clip is None or self.clip > 0, "a number above 0, or null for no limit"
        )
        _check(
            "patience",
            self.patience,
            self.patience is None or self.patience >= 1,
            "at least 1, or null for never",
        )
        _check("eval_every", self.eval_every, self.eval_every >= 1, "at least 1")
        _check(
            "sampling_threads",
            self.sampling_threads,
            0 <= self.sampling_threads <= MAX_THREADS,
            f"0 to {MAX_THREADS}",
        )
        _check(
            "threads",
            self.threads,
            self.threads is None or 1 <= self.threads <= MAX_THREADS,
            f"1 to {MAX_THREADS}, or null for all cores",
        )
        _check("warmup", self.warmup, self.warmup >= 0, "0 or more epochs")
        if isinstance(self.class_weights, str):
            _check(
                "class_weights",
                self.class_weights,
                self.class_weights == "balanced",
                "balanced, a list of numbers, or null",
            )
        from shoal.graph import SETTINGS
        from shoal.training.metrics import METRICS
        from shoal.training.schedule import SCHEDULES

        for what, name, known in (
            ("setting", self.setting, SETTINGS),
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES),
            ("metric", self.metric, (None, *METRICS)),
        ):
            if name not in known:
                raise unknown_name(what, str(name), [one for one in known if one is not None])
        _check("seed", self.seed, 0 <= self.seed <= MAX_SEED, "0 to 2^63 - 1")  # fmt: skip


@dataclass
class PartitionConfig:
    """How a graph is shared among ranks: `folder` holds stored parts, else `method` cuts it when training starts.

    Every step is one on the whole graph, with the boundary thinned to `boundary_rate`, or with `sampled` one on a batch
    that the run's sampler draws for all ranks together.
    """

    folder: str | None = None
    parts: int | None = None
    method: str = "auto"
    exchange: str = "p2p"
    messages: str = "float32"
    boundary_rate: float = 1.0
    last_boundary_rate: float | None = None
    boundary_sampling: str = "nodes"
    sampled: bool = False

    @property
    def keeps_boundary(self) -> bool:
        """Whether every epoch exchanges the whole boundary."""
        return self.boundary_rate == 1 and self.last_boundary_rate in (None, 1)

    def validate(self) -> None:
        for what, name, known in (
            ("partition.exchange", self.exchange, EXCHANGES),
            ("partition.messages", self.messages, MESSAGES),
            ("partition.boundary_sampling", self.boundary_sampling, BOUNDARY_SAMPLINGS),
        ):
            if name not in known:
                raise unknown_name(what, name, known)
        _check("partition.parts", self.parts, self.parts is None or self.parts >= 1, "at least 1")
        for name in ("boundary_rate", "last_boundary_rate"):
            rate = getattr(self, name)
            _check(f"partition.{name}", rate, rate is None or 0 <= rate <= 1, "a rate from 0 to 1")
        if self.sampled and not self.keeps_boundary:
            raise ShoalError(
                "a boundary rate below 1 is for training on the whole graph: leave out the sampler, or the rate"
            )
        if self.exchange == "broadcast" and (self.sampled or not self.keeps_boundary):
            raise ShoalError(
                "partition.exchange=broadcast sends every row: leave out the boundary rate and the sampler"
            )
        if self.exchange == "broadcast" and self.messages != "float32":
            raise ShoalError(
                f"partition.messages={self.messages} needs the p2p exchange: broadcast sends rows as they are"
            )


@dataclass
class TargetConfig:
    """The test score a recipe must reach, and where that figure is from. It decides nothing in a run."""

    metric: str = ""
    score: float | None = None
    deviation: float = 0.0
    source: str = ""

    def validate(self) -> None:
        from shoal.training.metrics import METRICS

        if self.metric and self.metric not in METRICS:
            raise unknown_name("target.metric", self.metric, METRICS)
        _check("target.score", self.score, self.score is None or bool(self.metric), "target.metric with it")
        _check("target.deviation", self.deviation, self.deviation >= 0, "0 or more")


@dataclass
class RunConfig:
    """Everything that decides a run's result. `config.yaml` in a run folder and recipes hold exactly this."""

    data: str = ""
    data_options: dict[str, Any] = field(default_factory=dict)
    method: str = "sampled"
    model: ModelConfig = field(default_factory=ModelConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    repeat: int = 1
    target: TargetConfig = field(default_factory=TargetConfig)

    def validate(self) -> None:
        """Refuse settings out of range and settings that contradict each other."""
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        draws = self.method == "sampled" or (self.method == "partitioned" and self.partition.sampled)
        if not draws and self.sampler.options:
            given = ", ".join(f"sampler.{name}" for name in self.sampler.options)
            raise ShoalError(f"method {self.method} trains on the whole graph every step: leave out {given}")
        if self.method == "partitioned" and self.training.setting == "inductive" and not draws:
            raise ShoalError(
                "method partitioned trains on the whole graph: leave out training.setting=inductive, or give a --sampler"
            )
        if self.method != "partitioned" and (self.partition.sampled or not self.partition.keeps_boundary):
            raise ShoalError(
                f"partition.sampled and the boundary rate belong to method partitioned, not to {self.method}"
            )
        for where, options in (
            ("sampler.options", self.sampler.options),
            ("data_options", self.data_options),
        ):
            odd = next((key for key in options if not isinstance(key, str)), None)
            if odd is not None:
                raise ShoalError(f"{where} has the key {odd!r}: expected names")
        _check("repeat", self.repeat, 1 <= self.repeat <= 1000, "1 to 1000")
        self.target.validate()
        self.training.validate()
        self.model.validate()
        self.partition.validate()
        self.sampler.validate(with_options=draws, shared=draws and self.method == "partitioned")

    def to_yaml(self) -> str:
        return yaml.safe_dump(asdict(self), sort_keys=False)


def read_config(path: Path) -> RunConfig:
    """A RunConfig from a YAML file; missing keys keep their defaults, unknown ones are refused."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.reader.ReaderError):
        raise ShoalError(
            f"{path} is not a text file: expected a YAML file with a run's configuration"
        ) from None
    except FileNotFoundError:
        raise ShoalError(f"{path} does not exist: expected a YAML file with a run's configuration") from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = f"{path}, line {line + 1}" if line is not None else str(path)
        raise ShoalError(f"{where}: not valid YAML") from None
    config = RunConfig()
    update_config(config, content or {}, str(path))
    return config


def update_config(config: Any, values: Any, where: str, below: str = "") -> None:
    """Put nested `values` into a config dataclass, checking names and types; options join those there.

    `where` is the file or the option that holds them, `below` the dotted keys above them.
    """
    if not isinstance(values, dict):
        raise ShoalError(f"{_place(where, below)}: expected keys and values, found {values!r}")
    hints = get_type_hints(type(config))
    for key, value in values.items():
        if key not in hints:
            raise unknown_name("key", str(key), hints, _place(where, below))
        current = getattr(config, key)
        if dataclasses.is_dataclass(current):
            update_config(current, value, where, f"{below}{key}.")
        else:
            value = _check_type(value, hints[key], _place(where, f"{below}{key}"))
            setattr(config, key, {**current, **value} if isinstance(value, dict) else value)


def _place(where: str, key: str) -> str:
    """A key of a file; a setting from the command line shows its key already."""
    return f"{where}, {key.rstrip('.')}" if key and not where.startswith("--set") else where


GROUPS = ("model", "training", "partition")


def apply_setting(config: RunConfig, setting: str) -> None:
    """Apply one `key=value`, such as `model.hidden=128` or `sampler.roots=2000`."""
    path, found, text = setting.partition("=")
    if not found:
        raise ShoalError(f"--set {setting}: expected key=value, such as model.hidden=128")
    value = parse_value(text, f"--set {setting}")
    names = path.split(".")
    if len(names) == 2 and names[0] == "sampler" and names[1] not in ("name", "options"):
        config.sampler.options[names[1]] = value
    elif len(names) == 2 and names[0] == "data":
        config.data_options[names[1]] = value
    else:
        group = next((group for group in GROUPS if path in vars(getattr(config, group))), None)
        if group is not None and path not in vars(config):
            raise ShoalError(f"--set {setting}: did you mean {group}.{setting}?")
        for name in reversed(names):
            value = {name: value}
        update_config(config, value, f"--set {setting}")


def parse_value(text: str, where: str) -> Any:
    """A YAML value as typed on the command line; 1e-3 is a number."""
    try:
        return float(text) if _EXPONENT.fullmatch(text) else yaml.safe_load(text)
    except yaml.YAMLError:
        raise ShoalError(f"{where}: {text!r} is not a valid value") from None


def _check_type(value: Any, expected: Any, where: str) -> Any:
    """`value` if it is of the type a field's annotation names; whole numbers and "1e-3" are floats too."""
    accepted = get_args(expected) or (expected,)
    plain = (
        tuple(get_origin(kind) or kind for kind in accepted) if get_origin(expected) is not dict else (dict,)
    )
    if isinstance(value, int) and not isinstance(value, bool) and int not in plain and float in plain:
        value = float(value)
    if isinstance(value, str) and float in plain and str not in plain:
        with suppress(ValueError):
            value = float(value)
    if not isinstance(value, plain) or (isinstance(value, bool) and bool not in plain):
        name = getattr(expected, "__name__", None) if not get_args(expected) else str(expected)
        raise ShoalError(f"{where}: got {value!r}, expected {name}")
    return value


def _check(name: str, value: object, right: bool, expected: str) -> None:
    if not right:
        raise ShoalError(f"{name} is {value}: expected {expected}")
