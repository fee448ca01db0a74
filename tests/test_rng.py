"""The counter-based generator: uniform, independent between counters and streams, the same on every machine.

Statistical tests reject at significance 1e-6; with fixed seeds they either always pass or always fail.
"""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shoal import rng

SIGNIFICANCE = 1e-6
U64 = st.integers(0, 2**64 - 1)


@numba.njit
def draw(seed, stream, count):
    numbers = np.empty(count, np.uint64)
    k = rng.key(seed, stream)
    for i in range(count):
        numbers[i] = rng.random_u64(k, i)
    return numbers


@numba.njit
def draw_first(seed, num_streams):
    numbers = np.empty(num_streams, np.uint64)
    for s in range(num_streams):
        numbers[s] = rng.random_u64(rng.key(seed, s), 0)
    return numbers


@numba.njit
def draw_below(seed, n, count):
    numbers = np.empty(count, np.int64)
    k = rng.key(seed, 0)
    for i in range(count):
        numbers[i] = rng.below(rng.random_u64(k, i), n)
    return numbers


@numba.njit
def draw_normals(seed, count):
    numbers = np.empty((count, 2))
    k = rng.key(seed, 0)
    for i in range(count):
        numbers[i, 0], numbers[i, 1] = rng.normal_pair(rng.random_u64(k, i))
    return numbers


def assert_uniform(counts):
    assert stats.chisquare(counts).pvalue > SIGNIFICANCE


def python_random(seed, stream, counter):
    """The documented formula in Python's whole numbers."""
    mask, gamma = 2**64 - 1, 0x9E3779B97F4A7C15
    first, second = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

    def mix(z, between=0):
        z = ((z ^ z >> 30) * first & mask) ^ between
        z = (z ^ z >> 27) * second & mask
        return z ^ z >> 31

    k = mix((mix((seed + gamma) & mask) + gamma * (stream + 1)) & mask)
    return mix((k + gamma * counter) & mask, between=k)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.integers(0, 2**62))
def test_numbers_follow_the_documented_formula(seed, stream, counter):
    assert int(rng.random_u64(np.uint64(rng.key(seed, stream)), counter)) == python_random(
        seed, stream, counter
    )


def test_mix64_is_the_splitmix64_finaliser():
    # The first output of splitmix64 with state 0, as published with the generator.
    assert int(rng.mix64(np.uint64(0x9E3779B97F4A7C15))) == 0xE220A8397B1DCDAF


@pytest.mark.parametrize("shift", [0, 20, 40, 56])
@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_every_byte_is_uniform(seed, shift):
    assert_uniform(np.bincount((draw(seed, 3, 100_000) >> np.uint64(shift)).astype(np.int64) & 255))


def test_streams_are_uniform_across_their_first_numbers():
    assert_uniform(np.bincount((draw_first(0, 100_000) >> np.uint64(56)).astype(np.int64)))


def test_every_bit_is_set_half_of_the_time():
    numbers, count = draw(5, 0, 100_000), 100_000
    for bit in range(64):
        ones = int(((numbers >> np.uint64(bit)) & np.uint64(1)).sum())
        assert stats.binomtest(ones, count).pvalue > SIGNIFICANCE / 64


@pytest.mark.parametrize("lag", [1, 2, 5])
def test_numbers_at_neighbouring_counters_are_independent(lag):
    top = (draw(7, 1, 200_000) >> np.uint64(60)).astype(np.int64)
    assert_uniform(np.bincount(top[:-lag:2] * 16 + top[lag::2][: len(top[:-lag:2])], minlength=256))


@pytest.mark.parametrize(("a", "b"), [((0, 0), (0, 1)), ((0, 0), (1, 0)), ((0, 1), (1, 0)), ((3, 9), (4, 8))])
def test_neighbouring_streams_and_seeds_are_independent(a, b):
    one, two = ((draw(*each, 100_000) >> np.uint64(60)).astype(np.int64) for each in (a, b))
    assert_uniform(np.bincount(one * 16 + two, minlength=256))


def test_streams_do_not_repeat_each_others_numbers():
    numbers = np.concatenate([draw(0, stream, 20_000) for stream in range(20)])
    assert len(np.unique(numbers)) == len(numbers)


@settings(max_examples=200, deadline=None)
@given(U64, st.integers(1, 2**63 - 1))
def test_below_is_the_upper_half_of_the_exact_product(bits, n):
    assert rng.below(np.uint64(bits), np.uint64(n)) == bits * n >> 64


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000])
def test_below_is_uniform(n):
    counts = np.bincount(draw_below(11, n, 100_000), minlength=n)
    assert len(counts) == n
    assert n == 1 or stats.chisquare(counts).pvalue > SIGNIFICANCE


def test_uniform_reaches_zero_but_never_one():
    assert rng.uniform(np.uint64(0)) == 0.0
    assert rng.uniform(np.uint64(2**64 - 1)) == 1 - 2.0**-53


def test_normal_pairs_are_standard_normal_and_uncorrelated():
    pairs = draw_normals(2, 50_000)
    assert stats.kstest(pairs[:, 0], "norm").pvalue > SIGNIFICANCE
    assert stats.kstest(pairs[:, 1], "norm").pvalue > SIGNIFICANCE
    assert stats.pearsonr(pairs[:, 0], pairs[:, 1]).pvalue > SIGNIFICANCE


def test_every_permutation_of_four_is_equally_likely():
    counts: dict[bytes, int] = {}
    for stream in range(12_000):
        order = rng.permute(4, 0, stream).tobytes()
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    assert_uniform(list(counts.values()))
