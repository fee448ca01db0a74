"""SIGN beside SAGE, GCN, the MLP and label propagation, each with its default settings: test score and CPU seconds.

    SHOAL_DATA=../shared/data python benchmarks/bench_sign.py benchmarks/results/sign.jsonl [GRAPH …]

One seed, one thread. CPU seconds are of everything after the graph is loaded: hops, training, evaluations. A line is added for every
combination; those that the file has are left out.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import shoal
from shoal.runs.build import make_trainer
from shoal.runs.config import make_config
from shoal.runs.data import load_graph
from shoal.threads import set_threads
from shoal.training.smoothing_choice import choose_propagation, make_score

GRAPHS = ("cora", "pubmed", "amazon-computers", "wordnet30", "acl-anthology")
SETTINGS = {
    "sign": {"model": {"name": "sign"}},
    "mlp": {"model": {"name": "mlp"}, "sampler": {"name": "rows"}},
    "sage": {"model": {"name": "sage"}},
    "gcn": {"model": {"name": "gcn"}},
    "gcn full": {"model": {"name": "gcn"}, "method": "full"},
}


def measure(graph: shoal.Graph, name: str) -> dict[str, float]:
    """Train, or spread labels; the test score, and that after Correct & Smooth."""
    started = time.process_time()
    test = make_score(graph, graph.test_mask)
    if name == "label propagation":
        scores, *_ = choose_propagation(graph)
        return {"seconds": time.process_time() - started, "test": test(scores)}
    config = make_config(SETTINGS[name])
    config.validate()
    trainer = make_trainer(config, graph)
    trainer.fit(config.training.epochs)
    seconds = time.process_time() - started
    started = time.process_time()
    smoothed = shoal.smooth_predictions(trainer)
    return {
        "seconds": seconds,
        "epochs": trainer.epoch,
        "val": trainer.best_score,
        "test": trainer.evaluate("test")["accuracy"],
        "smoothed_val": smoothed.after,
        "smoothed_test": test(smoothed.scores),
        "smoothing": str(smoothed.settings),
        "smoothing_seconds": time.process_time() - started,
    }


def main(out: Path, graphs: tuple[str, ...]) -> None:
    """Measure every combination that `out` lacks."""
    set_threads(1)
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
    known = {(line["graph"], line["model"]) for line in lines}
    for graph_name in graphs:
        graph, _ = load_graph(make_config({"data": graph_name}))
        for name in ("label propagation", *SETTINGS):
            if (graph_name, name) not in known:
                line = {"graph": graph_name, "model": name, **measure(graph, name)}
                with out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(line, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(sys.argv[2:]) or GRAPHS)
