"""`shoal predict RUN --smooth`: labels after Correct & Smooth, and its scores."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path


def write_smoothed(folder: Path, out: Path, *, with_validation: bool, as_json: bool = False) -> None:
    """Write every node's label after Correct & Smooth, and print validation and test scores."""
    from shoal.commands.node_files import write_nodes
    from shoal.commands.screen import open_console, print_json
    from shoal.runs.trained import load_run
    from shoal.training.smoothing_choice import make_score, smooth_predictions

    run, console = load_run(folder), open_console()
    graph = run.graph
    found = smooth_predictions(run.trainer, with_validation=with_validation)
    write_nodes(out, "label", found.labels.numpy(), graph)
    test = None
    if graph.test_mask is not None and graph.test_mask.any():
        test = make_score(graph, graph.test_mask, run.config.training.metric)(found.scores)
    if as_json:
        written = {"file": out, "nodes": graph.num_nodes, "column": "label", "shape": found.labels.shape}
        chosen = None if found.settings is None else asdict(found.settings)
        scores = {"metric": found.metric, "validation_before": found.before, "validation": found.after}
        print_json(written | scores | {"test": test, "smoothing": chosen})
        return
    if found.settings is None:
        said = f"no setting raised it from {found.before:.4f}: the model's own predictions were written"
    else:
        said = f"{found.before:.4f} before, {found.after:.4f} after {found.settings}"
        if with_validation:
            said += "; the written labels use labels of validation nodes too"
    console.say(f"validation {found.metric}: {said}")
    if test is not None:
        console.say(f"test {found.metric}: {test:.4f}")
    console.say(f"{out}: {graph.num_nodes:,} nodes, label ({graph.num_nodes:,},)")
