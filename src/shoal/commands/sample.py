"""`shoal sample DATA`: draws batches and compares them with the graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.commands.completion import complete, list_data, list_samplers
from shoal.commands.listing import ListingCommand, Rows, json_option, list_components, plugin_option

if TYPE_CHECKING:
    from shoal.analysis.subgraphs import SampleCharacter
    from shoal.commands.screen import Screen
    from shoal.sampling.base import Sampler


def _list_samplers() -> list[tuple[str, Rows]]:
    from shoal.sampling.base import SAMPLERS, sampler_settings

    return [("Samplers, and settings for --set", list_components(SAMPLERS, sampler_settings))]


@click.command(cls=ListingCommand, listing=_list_samplers)
@click.argument("data", **complete(list_data, files=True))
@click.option(
    "--sampler",
    default="frontier",
    show_default=True,
    **complete(list_samplers),
    help="The sampler's name, see below.",
)
@click.option("--stats", is_flag=True, help="Measure the samples beside the full graph, and plot degrees.")
@click.option(
    "--samples",
    "num_samples",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Batches to draw.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides every batch.")
@click.option(
    "--plot", type=click.Path(path_type=Path), help="PNG to write with --stats  [default: DATA-SAMPLER.png]"
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the sampler; may be repeated."
)
@json_option()
@plugin_option()
def sample(
    data: str,
    sampler: str,
    stats: bool,
    num_samples: int,
    seed: int,
    plot: Path | None,
    as_json: bool,
    settings: tuple[str, ...],
) -> None:
    """Draw batches from DATA and report their sizes.

    With --stats, degrees, clustering and assortativity of batches and training graph are compared.

    \b
    Examples:
      shoal sample digits --sampler frontier --set budget=500 --set frontier=100
      shoal sample my-graph/ --sampler random-walk --stats --plot walk.png
    """
    from shoal.commands.node_files import check_output
    from shoal.commands.screen import open_console, print_json
    from shoal.datasets import load
    from shoal.errors import ShoalError
    from shoal.report.svg import require_matplotlib
    from shoal.sampling.base import SAMPLERS, make_sampler
    from shoal.settings import check_options, list_settings

    if plot is not None and not stats:
        raise ShoalError("--plot shows what --stats measures: give both")
    path = plot if plot is not None else Path(f"{Path(data).name.split('.')[0]}-{sampler}.png")
    known = {name: one for name, one in list_settings(SAMPLERS[sampler]).items() if name != "seed"}
    options = check_options(known, parse_options(settings), what=f"sampler {sampler!r}")
    if stats:
        require_matplotlib("a plot of the samples")
        check_output(path, (".png",))
    console = open_console(stderr=as_json)
    chosen = make_sampler(sampler, load(data), seed=seed, **options)
    console.notice(*chosen.notices)
    figures = measure_sizes(chosen, num_samples)
    if not as_json:
        show_sizes(console, figures)
    if stats:
        from shoal.analysis.subgraphs import measure_samples
        from shoal.sampling.layered import LayeredSampler

        if isinstance(chosen, LayeredSampler):
            console.notice(
                f"{sampler} draws a bipartite block for every layer: these are statistics of the subgraphs induced by all nodes of a batch",
            )
        character = measure_samples(chosen, num_samples)
        figures["stats"] = summarize_character(character)
        if not as_json:
            show_character(console, figures["stats"], num_samples)
        write_plot(character, path, f"{data}, {sampler}")
        console.say(f"plot: {path}")
    if as_json:
        print_json(figures)


def parse_options(settings: tuple[str, ...]) -> dict[str, Any]:
    """`("budget=500", …)` as a dictionary with YAML values."""
    from shoal.errors import ShoalError
    from shoal.runs.config import parse_value

    options = {}
    for setting in settings:
        name, found, text = setting.partition("=")
        name = name.removeprefix("sampler.")  # as `shoal train` writes it
        if not found or not name:
            raise ShoalError(f"--set {setting}: expected key=value, such as budget=500")
        options[name] = parse_value(text, f"--set {setting}")
    return options


def measure_sizes(sampler: Sampler, num_samples: int) -> dict[str, Any]:
    """Mean nodes and entries that each layer of a batch reads, seconds per batch, and the training graph's sizes."""
    import time

    sampler.sample(0)  # compiles: compilation is not timed
    started = time.perf_counter()
    batches = [sampler.sample(k) for k in range(num_samples)]
    seconds = (time.perf_counter() - started) / num_samples
    layers = [
        {
            "nodes": sum(batch.nodes_per_layer[layer] for batch in batches) / num_samples,
            "entries": sum(batch.edges_per_layer[layer] for batch in batches) / num_samples,
        }
        for layer in range(len(batches[0].blocks))
    ]
    graph = {"nodes": sampler.graph.num_nodes, "entries": sampler.graph.num_entries}
    per_epoch = {"seconds_per_batch": seconds, "batches_per_epoch": sampler.num_batches}
    return {"samples": num_samples, "layers": layers, "training_graph": graph, **per_epoch}


def show_sizes(console: Screen, figures: dict[str, Any]) -> None:
    """Print what `measure_sizes` found."""
    from shoal.commands.screen import plain_table
    from shoal.wording import count

    layers = figures["layers"]
    table = plain_table("", "nodes", "entries", right=("nodes", "entries"))
    for number, one in enumerate(layers, 1):
        name = "batch, mean" if len(layers) == 1 else f"read by layer {number}, mean"
        table.add_row(name, f"{one['nodes']:,.1f}", f"{one['entries']:,.1f}")
    whole = figures["training_graph"]
    table.add_row("training graph", f"{whole['nodes']:,}", f"{whole['entries']:,}")
    console.print(table)
    batches = count(figures["batches_per_epoch"], "batch")
    console.say(f"{figures['seconds_per_batch'] * 1e3:.2f} ms per batch, {batches} per epoch")


def summarize_character(character: SampleCharacter) -> dict[str, Any]:
    """Each measure of the full graph, its mean and deviation over the samples, and the share of nodes in any sample."""
    import numpy as np

    from shoal.analysis.subgraphs import Character

    measures: dict[str, Callable[[Character], float]] = {
        "mean degree": lambda c: c.mean_degree,
        "median degree": lambda c: c.quantile(0.5),
        "90 % quantile of degrees": lambda c: c.quantile(0.9),
        "99 % quantile of degrees": lambda c: c.quantile(0.99),
        "clustering coefficient": lambda c: c.clustering,
        "degree assortativity": lambda c: c.assortativity,
    }
    found: dict[str, Any] = {}
    for name, measure in measures.items():
        values = [measure(one) for one in character.samples]
        found[name] = {"full": measure(character.full), "mean": np.mean(values), "deviation": np.std(values)}
    return found | {"coverage": character.coverage}


def show_character(console: Screen, stats: dict[str, Any], num_samples: int) -> None:
    """Print what `summarize_character` found."""
    from shoal.commands.screen import plain_table
    from shoal.wording import count

    table = plain_table("measure", "full graph", "samples", "±", right=("full graph", "samples", "±"))
    for name, one in stats.items():
        if name != "coverage":
            table.add_row(name, f"{one['full']:.3f}", f"{one['mean']:.3f}", f"{one['deviation']:.3f}")
    table.add_row(f"nodes in any of {count(num_samples, 'sample')}", "100.0%", f"{stats['coverage']:.1%}", "")
    console.print(table)


def write_plot(character: SampleCharacter, path: Path, title: str) -> None:
    """Write a picture of the degrees of at most ten samples beside the full graph's."""
    import matplotlib
    from matplotlib.figure import Figure

    from shoal.errors import explain_full_disk
    from shoal.files import replace_file
    from shoal.report.samples import plot_degrees
    from shoal.runs.measured import describe_character

    with matplotlib.rc_context({"text.parse_math": False}):
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.add_subplot(title=title)
        samples = [describe_character(one) for one in character.samples[:10]]
        plot_degrees(axes, describe_character(character.full), samples, ("black", "tab:blue"))
        with explain_full_disk(path), replace_file(path) as scratch:
            figure.savefig(scratch, dpi=120, format="png")
