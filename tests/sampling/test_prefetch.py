"""Prefetching changes when batches are drawn and nothing else; the loader feeds PyG models."""

import itertools
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.sampling.base import make_sampler
from shoal.sampling.feature_cache import FeatureCaching
from shoal.sampling.feature_stream import FeatureStream
from small_graphs import make_labelled


def num_sampling_threads():
    return sum(thread.name.startswith("shoal-sampler") for thread in threading.enumerate())


@pytest.fixture(scope="module")
def graph():
    return make_labelled(400)


@pytest.fixture
def sampler(graph):
    return shoal.FrontierSampler(graph, budget=60, frontier=10, seed=2)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_order_and_content_do_not_depend_on_the_number_of_threads(sampler, num_threads):
    with shoal.Prefetcher(sampler, 5, 25, num_threads=num_threads) as batches:
        for k, batch in enumerate(batches, 5):
            plain = sampler.sample(k)
            assert batch.index == k
            assert batch.n_id.equal(plain.n_id)
            assert batch.block(0).indices.equal(plain.block(0).indices)
            assert batch.x.equal(plain.x)
    assert k == 24
    assert num_sampling_threads() == 0


def test_the_pool_is_bounded(sampler):
    drawn = []
    with shoal.Prefetcher(
        sampler, num_threads=2, capacity=3, prepare=lambda b: drawn.append(b.index)
    ) as batches:
        next(batches)
        time.sleep(0.2)
        assert len(drawn) <= 1 + 3
        assert batches.position == 1


def test_closing_early_ends_the_threads(sampler):
    batches = shoal.Prefetcher(sampler, num_threads=3)
    next(batches)
    assert 1 <= num_sampling_threads() <= 3
    batches.close()
    assert num_sampling_threads() == 0
    with pytest.raises(StopIteration):
        next(batches)


def test_prefetchers_that_are_dropped_leave_no_threads_behind(sampler):
    for _ in range(20):
        next(shoal.Prefetcher(sampler, num_threads=2))
    ends = time.monotonic() + 10  # the threads are not waited for: each finishes its batch first
    while num_sampling_threads() and time.monotonic() < ends:
        time.sleep(0.01)
    assert num_sampling_threads() == 0


def interrupt(step, number):
    """Call `step`, with Ctrl-C's exception where its `number`-th function begins or ends, as a signal's comes; whether it came
    so far."""
    left = number

    def trace(frame, event, argument):
        nonlocal left
        left -= event in ("call", "return")
        if left == 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    try:
        sys.settrace(trace)
        step()
    except (KeyboardInterrupt, RuntimeError):  # of a Condition that is no longer held
        pass
    finally:
        sys.settrace(None)
    return left <= 0


@pytest.mark.parametrize("on_disk", [False, True])
def test_threads_end_wherever_an_interrupt_comes(graph, sampler, tmp_path, on_disk):
    stored = shoal.open_graph(shoal.save_graph(graph, tmp_path / "graph"))
    caching = FeatureCaching(cache=0.2, window=5, readers=1)
    for number in itertools.count(1):
        if on_disk:
            walks = shoal.RandomWalkSampler(stored, roots=4)
            batches = FeatureStream(walks, 0, caching.make_cache(stored), caching)
            came = interrupt(lambda batches=batches: batches._reader.take(0), number)
        else:
            begun = time.monotonic()  # the first batch comes while it is waited for
            batches = shoal.Prefetcher(
                sampler, prepare=lambda _, begun=begun: time.sleep(max(0, begun + 0.2 - time.monotonic()))
            )
            came = interrupt(lambda batches=batches: next(batches), number)
        ending = threading.Thread(target=batches.close, daemon=True)
        ending.start()
        ending.join(30)
        assert not ending.is_alive(), f"a thread hangs after an interrupt at place {number}"
        if not came:
            break
    assert number > 4


@pytest.mark.parametrize("num_threads", [1, 2])
def test_errors_in_threads_reach_the_loop_at_their_batch(sampler, num_threads):
    def prepare(batch):
        if batch.index == 4:
            raise shoal.ShoalError("batch 4 is spoilt")

    seen = []
    with (
        pytest.raises(shoal.ShoalError, match="batch 4 is spoilt"),
        shoal.Prefetcher(sampler, num_threads=num_threads, prepare=prepare) as batches,
    ):
        seen.extend(batch.index for batch in batches)
    assert seen == [0, 1, 2, 3]
    assert num_sampling_threads() == 0


def test_a_loader_tells_what_it_draws(graph):
    loader = shoal.SubgraphLoader(graph, "random-walk", roots=5, depth=2, num_threads=0)
    assert repr(loader).startswith("SubgraphLoader(RandomWalkSampler(")
    assert "roots=5, depth=2" in repr(loader)


