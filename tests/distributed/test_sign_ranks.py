"""SIGN on ranks that draw batches of their own takes the steps of one process with larger batches."""

import json

import numpy as np
import pytest

import shoal as package
from rank_runs import train_run
from shoal.distributed.transport import LocalTransport
from shoal.runs.trained import load_run
from shoal.store import save_graph


def test_two_ranks_take_the_steps_of_one_with_twice_the_batch(ranks, tmp_path):
    common = {
        "data": "blocks",
        "data_options": {"num_nodes": 400},
        "method": "sampled",
        "model": {"name": "sign", "hidden": 16, "dropout": 0.0},
        "training": {"epochs": 3, "threads": 1},
    }
    train_run(LocalTransport(), {**common, "sampler": {"batch_size": 80}}, str(tmp_path / "alone"))
    pair = {**common, "sampler": {"batch_size": 40}}
    ranks("gloo", 2).call(train_run, pair, str(tmp_path / "pair"))
    one, other = load_run(tmp_path / "alone"), load_run(tmp_path / "pair")
    assert int(one.graph.train_mask.sum()) % 80 == 0
    np.testing.assert_allclose(one.predict_proba(), other.predict_proba(), rtol=1e-4, atol=1e-5)


def test_the_command_predicts_the_steps_and_weights_of_real_ranks(ranks, shoal, tmp_path):
    """The gradients of two ranks take two latencies and the bytes of all weights once."""
    save_graph(package.load("blocks", num_nodes=400, num_features=7).with_split(seed=0), tmp_path / "graph")
    config = {
        "data": str(tmp_path / "graph"),
        "method": "sampled",
        "model": {"name": "sign", "hops": 2, "hidden": 16, "head_layers": 1, "norm": "batch"},
        "training": {"epochs": 1, "threads": 1},
        "sampler": {"batch_size": 40},
    }
    ranks("gloo", 2).call(train_run, config, str(tmp_path / "pair"))
    batches = json.loads((tmp_path / "pair" / "metrics.jsonl").read_text().splitlines()[0])["batches"]
    size = 4 * sum(weight.numel() for weight in load_run(tmp_path / "pair").model.parameters())
    model = [f"model.{key}={value}" for key, value in config["model"].items()]
    settings = ["sampler.batch_size=40", *model]
    line = ("graph", "--parts", "2", "--latency", "10", "--bandwidth", "1", "--json")
    told = shoal("simulate", *line, *(word for one in settings for word in ("--set", one)))
    assert told.code == 0, told.stderr
    (said,) = json.loads(told.stdout)
    assert said["steps"] == batches > 1
    assert said["reduce"] == pytest.approx(batches * (2 * 10e-6 + size / 1e6))
    assert (said["num_bytes"], said["exchanges"]) == (0, [])
    assert said["norm_sums"] == []
    line = (*line, "--model", "sign", "--set", "method=partitioned")
    assert "leave out method partitioned" in shoal("simulate", *line).refusal()
