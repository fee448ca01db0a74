"""GraphSAINT folders and GraphSAGE files, written as their authors publish them."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from shoal.datasets.importers import import_graph
from shoal.errors import ShoalError

EDGES = [(0, 1), (1, 2), (2, 3)]


def write_saint(folder, classes, train_edges=((0, 1),)):
    folder.mkdir(exist_ok=True)
    for name, edges in (("adj_full", EDGES), ("adj_train", train_edges)):
        rows = [a for a, b in edges] + [b for a, b in edges]
        columns = [b for a, b in edges] + [a for a, b in edges]
        sp.save_npz(
            folder / f"{name}.npz", sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(4, 4))
        )
    (folder / "role.json").write_text(json.dumps({"tr": [0, 1], "va": [2], "te": [3]}))
    (folder / "class_map.json").write_text(json.dumps(classes))
    np.save(folder / "feats.npy", np.array([[1.0, 5.0], [3.0, 5.0], [5.0, 6.0], [2.0, 5.0]]))
    return folder


def test_saint_features_are_standardised_with_training_rows(tmp_path):
    graph = import_graph(write_saint(tmp_path / "g", {str(i): i % 3 for i in range(4)}))
    # training rows 0 and 1: mean 2, deviation 1 in column 0; column 1 is constant there and only centred
    assert graph.x.tolist() == [[-1, 0], [1, 0], [3, 1], [0, 0]]
    assert graph.y.tolist() == [0, 1, 2, 0]
    assert [
        np.flatnonzero(mask).tolist() for mask in (graph.train_mask, graph.val_mask, graph.test_mask)
    ] == [[0, 1], [2], [3]]
    assert (graph.num_edges, graph.directed, graph.name) == (3, False, "g")
    assert graph.notices == ("standardised the features with mean and deviation of the training rows",)
    raw = import_graph(tmp_path / "g", standardize=False)
    assert raw.x[2].tolist() == [5, 6]


def test_saint_multi_label_and_foreign_training_graph(tmp_path):
    graph = import_graph(
        write_saint(tmp_path / "g", {str(i): [i % 2, 1] for i in range(4)}, train_edges=[(2, 3)])
    )
    assert graph.y.tolist() == [[0, 1], [1, 1], [0, 1], [1, 1]]
    assert any("adj_train.npz differs" in notice for notice in graph.notices)


def test_saint_bad_files_are_named(tmp_path):
    folder = write_saint(tmp_path / "g", {"0": 1, "9": 1})
    with pytest.raises(ShoalError, match=r"class_map\.json gives a class to node '9'"):
        import_graph(folder)
    write_saint(folder, {"0": [1, 0], "1": [1]})
    with pytest.raises(ShoalError, match=r"node '1'.*list of 2 classes"):
        import_graph(folder)
    write_saint(folder, {str(i): 0 for i in range(4)})
    (folder / "role.json").write_text('{"tr": [0], "va": [7], "te": []}')
    with pytest.raises(
        ShoalError, match=r"role\.json \(va\) lists node 7 at position 0: the graph has 4 nodes"
    ):
        import_graph(folder)
    (folder / "role.json").write_text('{"tr": [0], ')
    with pytest.raises(ShoalError, match=r"role\.json cannot be read"):
        import_graph(folder)
    (folder / "role.json").write_text('{"tr": [0]}')
    with pytest.raises(ShoalError, match="lacks va, te"):
        import_graph(folder)
    (folder / "adj_full.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(ShoalError, match=r"adj_full\.npz is truncated or damaged"):
        import_graph(folder)


def write_sage(folder, *, ids=("b", "a", "c"), links=((0, 1), (1, 2)), id_map=None, classes=None):
    nodes = [{"id": node, "val": i == 1, "test": i == 2} for i, node in enumerate(ids)]
    data = {
        "directed": False,
        "graph": {"name": "toy"},
        "nodes": nodes,
        "links": [
            {"source": a, "target": b, "test_removed": False, "train_removed": False} for a, b in links
        ],
        "multigraph": False,
    }
    (folder / "toy-G.json").write_text(json.dumps(data))
    (folder / "toy-id_map.json").write_text(json.dumps(id_map or {"a": 0, "b": 1, "c": 2}))
    (folder / "toy-class_map.json").write_text(json.dumps(classes or {"a": 2, "b": 0, "c": 1}))
    np.save(folder / "toy-feats.npy", np.arange(6.0).reshape(3, 2))


def test_sage_links_by_place_follow_the_id_map(tmp_path):
    write_sage(tmp_path)  # places 0-1, 1-2 are b-a, a-c: numbers 1-0, 0-2
    for source in (tmp_path, tmp_path / "toy-G.json", tmp_path / "toy-class_map.json"):
        graph = import_graph(source)
        assert graph.indptr.tolist() == [0, 2, 3, 4]
        assert graph.indices.tolist() == [1, 2, 0, 0]
        assert graph.y.tolist() == [2, 0, 1]
        assert [int(np.flatnonzero(m)[0]) for m in (graph.train_mask, graph.val_mask, graph.test_mask)] == [
            1,
            0,
            2,
        ]
        assert graph.x.tolist() == [[0, 1], [2, 3], [4, 5]]
        assert graph.name == "toy"


def test_sage_links_by_id_mean_the_same(tmp_path):
    write_sage(tmp_path, links=(("b", "a"), ("a", "c")))
    assert import_graph(tmp_path).indices.tolist() == [1, 2, 0, 0]


def test_sage_bad_files_are_named(tmp_path):
    write_sage(tmp_path, links=(("b", "z"),))
    with pytest.raises(ShoalError, match=r"toy-G\.json: a link names node 'z'"):
        import_graph(tmp_path)
    write_sage(tmp_path, id_map={"a": 0, "b": 1, "d": 2})
    with pytest.raises(ShoalError, match=r"node 'c' is not in toy-id_map\.json"):
        import_graph(tmp_path)
    write_sage(tmp_path, id_map={"a": 0, "b": 1, "c": 1})
    with pytest.raises(ShoalError, match="node 'c' the row 1"):
        import_graph(tmp_path)
    write_sage(tmp_path, classes={"q": 0})
    with pytest.raises(ShoalError, match="class to node 'q'"):
        import_graph(tmp_path)
    (tmp_path / "toy-G.json").write_text('{"nodes": [{"id": "a"}], "links": []}')
    (tmp_path / "toy-id_map.json").write_text('{"a": 0}')
    with pytest.raises(ShoalError, match='node \'a\' has no "val" and "test" flag'):
        import_graph(tmp_path)
    (tmp_path / "toy-G.json").write_text("[1]")
    with pytest.raises(ShoalError, match="holds a list: expected a NetworkX node-link"):
        import_graph(tmp_path)
