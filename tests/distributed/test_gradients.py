"""Data-parallel training with real ranks: each draws its own batches, all end with the same weights."""

import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # before the group, which it would keep from ending (GlooTransport.close)
import torch.multiprocessing as mp

import shoal
from shoal.kernels.adam import FusedAdam
from shoal.sampling.parts import PartSampler
from shoal.training.loss import compute_loss

EPOCHS, DROPOUT = 2, 0.2


def make_model(graph: shoal.Graph) -> shoal.GNN:
    torch.manual_seed(0)
    return shoal.GNN("sage", graph.num_features, 32, graph.num_classes, dropout=DROPOUT)


def make_sampler(graph: shoal.Graph) -> shoal.RandomWalkSampler:
    return shoal.RandomWalkSampler(graph, roots=100, depth=2)


def make_parts(graph: shoal.Graph, rank: int, num_ranks: int) -> PartSampler:
    clusters = np.arange(graph.num_nodes) % 6
    return PartSampler(
        graph, "random-walk", assignment=clusters, rank=rank, num_ranks=num_ranks, roots=100, depth=2
    )


def run_rank(rank: int, num_ranks: int, folder: str, own_part: bool) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=num_ranks, timeout=limit)
    graph = shoal.load("blocks", num_nodes=1000)
    model = make_model(graph)
    if rank > 0:  # another start: rank 0's weights count
        torch.nn.init.ones_(model.classifier.weight)
    sampler = make_parts(graph, rank, num_ranks) if own_part else make_sampler(graph)
    trainer = shoal.Trainer(model, graph, sampler, checkpoints=Path(folder) / f"run-{rank}")
    records = trainer.fit(EPOCHS)
    assert all(record["batches"] == trainer.sampler.num_batches for record in records)
    assert not own_part or trainer.sampler is sampler
    weights = torch.cat([value.reshape(-1) for value in trainer._last_weights.values()])
    np.save(f"{folder}/weights-{rank}.npy", weights.numpy())
    np.save(f"{folder}/loss-{rank}.npy", np.array([record["loss"] for record in records]))
    dist.destroy_process_group()


def train_alone(num_ranks: int) -> torch.Tensor:
    """What R ranks should do, in one process: one step with the mean gradient of R batches."""
    torch.set_num_threads(1)
    graph = shoal.load("blocks", num_nodes=1000)
    model, sampler = make_model(graph).train(), make_sampler(graph)
    optimizer = FusedAdam(model.parameters(), lr=0.01)
    for step in range(EPOCHS * -(-sampler.num_batches // num_ranks)):
        optimizer.zero_grad()
        for k in range(step * num_ranks, (step + 1) * num_ranks):
            batch = sampler.sample(k)
            (compute_loss(model(batch, k), batch) / num_ranks).backward()
        optimizer.step()
    return torch.cat([value.reshape(-1) for value in model.state_dict().values()])


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_together_take_the_steps_of_one_process_with_as_many_batches(num_ranks, tmp_path):
    mp.spawn(run_rank, (num_ranks, str(tmp_path), False), nprocs=num_ranks)
    weights = [np.load(tmp_path / f"weights-{rank}.npy") for rank in range(num_ranks)]
    losses = [np.load(tmp_path / f"loss-{rank}.npy") for rank in range(num_ranks)]
    for rank in range(1, num_ranks):
        np.testing.assert_array_equal(weights[rank], weights[0])
        np.testing.assert_array_equal(losses[rank], losses[0])
    np.testing.assert_allclose(weights[0], train_alone(num_ranks), rtol=1e-3, atol=1e-5)
    assert (tmp_path / "run-0" / "last.safetensors").is_file()
    assert not (tmp_path / "run-1").exists()


def test_ranks_that_sample_their_own_parts_end_with_the_same_weights(tmp_path):
    mp.spawn(run_rank, (2, str(tmp_path), True), nprocs=2)
    first, second = (np.load(tmp_path / f"weights-{rank}.npy") for rank in range(2))
    np.testing.assert_array_equal(first, second)
    losses = np.load(tmp_path / "loss-0.npy")
    assert losses[-1] < losses[0]
