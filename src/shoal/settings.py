"""Settings of components, declared once in their signatures and read everywhere else.

A parameter becomes a setting by an annotation that gives its meaning and, if needed, its allowed values:

    def __init__(self, graph: Graph, *, roots: Annotated[int, AtLeast(1), "walks started in a batch"] = 3000) -> None: ...

`list_settings` reads such declarations. Validation of configurations, `did you mean`, help and the tables in the docs
are generated from its result; `@check_settings` applies the same rules to calls from Python.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, wraps
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from shoal.checks import MAX_SEED
from shoal.errors import ShoalError, unknown_name

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M")
REQUIRED = inspect.Parameter.empty
_WORDS: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    list: "a list",
    Sequence: "a list",
    Callable: "a function",  # type: ignore[dict-item]
}


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; an open end is excluded. `said` replaces the derived sentence.

    Args:
        low: the smallest value.
        high: the largest value.
        open_low: whether `low` itself is excluded.
        open_high: whether `high` itself is excluded.
        said: the range in words, for messages and tables. Empty: derived from the numbers.
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    said: str = ""

    def holds(self, value: float) -> bool:
        """Whether a value lies in the range.

        Args:
            value: the number to look at.
        """
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high or self.high == math.inf else value <= self.high
        return above and below

    def __str__(self) -> str:
        if self.said:
            return self.said
        low, high = _show_bound(self.low), _show_bound(self.high)
        if self.high == math.inf:
            return f"a number above {low}" if self.open_low else f"at least {low}"
        if self.low == -math.inf:
            return f"a number below {high}" if self.open_high else f"at most {high}"
        return f"{'above ' if self.open_low else ''}{low} {'up to, not including,' if self.open_high else 'to'} {high}"


def AtLeast(low: float) -> Range:
    """The range from `low` on.

    Args:
        low: the smallest value.
    """
    return Range(low)


def Above(low: float) -> Range:
    """The range above `low`, without it.

    Args:
        low: the number that values exceed.
    """
    return Range(low, open_low=True)


Rate = Range(0, 1, open_high=True, said="a rate from 0 up to, not including, 1")
Share = Range(0, 1, said="a rate from 0 to 1")


@dataclass(frozen=True)
class Choices:
    """One of some names; `names` may be a registry, whose components are loaded on first use.

    Args:
        names: the names, or a registry.
    """

    names: Collection[str]

    def __hash__(self) -> int:
        return id(self.names)

    def __str__(self) -> str:
        return " | ".join(self.names)


@dataclass(frozen=True)
class Null:
    """What None means, for settings that take it.

    Args:
        meaning: what None stands for, in a few words.
    """

    meaning: str


Seed = Annotated[int, Range(0, MAX_SEED, said="0 to 2^63 - 1"), "decides every random choice"]


@dataclass(frozen=True)
class Setting:
    """One declared setting: its type, range or choices, default and meaning."""

    name: str
    accepted: tuple[type, ...]
    optional: bool
    default: Any
    meaning: str
    range: Range | None = None
    choices: Choices | None = None
    null: str = ""

    def check(self, value: Any, *, where: str = "", label: str = "") -> Any:
        """`value` as the setting's type; raises ShoalError if it has another type or is out of range.

        `where` is the file or option that has the value, `label` the name of the setting there.
        """
        if value is None and self.optional:
            return None
        value = self._convert(value, where)
        if self.choices is not None and isinstance(value, str) and value not in self.choices.names:
            kind = label or self.name
            raise unknown_name(f"value of {kind!r}" if kind == "unknown" else kind, value, self.choices.names)
        if self.range is not None and not isinstance(value, str | bool):
            values = value if isinstance(value, list | tuple) else [value]
            if not all(self.range.holds(one) for one in values):
                raise ShoalError(f"{label or self.name} is {value}: expected {self.expected}")
        return value

    @property
    def expected(self) -> str:
        """The range in words, with what null means."""
        null = f", or null{f' for {self.null}' if self.null else ''}" if self.optional else ""
        return f"{self.range or self.type_name}{null}"

    @property
    def type_name(self) -> str:
        """Its types in words: a whole number, text, …"""
        return " or ".join([_WORDS.get(kind, kind.__name__) for kind in self.accepted])

    @property
    def values(self) -> str:
        """Its allowed values, for tables: choices, a range, or a type."""
        if self.choices is not None:
            return str(self.choices)
        return self.type_name if self.range is None else str(self.range)

    def _convert(self, value: Any, where: str) -> Any:
        """Accept whole numbers, text such as "1e-3" and NumPy scalars as floats; a bool is not a number."""
        plain = self.accepted
        if getattr(value, "ndim", None) == 0:
            value = value.item()
        if getattr(value, "ndim", None) == 1 and Sequence in plain:
            value = value.tolist()
        if isinstance(value, int) and not isinstance(value, bool) and int not in plain and float in plain:
            value = float(value)
        if isinstance(value, str) and float in plain and str not in plain:
            with suppress(ValueError):
                value = float(value)
        if isinstance(value, float) and value.is_integer() and int in plain and float not in plain:
            value = int(value)
        fits = isinstance(value, plain) and not (isinstance(value, bool) and bool not in plain)
        if not fits and object not in plain:
            got = f"{where}: got {value!r}," if where else f"{self.name} is {value!r}:"
            null = ", or null" if self.optional else ""
            names = f" ({self.choices})" if self.choices is not None else ""
            raise ShoalError(f"{got} expected {self.type_name}{names}{null}")
        return value


def list_settings(declared: Callable[..., Any]) -> Mapping[str, Setting]:
    """The settings that a class, a dataclass or a function declares, in the order of its signature."""
    return _list_settings(declared)


@cache
def _list_settings(declared: Callable[..., Any]) -> Mapping[str, Setting]:
    found = {}
    if is_dataclass(declared):
        hints = get_type_hints(declared, include_extras=True)
        defaults = {
            field.name: field.default if field.default is not MISSING else
            field.default_factory() if field.default_factory is not MISSING else REQUIRED
            for field in fields(declared)
        }  # fmt: skip
    else:
        function = inspect.unwrap(declared.__init__ if isinstance(declared, type) else declared)  # type: ignore[misc]
        annotations = getattr(function, "__annotations__", None)  # a class without a constructor has none
        if annotations is None:
            return types.MappingProxyType({})
        given = {name: hint for name, hint in annotations.items() if name != "return"}
        names = types.SimpleNamespace(__annotations__=given)
        try:
            hints = get_type_hints(names, function.__globals__, include_extras=True)
        except NameError as error:
            raise ShoalError(
                f"the annotations of {declared.__qualname__} cannot be read ({error}): import what they name at run time too"
            ) from None
        defaults = {name: known.default for name, known in inspect.signature(function).parameters.items()}
    for name, default in defaults.items():
        if (setting := _read_setting(name, hints.get(name), default)) is not None:
            found[name] = setting
    return types.MappingProxyType(found)


def _read_setting(name: str, hint: Any, default: Any) -> Setting | None:
    """The setting that an annotation declares; None where it gives no meaning."""
    if get_origin(hint) is not Annotated:
        return None
    kind, *said = get_args(hint)
    meaning = next((one for one in said if isinstance(one, str)), None)
    if meaning is None:
        return None
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    literals = [value for one in options if get_origin(one) is Literal for value in get_args(one)]
    accepted = tuple(
        _plain_type(one) for one in options if one is not type(None) and get_origin(one) is not Literal
    )
    accepted += tuple(dict.fromkeys(type(value) for value in literals))

    def find(marker: type[M]) -> M | None:
        return next((one for one in said if isinstance(one, marker)), None)

    null = find(Null)
    return Setting(
        name,
        accepted,
        type(None) in options,
        default,
        meaning,
        find(Range),
        find(Choices) or (Choices(tuple(map(str, literals))) if literals else None),
        "" if null is None else null.meaning,
    )


def _plain_type(kind: Any) -> type:
    """The runtime type of an annotation: list for `list[float]`, Sequence for `Sequence[int]`, object for Any."""
    plain = get_origin(kind) or kind
    if plain is Any:
        return object
    return plain if isinstance(plain, type) else object


def check_settings(function: F) -> F:
    """A decorator that checks the arguments of every call against the declared types, ranges and choices.

    Args:
        function: a function, or the constructor of a class, with annotated parameters.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            odd = next((name for name in kwargs if name not in signature.parameters), None)
            hint = "" if odd is None else _suggest(odd, list_settings(function), signature.parameters)
            raise TypeError(f"{function.__qualname__}: {error}{hint}") from None
        declared = list_settings(function)
        for name, value in bound.arguments.items():
            if name in declared:
                bound.arguments[name] = declared[name].check(value)
        return function(*bound.args, **bound.kwargs)

    return checked  # type: ignore[return-value]


def _suggest(odd: str, declared: Mapping[str, Setting], known: Iterable[str]) -> str:
    """The hint for an unknown argument: the setting that it names in full (learning_rate: lr), or the nearest name."""
    spelt = [name for name, setting in declared.items() if setting.meaning == odd.replace("_", " ")]
    near = spelt or get_close_matches(odd, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_options(
    declared: Mapping[str, Setting], options: Mapping[str, Any], *, what: str, where: str = ""
) -> dict[str, Any]:
    """`options`, checked against their declarations; a name that `what` lacks raises ShoalError with the nearest one."""
    checked = {}
    for name, value in options.items():
        if name not in declared:
            raise unknown_name(f"setting of {what}", str(name), declared, where)
        checked[name] = declared[name].check(value, where=where)
    return checked


def show_value(value: Any) -> str:
    """A value as it is written in a setting."""
    if value is REQUIRED:
        return "required"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "-".join(map(str, value)) or "[]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show_bound(bound: float) -> str:
    return f"{int(bound):,}".replace(",", "") if float(bound).is_integer() else f"{bound:g}"
