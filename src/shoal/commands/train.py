"""`shoal train DATA`: trains a model and leaves a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.commands.listing import ListingCommand, memory_option, plugin_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.commands.listing import Rows
    from shoal.runs.config import RunConfig


def _list_settings() -> Iterator[tuple[str, Rows]]:
    from shoal.commands.components import list_training

    return list_training()


@click.command(cls=ListingCommand, listing=_list_settings)
@click.argument("data", required=False)
@click.option(
    "--method",
    help="sampled (subgraph mini-batches), full (the whole graph every step) or partitioned (the whole graph, shared among ranks; implied by the options below that name it)  [default: sampled]",
)
@click.option(
    "--sampler",
    help="How batches are drawn, one of the samplers below; method partitioned takes the whole graph every step unless one is given  [default: random-walk]",
)
@click.option("--model", help="One of the models below  [default: sage]")
@click.option("--epochs", type=click.IntRange(min=1), help="Most epochs to train  [default: 50]")
@click.option("--seed", type=int, help="Decides the initial weights and every batch  [default: 0]")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Run folder to make  [default: runs/DATA-MODEL-N]"
)
@click.option(
    "--workers",
    type=click.IntRange(1, 4096),
    help="Ranks to start on this machine; implies method partitioned (with --method sampled each rank draws batches of its own).",
)
@click.option(
    "--parts",
    type=click.Path(path_type=Path),
    help="Folder of stored parts (`shoal partition`), one for each rank; implies method partitioned.",
)
@click.option(
    "--boundary-rate",
    type=click.FloatRange(0, 1),
    help="Share of the rows of other ranks that each epoch keeps, BNS-GCN's p; implies method partitioned  [default: 1]",
)
@click.option("--resume", type=click.Path(path_type=Path), help="Run folder to continue.")
@click.option(
    "--recipe",
    metavar="NAME|FILE",
    help="A published configuration (`shoal recipes`), or your own as a YAML file.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    help="Train with this many seeds, one after the other, and tell mean and deviation  [default: the recipe's, or 1]",
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
    parts: Path | None,
    boundary_rate: float | None,
    resume: Path | None,
    recipe: str | None,
    repeat: int | None,
    plugins: tuple[str, ...],
    settings: tuple[str, ...],
) -> None:
    """Train a graph neural network on DATA: a data set's name, a stored graph, or a graph file.

    \b
    Examples:
      shoal train digits
      shoal train my-graph/ --model gcn --epochs 100 --out runs/first
      shoal train my-graph/ --set sampler.roots=2000 --set model.hidden=128 --set training.lr=0.003
      shoal train --resume runs/first --epochs 200
      shoal train --recipe cora --repeat 5
      shoal train my-graph/ --workers 2 --boundary-rate 0.1
      shoal train my-graph/ --workers 2 --sampler node
      torchrun --nproc-per-node 4 -m shoal train --parts my-parts/       (also srun, mpiexec: docs/cluster.md)
    """
    from shoal.commands.jobs import train_run
    from shoal.errors import ShoalError

    if resume is not None:
        named: dict[str, object] = {
            "DATA": data,
            "--method": method,
            "--sampler": sampler,
            "--model": model,
            "--seed": seed,
            "--parts": parts,
            "--boundary-rate": boundary_rate,
            "--out": out,
            "--recipe": recipe,
            "--repeat": repeat,
            "--plugin": plugins or None,
            "--set": settings or None,
        }
        given = [name for name, value in named.items() if value is not None]
        if given:
            raise ShoalError(f"--resume continues a run as it was configured: leave out {', '.join(given)}")
        train_run(None, resume, workers=workers, epochs=epochs)
        return
    if parts is not None or (recipe is None and not (workers is None and boundary_rate is None)):
        method = method or "partitioned"
    source = data or (None if parts is None else str(parts))
    config = configure(source, method, sampler, model, epochs, seed, recipe, settings, plugins)
    if parts is not None and data is not None and not config.partition.sampled:
        raise ShoalError("--parts holds the graph to train on: leave out DATA, which only a --sampler reads")
    config.repeat = repeat or config.repeat
    if parts is not None:
        config.partition.folder = str(parts.resolve())
    if boundary_rate is not None:
        config.partition.boundary_rate = boundary_rate
    if config.method != "partitioned" and not (parts is None and boundary_rate is None):
        raise ShoalError(f"--parts and --boundary-rate belong to method partitioned, not to {config.method}")
    if config.method == "full" and workers not in (None, 1):
        raise ShoalError("--workers needs method partitioned or sampled: method full trains in one process")
    train_run(config, out if out is not None else _next_folder(config), workers=workers)


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
    """The recipe, overridden by options, overridden by --set."""
    from shoal.errors import ShoalError
    from shoal.runs.config import RunConfig, apply_setting, read_config
    from shoal.runs.recipes import find_recipe

    config = read_config(find_recipe(recipe)) if recipe is not None else RunConfig()
    config.plugins += [plugin for plugin in plugins if plugin not in config.plugins]
    if data not in (None, config.data):
        config.data_options = {}  # the recipe's, which belong to other data
        config.target.clear()
    config.data = data or config.data
    config.method = method or config.method
    if method in ("full", "partitioned") or sampler not in (None, config.sampler.name):
        config.sampler.clear("name")  # the recipe's, which belong to another sampler
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
    if config.method == "full" and sampler is not None:
        raise ShoalError(f"method {config.method} trains on the whole graph every step: leave out --sampler")
    if not config.data:
        raise ShoalError("no data given: name a data set (`shoal data list`), a stored graph or a graph file")
    return config


def _next_folder(config: RunConfig) -> Path:
    """runs/DATA-MODEL-N with the first N that is free."""
    stem = f"{Path(config.data).resolve().name.split('.')[0]}-{config.model.name}"
    number = 1
    while (folder := Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return folder
