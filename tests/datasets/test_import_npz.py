"""The .npz format: direction, types, folds, ignored arrays, damage."""

import numpy as np
import pytest

from shoal.datasets.importers import import_graph
from shoal.errors import ShoalError

# Arcs 0 → 1, 0 → 2, 2 → 1: rows are sources.
ARCS = {"indptr": np.array([0, 2, 2, 3]), "indices": np.array([1, 2, 1], np.int32), "num_nodes": 3}
PATH = {"indptr": np.array([0, 1, 3, 4]), "indices": np.array([1, 0, 2, 1], np.int32), "num_nodes": 3}


def test_targets_of_a_directed_graph_aggregate_from_sources(tmp_path):
    np.savez(tmp_path / "arcs.npz", **ARCS, directed=True)
    graph = import_graph(tmp_path / "arcs.npz")
    assert graph.directed
    assert graph.indptr.tolist() == [0, 0, 2, 3]
    assert graph.indices.tolist() == [0, 2, 0]


def test_sparse_ones_become_float_csr_and_half_floats_float32(tmp_path):
    parts = {"x_data": np.ones(2, np.uint8), "x_indices": [3, 0], "x_indptr": [0, 1, 1, 2], "x_shape": [3, 4]}
    np.savez(
        tmp_path / "s.npz", **PATH, directed=False, **parts, y=[0, -1, 1], y_venue=[1, 2, 3], num_classes=5
    )
    graph = import_graph(tmp_path / "s.npz")
    assert graph.x.dtype == np.float32
    assert graph.x.toarray().tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert (graph.num_classes, graph.y.tolist()) == (5, [0, -1, 1])
    assert graph.notices == ("ignored the arrays y_venue of s.npz",)
    assert not graph.has_split
    np.savez(tmp_path / "d.npz", **PATH, x=np.full((3, 2), 0.5, np.float16), y=np.eye(3, dtype=np.uint8))
    graph = import_graph(tmp_path / "d.npz")
    assert graph.x.dtype == np.float32
    assert graph.x[1, 1] == 0.5
    assert graph.multi_label
    assert not graph.directed


def test_another_array_can_hold_the_labels(tmp_path):
    np.savez(tmp_path / "v.npz", **PATH, y=[0, 1, 1], y_venue=[3, -1, 0], num_classes=2)
    graph = import_graph(tmp_path / "v.npz", labels="y_venue")
    assert (graph.num_classes, graph.y.tolist(), graph.notices) == (4, [3, -1, 0], ())
    with pytest.raises(ShoalError, match="has no array 'venue': expected one of indptr, indices, num_nodes"):
        import_graph(tmp_path / "v.npz", labels="venue")
    with pytest.raises(ShoalError, match="array 'indices' has another meaning"):
        import_graph(tmp_path / "v.npz", labels="indices")
    np.savez(tmp_path / "v.npz", **PATH, venue=[3, 0])
    with pytest.raises(ShoalError, match=r"venue has shape \(2,\): expected a label for each of 3 nodes"):
        import_graph(tmp_path / "v.npz", labels="venue")


def test_packed_folds_are_used_when_there_is_no_mask(tmp_path):
    folds = np.packbits([[1, 0, 0], [0, 1, 0]], axis=1)
    np.savez(tmp_path / "f.npz", **PATH, y=[0, 1, 1], train_masks=folds)
    assert import_graph(tmp_path / "f.npz").train_mask.tolist() == [True, False, False]
    assert import_graph(tmp_path / "f.npz", fold=1).train_mask.tolist() == [False, True, False]
    with pytest.raises(ShoalError, match="has 2 folds and fold is 2: expected 0 to 1"):
        import_graph(tmp_path / "f.npz", fold=2)


