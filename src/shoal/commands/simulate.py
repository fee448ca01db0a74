"""`shoal simulate PARTS|DATA`: predicts an epoch of training across ranks, before there are any."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.commands.listing import json_option, plugin_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.analysis.simulate import Machine, Prediction
    from shoal.partitioning.part import Part
    from shoal.runs.config import RunConfig

_FEATURES, _CLASSES = 128, 16  # of graphs that have none


@click.command()
@click.argument("target", metavar="PARTS|DATA")
@click.option("--machine", type=click.Path(path_type=Path), help="File that `shoal doctor --save` wrote.")
@click.option("--latency", type=float, help="Microseconds of a short message, instead of the file's.")
@click.option("--bandwidth", type=float, help="MB a second between two ranks, instead of the file's.")
@click.option(
    "--features", type=click.IntRange(1), help="Features of a node where DATA has none  [default: 128]"
)
@click.option(
    "--parts",
    metavar="P,P,…",
    help="Numbers of parts to partition DATA into  [default: 2,4,8; 1 has no messages]",
)
@click.option("--method", help="Partition method for DATA (`shoal partition --help`)  [default: auto]")
@click.option("--model", help="Name of a model  [default: as fits the graph]")
@click.option("--recipe", metavar="NAME|FILE", help="Take model and exchange from a recipe.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of model or partition."
)
@json_option()
@plugin_option()
def simulate(
    target: str,
    machine: Path | None,
    latency: float | None,
    bandwidth: float | None,
    features: int | None,
    parts: str | None,
    method: str | None,
    model: str | None,
    recipe: str | None,
    as_json: bool,
    settings: tuple[str, ...],
) -> None:
    """Predict an epoch of partitioned training on many ranks.

    PARTS are stored parts (`shoal partition`); DATA is partitioned into several numbers of parts. Bytes and messages are
    exact, on average over epochs with a boundary rate. Times are the slowest rank's by the α-β model; `exposed` is
    the communication that computing does not hide. Without a machine file, compute time is unknown and nothing is
    hidden. DATA needs no features and no labels: --features sets their width, with 16 classes.

    \b
    Examples:
      shoal simulate my-parts/ --machine machine.json
      shoal simulate my-graph/ --parts 2,4,8 --latency 50 --bandwidth 1200
      shoal simulate my-parts/ --machine m.json --set partition.exchange=broadcast
      shoal simulate edges.mtx --features 300 --latency 50 --bandwidth 1200
    """
    from shoal.analysis.simulate import predict_epoch
    from shoal.commands.screen import open_console, print_json
    from shoal.commands.train import configure
    from shoal.errors import ShoalError
    from shoal.models.gnn import GNN
    from shoal.runs.build import make_model
    from shoal.wording import count

    config = configure(target, "partitioned", None, model, None, None, recipe, settings)
    config.partition.method = method or config.partition.method
    config.validate()
    if config.partition.sampled:
        raise ShoalError("an epoch is predicted for the whole graph: leave out partition.sampled")
    if config.partition.given.get("last_boundary_rate") is not None:
        raise ShoalError("an epoch is predicted for one boundary rate: leave out last_boundary_rate")
    described = _describe_machine(machine, latency, bandwidth)
    said: dict[int, Prediction] = {}
    for cut, num_features, num_classes, sparse in _open_or_cut(target, parts, method, config):
        if num_features and features is not None:
            raise ShoalError(f"{target} has {num_features:,} features: leave out --features")
        stack = make_model(config, num_features or features or _FEATURES, num_classes or _CLASSES)
        if not isinstance(stack, GNN):
            raise ShoalError(
                f"an epoch is predicted for stacks of convs and {config.model.name} is none: it does not say what it exchanges"
            )
        exchange = config.make_exchange()
        said[len(cut)] = predict_epoch(cut, stack, described, exchange=exchange, sparse_features=sparse)
    if as_json:
        print_json([{"ranks": ranks} | one.to_dict() for ranks, one in said.items()])
        return
    console = open_console()
    stored = (Path(target) / "manifest.json").is_file()
    cut_by = "stored parts" if stored else f"parts by {config.partition.method}"
    console.say(
        f"{config.model.name}, hidden {config.model.hidden}, {cut_by}, {config.partition.exchange} exchange",
    )
    if described.ranks is not None and set(said) != {described.ranks}:
        console.say(
            f"the machine was measured with {count(described.ranks, 'rank')}: how other numbers share its cores and its wire is not in these times",
        )
    console.print(_make_table(said))


def _describe_machine(path: Path | None, latency: float | None, bandwidth: float | None) -> Machine:
    """The file's machine, its wire replaced by what was given by hand."""
    from dataclasses import replace

    from shoal.analysis.simulate import Machine, read_machine
    from shoal.errors import ShoalError

    for name, value in (("--latency", latency), ("--bandwidth", bandwidth)):
        if value is not None and not 0 < value < float("inf"):
            raise ShoalError(f"{name} is {value}: expected a number above 0")
    if path is not None:
        known = read_machine(path)
        if latency is None and bandwidth is None:
            return known
        alpha = known.latency if latency is None else latency * 1e-6
        rate = known.bandwidth if bandwidth is None else bandwidth * 1e6
        return replace(known, latency=alpha, bandwidth=rate, crowd=())
    if latency is None or bandwidth is None:
        raise ShoalError(
            "no machine given: name the file of `shoal doctor --workers 2 --save FILE` as --machine, or give --latency and --bandwidth"
        )
    return Machine(latency * 1e-6, bandwidth * 1e6)


