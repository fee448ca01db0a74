"""`shoal embed RUN` and `shoal predict RUN`: every node's vector or label from a trained run."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.commands.listing import json_option, memory_option

_RUN = click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
_OUT = click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="File to write: .npy, .parquet or .csv.",
)
_DATA = click.option(
    "--data",
    metavar="NEW",
    help="Another graph with the same features, in place of the run's: a name, a stored graph or a graph file.",
)
_OPTIONS = click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of NEW's format; repeatable."
)


@click.command()
@_RUN
@_OUT
@_DATA
@_OPTIONS
@json_option()
@memory_option()
def embed(folder: Path, out: Path, data: str | None, options: tuple[str, ...], as_json: bool) -> None:
    """Write every node's embedding to a file.

    Embeddings are computed with the best weights of RUN. A killed command, started again, resumes after the last
    finished layer.

    \b
    Examples:
      shoal embed runs/digits-1 -o embeddings.npy
      shoal embed runs/large-1 -o embeddings.npy --memory 4GB
      shoal embed runs/first --data new-graph/ -o new.parquet
    """
    _write(folder, out, "embedding", data, options, as_json=as_json)


@click.command()
@_RUN
@_OUT
@_DATA
@_OPTIONS
@click.option(
    "--probabilities",
    is_flag=True,
    help="Write the probability of every class: columns named by class, or the array (nodes, classes) as .npy.",
)
@click.option(
    "--smooth",
    is_flag=True,
    help="Correct & Smooth: propagate errors and labels of training nodes, with settings chosen on validation nodes; used only if the validation score rises.",
)
@click.option(
    "--smooth-with-validation",
    is_flag=True,
    help="--smooth, and propagate the labels of validation nodes too once settings are chosen.",
)
@json_option()
@memory_option()
def predict(
    folder: Path,
    out: Path,
    data: str | None,
    options: tuple[str, ...],
    probabilities: bool,
    smooth: bool,
    smooth_with_validation: bool,
    as_json: bool,
) -> None:
    """Write every node's predicted label to a file.

    Labels are computed with the best weights of RUN. A killed command, started again, resumes after the last
    finished layer. With --data the table has the node ids of NEW and the class names of RUN; labels of NEW are not
    read.

    \b
    Examples:
      shoal predict runs/digits-1 -o labels.parquet
      shoal predict runs/digits-1 -o labels.csv --probabilities
      shoal predict runs/digits-1 -o labels.parquet --smooth
      shoal predict runs/large-1 -o labels.npy --memory 4GB
      shoal predict runs/first --data new-graph/ -o new.parquet
    """
    from shoal.errors import ShoalError

    if not (smooth or smooth_with_validation):
        _write(folder, out, "probability" if probabilities else "label", data, options, as_json=as_json)
    elif probabilities:
        raise ShoalError(
            "--smooth computes scores that are no probabilities: leave out --probabilities, or --smooth"
        )
    else:
        _smooth(folder, out, smooth_with_validation, data, as_json=as_json)


def _smooth(folder: Path, out: Path, with_validation: bool, data: str | None, *, as_json: bool) -> None:
    from shoal.commands.jobs import run_on_ranks
    from shoal.commands.node_files import check_output
    from shoal.errors import ShoalError

    check_output(out)
    if data is not None:
        raise ShoalError("--smooth propagates labels of the run's own graph: leave out --data, or --smooth")
    job = {"task": "smooth", "folder": str(folder), "out": str(out), "validation": with_validation}
    run_on_ranks(1, {**job, "json": as_json})


def _write(
    folder: Path, out: Path, column: str, data: str | None, options: tuple[str, ...], *, as_json: bool
) -> None:
    from shoal.commands.jobs import run_on_ranks
    from shoal.commands.node_files import check_output
    from shoal.commands.sample import parse_options
    from shoal.datasets import check_known
    from shoal.errors import ShoalError
    from shoal.runs.folder import read_run_config

    check_output(out)
    config = read_run_config(folder)
    job = {"task": "write", "folder": str(folder), "out": str(out), "column": column, "json": as_json}
    if data is not None:  # a single process loads it
        check_known(data)
        run_on_ranks(1, {**job, "data": data, "options": parse_options(options)})
        return
    if options:
        raise ShoalError(
            f"--option {options[0]} is an option of --data NEW: add --data, or leave out --option"
        )
    run_on_ranks((config.num_ranks or 1) if config.method == "partitioned" else 1, job)