def test_bad_archives_are_refused(tmp_path):
    path = tmp_path / "g.npz"
    np.savez(path, indices=[1])
    with pytest.raises(ShoalError, match="holds indices but not indptr"):
        import_graph(path)
    np.savez(path, indptr=[0, 2, 1], indices=[0])
    with pytest.raises(ShoalError, match="not a CSR row pointer"):
        import_graph(path)
    np.savez(path, **{**PATH, "num_nodes": 4})
    with pytest.raises(ShoalError, match="num_nodes is 4 but indptr has 3 rows"):
        import_graph(path)
    np.savez(path, **PATH, x=np.zeros((2, 2)))
    with pytest.raises(ShoalError, match=r"x has 2 rows but the graph has 3 nodes.*g\.npz"):
        import_graph(path)
    np.savez(path, **ARCS, directed=False)
    with pytest.raises(ShoalError, match="says directed = False but some edges lack their reverse"):
        import_graph(path)
    np.savez(path, **PATH, y=np.array([{}, {}, {}], object))
    with pytest.raises(ShoalError, match=r"g\.npz cannot be read"):
        import_graph(path)
    np.savez(path, **PATH)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ShoalError, match=r"g\.npz is truncated or damaged"):
        import_graph(path)


@pytest.mark.data
def test_real_graphs_have_their_published_sizes(shared_data):
    cora = import_graph(shared_data / "cora.npz")
    assert (cora.num_nodes, cora.num_edges, cora.num_features, cora.num_classes) == (2708, 5278, 1433, 7)
    votes = import_graph(shared_data / "wiki-Vote.npz")
    assert (votes.directed, votes.num_edges) == (True, 103689)
    raw = np.load(shared_data / "wiki-Vote.npz")
    assert np.array_equal(votes.degree, np.bincount(raw["indices"], minlength=7115))


@pytest.mark.data
def test_first_packed_fold_is_the_split_given_beside_it(shared_data, tmp_path):
    arrays = dict(np.load(shared_data / "hetero-tolokers.npz"))
    graph = import_graph(shared_data / "hetero-tolokers.npz")
    for key in ("train_mask", "val_mask", "test_mask"):
        del arrays[key]
    np.savez(tmp_path / "folds.npz", **arrays)
    assert np.array_equal(import_graph(tmp_path / "folds.npz").train_mask, graph.train_mask)


def test_features_are_standardised_by_the_training_rows_where_asked(tmp_path):
    parts = {"x_data": np.ones(2, np.uint8), "x_indices": [1, 0], "x_indptr": [0, 1, 1, 2], "x_shape": [3, 2]}
    split = {"y": [0, 1, 1], "train_mask": [True, True, False], "test_mask": [False, False, True]}
    np.savez(tmp_path / "s.npz", **PATH, **parts, **split)
    graph = import_graph(tmp_path / "s.npz", standardize=True)
    np.testing.assert_allclose(graph.x[:, 1], [1, -1, -1], rtol=1e-5)
    assert "standardised" in graph.notices[0]
    np.savez(tmp_path / "n.npz", **PATH, **parts)
    with pytest.raises(ShoalError, match="standardize needs x and train_mask"):
        import_graph(tmp_path / "n.npz", standardize=True)


@pytest.mark.parametrize("turned", [False, True])
def test_edge_array_is_read_either_way_round(tmp_path, turned):
    ends = np.array([[0, 1, 4], [1, 2, 0]], np.uint32)
    np.save(tmp_path / "ends.npy", ends.T if turned else ends)
    graph = import_graph(tmp_path / "ends.npy")
    assert (graph.num_nodes, graph.directed, graph.name) == (5, True, "ends")
    assert graph.indptr.tolist() == [0, 1, 2, 3, 3, 3]
    assert graph.indices.tolist() == [4, 0, 1]
    assert import_graph(tmp_path / "ends.npy", directed=False, num_nodes=9).num_nodes == 9


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((2, 3)), "holds float64 of shape"),
        (np.zeros((4, 3), np.int64), r"\(4, 3\): expected integers of shape \(2, edges\) or \(edges, 2\)"),
        (np.array([[0, -1], [1, 2]]), "edge end -1 is out of range"),
    ],
)
def test_array_that_is_no_edge_list_is_refused(tmp_path, array, said):
    np.save(tmp_path / "ends.npy", array)
    with pytest.raises(ShoalError, match=said):
        import_graph(tmp_path / "ends.npy")
