"""Every component and its settings, as `shoal settings`, the help of `shoal train` and the tables in the docs show them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.commands.listing import Rows, format_settings, list_components

if TYPE_CHECKING:
    from shoal.settings import Setting

_MARKED = re.compile(r"(<!-- settings: (\S+)(?: (\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)

_SECTIONS = {"importer": "data.", "generator": "data.", "exchange": "partition.", "loss": "training."}


@dataclass(frozen=True)
class Component:
    """A component as `shoal settings` lists it; a section without components has the name ''."""

    kind: str
    name: str
    summary: str
    settings: Mapping[str, Setting]

    @property
    def title(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.name}".rstrip()

    @property
    def prefix(self) -> str:
        """Prefix of a setting's name in `--set`."""
        return _SECTIONS.get(self.kind, f"{self.kind}.")

    def to_dict(self) -> dict[str, Any]:
        """What `shoal settings --json` prints."""
        settings = [
            {"key": f"{self.prefix}{name}"} | _describe_setting(one) for name, one in self.settings.items()
        ]
        return {"kind": self.kind, "name": self.name, "summary": self.summary, "settings": settings}


def _describe_setting(setting: Setting) -> dict[str, Any]:
    """A setting as plain data; a default that JSON cannot express is written as in a recipe."""
    from shoal.settings import REQUIRED, show_value

    default = setting.default
    is_plain = default is None or isinstance(default, bool | int | float | str | list | tuple)
    return {
        "required": default is REQUIRED,
        "default": None if default is REQUIRED else default if is_plain else show_value(default),
        "values": setting.values,
        "null": setting.null or None,
        "meaning": setting.meaning,
    }


def find_components(kinds: Iterable[str], name: str | None) -> list[Component]:
    """The components of some kinds. With `name`, only those of that name; raises if a kind has none."""
    from shoal.errors import unknown_name

    known, found = list_kinds(), []
    for kind in kinds:
        components = known[kind]()
        if name is not None and name not in components:
            raise unknown_name(kind, name, [one for one in components if one])
        found += [
            Component(kind, one, *described)
            for one, described in components.items()
            if name is None or one == name
        ]
    return found


def list_kinds() -> dict[str, Callable[[], dict[str, tuple[str, Mapping[str, Setting]]]]]:
    """For each kind, a function that lists its components: (summary, settings) by name, '' for a section without components."""
    from shoal.datasets.generators import GENERATORS
    from shoal.datasets.importers import FORMATS
    from shoal.datasets.orders import ORDERS
    from shoal.distributed.exchange import EXCHANGES
    from shoal.distributed.transport import TRANSPORTS
    from shoal.models.conv import CONVS
    from shoal.partitioning.work import PARTITION_METHODS
    from shoal.registry import summarize
    from shoal.runs import sections
    from shoal.runs.config import RunConfig
    from shoal.sampling.base import SAMPLERS, sampler_settings
    from shoal.settings import list_settings
    from shoal.training.callback import CALLBACKS
    from shoal.training.loss import LOSSES, loss_settings
    from shoal.training.metrics import METRICS

    def declared(registry: Mapping[str, Any]) -> dict[str, tuple[str, Mapping[str, Setting]]]:
        return {name: (summarize(one), _settings_of(one)) for name, one in registry.items()}

    def named(registry: Mapping[str, Any]) -> dict[str, tuple[str, Mapping[str, Setting]]]:
        return {name: (summarize(one), {}) for name, one in registry.items()}

    def stack() -> Mapping[str, Setting]:
        own = {name for conv in CONVS.values() for name in list_settings(conv)}
        every = sections.model_settings("sage")
        return {name: setting for name, setting in every.items() if name not in own}

    return {
        "model": lambda: {"": ("a stack of convs", stack())} | declared(sections.MODEL_NAMES),
        "sampler": lambda: {name: (summarize(one), sampler_settings(name)) for name, one in SAMPLERS.items()},
        "training": lambda: {"": ("the trainer", RunConfig().training.declared)},
        "features": lambda: {"": ("how features on disk are read", RunConfig().features.declared)},
        "partition": lambda: (
            {"": ("how ranks share a graph", list_settings(sections.PartitionSettings))}
            | declared(PARTITION_METHODS)
        ),
        "exchange": lambda: {
            name: (summarize(one), sections.exchange_settings(name)) for name, one in EXCHANGES.items()
        },
        "transport": lambda: declared(TRANSPORTS),
        "importer": lambda: declared(FORMATS),
        "generator": lambda: declared(GENERATORS),
        "order": lambda: declared(ORDERS),
        "loss": lambda: {name: (summarize(one), loss_settings(name)) for name, one in LOSSES.items()},
        "metric": lambda: named(METRICS),
        "callback": lambda: declared(CALLBACKS),
    }


def _settings_of(component: Any) -> Mapping[str, Setting]:
    from shoal.settings import list_settings

    return list_settings(component) if inspect.isclass(component) or inspect.isroutine(component) else {}


def format_table(settings: Mapping[str, Setting]) -> str:
    """A Markdown table of settings."""
    from shoal.settings import show_value

    lines = ["| setting | default | values | meaning |", "|---|---|---|---|"]
    for name, setting in settings.items():
        values = setting.values.replace(" | ", ", ")
        null = f"; `null`: {setting.null}" if setting.null else ""
        lines.append(f"| `{name}` | `{show_value(setting.default)}` | {values}{null} | {setting.meaning} |")
    return "\n".join(lines) if len(lines) > 2 else "(no settings of its own)"


def fill_tables(text: str) -> str:
    """A page with every marked table regenerated: `<!-- settings: KIND [NAME] -->` … `<!-- end -->`."""
    kinds = list_kinds()

    def fill(found: re.Match[str]) -> str:
        components = kinds[found[2]]()
        return f"{found[1]}{format_table(components[found[3] or ''][1])}\n{found[4]}"

    return _MARKED.sub(fill, text)


def list_training() -> Iterator[tuple[str, Rows]]:
    """The last sections of `shoal train --help`: settings of every section, then models, samplers and exchanges."""
    from shoal.distributed.exchange import EXCHANGES
    from shoal.models.conv import CONVS
    from shoal.models.module import MODELS
    from shoal.runs.sections import exchange_settings
    from shoal.sampling.base import SAMPLERS, sampler_settings

    kinds = list_kinds()
    for kind in ("model", "training", "features", "partition"):
        title = f"Settings of {kind} (--set, keys of a recipe) and their defaults"
        yield title, format_settings(f"{kind}.", kinds[kind]()[""][1])
    yield "Models, and settings model.KEY of their own", list_components({**CONVS, **MODELS})
    yield "Samplers, and their settings sampler.KEY", list_components(SAMPLERS, sampler_settings)
    yield "Exchanges, and their settings partition.KEY", list_components(EXCHANGES, exchange_settings)
    yield (
        "Other settings",
        [("data.KEY=VALUE", "a generator's or importer's own (`shoal settings generator`)")],
    )


def main(pages: list[str]) -> None:
    """`python -m shoal.commands.components PAGE …` regenerates the tables in Markdown pages."""
    for page in pages:
        path = Path(page)
        path.write_text(fill_tables(path.read_text()))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
