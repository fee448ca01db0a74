"""The moving average of weights: its formula, who uses it, and that training does not."""

import numpy as np
import pytest
import safetensors.torch
import torch

import shoal

DECAY = 0.8


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return shoal.load("blocks", num_nodes=400, seed=1)


def make_trainer(graph, ema=DECAY, **settings):
    model = shoal.GNN("gcn", graph.num_features, 16, graph.num_classes, dropout=0.2, norm="batch", seed=2)
    return shoal.Trainer(model, graph, shoal.RandomWalkSampler(graph, roots=40, depth=2), ema=ema, **settings)


def copy_weights(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def is_same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_average_weighs_steps_by_powers_of_the_decay(graph):
    trainer = make_trainer(graph)
    seen = []
    for k in range(5):
        trainer.train_step(trainer.sampler.sample(k))
        seen.append(copy_weights(trainer))
    factors = np.array([DECAY ** (4 - i) for i in range(5)])
    for name, found in trainer.weights.average.items():
        steps = np.stack([one[name].numpy() for one in seen])
        expected = np.tensordot(factors / factors.sum(), steps, 1)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_training_takes_the_same_steps_with_an_average(graph):
    plain, averaged = make_trainer(graph, None), make_trainer(graph)
    plain.fit(3)
    averaged.fit(3)
    assert is_same(dict(plain.last_weights), dict(averaged.last_weights))


def test_evaluation_uses_the_average_and_leaves_the_weights(graph):
    trainer = make_trainer(graph)
    trainer.train_epoch()
    raw = copy_weights(trainer)
    scores, vectors, labels = trainer.evaluate("val"), trainer.embed(), trainer.predict()
    assert is_same(copy_weights(trainer), raw)
    other = make_trainer(graph, None)
    with trainer.weights.averaged():  # with the statistics of batch norm that belong to the average
        other.model.load_state_dict(trainer.model.state_dict())
    assert is_same(copy_weights(other), trainer.weights.average)
    assert other.evaluate("val") == scores
    assert torch.equal(other.embed(), vectors)
    assert torch.equal(other.predict(), labels)


def test_the_best_weights_are_averaged_ones_with_the_buffers_of_their_epoch(graph, tmp_path):
    trainer = make_trainer(graph, checkpoints=tmp_path)
    records = trainer.fit(4)
    stored = safetensors.torch.load_file(tmp_path / "best.safetensors")
    found = {name.removeprefix("model."): value for name, value in stored.items()}
    assert is_same(found, dict(trainer.model.state_dict()))
    assert any("running_mean" in name for name in found)
    best = records[trainer.best_epoch - 1]
    assert trainer.evaluate("val")["accuracy"] == best["val_accuracy"]


def test_without_validation_nodes_the_result_is_the_average(graph, tmp_path):
    graph = graph._copy(val_mask=np.zeros(graph.num_nodes, bool))
    trainer = make_trainer(graph, checkpoints=tmp_path)
    trainer.fit(2)
    assert is_same(copy_weights(trainer), trainer.weights.average)
    other = make_trainer(graph)
    other.resume(tmp_path)
    other.restore_best()
    assert is_same(copy_weights(other), trainer.weights.average)


def test_a_resumed_average_equals_an_uninterrupted_one(graph, tmp_path):
    straight = make_trainer(graph)
    straight.fit(4)
    make_trainer(graph, checkpoints=tmp_path).fit(2)
    resumed = make_trainer(graph, checkpoints=tmp_path)
    resumed.resume(tmp_path)
    resumed.fit(4)
    assert resumed.weights.steps == straight.weights.steps
    assert is_same(resumed.weights.average, straight.weights.average)
    assert is_same(dict(resumed.model.state_dict()), dict(straight.model.state_dict()))


def test_checkpoints_without_an_average_still_load(graph, tmp_path):
    first = make_trainer(graph, None, checkpoints=tmp_path)
    first.fit(1)
    trainer = make_trainer(graph)
    trainer.resume(tmp_path)
    assert trainer.weights.average == {}
    trainer.train_epoch()
    assert trainer.weights.steps == trainer.sampler.num_batches
    trainer.save(tmp_path / "last.safetensors")
    plain = make_trainer(graph, None)
    plain.resume(tmp_path)
    assert is_same(dict(plain.model.state_dict()), dict(trainer.last_weights))


def test_a_decay_of_one_is_refused(graph):
    with pytest.raises(shoal.ShoalError, match="ema is 1"):
        make_trainer(graph, 1.0)
