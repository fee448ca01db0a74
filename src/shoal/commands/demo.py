"""`shoal demo`: a first run on embedded data, beside the same model without edges."""

import click

from shoal.commands.listing import json_option


@click.command()
@click.option(
    "--epochs", type=click.IntRange(min=1), default=30, show_default=True, help="Epochs for each model."
)
@json_option()
def demo(epochs: int, as_json: bool) -> None:
    """Train on embedded data, with and without edges.

    \b
    Example:
      shoal demo
    """
    from shoal.commands.progress import TrainingProgress
    from shoal.commands.screen import open_console, plain_table, print_json
    from shoal.runs.build import make_trainer
    from shoal.runs.config import make_config
    from shoal.runs.data import load_graph
    from shoal.threads import set_threads

    console = open_console(stderr=as_json)
    figures = []
    set_threads()
    numbers = ("nodes", "edges", "MLP, no edges", "SAGE", "s (SAGE)")
    table = plain_table("data set", *numbers, right=numbers)
    for data, roots in (("digits", 300), ("blocks", 1500)):
        scores, seconds = [], 0.0
        for model in ("mlp", "sage"):
            config = make_config(
                {
                    "data": data,
                    "model": {"name": model, "hidden": 128},
                    "sampler": {"name": "random-walk", "roots": roots, "depth": 2},
                    "training": {"epochs": epochs},
                }
            )
            graph, _ = load_graph(config)
            trainer = make_trainer(config, graph)
            console.say(f"\n{data}: training {model}", style="bold")
            with TrainingProgress(console, epochs, trainer.metric) as progress:
                records = trainer.fit(epochs, progress.show)
            scores.append(trainer.evaluate("test")["accuracy"])
            seconds = sum(record["seconds"] for record in records)
        sizes = {"nodes": graph.num_nodes, "edges": graph.num_edges}
        found = {"mlp": scores[0], "sage": scores[1], "sage_seconds": seconds}
        figures.append({"data": data} | sizes | found)
        counts = (f"{number:,}" for number in sizes.values())
        table.add_row(data, *counts, *(f"{score:.4f}" for score in scores), f"{seconds:.1f}")
    if as_json:
        print_json(figures)
        return
    console.say("\ntest accuracy")
    console.print(table)
    console.say(
        "\nYour own graph next: edges.csv with source,target and nodes.csv with id,label\n"
        "and feature columns in a folder (`shoal data import --help` lists the formats):\n"
        "  shoal data import FOLDER -o my-graph\n"
        "  shoal train my-graph\n"
        "In a fresh clone the command is .venv/bin/shoal."
    )
