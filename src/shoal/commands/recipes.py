"""`shoal recipes`: lists the published configurations, and runs those whose data is here."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shoal.runs.config import RunConfig

TABLE = "table.md"


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--run", "train", is_flag=True, help="Train them, all whose data is here, and write a table.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/recipes"),
    show_default=True,
    help="Folder for the run folders and the table; what is finished there is not trained again, unless its recipe changed.",
)
def recipes(names: tuple[str, ...], train: bool, out: Path) -> None:
    """List the recipes: published configurations and the scores they must reach.

    \b
    Examples:
      shoal recipes
      shoal train --recipe cora --repeat 5
      shoal recipes --run cora pubmed
    """
    from shoal.commands.screen import open_console, plain_table
    from shoal.runs.config import read_config
    from shoal.runs.recipes import find_recipe, list_recipes

    files = [find_recipe(name) for name in names or list_recipes()]
    chosen = {path.stem: read_config(path) for path in files}
    console = open_console()
    if train:
        _run_all(chosen, out)
        return
    table = plain_table("recipe", "data", "here", "how", "target", "from", right=("target",))
    for name, config in chosen.items():
        here = "yes" if _is_here(config) else "no"
        table.add_row(name, config.data, here, _describe(config), _tell_target(config), config.target.source)
    console.print(table)


def _run_all(chosen: dict[str, RunConfig], out: Path) -> None:
    from shoal.commands.jobs import train_configured
    from shoal.commands.screen import open_console
    from shoal.errors import ShoalError

    console = open_console()
    rows: list[dict[str, Any]] = []
    for name, config in chosen.items():
        if not _is_here(config):
            console.print(f"{name}: skipped, {config.data} is not on this machine", markup=False)
            continue
        console.print(f"\n{name}", style="bold", markup=False)
        try:
            if changes := find_changes(config, out / name):
                kept = _set_aside(out / name)
                console.print(
                    f"the recipe has changed ({', '.join(changes)}): what was trained is now in {kept}, training anew",
                    markup=False,
                    highlight=False,
                )
            train_configured(config, out / name)
        except ShoalError as error:
            console.print(f"{name}: {error}", markup=False)
            rows.append({"recipe": name, "data": config.data, "how": _describe(config), "result": str(error)})
            continue
        rows.append(_summarize(name, config, out / name))
    text = format_table(rows)
    if rows:
        out.mkdir(parents=True, exist_ok=True)
        (out / TABLE).write_text(text)
        (out / "table.json").write_text(json.dumps(rows, indent=2) + "\n")
        console.print(f"\n{text}\n{out / TABLE}", markup=False)


def _summarize(name: str, config: RunConfig, folder: Path) -> dict[str, Any]:
    """What a finished recipe's folder says: the score over its seeds and the time an epoch took."""
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
        "target": _tell_target(config),
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

    Nothing for a folder that is not there. The target does not count: it decides nothing in a run.
    """
    from shoal.runs.config import read_config
    from shoal.runs.folder import find_config

    if not find_config(folder).is_file():
        return []
    before, now = _flatten(read_config(find_config(folder))), _flatten(config)
    keys = [*now, *(key for key in before if key not in now)]
    return [f"{key} {before.get(key)} → {now.get(key)}" for key in keys if before.get(key) != now.get(key)]


def _flatten(config: RunConfig) -> dict[str, Any]:
    """Every setting that decides a run, by its dotted name, with what would be filled in when it starts."""
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
    from shoal.datasets.generators import GENERATORS
    from shoal.datasets.places import find_graph

    return config.data in GENERATORS or Path(config.data).exists() or find_graph(config.data) is not None


def _describe(config: RunConfig) -> str:
    model = config.model.resolve()
    batches = config.sampler.name if config.method == "sampled" else config.method
    if "orders" not in model:
        return f"{model['name']}, {batches}"
    depth = model["orders"] or f"{model['num_layers'] or 2} layers"
    return f"{model['name']} {depth} × {model['hidden']}, {batches}"


def _tell_target(config: RunConfig) -> str:
    target = config.target
    if target.score is None:
        return ""
    return f"{target.score:.4f}" + (f" ± {target.deviation:.4f}" if target.deviation else "")
