"""Adam without torch's compiler takes torch's steps and is saved as torch's is."""

import builtins
import copy
from functools import partial

import pytest
import torch

from shoal.training.optimizer import _plain, make_optimizer

OURS = {name: partial(make_optimizer, name) for name in ("adam", "adamw")}
THEIRS = {"adam": partial(torch.optim.Adam, fused=True), "adamw": partial(torch.optim.AdamW, fused=True)}


def make_steps(make, optimizer_state=None):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = make(model.parameters(), lr=0.1, weight_decay=0.01)
    if optimizer_state is not None:
        optimizer.load_state_dict(copy.deepcopy(optimizer_state))
    for turn in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 4), turn + 1.0)).square().sum().backward()
        optimizer.step()
    assert all(weight.requires_grad for weight in model.parameters())
    return torch.cat([weight.detach().ravel() for weight in model.parameters()]), optimizer.state_dict()


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_steps_are_those_of_torch(name):
    weights, state = make_steps(OURS[name])
    want, _ = make_steps(THEIRS[name])
    assert torch.equal(weights, want)
    assert torch.equal(make_steps(OURS[name], state)[0], make_steps(THEIRS[name], state)[0])


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_the_compiler_is_not_asked_for(name, monkeypatch):
    asked, load = [], builtins.__import__
    monkeypatch.setattr(
        builtins, "__import__", lambda *args, **kwargs: asked.append(args[0]) or load(*args, **kwargs)
    )
    _, state = make_steps(OURS[name])
    make_steps(OURS[name], state)
    assert not [module for module in asked if "dynamo" in module]


def test_methods_are_those_of_the_class_itself():
    class Own(torch.optim.Adam):
        def step(self, closure=None):
            return "its own"

    weight = torch.nn.Parameter(torch.zeros(1))
    assert _plain(Own)([weight], lr=0.1).step() == "its own"
