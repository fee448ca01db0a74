"""What commands do on one rank or many: the job is done here, by the ranks of a launcher, or by ranks started for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.distributed.transport import Transport
    from shoal.runs.config import RunConfig


def train_configured(config: RunConfig, folder: Path) -> None:
    """Train what a recipe describes, once or repeatedly; go on where the folder is there already."""
    from shoal.errors import ShoalError

    if config.method == "partitioned":
        raise ShoalError("trained across ranks: run it with `shoal train --recipe NAME`, or under torchrun")
    train_run(None if folder.exists() else config, folder)


def train_run(
    config: RunConfig | None, folder: Path, *, workers: int | None = None, epochs: int | None = None
) -> None:
    """Train a new run, or go on with the folder's where there is no config, to other `epochs` if given.

    Ranks are those that a launcher has started, or `workers` that are started here and get the configuration.
    """
    from shoal.datasets import check_known
    from shoal.runs.data import make_paths_absolute
    from shoal.runs.folder import read_any_config

    known = config if config is not None else read_any_config(folder)
    known.validate()
    count = _count_ranks(known, workers, is_new=config is not None)
    if config is not None:
        make_paths_absolute(config)
        if config.partition.folder is None:
            check_known(config.data)  # before ranks are started that would each say so
    job: dict[str, Any] = {"task": "train", "folder": str(folder), "epochs": epochs}
    if config is not None:
        job["config"] = config.to_dict()
    run_on_ranks(count, job)


def run_on_ranks(count: int, job: dict[str, Any]) -> None:
    """Do a job on `count` ranks started here, or on the ranks that a launcher has started, or alone."""
    import sys

    from shoal.distributed.detect import detect_launch
    from shoal.distributed.launch import joined_ranks, start_workers
    from shoal.memory import given_budget

    job = {**job, "memory": given_budget()}
    if count > 1 and detect_launch().size == 1:
        sys.exit(start_workers(count, job))
    with joined_ranks() as transport:
        do_job(job, transport)


def do_job(job: dict[str, Any], transport: Transport) -> None:
    """This rank's share of a job: training a run, writing what a trained one computes, or testing the network."""
    from shoal.commands.network import test_network
    from shoal.commands.node_files import write_rows
    from shoal.commands.runs import train_here
    from shoal.distributed.runtime import share_memory
    from shoal.runs.config import make_config

    share_memory(transport, job.get("memory"))
    if job["task"] == "doctor":
        test_network(None if job["save"] is None else Path(job["save"]), transport)
    elif job["task"] == "write":
        write_rows(Path(job["folder"]), Path(job["out"]), job["column"], transport)
    else:
        config = None if job.get("config") is None else make_config(job["config"])
        train_here(config, Path(job["folder"]), job["epochs"], transport)


def _count_ranks(config: RunConfig, workers: int | None, *, is_new: bool) -> int:
    """How many ranks train the run, refused where launcher, options and parts disagree."""
    from shoal.distributed.detect import detect_launch
    from shoal.errors import ShoalError

    launch = detect_launch()
    if launch.size > 1:
        if workers not in (None, launch.size):
            raise ShoalError(
                f"--workers {workers} in a group of {launch.size} ranks that {launch.launcher} started: leave it out"
            )
        return launch.size
    stored = _count_parts(config.partition.folder) or (None if is_new else config.num_ranks or 1)
    if stored is not None and workers not in (None, stored):
        if config.method == "partitioned":
            raise ShoalError(
                f"there are {stored} parts and --workers is {workers}: start {stored} ranks, or partition again"
            )
        raise ShoalError(
            f"the run was started on {stored} ranks and --workers is {workers}: start {stored} ranks, or a new run"
        )
    return workers or stored or config.num_ranks or 1


def _count_parts(folder: str | None) -> int | None:
    if folder is None:
        return None
    from shoal.partitioning.stored import read_manifest

    return int(read_manifest(Path(folder))["num_parts"])
