"""Covers between ranks: what uses them, what does not, and parts stored before there were any."""

import json

import numpy as np
import pytest

import shoal
from rank_jobs import Job, make_graph, train_stored_part
from shoal.array_files import hash_file
from shoal.distributed.exchanges.p2p import PointToPoint, pays
from shoal.distributed.transport import LocalTransport
from shoal.errors import ShoalError
from shoal.partitioning.part import split_graph
from shoal.partitioning.stored import open_part, store_parts
from shoal.runs.config import make_config
from shoal.runs.data import open_data, partition_for_run
from shoal.verified import SEAL, seal


def test_attention_has_no_covers_and_is_told_so():
    assert not PointToPoint().covers(["attention"])
    with pytest.raises(ShoalError, match="attention needs whole rows: leave it out"):
        PointToPoint(cover=True).covers(["attention"])
    with pytest.raises(ShoalError, match="expected boundary_sampling=nodes"):
        PointToPoint(cover=True, boundary_rate=0.5, boundary_sampling="edges").covers(["mean"])


def test_a_boundary_rate_samples_rows_unless_covers_are_asked_for():
    assert PointToPoint().covers(["mean"])
    assert not PointToPoint(boundary_rate=0.5).covers(["mean"])
    assert PointToPoint(boundary_rate=0.5, cover=True).covers(["mean"])
    assert not PointToPoint(cover=False).covers(["mean"])


def test_nothing_to_exchange_is_not_worth_a_cover():
    assert not pays(0, 0)
    assert pays(90, 100)
    assert not pays(99, 100)


def test_runs_cut_for_covers_only_where_the_model_can_use_them():
    graph = shoal.load("digits")
    methods = {}
    for model in ("sage", "gat"):
        config = make_config({"data": "digits", "method": "partitioned", "model": {"name": model}})
        methods[model] = partition_for_run(config, graph, 4).method
    assert methods == {"sage": "cover", "gat": "hypergraph"}


def test_auto_takes_an_effort_and_fast_is_the_default():
    steps = {}
    for effort in (None, "fast", "default"):
        content = {"data": "digits", "method": "partitioned"}
        config = make_config(content | ({"partition": {"effort": effort}} if effort else {}))
        config.validate()
        steps[effort] = set(partition_for_run(config, make_graph(Job()), 2).seconds)
    assert steps[None] == steps["fast"]
    assert steps["default"] - steps["fast"] >= {"metis-volume"}


def test_parts_made_for_sums_are_noticed_by_a_run_that_sends_rows(tmp_path):
    graph = make_graph(Job())
    partition = shoal.Partition(graph, np.zeros(graph.num_nodes, np.int32), 1, "cover")
    store_parts(graph, partition, tmp_path / "parts")
    said = {}
    for model, cover in (("gat", None), ("sage", None), ("sage", False)):
        settings = {"folder": str(tmp_path / "parts"), "cover": cover}
        content = {"data": "", "method": "partitioned", "model": {"name": model}, "partition": settings}
        said[model, cover] = open_data(make_config(content), tmp_path, LocalTransport()).notices
    assert said["sage", None] == ()
    for notices in (said["gat", None], said["sage", False]):
        assert "made by method cover for partial sums" in notices[0]


def drop_keep(folder, rank):
    """Make a stored part what it was before covers were kept."""
    own = folder / f"part-{rank:05d}"
    about = json.loads((own / "part.json").read_text())
    about["arrays"].pop("keep")
    (own / "part.json").write_text(json.dumps(about | {SEAL: seal(about)}, indent=1) + "\n")
    (own / "keep.npy").unlink()


def test_parts_stored_without_covers_find_them(tmp_path, ranks):
    graph = make_graph(Job())
    assignment = np.random.default_rng(0).integers(0, 2, graph.num_nodes).astype(np.int32)
    store_parts(graph, shoal.Partition(graph, assignment, 2), tmp_path / "parts")
    live = ranks("gloo", 2)
    losses = live.call(train_stored_part, str(tmp_path / "parts"))
    manifest = json.loads((tmp_path / "parts" / "manifest.json").read_text())
    for rank in range(2):
        drop_keep(tmp_path / "parts", rank)
        manifest["parts"][rank]["sha256"] = hash_file(tmp_path / "parts" / f"part-{rank:05d}" / "part.json")
    (tmp_path / "parts" / "manifest.json").write_text(json.dumps(manifest | {SEAL: seal(manifest)}))
    assert open_part(tmp_path / "parts", 0).keep is None
    assert live.call(train_stored_part, str(tmp_path / "parts")) == losses
    assert split_graph(graph, assignment, 2)[0].keep is not None
