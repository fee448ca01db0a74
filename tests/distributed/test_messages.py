"""int8 and int4 messages between real ranks: unbiased, repeatable, counted to the byte, and absent from evaluation."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from message_ranks import average_products, train
from rank_jobs import Job, train_alone

EPOCHS = 4


@pytest.mark.parametrize(("transport", "num_ranks"), [("gloo", 2), ("gloo", 3), ("mpi", 3)])
@pytest.mark.parametrize(("messages", "bound"), [("int8", 0.01), ("int4", 0.1)])
def test_training_stays_near_exact_training_and_repeats(transport, num_ranks, messages, bound, ranks):
    group = ranks(transport, num_ranks)
    for job in (Job("sage", epochs=EPOCHS), Job("gat", double=True, directed=True, epochs=EPOCHS)):
        settings = {"messages": messages, "seed": 3}
        found = group.call(train, asdict(job), settings, EPOCHS)
        np.testing.assert_allclose(found["losses"], train_alone(job)["losses"], rtol=bound)
        assert found["counted"] == [found["predicted"]] * EPOCHS
        assert found["off"] < 1e-2, "evaluation is exact"
        again = group.call(train, asdict(job), settings, EPOCHS)
        assert (again["weights"], again["losses"]) == (found["weights"], found["losses"])
        other = group.call(train, asdict(job), settings | {"seed": 4}, EPOCHS)
        assert other["weights"] != found["weights"]


@pytest.mark.parametrize("messages", ["int8", "int4"])
@pytest.mark.parametrize("cover", [False, True])
def test_products_and_gradients_are_unbiased(messages, cover, ranks):
    """Over 200 steps no mean is off by 5.5 standard errors, which are far below what rounding to nearest would be off by."""
    for kind, directed in (("mean", False), ("gcn", True)):
        settings = {"messages": messages, "cover": cover}
        worst, error = ranks("gloo", 3).call(average_products, settings, directed, kind, 200)
        assert worst < 5.5, (kind, worst)
        assert error < 0.07, (kind, error)


def test_bfloat16_is_not_used_in_evaluation(ranks):
    job = Job("gcn", epochs=2)
    found = ranks("gloo", 2).call(train, asdict(job), {"messages": "bfloat16"}, 2)
    assert found["off"] < 1e-2
    assert found["counted"] == [found["predicted"]] * 2
