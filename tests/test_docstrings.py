"""Every public name of the package has a docstring, of its own or of what it overrides."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest

import doc_pages  # noqa: F401 (makes the site's modules known)
import shoal
from test_imports import find_modules

import api_pages  # isort: skip
from parameters import Parameter, list_parameters, split_doc  # isort: skip

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


@pytest.mark.parametrize(
    ("name", "found", "owner"),
    list(api_pages.list_public()),
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_public_callables_document_every_parameter(name: str, found: Any, owner: type | None) -> None:
    parameters = list_parameters(found, owner)
    assert [one.name for one in parameters if len(one.meaning) < 4] == []
    assert [one.name for one in parameters if not one.type] == []


@pytest.mark.parametrize(
    ("name", "found", "owner"),
    list(api_pages.list_public()),
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_docstrings_document_no_parameter_that_is_not_there(
    name: str, found: Any, owner: type | None
) -> None:
    said = split_doc(inspect.cleandoc(found.__doc__ or ""))[1].get("Args", {})
    assert set(said) <= set(inspect.signature(found).parameters)


def test_docstrings_repeat_no_type_or_default_of_a_signature() -> None:
    repeated = []
    for name, found, _ in api_pages.list_public():
        lines = inspect.cleandoc(found.__doc__ or "").splitlines()
        repeated += [f"{name}: {line.strip()}" for line in lines if re.match(r" +[\w, ]+ \([^)]*\): ", line)]
    assert repeated == []


def test_a_parameter_has_type_and_default_from_the_signature_and_its_meaning_from_the_docstring() -> None:
    found = {one.name: one for one in list_parameters(shoal.Graph.with_split, shoal.Graph)}
    assert found["val"] == Parameter("val", "float", "0.2", "share to validate on.")
    settings = {one.name: one for one in list_parameters(shoal.Trainer)}
    assert settings["lr"].meaning == "learning rate. Values: a number above 0."
    assert settings["clip"] == Parameter(
        "clip", "float | None", "None", "largest gradient norm. Values: a number above 0. None: no limit."
    )
    inherited = list_parameters(shoal.FullSampler.sample, shoal.FullSampler)
    assert [(one.name, one.default) for one in inherited] == [("k", "")]
    assert "number of the batch" in inherited[0].meaning
