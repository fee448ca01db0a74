"""Features stored in fewer bits."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from shoal.errors import ShoalError
from shoal.memory import set_memory_budget
from shoal.sampling.full import FullSampler
from shoal.store import open_graph, save_graph, verify_graph
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
    for wrong, said in (("bfloat16", "x has"), ("int4", "features cannot be")):
        (tmp_path / "g" / "meta.json").write_text(json.dumps(meta | {"features": wrong}))
        with pytest.raises(ShoalError, match=said):
            open_graph(tmp_path / "g")
