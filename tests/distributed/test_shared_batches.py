"""Mini-batches shared by real ranks take the steps of one process with the same sampler."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import shoal
from rank_jobs import NUM_NODES, Job, make_graph, make_trainer
from shared_batch_ranks import CASES, train_alone, train_here
from shoal.distributed.minibatch import cut_batch
from shoal.distributed.transport import LocalTransport
from shoal.errors import ShoalError
from shoal.partitioning.part import make_part


@cache
def expected(case):
    return train_alone(case)


@pytest.mark.parametrize(("transport", "num_ranks"), [("gloo", 3), ("mpi", 3)])
def test_every_model_and_sampler_is_exact(transport, num_ranks, ranks):
    wanted = [expected(case) for case in CASES]  # first: it compiles the kernels once for all
    sent = {}
    for number, (case, want) in enumerate(zip(CASES, wanted)):
        answer = ranks(transport, num_ranks).call(train_here, number)
        limit = 1e-10 if case.job.double else 1e-4
        np.testing.assert_allclose(answer["losses"], want["losses"], rtol=limit, err_msg=case.name)
        assert answer["test"] == pytest.approx(want["test"], abs=1e-12), case.name
        assert answer["last"]["batches"] == want["last"]["batches"]
        assert answer["last"]["bytes"] > 0 or case.job.partition == "empty"
        sent[case.job.cover, case.sampler, case.options, case.job.model, case.job.directed] = answer["last"][
            "bytes"
        ]
    rows, covers = (
        sent[cover, "node", (("budget", 60), ("coverage", 5)), "gcn", False] for cover in (False, None)
    )
    assert covers < 0.95 * rows


def make_one(sampler, exchange="p2p", **settings):
    graph = make_graph(Job())
    part = make_part(graph, np.zeros(graph.num_nodes, np.int64), 1, 0)
    return make_trainer(Job(exchange=exchange), part, LocalTransport(), sampler(graph), **settings)


@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_the_graph_or_the_parts_alone_are_refused(weighted):
    part = make_part(make_graph(Job(weighted=not weighted)), np.zeros(NUM_NODES, np.int64), 1, 0)
    sampler = shoal.NodeSampler(make_graph(Job(weighted=weighted)), budget=10)
    with pytest.raises(
        ShoalError,
        match=r"only one of graph .* and its stored parts has edge weights: partition the graph that is trained on",
    ):
        make_trainer(Job(), part, LocalTransport(), sampler)


def test_a_batch_of_a_graph_without_weights_has_none_of_its_parts():
    part = make_part(make_graph(Job(weighted=True)), np.zeros(NUM_NODES, np.int64), 1, 0)
    nodes, place = np.arange(40), np.full(NUM_NODES, -1, np.int32)
    share, _ = cut_batch(part, make_graph(Job()), nodes, np.zeros(40, np.int64), place)
    assert share.local_weight is None
    assert share.halo_weight is None


def test_what_cannot_be_shared_is_refused():
    with pytest.raises(ShoalError, match="no induced subgraphs"):
        make_one(lambda graph: shoal.NeighborSampler(graph))
    with pytest.raises(ShoalError, match="another split"):
        make_one(lambda graph: shoal.NodeSampler(graph.with_split(0.2, 0.2, seed=1), budget=10))
    with pytest.raises(ShoalError, match="leave out the sampler"):
        make_one(lambda graph: shoal.NodeSampler(graph, budget=10), boundary_rate=0.5)
    with pytest.raises(ShoalError, match="'broadcast' sends every row"):
        make_one(lambda graph: shoal.NodeSampler(graph, budget=10), exchange="broadcast")
