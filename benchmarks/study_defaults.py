"""Which settings should follow from which facts of a graph, by validation scores, leaving one graph out at a time.

    python benchmarks/study_defaults.py --data DIR [--graphs cora pubmed] [--profiles gcn-2 sage-3] [--seeds 2] [--epochs 200]
    python benchmarks/study_defaults.py --show

Every profile (a few settings that are chosen together) is trained full batch on every labelled graph of its kind: few
labels, many labels, multi-label. Results are added to benchmarks/results/defaults.jsonl, so that a study can be continued.
`--show` judges: for every graph, the profile with the least mean regret on the *other* graphs of its kind (regret: best
validation score of any profile on a graph less the profile's), and what that profile costs on the graph left out. Test
scores are written down beside, and decide nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from shoal.runs.build import make_trainer
from shoal.runs.config import RunConfig, update_config
from shoal.runs.data import load_graph
from shoal.runs.defaults import is_few
from shoal.runs.effort import choose_epochs
from shoal.runs.facts import measure_facts

RESULTS = Path(__file__).parent / "results" / "defaults.jsonl"
LABELLED = {
    "cora": "few",
    "citeseer": "few",
    "pubmed": "few",
    "amazon-computers": "many",
    "coauthor-physics": "many",
    "hetero-tolokers": "many",
    "wordnet30": "many",
    "acl-anthology": "many",
    "ppi": "multi",
    "ppi-large": "multi",
}
METRICS = {"hetero-tolokers": "roc_auc"}

_PLAIN = {"norm": "none", "head_layers": 0}
_STACK = {"norm": "layer", "norm_place": "conv", "residual": "linear"}
Profiles = dict[str, dict[str, dict[str, object]]]


def _make_wide(*shapes: tuple[str, int, int, float, float]) -> Profiles:
    """Profiles of (conv, layers, width, dropout, learning rate)."""
    return {
        f"{name}-{layers} width {hidden} dropout {dropout} lr {lr}": {
            "model": {"name": name, "hidden": hidden, "num_layers": layers, "dropout": dropout, **_STACK},
            "training": {"lr": lr},
        }
        for name, layers, hidden, dropout, lr in shapes
    }


PROFILES: dict[str, Profiles] = {
    "few": {
        "gcn-2 decay .005": {
            "model": {"name": "gcn", "num_layers": 2, "dropout": 0.7, "input_dropout": 0.5, **_PLAIN},
            "training": {"lr": 0.005, "weight_decay": 0.005},
        },
        "gcn-2 decay .005, a classifier on top": {
            "model": {"name": "gcn", "num_layers": 2, "dropout": 0.7, "input_dropout": 0.5, "norm": "none"},
            "training": {"lr": 0.005, "weight_decay": 0.005},
        },
        "gcn-2 log_epsilon, a classifier on top": {
            "model": {"name": "gcn", "num_layers": 2, "dropout": 0.7, "input_dropout": 0.5, "norm": "none"},
            "training": {"lr": 0.005, "weight_decay": 0.005, "loss": "log_epsilon"},
        },
        "gcn-2 layer norm, a classifier on top": {
            "model": {
                "name": "gcn",
                "num_layers": 2,
                "dropout": 0.7,
                "input_dropout": 0.5,
                "norm": "layer",
                "norm_place": "conv",
            },
            "training": {"lr": 0.005, "weight_decay": 0.005},
        },
        "gcn-2 decay .0005": {
            "model": {"name": "gcn", "num_layers": 2, "dropout": 0.7, "input_dropout": 0.5, **_PLAIN},
            "training": {"lr": 0.01, "weight_decay": 0.0005},
        },
        "gcn-2 log_epsilon": {
            "model": {"name": "gcn", "num_layers": 2, "dropout": 0.7, "input_dropout": 0.5, **_PLAIN},
            "training": {"lr": 0.005, "weight_decay": 0.005, "loss": "log_epsilon"},
        },
        "gat-2 symmetric": {
            "model": {
                "name": "gat",
                "symmetric": True,
                "heads": 8,
                "num_layers": 2,
                "dropout": 0.6,
                "input_dropout": 0.6,
                **_PLAIN,
            },
            "training": {"lr": 0.005, "weight_decay": 0.005},
        },
        "mixhop-2": {
            "model": {"name": "mixhop", "num_layers": 2, "dropout": 0.7, "input_dropout": 0.5, **_PLAIN},
            "training": {"lr": 0.005, "weight_decay": 0.005},
        },
        "sage-3 residual": {
            "model": {"name": "sage", "num_layers": 3, "dropout": 0.5, **_STACK},
            "training": {"lr": 0.003},
        },
    },
    "many": {
        f"{name}-{layers} {norm} dropout {dropout} lr {lr}": {
            "model": {"name": name, "num_layers": layers, "dropout": dropout, **_STACK, "norm": norm},
            "training": {"lr": lr},
        }
        for name, layers, norm, dropout, lr in (
            ("gcn", 3, "layer", 0.5, 0.003),
            ("sage", 3, "layer", 0.5, 0.003),
            ("gat", 3, "layer", 0.5, 0.003),
            ("gcn", 3, "batch", 0.5, 0.003),
            ("sage", 3, "batch", 0.5, 0.003),
            ("gat", 3, "batch", 0.5, 0.003),
            ("gcn", 3, "batch", 0.7, 0.003),
            ("gcn", 3, "layer", 0.3, 0.003),
            ("sage", 2, "layer", 0.3, 0.003),
            ("gcn", 5, "batch", 0.3, 0.003),
        )
    }
    | {
        f"gcn-3 layer dropout 0.5 lr {training['lr']}, {label}": {
            "model": {"name": "gcn", "num_layers": 3, "dropout": 0.5, **_STACK},
            "training": training,
        }
        for label, training in (
            ("cosine", {"lr": 0.01, "schedule": "cosine"}),
            ("averaged", {"lr": 0.003, "ema": 0.95}),
            ("averaged", {"lr": 0.01, "ema": 0.95}),
        )
    }
    | _make_wide(
        ("sage", 4, 64, 0.2, 0.01),
        ("gcn", 4, 64, 0.2, 0.01),
        ("gcn", 4, 128, 0.5, 0.01),
        ("gcn", 4, 128, 0.2, 0.01),
        ("gcn", 4, 128, 0.3, 0.005),
        ("gcn", 6, 64, 0.2, 0.01),
        ("gcn", 4, 64, 0.2, 0.003),
        ("gcn", 4, 256, 0.5, 0.005),
    ),
    "multi": {
        f"{name}-{layers} {norm} dropout {dropout} lr {lr}": {
            "model": {"name": name, "num_layers": layers, "dropout": dropout, **_STACK, "norm": norm},
            "training": {"lr": lr},
        }
        for name, layers, norm, dropout, lr in (
            ("sage", 3, "layer", 0.2, 0.003),
            ("sage", 3, "layer", 0.1, 0.01),
            ("gcn", 3, "layer", 0.2, 0.003),
            ("sage", 3, "batch", 0.2, 0.003),
        )
    }
    | _make_wide(
        ("sage", 4, 64, 0.2, 0.01),
        ("sage", 3, 512, 0.1, 0.01),
        ("sage", 4, 256, 0.1, 0.01),
        ("gcn", 4, 256, 0.1, 0.01),
    )
    | {
        f"sage-3 width 512 dropout 0.1 lr 0.01, {label}": {
            "model": {"name": "sage", "hidden": 512, "num_layers": 3, "dropout": 0.1, **_STACK},
            "training": {"lr": 0.01, "warmup": 20, "prior_bias": "prior" in label},
        }
        for label in ("rise", "rise, prior")
    },
}
BEFORE = {
    "model": {"name": "sage", "num_layers": 2, "norm": "layer", "dropout": 0.1},
    "training": {"lr": 0.01},
}


def list_profiles(kind: str) -> Profiles:
    """The profiles of a kind, and for comparison what every run took before there was a rule."""
    return {**PROFILES[kind], "before": BEFORE}


def train_profile(folder: Path, name: str, profile: str, seed: int, epochs: int | None) -> dict[str, object]:
    """Train one profile on one graph, full batch; returns its row."""
    config = RunConfig(data=str(folder / f"{name}.npz"), method="full")
    graph, _ = load_graph(config)
    facts = measure_facts(graph)
    kind = LABELLED[name]
    assert (kind == "multi") == facts.multi_label
    assert (kind == "few") == is_few(facts)
    update_config(config, list_profiles(kind)[profile], profile)
    layers = config.model.num_layers
    config.training.epochs = min(epochs or 10**9, choose_epochs(facts, [config.model.hidden] * layers))
    config.training.patience, config.training.seed = max(config.training.epochs // 5, 20), seed
    config.training.metric = METRICS.get(name)
    trainer = make_trainer(config, graph)
    started = time.process_time()
    trainer.fit(config.training.epochs)
    seconds = time.process_time() - started
    return {
        "graph": name,
        "profile": profile,
        "seed": seed,
        "epochs": trainer.epoch,
        "best_epoch": trainer.best_epoch,
        "metric": trainer.metric,
        "val": round(trainer.best_score, 5),
        "test": round(trainer.evaluate("test")[trainer.metric], 5),
        "cpu_seconds": round(seconds, 1),
    }


def read_rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []


def show(rows: list[dict[str, object]]) -> None:
    """Print every profile's scores, then what leaving one graph out chooses."""
    scores: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        scores.setdefault((str(row["graph"]), str(row["profile"])), []).append((row["val"], row["test"]))  # type: ignore[arg-type]
    mean = {key: np.mean(found, axis=0) for key, found in scores.items()}
    for kind in PROFILES:
        graphs = [name for name, one in LABELLED.items() if one == kind and any(g == name for g, _ in mean)]
        print(f"\n{kind}: validation / test")
        for profile in list_profiles(kind):
            cells = [
                f"{name} {mean[name, profile][0]:.4f} / {mean[name, profile][1]:.4f} ({len(scores[name, profile])})"
                for name in graphs
                if (name, profile) in mean
            ]
            print(f"  {profile:34s} {'  '.join(cells)}")
        for left in graphs:
            others = [name for name in graphs if name != left]
            common = [
                profile for profile in PROFILES[kind] if all((name, profile) in mean for name in graphs)
            ]
            if not others or not common:
                continue
            best = {name: max(mean[name, profile][0] for profile in common) for name in graphs}
            chosen = min(
                common, key=lambda one: np.mean([best[name] - mean[name, one][0] for name in others])
            )
            regret = best[left] - mean[left, chosen][0]
            print(f"  without {left}: {chosen}; regret there {regret:.4f}, test {mean[left, chosen][1]:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the graphs as .npz")
    parser.add_argument("--graphs", nargs="+", default=list(LABELLED), choices=list(LABELLED))
    parser.add_argument("--profiles", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="at most so many")
    parser.add_argument("--show", action="store_true", help="judge what was measured")
    args = parser.parse_args()
    if not args.show:
        if args.data is None:
            parser.error("--data names the folder with the graphs")
        known = {(row["graph"], row["profile"], row["seed"]) for row in read_rows()}
        for seed in range(args.seeds):
            for name in args.graphs:
                for profile in args.profiles or list_profiles(LABELLED[name]):
                    if (name, profile, seed) in known or profile not in list_profiles(LABELLED[name]):
                        continue
                    row = train_profile(args.data, name, profile, seed, args.epochs)
                    print(row, flush=True)
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    show(read_rows())


if __name__ == "__main__":
    main()
