"""Exact laws of samplers on small graphs, and the chi-square test that holds draws to them."""

from collections import Counter
from itertools import combinations

import numpy as np
from scipy.stats import chi2

SIGNIFICANCE = 1e-4  # of every statistical test: with fixed seeds it passes or fails for good


def enumerate_frontier_law(indptr, indices, frontier, budget, pin_cap=None):
    """P(node set of a batch), by following every frontier and visited set until the budget is met.

    Graphs must be connected, so that the bound on pops does not matter. States repeat (a pop may visit
    nothing new), so mass is moved until less than 1e-12 is on the way.
    """
    n = len(indptr) - 1
    cap = pin_cap or n * n
    starts = list(combinations(range(n), frontier))
    mass = Counter({(start, frozenset(start)): 1 / len(starts) for start in starts})
    law = Counter()
    while sum(mass.values()) > 1e-12:
        after = Counter()
        for (walkers, seen), p in mass.items():
            if len(seen) == budget:
                law[seen] += p
                continue
            weights = [min(max(indptr[v + 1] - indptr[v], 1), cap) for v in walkers]
            for slot, weight in enumerate(weights):
                u = walkers[slot]
                row = indices[indptr[u] : indptr[u + 1]]
                targets = row if len(row) else range(n)
                for v in targets:
                    moved = tuple(sorted((*walkers[:slot], *walkers[slot + 1 :], int(v))))
                    after[moved, seen | {int(v)}] += p * weight / sum(weights) / len(targets)
        mass = after
    return law


def chi_square_p(counts, law):
    """P-value of observed set counts against a law; outcomes expected under 5 times are pooled."""
    total = sum(counts.values())
    assert set(counts) <= set(law), "an impossible outcome was drawn"
    expected = np.array([law[outcome] * total for outcome in law])
    observed = np.array([counts[outcome] for outcome in law])
    rare = expected < 5
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        observed = np.append(observed[~rare], observed[rare].sum())
    keep = expected > 0
    statistic = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    return float(chi2.sf(statistic, keep.sum() - 1))


def homogeneity_p(first, second):
    """P-value that two independent samples of outcomes have one law (two-sample chi-square).

    With N and M draws: Σ (√(M/N)·a - √(N/M)·b)² / (a + b) over the outcomes, a and b their counts; outcomes
    seen fewer than 10 times in all are pooled.
    """
    outcomes = sorted(set(first) | set(second), key=repr)
    a, b = (np.array([sample[outcome] for outcome in outcomes], float) for sample in (first, second))
    rare = a + b < 10
    if rare.any():
        a, b = (np.append(sample[~rare], sample[rare].sum()) for sample in (a, b))
    keep = a + b > 0
    scale = np.sqrt(b.sum() / a.sum())
    statistic = ((scale * a - b / scale)[keep] ** 2 / (a + b)[keep]).sum()
    return float(chi2.sf(statistic, keep.sum() - 1))


def count_sets(sampler, num_draws):
    """How often each node set comes in the first batches."""
    return Counter(frozenset(sampler.draw_nodes(k).tolist()) for k in range(num_draws))
