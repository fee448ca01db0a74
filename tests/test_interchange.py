"""Graphs to PyG and back, and from DGL graphs; neither is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.kernels.encoding import EncodedRows
from small_graphs import make_labelled


def same(a: shoal.Graph, b: shoal.Graph) -> bool:
    return a.checksum == b.checksum and a.content_checksum == b.content_checksum and a.directed == b.directed


@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_to_pyg_and_back_is_the_same(directed):
    pytest.importorskip("torch_geometric")
    graph = make_labelled(200, directed=directed)
    data = graph.to_pyg()
    assert data.validate()
    assert data.is_directed() == directed
    assert same(shoal.Graph.from_pyg(data), graph)


def test_sparse_encoded_and_multi_label_attributes_come_along(tmp_path):
    pytest.importorskip("torch_geometric")
    plain = make_labelled(100)
    graph = plain._copy(x=sp.csr_array(np.where(plain.x > 0, plain.x, 0)))
    assert torch.equal(graph.to_pyg().x, torch.from_numpy(graph.x.toarray()))
    sparse = graph.to_pyg(dense=False)
    assert sparse.x.layout == torch.sparse_csr
    back = shoal.Graph.from_pyg(sparse)
    assert back.checksum == graph.checksum
    assert (back.x != graph.x).nnz == 0
    shoal.save_graph(plain, tmp_path / "half", features="float16")
    stored = shoal.open_graph(tmp_path / "half")
    assert isinstance(stored.x, EncodedRows)
    assert torch.equal(stored.to_pyg().x, torch.from_numpy(plain.x.astype(np.float16).astype(np.float32)))
    labels = np.stack([plain.y == 0, plain.y == 1], axis=1).astype(np.uint8)
    many = plain._copy(y=labels, num_classes=2)
    assert many.to_pyg().y.dtype == torch.float32
    assert same(shoal.Graph.from_pyg(many.to_pyg()), many)
    bare = shoal.Graph.from_edge_index([[0, 1], [1, 2]], 4, directed=True)
    assert bare.to_pyg().num_nodes == 4


class DGLGraph:
    """What `from_dgl` reads of a homogeneous DGL graph, as DGL answers it."""

    is_homogeneous = True

    def __init__(self, sources, targets, num_nodes, ndata):
        self._ends, self._num_nodes, self.ndata = (sources, targets), num_nodes, ndata

    def edges(self):
        return self._ends

    def num_nodes(self):
        return self._num_nodes


def test_a_dgl_graph_is_read_by_its_methods():
    graph = make_labelled(150)
    rows = np.repeat(np.arange(150), graph.degree)
    ndata = {"feat": graph.x, "label": graph.y, "train_mask": graph.train_mask}
    ndata |= {"val_mask": graph.val_mask, "test_mask": graph.test_mask, "other": np.ones(150)}
    ndata = {name: torch.from_numpy(np.asarray(value)) for name, value in ndata.items()}
    given = DGLGraph(torch.from_numpy(graph.indices).long(), torch.from_numpy(rows), 150, ndata)
    assert same(shoal.Graph.from_dgl(given), graph)
    other = shoal.Graph.from_dgl(given, x=np.zeros((150, 2), np.float32), name="mine")
    assert (other.num_features, other.name) == (2, "mine")


def test_a_dgl_graph_of_several_types_is_refused():
    given = DGLGraph(torch.tensor([0]), torch.tensor([1]), 2, {})
    given.is_homogeneous = False
    with pytest.raises(shoal.ShoalError, match="several types"):
        shoal.Graph.from_dgl(given)
    with pytest.raises(shoal.ShoalError, match="expected a DGL graph"):
        shoal.Graph.from_dgl(SimpleNamespace())


def test_pyg_is_imported_when_it_is_used_and_its_extra_is_named_where_it_is_missing():
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch_geometric":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
import shoal
graph = shoal.load("blocks", num_nodes=50)
model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes)
shoal.Trainer(model, graph).fit(1)
try:
    graph.to_pyg()
except shoal.ShoalError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Graph.to_pyg needs torch-geometric: pip install 'shoal[pyg]'\n"
