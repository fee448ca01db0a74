"""Alias tables draw the distribution they were built from."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sampler_laws import SIGNIFICANCE, chi_square_p
from shoal.rng import key
from shoal.sampling.alias import build_alias, draw_alias


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200).filter(lambda w: sum(w) > 1e-3))
def test_a_table_holds_exactly_its_weights(weights):
    threshold, other = build_alias(np.array(weights))
    share = threshold.astype(np.float64).copy()
    np.add.at(share, other, 1 - threshold.astype(np.float64))
    np.testing.assert_allclose(share / len(weights), np.array(weights) / sum(weights), atol=1e-6)


def test_draws_follow_the_weights():
    weights = np.array([1.0, 5, 0, 2, 12])
    table = build_alias(weights)
    stream = np.uint64(key(0, 0))
    counts = Counter(draw_alias(*table, stream, 2 * i) for i in range(20_000))
    law = {i: w for i, w in enumerate(weights / weights.sum()) if w}
    assert chi_square_p(counts, law) > SIGNIFICANCE
