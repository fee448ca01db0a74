"""`shoal completion SHELL`: the script that lets a shell complete commands, options and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_VARIABLE = "_SHOAL_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell's completion script.

    \b
    Add the line for your shell to its startup file:
      eval "$(shoal completion bash)"                 ~/.bashrc
      eval "$(shoal completion zsh)"                  ~/.zshrc
      shoal completion fish | source                  ~/.config/fish/config.fish

    It completes commands, options, data sets, samplers, models, methods and recipes.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "shoal", _VARIABLE).source())


def complete(list_names: Callable[[], Iterable[str]], *, files: bool = False) -> dict[str, Any]:
    """Keyword arguments of an option or argument that completes names; with `files`, paths where no name fits."""

    def find(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name) for name in list_names() if name.startswith(begun)]
        return found or ([CompletionItem(begun, type="file")] if files else [])

    return {"shell_complete": find}


def list_data() -> list[str]:
    """Names of data that `shoal train` accepts."""
    from shoal.datasets.generators import GENERATORS
    from shoal.datasets.places import local_names
    from shoal.datasets.registry import registered

    return sorted({*GENERATORS, *registered(), *local_names()})


def scan_names(room: str, registry: str) -> list[str]:
    """Names of the built-in components of a package, parsed from its source: importing it would take seconds."""
    door = rf'(?m)^@{registry}\.(?:named\("([^"]+)"\)|register\s+class[\s\S]+?\n    name(?:: [^=]+)? = "([^"]+)")'
    sources = (path.read_text() for path in sorted((Path(__file__).parents[1] / room).rglob("*.py")))
    code = (re.sub(r'"""[\s\S]*?"""', "", source) for source in sources)
    return sorted(named or own for source in code for named, own in re.findall(door, source))


def list_samplers() -> list[str]:
    """Names of samplers."""
    return scan_names("sampling", "SAMPLERS")


def list_models() -> list[str]:
    """Names of models."""
    return scan_names("models", "(?:CONVS|MODELS)")


def list_partition_methods() -> list[str]:
    """Names of partition methods."""
    return ["auto", *scan_names("partitioning", "PARTITION_METHODS")]


def list_recipe_names() -> Iterable[str]:
    """Names of recipes."""
    from shoal.runs.recipes import list_recipes

    return list_recipes()
