"""`shoal recipes`: lists the published configurations, and runs those whose data is here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shoal.config import RunConfig

TABLE = "table.md"


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--run", "train", is_flag=True, help="Train them, all whose data is here, and write a table.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/recipes"),
    show_default=True,
    help="Folder for the run folders and the table; what is finished there is not trained again.",
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
    from shoal.config import read_config
    from shoal.recipes import find_recipe, list_recipes

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
    from shoal.commands.screen import open_console
    from shoal.commands.train import train_configured
    from shoal.errors import ShoalError

    console = open_console()
    rows: list[dict[str, Any]] = []
    for name, config in chosen.items():
        if not _is_here(config):
            console.print(f"{name}: skipped, {config.data} is not on this machine", markup=False)
            continue
        console.print(f"\n{name}", style="bold", markup=False)
        try:
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
    from shoal.training.run import METRICS, read_metrics

    folders = sorted(folder.glob("seed-*")) or [folder]
    records = [read_metrics(one / METRICS) for one in folders]
    metric = config.target.metric or next(key for key in records[0][-1] if key.startswith("test_"))[5:]
    scores = [run[-1][f"test_{metric}"] for run in records]
    mean = sum(scores) / len(scores)
    spread = (sum((score - mean) ** 2 for score in scores) / max(len(scores) - 1, 1)) ** 0.5
    epochs = [record["seconds"] for run in records for record in run[:-1]]
    target = config.target.score
    return {
        "recipe": name,
        "data": config.data,
        "how": _describe(config),
        "metric": metric,
        "target": _tell_target(config),
        "score": mean,
        "deviation": spread,
        "seeds": len(scores),
        "reached": None if target is None else mean >= target - config.target.deviation,
        "seconds_per_epoch": sorted(epochs)[len(epochs) // 2],
        "epochs": len(epochs) / len(scores),
        "source": config.target.source,
    }


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
    from shoal.datasets.places import find_graph
    from shoal.datasets.registry import BUILT_IN

    return config.data in BUILT_IN or Path(config.data).exists() or find_graph(config.data) is not None


def _describe(config: RunConfig) -> str:
    model = config.model
    depth = model.orders or f"{model.num_layers or 2} layers"
    batches = config.sampler.name if config.method == "sampled" else config.method
    return f"{model.name} {depth} × {model.hidden}, {batches}"


def _tell_target(config: RunConfig) -> str:
    target = config.target
    if target.score is None:
        return ""
    return f"{target.score:.4f}" + (f" ± {target.deviation:.4f}" if target.deviation else "")
