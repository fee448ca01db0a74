"""`shoal recipes`: lists the published configurations, and runs those whose data is here."""

from __future__ import annotations

import copy
import json
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.commands.completion import complete, list_recipe_names
from shoal.commands.listing import json_option
from shoal.wording import count

if TYPE_CHECKING:
    from shoal.runs.config import RunConfig

TABLE = "table.md"


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", **complete(list_recipe_names))
@click.option("--run", "train", is_flag=True, help="Train those whose data is here, and write a table.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/recipes"),
    show_default=True,
    help="Folder for the run folders and the table; finished runs are kept unless their recipe changed.",
)
@json_option()
def recipes(names: tuple[str, ...], train: bool, out: Path, as_json: bool) -> None:
    """List or train published configurations with target scores.

    \b
    Examples:
      shoal recipes
      shoal train --recipe cora --repeat 5
      shoal recipes --run cora pubmed
    """
    from shoal.commands.data_tables import where_is
    from shoal.commands.screen import open_console, plain_table, print_json
    from shoal.runs.config import read_config
    from shoal.runs.recipes import find_recipe, list_recipes

    files = [find_recipe(name) for name in names or list_recipes()]
    chosen = {path.stem: read_config(path) for path in files}
    if train:
        _run_all(chosen, out, as_json=as_json)
        return
    listed = [
        {
            "recipe": name,
            "data": config.data,
            "where": where_is(config.data),
            **_read_method(config),
            "metric": config.target.metric,
            "target": config.target.score,
            "deviation": config.target.deviation,
            "source": config.target.source,
        }
        for name, config in chosen.items()
    ]
    if as_json:
        print_json(listed)
        return
    wide = ("layers", "data", "from")
    table = plain_table("recipe", "model", "batches", "where", "target", *wide, right=("target",), wide=wide)
    for one, config in zip(listed, chosen.values()):
        model, batches, target = one["model"], one["batches"], _format_target(config)
        rest = one["layers"] or "", one["data"], one["source"] or ""
        table.add_row(one["recipe"], model, batches, one["where"], target, *rest)
    open_console().print(table)


def _run_all(chosen: dict[str, RunConfig], out: Path, *, as_json: bool) -> None:
    from shoal.commands.jobs import train_configured
    from shoal.commands.screen import open_console, print_json
    from shoal.errors import ShoalError

    console = open_console(stderr=as_json)
    rows: list[dict[str, Any]] = []
    for name, config in chosen.items():
        if not _is_here(config):
            console.say(f"{name}: skipped, {config.data} is not on this machine")
            continue
        console.say(f"\n{name}", style="bold")
        try:
            if changes := find_changes(config, out / name):
                kept = _set_aside(out / name)
                console.say(
                    f"the recipe has changed ({', '.join(changes)}): the old run is now in {kept}, training a new one",
                )
            with redirect_stdout(sys.stderr) if as_json else nullcontext():
                train_configured(config, out / name)
        except ShoalError as error:
            console.say(f"{name}: {error}")
            rows.append({"recipe": name, "data": config.data, "how": _describe(config), "result": str(error)})
            continue
        rows.append(_summarize(name, config, out / name))
    text = format_table(rows)
    if rows:
        out.mkdir(parents=True, exist_ok=True)
        (out / TABLE).write_text(text)
        (out / "table.json").write_text(json.dumps(rows, indent=2) + "\n")
        console.say(f"\n{text}\n{out / TABLE}")
    if as_json:
        print_json(rows)


