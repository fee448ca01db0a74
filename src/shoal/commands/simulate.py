"""`shoal simulate PARTS|DATA`: predicts an epoch of training across ranks, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from shoal.commands.calibrate import RATE
from shoal.commands.listing import json_option, plugin_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.analysis.machine import Machine
    from shoal.analysis.prediction import Prediction
    from shoal.graph import Graph
    from shoal.models.gnn import GNN
    from shoal.partitioning.part import Part
    from shoal.runs.config import RunConfig

_FEATURES, _CLASSES = 128, 16  # of graphs that have none
_EPOCHS = 11  # evenly spaced epochs to average over, where the boundary rate changes


class Ranks(NamedTuple):
    """Data of the simulated ranks.

    `parts` is [] where each rank holds the whole graph, `graph` None for stored parts.
    """

    size: int
    parts: list[Part]
    graph: Graph | None
    num_features: int
    num_classes: int
    sparse: bool


@click.command()
@click.argument("target", metavar="PARTS|DATA")
@click.option("--machine", type=click.Path(path_type=Path), help="File that `shoal doctor --save` wrote.")
@click.option(
    "--measure", is_flag=True, help="Measure this machine again and replace the cached measurement."
)
@click.option("--latency", type=float, help="Microseconds of a short message, in place of the measured ones.")
@click.option("--bandwidth", metavar="RATE", help=f"Between two ranks, in place of the measured one: {RATE}.")
@click.option(
    "--features", type=click.IntRange(1), help="Features of a node where DATA has none  [default: 128]"
)
@click.option(
    "--parts",
    metavar="P,P,…",
    help="Numbers of parts to partition DATA into  [default: 2,4,8; 1 has no messages]",
)
@click.option("--method", help="Partition method for DATA (`shoal partition --help`)  [default: auto]")
@click.option("--sampler", help="Sampler of mini-batches that ranks share  [default: the whole graph]")
@click.option(
    "--batches",
    type=click.IntRange(1),
    help="Batches to draw, from which the epoch is extrapolated  [default: all]",
)
@click.option(
    "--model",
    help="Name of a model  [default: chosen by the graph, as in training; sage if it has no labels]",
)
@click.option("--recipe", metavar="NAME|FILE", help="Take model and exchange from a recipe.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of `shoal train`.")
@json_option()
@plugin_option()
def simulate(
    target: str,
    machine: Path | None,
    measure: bool,
    latency: float | None,
    bandwidth: str | None,
    features: int | None,
    parts: str | None,
    method: str | None,
    sampler: str | None,
    batches: int | None,
    model: str | None,
    recipe: str | None,
    as_json: bool,
    settings: tuple[str, ...],
) -> None:
    """Predict an epoch of training on many ranks.

    PARTS are stored parts (`shoal partition`); DATA is partitioned into several numbers of parts, up to 4,096. Bytes and
    messages are exact: with a boundary rate the mean over epochs, with a sampler those of the first epoch. Times are
    the slowest rank's by the α-β model; `exposed` is communication that does not overlap with computing. Without
    --machine, this machine is measured once. DATA without features or labels is given --features and 16 classes.

    \b
    Examples:
      shoal simulate my-graph/ --parts 2,4,8 --latency 50 --bandwidth 10Gbit
      shoal simulate my-parts/ --machine machine.json
      shoal simulate my-parts/ --machine m.json --set partition.messages=int8
      shoal simulate my-graph/ --sampler random-walk
      shoal simulate my-graph/ --set method=sampled
      shoal simulate edges.mtx --features 300 --latency 50 --bandwidth 10Gbit
    """
    from shoal.commands.calibrate import describe_machine
    from shoal.commands.screen import open_console, print_json
    from shoal.commands.train import configure, trains_on_rows
    from shoal.distributed.runtime import share_cores
    from shoal.distributed.transport import LocalTransport
    from shoal.errors import ShoalError
    from shoal.memory import base_memory
    from shoal.models.gnn import GNN
    from shoal.runs.build import make_model

    way = "sampled" if trains_on_rows(model, settings) else "partitioned"
    config = configure(target, way, sampler, model, None, None, recipe, settings)
    config.partition.method = method or config.partition.method
    _refuse(config, batches)  # before `validate`, whose words are those of training
    config.validate()
    _read_counts(parts)  # raises before anything is measured
    share_cores(LocalTransport(), config.training.threads)
    process = base_memory()
    described, note = describe_machine(machine, latency, bandwidth, measure=measure)
    said: dict[int, Prediction] = {}
    for ranks in _open_or_cut(target, parts, method, config):
        if ranks.num_features and features is not None:
            raise ShoalError(f"{target} has {ranks.num_features:,} features: leave out --features")
        stack = make_model(config, ranks.num_features or features or _FEATURES, ranks.num_classes or _CLASSES)
        if not isinstance(stack, GNN):
            raise ShoalError(
                f"{config.model.name} is not a stack of convs and does not declare what it exchanges: choose another --model"
            )
        described_model = _describe_model(stack)
        said[ranks.size] = _predict(config, ranks, stack, described, batches, process)
    if as_json:
        print_json(
            [{"ranks": count, "model": described_model} | one.to_dict() for count, one in said.items()]
        )
        return
    console = open_console()
    console.say(f"{described_model}, {_describe(config, target)}")
    if note and (machine is None or set(said) != {described.ranks}):
        console.say(note)
    console.print(_make_table(said))


def _refuse(config: RunConfig, batches: int | None) -> None:
    from shoal.errors import ShoalError

    if config.method not in ("partitioned", "sampled"):
        raise ShoalError(
            f"method {config.method} trains in one process: leave it out, or give method=sampled"
        )
    if config.training.history:
        raise ShoalError("an epoch with histories is not predicted: leave out training.history")
    if batches is not None and not config.draws:
        raise ShoalError("--batches counts batches and none are drawn: add --sampler NAME, or leave it out")


def _describe_model(stack: GNN) -> str:
    """The model's name, layers and widths."""
    from shoal.wording import count

    width = str(stack.widths[0]) if len(set(stack.widths)) == 1 else "-".join(map(str, stack.widths))
    both = ", both directions" if stack.directions == "both" else ""
    return f"{stack.model}, {count(len(stack.widths), 'layer')} of width {width}{both}"


