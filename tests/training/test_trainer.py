"""Training: it learns, it stops, it resumes, it evaluates on the full graph."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.training.inference import classify_nodes, embed_nodes


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return shoal.load("blocks", num_nodes=2000, seed=1)


def make_trainer(
    graph: shoal.Graph, *, model: str = "sage", sampled: bool = True, **settings
) -> shoal.Trainer:
    torch.manual_seed(0)
    gnn = shoal.GNN(model, graph.num_features, 32, graph.num_classes, dropout=0.2)
    sampler = shoal.RandomWalkSampler(graph, roots=200, depth=2) if sampled else None
    return shoal.Trainer(gnn, graph, sampler, **settings)


def weights(trainer: shoal.Trainer) -> list[torch.Tensor]:
    return [value.clone() for value in trainer.model.state_dict().values()]


@pytest.mark.parametrize("sampled", [True, False])
def test_a_gnn_learns_what_an_mlp_cannot(graph, sampled):
    scores = {}
    for model in ("mlp", "sage", "gcn", "mixhop", "gat"):
        trainer = make_trainer(graph, model=model, sampled=sampled)
        trainer.fit(8 if sampled else 40)
        scores[model] = trainer.evaluate("test")["accuracy"]
    assert min(scores[name] for name in scores if name != "mlp") > scores["mlp"] + 0.15


@pytest.mark.parametrize("sampled", [True, False])
def test_a_subgraph_is_trained_on_as_any_graph(graph, sampled):
    part = graph.subgraph(np.arange(0, 2000, 2))
    assert part.parent is graph
    assert len(make_trainer(part, sampled=sampled).fit(1)) == 1
    whole = shoal.RandomWalkSampler(graph, roots=200, depth=2)
    with pytest.raises(shoal.ShoalError, match="made for another graph"):
        shoal.Trainer(shoal.GNN("sage", part.num_features, 8, part.num_classes), part, whole)


@pytest.mark.parametrize("model", ["sage", "gcn", "mixhop", "gat"])
@pytest.mark.parametrize("sparse", [False, True])
def test_inference_in_chunks_equals_the_full_forward_pass(graph, model, sparse):
    if sparse:
        x = sp.csr_array(np.where(np.abs(graph.x) > 1, graph.x, 0))
        graph = graph._copy(x=x)
    torch.manual_seed(0)
    gnn = shoal.GNN(model, graph.num_features, 32, graph.num_classes, orders="1-0-1").eval()
    calls = []
    batch = shoal.FullSampler(graph).sample(0)
    found = embed_nodes(
        gnn, batch, rows_at_once=333, progress=lambda done, total: calls.append((done, total))
    )
    with torch.no_grad():
        torch.testing.assert_close(found, gnn.embed(batch), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            classify_nodes(gnn, found, rows_at_once=100), gnn(batch), rtol=1e-4, atol=1e-5
        )
    assert calls[-1] == (21, 21)


def test_resumed_run_equals_uninterrupted_run(graph, tmp_path):
    straight = make_trainer(graph)
    straight.fit(6)
    first = make_trainer(graph, checkpoints=tmp_path)
    first.fit(3)
    torch.manual_seed(123)  # a new process starts from another random state
    second = make_trainer(graph, checkpoints=tmp_path)
    second.resume(tmp_path)
    assert second.epoch == 3
    second.fit(6)
    assert second.best_epoch == straight.best_epoch
    for ours, theirs in zip(weights(second), weights(straight)):
        assert torch.equal(ours, theirs)


def test_fitting_in_two_calls_equals_fitting_in_one(graph):
    once, twice = make_trainer(graph), make_trainer(graph)
    once.fit(6)
    twice.fit(3)
    twice.fit(6)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(weights(once), weights(twice)))


@pytest.mark.parametrize("threads", [1, 3])
def test_sampling_threads_do_not_change_the_run(graph, threads):
    alone, ahead = make_trainer(graph), make_trainer(graph, sampling_threads=threads)
    assert [r["loss"] for r in alone.fit(3)] == [r["loss"] for r in ahead.fit(3)]


def test_the_same_seed_gives_the_same_run(graph):
    runs = []
    for _ in range(2):
        trainer = make_trainer(graph)
        runs.append([record["loss"] for record in trainer.fit(3)])
    assert runs[0] == runs[1]


def test_training_stops_when_patience_ends_and_keeps_the_best_weights(graph):
    trainer = make_trainer(graph, lr=0.5, patience=2)
    records = trainer.fit(100)
    assert len(records) < 100
    assert records[-1]["epoch"] - trainer.best_epoch == 2
    best = max(record["val_accuracy"] for record in records)
    assert trainer.evaluate("val")["accuracy"] == pytest.approx(best)


def test_saving_after_fit_keeps_the_last_weights_with_their_optimizer(graph, tmp_path):
    straight, saved, resumed = (make_trainer(graph, eval_every=4) for _ in range(3))
    expected = [record["loss"] for record in straight.fit(8)][6:]
    saved.fit(6)
    assert saved.best_epoch == 4  # the best weights are not the last ones
    before = weights(saved)
    saved.save(tmp_path / "last.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(before, weights(saved)))
    resumed.fit(2)  # what it did before must not matter
    resumed.resume(tmp_path)
    assert [record["loss"] for record in resumed.fit(8)] == expected
    saved.resume(tmp_path)
    assert [record["loss"] for record in saved.fit(8)] == expected


def test_a_run_interrupted_in_its_second_fit_goes_on_from_there(graph):
    straight, stopped = make_trainer(graph), make_trainer(graph)
    expected = [record["loss"] for record in straight.fit(7)]

    def stop(record):
        if record["epoch"] == 5:
            raise KeyboardInterrupt

    stopped.fit(3)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(7, stop)
    assert [record["loss"] for record in stopped.fit(7)] == expected[5:]


def test_resuming_does_not_depend_on_evaluations_off_the_grid(graph, tmp_path):
    straight = make_trainer(graph, eval_every=3)
    straight.fit(8)
    first = make_trainer(graph, eval_every=3, checkpoints=tmp_path)
    first.fit(4)
    second = make_trainer(graph, eval_every=3)
    second.resume(tmp_path)
    second.fit(8)
    assert second.best_epoch == straight.best_epoch
    assert straight.best_epoch % 3 == 0


def test_an_empty_validation_set_means_training_to_the_end(graph):
    trainer = make_trainer(graph._copy(val_mask=np.zeros(graph.num_nodes, bool)), patience=1)
    assert len(trainer.fit(3)) == 3
    assert trainer.best_epoch == 0


def test_a_sampler_made_before_the_split_is_refused(graph):
    bare = shoal.Graph(graph.indptr, graph.indices, x=graph.x, y=graph.y)
    sampler = shoal.RandomWalkSampler(bare, roots=50)
    model = shoal.GNN("sage", graph.num_features, 32, graph.num_classes)
    with pytest.raises(shoal.ShoalError, match="before its split was drawn"):
        shoal.Trainer(model, bare.with_split(), sampler)


def test_batches_of_one_row_train_with_batch_norm(graph):
    model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes, norm="batch").train()
    sampler = shoal.NodeSampler(graph, budget=1)
    assert torch.isfinite(model(sampler.sample(0))).all()


@pytest.mark.parametrize("model", ["mlp", "sage"])
def test_layered_batches_fit_models_that_aggregate_as_often_or_never(graph, model):
    sampler = shoal.NeighborSampler(graph, fanouts=[5, 5], batch_size=64)
    gnn = shoal.GNN(model, graph.num_features, 8, graph.num_classes, num_layers=2)
    batch = sampler.sample(0)
    assert gnn(batch).shape == (batch.num_outputs, graph.num_classes)
    shallow = shoal.GNN("sage", graph.num_features, 8, graph.num_classes, num_layers=1)
    with pytest.raises(shoal.ShoalError, match="aggregates 1 times but the batch has 2 blocks"):
        shallow(batch)


def test_multi_label_graphs_train_with_sigmoids(graph):
    y = np.zeros((graph.num_nodes, 10), np.uint8)
    y[np.arange(graph.num_nodes), graph.y] = 1
    y[np.arange(graph.num_nodes), (graph.y + 1) % 10] = 1
    trainer = make_trainer(graph._copy(y=y, num_classes=None))
    trainer.fit(25)
    assert trainer.evaluate("test")["f1_micro"] > 0.6
    assert trainer.predict().shape == (graph.num_nodes, 10)


def test_a_loss_that_is_not_finite_ends_the_run_with_advice(graph):
    trainer = make_trainer(graph, lr=1e30)
    with pytest.raises(shoal.ShoalError, match="lower the learning rate"):
        trainer.fit(20)


def test_a_graph_that_cannot_be_trained_on_is_refused(graph):
    gnn = shoal.GNN("sage", 4, 8, 2)
    bare = shoal.Graph(graph.indptr, graph.indices)
    with pytest.raises(shoal.ShoalError, match="no labels"):
        shoal.Trainer(gnn, bare)
    with pytest.raises(shoal.ShoalError, match="no split"):
        shoal.Trainer(gnn, shoal.Graph(graph.indptr, graph.indices, x=graph.x, y=graph.y))
    with pytest.raises(shoal.ShoalError, match="no features"):
        shoal.Trainer(gnn, shoal.Graph(graph.indptr, graph.indices, y=graph.y).with_split())
    with pytest.raises(shoal.ShoalError, match="did you mean 'test'"):
        make_trainer(graph).evaluate("tset")


def test_settings_that_make_no_sense_are_refused(graph):
    for setting in (
        {"lr": 0.0},
        {"lr": -1e-3},
        {"weight_decay": -1.0},
        {"clip": 0.0},
        {"patience": 0},
        {"eval_every": 0},
        {"sampling_threads": -1},
    ):
        ((name, value),) = setting.items()
        with pytest.raises(shoal.ShoalError, match=f"{name} is {value}: expected"):
            make_trainer(graph, **setting)
    with pytest.raises(shoal.ShoalError, match="epochs is 0: expected at least 1"):
        make_trainer(graph).fit(0)
    for epochs in ("3", 2.5, None):
        with pytest.raises(
            shoal.ShoalError, match=f"epochs is {epochs!r}: expected at least 1, a whole number"
        ):
            make_trainer(graph).fit(epochs)


def test_a_model_made_for_another_graph_is_refused(graph):
    with pytest.raises(shoal.ShoalError, match="made for 63 features but graph 'blocks' has 64"):
        shoal.Trainer(shoal.GNN("sage", 63, 8, 10), graph)
    with pytest.raises(shoal.ShoalError, match="made for 9 classes but graph 'blocks' has 10"):
        shoal.Trainer(shoal.GNN("sage", 64, 8, 9), graph)


def test_scoring_drops_nothing_and_leaves_the_statistics_of_a_deep_classifier_alone():
    graph = shoal.load("digits")
    model = shoal.GNN(
        "sage", graph.num_features, 16, graph.num_classes, head_layers=2, norm="batch", dropout=0.5
    )
    trainer = shoal.Trainer(model, graph)
    trainer.fit(2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    scores = trainer.evaluate("test")
    assert scores == trainer.evaluate("test")
    model.eval()
    assert scores == trainer.evaluate("test")
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
