"""Data-parallel training with real ranks: each draws its own batches, all end with the same weights."""

import numpy as np
import pytest

from data_parallel_ranks import (
    make_blind_trainer,
    move_here,
    open_here,
    predict_moves,
    save_on_rank_0_alone,
    train_alone,
    train_blind,
    train_here,
)
from shoal.distributed.transport import LocalTransport
from shoal.training.norm_statistics import read_statistics


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_together_take_the_steps_of_one_process_with_as_many_batches(num_ranks, tmp_path, ranks):
    want = train_alone(num_ranks)  # first: it compiles the kernels once for all
    found = ranks("gloo", num_ranks).call(train_here, str(tmp_path), False)
    for rank in range(1, num_ranks):
        assert found["weights"][rank] == found["weights"][0]
        assert found["losses"][rank] == found["losses"][0]
    np.testing.assert_allclose(found["weights"][0], want, rtol=1e-3, atol=1e-5)
    assert (tmp_path / "run-0" / "last.safetensors").is_file()
    assert not (tmp_path / "run-1").exists()


def test_ranks_that_sample_their_own_parts_end_with_the_same_weights(tmp_path, ranks):
    found = ranks("gloo", 2).call(train_here, str(tmp_path), True)
    assert found["weights"][0] == found["weights"][1]
    assert found["losses"][0][-1] < found["losses"][0][0]


def test_rows_that_move_when_parts_are_dealt_anew_are_those_of_the_graph_and_counted_to_the_byte(ranks):
    found = ranks("gloo", 3).call(move_here)
    assert found["same"]
    assert found["sent"] == found["counted"]
    assert np.sum(found["sent"]) > 0
    assert found["losses"][0] == found["losses"][1]


def test_features_that_move_between_ranks_are_predicted_by_their_mean(ranks):
    """A deal takes as long as the rank with most to send or to receive, by latency and bandwidth."""
    found = ranks("gloo", 3).call(predict_moves)
    dealt, moving, still = found["said"]
    moved = np.array(found["moved"])
    costs = 1e-3 * (moved > 0) + moved / 1e6
    seconds = np.maximum(costs.sum(1), costs.sum(2)).max(1).sum() / 16
    num_bytes, messages = found["sent"]
    assert num_bytes == moved.sum() > 0
    assert found["steps"] > 3
    assert (
        dealt
        == moving
        == [round(num_bytes / 16), round(messages / 16), found["steps"], pytest.approx(seconds)]
    )
    assert still == [0, 0, found["steps"], 0]


def test_ranks_of_which_one_has_a_folder_save_after_epochs_alone(tmp_path, ranks):
    assert ranks("gloo", 2).call(save_on_rank_0_alone, str(tmp_path), limit=60) > 1
    assert (tmp_path / "last.safetensors").is_file()
    assert not (tmp_path / "last-1.safetensors").exists()


def test_one_process_opens_the_batch_norms_that_ranks_ended_with(tmp_path, ranks):
    want = ranks("gloo", 2).call(train_blind, str(tmp_path))
    alone = make_blind_trainer(LocalTransport())
    alone.resume(tmp_path)
    alone.restore_best()
    assert [one.tolist() for one in read_statistics(alone.model)] == want


def test_ranks_without_a_method_settle_it_before_the_depth_that_follows_from_it(ranks):
    """One process takes eight layers for exact steps; ranks draw batches of their own."""
    options = {"num_nodes": 2000, "num_classes": 4, "degree": 6, "num_features": 8, "homophily": 0.05}
    content = {"data": "blocks", "data_options": {**options, "seed": 1}, "method": "auto"}
    assert open_here(LocalTransport(), content) == ("full", 8)
    assert ranks("gloo", 2).call(open_here, content) == ["sampled", 4]
