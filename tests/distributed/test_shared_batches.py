"""Mini-batches shared by real ranks take the steps of one process with the same sampler."""

from __future__ import annotations

import json

import numpy as np
import pytest

import shared_batch_ranks
import shoal
from launched_ranks import run_ranks
from rank_jobs import Job, make_graph, make_model
from shared_batch_ranks import CASES, train_alone
from shoal.distributed.transport import LocalTransport
from shoal.errors import ShoalError
from shoal.partitioning.part import make_part
from shoal.training.partitioned import PartitionedTrainer


@pytest.mark.parametrize(("transport", "num_ranks"), [("gloo", 3), ("mpi", 2)])
def test_every_model_and_sampler_is_exact(transport, num_ranks, tmp_path):
    wanted = [train_alone(case) for case in CASES]
    run_ranks(num_ranks, shared_batch_ranks.__file__, tmp_path, transport=transport).check()
    answers = json.loads((tmp_path / "answers.json").read_text())
    for case, answer, want in zip(CASES, answers, wanted, strict=True):
        limit = 1e-10 if case.job.double else 1e-4
        np.testing.assert_allclose(answer["losses"], want["losses"], rtol=limit, err_msg=case.name)
        assert answer["test"] == pytest.approx(want["test"], abs=1e-12), case.name
        assert answer["last"]["batches"] == want["last"]["batches"]
        assert answer["last"]["bytes"] > 0 or case.job.partition == "empty"


def make_trainer(sampler, **settings):
    graph = make_graph(Job())
    part = make_part(graph, np.zeros(graph.num_nodes, np.int64), 1, 0)
    return PartitionedTrainer(make_model(Job()), part, LocalTransport(), sampler(graph), **settings)


def test_what_cannot_be_shared_is_refused():
    with pytest.raises(ShoalError, match="no whole subgraphs"):
        make_trainer(lambda graph: shoal.NeighborSampler(graph))
    with pytest.raises(ShoalError, match="another split"):
        make_trainer(lambda graph: shoal.NodeSampler(graph.with_split(0.2, 0.2, seed=1), budget=10))
    with pytest.raises(ShoalError, match="leave out the sampler"):
        make_trainer(lambda graph: shoal.NodeSampler(graph, budget=10), boundary_rate=0.5)
    with pytest.raises(ShoalError, match="p2p"):
        make_trainer(lambda graph: shoal.NodeSampler(graph, budget=10), exchange="broadcast")
