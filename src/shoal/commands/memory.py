"""The option `--memory`: the anonymous memory that a command may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def _set_budget(context: click.Context, parameter: click.Parameter, size: str | None) -> None:
    from shoal.memory import parse_bytes, set_memory_budget

    set_memory_budget(None if size is None else parse_bytes(size))


def memory_option() -> Callable[[Any], Any]:
    """The option that sets the memory budget of the process."""
    return click.option(
        "--memory",
        metavar="SIZE",
        callback=_set_budget,
        expose_value=False,
        help="Memory to keep to, such as 4GB  [default: what is free]",
    )
