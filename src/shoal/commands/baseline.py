"""`shoal baseline DATA`: what labels and edges alone predict, the score that a model must beat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.commands.listing import memory_option, plugin_option

if TYPE_CHECKING:
    from torch import Tensor


@click.command()
@click.argument("data", required=False)
@click.option("--recipe", metavar="NAME|FILE", help="The data, their options and the metric of a recipe.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="File for the labels: .npy or .parquet.")
@memory_option()
@plugin_option(expose=True)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="data.KEY of an importer, or training.metric; may be repeated.",
)
def baseline(
    data: str | None,
    recipe: str | None,
    out: Path | None,
    plugins: tuple[str, ...],
    settings: tuple[str, ...],
) -> None:
    """Score label propagation and the most frequent class on DATA, on the split that `shoal train` uses.

    \b
    Examples:
      shoal baseline digits
      shoal baseline --recipe pubmed
      shoal baseline my-graph/ -o labels.parquet

    No features are needed. Labels of training nodes are spread along edges; alpha and the number of steps are those with
    the best validation score.
    """
    import torch

    from shoal.commands.node_files import check_output, write_nodes
    from shoal.commands.train import configure
    from shoal.runs.config import FIXED
    from shoal.runs.data import load_graph
    from shoal.training.metrics import choose_metric
    from shoal.training.smoothing import check_labels, encode_labels
    from shoal.training.smoothing_choice import choose_propagation, make_score

    if out is not None:
        check_output(out)
    config = configure(data, None, None, None, None, None, recipe, settings, plugins)
    config.validate()
    config.defaults = FIXED
    graph, notices = load_graph(config, features=False)
    for notice in notices:
        click.echo(f"notice: {notice}")
    metric = config.training.metric
    known = check_labels(graph)

    def report(name: str, scores: Tensor) -> None:
        said = [
            f"{split} {make_score(graph, mask, metric)(scores):.4f}"
            for split, mask in (("validation", graph.val_mask), ("test", graph.test_mask))
            if mask is not None and mask.any()
        ]
        click.echo(f"{name}: {choose_metric(metric, graph)} {', '.join(said)}")

    frequent = encode_labels(graph, known).sum(0).expand(graph.num_nodes, -1)
    scores, alpha, steps = choose_propagation(graph, metric)
    click.echo(f"{graph.name}: {graph.num_nodes:,} nodes, {int(known.sum()):,} labelled training nodes")
    report("most frequent class", frequent)
    report(f"label propagation (alpha {alpha:g}, {steps} steps)", scores)
    if out is not None:
        write_nodes(out, "label", torch.argmax(scores, 1).numpy(), graph)
        click.echo(f"{out}: {graph.num_nodes:,} nodes, label ({graph.num_nodes:,},)")
