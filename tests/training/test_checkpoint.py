"""Checkpoints: exact, atomic, and clear about what does not fit."""

import tracemalloc

import pytest
import safetensors.torch
import torch

import shoal
from shoal.training.checkpoint import (
    BUFFER_FORMAT,
    FORMAT,
    HALO_FORMAT,
    drop_own,
    load_checkpoint,
    read_own,
    save_checkpoint,
    save_own,
)
from shoal.training.tensor_files import _TYPES, read_tensors, save_tensors


def make(hidden: int = 8) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, hidden)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_checkpoint_brings_back_weights_optimizer_and_progress(tmp_path):
    model, optimizer = make()
    save_checkpoint(
        tmp_path / "a.safetensors", model.state_dict(), optimizer, {"epoch": 3, "best_score": float("-inf")}
    )
    other, other_optimizer = make()
    progress = load_checkpoint(tmp_path / "a.safetensors", other, other_optimizer)
    assert progress == {"epoch": 3, "best_score": float("-inf")}
    assert torch.equal(model.weight, other.weight)
    for ours, theirs in zip(optimizer.state.values(), other_optimizer.state.values()):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_tensors_of_every_type_are_written_as_safetensors_are(tmp_path):
    types = [*_TYPES]
    tensors = {f"{i}": torch.arange(5).to(one) for i, one in enumerate(types)}
    tensors |= {"none": torch.empty(0, 3), "one": torch.tensor(2.5), "turned": torch.rand(3, 4).T}
    save_tensors(tmp_path / "a.safetensors", tensors, FORMAT, {"name": "ä"})
    found = safetensors.torch.load_file(tmp_path / "a.safetensors")
    ours, progress = read_tensors(tmp_path / "a.safetensors", FORMAT)
    assert progress == {"name": "ä"}
    assert found.keys() == ours.keys() == tensors.keys()
    for name, tensor in tensors.items():
        for one in (found[name], ours[name]):
            assert (one.dtype, one.shape) == (tensor.dtype, tensor.shape)
            assert (
                one.contiguous()
                .view(-1)
                .view(torch.uint8)
                .equal(tensor.contiguous().view(-1).view(torch.uint8))
            )


def test_writing_a_checkpoint_takes_no_memory_for_what_it_holds(tmp_path):
    tensors = {f"{i}": torch.zeros(1 << 20) for i in range(8)}
    tracemalloc.start()
    try:
        save_tensors(tmp_path / "a.safetensors", tensors, FORMAT)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "a.safetensors").stat().st_size > 32 << 20
    assert most < 1 << 20


def test_a_checkpoint_of_another_model_is_refused_by_the_part_that_differs(tmp_path):
    save_checkpoint(tmp_path / "a.safetensors", make(8)[0].state_dict())
    with pytest.raises(shoal.ShoalError, match=r"does not fit this model: bias is \(8,\), expected \(6,\)"):
        load_checkpoint(tmp_path / "a.safetensors", make(6)[0])


def test_damaged_and_missing_checkpoints_are_named(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(shoal.ShoalError, match="does not exist"):
        load_checkpoint(path, make()[0])
    save_checkpoint(path, make()[0].state_dict())
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(shoal.ShoalError, match="is damaged"):
        load_checkpoint(path, make()[0])


def test_a_changed_byte_is_found_wherever_it_is(tmp_path):
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, make()[0].state_dict(), None, {"epoch": 3})
    sound = path.read_bytes()
    accepted = 0
    for place in range(8, len(sound)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 4]) + sound[place + 1 :])
        try:
            load_checkpoint(path, make()[0])
            accepted += 1
        except shoal.ShoalError:
            pass
    assert accepted <= 8  # blanks that pad the header


def test_a_checkpoint_of_the_first_format_is_read_without_a_checksum(tmp_path):
    model = make()[0]
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    metadata = {"format": "shoal-checkpoint-1", "progress": '{"epoch": 2}'}
    (tmp_path / "a.safetensors").write_bytes(safetensors.torch.save(tensors, metadata=metadata))
    other = make()[0]
    assert load_checkpoint(tmp_path / "a.safetensors", other) == {"epoch": 2}
    assert torch.equal(other.weight, model.weight)


