"""Neighbour, LABOR, FastGCN, LADIES and cluster batches: shapes, laws, unbiasedness, and that models train on them."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch

import shoal
from sampler_laws import SIGNIFICANCE, chi_square_p
from shoal.kernels.spmm import spmm_reference
from shoal.rng import permute
from shoal.sampling import targets
from shoal.sampling.base import make_sampler
from small_graphs import make_graph, make_labelled, make_lopsided

LAYERED = {
    "neighbor": {"fanouts": (5, 3), "batch_size": 60},
    "labor": {"fanouts": (5, 3), "batch_size": 60},
    "fastgcn": {"layer_size": 120, "batch_size": 60},
    "ladies": {"layer_size": 120, "batch_size": 60},
    "asgcn": {"layer_size": 120, "batch_size": 60},
}


FANNED = ("neighbor", "labor")


@pytest.fixture(scope="module")
def graph():
    return make_labelled(400)


@pytest.mark.parametrize("name", LAYERED)
def test_blocks_fit_together_and_rows_come_first(graph, name):
    sampler = make_sampler(name, graph, setting="inductive", **LAYERED[name])
    batch = sampler.sample(1)
    first, last = batch.blocks
    assert first.num_columns == batch.num_nodes
    assert first.num_rows == last.num_columns
    assert last.num_rows == batch.num_outputs == 60
    assert batch.nodes_per_layer == [batch.num_nodes, last.num_columns, 60]
    assert batch.edges_per_layer == [first.num_edges, last.num_edges]
    assert len(np.unique(batch.nodes)) == batch.num_nodes
    train = sampler.graph
    for block in batch.blocks:
        for row in range(block.num_rows):
            columns = block.indices[block.indptr[row] : block.indptr[row + 1]].numpy()
            assert (np.diff(columns) > 0).all()
            v = batch.nodes[row]
            neighbours = train.indices[train.indptr[v] : train.indptr[v + 1]]
            assert np.isin(batch.nodes[columns], neighbours).all()


@pytest.mark.parametrize("name", LAYERED)
def test_an_epoch_answers_for_every_training_node_once(graph, name):
    sampler = make_sampler(name, graph, **LAYERED[name])
    outputs = [batch.n_id[: batch.num_outputs] for batch in sampler.epoch(2)]
    assert torch.cat(outputs).sort().values.tolist() == np.flatnonzero(graph.train_mask).tolist()


@pytest.mark.parametrize("name", LAYERED)
def test_layered_batches_depend_on_seed_and_number_only(graph, name):
    first, again = (make_sampler(name, graph, seed=4, **LAYERED[name]) for _ in range(2))
    drawn = [first.sample(k) for k in (0, 9)]
    assert again.sample(9).n_id.equal(drawn[1].n_id)
    assert again.sample(0).blocks[0].indices.equal(drawn[0].blocks[0].indices)


@pytest.mark.parametrize("name", LAYERED)
@pytest.mark.parametrize("kind", ["mean", "gcn"])
@pytest.mark.parametrize("directed", [False, True])
def test_layered_aggregation_is_unbiased(name, kind, directed):
    """One layer, self loops included, 1,000 batches over all nodes: every (node, column) within 4.5 standard errors."""
    graph = make_labelled(40, directed=directed)
    graph.train_mask = None
    options = {"fanouts": (4,)} if name in FANNED else {"layer_size": 25, "num_layers": 1}
    options |= {"row_normalize": False} if name == "ladies" else {}
    sampler = make_sampler(name, graph, batch_size=40, seed=2, **options)
    torch.manual_seed(0)
    h = torch.randn(40, 2)
    full = shoal.FullSampler(graph).sample(0)
    exact = spmm_reference(full.block(0).adjacency(kind), h)
    sums, squares = torch.zeros(40, 2), torch.zeros(40, 2)
    for k in range(1000):
        batch = sampler.sample(k)
        nodes = torch.from_numpy(batch.nodes)
        rows = nodes[: batch.num_outputs]
        error = spmm_reference(batch.blocks[0].adjacency(kind), h[nodes]) - exact[rows]
        sums[rows] += error
        squares[rows] += error**2
    z = sums / (squares.sqrt() + 1e-3)
    assert float(z.abs().max()) < 4.5


def test_neighbours_are_drawn_uniformly_without_replacement():
    graph = make_graph([(0, i) for i in range(1, 6)], 6)
    sampler = shoal.NeighborSampler(graph, fanouts=(3,), batch_size=6, seed=1)
    counts = Counter()
    for k in range(6000):
        batch = sampler.sample(k)
        row = int(np.flatnonzero(batch.nodes[:6] == 0)[0])
        block = batch.blocks[0]
        drawn = block.indices[block.indptr[row] : block.indptr[row + 1]].numpy()
        counts[frozenset(batch.nodes[drawn].tolist())] += 1
    law = {frozenset(c): 0.1 for c in combinations(range(1, 6), 3)}
    assert chi_square_p(counts, law) > SIGNIFICANCE


def test_fan_out_minus_one_reads_every_neighbour():
    graph = make_lopsided()
    batch = shoal.NeighborSampler(graph, fanouts=(-1, -1), batch_size=6).sample(0)
    assert batch.edges_per_layer == [graph.num_entries, graph.num_entries]


def test_features_follow_the_batch_when_it_holds_every_node(graph):
    graph = make_labelled(40)
    batch = shoal.NeighborSampler(graph, fanouts=(-1, -1), batch_size=40).sample(0)
    assert batch.num_nodes == 40
    np.testing.assert_array_equal(batch.x.numpy(), graph.x[batch.nodes])


@pytest.mark.parametrize("model", ["sage", "gcn"])
@pytest.mark.parametrize(
    ("name", "options"), [*LAYERED.items(), ("cluster", {"num_parts": 8, "clusters_per_batch": 2})]
)
def test_models_learn_from_these_batches(graph, model, name, options):
    torch.manual_seed(0)
    sampler = make_sampler(name, graph, **options)
    trainer = shoal.Trainer(
        shoal.GNN(model, graph.num_features, 32, graph.num_classes, num_layers=2), graph, sampler
    )
    records = trainer.fit(6)
    assert records[-1]["loss"] < records[0]["loss"]
    assert trainer.evaluate("test")["accuracy"] > 0.8


def test_fanouts_are_written_as_widths_are(graph):
    assert shoal.NeighborSampler(graph, fanouts="10-5").fanouts == [10, 5]
    assert shoal.NeighborSampler(graph, fanouts=7).fanouts == [7]
    with pytest.raises(shoal.ShoalError, match="such as 25-10"):
        shoal.NeighborSampler(graph, fanouts="10,5")


def test_a_model_deeper_than_the_batch_is_refused(graph):
    batch = make_sampler("neighbor", graph, **LAYERED["neighbor"]).sample(0)
    model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes, num_layers=3)
    with pytest.raises(shoal.ShoalError, match="sample as many layers"):
        model(batch)


@pytest.mark.parametrize("name", LAYERED)
def test_layered_samplers_refuse_bad_input(graph, name):
    with pytest.raises(shoal.ShoalError, match="batch_size is 0"):
        make_sampler(name, graph, batch_size=0)
    option = "fanouts" if name in FANNED else "layer_size"
    with pytest.raises(shoal.ShoalError, match=option):
        make_sampler(name, graph, **{option: [0] if name in FANNED else 0})
    with pytest.raises(shoal.ShoalError, match="normalises its own batches"):
        make_sampler(name, graph).normalize()


def test_an_epoch_of_clusters_holds_every_part_once():
    graph = make_labelled(200)
    assignment = np.arange(200) % 6
    sampler = shoal.ClusterSampler(graph, assignment=assignment, clusters_per_batch=2)
    nodes = np.concatenate([batch.nodes for batch in sampler.epoch(1)])
    assert sampler.num_batches == 3
    assert np.array_equal(np.sort(nodes), np.arange(200))
    parts = {frozenset((sampler.draw_nodes(k) % 6).tolist()) for k in range(60)}
    assert len(parts) == 15


def test_cluster_inclusion_is_what_batches_show():
    graph = make_labelled(60)
    sampler = shoal.ClusterSampler(graph, assignment=np.arange(60) % 5, clusters_per_batch=2, seed=1)
    from shoal.sampling.normalize import count_batches

    nodes, entries = sampler.inclusion_probabilities()
    counts = count_batches(sampler, 5000)
    for p, count in zip((nodes, entries), counts):
        assert (np.abs(count / 5000 - p) < 5 * np.sqrt(p * (1 - p) / 5000)).all()


def test_inductive_clusters_take_the_training_nodes_of_a_partition_of_all():
    graph = make_labelled(200)
    sampler = shoal.ClusterSampler(graph, assignment=np.arange(200) % 4, setting="inductive")
    batch = sampler.sample(0)
    assert graph.train_mask[batch.n_id.numpy()].all()
    assert len(np.unique(batch.n_id.numpy() % 4)) == 1


def test_metis_keeps_communities_together():
    blocks = [(10 * b + i, 10 * b + j) for b in range(4) for i in range(10) for j in range(i)]
    graph = make_graph([*blocks, (0, 10), (10, 20), (20, 30)], 40)
    parts = shoal.ClusterSampler(graph, num_parts=4).assignment
    assert all(len(set(parts[10 * b : 10 * b + 10])) == 1 for b in range(4))


def test_cluster_sampler_refuses_bad_input(graph):
    with pytest.raises(shoal.ShoalError, match="give assignment or num_parts"):
        shoal.ClusterSampler(graph)
    with pytest.raises(shoal.ShoalError, match="expected the part of each of the 400 nodes"):
        shoal.ClusterSampler(graph, assignment=np.zeros(3, np.int64))
    with pytest.raises(shoal.ShoalError, match="clusters_per_batch is 9"):
        shoal.ClusterSampler(graph, assignment=np.arange(400) % 4, clusters_per_batch=9)


def test_batches_of_two_epochs_in_turn_permute_once_an_epoch(monkeypatch):
    sampler = make_sampler("neighbor", make_labelled(100, seed=0), fanouts="3", batch_size=10)
    expected = [sampler.draw_outputs(k) for k in range(40)]
    drawn = []
    monkeypatch.setattr(
        targets, "permute", lambda n, seed, stream: drawn.append(stream) or permute(n, seed, stream)
    )
    sampler = make_sampler("neighbor", make_labelled(100, seed=0), fanouts="3", batch_size=10)
    count = sampler.num_batches
    for place in range(count):
        for epoch in (0, 1):
            k = epoch * count + place
            np.testing.assert_array_equal(sampler.draw_outputs(k), expected[k])
    assert len(drawn) == 2
