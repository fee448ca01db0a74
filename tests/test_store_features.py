"""Features stored in fewer bits."""

import json
import os

import numpy as np
import pytest
import scipy.sparse as sp

from shoal.datasets.reorder import take_order
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.memory import set_memory_budget
from shoal.sampling.full import FullSampler
from shoal.store import open_graph, save_graph, verify_graph
from shoal.verified import seal
from shoal.workspace import FeatureRows, open_workspace
from test_store import make_graph


@pytest.mark.parametrize("features", ["float16", "bfloat16", "int8"])
def test_features_stored_in_fewer_bits_are_read_as_float32(tmp_path, features):
    graph = make_graph()
    save_graph(graph, tmp_path / "g", features=features)
    opened = open_graph(tmp_path / "g").validate()
    assert verify_graph(tmp_path / "g") == []
    assert opened.num_features == graph.num_features
    assert any(f"features stored as {features}" in notice for notice in opened.notices)
    rows = np.arange(0, 40, 3)
    found = opened.take_features(rows)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, graph.x[rows], atol=0.01 * np.abs(graph.x).max())
    np.testing.assert_array_equal(opened.subgraph(rows).x, found)
    batch = FullSampler(opened).sample(0)
    np.testing.assert_array_equal(batch.x.numpy(), opened.x[:])
    set_memory_budget(1)  # nothing fits: decoded to a file
    try:
        np.testing.assert_array_equal(FullSampler(opened).sample(0).x.numpy(), opened.x[:])
    finally:
        set_memory_budget(None)
    assert opened.content_checksum != graph.content_checksum
    save_graph(opened, tmp_path / "again")
    again = open_graph(tmp_path / "again")
    assert again.x.type == features
    assert again.content_checksum == opened.content_checksum
    save_graph(opened, tmp_path / "wide", features="float32")
    np.testing.assert_array_equal(open_graph(tmp_path / "wide").x, opened.x[:])


def test_sparse_features_stay_as_they_are(tmp_path):
    graph = make_graph()._copy(x=sp.csr_array(np.eye(40, 5, dtype=np.float32)))
    save_graph(graph, tmp_path / "g", features="int8")
    opened = open_graph(tmp_path / "g")
    assert sp.issparse(opened.x)
    assert "features are sparse: stored as they are, not as int8" in opened.notices


def test_a_type_that_does_not_fit_the_features_file_is_refused(tmp_path):
    save_graph(make_graph(), tmp_path / "g", features="float16")
    meta = json.loads((tmp_path / "g" / "meta.json").read_text())
    for wrong, said in (("bfloat16", "x has"), ("int4", "malformed features")):
        changed = meta | {"features": wrong}
        (tmp_path / "g" / "meta.json").write_text(json.dumps({**changed, "seal": seal(changed)}))
        with pytest.raises(ShoalError, match=said):
            open_graph(tmp_path / "g")


def test_second_conversion_replaces_the_notice_of_the_first(tmp_path):
    save_graph(make_graph(), tmp_path / "g", features="int8")
    for features, said in (
        ("float16", "stored as float16, from int8: off by"),
        ("float32", "float32, from int8"),
    ):
        save_graph(open_graph(tmp_path / "g"), tmp_path / features, features=features)
        notices = [one for one in open_graph(tmp_path / features).notices if "features stored as" in one]
        assert len(notices) == 1
        assert said in notices[0]


def test_encoded_features_of_a_new_graph_stay_encoded(tmp_path):
    save_graph(make_graph(), tmp_path / "g", features="int8")
    x = open_graph(tmp_path / "g").x
    assert Graph.from_edge_index([[0, 1], [1, 2]], len(x), x=x).x is x


@pytest.mark.parametrize("budget", [None, 0])  # in memory and in files
def test_rows_are_encoded_as_they_are_appended(tmp_path, budget):
    x = make_graph().x
    set_memory_budget(budget)
    try:
        with open_workspace(tmp_path / "g", features="int8") as place:
            rows = FeatureRows(x.shape[1], len(x))
            rows.append(x[:30])
            rows.append(x[30:].astype(np.float64))
            graph = make_graph()._copy(x=rows.finish())
            sizes = [path.stat().st_size for path in place.folder.glob("x*")]
            assert sizes == ([] if budget is None else [128 + 40 * (5 + 4)])
            save_graph(graph, tmp_path / "g", features="int8")
    finally:
        set_memory_budget(None)
    save_graph(make_graph(), tmp_path / "expected", features="int8")
    found, expected = open_graph(tmp_path / "g"), open_graph(tmp_path / "expected")
    np.testing.assert_array_equal(found.x.codes, expected.x.codes)
    assert found.notices == expected.notices


def test_ordered_graph_keeps_the_type_of_its_features(tmp_path):
    save_graph(make_graph(), tmp_path / "g", features="int8")
    graph = open_graph(tmp_path / "g")
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    ordered = take_order(graph, order)
    np.testing.assert_array_equal(ordered.x.codes, graph.x.codes[order])
    save_graph(ordered, tmp_path / "ordered")
    opened = open_graph(tmp_path / "ordered")
    assert opened.x.type == "int8"
    assert opened.notices == graph.notices


def test_full_disk_is_said_before_a_mapped_file_is_written_to(tmp_path, monkeypatch):
    def full(handle, start, size):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        save_graph(make_graph(), tmp_path / "g", features="int8")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="No space left"), open_workspace(tmp_path / "g") as place:
        place.new_array("indptr", (10,), np.int64)
    assert list(tmp_path.iterdir()) == []
