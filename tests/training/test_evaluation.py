"""How often a run evaluates: a function of counted work, the same on every machine and after resuming."""

import numpy as np
import pytest
import torch

import shoal
from shoal.training import evaluation
from shoal.training.evaluation import choose_interval, count_work
from shoal.training.metrics import score_predictions
from shoal.training.split_sample import SplitSample
from small_graphs import make_labelled


def make_trainer(sampler=True, graph=None, **settings):
    graph = graph or make_labelled(600)
    model = shoal.GNN("sage", graph.num_features, 16, graph.num_classes, dropout=0.2)
    batches = shoal.NodeSampler(graph, budget=60, seed=3) if sampler else None
    return shoal.Trainer(model, graph, batches, **settings)


def list_evaluated(records):
    return [record["epoch"] for record in records if "val_accuracy" in record]


def test_small_graphs_are_evaluated_after_every_epoch():
    trainer = make_trainer()
    assert trainer.eval_interval == 1
    assert list_evaluated(trainer.fit(3)) == [1, 2, 3]
    assert list_evaluated(make_trainer(eval_every=2, eval_share=0.001).fit(5)) == [2, 4]


def test_rows_are_planned_only_where_a_whole_evaluation_is_large(monkeypatch):
    hops = []
    real = evaluation.plan_rows

    def note(indptr, indices, given, rows):
        hops.append(given)
        return real(indptr, indices, given, rows)

    monkeypatch.setattr(evaluation, "plan_rows", note)
    trainer = make_trainer()
    once, epoch = count_work(trainer.share, trainer.model)
    assert (hops, epoch) == ([], 3 * once)
    monkeypatch.setattr(evaluation, "LARGE_EVALUATION", once - 1)
    assert count_work(trainer.share, trainer.model)[0] < once
    assert hops == [[0, 1]]


def test_evaluation_of_a_large_graph_takes_at_most_its_share_of_the_work(monkeypatch):
    monkeypatch.setattr(evaluation, "LARGE_EVALUATION", 1)
    trainer = make_trainer(eval_share=0.05)
    once, epoch = count_work(trainer.share, trainer.model)
    interval = trainer.eval_interval
    assert interval > 1
    assert once / (once + interval * epoch) <= 0.05
    assert once / (once + (interval - 1) * epoch) > 0.05
    full = make_trainer(sampler=False)
    once, epoch = count_work(full.share, full.model)
    assert 2.4 < epoch / once < 6  # forward and backward, over a forward pass for some of the rows
    assert choose_interval(full.share, full.model, 1.0) == 1


def test_evaluated_epochs_are_the_same_in_a_resumed_run(monkeypatch, tmp_path):
    monkeypatch.setattr(evaluation, "LARGE_EVALUATION", 1)
    settings = {"eval_share": 0.02, "patience": 50}
    straight = make_trainer(**settings)
    interval, epochs = straight.eval_interval, 2 * straight.eval_interval + 2
    assert interval > 1
    records = straight.fit(epochs)
    assert list_evaluated(records) == [interval, 2 * interval, epochs]  # the last one always

    class Killed(RuntimeError):
        pass

    def kill(record):
        if record["epoch"] == interval + 1:
            raise Killed

    first = make_trainer(**settings, checkpoints=tmp_path)
    with pytest.raises(Killed):
        first.fit(epochs, kill)
    resumed = make_trainer(**settings, checkpoints=tmp_path)
    resumed.resume(tmp_path)
    again = resumed.fit(epochs)
    assert list_evaluated(again) == [2 * interval, epochs]
    assert resumed.best_epoch == straight.best_epoch
    assert resumed.best_score == straight.best_score
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])


def test_the_epoch_that_a_callback_stops_at_is_evaluated(monkeypatch):
    monkeypatch.setattr(evaluation, "LARGE_EVALUATION", 1)

    class Stop(shoal.Callback):
        def on_epoch(self, trainer, record):
            if record["epoch"] == trainer.eval_interval + 1:
                trainer.stop()

    trainer = make_trainer(eval_share=0.05, callbacks=[Stop()])
    interval = trainer.eval_interval
    assert interval > 1
    shown = []
    assert list_evaluated(trainer.fit(10 * interval, shown.append)) == [interval, interval + 1]
    assert list_evaluated(shown) == [interval, interval + 1]
    assert list_evaluated(make_trainer(eval_every=2, callbacks=[Stop()]).fit(9)) == [2]


def test_patience_counts_evaluations(monkeypatch):
    monkeypatch.setattr(evaluation, "LARGE_EVALUATION", 1)
    trainer = make_trainer(eval_share=0.05, patience=2, lr=1e-9)
    trainer.fit(100)
    assert trainer.epoch == trainer.best_epoch + 2 * trainer.eval_interval


