"""Every way of training across ranks sends what the simulator says, to the byte and the message."""

from __future__ import annotations

import pytest

from simulated_ranks import CASES, NORMS, compare, count_norm_sums

SILENT = ("'mlp'", "'empty'", "'boundary_rate': 0.0")  # of what ranks may have nothing to send for
RANKS = [("gloo", 1), ("gloo", 2), ("gloo", 3), ("mpi", 4)]


@pytest.mark.parametrize(("transport", "num_ranks"), RANKS)
@pytest.mark.parametrize("kind", list(CASES))
def test_ranks_send_what_is_predicted(transport, num_ranks, kind, ranks):
    """In every epoch on the whole graph; of batches in the first one. Memory by BNS-GCN's model is the same too."""
    group = ranks(transport, num_ranks)
    some = 1 if num_ranks == 3 else 4  # a few of the cases at every number of ranks, all of them at one
    for found in group.call(compare, kind, num_ranks % some, some):
        counted = found["counted"] if kind == "whole" else found["counted"][:1]
        assert counted == [found["predicted"]] * len(counted), found["case"]
        assert found["held"], found["case"]
        if kind == "whole":
            assert found["modelled"][0] == found["modelled"][1], found["case"]
        silent = kind == "replicas" or any(word in found["case"] for word in SILENT)
        assert found["predicted"][0] > 0 or num_ranks == 1 or silent, found["case"]


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_batch_norm_takes_the_sums_that_are_predicted(num_ranks, ranks):
    """In every step: two for each norm, one more for each pass of label reuse; none with layer norm or own batches."""
    group = ranks("gloo", num_ranks)
    for number, (kind, case) in enumerate(NORMS):
        found = group.call(count_norm_sums, number)
        *steps, after = found["counted"]
        assert len(steps) == found["steps"][0] == found["steps"][1], case
        assert steps == [found["predicted"]] * len(steps), case
        assert after == [], case
        assert bool(found["predicted"]) == (case.job.norm == "batch" and kind != "replicas"), case