def _summarize(name: str, config: RunConfig, folder: Path) -> dict[str, Any]:
    """Results of a finished recipe: the score over its seeds and the time of an epoch."""
    from shoal.runs.folder import METRICS, read_metrics
    from shoal.runs.repeat import summarize_scores
    from shoal.training.metrics import reaches

    folders = sorted(folder.glob("seed-*")) or [folder]
    summary = summarize_scores(folders)
    metric = config.target.metric or next(iter(summary))[5:]
    scores = summary[f"test_{metric}"]
    epochs = [record["seconds"] for one in folders for record in read_metrics(one / METRICS)[:-1]]
    target = config.target.score
    return {
        "recipe": name,
        "data": config.data,
        "how": _describe(config),
        "metric": metric,
        "target": _format_target(config),
        "score": scores["mean"],
        "deviation": scores["deviation"],
        "seeds": len(folders),
        "reached": None
        if target is None
        else reaches(metric, scores["mean"], target, config.target.deviation),
        "seconds_per_epoch": sorted(epochs)[len(epochs) // 2],
        "epochs": len(epochs) / len(folders),
        "source": config.target.source,
    }


def find_changes(config: RunConfig, folder: Path) -> list[str]:
    """The settings in which a recipe differs from what `folder` was trained with, such as `model.hidden 64 → 256`.

    Empty if the folder holds no run. The target is ignored: it does not affect training.
    """
    from shoal.runs.config import read_config
    from shoal.runs.folder import find_config

    if not find_config(folder).is_file():
        return []
    before, now = _flatten(read_config(find_config(folder))), _flatten(config)
    keys = [*now, *(key for key in before if key not in now)]
    return [f"{key} {before.get(key)} → {now.get(key)}" for key in keys if before.get(key) != now.get(key)]


def _flatten(config: RunConfig) -> dict[str, Any]:
    """Every setting that affects a run, by its dotted name, with the values that are filled in at its start."""
    from shoal.runs.data import make_paths_absolute

    config = copy.deepcopy(config)
    config.validate()
    make_paths_absolute(config)
    config.fill_depth()
    flat: dict[str, Any] = {}
    for name, value in config.to_dict().items():
        if name != "target":
            flat |= (
                {f"{name}.{key}": one for key, one in value.items()}
                if isinstance(value, dict)
                else {name: value}
            )
    return flat


def _set_aside(folder: Path) -> Path:
    """Rename a folder to NAME-N with the first N that is free."""
    number = 1
    while (kept := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return folder.rename(kept)


def format_table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| recipe | how | metric | score | target | reached | epochs | s / epoch | target from |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "result" in row:
            lines.append(f"| {row['recipe']} | {row['how']} | | {row['result']} | | no | | | |")
            continue
        spread = f" ± {row['deviation']:.4f} ({row['seeds']} seeds)" if row["seeds"] > 1 else ""
        reached = {None: "", True: "yes", False: "**no**"}[row["reached"]]
        lines.append(
            f"| {row['recipe']} | {row['how']} | {row['metric']} | {row['score']:.4f}{spread} | {row['target']} | {reached} "
            f"| {row['epochs']:.0f} | {row['seconds_per_epoch']:.3f} | {row['source']} |"
        )
    return "\n".join(lines) + "\n"


def _is_here(config: RunConfig) -> bool:
    from shoal.commands.data_tables import where_is

    return where_is(config.data) in ("embedded", "here")


def _read_method(config: RunConfig) -> dict[str, str | None]:
    """Model, layers and their widths (None for a model without them), and how batches are drawn."""
    model = config.model.resolve()
    batches = config.sampler.name if config.method == "sampled" else config.method
    layers = None
    if "orders" in model:
        layers = f"{model['orders'] or count(model['num_layers'] or 2, 'layer')} × {model['hidden']}"
    return {"model": model["name"], "layers": layers, "batches": batches}


def _describe(config: RunConfig) -> str:
    found = _read_method(config)
    layers = f" {found['layers']}" if found["layers"] else ""
    return f"{found['model']}{layers}, {found['batches']}"


def _format_target(config: RunConfig) -> str:
    target = config.target
    if target.score is None:
        return ""
    return f"{target.score:.4f}" + (f" ± {target.deviation:.4f}" if target.deviation else "")
