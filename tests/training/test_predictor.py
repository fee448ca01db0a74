"""What a trained model answers: probabilities, another graph, a history; callbacks after every step."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

import shoal
from small_graphs import make_labelled


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return make_labelled(400)


def make_trainer(graph: shoal.Graph, **settings) -> shoal.Trainer:
    model = shoal.GNN("sage", graph.num_features, 16, graph.num_classes)
    return shoal.Trainer(model, graph, lr=0.02, **settings)


@pytest.fixture(scope="module")
def trainer(graph) -> shoal.Trainer:
    trainer = make_trainer(graph)
    trainer.fit(30)
    return trainer


def test_probabilities_add_up_and_their_largest_is_the_prediction(graph, trainer):
    found = trainer.predict_proba()
    torch.testing.assert_close(found.sum(1), torch.ones(400))
    assert torch.equal(found.argmax(1), trainer.predict())


def test_multi_label_probabilities_are_above_a_half_where_a_label_is_predicted(graph):
    labels = np.stack([graph.y == 0, graph.y != 2], axis=1).astype(np.uint8)
    trainer = make_trainer(graph._copy(y=labels, num_classes=2))
    trainer.fit(5)
    assert torch.equal((trainer.predict_proba() > 0.5).to(torch.uint8), trainer.predict())


def test_another_graph_is_predicted_as_if_it_had_been_the_trainers_own(graph, trainer):
    new = make_labelled(300, seed=7)
    other = make_trainer(new)
    other.model.load_state_dict(trainer.model.state_dict())
    assert torch.equal(trainer.predict(graph=new), other.predict())
    assert torch.equal(trainer.embed(graph=new), other.embed())
    assert trainer.evaluate("test", graph=new) == other.evaluate("test")
    assert trainer.evaluate("test", graph=new)["accuracy"] > 0.8
    sparse = new._copy(x=sp.csr_array(new.x))
    torch.testing.assert_close(
        trainer.predict_proba(graph=sparse), other.predict_proba(), rtol=1e-4, atol=1e-5
    )


def test_another_graph_needs_no_labels_and_no_split(graph, trainer):
    new = make_labelled(300, seed=7)
    masks = dict.fromkeys(("train_mask", "val_mask", "test_mask"))
    bare = new._copy(y=None, num_classes=None, **masks)
    assert torch.equal(trainer.predict(graph=bare), trainer.predict(graph=new))
    with pytest.raises(shoal.ShoalError, match="has no labels: scores need them"):
        trainer.evaluate(graph=bare)
    right = trainer.predict(graph=new).numpy() == new.y
    assert trainer.evaluate(graph=new._copy(**masks))["accuracy"] == pytest.approx(right.mean())


def test_classes_of_another_graph_are_matched_by_name(graph):
    named = graph._copy(class_names=("ash", "elm", "oak"))
    trainer = make_trainer(named)
    trainer.fit(20)
    new = make_labelled(300, seed=7)
    turned = new._copy(y=2 - new.y, class_names=("oak", "elm", "ash"))
    assert trainer.evaluate(graph=turned) == trainer.evaluate(graph=new)
    with pytest.raises(shoal.ShoalError, match="has the class 'yew'"):
        trainer.evaluate(graph=new._copy(class_names=("ash", "elm", "yew")))
    with pytest.raises(shoal.ShoalError, match="4 classes"):
        trainer.evaluate(graph=make_labelled(300, num_classes=4))


def test_a_graph_with_other_features_is_refused(graph, trainer):
    narrow = graph._copy(x=graph.x[:, :5])
    with pytest.raises(shoal.ShoalError, match="has 5 features and the model was trained with 8"):
        trainer.predict(graph=narrow)
    with pytest.raises(shoal.ShoalError, match="expected a Graph"):
        trainer.predict(graph="digits")


class OwnModel(nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.linear = nn.Linear(graph.num_features, graph.num_classes)

    def forward(self, batch):
        return self.linear(batch.x)


def test_sparse_features_are_refused_for_a_model_of_dense_ones(graph):
    trainer = shoal.Trainer(OwnModel(graph), graph)
    trainer.fit(1)
    with pytest.raises(
        shoal.ShoalError, match="has sparse features and OwnModel was trained with dense ones"
    ):
        trainer.predict(graph=graph._copy(x=sp.csr_array(graph.x)))


def test_the_history_has_a_record_for_every_epoch_of_every_fit(graph):
    trainer = make_trainer(graph)
    first = trainer.fit(2)
    second = trainer.fit(4)
    assert trainer.history == [*first, *second]
    assert [record["epoch"] for record in trainer.history] == [1, 2, 3, 4]


class FollowSteps(shoal.Callback):
    def __init__(self, stop_at: int | None = None) -> None:
        self.seen, self.stop_at = [], stop_at

    def on_batch(self, trainer, batch, loss):
        self.seen.append((batch.index, loss))
        if len(self.seen) == self.stop_at:
            trainer.stop()


def test_on_batch_is_called_after_every_step_with_its_loss(graph):
    callback = FollowSteps()
    sampler = shoal.NodeSampler(graph, budget=100)
    trainer = make_trainer(graph, callbacks=[callback])
    trainer = shoal.Trainer(trainer.model, graph, sampler, callbacks=[callback])
    records = trainer.fit(2)
    assert [k for k, _ in callback.seen] == list(range(2 * sampler.num_batches))
    losses = [loss for _, loss in callback.seen[: sampler.num_batches]]
    assert records[0]["loss"] == pytest.approx(np.mean(losses))


def test_training_stopped_from_a_batch_ends_with_the_epoch(graph):
    sampler = shoal.NodeSampler(graph, budget=100)
    model = shoal.GNN("sage", graph.num_features, 16, graph.num_classes)
    trainer = shoal.Trainer(model, graph, sampler, callbacks=[FollowSteps(stop_at=sampler.num_batches + 1)])
    assert len(trainer.fit(9)) == 2


def test_callbacks_without_on_batch_are_not_called_for_batches(graph):
    class Stop(shoal.Callback):
        def on_epoch(self, trainer, record):
            trainer.stop()

    trainer = make_trainer(graph, callbacks=[Stop()])
    assert trainer._batch_callbacks == []
    assert len(trainer.fit(9)) == 1


def test_a_graph_whose_edges_have_another_direction_is_refused():
    trainer = shoal.Trainer(shoal.GNN("sage", 8, 4, 3), make_labelled(60))
    with pytest.raises(shoal.ShoalError, match="is directed and the model was trained on undirected edges"):
        trainer.predict(graph=make_labelled(60, directed=True))
