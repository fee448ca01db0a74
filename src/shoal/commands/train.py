"""`shoal train DATA`: trains a model and leaves a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.commands.completion import complete, list_data, list_models, list_recipe_names, list_samplers
from shoal.commands.listing import ListingCommand, json_option, memory_option, plugin_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.commands.listing import Rows
    from shoal.runs.config import RunConfig


_PATIENCE = "training.patience="


def _list_settings() -> Iterator[tuple[str, Rows]]:
    from shoal.commands.components import list_training

    return list_training()


@click.command(cls=ListingCommand, listing=_list_settings)
@click.argument("data", required=False, **complete(list_data, files=True))
@click.option(
    "--method",
    **complete(lambda: ("sampled", "full", "swapped", "partitioned")),
    help="sampled (mini-batches), full (full batch), swapped (full batch with parts in files, for graphs that do not fit in memory) or partitioned (full batch across ranks, a part on each; some options imply it)  [default: full or sampled, whichever fits the graph]",
)
@click.option(
    "--sampler",
    **complete(list_samplers),
    help="One of the samplers below; with method partitioned, ranks share its batches  [default: random-walk, none with method partitioned]",
)
@click.option(
    "--model", **complete(list_models), help="One of the models below  [default: chosen by the graph]"
)
@click.option(
    "--epochs", type=click.IntRange(min=1), help="Most epochs to train  [default: chosen by the graph]"
)
@click.option("--seed", type=int, help="Decides the initial weights and every batch  [default: 0]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Run folder to create  [default: runs/DATA-N, or runs/DATA-MODEL-N with --model]",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 4096),
    help="Ranks to start on this machine; implies method partitioned. With --method sampled or model sign each rank draws its own batches.",
)
@click.option(
    "--parts",
    metavar="DIR|N",
    help="Folder of stored parts (`shoal partition`), one for each rank; implies method partitioned. With --method swapped, stored parts of DATA or a number of parts  [default: 8]",
)
@click.option(
    "--boundary-rate",
    type=click.FloatRange(0, 1),
    help="Share of halo rows kept in each epoch, BNS-GCN's p; implies method partitioned  [default: 1]",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    help="Run folder to continue; with --workers or --parts, on another number of ranks.",
)
@click.option(
    "--checkpoint-minutes",
    type=click.FloatRange(0, min_open=True),
    help="Minutes between checkpoints inside an epoch; one is written after every epoch too  [default: 10]",
)
@click.option(
    "--max-restarts",
    type=click.IntRange(0, 1000),
    default=3,
    show_default=True,
    help="Most restarts of all --workers, from the last checkpoint, after one is lost.",
)
@click.option(
    "--recipe",
    metavar="NAME|FILE",
    **complete(list_recipe_names, files=True),
    help="A published configuration (`shoal recipes`), or your own as a YAML file.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    help="Train with this many seeds, one after the other, and report mean and deviation  [default: the recipe's, or 1]",
)
@json_option()
@click.option(
    "--live",
    is_flag=True,
    help="Show the run in a browser on this machine during training (docs/report.md).",
)
@click.option("--port", type=click.IntRange(0, 65535), help="Port of --live  [default: a free one]")
@click.option(
    "--report/--no-report",
    default=True,
    envvar="SHOAL_REPORT",
    help="Write the page report.html into the run folder at the end  [default: write it]",
)
@memory_option()
@plugin_option(expose=True)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other setting; may be repeated."
)
def train(
    data: str | None,
    method: str | None,
    sampler: str | None,
    model: str | None,
    epochs: int | None,
    seed: int | None,
    out: Path | None,
    workers: int | None,
    parts: str | None,
    boundary_rate: float | None,
    resume: Path | None,
    checkpoint_minutes: float | None,
    max_restarts: int,
    recipe: str | None,
    repeat: int | None,
    as_json: bool,
    live: bool,
    port: int | None,
    report: bool,
    plugins: tuple[str, ...],
    settings: tuple[str, ...],
) -> None:
    """Train a graph neural network on DATA.

    DATA is a data set's name, a stored graph, or a graph file. Settings that are not given follow from the graph's
    size and labels; the run reports which and why.

    \b
    Examples:
      shoal train digits
      shoal train my-graph/ --model gcn --epochs 100 --out runs/first
      shoal train my-graph/ --set sampler.roots=2000 --set model.hidden=128
      shoal train --resume runs/first --epochs 200 --set training.patience=50
      shoal train --recipe cora --repeat 5
      shoal train my-graph/ --live
      shoal train my-graph/ --workers 2 --boundary-rate 0.1
      shoal train my-graph/ --workers 2 --sampler node
      shoal train my-graph/ --method swapped --parts 16 --memory 4GB
      torchrun --nproc-per-node 4 -m shoal train --parts my-parts/

    srun and mpiexec start ranks too (docs/cluster.md).
    """
    from shoal.commands.jobs import train_run
    from shoal.errors import ShoalError
    from shoal.runs.choose import leave_open
    from shoal.runs.config import parse_value

    if port is not None and not live:
        raise ShoalError("--port is where --live listens: add --live")
    watched = (port or 0) if live else None
    if resume is not None:
        named: dict[str, object] = {
            "DATA": data,
            "--method": method,
            "--sampler": sampler,
            "--model": model,
            "--seed": seed,
            "--boundary-rate": boundary_rate,
            "--checkpoint-minutes": checkpoint_minutes,
            "--out": out,
            "--recipe": recipe,
            "--repeat": repeat,
            "--plugin": plugins or None,
        }
        given = [name for name, value in named.items() if value is not None]
        given += [f"--set {one}" for one in settings if not one.startswith(_PATIENCE)]
        if given:
            raise ShoalError(
                f"--resume keeps a run's configuration; only --epochs and --set {_PATIENCE}N may change: leave out {', '.join(given)}"
            )
        stored = None if parts is None else str(Path(parts).resolve())
        changes = {} if epochs is None else {"epochs": epochs}
        if settings:
            changes["patience"] = parse_value(settings[-1].removeprefix(_PATIENCE), f"--set {settings[-1]}")
        train_run(
            None,
            resume,
            workers=workers,
            changes=changes,
            parts=stored,
            max_restarts=max_restarts,
            as_json=as_json,
            report=report,
            live=watched,
        )
        return
    if parts is not None or (recipe is None and not (workers is None and boundary_rate is None)):
        method = method or ("sampled" if parts is None and trains_on_rows(model, settings) else "partitioned")
    source = data or (None if method == "swapped" else parts)
    config = configure(source, method, sampler, model, epochs, seed, recipe, settings, plugins)
    config.repeat = repeat or config.repeat
    if recipe is None and method is None and not any(one.startswith("method=") for one in settings):
        leave_open(config)
    if parts is not None:
        _give_parts(config, parts, data)
    if boundary_rate is not None:
        config.partition.boundary_rate = boundary_rate
        if config.method != "partitioned":
            raise ShoalError(f"--boundary-rate belongs to method partitioned, not to {config.method}")
    if checkpoint_minutes is not None:
        config.training.checkpoint_minutes = checkpoint_minutes
    if config.method in ("full", "swapped") and workers not in (None, 1):
        raise ShoalError(
            f"--workers needs method partitioned or sampled: method {config.method} trains in one process"
        )
    folder = out if out is not None else _next_folder(config)
    train_run(
        config,
        folder,
        workers=workers,
        max_restarts=max_restarts,
        as_json=as_json,
        report=report,
        live=watched,
    )


def trains_on_rows(model: str | None, settings: tuple[str, ...]) -> bool:
    """Whether the model trains on rows alone, without edges: ranks then hold no parts."""
    from shoal.models.conv import CONVS

    model = next((one.partition("=")[2] for one in settings if one.startswith("model.name=")), model)
    return model in CONVS and CONVS[str(model)].trains_on_rows


def _give_parts(config: RunConfig, parts: str, data: str | None) -> None:
    """Put --parts into the configuration: a folder, or a number to cut the graph into."""
    from shoal.errors import ShoalError

    if config.method == "swapped":
        if parts.isdecimal():
            config.partition.parts = int(parts)
        else:
            config.partition.folder = str(Path(parts).resolve())
        return
    if config.method != "partitioned":
        raise ShoalError(f"--parts belongs to methods partitioned and swapped, not to {config.method}")
    if parts.isdecimal() and not Path(parts).is_dir():
        raise ShoalError(
            f"--parts {parts} is no folder of stored parts: give --workers {parts} for {parts} ranks, or --method swapped for {parts} parts in files"
        )
    if data is not None and not config.partition.sampled:
        raise ShoalError(_explain_two_graphs(data, parts))
    config.partition.folder = str(Path(parts).resolve())


def _explain_two_graphs(data: str, parts: str) -> str:
    """Why DATA and --parts are not taken together: the parts hold the graph, or another one."""
    from shoal.errors import ShoalError
    from shoal.partitioning.manifest import is_of_another, read_manifest

    surplus = "leave out DATA, which only a --sampler reads"
    try:
        manifest = read_manifest(parts)
    except ShoalError:
        return f"--parts holds the graph to train on: {surplus}"
    graph = f"{manifest['name'] or 'a graph'} of {manifest['num_nodes']:,} nodes"
    if is_of_another(manifest, data):
        return (
            f"--parts {parts} holds another graph than {data} ({graph}): leave out DATA to train on these parts, "
            f"or partition {data} and name its parts"
        )
    return f"--parts holds the graph to train on ({graph}): {surplus}"


def configure(
    data: str | None,
    method: str | None,
    sampler: str | None,
    model: str | None,
    epochs: int | None,
    seed: int | None,
    recipe: str | None,
    settings: tuple[str, ...],
    plugins: tuple[str, ...] = (),
) -> RunConfig:
    """The recipe, overridden by options, overridden by --set; without a recipe the rest follows from the graph."""
    from shoal.errors import ShoalError
    from shoal.runs.config import FROM_GRAPH, RunConfig, apply_setting, read_config
    from shoal.runs.recipes import find_recipe

    config = read_config(find_recipe(recipe)) if recipe is not None else RunConfig(defaults=FROM_GRAPH)
    config.plugins += [plugin for plugin in plugins if plugin not in config.plugins]
    if data not in (None, config.data):
        config.data_options = {}  # those of the recipe are for other data
        config.target.clear()
    config.data = data or config.data
    config.method = method or config.method
    if method in ("full", "partitioned", "swapped") or sampler not in (None, config.sampler.name):
        config.sampler.clear("name")  # settings of the recipe are for another sampler
    for section, name, value in (
        (config.sampler, "name", sampler),
        (config.model, "name", model),
        (config.training, "epochs", epochs),
        (config.training, "seed", seed),
    ):
        if value is not None:
            setattr(section, name, value)
    for setting in settings:
        apply_setting(config, setting)
    if config.method == "partitioned" and sampler is not None:
        config.partition.sampled = True
    if config.method in ("full", "swapped") and sampler is not None:
        raise ShoalError(f"method {config.method} trains on the whole graph every step: leave out --sampler")
    if not config.data:
        raise ShoalError("no data given: name a data set (`shoal data list`), a stored graph or a graph file")
    return config


def _next_folder(config: RunConfig) -> Path:
    """runs/DATA-N, or runs/DATA-MODEL-N if a model is given. N is the first that is free, or that of a run which this job started before."""
    from shoal.runs.config import FIXED
    from shoal.runs.data import make_paths_absolute
    from shoal.runs.folder import is_of_this_job

    make_paths_absolute(config)
    stem = Path(config.data).resolve().name.split(".")[0]
    if config.defaults == FIXED or "name" in config.model.given:
        stem = f"{stem}-{config.model.name}"
    number = 1
    while (folder := Path("runs") / f"{stem}-{number}").exists() and not is_of_this_job(folder, config):
        number += 1
    return folder