def test_breaking_out_of_a_loader_ends_its_threads(graph, sampler):
    loader = shoal.SubgraphLoader(graph, sampler, num_threads=2)
    for _ in loader:
        break
    del _
    assert num_sampling_threads() == 0


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_loader_gives_the_epochs_of_its_sampler(graph, sampler, num_threads):
    loader = shoal.SubgraphLoader(graph, sampler, num_threads=num_threads)
    numbers = [[batch.index for batch in loader] for _ in range(2)]
    assert numbers == [list(range(len(loader))), list(range(len(loader), 2 * len(loader)))]
    later = shoal.SubgraphLoader(graph, sampler, num_threads=num_threads, first_epoch=1)
    assert [batch.index for batch in later] == numbers[1]


def test_a_pyg_model_learns_from_pyg_data_through_the_loader(graph):
    pyg = pytest.importorskip("torch_geometric")
    from torch_geometric.nn import SAGEConv

    rows = np.repeat(np.arange(graph.num_nodes), graph.degree)
    data = pyg.data.Data(
        x=torch.from_numpy(graph.x),
        y=torch.from_numpy(graph.y),
        edge_index=torch.from_numpy(np.stack([graph.indices.astype(np.int64), rows])),
        train_mask=torch.from_numpy(graph.train_mask),
        val_mask=torch.from_numpy(graph.val_mask),
        test_mask=torch.from_numpy(graph.test_mask),
    )
    torch.manual_seed(0)
    first, second = SAGEConv(graph.num_features, 16), SAGEConv(16, graph.num_classes)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.02)
    loader = shoal.SubgraphLoader(data, "frontier", budget=100, frontier=20, coverage=20)
    for _ in range(8):
        for batch in loader:
            out = second(first(batch.x, batch.edge_index).relu(), batch.edge_index)
            loss = torch.nn.functional.cross_entropy(out, batch.y, reduction="none")
            loss = (loss * batch.node_norm)[batch.train_mask].sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert batch.edge_norm.shape == (batch.edge_index.shape[1],)
            assert (batch.n_id < graph.num_nodes).all()
    out = second(first(data.x, data.edge_index).relu(), data.edge_index)
    assert (out.argmax(1) == data.y)[data.test_mask].float().mean() > 0.8


def test_a_loader_makes_sparse_features_dense(graph):
    sparse = graph._copy(x=sp.csr_array(graph.x))
    ours = next(iter(shoal.SubgraphLoader(sparse, "frontier", budget=60, frontier=10)))
    dense = next(iter(shoal.SubgraphLoader(graph, "frontier", budget=60, frontier=10)))
    torch.testing.assert_close(ours.x, dense.x)


def test_a_loader_refuses_what_does_not_fit(graph, sampler):
    with pytest.raises(shoal.ShoalError, match="make the sampler for this graph"):
        shoal.SubgraphLoader(make_labelled(300), sampler)
    with pytest.raises(shoal.ShoalError, match="give it to the constructor of the sampler"):
        shoal.SubgraphLoader(graph, sampler, budget=3)
    with pytest.raises(
        shoal.ShoalError, match="input_nodes was given with a Sampler: give it to the constructor"
    ):
        shoal.SubgraphLoader(graph, sampler, input_nodes=[1])


def train_weights(graph, sampling_threads, epochs, resume=None, checkpoints=None):
    torch.manual_seed(0)
    sampler = shoal.FrontierSampler(graph, budget=60, frontier=10, seed=2)
    model = shoal.GNN("sage", graph.num_features, 16, graph.num_classes, dropout=0)
    trainer = shoal.Trainer(
        model, graph, sampler, sampling_threads=sampling_threads, checkpoints=checkpoints, eval_every=100
    )
    if resume is not None:
        trainer.resume(resume)
    trainer.fit(epochs)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_training_with_threads_gives_the_same_weights(graph, tmp_path):
    plain = train_weights(graph, 0, 4)
    assert train_weights(graph, 2, 4).equal(plain)
    train_weights(graph, 2, 2, checkpoints=tmp_path)
    (tmp_path / "best.safetensors").unlink(missing_ok=True)
    assert train_weights(graph, 2, 4, resume=tmp_path).equal(plain)
    assert num_sampling_threads() == 0


def test_a_negative_number_of_threads_is_refused(graph):
    model = shoal.GNN("sage", graph.num_features, 16, graph.num_classes)
    with pytest.raises(shoal.ShoalError, match="sampling_threads is -1"):
        shoal.Trainer(model, graph, sampling_threads=-1)


def test_shards_are_disjoint_and_together_everything(graph):
    sampler = make_sampler("random-walk", graph, roots=10)
    shards = [shoal.ShardedSampler(sampler, rank, 3) for rank in range(3)]
    numbers = [shard.batch_number(step) for step in range(4) for shard in shards]
    assert numbers == list(range(12))
    for step in range(2):
        for rank, shard in enumerate(shards):
            assert shard.sample(step).n_id.equal(sampler.sample(3 * step + rank).n_id)
    assert all(shard.num_batches == -(-sampler.num_batches // 3) for shard in shards)
    with pytest.raises(shoal.ShoalError, match="0 to 2"):
        shoal.ShardedSampler(sampler, 3, 3)
