"""Shards: bounded files, one checkpoint under one name, and nothing left over."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

import shoal
from forked import fork, wait
from shoal.lock import clear_folder
from shoal.training import tensor_files
from shoal.training.checkpoint import FORMAT, HALO_FORMAT, read_own, save_own
from shoal.training.keeper import list_last
from shoal.training.tensor_files import drop_all_shards, read_tensors, save_tensors

EPOCHS = 4
MOST = 600  # bytes in a shard


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "SHARD_BYTES", MOST)


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return shoal.load("blocks", num_nodes=200, num_features=8, seed=1)


def make_trainer(graph: shoal.Graph, folder: Path | None = None) -> shoal.Trainer:
    model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes, dropout=0.3, seed=0)
    return shoal.Trainer(model, graph, shoal.NodeSampler(graph, budget=100), checkpoints=folder, ema=0.9)


def make_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    sizes = {"a": 100, "b": 40, "c": 500, "d": 0, "e": 3, "f": 120}
    return {name: torch.rand(size) for name, size in sizes.items()}


def find_shards(folder: Path, stem: str) -> set[str]:
    """Those there are; each must be listed by a file of that name."""
    found = {path.name for path in folder.glob(f"{stem}.*.safetensors")}
    listed = set[str]()
    for path in [folder / f"{stem}.safetensors", *folder.glob(f"{stem}-*.safetensors")]:
        with tensor_files.safe_open(path, framework="pt") as file:
            listed |= set(json.loads(file.metadata()["shards"]))
    assert found == listed
    return found


def measure_anonymous() -> int:
    """Bytes that this process holds and that are in no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def check_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def corrupt(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_tensors_come_back_from_shards_of_bounded_size(small: None, tmp_path: Path) -> None:
    tensors = make_tensors()
    save_tensors(tmp_path / "a.safetensors", tensors, FORMAT, {"epoch": 3})
    found, progress = read_tensors(tmp_path / "a.safetensors", FORMAT)
    check_equal(found, tensors)
    assert progress == {"epoch": 3}
    shards = [tensor_files._open(tmp_path / name)[0] for name in find_shards(tmp_path, "a")]
    assert sorted(sorted(shard) for shard in shards) == [["a", "b"], ["c"], ["d", "e", "f"]]
    assert all(len(shard) == 1 or sum(one.nbytes for one in shard.values()) <= MOST for shard in shards)


def test_few_bytes_are_one_file_as_before(tmp_path: Path) -> None:
    save_tensors(tmp_path / "a.safetensors", make_tensors(), FORMAT)
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
    assert tensor_files._open(tmp_path / "a.safetensors")[1]["format"] == "shoal-checkpoint-2"


def test_shards_of_what_was_replaced_are_removed(small: None, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, make_tensors(0), FORMAT)
    before = find_shards(tmp_path, "a")
    save_tensors(path, make_tensors(1), FORMAT)
    assert len(find_shards(tmp_path, "a") | before) == 6
    save_tensors(path, {"a": torch.zeros(1)}, FORMAT)
    assert [one.name for one in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_failed_writer_leaves_what_was_there(small: None, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, make_tensors(0), FORMAT)
    before = {one.name for one in tmp_path.iterdir()}

    def fail() -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        save_tensors(path, make_tensors(1), FORMAT, None, fail)  # all its shards are written
    assert {one.name for one in tmp_path.iterdir()} == before
    check_equal(read_tensors(path, FORMAT)[0], make_tensors(0))


@pytest.mark.parametrize("renamed", [0, 1, 2, 3])
def test_a_writer_killed_between_shards_leaves_the_file_before(
    small: None, tmp_path: Path, renamed: int
) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, make_tensors(0), FORMAT)
    before = {one.name for one in tmp_path.iterdir()}

    def save() -> None:
        moments = iter(range(renamed, -1, -1))
        sys.addaudithook(lambda event, _: event == "os.rename" and next(moments) == 0 and os._exit(77))
        save_tensors(path, make_tensors(1), FORMAT)

    assert wait(fork(save)) == 77
    shards = [one for one in tmp_path.iterdir() if one.name not in before and one.suffix == ".safetensors"]
    assert len(shards) == renamed
    check_equal(read_tensors(path, FORMAT)[0], make_tensors(0))
    clear_folder(tmp_path)
    drop_all_shards(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == before
    check_equal(read_tensors(path, FORMAT)[0], make_tensors(0))


def test_shards_are_read_without_memory_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tensor_files, "SHARD_BYTES", 16 << 20)
    tensors = {f"{i}": torch.full((1 << 20,), float(i)) for i in range(32)}
    save_tensors(tmp_path / "a.safetensors", tensors, FORMAT)
    assert len(find_shards(tmp_path, "a")) == 8
    before = measure_anonymous()
    found, _ = read_tensors(tmp_path / "a.safetensors", FORMAT)
    assert measure_anonymous() - before < 16 << 20  # of 128 MB
    check_equal(found, tensors)


def test_a_rank_removes_its_own_shards_and_no_others(small: None, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        for rank in (1, 11):
            save_own(tmp_path, HALO_FORMAT, step, rank, make_tensors(step), keep=2)
    stems = {path.name.split(".")[0] for path in tmp_path.iterdir()}
    assert stems == {"halo-2-1", "halo-3-1", "halo-2-11", "halo-3-11"}
    for stem in stems:
        assert len(find_shards(tmp_path, stem)) == 3
    check_equal(read_own(tmp_path, HALO_FORMAT, 2, 11), make_tensors(2))


@pytest.mark.parametrize("name", ["../a.0123456789abcdef.safetensors", "b.safetensors", ""])
def test_a_list_of_shards_names_no_other_files(small: None, tmp_path: Path, name: str) -> None:
    path = tmp_path / "folder/a.safetensors"
    save_tensors(path, {}, FORMAT)
    shutil.copy(path, tmp_path / "a.0123456789abcdef.safetensors")
    shutil.copy(path, tmp_path / "folder/b.safetensors")
    listed = json.dumps({name: tensor_files._digest({}, "{}")})
    about = {"progress": "{}", "shards": listed, "sha256": tensor_files._digest({}, "{}" + listed)}
    tensor_files._write(path, {}, {"format": "shoal-checkpoint-3"} | about)
    with pytest.raises(shoal.ShoalError, match="does not exist beside it"):
        read_tensors(path, FORMAT)


def test_a_run_resumed_from_shards_has_the_same_bits(small: None, graph: shoal.Graph, tmp_path: Path) -> None:
    straight = make_trainer(graph)
    straight.fit(EPOCHS)
    first = make_trainer(graph, tmp_path)
    first.fit(2)
    assert len(find_shards(tmp_path, "last")) > 4
    second = make_trainer(graph, tmp_path)
    second.resume(tmp_path)
    assert second.notices == []
    second.fit(EPOCHS)
    check_equal(second.last_weights, straight.last_weights)
    check_equal(second.weights.best, straight.weights.best)
    find_shards(tmp_path, "last")
    assert find_shards(tmp_path, "best")


@pytest.mark.parametrize("damage", [corrupt, Path.unlink])
def test_a_damaged_shard_makes_way_to_the_checkpoint_before(
    small: None, graph: shoal.Graph, tmp_path: Path, damage
) -> None:
    straight = make_trainer(graph)
    straight.fit(EPOCHS)
    make_trainer(graph, tmp_path).fit(3)
    with tensor_files.safe_open(list_last(tmp_path)[0], framework="pt") as file:
        shard = tmp_path / sorted(json.loads(file.metadata()["shards"]))[-1]
    damage(shard)
    resumed = make_trainer(graph, tmp_path)
    resumed.resume(tmp_path)
    assert resumed.epoch == 2
    (notice,) = resumed.notices
    assert shard.name in notice
    assert notice.endswith("resumed from last-1.safetensors, after epoch 2")
    resumed.fit(EPOCHS)
    check_equal(resumed.last_weights, straight.last_weights)
    find_shards(tmp_path, "last")
    assert len(list_last(tmp_path)) == 2
