"""Embedded data sets: deterministic and of the shape that was asked for.

Statistical tests reject at significance 1e-6; with fixed seeds they either always pass or always fail.
"""

from functools import cache

import numba
import numpy as np
import pytest
from scipy import stats

from shoal.datasets.generators import GENERATORS
from shoal.datasets.kronecker import INITIATOR, draw_edges
from shoal.errors import ShoalError

SIGNIFICANCE = 1e-6
SMALL = {
    "digits": {},
    "blocks": {"num_nodes": 3000, "num_classes": 7, "num_features": 9},
    "kronecker": {"scale": 11, "num_features": 9, "num_classes": 3},
}
MASKS = ("train_mask", "val_mask", "test_mask")


@cache
def make_blocks(**settings):
    return GENERATORS["blocks"](**settings)


def arrays(graph):
    return [graph.indptr, graph.indices, graph.x, graph.y, *(getattr(graph, name) for name in MASKS)]


def same(one, other):
    return [np.array_equal(a, b) for a, b in zip(arrays(one), arrays(other))]


def share_inside_classes(graph):
    rows = np.repeat(np.arange(graph.num_nodes), graph.degree)
    return (graph.y[rows] == graph.y[graph.indices]).mean()


@pytest.mark.parametrize("name", GENERATORS)
def test_same_seed_gives_the_same_graph_whatever_the_thread_count(name):
    many = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        alone = GENERATORS[name](**SMALL[name], seed=3)
    finally:
        numba.set_num_threads(many)
    assert all(same(alone, GENERATORS[name](**SMALL[name], seed=3)))


@pytest.mark.parametrize("name", ["blocks", "kronecker"])
def test_different_seed_gives_different_edges_features_labels_and_split(name):
    one, other = (GENERATORS[name](**SMALL[name], seed=seed) for seed in (0, 1))
    assert not any(same(one, other))


def test_digits_seed_changes_only_the_split():
    one, other = (GENERATORS["digits"](seed=seed) for seed in (0, 1))
    assert same(one, other) == [True] * 4 + [False] * 3


@pytest.mark.parametrize("name", ["blocks", "kronecker"])
def test_graphs_are_undirected_without_self_loops_with_a_60_20_20_split(name):
    graph = GENERATORS[name](**SMALL[name])
    assert not graph.directed
    assert graph.num_self_loops == 0
    assert [getattr(graph, mask).sum() for mask in MASKS] == pytest.approx(
        [0.6 * graph.num_nodes, 0.2 * graph.num_nodes, 0.2 * graph.num_nodes], abs=1
    )
    assert sum(getattr(graph, mask) for mask in MASKS).all()
    sizes = np.bincount(graph.y)
    assert len(sizes) == graph.num_classes
    assert sizes.max() - sizes.min() <= 1


def test_digits_are_the_1797_images_with_their_nearest_neighbours():
    graph = GENERATORS["digits"](neighbors=6)
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (1797, 64, 10)
    assert graph.x.min() == 0
    assert graph.x.max() == 1
    assert np.bincount(graph.y).min() > 170
    node = 123
    distance = np.linalg.norm(graph.x - graph.x[node], axis=1)
    distance[node] = np.inf
    listed = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
    assert set(np.argsort(distance, kind="stable")[:6]) <= set(listed)
    assert graph.degree.min() >= 6
    assert share_inside_classes(graph) > 0.9


def test_digits_train_on_the_share_that_was_asked_for():
    graph = GENERATORS["digits"](train=0.1)
    assert [getattr(graph, mask).sum() for mask in MASKS] == [180, 359, 1258]


@pytest.mark.parametrize("homophily", [0.1, 0.5, 0.9])
def test_blocks_edges_stay_inside_a_class_as_often_as_asked(homophily):
    graph = make_blocks(num_nodes=20_000, num_features=1, homophily=homophily, skew=0.2)
    # Self loops and repeats, which are dropped, are a little more frequent inside a class.
    assert share_inside_classes(graph) == pytest.approx(homophily, abs=0.01)


def test_blocks_average_degree_is_close_to_what_was_asked():
    graph = make_blocks(num_nodes=20_000, num_features=1, degree=12, skew=0)
    assert graph.degree.mean() == pytest.approx(12, rel=0.01)


def test_blocks_degrees_without_skew_are_poisson():
    graph = make_blocks(num_nodes=20_000, num_features=1, degree=8, num_classes=1, skew=0)
    found = np.bincount(np.clip(graph.degree, 2, 16), minlength=17)[2:]
    # Merging repeats thins the edges evenly: the rate is the average degree that is left.
    cdf = stats.poisson(graph.degree.mean()).cdf(np.arange(1, 17))
    cdf[0], cdf[-1] = 0, 1
    expected = graph.num_nodes * np.diff(cdf)
    assert stats.chisquare(found, expected).pvalue > SIGNIFICANCE


