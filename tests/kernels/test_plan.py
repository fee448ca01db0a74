"""The scheduler's decisions: multiplication order, widths of feature parts, what is learnt from timing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.kernels import plan as planning
from shoal.kernels.plan import ProductTimer, cache_bytes, part_width, plan_layer


def test_layer_transforms_first_when_it_narrows_and_aggregates_first_when_it_widens():
    assert plan_layer(1000, 1000, 20_000, 512, 32, True).transform_first
    assert not plan_layer(1000, 1000, 20_000, 32, 512, True).transform_first


def test_input_layer_needs_no_backward_product_when_it_aggregates_first():
    """(A H) W costs nnz·f_in once, A (H W) nnz·f_out twice: the break-even is at f_in = 2 f_out."""
    assert not plan_layer(1000, 1000, 20_000, 190, 100, False).transform_first
    assert plan_layer(1000, 1000, 20_000, 210, 100, False).transform_first
    assert plan_layer(1000, 1000, 20_000, 110, 100, True).transform_first


def test_input_aggregated_once_is_never_transformed_first():
    assert not plan_layer(1000, 1000, 20_000, 5000, 10, False, aggregated_once=True).transform_first


def test_counts_equal_the_products_actually_made():
    n, m, nnz, f_in, f_out = 10, 20, 50, 6, 4
    made = plan_layer(n, m, nnz, f_in, f_out, True)
    assert made.aggregate_first_sparse == 2 * nnz * f_in
    assert made.aggregate_first_dense == 3 * n * f_in * f_out
    assert made.transform_first_sparse == 2 * nnz * f_out
    assert made.transform_first_dense == 3 * m * f_in * f_out
    inference = plan_layer(n, m, nnz, f_in, f_out, False, training=False)
    assert inference.aggregate_first_sparse == nnz * f_in
    assert inference.transform_first_dense == m * f_in * f_out
    assert "A (H W)" in made.explain()


@given(
    n=st.integers(1, 10**6),
    f=st.integers(1, 4096),
    item=st.sampled_from([2, 4, 8]),
    threads=st.integers(1, 64),
    cache=st.sampled_from([2**18, 2**21]),
)
def test_feature_parts_are_whole_cache_lines_and_fit_the_cache(n, f, item, threads, cache):
    width = part_width(n, f, item, threads, cache)
    line = 64 // item
    assert width % line == 0
    wanted = max(threads, item * n * f / cache)  # Qf of theorem 2
    assert width == line or (width - line) * wanted < f  # no wider than Qf parts need, rounded to lines
    assert width == line or item * n * width <= cache  # rounded to lines it still fits


def test_caches_are_found_and_grow_with_their_level():
    assert 2**13 <= cache_bytes(1) <= cache_bytes(2) <= max(cache_bytes(2), cache_bytes(3))


def test_fastest_plan_stays_after_each_was_tried(monkeypatch):
    monkeypatch.setattr(planning, "_choices", {})
    now = 0.0
    monkeypatch.setattr(planning.time, "perf_counter", lambda: now)
    rows = 4 * cache_bytes(2) // 256
    seen = []
    for _ in range(20):
        with ProductTimer(rows, rows, 15 * rows, 64, 4, "auto", 2) as plan:
            now += 1.0 if plan.prefetch else 2.0
        seen.append(plan.prefetch)
    assert set(seen[:12]) == {True, False}
    assert all(seen[12:])
    assert "chose row-parallel with prefetch" in planning.explain_products()[0]


@pytest.mark.parametrize("variant", ["rows", "features"])
def test_a_variant_asked_for_is_used(variant):
    with ProductTimer(1000, 1000, 10**5, 4096, 4, variant, 3) as plan:
        assert plan.variant == variant
        assert plan.num_threads == 3
    assert plan.explain()
