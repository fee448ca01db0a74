"""`shoal data generate` draws a graph straight into a folder, `shoal data order` renumbers one."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.commands.listing import (
    ListingCommand,
    Rows,
    features_option,
    json_option,
    list_components,
    memory_option,
    plugin_option,
)


def _list_generators() -> list[tuple[str, Rows]]:
    from shoal.datasets.generators import GENERATORS

    return [("Generators, and settings for --set", list_components(GENERATORS))]


@click.command("generate", cls=ListingCommand, listing=_list_generators)
@click.argument("generator")
@click.option(
    "-o", "--out", "folder", required=True, type=click.Path(path_type=Path), help="Folder to write."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the generator.")
@click.option("--overwrite", is_flag=True, help="Replace the stored graph in the folder, if there is one.")
@features_option()
@json_option()
@memory_option()
@plugin_option()
def generate(
    generator: str,
    folder: Path,
    settings: tuple[str, ...],
    overwrite: bool,
    features: str | None,
    as_json: bool,
) -> None:
    """Draw a random graph and store it.

    Features and edges are written piece by piece, within the memory budget. `shoal train GENERATOR` draws the same
    graph with the same settings.

    \b
    Example:
      shoal data generate kronecker -o large --set scale=24 --memory 2GB
    """
    from shoal.commands.sample import parse_options
    from shoal.commands.screen import ScreenWatcher
    from shoal.commands.stored import check_target, report_stored
    from shoal.datasets.generators import GENERATORS
    from shoal.errors import explain_full_disk, unknown_name
    from shoal.settings import check_options, list_settings

    if generator not in GENERATORS:
        raise unknown_name("generator", generator, GENERATORS)
    draw = GENERATORS[generator]
    options = check_options(list_settings(draw), parse_options(settings), what=generator)
    check_target(folder, overwrite)
    from shoal.store import save_graph
    from shoal.workspace import open_workspace

    with (
        ScreenWatcher() as watcher,
        explain_full_disk(folder),
        open_workspace(folder, watcher.on_count, features),
    ):
        graph = draw(**options)
        graph.name = folder.resolve().name
        save_graph(graph, folder, overwrite=overwrite, features=features)
    report_stored(folder, str(folder), as_json=as_json)


def _list_orders() -> list[tuple[str, Rows]]:
    from shoal.datasets.orders import ORDERS

    return [("Orders, and settings for --set", list_components(ORDERS))]


@click.command("order", cls=ListingCommand, listing=_list_orders)
@click.argument("data")
@click.option("--by", required=True, help="The order, see below.")
@click.option(
    "-o", "--out", "folder", required=True, type=click.Path(path_type=Path), help="Folder to write."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the order.")
@click.option("--overwrite", is_flag=True, help="Replace the stored graph in the folder, if there is one.")
@features_option()
@json_option()
@memory_option()
@plugin_option()
def order(
    data: str,
    by: str,
    folder: Path,
    settings: tuple[str, ...],
    overwrite: bool,
    features: str | None,
    as_json: bool,
) -> None:
    """Renumber the nodes of DATA for locality, and store it.

    Neighbours get close numbers; ids stay with their nodes.

    \b
    Examples:
      shoal data order my-graph --by rcm -o my-graph-rcm
      shoal data order my-graph --by communities --set most=1000 -o ordered
    """
    from shoal.commands.sample import parse_options
    from shoal.commands.screen import ScreenWatcher
    from shoal.commands.stored import check_target, report_stored
    from shoal.datasets import check_known, load
    from shoal.datasets.orders import ORDERS
    from shoal.errors import explain_full_disk, unknown_name
    from shoal.settings import check_options, list_settings

    if by not in ORDERS:
        raise unknown_name("order", by, ORDERS)
    options = check_options(list_settings(ORDERS[by]), parse_options(settings), what=by)
    check_known(data)
    check_target(folder, overwrite)
    from shoal.datasets.reorder import reorder_graph
    from shoal.store import save_graph
    from shoal.workspace import open_workspace

    with (
        ScreenWatcher() as watcher,
        explain_full_disk(folder),
        open_workspace(folder, watcher.on_count, features),
    ):
        graph = reorder_graph(load(data), by, **options)
        save_graph(graph, folder, overwrite=overwrite, features=features)
    report_stored(folder, str(folder), as_json=as_json)
