"""`shoal settings [KIND [NAME]]`: every component and its settings."""

from __future__ import annotations

import click

from shoal.commands.listing import format_settings, plugin_option


@click.command()
@click.argument("kind", required=False)
@click.argument("name", required=False)
@plugin_option()
def settings(kind: str | None, name: str | None) -> None:
    """List components and their settings.

    KIND is model, sampler, training, features, partition, exchange, transport, importer, generator, order, loss,
    metric or callback; without KIND all components are listed, one per line.

    \b
    Examples:
      shoal settings
      shoal settings sampler
      shoal settings sampler frontier
    """
    from shoal.commands.components import list_kinds
    from shoal.commands.screen import open_console, plain_table
    from shoal.errors import unknown_name

    kinds = list_kinds()
    if kind is not None and kind not in kinds:
        raise unknown_name("kind of component", kind, kinds)
    console = open_console()
    for one in kinds if kind is None else [kind]:
        components = kinds[one]()
        if name is not None and name not in components:
            raise unknown_name(one, name, [known for known in components if known])
        sections = {"importer": "data.", "generator": "data.", "exchange": "partition.", "loss": "training."}
        prefix = sections.get(one, f"{one}.")
        for known, (summary, declared) in components.items():
            if name is not None and known != name:
                continue
            title = f"{one}{f' {known}' if known else ''}"
            console.say(f"{title}: {summary}", style="bold" if kind is not None else None)
            if kind is not None:
                table = plain_table("setting", "meaning")
                for row in format_settings(prefix, declared):
                    table.add_row(f"  {row[0]}", row[1])
                if declared:
                    console.print(table)
    if kind is None:
        console.say("`shoal settings KIND [NAME]` lists their settings")
