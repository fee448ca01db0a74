"""Checkpoints: exact, atomic, and clear about what does not fit."""

import pytest
import torch

import shoal
from shoal.training.checkpoint import load_checkpoint, save_checkpoint


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
