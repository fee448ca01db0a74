"""Label propagation and Correct & Smooth: the dense formulas, and which labels have an influence."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.training.smoothing_choice import choose_propagation
from small_graphs import make_graph, make_labelled


def densify(graph):
    """`D^-½ A D^-½`, of a directed graph A + Aᵀ."""
    n = graph.num_nodes
    a = sp.csr_array((np.ones(graph.num_entries), graph.indices, graph.indptr), shape=(n, n)).toarray()
    a = a + a.T if graph.directed else a
    scale = np.maximum(a.sum(1), 1) ** -0.5
    return scale[:, None] * a * scale


def spread(s, start, alpha, steps, fixed=None):
    state = start
    for _ in range(steps):
        state = alpha * s @ state + (1 - alpha) * start
        if fixed is not None:
            state[fixed] = start[fixed]
    return state


def draw_probabilities(graph, seed=3):
    logits = np.random.default_rng(seed).normal(0, 1.5, (graph.num_nodes, graph.num_classes))
    logits += 1.2 * np.eye(graph.num_classes)[graph.y]
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


@pytest.fixture(scope="module", params=[False, True])
def graph(request):
    return make_labelled(120, directed=request.param)


def test_label_propagation_is_the_dense_formula(graph):
    y = np.eye(3)[graph.y] * graph.train_mask[:, None]
    expected = spread(densify(graph), y, 0.7, 6)
    found = shoal.propagate_labels(graph, alpha=0.7, steps=6)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", [None, 1.5])
def test_correct_and_smooth_is_the_dense_formula(graph, scale):
    s, z, known = densify(graph), draw_probabilities(graph), graph.train_mask
    y = np.eye(3)[graph.y]
    errors = np.where(known[:, None], y - z, 0)
    if scale is None:
        spread_errors = spread(s, errors, 0.8, 4)
        size = np.abs(errors[known]).sum(1).mean()
        added = size * spread_errors / np.abs(spread_errors).sum(1, keepdims=True)
    else:
        added = scale * spread(s, errors, 0.8, 4, fixed=known)
    start = np.where(known[:, None], y, z + added)
    expected = spread(s, start, 0.6, 5)
    found = shoal.correct_and_smooth(
        graph, z, correct_alpha=0.8, correct_steps=4, scale=scale, smooth_alpha=0.6, smooth_steps=5
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_no_steps_leave_predictions_as_they_are(graph):
    z = torch.from_numpy(draw_probabilities(graph)).float()
    assert torch.equal(shoal.correct_and_smooth(graph, z, correct_steps=0, smooth_steps=0), z)


def test_nodes_that_no_label_reaches_get_the_most_frequent_class():
    y = np.array([1, 1, 0, 0, 1])
    masks = {"train_mask": np.array([1, 1, 1, 0, 0], bool), "val_mask": np.array([0, 0, 0, 1, 0], bool)}
    graph = make_graph([(2, 3)], 5, y=y, test_mask=np.array([0, 0, 0, 0, 1], bool), **masks)
    assert shoal.propagate_labels(graph, steps=3).argmax(1).tolist() == [1, 1, 0, 0, 1]
    assert shoal.propagate_labels(graph, steps=0).argmax(1).tolist() == [1, 1, 0, 1, 1]


def change_labels(graph, mask, seed=5):
    """The graph with other labels of the nodes in a mask."""
    y = graph.y.copy()
    y[mask] = np.random.default_rng(seed).integers(0, graph.num_classes, int(mask.sum()))
    return graph._copy(y=y)


def test_only_labels_of_training_nodes_are_spread(graph):
    other = change_labels(graph, ~graph.train_mask)
    z = draw_probabilities(graph)
    assert torch.equal(shoal.propagate_labels(graph), shoal.propagate_labels(other))
    assert torch.equal(shoal.correct_and_smooth(graph, z), shoal.correct_and_smooth(other, z))


@pytest.mark.parametrize("with_validation", [False, True])
def test_test_labels_change_no_choice_and_no_prediction(graph, with_validation):
    other = change_labels(graph, graph.test_mask)
    z = draw_probabilities(graph)
    one, two = (shoal.choose_smoothing(g, z, with_validation=with_validation) for g in (graph, other))
    assert (one.settings, one.before, one.after) == (two.settings, two.before, two.after)
    assert torch.equal(one.scores, two.scores)
    scores, *chosen = choose_propagation(graph)
    again, *same = choose_propagation(other)
    assert chosen == same
    assert torch.equal(scores, again)


def test_validation_labels_influence_the_choice_alone(graph):
    z = draw_probabilities(graph)
    for seed in range(4):
        other = change_labels(graph, graph.val_mask, seed)
        found = shoal.choose_smoothing(other, z)
        if found.settings is None:
            assert torch.equal(found.scores, torch.from_numpy(z).float())
        else:
            assert torch.equal(found.scores, shoal.correct_and_smooth(graph, z, **vars(found.settings)))


def test_smoothing_is_used_only_where_the_validation_score_rises(graph):
    z = draw_probabilities(graph)
    found = shoal.choose_smoothing(graph, z)
    val = torch.from_numpy(graph.val_mask)
    y = torch.from_numpy(graph.y)

    def score(scores):
        return float((scores.argmax(1) == y)[val].double().mean())

    assert found.before == pytest.approx(score(torch.from_numpy(z)))
    assert found.after == pytest.approx(score(found.scores))
    assert found.after > found.before
    perfect = torch.nn.functional.one_hot(y, 3).float()
    same = shoal.choose_smoothing(graph, perfect)
    assert same.settings is None
    assert torch.equal(same.scores, perfect)


def test_validation_labels_are_spread_when_asked_for(graph):
    z = draw_probabilities(graph)
    found = shoal.choose_smoothing(graph, z, with_validation=True)
    both = graph.train_mask | graph.val_mask
    expected = shoal.correct_and_smooth(graph, z, **vars(found.settings), nodes=both)
    assert torch.equal(found.scores, expected)
    assert found.after == shoal.choose_smoothing(graph, z).after


def test_a_trainer_smooths_its_own_predictions():
    graph = make_labelled(300)
    trainer = shoal.Trainer(shoal.GNN("mlp", 8, 16, 3), graph)
    trainer.fit(20)
    found = shoal.smooth_predictions(trainer)
    assert found.metric == "accuracy"
    assert found.before == pytest.approx(trainer.evaluate("val")["accuracy"])
    assert found.after > found.before
    assert found.labels.shape == (300,)


def test_what_cannot_be_smoothed_is_refused():
    graph = make_labelled(60)
    z = draw_probabilities(graph)
    several = graph._copy(y=np.eye(3, dtype=np.uint8)[graph.y])
    with pytest.raises(shoal.ShoalError, match="is multi-label"):
        shoal.propagate_labels(several)
    with pytest.raises(shoal.ShoalError, match=r"probabilities are \(60, 2\): expected \(60, 3\)"):
        shoal.correct_and_smooth(graph, z[:, :2])
    with pytest.raises(shoal.ShoalError, match="expected a mask"):
        shoal.propagate_labels(graph, nodes=np.arange(4))
    with pytest.raises(shoal.ShoalError, match="has no validation nodes"):
        shoal.choose_smoothing(graph._copy(val_mask=np.zeros(60, bool)), z)
    with pytest.raises(shoal.ShoalError, match="alpha is"):
        shoal.propagate_labels(graph, alpha=1.0)


def test_labels_spread_some_classes_at_a_time_are_the_same(monkeypatch):
    graph = make_labelled(200)
    wanted = shoal.propagate_labels(graph, alpha=0.8, steps=5)
    chosen = choose_propagation(graph)
    monkeypatch.setattr("shoal.training.smoothing.memory_left", lambda: 2 * 16 * graph.num_nodes)  # one class
    found = shoal.propagate_labels(graph, alpha=0.8, steps=5)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    again = choose_propagation(graph)
    assert again[1:] == chosen[1:]
    torch.testing.assert_close(again[0], chosen[0], rtol=0, atol=0)
