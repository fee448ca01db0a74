"""Loaders with PyG's arguments: what they yield, in which order, and that PyG models learn from it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional

import shoal
from small_graphs import make_labelled

pyg = pytest.importorskip("torch_geometric")


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return make_labelled(400)


def test_a_neighbour_batch_has_the_fields_of_pygs(graph):
    data = graph.to_pyg()
    nodes = torch.tensor([7, 3, 250, 9, 8])
    loader = shoal.NeighborLoader(data, num_neighbors=[4, 3], batch_size=2, input_nodes=nodes)
    batches = list(loader)
    assert [batch.batch_size for batch in batches] == [2, 2, 1]
    assert torch.cat([batch.n_id[: batch.batch_size] for batch in batches]).equal(nodes)
    assert torch.cat([batch.input_id for batch in batches]).tolist() == [0, 1, 2, 3, 4]
    for batch in batches:
        assert isinstance(batch, pyg.data.Data)
        assert batch.validate()
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.y, data.y[batch.n_id])
        assert torch.equal(batch.val_mask, data.val_mask[batch.n_id])
        pairs = set(map(tuple, data.edge_index.T.tolist()))
        assert set(map(tuple, batch.n_id[batch.edge_index].T.tolist())) <= pairs


def test_order_masks_and_epochs_are_as_asked(graph):
    every = shoal.NeighborLoader(graph, [2], batch_size=100)
    assert torch.cat([batch.n_id[: batch.batch_size] for batch in every]).tolist() == list(range(400))
    loader = shoal.NeighborLoader(graph, [2], batch_size=50, input_nodes=graph.train_mask, shuffle=True)
    epochs = [torch.cat([batch.n_id[: batch.batch_size] for batch in loader]) for _ in range(2)]
    expected = np.flatnonzero(graph.train_mask).tolist()
    assert [sorted(epoch.tolist()) for epoch in epochs] == [expected, expected]
    assert not torch.equal(*epochs)
    assert len(loader) == len(expected) // 50


@pytest.mark.parametrize("make", [
    lambda graph, workers: shoal.NeighborLoader(graph, [3, 3], batch_size=64, shuffle=True, num_workers=workers),
    lambda graph, workers: shoal.ClusterLoader(graph, assignment=np.arange(400) % 8, batch_size=2, num_workers=workers),
    lambda graph, workers: shoal.SubgraphLoader(graph, "neighbor", fanouts=(3, 3), batch_size=64, num_workers=workers),
])  # fmt: skip
def test_workers_change_nothing_but_the_threads(graph, make):
    for alone, helped in zip(make(graph, 0), make(graph, 2), strict=True):
        assert torch.equal(alone.n_id, helped.n_id)
        assert torch.equal(alone.edge_index, helped.edge_index)


def test_clusters_partition_the_nodes_and_keep_the_edges_between_them(graph):
    loader = shoal.ClusterLoader(graph, num_parts=8, batch_size=2)
    batches = list(loader)
    assert sorted(torch.cat([batch.n_id for batch in batches]).tolist()) == list(range(400))
    whole = sp.csr_array((np.ones(graph.num_entries), graph.indices, graph.indptr), shape=(400, 400))
    for batch in batches:
        inside = whole[batch.n_id.numpy()][:, batch.n_id.numpy()]
        assert batch.edge_index.shape[1] == inside.nnz
    with pytest.raises(shoal.ShoalError, match="shuffle=False"):
        shoal.ClusterLoader(graph, num_parts=8, shuffle=False)


def test_sparse_features_labels_of_many_classes_and_transforms(graph):
    labels = np.stack([graph.y == 0, graph.y == 1], axis=1).astype(np.uint8)
    other = graph._copy(x=sp.csr_array(graph.x), y=labels, num_classes=2)
    seen = []
    loader = shoal.NeighborLoader(
        other, [2], batch_size=400, transform=lambda data: seen.append(data) or data
    )
    (batch,) = loader
    assert seen == [batch]
    assert torch.equal(batch.x, torch.from_numpy(graph.x)[batch.n_id])
    assert batch.y.dtype == torch.float32
    assert batch.y.shape == (400, 2)


@pytest.mark.parametrize("loader", ["neighbor", "cluster", "subgraph"])
def test_a_pyg_model_learns_from_every_loader(graph, loader):
    from torch_geometric.nn import GraphSAGE

    torch.manual_seed(0)
    data, model = graph.to_pyg(), GraphSAGE(graph.num_features, 16, 2, graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    made = {
        "neighbor": lambda: shoal.NeighborLoader(
            data, [8, 8], batch_size=50, input_nodes=data.train_mask, shuffle=True
        ),
        "cluster": lambda: shoal.ClusterLoader(data, num_parts=8, batch_size=2),
        "subgraph": lambda: shoal.SubgraphLoader(
            data, "neighbor", fanouts=(8, 8), batch_size=50, num_workers=0
        ),
    }[loader]()
    for _ in range(8):
        for batch in made:
            count = len(batch.y) if loader == "subgraph" else batch.get("batch_size", batch.num_nodes)
            out = model(batch.x, batch.edge_index)[:count]
            mask = batch.train_mask[:count]
            optimizer.zero_grad()
            functional.cross_entropy(out[mask], batch.y[:count][mask]).backward()
            optimizer.step()
    found = model.eval()(data.x, data.edge_index).argmax(1)
    assert (found == data.y)[data.test_mask].float().mean() > 0.75


@pytest.mark.parametrize(
    ("sampler", "options", "nodes"),
    [
        ("node", {}, lambda size: size <= 120),
        ("frontier", {"frontier": 20}, lambda size: size == 120),
        ("random-walk", {"depth": 1}, lambda size: 120 <= size <= 240),
        ("cluster", {"assignment": np.arange(400) % 200}, lambda size: size == 240),
    ],
)
def test_batch_size_is_the_size_of_any_samplers_batches(graph, sampler, options, nodes):
    loader = shoal.SubgraphLoader(graph, sampler, batch_size=120, **options)
    assert nodes(next(iter(loader)).num_nodes)


def test_a_loader_of_layers_has_the_chosen_outputs_first(graph):
    loader = shoal.SubgraphLoader(
        graph, "neighbor", fanouts=(3, 2), batch_size=3, input_nodes=[5, 4, 3, 2], shuffle=False
    )
    first, second = loader
    assert first.n_id[:3].tolist() == [5, 4, 3]
    assert second.n_id[:1].tolist() == [2]
    assert first.y.tolist() == graph.y[[5, 4, 3]].tolist()


def test_pygs_name_of_fanouts_is_taken(graph):
    options = {"batch_size": 20, "shuffle": False, "num_threads": 0}
    ours = next(iter(shoal.SubgraphLoader(graph, "neighbor", fanouts=(3, 2), **options)))
    theirs = next(iter(shoal.SubgraphLoader(graph, "neighbor", num_neighbors=[3, 2], **options)))
    assert torch.equal(ours.edge_index, theirs.edge_index)
    assert ours.x.shape[0] == ours.num_nodes > len(ours.y) == len(ours.train_mask) == ours.num_outputs == 20


def test_a_small_batch_of_a_frontier_has_a_frontier_no_larger():
    graph = make_labelled(1500)
    loader = shoal.SubgraphLoader(graph, "frontier", batch_size=500, num_threads=0)
    assert loader.sampler.frontier == 500
    assert next(iter(loader)).num_nodes == 500
    assert shoal.SubgraphLoader(graph, "frontier", batch_size=1200).sampler.frontier == 1000
    assert shoal.SubgraphLoader(graph, "frontier", batch_size=500, frontier=7).sampler.frontier == 7


def test_a_batch_is_moved_to_the_cpu_only(graph):
    batch = shoal.RandomWalkSampler(graph, roots=5).sample(0)
    assert batch.to("cpu") is batch
    with pytest.raises(shoal.ShoalError, match="batches stay on the CPU: move x and edge_index to cuda"):
        batch.to("cuda")


def test_arguments_that_make_no_sense_get_one_sentence(graph):
    for arguments, said in (
        ({"sampler": "node", "input_nodes": [1]}, "leave out input_nodes"),
        ({"sampler": "node", "shuffle": False}, "leave out shuffle=False"),
        ({"sampler": "full", "batch_size": 3}, "takes the whole graph"),
        ({"sampler": "neighbor", "input_nodes": [400]}, "nodes run from 400 to 400"),
        ({"sampler": "neighbor", "input_nodes": []}, "there are no output nodes"),
        (
            {"sampler": "neighbor", "input_nodes": torch.ones(399, dtype=torch.bool)},
            "the mask of output nodes has 399 entries but the graph has 400 nodes",
        ),
        ({"sampler": "neighbor", "input_nodes": [1], "setting": "inductive"}, "leave out setting=inductive"),
    ):
        with pytest.raises(shoal.ShoalError, match=said):
            shoal.SubgraphLoader(graph, **arguments)
    for neighbors, said in (([], "num_neighbors is empty"), ([3, 0], "num_neighbors is 0")):
        with pytest.raises(shoal.ShoalError, match=said):
            shoal.NeighborLoader(graph, neighbors)
        with pytest.raises(shoal.ShoalError, match=said):
            shoal.SubgraphLoader(graph, "neighbor", num_neighbors=neighbors)
    with pytest.raises(shoal.ShoalError, match="num_workers"):
        shoal.NeighborLoader(graph, [2], num_workers=-1)
    assert len(shoal.SubgraphLoader(graph, "node", shuffle=True)) > 0


def test_neighbourhoods_have_the_weights_of_their_edges():
    plain = make_labelled(80)
    rows, columns = np.repeat(np.arange(80), np.diff(plain.indptr)), plain.indices
    weights = (1.0 + rows + columns).astype(np.float32)
    graph = shoal.Graph.from_edge_index(
        np.stack([rows, columns]), 80, directed=False, x=plain.x, y=plain.y, edge_weight=weights
    )
    for batch in shoal.NeighborLoader(graph, num_neighbors=[3, 2], batch_size=16):
        ends = batch.n_id[batch.edge_index]
        assert torch.equal(batch.edge_weight, (1 + ends[0] + ends[1]).float())


def test_arguments_of_pyg_are_taken_where_they_change_nothing(graph):
    plain = {
        "pin_memory": False,
        "replace": False,
        "persistent_workers": True,
        "subgraph_type": "directional",
    }
    taken = list(shoal.NeighborLoader(graph, [2], batch_size=200, **plain, prefetch_factor=2))
    for one, other in zip(taken, shoal.NeighborLoader(graph, [2], batch_size=200), strict=True):
        assert torch.equal(one.edge_index, other.edge_index)
    assert len(shoal.ClusterLoader(graph, assignment=np.arange(400) % 8, pin_memory=False)) == 8
    assert len(shoal.SubgraphLoader(graph, "neighbor", fanouts=(2,), batch_size=20, pin_memory=False)) > 1
    defaults = {"subgraph_type": SimpleNamespace(value="directional"), "timeout": 0.0, "pin_memory": 0}
    assert len(shoal.NeighborLoader(graph, [2], batch_size=200, **defaults)) == 2
    for name, value, reason in (
        ("pin_memory", True, "batches stay on the CPU"),
        ("replace", True, "without replacement"),
        ("disjoint", True, "one graph"),
        ("weight_attr", "w", "equal probabilities"),
    ):
        for make in (shoal.NeighborLoader, shoal.SubgraphLoader):
            with pytest.raises(shoal.ShoalError, match=f"{name}={value!r} is not supported: .*{reason}"):
                make(graph, [2] if make is shoal.NeighborLoader else "neighbor", **{name: value})
    with pytest.raises(shoal.ShoalError, match="did you mean 'batch_size'"):
        shoal.NeighborLoader(graph, [2], batchsize=3)


def test_a_last_batch_of_fewer_nodes_is_dropped_where_asked(graph):
    nodes = np.arange(110)
    for workers in (0, 2):
        options = {"batch_size": 25, "input_nodes": nodes, "num_workers": workers}
        whole = shoal.NeighborLoader(graph, [2], **options)
        short = shoal.NeighborLoader(graph, [2], **options, drop_last=True)
        assert (len(whole), len(short)) == (5, 4)
        for _ in range(2):  # two epochs of the same batches, but for the last
            for ours, theirs in zip(short, list(whole)[:4], strict=True):
                assert torch.equal(ours.edge_index, theirs.edge_index)
                assert ours.batch_size == 25
    assert len(shoal.SubgraphLoader(graph, "neighbor", batch_size=55, input_nodes=nodes, drop_last=True)) == 2
    assert len(shoal.SubgraphLoader(graph, "node", budget=100, drop_last=True)) == 4


@pytest.mark.parametrize("order", ["as it is", "shuffled"])
def test_e_id_is_the_place_of_every_edge_in_the_data(graph, order):
    data = graph.to_pyg()
    given = graph
    if order == "shuffled":
        places = torch.randperm(data.edge_index.shape[1], generator=torch.Generator().manual_seed(1))
        data.edge_index = torch.cat([data.edge_index[:, places], data.edge_index[:, :3]], dim=1)
        given = data
    loaders = (
        shoal.NeighborLoader(given, [3, 2], batch_size=50, e_id=True, num_workers=1),
        shoal.ClusterLoader(given, assignment=np.arange(400) % 8, batch_size=4, e_id=True),
    )
    for loader in loaders:
        for batch in loader:
            assert torch.equal(data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
    assert "e_id" not in next(iter(shoal.NeighborLoader(given, [3], batch_size=50)))
