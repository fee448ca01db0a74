"""SIGN: hops are the dense products, training needs no edges, and inductive hops know no other nodes."""

import os
import time

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from forked import fork, wait
from shoal.models.hops import StackedGraph
from shoal.models.kept_hops import keep_hops
from shoal.runs.build import make_trainer
from shoal.runs.config import make_config
from small_graphs import make_graph, make_labelled


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A home of its own, in which nothing is kept yet."""
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def densify(graph, operator):
    n = graph.num_nodes
    a = sp.csr_array((np.ones(graph.num_entries), graph.indices, graph.indptr), shape=(n, n)).toarray()
    if operator == "mean":
        return a / np.maximum(a.sum(1, keepdims=True), 1)
    a = np.maximum(a, np.eye(n))
    scale = a.sum(1) ** -0.5
    return scale[:, None] * a * scale


def propagate(graph, hops, operator):
    x = graph.x.toarray() if sp.issparse(graph.x) else graph.x
    found, s = [x.astype(np.float64)], densify(graph, operator)
    for _ in range(hops):
        found.append(s @ found[-1])
    return np.concatenate(found, axis=1)


@pytest.mark.parametrize("operator", ["gcn", "mean"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_hops_are_the_dense_products(operator, directed, sparse):
    graph = make_labelled(90, directed=directed)
    if sparse:
        graph = graph._copy(x=sp.csr_array(np.where(graph.x > 0.5, graph.x, 0)))
    stacked = shoal.stack_hops(graph, hops=3, operator=operator)
    assert stacked.num_entries == 0
    np.testing.assert_allclose(stacked.x, propagate(graph, 3, operator), rtol=1e-4, atol=1e-5)


def test_hops_in_files_by_columns_are_the_same(monkeypatch, tmp_path):
    graph = make_labelled(90)
    expected = shoal.stack_hops(graph, hops=2).x.copy()
    monkeypatch.setattr("shoal.models.hops.memory_left", lambda: 8 * 8 * 90)
    stacked = shoal.stack_hops(graph, hops=2, folder=tmp_path)
    assert stacked._scratch.filed > 0
    np.testing.assert_array_equal(stacked.x, expected)
    assert list(tmp_path.iterdir()) == []


def test_inductive_hops_know_training_nodes_alone():
    graph = make_labelled(90)
    stacked = shoal.stack_hops(graph, hops=2)
    training = stacked.train_graph("inductive")
    alone = graph.subgraph(np.flatnonzero(graph.train_mask))
    np.testing.assert_allclose(training.x, propagate(alone, 2, "gcn"), rtol=1e-4, atol=1e-5)
    x = graph.x.copy()
    x[~graph.train_mask] += 100
    other = shoal.stack_hops(graph._copy(x=x), hops=2)
    np.testing.assert_array_equal(other.train_graph("inductive").x, training.x)
    assert stacked.train_graph("transductive") is stacked
    one, two = (
        shoal.RowSampler(one, batch_size=16, setting="inductive").sample(0) for one in (stacked, other)
    )
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.n_id, torch.from_numpy(np.flatnonzero(graph.train_mask)[one.nodes]))


def test_the_first_layer_gives_every_hop_columns_of_its_own():
    graph = make_labelled(60)
    stacked = shoal.stack_hops(graph, hops=2)
    model = shoal.GNN("sign", stacked.num_features, 10, 3, hops=2, norm="none", seed=1).eval()
    batch = shoal.FullSampler(stacked).sample(0)
    first = model.layers[0]
    weight = first.linear.weight.detach().numpy()
    hops = np.split(propagate(graph, 2, "gcn"), 3, axis=1)
    parts = [hop @ one for hop, one in zip(hops, np.split(weight, [4, 7], axis=1))]
    expected = np.maximum(np.concatenate(parts, axis=1), 0)
    second = model.layers[1].linear.weight.detach().numpy()
    assert second.shape == (10, 10)
    with torch.no_grad():
        found = model.embed(batch).numpy()
    np.testing.assert_allclose(found, np.maximum(expected @ second, 0), rtol=1e-4, atol=1e-5)


def test_batches_are_training_rows_each_once_an_epoch():
    graph = make_labelled(90)
    sampler = shoal.RowSampler(graph, batch_size=10)
    nodes = [batch.nodes for batch in sampler.epoch(1)]
    assert sampler.num_batches == len(nodes) == -(-int(graph.train_mask.sum()) // 10)
    assert np.array_equal(np.sort(np.concatenate(nodes)), np.flatnonzero(graph.train_mask))
    assert sampler.sample(0).num_edges == 0
    assert not np.array_equal(sampler.sample(0).nodes, sampler.sample(sampler.num_batches).nodes)
    assert np.array_equal(sampler.sample(7).nodes, shoal.RowSampler(graph, batch_size=10).sample(7).nodes)


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_sign_learns_from_neighbours_by_the_one_trainer(setting, tmp_path):
    graph = make_labelled(600)
    scores = {}
    for model in ("mlp", "sign"):
        config = make_config(
            {
                "model": {"name": model, "hidden": 32},
                "sampler": {"name": "rows", "batch_size": 64},
                "training": {"setting": setting},
            }
        )
        trainer = make_trainer(config, graph, tmp_path / model)
        trainer.fit(6)
        scores[model] = trainer.evaluate("test")["accuracy"]
    assert scores["sign"] > scores["mlp"] + 0.1
    assert isinstance(trainer.graph, StackedGraph)
    assert trainer.embed().shape == (600, 32)
    resumed = make_trainer(config, graph, tmp_path / "sign")
    resumed.resume(tmp_path / "sign")
    resumed.fit(8)
    trainer.fit(8)
    for one, other in zip(resumed.last_weights.values(), trainer.last_weights.values()):
        assert torch.equal(one, other)
    assert torch.equal(trainer.predict(graph=graph), trainer.predict())
    expected = shoal.choose_smoothing(graph, trainer.predict_proba())
    assert torch.equal(shoal.smooth_predictions(trainer).scores, expected.scores)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "full"}, "leave out method full, or give sampled"),
        ({"method": "partitioned"}, "leave out method partitioned, or give sampled"),
        ({"sampler": {"name": "node"}}, "leave out sampler node"),
        ({"model": {"name": "sign", "orders": "1-1"}}, "expected a first layer that reads the hops"),
        ({"model": {"name": "sign", "num_layers": 1, "head_layers": 0}}, "needs a classifier"),
        ({"training": {"label_reuse": 0.5}}, "leave out training.label_reuse"),
        ({"model": {"name": "gcn"}, "sampler": {"name": "rows"}}, "model mlp and sign"),
        ({"model": {"name": "sage", "hops": 2}}, "belongs to model 'sign'"),
    ],
)
def test_combinations_without_sense_are_refused(settings, said):
    config = make_config({"model": {"name": "sign"}} | settings)
    with pytest.raises(shoal.ShoalError, match=said):
        config.validate()


def test_a_graph_without_hops_is_refused():
    graph = make_labelled(60)
    with pytest.raises(shoal.ShoalError, match=r"stack_hops\(graph, hops=3\)"):
        shoal.Trainer(shoal.GNN("sign", 8, 16, 3, hops=3), graph)
    with pytest.raises(shoal.ShoalError, match="got 8 features"):
        shoal.GNN("sign", 8, 16, 3, hops=2)
    with pytest.raises(shoal.ShoalError, match="has no features"):
        shoal.stack_hops(graph._copy(x=None))


def test_hops_are_kept_by_graph_and_settings_and_read_again(monkeypatch):
    monkeypatch.setattr("shoal.models.kept_hops._WORTH_KEEPING", 1)
    graph = make_labelled(90)
    first = shoal.stack_hops(graph, hops=2)
    np.testing.assert_allclose(first.x, propagate(graph, 2, "gcn"), rtol=1e-4, atol=1e-5)
    kept = np.load(first.x.filename, mmap_mode="r+")
    kept[0, 0] = 77
    kept.flush()
    assert shoal.stack_hops(graph, hops=2).x[0, 0] == 77  # read, not computed
    others = [
        shoal.stack_hops(graph, hops=3),
        shoal.stack_hops(graph, hops=2, operator="mean"),
        shoal.stack_hops(graph._copy(x=graph.x + 1), hops=2),
        shoal.stack_hops(graph._copy(edge_weight=np.full(graph.num_entries, 2, np.float32)), hops=2),
        first.train_graph("inductive"),
    ]
    assert len({str(one.x.filename) for one in (first, *others)}) == 6


def test_equal_rings_of_a_graph_have_hops_of_their_own(monkeypatch, home):
    monkeypatch.setattr("shoal.models.kept_hops._WORTH_KEEPING", 1)
    ring = [(i, (i + 1) % 5) for i in range(5)]
    edges = [*ring, *((i + 5, j + 5) for i, j in ring)]
    x = np.arange(10, dtype=np.float32).reshape(10, 1)
    graph = make_graph(edges, 10, x=x, y=np.zeros(10, np.int64))
    for nodes in (np.arange(5), np.arange(5, 10)):
        hops = shoal.stack_hops(graph.subgraph(nodes), hops=1, operator="mean").x
        np.testing.assert_array_equal(hops, propagate(graph.subgraph(nodes), 1, "mean"))
    assert len(list((home / "hops").iterdir())) == 2


def test_folds_of_a_graph_share_its_hops(monkeypatch, home):
    monkeypatch.setattr("shoal.models.kept_hops._WORTH_KEEPING", 1)
    graph = make_labelled(90)
    for seed in range(3):
        shoal.stack_hops(graph.with_split(0.5, 0.25, seed=seed), hops=2)
    assert len(list((home / "hops").iterdir())) == 1


def test_one_of_several_processes_computes_hops_and_the_others_wait(monkeypatch, home):
    monkeypatch.setattr("shoal.models.kept_hops._WORTH_KEEPING", 1)
    graph, (here, there) = make_labelled(90), os.pipe()

    def compute(out):
        os.write(there, b"1")
        time.sleep(0.3)
        out[:] = 7

    pid = fork(lambda: keep_hops(graph, 2, "gcn", compute))
    os.read(here, 1)  # the other has begun
    found = keep_hops(graph, 2, "gcn", lambda out: pytest.fail("computed twice"))
    assert wait(pid) == 0
    assert (found == 7).all()
    assert len(list((home / "hops").iterdir())) == 1


def test_hops_of_a_home_that_cannot_be_written_are_computed(monkeypatch, home):
    home.write_text("a file")
    monkeypatch.setattr("shoal.models.kept_hops._WORTH_KEEPING", 1)
    graph = make_labelled(90)
    hops = shoal.stack_hops(graph, hops=2).x
    np.testing.assert_allclose(hops, propagate(graph, 2, "gcn"), rtol=1e-4, atol=1e-5)


def test_batches_read_kept_hops_by_the_feature_cache(monkeypatch):
    graph = make_labelled(90)
    weights = []
    for worth in (10**9, 1):
        monkeypatch.setattr("shoal.models.kept_hops._WORTH_KEEPING", worth)
        stacked = shoal.stack_hops(graph, hops=2)
        model = shoal.GNN("sign", stacked.num_features, 16, 3, hops=2)
        caching = shoal.FeatureCaching(cache=0.3, window=2)
        sampler = shoal.RowSampler(stacked, batch_size=20)
        trainer = shoal.Trainer(model, stacked, sampler, features=caching)
        records = trainer.fit(2)
        assert ("feature_found" in records[-1]) == (worth == 1)
        weights.append(torch.cat([one.reshape(-1) for one in trainer.last_weights.values()]))
    assert torch.equal(*weights)
