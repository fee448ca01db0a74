"""`shoal data …`: list, describe, import, generate, order, fetch and verify graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from shoal.commands.completion import complete, list_data
from shoal.commands.data_build import generate, order
from shoal.commands.listing import (
    ListingCommand,
    Rows,
    features_option,
    json_option,
    list_components,
    memory_option,
    plugin_option,
)


@click.group()
def data() -> None:
    """List, describe, import, fetch and store graphs.

    \b
    Examples:
      shoal data list
      shoal data get cora
      shoal data info cora
    """


data.add_command(generate)
data.add_command(order)


@data.command("list")
@json_option()
def list_graphs(as_json: bool) -> None:
    """List graphs that are known by name.

    \b
    Examples:
      shoal data list
      shoal data list --json

    \b
    The column `where`:
      embedded    ships with Shoal, or is drawn from a seed
      here        on this machine, in $SHOAL_DATA or in Shoal's home
      damaged     here, but its files cannot be read
      fetchable   `shoal data get NAME` fetches it
      by hand     has no direct address; `shoal data get NAME` explains

    Wide terminals show licence and title too; `shoal data info NAME` and --json always do.
    """
    from shoal.commands.data_tables import list_known, list_table
    from shoal.commands.screen import open_console, print_json

    if as_json:
        print_json(list_known())
    else:
        open_console().print(list_table())


@data.command("info")
@click.argument("graph", metavar="NAME|PATH", **complete(list_data, files=True))
@json_option()
def describe(graph: str, as_json: bool) -> None:
    """Describe a graph.

    Degrees, components, labels, homophily, features, split and memory are reported. On large graphs homophily and
    features are estimated from samples. A registered graph that is not here yet is described by its publisher's
    figures.

    \b
    Examples:
      shoal data info cora
      shoal data info my-graph/ --json
    """
    from shoal.commands.data_tables import dataset_table, graph_table
    from shoal.commands.screen import open_console, print_json
    from shoal.datasets import load
    from shoal.datasets.describe import describe_graph
    from shoal.datasets.generators import GENERATORS
    from shoal.datasets.places import find_graph, is_data_stored
    from shoal.datasets.registry import registered
    from shoal.errors import ShoalError

    known = registered().get(graph)
    here = Path(graph).exists() or graph in GENERATORS or find_graph(graph) is not None
    console = open_console()
    if known is not None and not here:
        if as_json:
            raise ShoalError(
                f"--json measures a graph and {graph} is not here yet: run `shoal data get {graph}` first"
            )
        console.print(dataset_table(known))
        return
    seen = describe_graph(load(graph))
    if as_json:
        print_json(seen.as_dict())
        return
    console.print(graph_table(seen))
    if not is_data_stored(graph):  # the import said those of a stored graph
        console.notice(*seen.notices)


def table_options(command: Any) -> Any:
    """Add shorthands for options of the table format; `--option KEY=VALUE` sets them too."""
    for flag, key, metavar, meaning in (
        ("--like", "like", "GRAPH", "Tables: encode columns and number classes as in this stored graph."),
        ("--target", "target", "COLUMN", "Tables: column with the target of an edge."),
        ("--source", "source", "COLUMN", "Tables: column with the source of an edge."),
        ("--label", "labels", "COLUMN", "Column of the node table, or array of an .npz, with the labels."),
        ("--id", "id", "COLUMN", "Tables: column of the node table with its ids."),
        ("--nodes", "nodes", "FILE", "Tables: file or folder of the node table."),
    ):
        command = click.option(flag, f"table_{key}", metavar=metavar, help=meaning)(command)
    return command


def _list_formats() -> list[tuple[str, Rows]]:
    from shoal.datasets.importers import FORMATS

    return [("Formats, recognised by the file names, and their options", list_components(FORMATS))]


@data.command("import", cls=ListingCommand, listing=_list_formats)
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", "folder", required=True, type=click.Path(path_type=Path), help="Folder to write."
)
@click.option("--format", "format_", help="Format of SOURCE; detected if not given.")
@click.option(
    "--directed/--undirected",
    default=None,
    help="Keep edges directed, or add every reverse edge  [default: what the format says; tables are directed]",
)
@click.option(
    "--order", "by", default="none", show_default=True, help="Renumber the nodes (`shoal data order --help`)."
)
@click.option("--order-set", multiple=True, metavar="KEY=VALUE", help="A setting of the order; repeatable.")
@click.option("--task", help="Task: classification or regression; numbers with fractions are regression.")
@click.option("--name", help="Name of the graph; by default that of the folder written.")
@click.option("--overwrite", is_flag=True, help="Replace the stored graph in the folder, if there is one.")
@table_options
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the format; repeatable."
)
@features_option()
@json_option()
@memory_option()
@plugin_option()
def import_(
    source: Path,
    folder: Path,
    format_: str | None,
    directed: bool | None,
    by: str,
    order_set: tuple[str, ...],
    task: str | None,
    name: str | None,
    overwrite: bool,
    options: tuple[str, ...],
    features: str | None,
    as_json: bool,
    **columns: str | None,
) -> None:
    """Convert files into a stored graph.

    \b
    Examples:
      shoal data import edges.csv -o my-graph
      shoal data import edges.csv --nodes people.csv --label team -o people
      shoal data import new-tables/ --like my-graph -o new-graph
      shoal data import web.mtx -o web --undirected --order rcm
      shoal data import web.mtx -o web --order communities --order-set most=1000
      shoal data import houses/ -o houses --label price --task regression
      shoal data import papers/ -o papers --features int8
    """
    from shoal.commands.sample import parse_options
    from shoal.commands.screen import ScreenWatcher, open_console
    from shoal.commands.stored import check_target, report_stored
    from shoal.datasets.orders import ORDERS
    from shoal.errors import ShoalError, explain_full_disk, unknown_name
    from shoal.settings import check_options, list_settings

    given = {key.removeprefix("table_"): value for key, value in columns.items() if value is not None}
    settings = _parse_options(options) | given | ({} if task is None else {"task": task})
    if by != "none" and by not in ORDERS:
        raise unknown_name("order", by, ("none", *ORDERS))
    if by == "none" and order_set:
        raise ShoalError("--order-set is a setting of an order and none is given: add --order")
    known = {} if by == "none" else list_settings(ORDERS[by])
    ordering = check_options(known, parse_options(order_set), what=by)
    if not source.exists():
        raise ShoalError(f"{source} does not exist: expected the file or folder to import")
    check_target(folder, overwrite)
    from shoal.datasets.importers import import_graph
    from shoal.datasets.reorder import reorder_graph
    from shoal.store import save_graph
    from shoal.workspace import open_workspace

    with (
        ScreenWatcher() as watcher,
        explain_full_disk(folder),
        open_workspace(folder, watcher.on_count, features),
    ):
        graph = import_graph(
            source,
            format=format_,
            directed=directed,
            name=name or folder.resolve().name,
            progress=watcher.on_step,
            **settings,
        )
        if by != "none":
            graph = reorder_graph(graph, by, **ordering)
        save_graph(graph, folder, overwrite=overwrite, features=features)
    report_stored(folder, str(folder), as_json=as_json, like=settings.get("like"))
    if graph.directed and not as_json:
        open_console().say(
            "the edges are directed: a node aggregates from the nodes that point to it, and by default from those it points to, "
            "with weights of their own (not with --set model.directions=in); import with --undirected if direction has no meaning"
        )


@data.command("get")
@click.argument("name", **complete(list_data))
@click.option(
    "-o", "--out", "folder", type=click.Path(path_type=Path), help="Folder to write instead of Shoal's home."
)
@click.option("--overwrite", is_flag=True, help="Fetch and store it again even if it is here.")
@click.option("--keep", is_flag=True, help="Keep the publisher's files too.")
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=4,
    show_default=True,
    help="Retries after failures in a row.",
)
@json_option()
@memory_option()
def get(name: str, folder: Path | None, overwrite: bool, keep: bool, retries: int, as_json: bool) -> None:
    """Fetch a registered graph, check it and store it.

    The same command resumes an interrupted fetch. SHOAL_HOME moves Shoal's home (default ~/.cache/shoal);
    SHOAL_MIRROR=http://host replaces scheme and host of every address.

    \b
    Example:
      shoal data get ogbn-arxiv
    """
    from shoal.commands.screen import ScreenWatcher, print_json
    from shoal.commands.stored import check_target, describe_stored, report_stored
    from shoal.datasets.fetch import fetch_dataset
    from shoal.datasets.generators import GENERATORS
    from shoal.datasets.places import graph_folder, is_stored
    from shoal.datasets.registry import find_dataset

    if name in GENERATORS:
        if as_json:
            print_json({"folder": None, "name": name})
        else:
            click.echo(f"{name} needs no fetching; next: shoal train {name}")
        return
    dataset = find_dataset(name)
    home = graph_folder(name)
    if folder is None and is_stored(home) and not overwrite:
        if as_json:
            print_json(describe_stored(home))
        else:
            click.echo(f"{name} is here already, in {home}; next: shoal train {name}")
        return
    check_target(folder or home, overwrite)
    with ScreenWatcher() as watcher:
        stored = fetch_dataset(
            dataset, folder, overwrite=overwrite, keep=keep, watcher=watcher, retries=retries
        )
    report_stored(stored, name if folder is None else str(folder), as_json=as_json)


@data.command("verify")
@click.argument("folder", type=click.Path(path_type=Path))
@json_option()
def verify(folder: Path, as_json: bool) -> None:
    """Check a stored graph against its checksums.

    \b
    Examples:
      shoal data verify my-graph
      shoal data verify my-graph --json
    """
    from shoal.commands.screen import ScreenWatcher, print_json
    from shoal.errors import ShoalError
    from shoal.progress import watching
    from shoal.store import verify_graph

    with ScreenWatcher() as watcher, watching(watcher.on_count):
        problems = verify_graph(folder)
    if as_json:
        print_json({"folder": folder, "sound": not problems, "problems": problems})
    for problem in problems[1:]:
        click.echo(f"shoal: {problem}", err=True)
    if problems:
        raise ShoalError(problems[0])
    if not as_json:
        click.echo(f"{folder} is sound")


def _parse_options(options: tuple[str, ...]) -> dict[str, Any]:
    """Parse `key=value` pairs: values are JSON (3, true, [1, 2]) or else text."""
    from shoal.errors import ShoalError

    settings: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key.isidentifier():
            raise ShoalError(
                f"--option {option!r} is not understood: expected KEY=VALUE, such as --option header=true"
            )
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return settings
