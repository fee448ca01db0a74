"""`shoal embed RUN` and `shoal predict RUN`: every node's vector or label from a trained run."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.commands.listing import memory_option

_RUN = click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
_OUT = click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), help="File to write: .npy or .parquet."
)


@click.command()
@_RUN
@_OUT
@memory_option()
def embed(folder: Path, out: Path) -> None:
    """Write every node's embedding, computed with the best weights of RUN.

    \b
    Example:
      shoal embed runs/digits-sage-1 -o embeddings.npy
      shoal embed runs/large-sage-1 -o embeddings.npy --memory 4GB

    Killed, it goes on behind the last layer that was finished in files when it is started again.
    """
    _write(folder, out, "embedding")


@click.command()
@_RUN
@_OUT
@memory_option()
def predict(folder: Path, out: Path) -> None:
    """Write every node's predicted label, computed with the best weights of RUN.

    \b
    Example:
      shoal predict runs/digits-sage-1 -o labels.parquet
      shoal predict runs/large-sage-1 -o labels.npy --memory 4GB

    Killed, it goes on behind the last layer that was finished in files when it is started again.
    """
    _write(folder, out, "label")


def _write(folder: Path, out: Path, column: str) -> None:
    from shoal.commands.jobs import run_on_ranks
    from shoal.commands.node_files import check_output
    from shoal.runs.folder import read_run_config

    check_output(out)
    config = read_run_config(folder)
    count = (config.num_ranks or 1) if config.method == "partitioned" else 1
    run_on_ranks(count, {"task": "write", "folder": str(folder), "out": str(out), "column": column})
