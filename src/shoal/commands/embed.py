"""`shoal embed RUN` and `shoal predict RUN`: every node's vector or label from a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from shoal.runs.run import Run

_RUN = click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
_OUT = click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), help="File to write: .npy or .parquet."
)


@click.command()
@_RUN
@_OUT
def embed(folder: Path, out: Path) -> None:
    """Write every node's embedding, computed with the best weights of RUN.

    \b
    Example:
      shoal embed runs/digits-sage-1 -o embeddings.npy
    """
    _write(folder, out, "embedding")


@click.command()
@_RUN
@_OUT
def predict(folder: Path, out: Path) -> None:
    """Write every node's predicted label, computed with the best weights of RUN.

    \b
    Example:
      shoal predict runs/digits-sage-1 -o labels.parquet
    """
    _write(folder, out, "label")


def _write(folder: Path, out: Path, column: str) -> None:
    import torch
    from rich.progress import Progress

    from shoal.commands.node_files import check_output, map_rows, write_nodes
    from shoal.commands.runs import is_partitioned
    from shoal.commands.screen import open_console
    from shoal.runs.run import Run

    check_output(out)
    if (folder / "config.yaml").is_file() and is_partitioned(folder):
        _write_ranks(folder, out, column)
        return
    run = Run.open(folder)
    _check_trained(run)
    run.trainer.restore_best()
    console = open_console()
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("computing", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        trainer = run.trainer
        if column == "embedding" and out.suffix == ".npy":
            with map_rows(out, run.graph.num_nodes, trainer.model.embedding_width) as rows:
                shape = tuple(trainer.embed(show, out=torch.from_numpy(rows)).shape)
        else:
            values = trainer.embed(show) if column == "embedding" else trainer.predict(show)
            write_nodes(out, column, values.numpy(), run.graph)
            shape = tuple(values.shape)
    console.print(f"{out}: {shape[0]:,} nodes, {column} {shape}", markup=False)


def _write_ranks(folder: Path, out: Path, column: str) -> None:
    """The same on the ranks that hold the run's parts, each writing its rows; started here if they are not yet."""
    import sys

    from shoal.commands.node_files import check_output, write_part_rows
    from shoal.commands.screen import open_console
    from shoal.distributed.detect import detect_launch
    from shoal.distributed.launch import joined_ranks, start_workers
    from shoal.errors import ShoalError
    from shoal.runs.config import read_config
    from shoal.runs.partitioned_run import PartitionedRun

    if out.suffix == ".parquet":
        raise ShoalError(f"{out}: the ranks of a partitioned run write one .npy file together: name one")
    check_output(out, (".npy",))
    count = read_config(folder / "config.yaml").partition.parts or 1
    if detect_launch().size == 1 and count > 1:
        sys.exit(start_workers(count, sys.argv[1:]))
    with joined_ranks() as transport:
        run = PartitionedRun.go_on(folder, transport)
        _check_trained(run)
        run.trainer.restore_best()
        values = run.trainer.embed() if column == "embedding" else run.trainer.predict()
        write_part_rows(out, values.numpy(), run.part, transport)
        if transport.rank == 0:
            shape = (run.part.num_global_nodes, *values.shape[1:])
            open_console().print(f"{out}: {shape[0]:,} nodes, {column} {shape}", markup=False)


def _check_trained(run: Run) -> None:
    from shoal.errors import ShoalError

    if run.trainer.epoch == 0:
        raise ShoalError(
            f"{run.folder} has no checkpoint yet: train it first with `shoal train --resume {run.folder}`"
        )
