"""Shared by commands that store a graph: checking the target folder, and the summary at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def check_target(folder: Path, overwrite: bool) -> None:
    """Raise if the folder cannot be written, before any work is done."""
    from shoal.datasets.places import is_stored
    from shoal.errors import ShoalError
    from shoal.files import check_place
    from shoal.kernels.jit import load_kernels
    from shoal.lock import writing
    from shoal.memory import BUILDING, require_memory

    if folder.exists() and not overwrite:
        with writing(folder):  # removes what a killed writer left beside it
            pass
        raise ShoalError(f"{folder} exists already: choose another name, or add --overwrite")
    check_place(folder)
    if folder.exists() and not is_stored(folder):
        raise ShoalError(f"{folder} is not a stored graph: refusing to overwrite it")
    load_kernels()
    require_memory(BUILDING, f"storing {folder}")


def describe_stored(folder: Path) -> dict[str, Any]:
    """The figures of a stored graph that `--json` prints."""
    from shoal.store import read_meta

    meta = read_meta(folder)
    sizes = ("name", "num_nodes", "num_edges", "num_features", "num_classes", "directed")
    return {"folder": folder} | {name: meta[name] for name in sizes} | {"notices": list(meta["notices"])}


def report_stored(folder: Path, argument: str, *, as_json: bool = False, like: str | None = None) -> None:
    """Print what was stored, what was repaired on import, and the next command.

    A graph encoded `like` another one is there to predict on.
    """
    from shoal.commands.screen import open_console, print_json
    from shoal.labels import describe_outputs
    from shoal.store import read_meta, stores_targets

    if as_json:
        print_json(describe_stored(folder))
        return
    console, meta = open_console(), read_meta(folder)
    regression = stores_targets(meta)
    console.notice(*meta["notices"])
    if like is None and meta["num_classes"] and "train_mask" not in meta["arrays"]:
        console.notice("no split given: 60 / 20 / 20 percent are drawn with seed 0 when training starts")
    console.say(
        f"stored {meta['name']} in {folder}: {meta['num_nodes']:,} nodes, {meta['num_edges']:,} edges, "
        f"{meta['num_features']:,} features, {describe_outputs(meta['num_classes'], regression=regression)}"
    )
    lacks = [what for what in ("features", "classes") if not meta[f"num_{what}"]]
    if like is not None:
        console.say(
            f"next: shoal predict RUN --data {argument} -o FILE (RUN: a run that was trained on {like})"
        )
    elif lacks:
        said = " and ".join(lacks).replace("classes", "labels")
        console.say(f"next: shoal data info {argument} (training needs {said}, which this graph lacks)")
        if "classes" in lacks and "encoding" in meta:
            console.say(
                "tables have their labels in a column label, y, class or target, or in the one that --label names"
            )
    else:
        console.say(f"next: shoal train {argument}")