def test_blocks_degrees_follow_the_power_law_of_the_skew():
    skew = 0.5
    graph = make_blocks(num_nodes=20_000, num_features=1, skew=skew)
    degrees = np.sort(graph.degree)[::-1]
    # The r-th largest degree falls as r^-skew, away from the merged edges of the very largest.
    ranks = np.array([100, 300, 1000, 3000])
    slope = np.polyfit(np.log(ranks), np.log(degrees[ranks]), 1)[0]
    assert slope == pytest.approx(-skew, abs=0.05)
    assert degrees[0] > 20 * np.median(degrees)


def test_blocks_node_numbers_tell_nothing_about_degree():
    graph = make_blocks(num_nodes=20_000, num_features=1, skew=0.5)
    assert stats.spearmanr(np.arange(graph.num_nodes), graph.degree).pvalue > SIGNIFICANCE


def test_blocks_class_means_are_as_far_from_the_noise_as_the_signal_says():
    graph = make_blocks(num_nodes=20_000, signal=3.0)
    means = np.stack([graph.x[graph.y == c].mean(axis=0) for c in range(10)])
    assert np.linalg.norm(means, axis=1).mean() == pytest.approx(3.0, rel=0.1)
    assert (graph.x - means[graph.y]).std() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("scale", [1, 2, 5])
def test_kronecker_quadrants_have_the_chances_of_the_initiator_at_every_level(scale):
    sources, targets = draw_edges(0, 200_000, scale, seed=4)
    assert max(sources.max(), targets.max()) < 2**scale
    for level in range(scale):
        quadrant = 2 * ((sources >> level) & 1) + ((targets >> level) & 1)
        found = np.bincount(quadrant, minlength=4)
        assert stats.chisquare(found, 200_000 * np.array(INITIATOR)).pvalue > SIGNIFICANCE


def test_kronecker_levels_are_independent():
    sources, _ = draw_edges(0, 200_000, 6, seed=5)
    bits = np.array([(sources >> level) & 1 for level in range(6)])
    for level in range(5):
        table = np.bincount(2 * bits[level] + bits[level + 1], minlength=4).reshape(2, 2)
        assert stats.chi2_contingency(table).pvalue > SIGNIFICANCE


def test_kronecker_edges_do_not_depend_on_how_they_are_chunked():
    whole = draw_edges(0, 1000, 9, seed=1)
    parts = [draw_edges(start, 250, 9, seed=1) for start in range(0, 1000, 250)]
    for end in (0, 1):
        np.testing.assert_array_equal(whole[end], np.concatenate([part[end] for part in parts]))


def test_kronecker_is_skewed_and_its_numbering_is_random():
    graph = GENERATORS["kronecker"](scale=14, num_features=1)
    assert graph.degree.max() > 20 * graph.degree.mean()
    assert stats.spearmanr(np.arange(graph.num_nodes), graph.degree).pvalue > SIGNIFICANCE
    merged = int(graph.notices[0].split()[1].replace(",", ""))
    assert 8 * 2**14 - graph.num_edges - merged < 0.01 * 8 * 2**14  # what is left are dropped self loops


def test_kronecker_directed_keeps_arcs_one_way_and_without_features_has_none():
    graph = GENERATORS["kronecker"](scale=10, degree=4, num_features=0, directed=True)
    assert graph.directed
    assert graph.x is None
    assert 0.8 * 4 * 2**10 < graph.num_edges <= 4 * 2**10


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("blocks", {"num_nodes": 0}, "num_nodes is 0: expected 1 to 2147483648"),
        ("blocks", {"num_nodes": 3, "num_classes": 4, "degree": 1}, "num_classes is 4: expected .* 1 to 3"),
        ("blocks", {"num_nodes": 10.5}, "num_nodes is 10.5: expected a whole number"),
        ("blocks", {"degree": -1}, "degree is -1.0: expected at least 0"),
        ("blocks", {"degree": float("nan")}, "degree is nan: expected at least 0"),
        ("blocks", {"degree": 10_001}, "degree is 10001.0: expected a number from 0 to 10000"),
        ("blocks", {"homophily": 1.1}, "homophily is 1.1: expected a rate from 0 to 1"),
        ("blocks", {"skew": 1}, "skew is 1.0: expected a rate from 0 up to, not including, 1"),
        ("blocks", {"signal": "strong"}, "signal is 'strong': expected a number"),
        ("blocks", {"seed": -1}, "seed is -1: expected 0 to"),
        ("kronecker", {"scale": 32}, "scale is 32: expected 1 to 31"),
        ("kronecker", {"scale": "x"}, "scale is 'x': expected a whole number"),
        ("kronecker", {"scale": True}, "scale is True: expected a whole number"),
        ("kronecker", {"degree": -2}, "degree is -2.0: expected at least 0"),
        ("kronecker", {"scale": 1, "degree": 1, "num_classes": 3}, "num_classes is 3: expected .* 1 to 2"),
        ("digits", {"neighbors": 0}, "neighbors is 0: expected 1 to 1796"),
        ("digits", {"train": 0.9}, "train is 0.9: expected .* to 0.8"),
    ],
)
def test_nonsense_settings_are_refused_with_what_was_got_and_expected(name, settings, message):
    with pytest.raises(ShoalError, match=message):
        GENERATORS[name](**settings)
