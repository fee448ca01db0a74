"""`shoal settings [KIND [NAME]]`: every component and its settings."""

from __future__ import annotations

import click

from shoal.commands.listing import format_settings, json_option, plugin_option


@click.command()
@click.argument("kind", required=False)
@click.argument("name", required=False)
@json_option()
@plugin_option()
def settings(kind: str | None, name: str | None, as_json: bool) -> None:
    """List components and their settings.

    KIND is model, sampler, training, features, partition, exchange, transport, importer, generator, order, loss,
    metric or callback; without KIND all components are listed, one per line.

    \b
    Examples:
      shoal settings
      shoal settings sampler
      shoal settings sampler frontier
      shoal settings sampler frontier --json
    """
    from shoal.commands.components import find_components, list_kinds
    from shoal.commands.screen import open_console, plain_table, print_json
    from shoal.errors import unknown_name

    kinds = list_kinds()
    if kind is not None and kind not in kinds:
        raise unknown_name("kind of component", kind, kinds)
    found = find_components(kinds if kind is None else [kind], name)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    console = open_console()
    for one in found:
        console.say(f"{one.title}: {one.summary}", style="bold" if kind is not None else None)
        if kind is not None and one.settings:
            table = plain_table("setting", "meaning")
            for row in format_settings(one.prefix, one.settings):
                table.add_row(f"  {row[0]}", row[1])
            console.print(table)
    if kind is None:
        console.say("`shoal settings KIND [NAME]` lists their settings")
