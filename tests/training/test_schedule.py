"""Learning-rate schedules."""

from itertools import pairwise

import pytest
import torch

import shoal
from shoal.training.schedule import SCHEDULES, scale_learning_rate


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_starts_at_one_and_never_rises_or_goes_below_zero(schedule):
    factors = [scale_learning_rate(schedule, epoch, 40) for epoch in range(40)]
    assert factors[0] == 1
    assert all(0 <= later <= earlier for earlier, later in pairwise(factors))


def test_warmup_rises_in_equal_steps_to_the_full_rate():
    assert [scale_learning_rate("cosine", epoch, 10, 3) for epoch in range(4)] == pytest.approx(
        [0.25, 0.5, 0.75, 1]
    )


def test_cosine_linear_and_step_are_where_they_should_be_at_half_time():
    at_half = {name: scale_learning_rate(name, 20, 40) for name in SCHEDULES}
    assert at_half == pytest.approx({"constant": 1, "cosine": 0.5, "linear": 0.5, "step": 0.1})
    assert scale_learning_rate("step", 30, 40) == pytest.approx(0.01)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(shoal.ShoalError, match="cosin"):
        scale_learning_rate("cosin", 0, 1)


def test_the_trainer_follows_it_and_a_resumed_one_too(tmp_path):
    graph = shoal.load("digits")

    def trainer():
        model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes)
        return shoal.Trainer(model, graph, lr=0.1, schedule="linear", checkpoints=tmp_path, eval_every=100)

    rates = [record["lr"] for record in trainer().fit(4)]
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])
    later = trainer()
    later.resume(tmp_path)
    assert [record["lr"] for record in later.fit(8)] == pytest.approx([0.05, 0.0375, 0.025, 0.0125])


def make_trainer(tmp_path, **settings):
    graph = shoal.load("blocks", num_nodes=200, seed=1)
    model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes, seed=0)
    return shoal.Trainer(model, graph, checkpoints=tmp_path, patience=None, **settings)


def check_resumed(tmp_path, **settings):
    """The learning rates of 6 epochs, which a run resumed after 3 has too, with the same weights at the end."""
    straight = make_trainer(tmp_path / "straight", **settings)
    straight.fit(6)
    make_trainer(tmp_path / "halved", **settings).fit(3)
    second = make_trainer(tmp_path / "halved", **settings)
    second.resume(tmp_path / "halved")
    second.fit(6)
    rates = [record["lr"] for record in straight.history]
    assert [record["lr"] for record in second.history] == rates[3:]
    for name, value in straight.last_weights.items():
        assert torch.equal(second.last_weights[name], value)
    return rates


def test_a_schedule_may_be_a_function_of_the_epoch(tmp_path):
    rates = check_resumed(tmp_path, lr=0.1, schedule=lambda epoch: 0.5 ** (epoch // 2))
    assert rates == [0.1, 0.1, 0.05, 0.05, 0.025, 0.025]
    warmed = make_trainer(tmp_path / "warm", lr=0.1, schedule=lambda epoch: 0.5**epoch, warmup=1)
    assert [record["lr"] for record in warmed.fit(3)] == pytest.approx([0.05, 0.05, 0.025])


class Halve(shoal.Callback):
    """Halves the rate after every second epoch."""

    def on_epoch(self, trainer, record):
        if record["epoch"] % 2 == 0:
            for group in trainer.optimizer.param_groups:
                group["lr"] *= 0.5


def test_a_rate_that_a_callback_changes_stays_changed(tmp_path):
    assert check_resumed(tmp_path, lr=0.1, callbacks=Halve()) == [0.1, 0.1, 0.05, 0.05, 0.025, 0.025]
    with_schedule = check_resumed(
        tmp_path / "linear", lr=0.1, callbacks=Halve(), schedule=lambda e: 1 - e / 8
    )
    assert with_schedule == pytest.approx([0.1, 0.0875, 0.0375, 0.03125, 0.0125, 0.009375])


def test_a_trainer_that_goes_back_has_the_rate_it_was_made_with(tmp_path):
    trainer = make_trainer(tmp_path / "changed", lr=0.1, callbacks=Halve())
    make_trainer(tmp_path / "plain", lr=0.1).fit(1)
    trainer.fit(2)
    trainer.resume(tmp_path / "plain")
    assert trainer.fit(2)[0]["lr"] == 0.1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            torch.optim.lr_scheduler.StepLR,
            "class StepLR: expected constant, cosine, linear, step, or a function",
        ),
        (3, r"schedule is 3: expected text or a function \(constant \| cosine \| linear \| step\)"),
        ("cosin", "did you mean 'cosine'"),
    ],
)
def test_what_is_no_schedule_is_refused_with_those_there_are(tmp_path, given, said):
    with pytest.raises(shoal.ShoalError, match=said):
        make_trainer(tmp_path, schedule=given)


def test_a_schedule_that_returns_no_factor_is_refused(tmp_path):
    with pytest.raises(shoal.ShoalError, match="returned -1 for epoch 0: expected a factor of 0 or more"):
        make_trainer(tmp_path, schedule=lambda epoch: -1).fit(1)
