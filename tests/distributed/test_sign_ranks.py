"""SIGN on ranks that draw batches of their own takes the steps of one process with larger batches."""

import numpy as np

from rank_runs import train_run
from shoal.distributed.transport import LocalTransport
from shoal.runs.trained import load_run


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
