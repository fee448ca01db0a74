"""Training that is stopped by signals or saves by the clock goes on at the next batch; damaged checkpoints make way."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shoal
from shoal.errors import Stopped
from shoal.training import tensor_files
from shoal.training.checkpoint import save_checkpoint
from shoal.training.interruption import SIGNALS, Interruption
from shoal.training.keeper import list_last

EPOCHS, BATCHES = 3, 6


class Batches(shoal.NodeSampler):
    """Runs `then` when batch `moment` is drawn."""

    moment, then = -1, staticmethod(lambda: None)

    def sample(self, k: int) -> shoal.Batch:
        if k == self.moment:
            self.then()
        return super().sample(k)


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return shoal.load("blocks", num_nodes=200, num_features=8, seed=1)


def make_trainer(graph: shoal.Graph, folder: Path | None = None, **settings) -> shoal.Trainer:
    torch.manual_seed(0)
    model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes, dropout=0.3)
    sampler = Batches(graph, budget=40)
    return shoal.Trainer(model, graph, sampler, checkpoints=folder, **settings)


def state(trainer: shoal.Trainer) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in trainer.last_weights.items()}


def losses(records: list[dict]) -> list[tuple]:
    return [(record["epoch"], record["loss"], record.get("val_accuracy")) for record in records]


@pytest.fixture(scope="module")
def straight(graph: shoal.Graph) -> tuple[dict[str, np.ndarray], list[tuple]]:
    trainer = make_trainer(graph)
    return trainer.fit(EPOCHS) and state(trainer), losses(make_trainer(graph).fit(EPOCHS))


def check_same(trainer: shoal.Trainer, wanted: dict[str, np.ndarray]) -> None:
    for name, value in state(trainer).items():
        assert np.array_equal(value, wanted[name]), name


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("batch", [0, 7, BATCHES - 1, EPOCHS * BATCHES - 1])
def test_a_signal_ends_training_after_the_step_and_the_rest_has_the_same_bits(
    graph: shoal.Graph, straight: tuple, tmp_path: Path, number: int, batch: int
) -> None:
    first = make_trainer(graph, tmp_path)
    first.sampler.moment, first.sampler.then = batch, lambda: os.kill(os.getpid(), number)
    records: list[dict] = []
    with first.asked.listening(), pytest.raises(Stopped) as stopped:
        first.fit(EPOCHS, records.append)
    assert stopped.value.signal == number
    assert first.step == batch + 1
    second = make_trainer(graph, tmp_path)
    second.resume(tmp_path)
    drawn: list[int] = []
    second.sampler.sample = lambda k: drawn.append(k) or shoal.NodeSampler.sample(second.sampler, k)
    records += second.fit(EPOCHS)
    check_same(second, straight[0])
    assert losses(records) == straight[1]
    assert drawn == list(range(batch + 1, EPOCHS * BATCHES))


def test_checkpoints_by_the_clock_are_resumed_at_the_next_batch(
    graph: shoal.Graph, straight: tuple, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"

    def keep() -> None:
        shutil.copytree(tmp_path / "run", kept)

    trainer = make_trainer(graph, tmp_path / "run", checkpoint_minutes=1e-9)
    trainer.sampler.moment, trainer.sampler.then = 8, keep
    trainer.fit(EPOCHS)
    check_same(trainer, straight[0])
    resumed = make_trainer(graph, kept)
    resumed.resume(kept)
    assert resumed.step == 8
    assert losses(resumed.fit(EPOCHS)) == straight[1][1:]
    check_same(resumed, straight[0])


def test_signals_are_left_alone_outside_of_training(graph: shoal.Graph) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    asked = Interruption()
    with asked.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked.tell(keeps_time=False)
        os.kill(os.getpid(), signal.SIGINT)  # the first Ctrl-C
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert not asked.tell(keeps_time=False)


@pytest.mark.parametrize("number", SIGNALS)
def test_any_of_thousands_of_ranks_stops_all(number: int) -> None:
    asked, told = Interruption(), 0
    with asked.listening():
        os.kill(os.getpid(), number)
        told = asked.tell(keeps_time=False)
    for ranks in (1, 4096):
        other = Interruption()
        other.hear(int(float(ranks * told)))
        assert other.is_due
        with pytest.raises(Stopped) as stopped:
            other.obey()
        assert stopped.value.signal == number
    clock = Interruption(1e-9)
    assert clock.tell(keeps_time=False) == 0
    clock.hear(clock.tell(keeps_time=True))
    assert clock.is_due
    clock.obey()
    assert not clock.is_due


@pytest.mark.parametrize("keep", [1, 2, 4])
def test_so_many_checkpoints_are_kept_newest_first(graph: shoal.Graph, tmp_path: Path, keep: int) -> None:
    make_trainer(graph, tmp_path, keep_checkpoints=keep).fit(6)
    found = list_last(tmp_path)
    assert len(found) == keep
    for age, path in enumerate(found):
        alone = tmp_path / str(age)
        alone.mkdir()
        shutil.copy(path, alone / "last.safetensors")
        trainer = make_trainer(graph)
        trainer.resume(alone)
        assert trainer.epoch == 6 - age


def test_a_damaged_checkpoint_makes_way_to_the_one_before(
    graph: shoal.Graph, straight: tuple, tmp_path: Path
) -> None:
    make_trainer(graph, tmp_path, keep_checkpoints=3).fit(EPOCHS)
    last = tmp_path / "last.safetensors"
    content = bytearray(last.read_bytes())
    content[-9] ^= 1
    last.write_bytes(content)
    (tmp_path / "last-1.safetensors").write_bytes(b"")
    trainer = make_trainer(graph, tmp_path)
    trainer.resume(tmp_path)
    assert trainer.epoch == 1
    assert "last.safetensors is damaged: its checksum does not match" in trainer.notices[0]
    assert trainer.notices[0].endswith("resumed from last-2.safetensors, after epoch 1")
    trainer.fit(EPOCHS)
    check_same(trainer, straight[0])
    for path in list_last(tmp_path):
        path.write_bytes(b"")
    with pytest.raises(shoal.ShoalError, match="damaged"):
        make_trainer(graph).resume(tmp_path)


def test_the_checkpoint_gone_back_to_outlives_the_damaged_one(graph: shoal.Graph, tmp_path: Path) -> None:
    make_trainer(graph, tmp_path).fit(2)
    (tmp_path / "last.safetensors").write_bytes(b"damaged")
    trainer = make_trainer(graph, tmp_path)
    trainer.resume(tmp_path)
    trainer.fit(2)
    for path, epoch in zip(list_last(tmp_path), (2, 1), strict=True):
        alone = make_trainer(graph)
        (tmp_path / str(epoch)).mkdir()
        shutil.copy(path, tmp_path / str(epoch) / "last.safetensors")
        alone.resume(tmp_path / str(epoch))
        assert alone.epoch == epoch


@pytest.mark.parametrize("seconds", [[1], "1", -1.0, float("nan"), True])
def test_seconds_that_are_none_make_way_to_the_checkpoint_before(
    graph: shoal.Graph, tmp_path: Path, seconds: object
) -> None:
    make_trainer(graph, tmp_path).fit(1)
    shutil.copy(tmp_path / "last.safetensors", tmp_path / "last-1.safetensors")
    progress = {"epoch": 1, "best_epoch": 0, "best_score": 0.0, "batches": 1, "nodes": 9}
    progress |= {"losses": [0.5], "seconds": seconds}
    trainer = make_trainer(graph)
    save_checkpoint(tmp_path / "last.safetensors", trainer.model.state_dict(), None, progress)
    trainer.resume(tmp_path)
    assert "its seconds are" in trainer.notices[0]


def test_training_goes_on_without_best_weights_that_are_damaged(
    graph: shoal.Graph, straight: tuple, tmp_path: Path
) -> None:
    make_trainer(graph, tmp_path).fit(1)
    (tmp_path / "best.safetensors").write_bytes(b"damaged")
    trainer = make_trainer(graph, tmp_path)
    trainer.resume(tmp_path)
    assert "best.safetensors is damaged" in trainer.notices[0]
    assert (trainer.epoch, trainer.best_epoch, trainer.best_score) == (1, 0, float("-inf"))
    trainer.fit(EPOCHS)
    check_same(trainer, straight[0])
    assert trainer.best_epoch > 1


def test_a_disk_that_is_full_costs_no_checkpoint(
    graph: shoal.Graph, straight: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(graph, tmp_path)
    trainer.fit(2)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def open_full(path: Path, mode: str) -> Any:
        path.write_bytes(b"what there was room for")
        return open("/dev/full", mode)

    with monkeypatch.context() as patch:
        patch.setattr(tensor_files, "open", open_full, raising=False)
        with pytest.raises(OSError, match="No space left"):
            trainer.fit(EPOCHS)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    again = make_trainer(graph, tmp_path)
    again.resume(tmp_path)
    again.fit(EPOCHS)
    check_same(again, straight[0])