def _describe(config: RunConfig, target: str) -> str:
    """What is simulated: parts or whole graph, exchange and batches."""
    batches = f"batches by {config.sampler.name}"
    if config.method == "sampled":
        return f"the whole graph and {batches} on every rank"
    stored = (Path(target) / "manifest.json").is_file()
    cut_by = "stored parts" if stored else f"parts by {config.partition.method}"
    shared = f", {batches} that ranks share" if config.draws else ""
    return f"{cut_by}, {config.partition.exchange} exchange{shared}"


def _predict(
    config: RunConfig, ranks: Ranks, stack: GNN, machine: Machine, batches: int | None, process: int
) -> Prediction:
    """Predict an epoch on `ranks`."""
    from shoal.analysis.batches import predict_replicas, predict_shared
    from shoal.analysis.prediction import add_steps
    from shoal.analysis.simulate import predict_epoch
    from shoal.runs.build import make_batches
    from shoal.training.learning_share import require_one_process
    from shoal.training.shares import check_directions

    training = config.training
    given: dict[str, Any] = {"sparse_features": ranks.sparse, "process": process}
    given["label_iterations"] = training.label_iterations
    exchange = config.make_exchange()
    source = make_batches(config, ranks.graph) if config.draws and ranks.graph is not None else None
    if stack.directions == "both":
        whole = ranks.parts[0] if ranks.parts else ranks.graph
        assert whole is not None
        check_directions(whole, source, exchange, None, history=False)
    if source is None:
        exchange.covers(stack.kinds)  # raises where training would
        epochs = training.epochs if config.partition.given.get("last_boundary_rate") is not None else 1
        chosen = sorted({round(one * (epochs - 1) / (_EPOCHS - 1)) for one in range(_EPOCHS)})
        found = [
            predict_epoch(ranks.parts, stack, machine, exchange=exchange.at_epoch(one, epochs), **given)
            for one in chosen
        ]
        return found[0] if len(found) == 1 else add_steps(found, 1 / len(found))
    assert ranks.graph is not None
    if config.sampler.given.pop("coverage", None) is not None:  # normalisation changes no message
        source = make_batches(config, ranks.graph)
    if config.method == "sampled":
        require_one_process(source, ranks.size)
        threads = training.sampling_threads
        return predict_replicas(
            source, stack, machine, ranks.size, sampling_threads=threads, num_batches=batches, **given
        )
    return predict_shared(
        ranks.parts, source, stack, machine, exchange=exchange, num_batches=batches, **given
    )


