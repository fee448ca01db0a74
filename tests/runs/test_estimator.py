"""NodeClassifier: fit, predict and score as scikit-learn's estimators, configured as `shoal train`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shoal
from command_line import run_shoal
from shoal.runs.build import make_trainer
from shoal.runs.config import make_config
from shoal.runs.defaults import follow_graph
from small_graphs import make_labelled

SMALL = {"model__hidden": 16, "sampler__roots": 60, "training__lr": 0.02}


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return make_labelled(400)._copy(class_names=("ash", "elm", "oak"))


@pytest.fixture(scope="module")
def fitted(graph) -> shoal.NodeClassifier:
    return shoal.NodeClassifier(epochs=40, **SMALL).fit(graph)


def test_it_trains_what_the_same_configuration_trains(graph, fitted):
    given = {"model": {"hidden": 16}, "sampler": {"roots": 60}, "training": {"epochs": 40, "lr": 0.02}}
    config = make_config(given | {"defaults": "graph"})
    follow_graph(config, graph)
    trainer = make_trainer(config, graph)
    trainer.fit(40)
    for ours, theirs in zip(fitted.model_.parameters(), trainer.model.parameters()):
        assert torch.equal(ours, theirs)
    assert fitted.history_[-1]["loss"] == trainer.history[-1]["loss"]


def test_it_predicts_names_probabilities_and_scores(graph, fitted):
    found = fitted.predict()
    assert set(found) <= {"ash", "elm", "oak"}
    assert (fitted.classes_[fitted.predict_proba().argmax(1)] == found).all()
    true = np.array(graph.class_names)[graph.y]
    assert fitted.score() == pytest.approx((found == true)[graph.test_mask].mean())
    assert fitted.score(split="val") > 0.7
    assert fitted.embed().shape == (400, 16)


def test_another_graph_is_predicted_and_scored(graph, fitted):
    new = make_labelled(200, seed=4)
    assert (fitted.predict(new) == fitted.classes_[fitted.trainer_.predict(graph=new).numpy()]).all()
    assert fitted.score(new) > 0.7
    pytest.importorskip("torch_geometric")
    assert (fitted.predict(new.to_pyg()) == fitted.predict(new)).all()


def test_a_graph_without_split_or_names_gets_a_split_and_numbers():
    bare = make_labelled(300)._copy(train_mask=None, val_mask=None, test_mask=None)
    found = shoal.NodeClassifier("gcn", method="full", epochs=3, model__hidden=8).fit(bare)
    assert found.graph_.has_split
    assert found.predict().dtype == np.int64
    assert found.trainer_.sampler.name == "full"


def test_it_trains_what_shoal_train_does_with_the_same_settings(graph, fitted, tmp_path):
    shoal.save_graph(graph, tmp_path / "graph")
    settings = " ".join(f"--set {name.replace('__', '.')}={value}" for name, value in SMALL.items())
    run_shoal(*f"train {tmp_path}/graph --epochs 40 {settings} --out {tmp_path}/run".split())
    run = shoal.load_run(tmp_path / "run")
    assert run.config.model.name == fitted.config_.model.name
    for ours, theirs in zip(fitted.model_.parameters(), run.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)  # a run sets its number of threads


def test_what_is_not_given_follows_from_the_graph(graph):
    found = shoal.NodeClassifier(epochs=2).fit(graph)
    assert found.config_.method == "full"
    assert any("training nodes per class" in notice for notice in found.notices_)


def test_numbers_are_predicted_by_a_regressor(graph):
    y = (graph.x[:, 0] + 2 * graph.x[:, 1]).astype(np.float32)
    targets = graph._copy(y=y, num_classes=None, class_names=None)
    found = shoal.NodeRegressor("sage", epochs=60, model__hidden=16, training__lr=0.02).fit(targets)
    assert found.score() > 0.5
    assert found.predict().shape == (400,)
    with pytest.raises(shoal.ShoalError, match="use NodeRegressor"):
        shoal.NodeClassifier().fit(targets)
    with pytest.raises(shoal.ShoalError, match="use NodeClassifier"):
        shoal.NodeRegressor().fit(graph)


def test_parameters_are_got_and_set_as_scikit_learn_does(graph):
    first = shoal.NodeClassifier("gcn", epochs=2, **SMALL)
    again = shoal.NodeClassifier(**first.get_params())
    assert again.get_params() == first.get_params()
    assert again.set_params(epochs=1, model="sage") is again
    assert len(again.fit(graph).history_) == 1
    assert repr(again).startswith("NodeClassifier(model='sage', epochs=1, seed=0")


def test_wrong_arguments_get_one_sentence(graph):
    with pytest.raises(shoal.ShoalError, match=r"unknown argument 'epoch'.*did you mean 'epochs'"):
        shoal.NodeClassifier(epoch=3)
    with pytest.raises(shoal.ShoalError, match=r"unknown key 'hiden'.*did you mean 'hidden'"):
        shoal.NodeClassifier(model__hiden=3).fit(graph)
    with pytest.raises(shoal.ShoalError, match="unknown model 'sagee'"):
        shoal.NodeClassifier("sagee").fit(graph)
    with pytest.raises(shoal.ShoalError, match="expected sampled or full"):
        shoal.NodeClassifier(method="partitioned").fit(graph)
    with pytest.raises(shoal.ShoalError, match="pass a graph, which has features and labels"):
        shoal.NodeClassifier().fit(graph.x, graph.y)
    with pytest.raises(shoal.ShoalError, match="not fitted yet"):
        shoal.NodeClassifier().predict()
    with pytest.raises(shoal.ShoalError, match="no labels"):
        shoal.NodeClassifier().fit(graph._copy(y=None, num_classes=None))
