"""Adam without torch's compiler takes torch's steps and is saved as torch's is."""

import builtins
import copy
from functools import partial

import pytest
import torch

import shoal
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


def make_trainer(optimizer, **settings):
    graph = shoal.load("blocks", num_nodes=200, seed=1)
    model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes, seed=0)
    return shoal.Trainer(model, graph, optimizer=optimizer, patience=None, **settings)


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        (torch.optim.SGD, 0.03),
        (partial(torch.optim.SGD, momentum=0.9), 0.03),
        (partial(torch.optim.SGD, lr=0.5), 0.5),
        (lambda params: torch.optim.RMSprop(params, lr=0.02), 0.02),
    ],
)
def test_an_optimizer_of_torch_trains_and_is_resumed(tmp_path, optimizer, rate):
    straight = make_trainer(optimizer, lr=0.03)
    assert {record["lr"] for record in straight.fit(4)} == {rate}
    make_trainer(optimizer, lr=0.03, checkpoints=tmp_path).fit(2)
    second = make_trainer(optimizer, lr=0.03)
    second.resume(tmp_path)
    second.fit(4)
    for name, value in straight.last_weights.items():
        assert torch.equal(second.last_weights[name], value)


def test_groups_of_an_optimizer_keep_their_own_rates():
    graph = shoal.load("blocks", num_nodes=200, seed=1)
    model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes, num_layers=2, seed=0)
    weights = list(model.parameters())
    groups = [{"params": weights[:1], "lr": 0.4}, {"params": weights[1:]}]
    made = torch.optim.SGD(groups, lr=0.1)
    trainer = shoal.Trainer(model, graph, optimizer=made, schedule=lambda epoch: 0.5**epoch)
    assert trainer.optimizer is made
    trainer.fit(2)
    assert [group["lr"] for group in made.param_groups] == [0.2, 0.05]


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (torch.optim.LBFGS, "gave a LBFGS: expected a torch.optim.Optimizer whose step needs no closure"),
        (lambda params: 3, "gave a int: expected a torch.optim.Optimizer"),
        (torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1), "no parameters of this model"),
        (3, r"optimizer is 3: expected text or Optimizer or a function \(adam \| adamw\)"),
        ("adamm", "did you mean 'adamw'|did you mean 'adam'"),
    ],
)
def test_what_is_no_optimizer_is_refused_with_those_there_are(optimizer, said):
    with pytest.raises(shoal.ShoalError, match=said):
        make_trainer(optimizer)
