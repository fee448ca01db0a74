"""Full-graph training on a Ray cluster, a part of the graph on every worker:

    shoal partition my-graph --parts 4 -o my-parts
    python examples/ray_train.py my-parts --epochs 100 --cpus 8

Needs `pip install 'ray[train]'`. Ray starts a worker for every part and joins them to a torch.distributed group
(gloo); `shoal.Trainer` uses that group to exchange halo rows and to sum gradients. All hosts must see the parts' folder.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import ray.train
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train_part(config: dict[str, Any]) -> None:
    """What every worker does: open its part, train with the others, report each epoch and the weights."""
    from safetensors.torch import save_file

    import shoal

    rank = ray.train.get_context().get_world_rank()
    part = shoal.open_part(config["parts"], rank)
    model = shoal.GNN("sage", part.num_features, config["hidden"], part.num_classes, num_layers=2, seed=0)
    trainer = shoal.Trainer(model, part, lr=config["lr"], patience=config["patience"])
    trainer.fit(config["epochs"], on_epoch=lambda record: ray.train.report(dict(record)))
    scores = trainer.evaluate("test")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if rank == 0:  # the weights are the same on every rank
            save_file(model.state_dict(), Path(folder) / "model.safetensors")
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report({f"test_{name}": score for name, score in scores.items()}, checkpoint=checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", type=Path, help="folder that `shoal partition` wrote")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--patience", type=int, default=None)
    parser.add_argument("--cpus", type=int, default=1, help="cores of every worker")
    given = parser.parse_args()
    parts = given.parts.resolve()
    workers = json.loads((parts / "manifest.json").read_text())["num_parts"]
    trainer = TorchTrainer(
        train_part,
        train_loop_config={**vars(given), "parts": str(parts)},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": given.cpus}),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main()