def test_a_model_without_layers_to_count_is_measured_by_its_weights(monkeypatch):
    monkeypatch.setattr(evaluation, "LARGE_EVALUATION", 1)

    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 3)

        def forward(self, batch):
            return self.linear(batch.x)

    graph = make_labelled(600)
    trainer = shoal.Trainer(Linear(), graph, shoal.NodeSampler(graph, budget=60))
    once, epoch = count_work(trainer.share, trainer.model)
    assert trainer.eval_interval == int(np.ceil(9 * once / epoch))


def test_full_batches_are_made_once():
    graph = make_labelled(100)
    trainer = shoal.Trainer(shoal.GNN("sage", 8, 16, 3), graph)
    assert trainer.share.whole is trainer.sampler.sample(0)
    inductive = shoal.Trainer(trainer.model, graph, shoal.FullSampler(graph, setting="inductive"))
    assert inductive.share.whole.num_nodes == 100 > inductive.sampler.sample(0).num_nodes


def test_a_sample_has_the_score_of_all_within_its_standard_error():
    """2,000 of 40,000 nodes, again and again: errors are as large as they are said to be, whatever the metric."""
    rng = np.random.default_rng(1)
    n, size = 40_000, 2000
    y = torch.from_numpy(rng.integers(0, 4, n))
    right = torch.from_numpy(rng.random(n) < 0.7)
    logits = torch.nn.functional.one_hot(torch.where(right, y, (y + 1) % 4), 4).float()

    def score(chosen, metric):
        return score_predictions(logits[chosen], y[chosen])[metric]

    def draw_ratio(metric):
        """How far off the score of a sample is, over its standard error."""
        chosen = torch.from_numpy(rng.permutation(n)[:size])
        sample = SplitSample(chosen, torch.arange(size) % 20, size, n, metric)
        error = sample.estimate_error(lambda kept: score(chosen[kept], metric))
        return (score(chosen, metric) - score(slice(None), metric)) / error

    for metric in ("accuracy", "f1_macro"):
        ratios = np.array([draw_ratio(metric) for _ in range(60)])
        assert 0.7 < np.sqrt(np.square(ratios).mean()) < 1.45  # 60 draws of 19 degrees of freedom


def test_evaluations_of_a_sample_are_of_the_same_nodes_and_end_with_exact_scores():
    settings = {"eval_sample": 100, "lr": 1e-9}
    graph = make_labelled(2000)
    trainers = [make_trainer(graph=graph, **settings) for _ in range(2)]
    first, second = (trainer.eval_sample for trainer in trainers)
    assert torch.equal(first.mask, second.mask)
    assert int(first.mask.sum()) == first.size == 100
    assert not (first.mask.numpy() & ~graph.val_mask).any()
    record = trainers[0].fit(1)[0]
    some = first.mask.numpy()
    right = trainers[0].predict().numpy()[some] == graph.y[some]
    assert record["val_accuracy"] == pytest.approx(right.mean())
    assert record["val_accuracy_error"] > 0
    assert "accuracy_error" not in trainers[0].evaluate("val")
    assert make_trainer(graph=graph, eval_sample=int(graph.val_mask.sum())).eval_sample is None
    with pytest.raises(shoal.ShoalError, match="eval_sample is 5: expected at least 20"):
        make_trainer(graph=graph, eval_sample=5)


def test_a_sample_without_a_class_of_the_split_has_no_standard_error():
    graph = make_labelled(2000)
    y = np.zeros(2000, np.int64)
    graph = graph._copy(y=y, num_classes=2)
    chosen = make_trainer(graph=graph, eval_sample=40).eval_sample.mask.numpy()
    y = y.copy()
    y[np.flatnonzero(graph.val_mask & ~chosen)[:3]] = 1
    rare = make_trainer(graph=graph._copy(y=y), eval_sample=40, metric="roc_auc").fit(1)[0]
    assert rare["val_roc_auc"] == 0.5
    assert "val_roc_auc_error" not in rare
    assert "val_accuracy_error" in make_trainer(graph=graph._copy(y=y), eval_sample=40).fit(1)[0]
    y[np.flatnonzero(chosen)[:3]] = 1
    assert (
        make_trainer(graph=graph._copy(y=y), eval_sample=40, metric="roc_auc").fit(1)[0]["val_roc_auc_error"]
        > 0
    )


def test_a_sample_makes_evaluations_more_frequent(monkeypatch):
    monkeypatch.setattr(evaluation, "LARGE_EVALUATION", 1)
    graph = make_labelled(4000)
    every, some = (make_trainer(graph=graph, eval_share=0.01, eval_sample=size) for size in (None, 100))
    assert some.eval_interval < every.eval_interval
