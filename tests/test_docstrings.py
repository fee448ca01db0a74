"""Every public name of the package has a docstring, of its own or of what it overrides."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest

import shoal
from shoal.settings import list_settings
from test_imports import find_modules

MODULES = [name for name in find_modules() if not name.endswith("__main__")]


def list_public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """(name, object) of the functions, classes and methods that a module defines and whose names begin with no underscore."""
    for name, found in vars(module).items():
        found = getattr(found, "py_func", found)  # of a compiled kernel
        if name.startswith("_") or getattr(found, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(found):
            yield name, found
            for member, value in vars(found).items():
                if not member.startswith("_") and isinstance(
                    value, property | cached_property | classmethod | staticmethod
                ):
                    yield (
                        f"{name}.{member}",
                        getattr(found, member) if isinstance(value, classmethod | staticmethod) else value,
                    )
                elif not member.startswith("_") and inspect.isfunction(value) and value.__name__ == member:
                    yield f"{name}.{member}", getattr(found, member)
        elif inspect.isroutine(found):
            yield name, found


def find_doc(module: ModuleType, name: str, found: Any) -> str | None:
    """The docstring, or that of the method it overrides."""
    if doc := inspect.getdoc(found):
        return doc
    title, _, member = name.partition(".")
    bases = inspect.getmro(getattr(module, title))[1:] if member else ()
    return next((doc for base in bases if (doc := inspect.getdoc(getattr(base, member, None)))), None)


@pytest.mark.parametrize("room", sorted({name.split(".")[1] if "." in name else name for name in MODULES}))
def test_every_public_function_class_and_method_has_a_docstring(room: str) -> None:
    missing = []
    for name in MODULES:
        if room in (name, *name.split(".")[1:2]):
            module = importlib.import_module(name)
            if not module.__doc__:
                missing.append(name)
            missing += [
                f"{name}: {one}" for one, found in list_public(module) if not find_doc(module, one, found)
            ]
    assert not missing, "\n".join(missing)


def list_declared(found: Any) -> Iterable[str]:
    """Parameters whose meaning is in the signature; none where the annotations are for type checkers only."""
    with suppress(shoal.ShoalError):
        return list_settings(found)
    return ()


def test_public_names_document_their_arguments() -> None:
    undocumented = []
    for name in shoal.__all__:
        found = getattr(shoal, name)
        if not callable(found) or (isinstance(found, type) and issubclass(found, Exception)):
            continue
        kinds = inspect.getmro(found) if isinstance(found, type) else (found,)
        texts = [inspect.getdoc(one) for kind in kinds for one in (kind, getattr(kind, "__init__", None))]
        words = set(re.findall(r"\w+", " ".join(filter(None, texts)))).union(list_declared(found))
        undocumented += [f"{name}({one})" for one in inspect.signature(found).parameters if one not in words]
    assert not undocumented, "\n".join(undocumented)
