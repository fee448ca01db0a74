"""What a run is estimated to hold: sparse features by what is stored, layered batches by what they read."""

import numpy as np
import pytest
import scipy.sparse as sp

import shoal
from shoal.errors import ShoalError
from shoal.memory import set_memory_budget
from shoal.runs import need
from shoal.runs.need import estimate_need
from small_graphs import make_labelled


@pytest.fixture(autouse=True)
def no_budget():
    yield
    set_memory_budget(None)


def estimate(graph, sampler, place, **settings):
    model = shoal.GNN("sage", graph.num_features, 16, graph.num_classes, **settings)
    return estimate_need(shoal.Trainer(model, graph, sampler), place)


def widen(graph, width):
    """A few entries in each of many columns, sparse and dense."""
    rng = np.random.default_rng(1)
    x = sp.random_array((graph.num_nodes, width), density=4 / width, rng=rng, dtype=np.float32).tocsr()
    return graph._copy(x=sp.csr_array(x)), graph._copy(x=x.toarray())


def test_sparse_features_count_by_their_entries_and_only_where_batches_are_drawn(tmp_path):
    width = 20_000
    sparse, dense = widen(make_labelled(600), width)
    steps = {
        (kind, drawn): estimate(graph, shoal.NodeSampler(graph, budget=300) if drawn else None, tmp_path).step
        for kind, graph in (("sparse", sparse), ("dense", dense))
        for drawn in (False, True)
    }
    weights = 6 * 4 * 2 * 16 * width
    assert steps["sparse", False] < 1.2 * weights
    assert (
        steps["dense", False] - steps["sparse", False] == 4 * 600 * width
    )  # `A x`, of features that are dense
    assert steps["sparse", True] < 1.2 * weights
    assert steps["dense", True] - steps["sparse", True] > 0.7 * 3 * 4 * 300 * width


def test_a_layered_batch_counts_the_rows_its_layers_read(tmp_path):
    graph = make_labelled(600)
    sampler = shoal.NeighborSampler(graph, fanouts=(5, 5), batch_size=10)
    few = estimate(graph, shoal.NeighborSampler(graph, fanouts=(1, 1), batch_size=10), tmp_path, num_layers=2)
    many = estimate(graph, sampler, tmp_path, num_layers=2)
    read = sampler.sample(0).num_nodes
    assert read > 100
    assert many.step - few.step > 4 * 3 * 8 * (read - 40)  # features alone
    assert many.step < estimate(graph, None, tmp_path, num_layers=2).step


def test_only_a_given_budget_is_refused(tmp_path, monkeypatch):
    found = estimate(make_labelled(600), None, tmp_path)
    monkeypatch.setattr(need, "memory_budget", lambda: found.held)
    assert "which may not suffice" in found.check()
    set_memory_budget(found.held)
    with pytest.raises(ShoalError, match="--memory allows"):
        found.check()


def test_features_in_files_are_nobodys_memory(tmp_path):
    graph = make_labelled(600)
    stored = shoal.open_graph(shoal.save_graph(graph, tmp_path / "graph", features="float16"))
    plain = shoal.open_graph(shoal.save_graph(graph, tmp_path / "plain"))
    halved = estimate(plain, None, tmp_path).mapped - estimate(stored, None, tmp_path).mapped
    assert halved == 2 * 8 * 600
