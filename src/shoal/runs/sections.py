"""Section: the settings of one component, and the sections of a run's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from shoal.distributed.exchange import EXCHANGES
from shoal.errors import ShoalError, unknown_name
from shoal.models.conv import CONVS
from shoal.models.gnn import GNN
from shoal.models.module import MODELS
from shoal.models.pattern import check_head, find_orders, parse_widths, place_norm
from shoal.partitioning.work import PARTITION_METHODS
from shoal.sampling.base import SAMPLERS, sampler_settings
from shoal.sampling.feature_cache import FeatureCaching
from shoal.settings import AtLeast, Choices, Null, Range, Setting, list_settings
from shoal.training.metrics import METRICS

Declared = Mapping[str, Setting]
DEFAULT_WIDTH = 256


class Section:
    """Settings by name: given values, and defaults for the others. They are read and set as attributes.

    Which settings exist depends on the chosen component (a sampler's on its `name`). So values are checked by `validate`,
    after all are given, in any order.

    Args:
        title: its key in the configuration.
        declare: returns the settings that exist, from the values given so far.
        rivals: (label, settings) of components that could have been chosen instead, for messages.
        check: raises for values that contradict each other.
        renew: replaces given values of old settings that no longer exist.
    """

    def __init__(
        self,
        title: str,
        declare: Callable[[Section], Declared],
        rivals: Callable[[], Mapping[str, Declared]] = dict,
        check: Callable[[Section], None] = lambda section: None,
        renew: Callable[[Section], None] = lambda section: None,
    ) -> None:
        self.__dict__.update(title=title, given={}, origins={}, is_forgiving=False)
        self.__dict__.update(_declare=declare, _rivals=rivals, _check=check, _renew=renew)

    title: str
    given: dict[str, Any]
    origins: dict[str, str]
    is_forgiving: bool

    def forgive(self) -> None:
        """Drop settings of other components without an error, as for a run's own file."""
        self.__dict__["is_forgiving"] = True

    @property
    def declared(self) -> Declared:
        """Every setting of the section, including those of the chosen component."""
        declared: Declared = self._declare(self)
        return declared

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self.given:
            return self.given[name]
        declared = self._declare(self)
        if name not in declared:
            raise AttributeError(f"section {self.title} has no setting {name!r}")
        return declared[name].default

    def __setattr__(self, name: str, value: Any) -> None:
        self.given[name] = value
        self.origins.pop(name, None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Section) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        return f"Section({self.title}, {self.given})"

    def update(self, values: Any, where: str) -> None:
        """Set values that come from `where`. A component's settings may be under `options` or beside its name."""
        if not isinstance(values, dict):
            raise ShoalError(f"{where}: expected keys and values, found {values!r}")
        for key, value in values.items():
            if key == "options" and isinstance(value, dict):
                self.update(value, where)
            elif not isinstance(key, str):
                raise ShoalError(f"{self.title} has the key {key!r} in {where}: expected names")
            else:
                before = self.given.get(key)
                if isinstance(value, dict) and isinstance(before, dict):  # settings of one callback
                    value = {**before, **value}
                self.given[key], self.origins[key] = value, where

    def clear(self, *kept: str) -> None:
        """Drop all given values except those `kept`."""
        for name in [name for name in self.given if name not in kept]:
            del self.given[name]

    def validate(self) -> None:
        """Check names, types and ranges of given values, then their combination."""
        self._renew(self)
        declared = self.declared
        for name, value in list(self.given.items()):
            where = self.origins.get(name, "")
            if name in declared:
                place = where if where.startswith("--set") or not where else f"{where}.{name}"
                self.given[name] = declared[name].check(value, where=place)
            elif self._is_rivals(name, value):
                del self.given[
                    name
                ]  # the default of another component, from a configuration with all settings
            else:
                raise unknown_name("key", name, declared, where or self.title)
        self._check(self)

    def _is_rivals(self, name: str, value: Any) -> bool:
        """Whether a setting belongs to another component and may be dropped. Raises, naming the owner, if it may not.

        A configuration with all settings, such as a run's, may have unused ones at their defaults; others are a mistake.
        """
        owners = {label: declared[name] for label, declared in self._rivals().items() if name in declared}
        if not owners:
            return False
        if self.is_forgiving or any(value == setting.default for setting in owners.values()):
            return True
        label = " and ".join(owners)
        raise ShoalError(f"{self.title}.{name}={value} belongs to {label}: leave it out, or choose that")

    def to_dict(self, *, given_only: bool = False) -> dict[str, Any]:
        """Every setting, or every given one, with its value, for YAML: lists for tuples."""
        values = self.given if given_only else self.resolve()
        return {name: list(one) if isinstance(one, tuple) else one for name, one in values.items()}

    def resolve(self) -> dict[str, Any]:
        """Every setting with its value."""
        return {name: self.given.get(name, setting.default) for name, setting in self.declared.items()}

    def select(self, component: Callable[..., Any], *, without: tuple[str, ...] = ()) -> dict[str, Any]:
        """The values of the settings that a component declares, as its arguments."""
        values = self.resolve()
        return {
            name: values[name] for name in list_settings(component) if name in values and name not in without
        }


def _choose(name: str, default: str, names: Any, meaning: str) -> dict[str, Setting]:
    return {name: Setting(name, (str,), False, default, meaning, choices=Choices(names))}


def _without(declared: Declared, *names: str) -> dict[str, Setting]:
    return {name: setting for name, setting in declared.items() if name not in names}


class _Names(Mapping[str, Any]):
    """The names of several registries as one."""

    def __init__(self, *registries: Mapping[str, Any]) -> None:
        self._registries = registries

    def __getitem__(self, name: str) -> Any:
        for registry in self._registries:
            if name in registry:
                return registry[name]
        raise KeyError(name)

    def __iter__(self) -> Any:
        return iter([name for registry in self._registries for name in registry])

    def __len__(self) -> int:
        return sum(map(len, self._registries))


MODEL_NAMES = _Names(CONVS, MODELS)


def chosen_name(section: Section, key: str, default: str) -> str:
    """The component name that a section has chosen; an error if it is not text."""
    name = section.given.get(key, default)
    if not isinstance(name, str):
        raise ShoalError(f"{section.title}.{key} is {name!r}: expected a name")
    return name


def model_settings(name: str) -> Declared:
    """Settings of a model: for a stack of convs those of the stack and of the conv, else the model's own."""
    if name in CONVS and name in MODELS:
        raise ShoalError(f"there is a conv called {name!r} already: give your model another name")
    if name not in MODEL_NAMES:
        raise unknown_name("model", name, MODEL_NAMES)
    if name in CONVS:
        stack = _without(list_settings(GNN), "seed")
        stack["hidden"] = replace(stack["hidden"], default=DEFAULT_WIDTH)
        return stack | dict(list_settings(CONVS[name]))
    return _without(list_settings(MODELS[name]), "seed")


def model_section() -> Section:
    """The section `model`: the model's name and its settings."""

    def declare(section: Section) -> Declared:
        name = chosen_name(section, "name", "sage")
        return _choose("name", "sage", MODEL_NAMES, "the model") | dict(model_settings(name))

    def check(section: Section) -> None:
        if section.name not in CONVS:
            return
        conv = CONVS[section.name]
        pattern = find_orders(conv, section.orders, section.num_layers, section.head_layers)
        check_head(section.head_layers, section.jumping, section.l2_normalize)
        parse_widths(section.hidden, len(pattern), 1 if section.head_layers == 0 else None)

    def renew(section: Section) -> None:
        if "norm_first" in section.given and "norm_place" in section.declared:
            place = place_norm(section.given.pop("norm_first"))
            if place is not None:
                section.given.setdefault("norm_place", place)

    return Section(
        "model",
        declare,
        lambda: {f"model {name!r}": model_settings(name) for name in MODEL_NAMES},
        check,
        renew,
    )


def sampler_section() -> Section:
    """The section `sampler`: the sampler's name and its settings."""

    def declare(section: Section) -> Declared:
        name = chosen_name(section, "name", "random-walk")
        chosen = _choose("name", "random-walk", SAMPLERS, "the sampler of batches")
        return chosen | dict(sampler_settings(name))

    return Section("sampler", declare)


def features_section() -> Section:
    """The section `features`: how features on disk are read."""
    return Section("features", lambda section: list_settings(FeatureCaching))


@dataclass
class PartitionSettings:
    """Settings of the section `partition`, beside those of the partition method and the exchange."""

    folder: Annotated[
        str | None,
        Null("partition the graph when training starts"),
        "folder of stored parts (`shoal partition`), one per rank",
    ] = None
    parts: Annotated[int | None, AtLeast(1), Null("one per rank, swapped 8"), "number of parts"] = None
    method: Annotated[
        str,
        Choices(_Names({"auto": None}, PARTITION_METHODS)),
        "partition method; auto: the best that fits",
    ] = "auto"
    exchange: Annotated[str, Choices(EXCHANGES), "how ranks exchange halo rows"] = "p2p"
    sampled: Annotated[bool, "train on batches of the sampler, shared by all ranks"] = False


def partition_section() -> Section:
    """The section `partition`: how the graph is partitioned and how ranks exchange rows."""

    def declare(section: Section) -> Declared:
        exchange, method = chosen_name(section, "exchange", "p2p"), chosen_name(section, "method", "auto")
        if method in PARTITION_METHODS:
            own = _without(list_settings(PARTITION_METHODS[method]), "seed")
        else:  # the method that auto chooses may have the setting; fast, because other ranks wait
            own = {"effort": replace(list_settings(PARTITION_METHODS["cover"])["effort"], default="fast")}
        return dict(own) | dict(list_settings(PartitionSettings)) | exchange_settings(exchange)

    def rivals() -> Mapping[str, Declared]:
        methods = {
            f"partition method {name!r}": list_settings(one) for name, one in PARTITION_METHODS.items()
        }
        return {f"exchange {name!r}": exchange_settings(name) for name in EXCHANGES} | methods

    return Section("partition", declare, rivals)


def exchange_settings(name: str) -> dict[str, Setting]:
    """Settings of an exchange, without its seed, which is the run's."""
    if name not in EXCHANGES:
        raise unknown_name("exchange", name, EXCHANGES)
    return _without(list_settings(EXCHANGES[name]), "seed")


@dataclass
class TargetSettings:
    """The test score a recipe must reach, and its source."""

    metric: Annotated[str | None, Choices(METRICS), "metric of the score"] = None
    score: Annotated[float | None, "test score to reach"] = None
    deviation: Annotated[float, Range(0, said="0 or more"), "published deviation of the score"] = 0.0
    source: Annotated[str, "source of the score"] = ""


def target_section() -> Section:
    """The section `target`: the score that a recipe must reach."""

    def check(section: Section) -> None:
        if section.score is not None and section.metric is None:
            raise ShoalError(f"target.score is {section.score}: expected target.metric with it")

    return Section("target", lambda section: list_settings(TargetSettings), check=check)
