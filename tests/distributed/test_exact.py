"""Training across real ranks takes the steps of a single process: every model, partition and transport."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import rank_jobs
from live_ranks import LiveRanks
from rank_jobs import Job, assign_nodes, make_graph, train_alone, train_here
from shoal.analysis.simulate import Machine, predict_epoch
from shoal.threads import set_threads

MODELS = ("sage", "gcn", "mixhop", "gat")
AVERAGED = (("loss", "log_epsilon"), ("class_weights", "balanced"), ("ema", 0.7))
LINEAR = (("residual", "linear"), ("norm_place", "conv"))
EDGES = (("symmetric", True), ("edge_dropout", 0.4), ("attention_dropout", 0.3), ("output_heads", 1))
REUSE = (("label_reuse", 0.5), ("prior_bias", True))
BOTH = (("directions", "both"),)
ROWS = (("input_norm", "rows"),)
PRE_NORM = (("norm_place", "input"), ("residual", "linear"))


@cache
def expected(job: Job) -> dict[str, Any]:
    threads = torch.get_num_threads()
    set_threads(1)
    try:
        return train_alone(job)
    finally:
        set_threads(threads)


def alone(job: Job) -> Job:
    """The job as one process does it."""
    return replace(job, partition="random", exchange="p2p", half=False, cover=None)


@cache
def assigned(partition: str, directed: bool, num_ranks: int) -> list[int]:
    job = Job(partition=partition, directed=directed)
    return assign_nodes(job, make_graph(job), num_ranks).tolist()


def check_jobs(jobs: list[Job], ranks: LiveRanks, transport: str) -> None:
    """Run the jobs on one group of ranks and hold each to the single process."""
    wanted = [expected(alone(job)) for job in jobs]  # first: it compiles the kernels once for all
    for job, want in zip(jobs, wanted):
        answer = ranks.call(train_here, asdict(job), assigned(job.partition, job.directed, ranks.size))
        bound = 1e-2 if job.half else 1e-10 if job.double else 1e-4
        np.testing.assert_allclose(answer["losses"], want["losses"], rtol=bound, err_msg=job.name)
        if not job.half:
            assert answer["test"] == pytest.approx(want["test"], abs=1e-12), job.name
        if job.double and not job.directed:
            np.testing.assert_allclose(answer["embedding"], want["embedding"], rtol=1e-8, atol=1e-11)
        check_volume(job, answer, ranks.size)
        if job.deep:
            assert (answer["parted"] > 0) == (transport == "gloo")


def check_volume(job: Job, answer: dict[str, Any], num_ranks: int) -> None:
    """Bytes and messages counted are those the partition predicts, to the byte."""
    record = answer["last"]
    item = 2 if job.half else 8 if job.double else 4
    rows = np.array(answer["rows"])
    if job.exchange == "p2p":
        covered = job.model != "gat" and job.cover is not False
        assert rows.sum() <= answer["halo"], job.name
        if not job.cover or job.partition == "random":  # small boundaries may leave nothing to sum
            assert (rows.sum() < answer["halo"]) == (covered and answer["halo"] > 0), job.name
    model = rank_jobs.make_model(job)
    said = predict_epoch(rows, model, Machine(1, 1), item_bytes=item, sparse_features=job.sparse)
    assert (record["bytes"], record["messages"]) == (said.num_bytes, said.num_messages), job.name
    assert model.num_aggregations == 0 or said.num_bytes > 0 or num_ranks == 1
    assert "peers" in answer["first"]
    assert "peers" not in record or job.epochs == 1
    if job.exchange == "p2p":
        check_peers(answer["first"], rows)


def check_peers(record: dict[str, Any], rows: np.ndarray) -> None:
    """What is told of every pair of ranks is what one sends the other, and adds up to the totals."""
    assert sum(entry[4] for entry in record["peers"]) == record["bytes"]
    for exchange in record["exchanges"]:
        layer, way = exchange["layer"], exchange["direction"]
        told = np.zeros_like(rows)
        for rank, peer, *of, num_bytes, _ in record["peers"]:
            if of == [layer, way]:
                told[rank, peer] = num_bytes
        sent = rows if way == "forward" else rows.T
        assert np.array_equal(told * sent.sum(), sent * exchange["bytes"])


SAMPLE = [
    *(Job(model, directed=directed) for model in MODELS for directed in (False, True)),
    *(Job(model, norm="batch", double=True, partition="metis") for model in MODELS),
    *(Job(model, cover=False) for model in MODELS[:3]),
    *(Job(model, directed=True, double=True, cover=True) for model in MODELS[:3]),
    Job("mlp", norm="batch"),
    Job("gcn", sparse=True, directed=True),
    Job("sage", sparse=True, partition="empty", norm="batch"),
    Job("gat", sparse=True, norm="none"),
    Job("mixhop", sparse=True),
    Job("gcn", partition="hypergraph", multi_label=True, norm="none"),
    Job("sage", targets=1, double=True),
    Job("gat", targets=2, double=True, partition="empty"),
    Job("sage", orders="0-1-1", norm="batch", exchange="broadcast"),
    Job("gat", exchange="broadcast", partition="empty"),
    Job("sage", input_dropout=0.2),
    Job("sage", double=True, settings=ROWS),
    Job("gcn", sparse=True, directed=True, double=True, input_dropout=0.2, settings=ROWS),
    *(Job(model, head_layers=0) for model in MODELS),
    Job("mixhop", input_dropout=0.2, norm="batch"),
    Job("gcn", half=True),
    Job("gat", half=True),
    Job("gat", deep=True, double=True, partition="metis"),
    *(Job(model, directed=True, double=True, settings=LINEAR) for model in MODELS),
    Job("sage", sparse=True, norm="batch", double=True, input_dropout=0.2, settings=LINEAR),
    *(Job(model, norm="batch", double=True, settings=PRE_NORM) for model in MODELS),
    Job("gcn", directed=True, double=True, partition="empty", head_layers=0, settings=PRE_NORM),
    Job("gat", directed=True, double=True, settings=EDGES),
    Job("gat", sparse=True, double=True, partition="metis", settings=EDGES),
    *(Job(model, directed=True, double=True, cover=True, settings=BOTH) for model in MODELS[:3]),
    Job("gcn", directed=True, double=True, sparse=True, cover=False, norm="batch", settings=BOTH),
    Job("sage", directed=True, double=True, partition="empty", head_layers=0, settings=BOTH),
    Job("sage", norm="batch", double=True, training=AVERAGED),
    Job("gcn", double=True, multi_label=True, training=AVERAGED),
    *(Job(model, double=True, training=REUSE) for model in MODELS),
    Job("gcn", norm="batch", double=True, setting="inductive", training=REUSE),
    *(Job(model, double=True, weighted=True, directed=model in ("gcn", "gat")) for model in MODELS),
    Job("gcn", double=True, weighted=True, cover=False, partition="empty"),
    Job("gat", double=True, weighted=True, deep=True, partition="metis", settings=EDGES),
    Job("gcn", double=True, weighted=True, directed=True, setting="inductive"),
    *(Job(model, double=True, weighted=True, directed=True, settings=BOTH) for model in MODELS[:2]),
    Job("gcn", double=True, sparse=True, directed=True, partition="empty", training=REUSE),
    Job("sage", double=True, multi_label=True, cover=False, input_dropout=0.2, training=REUSE),
    Job("mixhop", double=True, sparse=True, setting="inductive", training=REUSE),
    Job("sage", double=True, training=(("eval_sample", 25),)),
]


@pytest.mark.parametrize(("transport", "num_ranks"), [("gloo", 3), ("mpi", 4)])
@pytest.mark.parametrize("third", range(3))
def test_ranks_take_the_steps_of_one_process(transport, num_ranks, third, ranks):
    check_jobs(SAMPLE[third::3], ranks(transport, num_ranks), transport)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("transport", ["gloo", "mpi"])
@pytest.mark.parametrize("num_ranks", range(1, 9))
def test_every_model_and_partition_is_exact_on_any_number_of_ranks(transport, num_ranks, ranks):
    """With covers in every linear model."""
    common: dict[str, Any] = {"epochs": 20, "eval_every": 5}
    jobs = [
        Job(model, directed=directed, double=double, partition=partition, cover=cover, **common)
        for model, cover in (("sage", True), ("gcn", True), ("mixhop", True), ("gat", None))
        for directed in (False, True)
        for partition, double in (
            ("random", False),
            *((name, True) for name in ("random", "metis", "hypergraph", "cover")),
        )
    ]
    check_jobs(jobs, ranks(transport, num_ranks), transport)
