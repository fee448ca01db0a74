"""Registries: components by name. A component registers itself in the file that defines it.

    SAMPLERS = Registry("sampler", "shoal.sampling")

    @SAMPLERS.register
    class RandomWalkSampler(Sampler):
        name = "random-walk"

Built-in components are found by importing the modules of their package, others come from plug-ins: modules named
with `--plugin`, or entry points of the group `shoal.plugins`. Both register in the same way.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from shoal.errors import ShoalError, unknown_name

T = TypeVar("T")
GROUP = "shoal.plugins"
_loaded_entry_points = False
_loaded_plugins: dict[str, Any] = {}
_loading = threading.RLock()


class Registry(Mapping[str, T], Generic[T]):
    """The components of one kind by name, loaded on first use. An unknown name raises ShoalError with the nearest one.

    Args:
        kind: what a component is called in messages.
        package: where the built-in ones are; every module of it is imported.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._components: dict[str, T] = {}
        self._is_loaded = False

    def register(self, component: Any) -> Any:
        """A decorator that adds a class under its `name`. For functions use `named`."""
        name = getattr(component, "name", None)
        if not isinstance(name, str) or not name:
            shown = getattr(component, "__qualname__", repr(component))
            raise ShoalError(
                f'{shown} has no name: give the class a `name = "…"`, or decorate a function with `.named("…")`'
            )
        return self.add(name, component)

    def named(self, name: str) -> Callable[[Any], Any]:
        """A decorator that adds what it decorates under `name`."""
        return lambda component: self.add(name, component)

    def add(self, name: str, component: Any) -> Any:
        """Register a component under a name; a name that another component has is refused."""
        known = self._components.get(name)
        if known is not None and not _is_same(known, component):
            raise ShoalError(f"there is a {self.kind} called {name!r} already: give yours another name")
        self._components[name] = component
        return component

    def __getitem__(self, name: str) -> T:
        self._load()
        if name not in self._components:
            raise unknown_name(self.kind, str(name), self._components)
        return self._components[name]

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._components

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._components))

    def __len__(self) -> int:
        self._load()
        return len(self._components)

    def _load(self) -> None:
        with _loading:
            if self._is_loaded:
                return
            self._is_loaded = True  # components that are being imported may ask for others
            try:
                package = importlib.import_module(self.package)
                for module in pkgutil.iter_modules(package.__path__, f"{self.package}."):
                    importlib.import_module(module.name)
                load_entry_points()
            except BaseException:
                self._is_loaded = False
                raise


def summarize(component: Any) -> str:
    """A component's summary: the first paragraph of its docstring, on one line."""
    text = getattr(component, "summary", None) or inspect.cleandoc(component.__doc__ or "")
    return " ".join(text.split("\n\n")[0].split())


def load_entry_points() -> None:
    """Import the plug-ins of installed packages, once."""
    global _loaded_entry_points
    if _loaded_entry_points:
        return
    _loaded_entry_points = True
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            entry.load()
        except ShoalError:
            raise
        except Exception as error:
            raise ShoalError(
                f"plug-in {entry.name!r} cannot be imported ({type(error).__name__}: {error}): fix or uninstall {entry.value}"
            ) from error


def load_plugin(name: str) -> str:
    """Import a plug-in, by module name or by the path of a .py file; returns a name that works from any folder."""
    path = Path(os.path.expanduser(name))
    if path.suffix == ".py":
        if not os.path.isfile(path):
            raise ShoalError(
                f"plug-in {name} does not exist: expected a Python file, or the name of a module"
            )
        path = path.resolve()
        if str(path) not in _loaded_plugins:
            _loaded_plugins[str(path)] = _import_file(path)
        return str(path)
    if name not in _loaded_plugins:
        here = Path.cwd() / Path(*name.split(".")).with_suffix(".py")
        if os.path.isfile(here):  # only its path works from any folder
            return load_plugin(str(here))
        try:
            _loaded_plugins[name] = importlib.import_module(name)
        except ShoalError:
            raise
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name and name.startswith(error.name):
                raise ShoalError(
                    f"there is no module {name!r} to plug in: install it, or name its file (--plugin {name}.py)"
                ) from None
            raise ShoalError(f"plug-in {name} cannot be imported: {type(error).__name__}: {error}") from error
    return name


def _import_file(path: Path) -> Any:
    """Import a file under its stem, so that others can import it, or under a unique name if the stem is taken."""
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_{abs(hash(str(path))):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ShoalError:
        raise
    except Exception as error:
        del sys.modules[name]
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
        ]
        where = f", line {lines[-1]}" if lines else ""
        said = " ".join(str(error).split())
        raise ShoalError(
            f"plug-in {path}{where} cannot be imported: {type(error).__name__}: {said}"
        ) from error
    return module


def _is_same(known: Any, component: Any) -> bool:
    """Whether both are the same component, defined twice because its file was run and imported."""
    names = [
        (
            getattr(one, "__qualname__", None),
            getattr(sys.modules.get(getattr(one, "__module__", "")), "__file__", None),
        )
        for one in (known, component)
    ]
    return known is component or (names[0] == names[1] and names[0][0] is not None)
