"""Models, losses, metrics and callbacks of users' own, which know nothing of Shoal's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import shoal
from shoal.distributed.transport import LocalTransport
from shoal.partitioning.part import make_part
from shoal.runs.build import make_model as build_model
from shoal.runs.config import make_config
from user_models import StopOnRankZero, TiedModel, make_model


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return shoal.load("blocks", num_nodes=300, seed=1)


def plain_loss(logits, y):
    return functional.cross_entropy(logits, y, reduction="none")


def test_any_module_trains_is_saved_resumed_and_embedded(graph, tmp_path):
    trainer = shoal.Trainer(make_model(graph), graph, checkpoints=tmp_path)
    trainer.fit(2)
    other = shoal.Trainer(make_model(graph), graph)
    other.resume(tmp_path)
    assert other.epoch == 2
    assert trainer.embed().shape == (300, graph.num_features)
    assert trainer.predict().shape == (300,)


def test_a_loss_and_a_metric_are_functions(graph):
    def share_right(logits, y):
        return (logits.argmax(1) == y).float().mean()

    trainer = shoal.Trainer(make_model(graph), graph, loss=plain_loss, metric=share_right)
    record = trainer.fit(1)[0]
    assert record["val_share_right"] == pytest.approx(record["val_accuracy"])
    assert trainer.metric == "share_right"
    with pytest.raises(shoal.ShoalError, match="takes no class_weights"):
        shoal.Trainer(make_model(graph), graph, loss=plain_loss, class_weights="balanced")
    with pytest.raises(shoal.ShoalError, match="expected one number for each of"):
        shoal.Trainer(make_model(graph), graph, loss=functional.cross_entropy).fit(1)


def test_a_callback_stops_training(graph):
    trainer = shoal.Trainer(make_model(graph), graph, callbacks=[StopOnRankZero()])
    assert len(trainer.fit(9)) == 2
    assert len(shoal.Trainer(make_model(graph), graph, callbacks=[StopOnRankZero]).fit(9)) == 2
    with pytest.raises(shoal.ShoalError, match="unknown callback 'stopp'"):
        shoal.Trainer(make_model(graph), graph, callbacks="stopp")
    with pytest.raises(shoal.ShoalError, match=r"expected a shoal\.Callback"):
        shoal.Trainer(make_model(graph), graph, callbacks=[{"name": "stop"}])


def test_train_step_is_an_epochs_step(graph):
    sampler = shoal.RandomWalkSampler(graph, roots=50)
    whole, single = (shoal.Trainer(make_model(graph), graph, sampler) for _ in range(2))
    record = whole.train_epoch()
    losses = [single.train_step(batch) for batch in sampler.epoch(0)]
    assert record["loss"] == pytest.approx(np.mean(losses))
    for ours, theirs in zip(whole.model.parameters(), single.model.parameters()):
        assert torch.equal(ours, theirs)


def test_epochs_of_given_batches_may_come_between_sampled_ones(graph):
    sampler = shoal.RandomWalkSampler(graph, roots=50)
    trainer = shoal.Trainer(make_model(graph), graph, sampler, sampling_threads=1)
    trainer.train_epoch()
    trainer.train_epoch(batches=iter([sampler.sample(7)]))
    assert trainer.train_epoch()["epoch"] == 3


def test_the_seed_decides_the_weights_of_a_registered_model(graph):
    shoal.MODELS.add("tied", TiedModel)
    first, again, other = (
        build_model(make_config({"model": {"name": "tied"}, "training": {"seed": seed}}), 4, 2)
        for seed in (1, 1, 2)
    )
    assert torch.equal(first.out, again.out)
    assert not torch.equal(first.out, other.out)


def test_a_part_has_no_edge_index(graph):
    part = make_part(graph, np.zeros(300, np.int64), 1, 0)
    trainer = shoal.Trainer(make_model(part), part, transport=LocalTransport())
    with pytest.raises(shoal.ShoalError, match="its halo would be missing"):
        _ = trainer.share.example().edge_index
