"""`shoal baseline DATA`: what labels and edges alone predict, the score that a model must beat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.commands.completion import complete, list_data
from shoal.commands.listing import json_option, memory_option, plugin_option

if TYPE_CHECKING:
    from torch import Tensor


@click.command()
@click.argument("data", required=False, **complete(list_data, files=True))
@click.option("--recipe", metavar="NAME|FILE", help="Take data, data options and metric from a recipe.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="File for the labels: .npy, .parquet or .csv."
)
@json_option()
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
    as_json: bool,
    plugins: tuple[str, ...],
    settings: tuple[str, ...],
) -> None:
    """Score label propagation, a baseline for any model.

    The most frequent class is scored beside it, on the split that `shoal train` uses.

    \b
    Examples:
      shoal baseline digits
      shoal baseline --recipe pubmed
      shoal baseline my-graph/ -o labels.parquet

    No features are needed. Labels of training nodes are propagated along edges; alpha and the number of steps are those with
    the best validation score.
    """
    import torch

    from shoal.commands.node_files import check_output, write_nodes
    from shoal.commands.screen import open_console, print_json
    from shoal.commands.train import configure
    from shoal.runs.config import FIXED, FROM_GRAPH
    from shoal.runs.data import load_graph
    from shoal.runs.defaults import choose_score
    from shoal.runs.facts import share_largest
    from shoal.training.metrics import choose_metric
    from shoal.training.smoothing import check_labels, encode_labels
    from shoal.training.smoothing_choice import choose_propagation, make_score
    from shoal.wording import count

    if out is not None:
        check_output(out)
    config = configure(data, None, None, None, None, None, recipe, settings, plugins)
    config.validate()
    follows = config.defaults == FROM_GRAPH and "metric" not in config.training.given
    config.defaults = FIXED
    graph, notices = load_graph(config, features=False)
    console = open_console(stderr=as_json)
    console.notice(*notices)
    for choice in choose_score(share_largest(graph), graph.num_classes) if follows else ():
        config.training.metric = choice.settings["training.metric"]
        console.notice(choice.explain(["training.metric"]))
    metric = config.training.metric
    known = check_labels(graph)

    def report(name: str, scores: Tensor) -> dict[str, float]:
        found = {
            split: make_score(graph, mask, metric)(scores)
            for split, mask in (("validation", graph.val_mask), ("test", graph.test_mask))
            if mask is not None and mask.any()
        }
        said = ", ".join(f"{split} {score:.4f}" for split, score in found.items())
        console.say(f"{name}: {choose_metric(metric, graph)} {said}")
        return found

    frequent = encode_labels(graph, known).sum(0).expand(graph.num_nodes, -1)
    scores, alpha, steps = choose_propagation(graph, metric)
    labelled = int(known.sum())
    console.say(f"{graph.name}: {count(graph.num_nodes, 'node')}, {labelled:,} labelled for training")
    majority = report("most frequent class", frequent)
    propagated = report(f"label propagation (alpha {alpha:g}, {count(steps, 'step')})", scores)
    if out is not None:
        write_nodes(out, "label", torch.argmax(scores, 1).numpy(), graph)
        console.say(f"{out}: {count(graph.num_nodes, 'node')}, label ({graph.num_nodes:,},)")
    if as_json:
        found = {"most frequent class": majority, "label propagation": propagated}
        print_json(
            {"data": graph.name, "metric": choose_metric(metric, graph), "alpha": alpha, "steps": steps}
            | found
        )
