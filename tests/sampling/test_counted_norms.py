"""Factors from counted batches: their bias, exactly and on fresh batches."""

import numpy as np
import pytest
from scipy.stats import binom, t

import shoal
from sampler_laws import SIGNIFICANCE
from shoal.sampling.base import make_sampler
from shoal.sampling.normalize import count_batches, norms_from_counts
from small_graphs import make_graph, make_labelled

COUNTED = {
    "frontier": {"budget": 20, "frontier": 5},
    "random-walk": {"roots": 8, "depth": 2},
    "multi-random-walk": {"budget": 20, "walkers": 5},
    "forest-fire": {"budget": 20},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))


@pytest.mark.parametrize("q", [0.02, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("drawn", [1, 7, 60])
def test_factors_of_counts_fall_short_of_unbiased_by_the_chance_that_all_counts_miss(q, drawn):
    """Every outcome of Binomial(C_v, q) and of Binomial(N, p) weighed by its probability: E = (1 - (1-q)^(n+1)) / q."""
    star = make_graph([(0, 1 + i) for i in range(drawn + 1)], drawn + 2, directed=True)
    sampler = make_sampler("random-walk", star, roots=1, depth=1)
    outcomes = np.arange(drawn + 1)
    weights = binom.pmf(outcomes, drawn, q)
    expected = (1 - (1 - q) ** (drawn + 1)) / q
    nodes = np.full(star.num_nodes, drawn)
    entry_counts = np.sort(np.resize(outcomes, star.num_entries))
    edge_norm = norms_from_counts(sampler, nodes, entry_counts, drawn).edge_norm
    assert weights @ edge_norm == pytest.approx(expected, rel=1e-5)
    nodes[: drawn + 1] = outcomes
    node_norm = norms_from_counts(sampler, nodes, entry_counts, drawn).node_norm * star.num_nodes
    assert weights @ node_norm[: drawn + 1] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", COUNTED)
def test_counted_factors_are_unbiased_on_fresh_batches_at_level_1e_4(name):
    """40 normalisations of coverage 20, each on the same 20,000 fresh batches, by the counts of which every mean follows.

    The mean factor of aggregation and of loss must be 1 but for the probability to be never counted. The plain ratio
    C_v / C_uv is far outside of the same bound.
    """
    graph = make_labelled(60)
    options = COUNTED[name]
    fresh_nodes, fresh_entries = count_batches(make_sampler(name, graph, seed=1000, **options), 20_000)
    p_node, q = fresh_nodes / 20_000, fresh_entries / np.repeat(fresh_nodes, graph.degree)
    factors, plain, train = [], [], graph.train_mask
    for seed in range(40):
        sampler = make_sampler(name, graph, seed=seed, **options)
        num_batches = int(20 * graph.num_nodes / sampler.batch_size)
        nodes, entries = count_batches(sampler, num_batches)
        norms = norms_from_counts(sampler, nodes, entries, num_batches)
        drawn = np.repeat(nodes, graph.degree)
        short = np.mean((1 - q) ** (drawn + 1)), np.mean((1 - p_node[train]) ** (num_batches + 1))
        aggregation = np.mean(q * norms.edge_norm) + short[0]
        factors.append((aggregation, np.sum((p_node * norms.node_norm)[train]) + short[1]))
        loss = np.mean((p_node * num_batches / np.maximum(nodes, 1))[train])
        plain.append((np.mean(q * drawn / np.maximum(entries, 1)), loss))
    limit = t.ppf(1 - SIGNIFICANCE / 2, len(factors) - 1)
    for ours, ratio in zip(np.transpose(factors), np.transpose(plain)):
        assert abs(ours.mean() - 1) < limit * ours.std(ddof=1) / np.sqrt(len(ours)) + 1e-3
        assert (ratio.mean() - 1) > limit * ratio.std(ddof=1) / np.sqrt(len(ratio)) + 1e-3


def test_entries_that_were_seldom_counted_are_told_with_what_to_do():
    graph = make_labelled(60)
    sampler = shoal.RandomWalkSampler(graph, roots=4, depth=1, coverage=2)
    sampler.norms  # noqa: B018
    assert any("of entries were never drawn" in said and "raise coverage" in said for said in sampler.notices)
