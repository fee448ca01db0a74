"""A run's configuration: one section per component. The component declares its settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from shoal.checks import check_whole
from shoal.distributed.exchange import EXCHANGES, STALE_BATCHES, ExchangeMethod
from shoal.errors import ShoalError, unknown_name
from shoal.models.conv import CONVS
from shoal.models.pattern import DEFAULT_LAYERS
from shoal.registry import load_plugin
from shoal.runs import sections
from shoal.runs.sections import Section
from shoal.runs.training_section import training_section
from shoal.sampling.base import SAMPLERS
from shoal.settings import Setting, list_settings

_MOST_VALUES = 10_000
METHODS = ("sampled", "full", "partitioned", "swapped")
AUTO = "auto"  # the method is chosen by the graph when a run starts (`shoal.runs.choose`)
DEFAULT_SWAPPED = 8  # parts
FIXED, FROM_GRAPH = DEFAULTS = ("fixed", "graph")
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # YAML 1.1 reads 1e-3, without a point, as text


@dataclass
class RunConfig:
    """Everything that decides a run's result. `config.yaml` in a run folder and recipes hold exactly this.

    Attributes:
        data, data_options: arguments of `shoal.load`.
        plugins: modules or files that register components.
        method: `sampled` (mini-batches), `full` (full-batch), `partitioned` (a part on every rank) or `swapped` (full-batch,
            one part at a time with activations in files). `auto`: chosen by the graph when the run starts.
        ranks: number of ranks that train together, set by a run across ranks.
        repeat: number of seeds to train with, one after the other.
        target: the test score a recipe must reach. It does not change a run.
        defaults: where settings that are not given come from. `fixed`: their declarations. `graph`: a rule
            (`shoal.runs.defaults`), applied when the graph is loaded.
    """

    data: str = ""
    data_options: dict[str, Any] = field(default_factory=dict)
    plugins: list[str] = field(default_factory=list)
    method: str = "sampled"
    ranks: int | None = None
    model: Section = field(default_factory=sections.model_section)
    sampler: Section = field(default_factory=sections.sampler_section)
    training: Section = field(default_factory=training_section)
    features: Section = field(default_factory=sections.features_section)
    partition: Section = field(default_factory=sections.partition_section)
    repeat: int = 1
    target: Section = field(default_factory=sections.target_section)
    defaults: str = FIXED

    @property
    def draws(self) -> bool:
        """Whether training uses the sampler's batches."""
        return self.method in ("sampled", AUTO) or (self.method == "partitioned" and self.partition.sampled)

    @property
    def num_ranks(self) -> int | None:
        """The number of ranks that a run was started with; None if unknown."""
        return self.ranks or (self.partition.parts if self.method == "partitioned" else None)

    def make_exchange(self) -> ExchangeMethod:
        """The exchange that the configuration describes."""
        settings = self.partition.select(EXCHANGES[self.partition.exchange])
        return EXCHANGES[self.partition.exchange](**settings, **self._give_seed())

    def fill_depth(self) -> None:
        """Set `model.num_layers` to its default if it is open, so that config.yaml shows it."""
        if self.model.name in CONVS and self.model.orders is None:
            self.model.num_layers = self.model.num_layers or DEFAULT_LAYERS

    def _give_seed(self) -> dict[str, int]:
        own = list_settings(EXCHANGES[self.partition.exchange])
        return {"seed": self.training.seed} if "seed" in own else {}

    def validate(self) -> None:
        """Raise for settings out of range and for settings that contradict each other, before anything is loaded."""
        self.plugins = [load_plugin(str(plugin)) for plugin in self.plugins]
        if self.method not in (*METHODS, AUTO):
            raise unknown_name("method", self.method, METHODS)
        if not self.draws and (given := [name for name in self.sampler.given if name != "name"]):
            leave = ", ".join(f"sampler.{name}" for name in given)
            raise ShoalError(f"method {self.method} trains on the whole graph every step: leave out {leave}")
        if self.defaults not in DEFAULTS:
            raise unknown_name("value of defaults", self.defaults, DEFAULTS)
        for name, least, most in (("repeat", 1, 1000), ("ranks", 1, 4096)):
            if (value := getattr(self, name)) is not None:
                check_whole(name, value, least, most)
        for section in (self.target, self.training, self.features, self.model, self.partition):
            section.validate()
        self._choose_rows()
        self.sampler.validate()
        self._check_ranks()

    def _choose_rows(self) -> None:
        """Set the sampler of a model that needs no edges, and raise for a method or sampler that does not fit it."""
        name = self.model.name
        if name not in CONVS:
            return
        if CONVS[name].trains_on_rows:
            self.method = "sampled" if self.method == AUTO else self.method
            if self.method != "sampled":
                raise ShoalError(
                    f"model {name} trains on rows of nodes, without edges: leave out method {self.method}, or give sampled"
                )
            if self.sampler.given.get("name", "rows") != "rows":
                raise ShoalError(
                    f"model {name} trains on rows of nodes, without edges: leave out sampler {self.sampler.name}, or give rows"
                )
            if self.training.label_reuse is not None:
                raise ShoalError(
                    f"model {name} reads features that were propagated before training, without labels: leave out training.label_reuse"
                )
            self.sampler.name = "rows"
        elif self.draws and self.sampler.given.get("name") == "rows" and CONVS[name].kind is not None:
            others = " and ".join(one for one, other in CONVS.items() if other.kind is None)
            raise ShoalError(
                f"sampler rows draws nodes without edges, and model {name} aggregates over edges: give another sampler, or model {others}"
            )

    def _check_ranks(self) -> None:
        """Raise for settings of method, sampler and exchange that contradict each other."""
        exchange = self.make_exchange()
        if self.training.node_multiple > 1 and not self.draws:
            raise ShoalError(
                f"method {self.method} draws no subgraphs to clip: leave out training.node_multiple, or give --method sampled"
            )
        if self.training.history and self.method != "sampled":
            raise ShoalError(
                f"histories need sampled batches, and method {self.method} has none: leave out training.history, or give --method sampled"
            )
        if self.method != "partitioned":
            self._refuse_exchange()
            if self.method == "swapped" and self.model.resolve().get("directions") == "both":
                raise ShoalError(
                    "swapped parts have no reversed edges: leave out model.directions=both, or train with --method full"
                )
            if self.method == "swapped" and self.training.setting == "inductive":
                raise ShoalError(
                    "method swapped trains on the whole graph: leave out training.setting=inductive"
                )
            return
        if not self.draws:
            return
        SAMPLERS[self.sampler.name].require_shareable()
        if exchange.thins:
            raise ShoalError(
                "a boundary rate below 1 is for training on the whole graph: leave out the sampler, or the rate"
            )
        if exchange.is_stale:
            raise ShoalError(STALE_BATCHES)
        if not exchange.serves_batches:
            raise ShoalError(
                f"partition.exchange={exchange.name} sends every row: leave out the sampler, or use another exchange"
            )

    def _refuse_exchange(self) -> None:
        """Raise for settings of an exchange, and for shared batches, if the method is not partitioned."""
        declared = {"sampled": self.partition.declared["sampled"]}
        declared |= sections.exchange_settings(self.partition.exchange)
        for name, setting in declared.items():
            if (value := self.partition.given.get(name, setting.default)) != setting.default:
                raise ShoalError(
                    f"partition.{name}={value} belongs to method partitioned, not to {self.method}: leave it out, or add --method partitioned"
                )

    def to_dict(self) -> dict[str, Any]:
        """Every setting with its value, for YAML, without settings that the method does not use or that the graph will
        decide."""
        content: dict[str, Any] = {}
        for name, value in self.items():
            if isinstance(value, Section):
                unused = (name in ("sampler", "features") and not self.draws) or (
                    name == "partition" and self.method not in ("partitioned", "swapped")
                )
                if name != "target" or value.given:
                    content[name] = value.to_dict(given_only=unused or self.defaults == FROM_GRAPH)
            elif value not in (None, [], FIXED):
                content[name] = value
        return content

    def to_yaml(self) -> str:
        """The configuration as YAML."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    def items(self) -> Iterator[tuple[str, Any]]:
        """(name, value) of every field."""
        for one in fields(self):
            yield one.name, getattr(self, one.name)


def read_config(path: Path) -> RunConfig:
    """A RunConfig from a YAML file. Missing keys keep their defaults, unknown ones are errors."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.reader.ReaderError):
        raise ShoalError(
            f"{path} is not a text file: expected a YAML file with a run's configuration"
        ) from None
    except FileNotFoundError:
        raise ShoalError(f"{path} does not exist: expected a YAML file with a run's configuration") from None
    except (RecursionError, ValueError, OverflowError, TypeError):  # 9…9, 2001-99-99, lists as keys
        raise ShoalError(f"{path} holds an invalid value, or is nested too deeply") from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = f"{path}, line {line + 1}" if line is not None else str(path)
        raise ShoalError(f"{where}: not valid YAML") from None
    if count_values(content) > _MOST_VALUES:  # nested YAML references, which expand when they are shown
        raise ShoalError(f"{path} holds more than {_MOST_VALUES:,} values: expected a run's configuration")
    config = make_config(content or {}, str(path))
    beside = [path.parent / plugin for plugin in config.plugins if isinstance(plugin, str)]
    config.plugins = [
        str(file) if file.suffix == ".py" and file.is_file() else plugin
        for plugin, file in zip(config.plugins, beside)
    ]
    return config