def _open_or_cut(target: str, parts: str | None, method: str | None, config: RunConfig) -> Iterator[Ranks]:
    """The ranks of stored parts, or of DATA for every number of ranks."""
    import numpy as np

    from shoal.analysis.simulate import open_parts
    from shoal.commands.screen import open_console
    from shoal.errors import ShoalError
    from shoal.runs.defaults import follow_graph

    notices = open_console(stderr=True)
    if (Path(target) / "manifest.json").is_file():
        if parts is not None or method is not None:
            raise ShoalError(
                f"{target} holds parts already: leave out --parts and --method, or name the graph"
            )
        if config.training.setting == "inductive":
            raise ShoalError(
                "stored parts are those of the whole graph: name the graph to predict training.setting=inductive"
            )
        if config.draws:
            raise ShoalError(
                "stored parts do not hold the whole graph that batches are drawn from: name the graph"
            )
        stored = open_parts(Path(target))
        first = stored[0]
        if first.num_classes:
            notices.notice(*follow_graph(config, stored))
        sparse = first.x is not None and not isinstance(first.x, np.ndarray)
        yield Ranks(len(stored), stored, None, first.num_features, first.num_classes, sparse)
        return
    counts = _read_counts(parts)
    import scipy.sparse as sp

    from shoal.datasets import load
    from shoal.graph import Graph
    from shoal.partitioning.part import split_graph
    from shoal.runs.build import prepare_graph
    from shoal.runs.data import partition_for_run

    graph = load(config.data, **config.data_options)
    if graph.num_classes:
        graph = graph if graph.has_split else graph.with_split(seed=0)
        notices.notice(*follow_graph(config, graph))
    if config.method == "sampled":
        graph = prepare_graph(config, graph)
    about = graph.num_features, graph.num_classes, sp.issparse(graph.x)
    inductive = config.training.setting == "inductive" and not config.draws
    seen = graph.train_graph("inductive") if inductive else graph
    pattern = Graph(
        seen.indptr,
        seen.indices,
        x=seen.x if sp.issparse(graph.x) else None,
        directed=graph.directed,
        name=graph.name,
        checked=True,
    )  # adjacency only: rows keep their order
    for count in counts:
        cut: list[Part] = []
        if config.method == "partitioned":
            assignment = partition_for_run(config, graph, count).assignment
            cut = split_graph(pattern, assignment[graph.train_mask] if inductive else assignment, count)
        yield Ranks(count, cut, graph, *about)


def _read_counts(text: str | None) -> list[int]:
    from shoal.errors import ShoalError

    words = (text or "2,4,8").split(",")
    if not all(word.strip().isdigit() and 0 < int(word) <= 4096 for word in words):
        raise ShoalError(f"--parts is {text}: expected numbers of ranks up to 4096, such as 2,4,8")
    return sorted({int(word) for word in words})


def _make_table(said: dict[int, Prediction]) -> object:
    """One column for every number of ranks."""
    from shoal.commands.screen import plain_table
    from shoal.wording import count

    heads = [count(ranks, "rank") for ranks in said]
    table = plain_table("an epoch", *heads, right=tuple(heads))
    table.add_row("MB sent", *(f"{one.num_bytes / 1e6:,.4f}" for one in said.values()))
    table.add_row("messages", *(f"{one.num_messages:,}" for one in said.values()))
    if any(one.sampling for one in said.values()):
        table.add_row("steps", *(f"{one.steps:,}" for one in said.values()))
        table.add_row("sampling, ms", *(_say(one.sampling) for one in said.values()))
    table.add_row("compute, ms", *(_say(one.compute) if one.compute else "unknown" for one in said.values()))
    table.add_row("communication, ms", *(_say(one.communication) for one in said.values()))
    for number, exchange in enumerate(next(iter(said.values())).exchanges):
        name = f"  layer {exchange.layer} {exchange.direction}, {exchange.width} wide"
        table.add_row(name, *(_say(one.seconds[number]) for one in said.values()))
    table.add_row("exposed, ms", *(_say(sum(one.exposed)) for one in said.values()))
    if any(one.norm_sums for one in said.values()):
        table.add_row("batch norm, ms", *(_say(one.norms) for one in said.values()))
    table.add_row("gradients, ms", *(_say(one.reduce - one.norms) for one in said.values()))
    table.add_row("epoch, ms", *(_say(one.epoch) for one in said.values()))
    table.add_row("largest rank, MB", *(f"{max(one.memory) / 1e6:,.1f}" for one in said.values()))
    return table


def _say(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f}"
