"""Which rows a cache of features keeps: against the optimum, and against plain simulations of each policy."""

import itertools
import math
from collections import OrderedDict

import numpy as np
import pytest
import scipy.sparse as sp

import shoal
from shoal.errors import ShoalError
from shoal.memory import set_memory_budget
from shoal.sampling.feature_cache import FeatureCache, FeatureCaching


def count_misses(trace, num_rows, num_slots, degree=None, **settings):
    """Rows that the cache reads for every batch of a trace; what it hands out is checked on the way."""
    x = np.arange(3 * num_rows, dtype=np.float32).reshape(num_rows, 3)
    indptr = np.concatenate([[0], np.cumsum(np.ones(num_rows, int) if degree is None else degree)])
    cache = FeatureCache(x, num_slots, indptr, **settings)
    coming, misses = enumerate(trace), []
    for _ in trace:
        while cache.num_entered <= cache.window:
            k, rows = next(coming, (None, None))
            if k is None:
                break
            cache.enter(k, rows)
        plan = cache.plan()
        misses.append(len(plan.misses))
        read = x[plan.misses].reshape(-1).view(np.uint8)
        np.testing.assert_array_equal(cache.take(plan, read).numpy(), x[plan.rows])
    return misses


def find_fewest_reads(trace, num_slots):
    """The fewest rows that any policy reads, by trying every set of rows to keep."""
    best = {frozenset(): 0}
    for batch in trace:
        after = {}
        for kept, reads in best.items():
            known = kept | set(batch)
            reads += len(set(batch) - kept)
            for keep in itertools.combinations(sorted(known), min(num_slots, len(known))):
                after[frozenset(keep)] = min(after.get(frozenset(keep), math.inf), reads)
        best = after
    return min(best.values())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("num_slots", [1, 2, 4])
def test_a_window_to_the_end_reads_the_fewest_rows_possible(seed, num_slots):
    rng = np.random.default_rng(seed)
    trace = [np.sort(rng.choice(7, rng.integers(1, 5), replace=False)) for _ in range(9)]
    reads = sum(count_misses(trace, 7, num_slots, window=len(trace)))
    assert reads == find_fewest_reads([row.tolist() for row in trace], num_slots)


def simulate(trace, num_slots, window, degree):
    """The cache in plain words. `held[row]` = (how late it leaves, when it got there)."""
    held, clock, misses = {}, itertools.count(), []

    def next_use(row, k):
        return next((u for u in range(k + 1, min(k + window, len(trace) - 1) + 1) if row in trace[u]), None)

    def rank(row, k):
        following = next_use(row, k)
        if following is None:
            return 0, min(255, int(8 * math.log2(degree[row] + 1)))
        return 1, -following

    for k, batch in enumerate(trace):
        if k + window < len(trace) and window:  # batch k + window becomes known
            for u in range(window + 1) if k == 0 else [k + window]:
                for row in trace[u]:
                    if row in held and held[row][0][0] == 0:
                        held[row] = ((1, -u), next(clock))
        found = [row for row in batch if row in held]
        missed = [row for row in batch if row not in held]
        misses.append(len(missed))
        for row in found:
            held[row] = (rank(row, k), next(clock))
        for row in missed:
            if len(held) == num_slots:
                worst = min(held, key=held.get)
                if rank(row, k) <= held[worst][0]:
                    continue
                del held[worst]
            held[row] = (rank(row, k), next(clock))
    return misses


def make_trace(seed, length=60, num_rows=300, most=40):
    rng = np.random.default_rng(seed)
    degree = rng.zipf(1.6, num_rows).clip(1, 5000)
    chances = degree / degree.sum()
    sizes = rng.integers(5, most, length)
    return [np.sort(rng.choice(num_rows, size, replace=False, p=chances)) for size in sizes], degree


@pytest.mark.parametrize("window", [0, 1, 5, 30])
@pytest.mark.parametrize("num_slots", [1, 25, 80])
def test_reads_are_those_of_a_plain_simulation(num_slots, window):
    trace, degree = make_trace(window)
    found = count_misses(trace, 300, num_slots, degree, window=window)
    assert found == simulate([row.tolist() for row in trace], num_slots, window, degree)