def count_values(value: Any, known: dict[int, int] | None = None) -> int:
    """The number of nested values. A value that is referred to twice counts twice but is visited once."""
    known = {} if known is None else known
    if id(value) not in known:
        known[id(value)] = _MOST_VALUES  # during the visit: it may contain itself
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        known[id(value)] = 1 + sum(count_values(one, known) for one in inside)
    return known[id(value)]


def make_config(content: Any, where: str = "the configuration") -> RunConfig:
    """A RunConfig from nested keys and values, found in `where`."""
    config = RunConfig()
    update_config(config, content, where)
    return config


def update_config(config: RunConfig, values: Any, where: str) -> None:
    """Update a configuration with nested `values`; data_options are merged. `where` is the file or option they come from."""
    if not isinstance(values, dict):
        raise ShoalError(f"{where}: expected keys and values, found {values!r}")
    known = dict(config.items())
    for key, value in values.items():
        if key not in known:
            raise unknown_name("key", str(key), known, where)
        current = known[key]
        place = where if where.startswith("--set") else f"{where}, {key}"
        if isinstance(current, Section):
            if key == "target" and isinstance(value, dict):  # recipes may leave fields empty
                value = {name: one for name, one in value.items() if one != ""}
            current.update(value, place)
            continue
        kinds: dict[str, type] = {"data": str, "method": str, "defaults": str, "plugins": list}
        kind = {**kinds, "data_options": dict}.get(key, int)
        if not isinstance(value, kind) and not (key == "ranks" and value is None):
            raise ShoalError(
                f"{place}: got {value!r}, expected {Setting(key, (kind,), False, None, '').type_name}"
            )
        if isinstance(value, dict):
            for name in value:
                if not isinstance(name, str):
                    raise ShoalError(f"{place}: {key} has the key {name!r}: expected names")
            value = {**current, **value}
        setattr(config, key, value)


def apply_setting(config: RunConfig, setting: str) -> None:
    """Apply one `key=value`, such as `model.hidden=128` or `sampler.roots=2000`."""
    path, found, text = setting.partition("=")
    if not found:
        raise ShoalError(f"--set {setting}: expected key=value, such as model.hidden=128")
    value = parse_value(text, f"--set {setting}")
    names = path.split(".")
    if len(names) == 2 and names[0] == "data":
        config.data_options[names[1]] = value
        return
    if len(names) == 1 and path not in dict(config.items()):
        for name, section in config.items():
            if isinstance(section, Section) and path in section.declared:
                raise ShoalError(f"--set {setting}: did you mean {name}.{setting}?")
    for name in reversed(names):
        value = {name: value}
    update_config(config, value, f"--set {setting}")


def parse_value(text: str, where: str) -> Any:
    """A YAML value as typed on the command line; 1e-3 is a number."""
    try:
        return float(text) if _EXPONENT.fullmatch(text) else yaml.safe_load(text)
    except yaml.YAMLError:
        raise ShoalError(f"{where}: {text!r} is not a valid value") from None
