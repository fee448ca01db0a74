"""The command reference and the page of all settings, made from what commands and components declare."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import click

from shoal.cli import shoal as root
from shoal.commands.components import format_table, list_kinds


def list_commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """(command line, command), those of groups included; hidden ones are left out."""
    context = click.Context(group, info_name=path)
    for name in sorted(group.list_commands(context)):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from list_commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def build_commands() -> str:
    """Every command with its options."""
    text = "# Commands\n\nMade from what the commands declare; `shoal COMMAND --help` shows the same.\n\n| command | |\n|---|---|\n"
    commands = list(list_commands(root, "shoal"))
    for name, command in commands:
        anchor = name.replace(" ", "-")
        text += f"| [`{name}`](#{anchor}) | {escape(first_sentence(command))} |\n"
    for name, command in commands:
        text += f"\n## {name}\n\n{render_command(name, command)}"
    return text


def first_sentence(command: click.Command) -> str:
    said = (command.help or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=\.) ", said)[0].rstrip(".")


def escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def render_command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    text = f"```text\n{name} {usage}\n```\n\n"
    for paragraph in (command.help or "").split("\n\n"):
        if "\b" in paragraph:  # click's mark of lines that stay as they are
            kept = textwrap.dedent(paragraph.split("\b")[1].strip("\n"))
            text += f"```text\n{kept}\n```\n\n"
        else:
            text += " ".join(paragraph.split()) + "\n\n"
    rows = [row for one in command.params if isinstance(one, click.Option) for row in render_option(one)]
    if rows:
        text += "| option | default | meaning |\n|---|---|---|\n" + "".join(rows)
    return text


def render_option(option: click.Option) -> Iterator[str]:
    if option.hidden:
        return
    names = ", ".join(f"`{one}`" for one in [*option.opts, *option.secondary_opts])
    kind = "" if option.is_flag else f" `{option.make_metavar(click.Context(click.Command('shoal')))}`"
    said = option.help or ""
    default = re.search(r"\s*\[default: (.*)\]$", said)  # where the command says it in words
    given = option.default
    plain = isinstance(given, str | int | float) and not isinstance(given, bool) and not option.is_flag
    shown = default[1] if default else f"`{given}`" if plain else ""
    meaning = said[: default.start()] if default else said
    yield f"| {names}{escape(kind)} | {escape(shown)} | {escape(meaning.rstrip('.'))} |\n"


def build_settings() -> str:
    """Every setting of every component, by kind."""
    text = "# Settings\n\nWhat `--set KIND.NAME=VALUE` and the keys of a recipe take; made from what the components declare. `shoal settings KIND` prints the same.\n"
    for kind, components in list_kinds().items():
        text += f"\n## {kind}\n"
        for name, (summary, settings) in components().items():
            title = f"{kind} {name}" if name else f"{kind}, all"
            text += f"\n### {title}\n\n{escape(summary)}\n\n"
            if settings:
                text += f"{format_table(settings)}\n"
    return text
