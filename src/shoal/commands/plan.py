"""`shoal plan DATA`: recommends a training method for a graph and a machine, with its time and memory."""

from __future__ import annotations

import copy
import os
import shlex
from typing import TYPE_CHECKING

import click

from shoal.commands.calibrate import RATE, parse_rate
from shoal.commands.completion import complete, list_data
from shoal.commands.listing import json_option, plugin_option

if TYPE_CHECKING:
    from shoal.commands.tables import PlainTable
    from shoal.runs.plan import Plan

_LATENCY = 50e-6  # seconds a message, in a switched network
_TORCHRUN = ("torchrun", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "HOST:29400")
_BUSY = 1.2  # load per core above which timings get a notice


@click.command()
@click.argument("data", **complete(list_data, files=True))
@click.option("--hosts", type=click.IntRange(1, 4096), default=1, help="Machines to plan for  [default: 1]")
@click.option("--memory", metavar="SIZE", help="Memory of a host, such as 16GB  [default: what is free here]")
@click.option("--network", metavar="RATE", help=f"Bandwidth between hosts: {RATE}  [default: 1Gbit]")
@click.option("--model", help="Name of a model  [default: chosen by the graph]")
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    help="Time limit of the measurements, without loading and partitioning the graph.",
)
@json_option()
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of `shoal train`.")
@plugin_option(expose=True)
def plan(
    data: str,
    hosts: int,
    memory: str | None,
    network: str | None,
    model: str | None,
    seconds: float,
    as_json: bool,
    plugins: tuple[str, ...],
    settings: tuple[str, ...],
) -> None:
    """Recommend a training method for DATA and a machine.

    The whole graph, batches of several samplers, parts on hosts and parts in files are compared. A few steps of each
    run here, each in its own process, to measure time and memory; what does not run here is predicted. Bytes sent are
    exact. Hosts are assumed to compute as fast as this machine.

    \b
    Examples:
      shoal plan my-graph/
      shoal plan my-graph/ --hosts 4 --memory 16GB --network 1Gbit
    """
    from shoal.analysis.machine import Machine
    from shoal.commands.screen import open_console, print_json
    from shoal.commands.train import configure
    from shoal.distributed.runtime import share_cores
    from shoal.distributed.transport import LocalTransport
    from shoal.errors import ShoalError
    from shoal.memory import anonymous_memory, memory_budget, parse_bytes
    from shoal.runs.data import load_graph, make_paths_absolute
    from shoal.runs.plan import Planner

    if network is not None and hosts == 1:
        raise ShoalError("--network is the bandwidth between hosts and there is one host: add --hosts N")
    machine = Machine(_LATENCY, parse_rate(network or "1Gbit", "--network"))
    config = configure(data, None, None, model, None, None, None, settings, plugins)
    if config.method != "sampled":
        raise ShoalError("shoal plan chooses the method: leave out --set method")
    config.validate()
    allowed = None if memory is None else parse_bytes(memory)
    share_cores(LocalTransport(), config.training.threads)
    empty = anonymous_memory()
    make_paths_absolute(config)
    asked = copy.deepcopy(config)
    graph, notices = load_graph(config)
    shown = open_console(stderr=True)
    planner = Planner(
        config,
        graph,
        asked=asked,
        memory=allowed or memory_budget(),
        budget=allowed if hosts == 1 else None,
        hosts=hosts,
        machine=machine,
        seconds=seconds,
        empty=empty,
        on_step=lambda sentence: shown.say(f"{sentence} …", style="dim"),
    )
    before = os.getloadavg()[0]
    found = planner.plan()
    kept = [] if memory is None or hosts > 1 else ["--memory", memory]
    said = _repeat(model, settings, plugins, draws=found.best.method == "sampled")
    program = (
        ["shoal"]
        if found.best.method != "partitioned"
        else [*_TORCHRUN, "--nnodes", str(hosts), "-m", "shoal"]
    )
    command = shlex.join([*program, "train", data, *found.best.options, *kept, *said])
    failed = [f"{one.name} was not measured: {one.failed}" for one in found.candidates if one.failed]
    cores = os.cpu_count() or 1
    if before > _BUSY * cores:
        failed.append(
            f"{cores} cores have other work (load {before:.1f}): seconds are those of a busy machine, --json has CPU seconds"
        )
    epochs = config.training.epochs
    if as_json:
        shown.notice(*notices, *failed)
        print_json(
            found.to_dict()
            | {"command": command, "epochs": epochs, "total": found.best.count_seconds(epochs)}
        )
        return
    console = open_console()
    console.say(
        f"{graph.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features, {graph.num_classes} classes",
    )
    console.notice(*notices)
    console.print(_make_table(found), width=min(console.width, 80))
    console.notice(*failed)
    if hosts > 1:
        console.say(
            f"assumed between hosts: {_LATENCY * 1e6:.0f} µs latency, {network or '1Gbit'} bandwidth",
        )
    console.say(f"recommended: {found.best.name} ({found.reason})")
    if (total := found.best.count_seconds(epochs)) is not None:
        each = "epoch" if found.best.interval == 1 else f"{found.best.interval} epochs"
        took = f"{total / 60:.3g} minutes" if total >= 90 else f"{total:.3g} s"
        console.say(
            f"{epochs:,} epochs, evaluated after every {each}: about {took}; early stopping may end them sooner"
        )
    if hosts > 1 and found.best.method == "partitioned":
        console.say(
            f"to be run on each of the {hosts} hosts, of which HOST is the first; other launchers: docs/cluster.md"
        )
    console.say(command)


def _make_table(found: Plan) -> PlainTable:
    from shoal.commands.screen import format_bytes, plain_table

    right = ("memory", "s / epoch", "evaluation, s", "sent")
    table = plain_table("method", *right, "", right=right)
    for one in found.candidates:
        table.add_row(
            one.name,
            format_bytes(one.memory),
            _say(one.seconds),
            _say(one.evaluation),
            format_bytes(one.sent) if one.sent else "",
            one.how if one.fits else "does not fit",
        )
    return table


def _say(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.3g}"


def _repeat(
    model: str | None, settings: tuple[str, ...], plugins: tuple[str, ...], *, draws: bool
) -> list[str]:
    """The given options to repeat in the recommended command; those of samplers only if it `draws` batches."""
    said = [word for plugin in plugins for word in ("--plugin", plugin)]
    said += [] if model is None else ["--model", model]
    kept = [one for one in settings if draws or not one.startswith(("sampler.", "features."))]
    return said + [word for setting in kept for word in ("--set", setting)]
