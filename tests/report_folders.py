"""Run folders as training leaves them, written by hand: reports read files and need no training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shoal.runs.config import RunConfig, update_config

MACHINE = {"ranks": 1, "threads": 1, "cores": 2, "python": "3.11"}


def write_run(
    folder: Path,
    *,
    epochs: int = 6,
    ends: bool = True,
    lift: float = 0.0,
    ranks: int = 1,
    outcomes: dict[str, Any] | None = None,
    measured: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """A run whose validation accuracy rises to 0.8 + `lift` in its last epoch but one, with epochs of a second."""
    folder.mkdir(parents=True)
    config = RunConfig(data="cora", method="partitioned" if ranks > 1 else "full")
    update_config(config, {"ranks": ranks if ranks > 1 else None} | settings, "the test")
    (folder / "config.yaml").write_text(config.to_yaml())
    (folder / "graph.json").write_text(json.dumps({"name": "cora", "num_nodes": 2708}))
    records: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        score = 0.8 + lift - 0.1 * abs(epochs - 1 - epoch)
        record = {"epoch": epoch, "loss": 2.0 / epoch, "seconds": 5.0 if epoch == 1 else 1.0}
        record |= {
            "time": {"compute": record["seconds"] - 0.25, "sampling": 0.25},
            "nodes_per_second": 2708.0,
        }
        record |= {"val_accuracy": score, "eval_seconds": 0.5}
        if ranks > 1:
            peers = [
                [a, b, 1, "forward", 100 * (a + 1), 1] for a in range(ranks) for b in range(ranks) if a != b
            ]
            sent = sum(row[4] for row in peers)
            exchanges = [{"layer": 1, "direction": "forward", "bytes": sent, "messages": len(peers)}]
            record |= {"bytes": sent, "messages": len(peers), "exchanges": exchanges, "hidden": 0.1}
            record |= {"peers": peers} if epoch == 1 else {}
        records.append(record)
    if ends:
        records.append({"best_epoch": epochs - 1, "test_accuracy": 0.75 + lift})
        table = outcomes or {
            "task": "single-label",
            "hits": [8, 5, 9],
            "false": [2, 1, 5],
            "missed": [1, 6, 1],
            "confusion": [[8, 0, 1], [2, 5, 4], [0, 1, 9]],
        }
        (folder / "outcomes.json").write_text(json.dumps({"split": "test", "class_names": None, **table}))
        found = {"peak": [300_000_000] * ranks, "machine": MACHINE}
        found["profile"] = {"epoch": 2, "seconds": 1.0, "aggregation": 0.25, "dense": 0.5}
        (folder / "measured.json").write_text(json.dumps(found | (measured or {})))
        if ranks > 1:
            parts = [
                {"local_rows": 100 + rank, "halo_rows": 20, "entries": 400, "peak": 2}
                for rank in range(ranks)
            ]
            (folder / "ranks.json").write_text(json.dumps(parts))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder
