"""Parameters of public callables: names, types and defaults from signatures, meanings from docstrings and settings."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from shoal.errors import ShoalError
from shoal.settings import Setting, list_settings

SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Examples?)( \(.*\))?:\s*$")
_ENTRY = re.compile(r"    (\*{0,2}`?\w+`?(?:, \*{0,2}`?\w+`?)*)(?: \(([^)]*)\))?: (.*)")


@dataclass(frozen=True)
class Parameter:
    """One parameter; `default` is empty where a value is required."""

    name: str
    type: str
    default: str
    meaning: str


def split_doc(doc: str) -> tuple[str, dict[str, dict[str, str]], dict[str, str]]:
    """(text without sections, entries of Args and Attributes by section, text of the other sections)."""
    plain: list[str] = []
    entries: dict[str, dict[str, str]] = {}
    others: dict[str, str] = {}
    section, names = "", list[str]()
    for line in doc.splitlines():
        if found := SECTION.match(line):
            section, names = line.rstrip().rstrip(":"), []
            if found[1] in ("Args", "Attributes"):
                entries.setdefault(section, {})
        elif section and line.strip() and not line.startswith("    "):
            section = ""
            plain.append(line)
        elif not section:
            plain.append(line)
        elif section not in entries:
            others[section] = f"{others.get(section, '')}{line[4:]}\n"
        elif entry := _ENTRY.match(line):
            names = [name.strip("`* ") for name in entry[1].split(",")]
            entries[section] |= dict.fromkeys(names, entry[3])
        elif line.strip():
            for name in names:
                entries[section][name] += f" {line.strip()}"
    return "\n".join(plain).strip(), entries, others


def list_parameters(value: Any, owner: type | None = None) -> list[Parameter]:
    """The parameters of a class, a function, or a method of `owner`, each with its meaning; empty where none is said."""
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    declared = _list_declared(value)
    meanings = find_meanings(value, owner)
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [
        Parameter(
            marks.get(one.kind, "") + one.name,
            describe_type(one, value),
            "" if one.default is one.empty else show_default(one.default),
            join_meaning(meanings.get(one.name, ""), declared.get(one.name)),
        )
        for one in found
        if one.name not in ("self", "cls")
    ]


def find_meanings(value: Any, owner: type | None = None) -> dict[str, str]:
    """What docstrings say of parameters: the callable's own, then those of what it overrides or inherits from."""
    found: dict[str, str] = {}
    for doc in _list_docs(value, owner):
        entries = split_doc(doc)[1]
        for section, meanings in entries.items():
            if section == "Args" or inspect.isclass(value):
                found = {**meanings, **found}
    return found


def _list_docs(value: Any, owner: type | None) -> Iterator[str]:
    if inspect.isclass(value):
        for kind in value.__mro__:
            for said in (vars(kind).get("__doc__"), getattr(vars(kind).get("__init__"), "__doc__", None)):
                if said and kind.__module__.startswith("shoal"):
                    yield inspect.cleandoc(said)
        return
    kinds: Iterable[Any] = (value,)
    if owner is not None:
        kinds = (one for kind in owner.__mro__ if (one := vars(kind).get(value.__name__)) is not None)
    for one in kinds:
        if said := getattr(one, "__doc__", None):
            yield inspect.cleandoc(said)


def _list_declared(value: Any) -> Mapping[str, Setting]:
    with suppress(ShoalError):  # annotations for the type checker only
        return list_settings(value)
    return {}


def join_meaning(said: str, setting: Setting | None) -> str:
    """A parameter's meaning: the docstring's, else the setting's, with the values that it takes."""
    if setting is None:
        return end_sentence(said)
    text = end_sentence(said or setting.meaning)
    if setting.choices is not None and not all(name in text for name in setting.choices.names):
        text += f" One of {', '.join(setting.choices.names)}."
    elif setting.range is not None:
        text += f" Values: {setting.range}."
    if setting.null and "None" not in said:
        text += f" None: {setting.null}."
    return text


def end_sentence(text: str) -> str:
    return text if not text or text.endswith((".", "…")) else f"{text}."


def describe_type(one: inspect.Parameter, value: Any) -> str:
    """A parameter's type as users write it: names without their modules, nothing of what is said about settings."""
    hint = one.annotation
    if isinstance(hint, str):
        made = value.__init__ if inspect.isclass(value) else value
        while isinstance(made, functools.partial) or hasattr(made, "__wrapped__"):
            made = made.func if isinstance(made, functools.partial) else made.__wrapped__
        names = dict(vars(sys.modules[value.__module__]), **getattr(made, "__globals__", {}))
        with suppress(Exception):  # names that only the type checker knows
            hint = eval(hint, names)
    if hint is one.empty:
        return ""
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", show_type(hint))


def show_type(hint: Any) -> str:
    if isinstance(hint, str):
        kept = re.match(r"Annotated\[(.*?), ", hint)
        return kept[1] if kept else hint
    if get_origin(hint) is Annotated:
        return show_type(get_args(hint)[0])
    if hint is None or hint is type(None):
        return "None"
    if isinstance(hint, types.UnionType) or str(get_origin(hint)) == "typing.Union":
        return " | ".join(map(show_type, get_args(hint)))
    if inspect.isclass(hint) and not get_args(hint):
        return hint.__name__
    return str(hint)


def show_default(value: Any) -> str:
    if getattr(value, "__name__", "") == "<lambda>":
        return "does nothing"
    return value.__name__ if inspect.isclass(value) or inspect.isroutine(value) else repr(value)
