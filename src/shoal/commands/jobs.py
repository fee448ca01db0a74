"""Run a command's job in this process, on the ranks of a launcher, or on ranks started for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.distributed.transport import Transport
    from shoal.runs.config import RunConfig


def train_configured(config: RunConfig, folder: Path) -> None:
    """Train a recipe, once or with several seeds; resume if the folder exists."""
    from shoal.errors import ShoalError

    if config.method == "partitioned":
        raise ShoalError(
            "the recipe trains across ranks: run it with `shoal train --recipe NAME`, or under torchrun"
        )
    train_run(None if folder.exists() else config, folder)


def train_run(
    config: RunConfig | None,
    folder: Path,
    *,
    workers: int | None = None,
    changes: dict[str, Any] | None = None,
    parts: str | None = None,
    max_restarts: int = 0,
    as_json: bool = False,
    report: bool = False,
    live: int | None = None,
) -> None:
    """Train a new run in `folder`, or resume the one in it.

    Ranks are those of a launcher, or `workers` that are started here.

    Args:
        config: of a new run; None resumes.
        changes: training settings that change when a run is resumed.
        parts: folder of other parts to resume on.
        max_restarts: how often all workers are restarted after one is lost.
        report: whether rank 0 writes a page at the end.
        live: port on which rank 0 shows the run during training.
    """
    from shoal.datasets import check_known
    from shoal.errors import ShoalError
    from shoal.runs.data import make_paths_absolute
    from shoal.runs.folder import REPEAT, read_any_config

    if config is None and parts is not None and (folder / REPEAT).is_file():
        raise ShoalError(
            f"{folder} holds repeated runs, which resume on the parts they have: leave out --parts"
        )
    known = config if config is not None else read_any_config(folder)
    known.validate()
    count = _count_ranks(known, workers, parts)
    if config is not None:
        make_paths_absolute(config)
        if config.partition.folder is None or config.method == "swapped":
            check_known(config.data)  # before ranks are started, each of which would report the error
    if live is not None:
        live = _choose_port(live)
    job: dict[str, Any] = {"task": "train", "folder": str(folder), "changes": changes or {}, "parts": parts}
    job |= {"json": as_json, "report": report, "live": live}
    if config is not None:
        job["config"] = config.to_dict()
    run_on_ranks(count, job, max_restarts=max_restarts)


def run_on_ranks(count: int, job: dict[str, Any], *, max_restarts: int = 0) -> None:
    """Run a job on `count` ranks started here, on the ranks of a launcher, or in this process."""
    import sys

    from shoal.distributed.detect import detect_launch
    from shoal.distributed.launch import joined_ranks
    from shoal.distributed.workers import start_workers
    from shoal.memory import given_budget

    job = {**job, "memory": given_budget()}
    if count > 1 and detect_launch().size == 1:
        sys.exit(start_workers(count, job, max_restarts=max_restarts))
    with joined_ranks() as transport:
        do_job(job, transport)


def do_job(job: dict[str, Any], transport: Transport) -> None:
    """Run this rank's share of a job: train a run, write embeddings or predictions, or test the network."""
    from shoal.commands.network import test_network
    from shoal.commands.node_files import write_new_rows, write_rows
    from shoal.commands.runs import train_here
    from shoal.commands.smoothed import write_smoothed
    from shoal.distributed.runtime import share_memory
    from shoal.runs.config import make_config

    share_memory(transport, job.get("memory"), job.get("launcher", 0))
    as_json = job.get("json", False)
    if job["task"] == "doctor":
        save = None if job["save"] is None else Path(job["save"])
        test_network(save, transport, as_json=as_json)
    elif job["task"] == "wire":
        from shoal.analysis.calibration import measure_wire

        measure_wire(transport, Path(job["save"]))
    elif job["task"] == "smooth":
        if transport.rank == 0:
            write_smoothed(
                Path(job["folder"]), Path(job["out"]), with_validation=job["validation"], as_json=as_json
            )
    elif job["task"] == "write" and job.get("data") is not None:
        if transport.rank == 0:  # a single process loads it, even under a launcher
            options = job.get("options", {})
            write_new_rows(
                Path(job["folder"]), Path(job["out"]), job["column"], job["data"], options, as_json=as_json
            )
    elif job["task"] == "write":
        write_rows(Path(job["folder"]), Path(job["out"]), job["column"], transport, as_json=as_json)
    else:
        config = None if job.get("config") is None else make_config(job["config"])
        if config is not None:
            config.validate()  # loads its plug-ins
        shown = {
            "as_json": as_json,
            "report": job.get("report", False),
            "live": job.get("live"),
        }
        train_here(config, Path(job["folder"]), job["changes"], transport, job.get("parts"), **shown)


def _choose_port(port: int) -> int:
    """The port of the live view, which restarts keep. Raises if it is taken, before anything starts.

    Only rank 0 checks it: no other rank listens.
    """
    from shoal.distributed.detect import detect_launch
    from shoal.report.live import choose_port
    from shoal.report.svg import require_matplotlib

    require_matplotlib("the live view")
    return choose_port(port) if detect_launch().rank == 0 else port


def _count_ranks(config: RunConfig, workers: int | None, parts: str | None) -> int:
    """Number of ranks that train the run. Raises if launcher, options and parts disagree."""
    from shoal.distributed.detect import detect_launch
    from shoal.errors import ShoalError

    launch = detect_launch()
    if launch.size > 1:
        if workers not in (None, launch.size):
            raise ShoalError(
                f"--workers is {workers} and {launch.launcher} has started {launch.size} ranks: leave out --workers"
            )
        return launch.size
    folder = config.partition.folder if config.method == "partitioned" else None
    stored = _count_parts(parts or folder)
    if stored is not None and workers not in (None, stored):
        raise ShoalError(
            f"there are {stored} parts and --workers is {workers}: start {stored} ranks, or partition again"
        )
    return workers or stored or config.num_ranks or 1


def _count_parts(folder: str | None) -> int | None:
    if folder is None:
        return None
    from shoal.partitioning.manifest import read_manifest

    return int(read_manifest(Path(folder))["num_parts"])
