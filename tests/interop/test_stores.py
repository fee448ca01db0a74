"""A graph behind PyG's FeatureStore and GraphStore: PyG's own code reads it, from files too."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from small_graphs import make_labelled

pyg = pytest.importorskip("torch_geometric")


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return make_labelled(300, directed=True)


def test_edges_are_those_of_the_graph_in_every_layout(graph):
    _, edges = shoal.open_stores(graph)
    expected = set(map(tuple, graph.to_pyg().edge_index.T.tolist()))
    row, col, _ = edges.coo()
    assert set(zip(row.tolist(), col.tolist())) == expected
    row, colptr, perm = edges.csc()
    assert perm is None
    assert torch.equal(colptr, torch.from_numpy(graph.indptr))
    assert row.dtype == torch.int64
    rowptr, col, _ = edges.csr()
    rows = torch.repeat_interleave(torch.arange(300), rowptr.diff())
    assert set(zip(rows.tolist(), col.tolist())) == expected


@pytest.mark.parametrize("kind", ["dense", "sparse", "float16"])
def test_rows_are_read_from_files_as_they_are_asked_for(graph, tmp_path, kind):
    x = sp.csr_array(np.where(graph.x > 0, graph.x, 0)) if kind == "sparse" else graph.x
    options = {"features": "float16"} if kind == "float16" else {}
    shoal.save_graph(graph._copy(x=x), tmp_path / "graph", **options)
    features, _ = shoal.open_stores(tmp_path / "graph")
    dense = torch.from_numpy(np.asarray(x.toarray() if kind == "sparse" else x, np.float32))
    dense = dense.half().float() if kind == "float16" else dense
    some = torch.tensor([4, 4, 299, 0])
    for index, rows in ((None, slice(None)), (some, some), (slice(3, 7), slice(3, 7)), (5, [5])):
        found = features.get_tensor(group_name=None, attr_name="x", index=index)
        assert torch.equal(found, dense[rows])
    assert features.get_tensor_size(group_name=None, attr_name="x") == (300, 8)
    labels = features.get_tensor(group_name=None, attr_name="y", index=some)
    assert labels.tolist() == graph.y[some.numpy()].tolist()
    assert [attr.attr_name for attr in features.get_all_tensor_attrs()][:2] == ["x", "y"]


def test_a_loader_of_pyg_reads_the_stores(graph, tmp_path):
    """PyG's NodeLoader with a sampler of its interface that takes all neighbours of one hop."""
    from torch_geometric.loader import NodeLoader
    from torch_geometric.sampler import BaseSampler, SamplerOutput

    shoal.save_graph(graph, tmp_path / "graph")
    stores = shoal.open_stores(tmp_path / "graph")
    sources, colptr, _ = stores[1].csc()

    class OneHop(BaseSampler):
        def sample_from_edges(self, inputs):
            raise AssertionError("nodes are sampled from")

        def sample_from_nodes(self, inputs):
            seeds = inputs.node
            read = torch.cat([sources[colptr[v] : colptr[v + 1]] for v in seeds])
            targets = torch.repeat_interleave(torch.arange(len(seeds)), colptr[seeds + 1] - colptr[seeds])
            others = read.unique()
            others = others[~torch.isin(others, seeds)]
            nodes = torch.cat([seeds, others])
            place = torch.empty(300, dtype=torch.int64)
            place[nodes] = torch.arange(len(nodes))
            return SamplerOutput(nodes, place[read], targets, None, metadata=(inputs.input_id, None))

    seeds = torch.arange(0, 300, 7)
    loader = NodeLoader(stores, node_sampler=OneHop(), input_nodes=seeds, batch_size=10)
    data, conv = graph.to_pyg(), pyg.nn.SAGEConv(graph.num_features, 4)
    whole = conv(data.x, data.edge_index)
    found = [conv(batch.x, batch.edge_index)[: batch.batch_size] for batch in loader]
    torch.testing.assert_close(torch.cat(found), whole[seeds], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(batch.y, data.y[batch.n_id]) for batch in loader)


def test_stores_are_read_only_and_lack_what_the_graph_lacks(graph):
    features, edges = shoal.open_stores(graph._copy(y=None, num_classes=None))
    assert features.get_tensor_size(group_name=None, attr_name="y") is None
    with pytest.raises(shoal.ShoalError, match="unknown attribute of the graph's nodes 'y': "):
        features.get_tensor(group_name=None, attr_name="y", index=None)
    with pytest.raises(shoal.ShoalError, match="read-only"):
        features.put_tensor(torch.ones(300, 1), group_name=None, attr_name="z", index=None)
    with pytest.raises(KeyError):
        edges.get_edge_index(edge_type=("a", "to", "b"), layout="csc")
    with pytest.raises(shoal.ShoalError, match="read-only"):
        edges.put_edge_index((torch.ones(1), torch.ones(1)), edge_type=None, layout="coo")