def test_a_rank_that_went_back_keeps_its_newest_files_and_those_of_no_later_step(tmp_path):
    for step in (10, 20, 30):
        save_own(tmp_path, HALO_FORMAT, step, 1, {"step": torch.tensor(step)}, keep=2)
    save_own(tmp_path, HALO_FORMAT, 30, 0, {"step": torch.tensor(30)}, keep=2)
    save_own(tmp_path, HALO_FORMAT, 25, 1, {"step": torch.tensor(-25)}, keep=2)  # after going back to 20
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "halo-20-1.safetensors",
        "halo-25-1.safetensors",
        "halo-30-0.safetensors",
    ]
    assert read_own(tmp_path, HALO_FORMAT, 25, 1)["step"] == -25


def test_files_of_ranks_that_no_checkpoint_needs_are_removed(tmp_path):
    for kind, step, rank in [(HALO_FORMAT, 10, 0), (BUFFER_FORMAT, 20, 3), (HALO_FORMAT, 25, 1)]:
        save_own(tmp_path, kind, step, rank, {"a": torch.tensor(0)}, keep=2)
    save_own(tmp_path, HALO_FORMAT, 40, 1, {"a": torch.tensor(0)}, keep=2)  # of a rank that is ahead
    kept = [tmp_path / name for name in ("last.safetensors", "last-1.safetensors")]
    for path, step in zip(kept, (30, 20)):
        save_checkpoint(path, make()[0].state_dict(), progress={"step": step})
    before = {path.name for path in tmp_path.iterdir()}
    drop_own(tmp_path, kept, 30)
    gone = {"halo-10-0.safetensors", "halo-25-1.safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == before - gone
    save_own(tmp_path, HALO_FORMAT, 10, 0, {"a": torch.tensor(0)}, keep=2)
    kept[1].write_bytes(b"")  # nobody knows what it needed
    drop_own(tmp_path, kept, 30)
    assert (tmp_path / "halo-10-0.safetensors").exists()


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"losses": torch.zeros(2, 2)}, "its losses are not a list of numbers"),
        ({"optimizer.0.step": torch.tensor(1.0)}, "it lacks part of the optimizer's state"),
        ({"optimizer.0.other": torch.tensor(1.0)}, "it lacks part of the optimizer's state"),
    ],
)
def test_what_cannot_be_a_state_of_training_is_refused(tmp_path, tensors, said):
    model, optimizer = make()
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    save_tensors(tmp_path / "a.safetensors", weights | tensors, FORMAT)
    with pytest.raises(shoal.ShoalError, match=said):
        load_checkpoint(tmp_path / "a.safetensors", model, optimizer)


def make_trainer(**settings) -> shoal.Trainer:
    graph = shoal.load("blocks", num_nodes=200, seed=1)
    return shoal.Trainer(
        shoal.GNN("sage", graph.num_features, 8, graph.num_classes, seed=0), graph, **settings
    )


def test_paths_of_checkpoints_may_be_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = make_trainer(checkpoints="ck")
    trainer.fit(2)
    trainer.save("saved.safetensors")
    for path in ("ck", "saved.safetensors"):
        other = make_trainer()
        other.resume(path)
        assert other.epoch == 2
        for name, value in trainer.last_weights.items():
            assert torch.equal(other.last_weights[name], value)


def test_a_saved_file_is_resumed_with_the_weights_of_an_uninterrupted_run(tmp_path):
    straight, first, second = (make_trainer(patience=None) for _ in range(3))
    straight.fit(4)
    first.fit(2)
    first.save(tmp_path / "after-two.safetensors")
    second.resume(tmp_path / "after-two.safetensors")
    second.fit(4)
    for name, value in straight.last_weights.items():
        assert torch.equal(second.last_weights[name], value)
    assert [record["epoch"] for record in second.history] == [3, 4]
    assert "has no best weights beside the last ones" in second.notices[0]


def test_resuming_from_a_missing_folder_says_who_writes_checkpoints(tmp_path):
    with pytest.raises(shoal.ShoalError, match=r"written by `shoal train` or a shoal\.Trainer"):
        make_trainer().resume(tmp_path / "none")
    make_trainer(checkpoints=tmp_path / "ck").fit(1)
    with pytest.raises(shoal.ShoalError, match=r"no config\.yaml; it holds checkpoints of a shoal\.Trainer"):
        shoal.load_run(tmp_path / "ck")
