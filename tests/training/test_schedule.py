"""Learning-rate schedules."""

from itertools import pairwise

import pytest

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
