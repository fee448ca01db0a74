"""Why stale halos lose: one-epoch-stale training of a SAGE model in plain torch, in one process, beside exact training.

    python benchmarks/study_stale.py                     amazon-computers in two parts, all cases
    python benchmarks/study_stale.py --cases exact stale
    python benchmarks/study_stale.py table               what was measured

It shares no code of training or exchange with Shoal: the products of two parts are those of two sparse matrices, entries
within parts and entries between them. The latter multiply rows, and gradients, of the epoch before. Initial weights are
those of `shoal.GNN`. Scores are of the validation nodes, by exact products. Results are added to
benchmarks/results/stale-study.jsonl; what is there already is not trained again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional

import shoal
from bench_messages import dense_features, load_graph

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "stale-study.jsonl"
_PLAIN = {"scaled": False, "layers": 3, "dropout": 0.3, "lr": 0.01, "epochs": 60, "method": "random"}
_SCALED = _PLAIN | {"scaled": True}
_STALE: dict[str, Any] = {"rows": True, "gradients": True}
CASES: dict[str, dict[str, Any]] = {
    "exact": _PLAIN,
    "stale": _PLAIN | _STALE,
    "rows stale": _PLAIN | {"rows": True},
    "gradients stale": _PLAIN | {"gradients": True},
    "stale, no dropout": _PLAIN | _STALE | {"dropout": 0.0},
    "exact, no dropout": _PLAIN | {"dropout": 0.0},
    "stale, aggregates first": _PLAIN | _STALE | {"aggregates_first": True},
    "stale after 30 exact epochs": _PLAIN | _STALE | {"exact_epochs": 30},
    "exact, lr .001": _PLAIN | {"lr": 0.001, "epochs": 120},
    "stale, lr .001": _PLAIN | _STALE | {"lr": 0.001, "epochs": 120},
    "stale, smoothed .5": _PLAIN | _STALE | {"smoothing": 0.5},
    "stale, smoothed .9": _PLAIN | _STALE | {"smoothing": 0.9},
    "stale, METIS": _PLAIN | _STALE | {"method": "metis"},
    "scaled: exact": _SCALED,
    "scaled: stale": _SCALED | _STALE,
    "scaled: stale, lr .003": _SCALED | _STALE | {"lr": 0.003},
    "scaled: stale, smoothed .5": _SCALED | _STALE | {"smoothing": 0.5},
    "scaled: stale, smoothed .8": _SCALED | _STALE | {"smoothing": 0.8},
    "scaled: stale, smoothed .9": _SCALED | _STALE | {"smoothing": 0.9},
    "scaled: stale, smoothed .95": _SCALED | _STALE | {"smoothing": 0.95},
    "scaled: stale, METIS": _SCALED | _STALE | {"method": "metis"},
}


class Delayed:
    """The value of the epoch before, the current one in the first epoch; with smoothing, a moving average."""

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing
        self.last: Tensor | None = None
        self.average: Tensor | None = None

    def take(self, value: Tensor) -> Tensor:
        last, self.last = self.last, value.detach().clone()
        if last is None:
            return value
        old = last if self.average is None else self.average
        self.average = self.smoothing * old + (1 - self.smoothing) * last
        return self.average


class Lane:
    """The product of one layer: matrices of entries within and between parts, and what is delayed."""

    def __init__(self, pair: tuple[sp.csr_array, sp.csr_array], case: dict[str, Any]) -> None:
        self.pair = pair
        self.transposed = tuple(sp.csr_array(one.T) for one in pair)
        self.rows = Delayed(case.get("smoothing", 0.0)) if case.get("rows") else None
        self.gradients = Delayed(case.get("smoothing", 0.0)) if case.get("gradients") else None
        self.is_exact = False


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, lane: Lane) -> Tensor:
        ctx.lane = lane
        return _multiply(lane.pair, h, lane.rows, lane.is_exact)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        lane = ctx.lane
        return _multiply(lane.transposed, grad, lane.gradients, lane.is_exact), None


def _multiply(pair: Any, h: Tensor, delayed: Delayed | None, is_exact: bool) -> Tensor:
    there = h
    if delayed is not None and not torch.is_inference_mode_enabled():
        used = delayed.take(h)
        there = h if is_exact else used
    inner, outer = (one.detach().contiguous().numpy() for one in (h, there))
    return torch.from_numpy(pair[0] @ inner + pair[1] @ outer)


def cut(graph: shoal.Graph, method: str) -> tuple[sp.csr_array, sp.csr_array]:
    """D⁻¹A in two matrices: entries within the two parts, and between them."""
    n = graph.num_nodes
    rows, columns = np.repeat(np.arange(n), graph.degree), np.asarray(graph.indices)
    values = (1 / np.maximum(graph.degree, 1)).astype(np.float32)[rows]
    parts = shoal.partition_graph(graph, 2, method, seed=0).assignment
    same = parts[rows] == parts[columns]
    inner, outer = (sp.csr_array((values[on], (rows[on], columns[on])), shape=(n, n)) for on in (same, ~same))
    return inner, outer


def train(case: dict[str, Any], data: Path, seed: int) -> dict[str, Any]:
    graph = load_graph("amazon-computers", data, scaled=case["scaled"])
    x, y = (
        torch.from_numpy(dense_features(graph).astype(np.float32)),
        torch.from_numpy(np.asarray(graph.y, np.int64)),
    )
    masks = [torch.from_numpy(np.asarray(mask)) for mask in (graph.train_mask, graph.val_mask)]
    pair = cut(graph, case["method"])
    model = shoal.GNN(
        "sage", graph.num_features, 64, graph.num_classes, num_layers=case["layers"], dropout=0.0, seed=seed
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=case["lr"])
    lanes = [Lane(pair, case) for _ in model.layers]
    known = _multiply(pair, x, None, True)
    torch.manual_seed(seed)
    losses, curve, started = [], [], time.process_time()
    for epoch in range(case["epochs"]):
        for lane in lanes:
            lane.is_exact = epoch < case.get("exact_epochs", 0)
        optimizer.zero_grad()
        logits = compute(model, x, known, lanes, case)
        loss = functional.cross_entropy(logits[masks[0]], y[masks[0]])
        loss.backward()
        optimizer.step()
        losses.append(round(float(loss.detach()), 4))
        if (epoch + 1) % 10 == 0:
            with torch.inference_mode():
                found = compute(model, x, known, lanes, case | {"dropout": 0.0}).argmax(1)
            curve.append(float((found == y)[masks[1]].float().mean()))
    remote = pair[1].nnz / (pair[0].nnz + pair[1].nnz)
    seconds = time.process_time() - started
    return {"remote": remote, "curve": curve, "losses": losses, "cpu_seconds": seconds}


def compute(model: Any, x: Tensor, known: Tensor, lanes: list[Lane], case: dict[str, Any]) -> Tensor:
    h = x
    for number, (layer, lane) in enumerate(zip(model.layers, lanes)):
        to_neighbors, to_self = layer.linear.weight.chunk(2, dim=1)
        if number == 0:
            neighbors = known @ to_neighbors
        elif case.get("aggregates_first"):
            neighbors = _Product.apply(h, lane) @ to_neighbors
        else:
            neighbors = _Product.apply(h @ to_neighbors, lane)
        halves = torch.relu(torch.cat([neighbors, h @ to_self], 1) + layer.bias).chunk(2, dim=1)
        scales, shifts = layer.norm.weight.chunk(2), layer.norm.bias.chunk(2)
        normal = [
            functional.layer_norm(half, half.shape[1:], a, b) for half, a, b in zip(halves, scales, shifts)
        ]
        h = functional.dropout(torch.cat(normal, 1), case["dropout"])
    logits: Tensor = model.classifier(h)
    return logits


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []


def report(line: dict[str, Any]) -> None:
    scores = " ".join(f"{100 * score:.1f}" for score in line["curve"])
    print(
        f"{line['case']:30} seed {line['seed']}: validation {scores}; loss {line['losses'][-1]:.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["run", "table"], default="run")
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    done = {(line["case"], line["seed"]) for line in read()}
    for seed in range(args.seeds if args.what == "run" else 0):
        for name in args.cases:
            if (name, seed) not in done:
                line = {"case": name, "seed": seed, **CASES[name], **train(CASES[name], args.data, seed)}
                with open(RESULTS, "a") as file:
                    file.write(json.dumps(line) + "\n")
    for line in read():
        report(line)


if __name__ == "__main__":
    main()