def _open_or_cut(
    target: str, parts: str | None, method: str | None, config: RunConfig
) -> Iterator[tuple[list[Part], int, int, bool]]:
    """(parts, features, classes, whether features are sparse): those stored, or those of DATA for every number."""
    import numpy as np

    from shoal.analysis.simulate import open_parts
    from shoal.errors import ShoalError

    if (Path(target) / "manifest.json").is_file():
        if parts is not None or method is not None:
            raise ShoalError(
                f"{target} holds parts already: leave out --parts and --method, or name the graph"
            )
        if config.training.setting == "inductive":
            raise ShoalError(
                "stored parts are those of the whole graph: name the graph to predict training.setting=inductive"
            )
        stored = open_parts(Path(target))
        first = stored[0]
        sparse = first.x is not None and not isinstance(first.x, np.ndarray)
        yield stored, first.num_features, first.num_classes, sparse
        return
    counts = _read_counts(parts)
    import scipy.sparse as sp

    from shoal.datasets import load
    from shoal.graph import Graph
    from shoal.partitioning.part import split_graph
    from shoal.runs.data import partition_for_run

    graph = load(config.data, **config.data_options)
    graph = graph if graph.has_split or not graph.num_classes else graph.with_split(seed=0)
    inductive = config.training.setting == "inductive"
    seen = graph.train_graph("inductive") if inductive else graph
    pattern = Graph(
        seen.indptr, seen.indices, directed=graph.directed, name=graph.name, checked=True
    )  # rows stay where they are
    sparse = sp.issparse(graph.x)
    for count in counts:
        assignment = partition_for_run(config, graph, count).assignment
        assignment = assignment[graph.train_mask] if inductive else assignment
        yield split_graph(pattern, assignment, count), graph.num_features, graph.num_classes, sparse


def _read_counts(text: str | None) -> list[int]:
    from shoal.errors import ShoalError

    words = (text or "2,4,8").split(",")
    if not all(word.strip().isdigit() and int(word) > 0 for word in words):
        raise ShoalError(f"--parts is {text}: expected numbers of ranks, such as 2,4,8")
    return sorted({int(word) for word in words})


def _make_table(said: dict[int, Prediction]) -> object:
    """One column for every number of ranks."""
    from shoal.commands.screen import plain_table
    from shoal.wording import count

    heads = [count(ranks, "rank") for ranks in said]
    table = plain_table("an epoch", *heads, right=tuple(heads))
    table.add_row("MB sent", *(f"{one.num_bytes / 1e6:,.2f}" for one in said.values()))
    table.add_row("messages", *(f"{one.num_messages:,}" for one in said.values()))
    table.add_row("compute, ms", *(_say(one.compute) if one.compute else "unknown" for one in said.values()))
    table.add_row("communication, ms", *(_say(one.communication) for one in said.values()))
    for number, exchange in enumerate(next(iter(said.values())).exchanges):
        name = f"  layer {exchange.layer} {exchange.direction}, {exchange.width} wide"
        table.add_row(name, *(_say(one.seconds[number]) for one in said.values()))
    table.add_row("exposed, ms", *(_say(sum(one.exposed)) for one in said.values()))
    table.add_row("gradients, ms", *(_say(one.reduce) for one in said.values()))
    table.add_row("epoch, ms", *(_say(one.epoch) for one in said.values()))
    return table


def _say(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f}"