@pytest.mark.parametrize("num_slots", [3, 25, 80])
def test_lru_reads_are_those_of_a_plain_simulation(num_slots):
    trace, degree = make_trace(9)
    held, expected = OrderedDict(), []
    for batch in trace:
        missed = [row for row in batch if row not in held]
        expected.append(len(missed))
        for row in batch:
            if row in held:
                held.move_to_end(row)
        for row in missed:
            if len(held) == num_slots:
                held.popitem(last=False)
            held[row] = None
    assert count_misses(trace, 300, num_slots, degree, window=0, recent=True) == expected


def test_batches_that_grow_are_followed_as_before():
    """What is known of the window outlives its move to a larger ring."""
    rng = np.random.default_rng(3)
    degree = np.ones(40_000, int)
    sizes = [5] * 10 + [30_000] * 3 + [10] * 8 + [35_000] * 2
    trace = [np.sort(rng.choice(40_000, size, replace=False)) for size in sizes]
    found = count_misses(trace, 40_000, 9_000, degree, window=6)
    whole = [set(row.tolist()) for row in trace]
    assert sum(found) < sum(sizes)
    assert found[10:13] == simulate_sets(trace, whole, 9_000)[10:13]


def simulate_sets(trace, whole, num_slots):
    """`simulate` for equal degrees and few batches, where only how many are kept by next use counts."""
    held, misses = set(), []
    for k in range(len(trace)):
        misses.append(len(whole[k] - held))
        uses = {}
        for u in range(min(k + 6, len(trace) - 1), k, -1):
            uses |= dict.fromkeys(trace[u].tolist(), u)
        known = sorted(held | whole[k], key=lambda row: (uses.get(row, 99), row not in held))
        held = set(known[:num_slots])
    return misses


def test_no_slots_read_everything():
    trace, degree = make_trace(1, length=5)
    assert count_misses(trace, 300, 0, degree, window=3) == [len(rows) for rows in trace]


def test_batches_out_of_order_are_refused():
    cache = FeatureCache(np.zeros((4, 1), np.float32), 2, np.arange(5), window=2)
    cache.enter(7, np.array([1]))
    with pytest.raises(ShoalError, match="batch 9 was entered out of order: expected 8"):
        cache.enter(9, np.array([1]))


# -- when there is a cache ---------------------------------------------------------------------------------


@pytest.fixture
def graph(tmp_path):
    made = shoal.load("kronecker", scale=10, degree=8, seed=1)
    return shoal.open_graph(shoal.save_graph(made, tmp_path / "graph"))


@pytest.fixture
def budget():
    yield set_memory_budget
    set_memory_budget(None)


def test_features_that_fit_the_room_are_left_mapped(graph, budget):
    caching = FeatureCaching()
    caching.room = 3 * graph.x.nbytes // 2
    assert caching.make_cache(graph) is None
    assert caching.count_bytes(graph, caching.room) == 0
    budget(1)
    assert FeatureCaching().make_cache(graph).num_slots == 0  # half of what is left
    caching.room = graph.x.nbytes // 2
    cache = caching.make_cache(graph)
    row = graph.x.nbytes // graph.num_nodes
    held = (
        cache.num_slots * (row + 16) + 8 * graph.num_nodes
    )  # slots, their links, what is known of every row
    assert graph.x.nbytes // 2 - row - 16 <= held <= graph.x.nbytes // 2
    assert caching.count_bytes(graph, caching.room) == held


def test_a_share_of_rows_is_cached_whatever_the_budget(graph):
    assert FeatureCaching(cache=0.25).make_cache(graph).num_slots == 256
    assert FeatureCaching(cache=0.25, policy="mapped").make_cache(graph) is None


def test_only_dense_features_in_a_file_are_cached(graph):
    caching = FeatureCaching(cache=0.5)
    assert caching.make_cache(graph._copy(x=np.array(graph.x))) is None
    assert caching.make_cache(graph._copy(x=sp.csr_array(graph.x))) is None
    assert caching.make_cache(graph._copy(x=graph.x[:])) is None  # a slice of a map, whose place nobody knows
    assert caching.make_cache(graph._copy(x=None)) is None
    with pytest.raises(ShoalError, match="did you mean 'lookahead'"):
        FeatureCaching(policy="lookahaed")
