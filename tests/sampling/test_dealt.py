"""DealtSampler: ranks' parts are disjoint, cover the graph, and are dealt anew."""

import numpy as np
import pytest

import shoal
from small_graphs import make_labelled

OPTIONS = {"budget": 40, "frontier": 8, "seed": 3}


@pytest.fixture(scope="module")
def graph():
    return make_labelled(400)


def make_ranks(graph, num_ranks=3, **options):
    assignment = np.arange(graph.num_nodes) % 12
    return [
        shoal.DealtSampler(
            graph, "frontier", assignment=assignment, rank=r, num_ranks=num_ranks, **{**OPTIONS, **options}
        )
        for r in range(num_ranks)
    ]


def test_parts_are_disjoint_cover_everything_and_change(graph):
    ranks = make_ranks(graph)
    for deal in range(3):
        nodes = np.concatenate([rank.part_nodes(deal) for rank in ranks])
        assert np.array_equal(np.sort(nodes), np.arange(graph.num_nodes))
    assert not np.array_equal(ranks[0].part_nodes(0), ranks[0].part_nodes(1))


@pytest.mark.parametrize("setting", ["inductive", "transductive"])
def test_batches_stay_inside_the_part_of_their_epoch(graph, setting):
    for rank in make_ranks(graph, reshuffle_every=2, setting=setting):
        for epoch in (0, 1, 2, 5):
            k = epoch * rank.num_batches
            batch = rank.sample(k)
            part = rank.graph.global_ids(rank.part_nodes(epoch // 2))
            assert np.isin(batch.n_id.numpy(), part).all()
            assert np.array_equal(rank.graph.global_ids(rank.draw_nodes(k)), batch.n_id.numpy())
            np.testing.assert_array_equal(batch.x.numpy(), graph.x[batch.n_id.numpy()])
            if setting == "inductive":
                assert graph.train_mask[batch.n_id.numpy()].all()


def test_ranks_agree_on_the_length_of_an_epoch_and_batches_are_reproducible(graph):
    ranks, again = make_ranks(graph), make_ranks(graph)
    assert len({rank.num_batches for rank in ranks}) == 1
    assert again[1].sample(9).n_id.equal(ranks[1].sample(9).n_id)
    assert ranks[1].sample(0).n_id.equal(again[1].sample(0).n_id)


def test_what_cannot_be_dealt_is_refused(graph):
    with pytest.raises(shoal.ShoalError, match="12 clusters cannot be dealt to 13 ranks"):
        make_ranks(graph, num_ranks=13)
    with pytest.raises(shoal.ShoalError, match="expected the cluster of each"):
        shoal.DealtSampler(graph, "frontier", assignment=np.zeros(3), rank=0, num_ranks=1)
