"""`shoal partition DATA`: splits a graph, prints what the split costs, and writes the parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.commands.completion import complete, list_data, list_partition_methods
from shoal.commands.listing import (
    ListingCommand,
    Rows,
    json_option,
    list_components,
    memory_option,
    plugin_option,
)

if TYPE_CHECKING:
    from shoal.commands.screen import Screen
    from shoal.partitioning.quality import Quality

# Rows of the printed table: (field of Quality, label).
ROWS = (
    ("total_volume", "rows sent in one exchange"),
    ("mean_volume", "… by a part, mean"),
    ("max_send_volume", "… by the busiest part"),
    ("max_receive_volume", "… received by the busiest part"),
    ("cover_volume", "rows and sums sent by covers"),
    ("max_cover_send", "… by the busiest part"),
    ("max_cover_receive", "… received by the busiest part"),
    ("messages", "messages"),
    ("mean_messages", "… of a part, mean"),
    ("max_messages_sent", "… of the busiest part"),
    ("weight_balance", "weight of the heaviest part / mean"),
    ("edge_balance", "entries of the heaviest part / mean"),
    ("node_balance", "nodes of the largest part / mean"),
    ("boundary_nodes", "boundary rows"),
    ("mean_halo_ratio", "halo rows per local row, mean"),
    ("max_halo_ratio", "… in the worst part"),
    ("max_memory_rows", "rows in memory per layer, largest part"),
    ("remote_volume", "rows that cross hosts"),
    ("remote_messages", "messages that cross hosts"),
)


# Limits of the verdict: share of a random partition's volume, and excess of the heaviest part.
_GOOD, _POOR, _EVEN = 0.5, 0.9, 0.1


def _list_methods() -> list[tuple[str, Rows]]:
    """Every method, what it does and its settings."""
    from shoal.partitioning.work import PARTITION_METHODS

    auto = ("auto", "The best one that is installed and fits in memory.")
    return [("Methods, and settings for --set", [auto, *list_components(PARTITION_METHODS)])]


@click.command(cls=ListingCommand, listing=_list_methods)
@click.argument("data", **complete(list_data, files=True))
@click.option("--parts", "num_parts", type=int, required=True, help="Number of parts, one for each rank.")
@click.option(
    "--method",
    default="auto",
    show_default=True,
    **complete(list_partition_methods),
    help="How to split, see below.",
)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder to write the parts to.")
@click.option("--balance", default="edges", show_default=True, help="What to balance: edges or nodes.")
@click.option(
    "--imbalance",
    type=float,
    default=0.01,
    show_default=True,
    help="Allowed excess of a part over the average.",
)
@click.option("--parts-per-host", type=int, help="Number the parts so that busy pairs share a host.")
@click.option("--effort", help="How long to search: fast, default or best, for methods with this setting.")
@click.option("--refine/--no-refine", default=None, help="Run the local search afterwards.")
@click.option("--seed", type=int, default=0, show_default=True, help="Decides the partition.")
@click.option("--overwrite", is_flag=True, help="Replace parts that are in the folder.")
@click.option(
    "--refresh",
    is_flag=True,
    help="Keep the folder's parts if neither DATA nor the options have changed; replace them otherwise.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the method.")
@json_option()
@memory_option()
@plugin_option()
def partition(
    data: str,
    num_parts: int,
    method: str,
    out: Path | None,
    balance: str,
    imbalance: float,
    parts_per_host: int | None,
    effort: str | None,
    refine: bool | None,
    seed: int,
    overwrite: bool,
    refresh: bool,
    as_json: bool,
    settings: tuple[str, ...],
) -> None:
    """Split DATA into parts, one per rank, and report their quality.

    \b
    Examples:
      shoal partition my-graph/ --parts 8 -o parts/
      shoal partition my-graph/ --parts 64 --method metis --parts-per-host 16
      shoal partition my-graph/ --parts 64 --method hypergraph --effort best
      shoal partition my-graph/ --parts 8 --method stochastic --set roots=1000
      shoal partition my-graph/ --parts 8 -o parts/ --refresh
    """
    from shoal.commands.sample import parse_options
    from shoal.commands.screen import ScreenWatcher, follow_steps, open_console, print_json
    from shoal.datasets import load
    from shoal.errors import ShoalError, unknown_name
    from shoal.kernels.jit import load_kernels
    from shoal.lock import writing
    from shoal.partitioning.manifest import is_current, read_manifest
    from shoal.partitioning.partition import AUTO, BALANCES, partition_graph
    from shoal.partitioning.stored import check_target, store_parts
    from shoal.partitioning.work import PARTITION_METHODS
    from shoal.progress import watching

    if method not in (AUTO, *PARTITION_METHODS):
        raise unknown_name("method", method, (AUTO, *PARTITION_METHODS))
    if balance not in BALANCES:
        raise unknown_name("balance", balance, BALANCES)
    overwrite = overwrite or refresh
    if refresh and out is None:
        raise ShoalError("--refresh looks at the folder of -o: add -o DIR")
    if out is not None:
        check_target(out, overwrite)
    options = parse_options(settings) | ({} if effort is None else {"effort": effort})
    screen = open_console(stderr=True)
    load_kernels()
    graph = load(data)
    if num_parts > graph.num_nodes:
        raise ShoalError(
            f"--parts is {num_parts:,} and the graph has {graph.num_nodes:,} nodes: expected at most as many parts"
        )
    if graph.num_classes and not graph.has_split:
        graph = graph.with_split(seed=0)  # the split that training on the graph itself would draw
    asked = {"num_parts": num_parts, "method": method, "balance": balance, "imbalance": imbalance}
    asked |= {"seed": seed, "refine": refine, "parts_per_host": parts_per_host, "options": options}
    if refresh and out is not None and out.exists() and is_current(read_manifest(out), graph, data, asked):
        open_console(stderr=as_json).say(f"parts: {out}, kept: {data} and the options have not changed")
        if as_json:
            print_json({"folder": out, "kept": True})
        return
    if out is not None:
        click.get_current_context().with_resource(
            writing(out)
        )  # a second writer is refused now, not after hours of work
    with ScreenWatcher() as watcher, watching(watcher.on_count):
        found = partition_graph(
            graph,
            num_parts,
            method,
            imbalance=imbalance,
            seed=seed,
            balance=balance,
            refine=refine,
            parts_per_host=parts_per_host,
            progress=lambda step: watcher.on_step(f"{step} …"),
            **options,
        )
    console = open_console(stderr=as_json)
    console.notice(*found.notices)
    quality = found.quality()
    if not as_json:
        show_quality(console, quality, found.balance)
        console.say(judge_quality(quality, found.balance, found.imbalance))
        console.say(f"{found.method}, {found.seconds['total']:.1f} s")
    if out is not None:
        with follow_steps(screen, "writing parts") as follow:
            store_parts(
                graph,
                found,
                out,
                quality=quality,
                overwrite=overwrite,
                progress=follow,
                data=data,
                asked=asked,
            )
        console.say(f"parts: {out}")
    if as_json:
        how = {"method": found.method, "balance": found.balance, "seconds": found.seconds, "folder": out}
        print_json(how | quality.to_dict())


def show_quality(console: Screen, quality: Quality, balance: str) -> None:
    """Print the figures, those of a random partition with equally many nodes in every part, and the ratio.

    The balance that the partition was asked to keep is marked.
    """
    from shoal.commands.screen import plain_table
    from shoal.wording import count

    head = ("", "random", "ratio")
    table = plain_table(count(quality.num_parts, "part"), *head, right=head)
    balanced = "weight_balance" if balance == "edges" else "node_balance"
    chance, ratios = quality.random or {}, quality.relative or {}
    for name, words in ROWS:
        value, ratio = getattr(quality, name), ratios.get(name)
        if value is None:
            continue
        words += " (balanced)" if name == balanced else ""
        shown = "" if ratio is None else f"{ratio:.3f}"
        table.add_row(words, _show_figure(value), _show_figure(chance.get(name)), shown)
    console.print(table)


def judge_quality(quality: Quality, balance: str, imbalance: float) -> str:
    """One line in plain words: what is sent against a random partition, by covers if counted, and whether parts are even."""
    if quality.num_parts == 1:
        return "one part: nothing is sent"
    name = "total_volume" if quality.cover_volume is None else "cover_volume"
    own, chance = getattr(quality, name), (quality.random or {}).get(name, 0)
    heaviest, what = quality.weight_balance, "weight"
    if balance != "edges":
        heaviest, what = quality.node_balance, "number of nodes"
    is_even = heaviest <= 1 + max(imbalance, _EVEN)
    is_poor = own > _POOR * chance
    grade = "poor" if is_poor else "good" if own <= _GOOD * chance and is_even else "fair"
    sent = "nothing is sent"
    if own:
        share = f"{own / chance:.0%} of what" if chance else "more than"
        sent = f"{share} a random partition sends"
    even = "the parts are even"
    if not is_even:
        even = f"the heaviest part has {heaviest:.2f} times the mean {what}, and the others wait for it"
    advice = "; try another --method, or fewer parts" if is_poor else ""
    return f"{grade}: {sent}; {even}{advice}"


def _show_figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
