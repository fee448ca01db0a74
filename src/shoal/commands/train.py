"""`shoal train DATA`: trains a model and leaves a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from shoal.runs.config import RunConfig


@click.command()
@click.argument("data", required=False)
@click.option(
    "--method",
    help="sampled (subgraph mini-batches), full (the whole graph every step) or partitioned (the whole graph, shared among ranks; implied by the options below that name it)  [default: sampled]",
)
@click.option(
    "--sampler",
    help="How batches are drawn: frontier, random-walk, edge, node, neighbor, … (docs/samplers.md); method partitioned takes the whole graph every step unless one is given  [default: random-walk]",
)
@click.option("--model", help="sage, gcn, mixhop, gat, or mlp (no edges: the baseline)  [default: sage]")
@click.option("--epochs", type=click.IntRange(min=1), help="Most epochs to train  [default: 50]")
@click.option("--seed", type=int, help="Decides the initial weights and every batch  [default: 0]")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Run folder to make  [default: runs/DATA-MODEL-N]"
)
@click.option(
    "--workers",
    type=click.IntRange(1, 4096),
    help="Ranks to start on this machine; implies method partitioned.",
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

    \b
    Settings for --set (and keys of a recipe), with their defaults:
      model.hidden=256 model.num_layers=2 model.orders=null (1-0-1-0: aggregation, dense, …)
      model.norm=layer|batch|none model.norm_first=false (true: before the ReLU) model.dropout=0.1 model.input_dropout=0
      model.residual=false model.jumping=none|concat|max model.l2_normalize=false
      model.head_layers=1 (0: the last layer gives the logits) model.heads=4
      sampler.roots=3000 sampler.depth=2 sampler.coverage=null (50: normalised); others: docs/samplers.md
      training.optimizer=adam|adamw training.lr=0.01 training.weight_decay=0 training.clip=null
      training.schedule=constant|cosine|linear|step training.warmup=0
      training.class_weights=null (balanced, or [1.0, 2.5, …]) training.patience=10
      training.metric=null (f1_micro, f1_macro, accuracy, roc_auc: decides which weights are best)
      training.eval_every=1 training.setting=transductive|inductive training.threads=null
      training.sampling_threads=0 (threads that draw batches ahead of the step)
      partition.method=auto partition.exchange=p2p|broadcast partition.messages=float32|bfloat16
      partition.boundary_rate=1 partition.last_boundary_rate=null (reached in equal steps over the epochs)
      partition.boundary_sampling=nodes|edges|dropedge partition.sampled=false (true: batches of the sampler)
      data.KEY=VALUE for a generator's or importer's own options
    """
    from shoal.commands.runs import continue_run, is_partitioned, start_run, train_ranks
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
        }
        named |= {"--out": out, "--recipe": recipe, "--repeat": repeat, "--set": settings or None}
        given = [name for name, value in named.items() if value is not None]
        if given:
            raise ShoalError(f"--resume continues a run as it was configured: leave out {', '.join(given)}")
        if is_partitioned(resume):
            train_ranks(None, resume, workers, epochs)
            return
        if workers is not None:
            raise ShoalError(f"--workers belongs to method partitioned: {resume} was not trained with it")
        continue_run(resume, epochs)
        return
    if parts is not None or (recipe is None and not (workers is None and boundary_rate is None)):
        method = method or "partitioned"
    source = data or (None if parts is None else str(parts))
    config = configure(source, method, sampler, model, epochs, seed, recipe, settings)
    if parts is not None and data is not None and not config.partition.sampled:
        raise ShoalError("--parts holds the graph to train on: leave out DATA, which only a --sampler reads")
    config.repeat = repeat or config.repeat
    config.partition.folder = str(parts.resolve()) if parts is not None else config.partition.folder
    if boundary_rate is not None:
        config.partition.boundary_rate = boundary_rate
    folder = out if out is not None else _next_folder(config)
    if config.method == "partitioned":
        config.validate()
        train_ranks(config, folder, workers, None)
        return
    _refuse_launcher(config.method)
    if workers is not None or parts is not None or boundary_rate is not None:
        raise ShoalError(
            f"--workers, --parts and --boundary-rate belong to method partitioned, not to {config.method}"
        )
    start_run(config, folder)


def _refuse_launcher(method: str) -> None:
    """Ranks of a launcher would each train the same run and write the same folder."""
    from shoal.distributed.detect import detect_launch
    from shoal.errors import ShoalError

    launch = detect_launch()
    if launch.size > 1:
        raise ShoalError(
            f"method {method} trains in one process and {launch.launcher} started {launch.size}: add --method partitioned, or start it alone"
        )


def configure(
    data: str | None,
    method: str | None,
    sampler: str | None,
    model: str | None,
    epochs: int | None,
    seed: int | None,
    recipe: str | None,
    settings: tuple[str, ...],
) -> RunConfig:
    """The recipe, overridden by options, overridden by --set."""
    from shoal.errors import ShoalError
    from shoal.runs.config import RunConfig, TargetConfig, apply_setting, read_config
    from shoal.runs.recipes import find_recipe

    config = read_config(find_recipe(recipe)) if recipe is not None else RunConfig()
    if data not in (None, config.data):
        config.data_options = {}  # the recipe's, which belong to other data
        config.target = TargetConfig()
    config.data = data or config.data
    config.method = method or config.method
    if method in ("full", "partitioned") or sampler not in (None, config.sampler.name):
        config.sampler.options = {}  # the recipe's, which belong to another sampler
    config.sampler.name = sampler or config.sampler.name
    config.model.name = model or config.model.name
    config.training.epochs = epochs or config.training.epochs
    config.training.seed = config.training.seed if seed is None else seed
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
