"""Stale halos between real ranks: an epoch uses what the one before received, exactly that, whatever comes when."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from typing import Any

import pytest

from message_ranks import follow_stale, refuse_missing, resume, train
from rank_jobs import Job
from shoal.distributed.exchanges.p2p import PointToPoint
from shoal.errors import ShoalError
from stale_reference import compare_training

PLANS: list[dict[str, Any]] = [
    {"cover": False},
    {"cover": True},
    {"cover": True, "smoothing": 0.6},
]


@pytest.mark.parametrize(("transport", "num_ranks"), [("gloo", 2), ("gloo", 3), ("mpi", 3)])
def test_products_read_the_halo_of_the_step_before(transport, num_ranks, ranks):
    group = ranks(transport, num_ranks)
    for settings in PLANS:
        for kind, directed in (("mean", False), ("gcn", True)):
            assert group.call(follow_stale, settings, directed, kind, 5) < 1e-6, (settings, kind)


@pytest.mark.parametrize(("transport", "num_ranks"), [("gloo", 2), ("gloo", 3), ("mpi", 3)])
def test_stale_training_is_that_of_dense_matrices(transport, num_ranks, ranks):
    """Losses, gradients and weights of eight epochs, by plain torch in one process."""
    group = ranks(transport, num_ranks)
    for model, settings in product(("sage", "gcn"), PLANS):
        job = asdict(Job(model, double=True, settings=(("num_layers", 3),), training=(("lr", 0.02),)))
        for projects in (True, False):
            found = group.call(compare_training, job, settings, projects, 8)
            assert max(found) < 1e-10, (model, settings, projects, found)


@pytest.mark.parametrize(("transport", "num_ranks"), [("gloo", 2), ("mpi", 3)])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(transport, num_ranks, ranks, tmp_path):
    cases = [
        (Job("sage"), {}),
        (Job("gat", partition="empty"), {"messages": "int8"}),
        (Job("mixhop", directed=True), {"messages": "int4", "smoothing": 0.5}),
        (Job("gcn", norm="batch"), {"messages": "bfloat16", "smoothing": 0.5, "cover": True}),
    ]
    for number, (job, settings) in enumerate(cases):
        content = settings | {"staleness": 1}
        found = ranks(transport, num_ranks).call(resume, asdict(job), content, str(tmp_path / str(number)))
        assert len(found) == 4
        assert len(set(found)) == 1, (job.name, found)


@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_stale_training_differs_from_exact_after_the_first_epoch_and_learns(transport, ranks):
    group = ranks(transport, 3)
    job = asdict(Job("sage", double=True))
    exact = group.call(train, job, {}, 30)
    stale = group.call(train, job, {"staleness": 1}, 30)
    smooth = group.call(train, job, {"staleness": 1, "smoothing": 0.5}, 30)
    assert stale["losses"][0] == pytest.approx(exact["losses"][0], rel=1e-12)
    assert stale["losses"][1] != pytest.approx(exact["losses"][1], rel=1e-6)
    assert smooth["losses"][:2] == pytest.approx(stale["losses"][:2], rel=1e-12)
    assert smooth["losses"][2] != pytest.approx(stale["losses"][2], rel=1e-9)
    for found in (stale, smooth):
        assert found["losses"][-1] < 0.6 * found["losses"][0]
        assert found["counted"] == [found["predicted"]] * 30
        assert found["off"] < 1e-9, "evaluation is exact"


def test_a_checkpoint_without_halos_is_refused(ranks, tmp_path):
    said = ranks("gloo", 2).call(refuse_missing, str(tmp_path))
    assert "halo-1-0.safetensors does not exist" in said


def test_what_does_not_combine_is_refused():
    with pytest.raises(ShoalError, match="leave out the boundary rate, or staleness"):
        PointToPoint(staleness=1, boundary_rate=0.5)
    with pytest.raises(ShoalError, match="add staleness=1"):
        PointToPoint(smoothing=0.5)
    with pytest.raises(ShoalError, match="staleness is 2: expected 0 to 1"):
        PointToPoint(staleness=2)
    said = PointToPoint(messages="int8", staleness=1, smoothing=0.5).describe()
    assert said == "int8 messages; halos of the previous epoch, smoothed by 0.5"
