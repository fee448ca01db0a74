"""FrontierSampler: every method draws the exact law, deterministically, and refuses what cannot be."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

import shoal
from sampler_laws import SIGNIFICANCE, chi_square_p, count_sets, enumerate_frontier_law, homogeneity_p
from shoal.sampling.frontier_methods.reference import draw_by_definition

METHODS = sorted(shoal.FrontierSampler.METHODS)
NUM_DRAWS = 20_000


def make_graph(edges, num_nodes, directed=False):
    return shoal.Graph.from_edge_index(np.array(edges).T, num_nodes, directed=directed)


@pytest.fixture(scope="module")
def lopsided():
    """A hub, a triangle and a tail: degrees 4, 2, 2, 1, 2, 1."""
    return make_graph([(0, 1), (0, 2), (1, 2), (0, 3), (0, 4), (4, 5)], 6)


@pytest.fixture(scope="module")
def with_isolated():
    return make_graph([(0, 1), (0, 2), (0, 3), (1, 2)], 5)


@pytest.fixture(scope="module")
def random_graph():
    ends = np.random.default_rng(0).integers(0, 3000, (2, 12_000))
    return shoal.Graph.from_edge_index(ends, 3000, directed=False)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("pin_cap", [None, 2])
def test_node_sets_follow_the_exact_law(lopsided, method, pin_cap):
    law = enumerate_frontier_law(lopsided.indptr, lopsided.indices, 2, 4, pin_cap)
    sampler = shoal.FrontierSampler(lopsided, 4, 2, method=method, pin_cap=pin_cap, eta=8, seed=3)
    assert chi_square_p(count_sets(sampler, NUM_DRAWS), law) > SIGNIFICANCE


@pytest.mark.parametrize("method", METHODS)
def test_isolated_nodes_restart_anywhere(with_isolated, method):
    law = enumerate_frontier_law(with_isolated.indptr, with_isolated.indices, 2, 3)
    sampler = shoal.FrontierSampler(with_isolated, 3, 2, method=method, eta=8, seed=5)
    assert chi_square_p(count_sets(sampler, NUM_DRAWS), law) > SIGNIFICANCE


def test_reference_follows_the_exact_law(lopsided):
    law = enumerate_frontier_law(lopsided.indptr, lopsided.indices, 2, 4)
    generator = np.random.default_rng(0)
    draws = (
        draw_by_definition(lopsided.indptr, lopsided.indices, 99, 2, 4, 80, generator) for _ in range(5000)
    )
    assert chi_square_p(Counter(frozenset(d.tolist()) for d in draws), law) > SIGNIFICANCE


def test_the_test_can_tell_laws_apart(lopsided):
    """Without degree weights (pin cap 1) the draws must be rejected: the test has the power it needs."""
    law = enumerate_frontier_law(lopsided.indptr, lopsided.indices, 2, 4)
    sampler = shoal.FrontierSampler(lopsided, 4, 2, pin_cap=1, seed=3)
    assert chi_square_p(count_sets(sampler, NUM_DRAWS), law) < SIGNIFICANCE


# -- the methods held to each other on a graph whose law nobody can enumerate -----------------------------

HUBS = 7


@pytest.fixture(scope="module")
def skewed_graph():
    """400 nodes, degrees from 1 to 253."""
    ends = (400 * np.random.default_rng(0).random((2, 2500)) ** 3).astype(np.int64)
    return shoal.Graph.from_edge_index(ends, 400, directed=False)


def describe_batches(graph, method, **settings):
    """Two outcomes of each of the first 8,000 batches, counted: which hubs it has, and how many pops it took."""
    hubs = np.argsort(-graph.degree, kind="stable")[:HUBS]
    seed = 11 + METHODS.index(method)  # a method's draws are independent of another's
    sampler = shoal.FrontierSampler(graph, 40, 20, method=method, eta=8, seed=seed, **settings)
    counts = {"hubs": Counter(), "pops": Counter()}
    for k in range(8000):
        nodes, pops = sampler.draw(k)
        counts["hubs"][tuple(np.isin(hubs, nodes).tolist())] += 1
        counts["pops"][pops] += 1
    return counts


@pytest.fixture(scope="module")
def outcomes(skewed_graph):
    return {method: describe_batches(skewed_graph, method) for method in METHODS}


@pytest.mark.parametrize("kind", ["hubs", "pops"])
@pytest.mark.parametrize(("one", "other"), list(combinations(METHODS, 2)))
def test_two_methods_have_one_law(outcomes, one, other, kind):
    """Two-sample chi-square at level 1e-4, 8,000 batches each: visited sets and lengths of pop sequences."""
    assert homogeneity_p(outcomes[one][kind], outcomes[other][kind]) > SIGNIFICANCE


@pytest.mark.parametrize("kind", ["hubs", "pops"])
def test_methods_of_different_laws_are_told_apart(skewed_graph, outcomes, kind):
    """Weights capped at 3 are rejected: the comparison has the power it needs."""
    capped = describe_batches(skewed_graph, "buckets", pin_cap=3)
    assert homogeneity_p(outcomes["clocks"][kind], capped[kind]) < SIGNIFICANCE


@pytest.mark.parametrize("method", METHODS)
def test_batches_hold_exactly_the_budget_and_depend_on_number_only(random_graph, method):
    first = shoal.FrontierSampler(random_graph, 500, 50, method=method, seed=7)
    again = shoal.FrontierSampler(random_graph, 500, 50, method=method, seed=7)
    drawn = {k: first.draw_nodes(k) for k in (0, 5, 2)}
    for k in (2, 0, 5):
        nodes = again.draw_nodes(k)
        assert len(nodes) == 500
        assert (np.diff(nodes) > 0).all()
        assert (nodes == drawn[k]).all()
    other = shoal.FrontierSampler(random_graph, 500, 50, method=method, seed=8)
    assert not np.array_equal(drawn[0], drawn[5])
    assert not np.array_equal(drawn[0], other.draw_nodes(0))


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_may_end_after_so_many_visits(random_graph, method):
    sampler = shoal.FrontierSampler(random_graph, visits=500, frontier=50, method=method, seed=7)
    nodes, pops = sampler.draw(0)
    assert pops == 450
    assert 50 < len(nodes) < 500


def test_settings_with_visits_make_the_same_sampler_again(random_graph):
    sampler = shoal.FrontierSampler(random_graph, visits=500, frontier=50)
    again = shoal.FrontierSampler(random_graph, **sampler.settings)
    assert np.array_equal(sampler.draw_nodes(3), again.draw_nodes(3))


def test_visits_beyond_all_nodes_end_with_the_last_of_them(lopsided):
    sampler = shoal.FrontierSampler(lopsided, visits=10_000, frontier=2)
    assert sampler.draw_nodes(0).tolist() == [0, 1, 2, 3, 4, 5]
    assert sampler.notices == ()


@pytest.mark.parametrize("method", METHODS)
def test_small_components_end_the_batch_early(method):
    pairs = make_graph([(2 * i, 2 * i + 1) for i in range(50)], 100)
    nodes, pops = shoal.FrontierSampler(pairs, 80, 10, method=method).draw(0)
    assert 10 <= len(nodes) <= 20
    assert pops == 20 * 80


@pytest.mark.parametrize("method", METHODS)
def test_sinks_of_a_directed_graph_restart(method):
    chain = make_graph([(i + 1, i) for i in range(30)], 31, directed=True)
    assert len(shoal.FrontierSampler(chain, 25, 3, method=method, eta=4).draw_nodes(0)) == 25


def test_dashboard_gives_a_huge_node_what_is_left():
    star = make_graph([(0, i) for i in range(1, 400)], 400)
    sampler = shoal.FrontierSampler(star, 300, 30, method="dashboard", eta=1)
    assert sampler._board[0] < 399
    assert len(sampler.draw_nodes(0)) == 300


def test_budget_beyond_the_graph_means_all_of_it_with_a_notice(lopsided):
    sampler = shoal.FrontierSampler(lopsided, budget=2000, frontier=500)
    assert sampler.draw_nodes(0).tolist() == [0, 1, 2, 3, 4, 5]
    assert sampler.notices == ("budget 2,000 is more than the training graph's 6 nodes: took all of them",)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"budget": 0}, "budget is 0"),
        ({"budget": 4, "frontier": -1}, "frontier is -1"),
        ({"budget": 3, "frontier": 4}, "frontier ≤ budget"),
        ({"visits": 3, "frontier": 4}, "frontier ≤ visits"),
        ({"visits": 0}, "visits is 0"),
        ({"budget": 4, "frontier": 2, "pin_cap": 0}, "pin_cap is 0"),
        ({"budget": 4, "frontier": 2, "eta": 0.5}, "eta is 0.5"),
        ({"budget": 4, "frontier": 2, "method": "dashbord"}, "did you mean 'dashboard'"),
    ],
)
def test_bad_settings_are_refused(lopsided, settings, said):
    with pytest.raises(shoal.ShoalError, match=said):
        shoal.FrontierSampler(lopsided, **settings)


def test_a_graph_without_edges_is_refused():
    empty = shoal.Graph.from_edge_index(np.zeros((2, 0), np.int64), 5)
    with pytest.raises(shoal.ShoalError, match="no edges"):
        shoal.FrontierSampler(empty, 4, 2)
