"""`shoal demo`: a first run on embedded data, beside the same model without edges."""

import click


@click.command()
@click.option(
    "--epochs", type=click.IntRange(min=1), default=30, show_default=True, help="Epochs for each model."
)
def demo(epochs: int) -> None:
    """Train on embedded data and set the score beside a model that sees no edges."""
    from rich.table import Table

    from shoal.commands.progress import TrainingProgress
    from shoal.commands.screen import open_console
    from shoal.runs.build import make_trainer
    from shoal.runs.config import make_config
    from shoal.runs.data import load_graph
    from shoal.threads import set_threads

    console = open_console()
    set_threads()
    console.print("Compiling kernels on the first run takes a few seconds; they are cached for the next.")
    table = Table(title="Test accuracy", title_justify="left")
    for heading in ("data set", "nodes", "edges", "no edges (MLP)", "GNN (SAGE)", "seconds (SAGE)"):
        table.add_column(heading, justify="left" if heading == "data set" else "right")
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
            console.print(f"\n[bold]{data}[/bold]: training {model}")
            with TrainingProgress(console, epochs, trainer.metric) as progress:
                records = trainer.fit(epochs, progress.show)
            scores.append(trainer.evaluate("test")["accuracy"])
            seconds = sum(record["seconds"] for record in records)
        row = (
            data,
            f"{graph.num_nodes:,}",
            f"{graph.num_edges:,}",
            *(f"{s:.4f}" for s in scores),
            f"{seconds:.1f}",
        )
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print(
        "\nYour own graph next (edges.csv with source,target; nodes.csv with id,label and feature columns):\n"
        "  shoal data import FOLDER -o my-graph\n"
        "  shoal train my-graph\n"
        "In a fresh clone the command is .venv/bin/shoal. `shoal data import --help` lists the formats it reads."
    )
