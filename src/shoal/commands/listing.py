"""Help texts that list registered components and their settings, loaded only when shown; options that commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shoal.settings import Setting

Rows = Iterable[tuple[str, str]]


class ListingCommand(click.Command):
    """A command whose help ends with the sections that `listing()` returns: (title, rows of (name, text))."""

    def __init__(
        self, *args: Any, listing: Callable[[], Iterable[tuple[str, Rows]]], **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.listing = listing

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, rows in self.listing():
            with formatter.section(title):
                formatter.write_dl(list(rows), col_max=36)
        super().format_epilog(ctx, formatter)


def list_components(
    components: Mapping[str, Any], settings_of: Callable[[str], Mapping[str, Setting]] | None = None
) -> list[tuple[str, str]]:
    """(name, what it is) of every component of a registry, each followed by its settings."""
    from shoal.registry import summarize
    from shoal.settings import list_settings

    found = []
    for name, component in components.items():
        found.append((name, summarize(component)))
        settings = list_settings(component) if settings_of is None else settings_of(name)
        found += format_settings("  ", settings)
    return found


def format_settings(prefix: str, settings: Mapping[str, Setting]) -> list[tuple[str, str]]:
    """Help rows of settings: (`prefix` + `key=default`, meaning with choices and what null means)."""
    from shoal.settings import show_value

    rows = []
    for name, setting in settings.items():
        choices = f" ({setting.values})" if setting.choices is not None else ""
        null = f"; null: {setting.null}" if setting.null else ""
        rows.append((f"{prefix}{name}={show_value(setting.default)}", f"{setting.meaning}{choices}{null}"))
    return rows


def _load(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        return ()
    from shoal.registry import load_plugin

    return tuple(load_plugin(name) for name in names)


def plugin_option(*, expose: bool = False) -> Callable[[Any], Any]:
    """The option that loads plug-ins before the command runs; with `expose` it passes their names."""
    return click.option(
        "--plugin",
        "plugins",
        multiple=True,
        metavar="MODULE|FILE",
        callback=_load,
        expose_value=expose,
        is_eager=True,
        help="Python module or file that registers components of your own (docs/extending.md); may be repeated.",
    )


def json_option() -> Callable[[Any], Any]:
    """The option that prints figures as JSON to stdout and everything else to stderr, passed as `as_json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the figures as JSON, everything else to stderr."
    )


def _check_type(context: click.Context, parameter: click.Parameter, type: str | None) -> str | None:
    if type is not None:
        from shoal.errors import ShoalError, unknown_name
        from shoal.kernels.encoding import FEATURE_TYPES

        if type not in FEATURE_TYPES:
            error = unknown_name("type of features", type, FEATURE_TYPES)
            raise ShoalError(f"{error} --features takes {', '.join(FEATURE_TYPES)}")
    return type


def features_option() -> Callable[[Any], Any]:
    """The type that dense features are stored as, passed as `features`."""
    return click.option(
        "--features",
        metavar="TYPE",
        callback=_check_type,
        help="Store dense features as float32, float16, bfloat16 or int8  [default: as they are]",
    )


def _set_budget(context: click.Context, parameter: click.Parameter, size: str | None) -> None:
    from shoal.memory import parse_bytes, set_memory_budget

    set_memory_budget(None if size is None else parse_bytes(size))


def memory_option() -> Callable[[Any], Any]:
    """The option that sets the process's memory budget (`shoal.memory`) before the command runs; it passes nothing."""
    return click.option(
        "--memory",
        metavar="SIZE",
        callback=_set_budget,
        expose_value=False,
        is_eager=True,
        help="Memory limit on this machine, such as 4GB, for all ranks together; what does not fit is kept in files  [default: what is free]",
    )
