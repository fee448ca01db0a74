"""The sparse product: every variant, width, index type and storage against the plain reference."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from random_adjacencies import adjacencies
from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.spmm import multiply, spmm, spmm_reference

widths = st.one_of(st.integers(1, 140), st.sampled_from([255, 256, 513, 1000]))
quick = settings(max_examples=40, deadline=None)


@quick
@given(adj=adjacencies(), f=widths)
def test_product_equals_reference(adj, f):
    h = torch.randn(adj.num_columns, f)
    assert torch.allclose(spmm(adj, h), spmm_reference(adj, h), rtol=1e-5, atol=1e-5)


@quick
@given(adj=adjacencies(weighted=True, scaled=True), f=widths)
def test_features_variant_equals_rows_variant_to_the_bit(adj, f):
    h = torch.randn(adj.num_columns, f)
    assert torch.equal(spmm(adj, h, "features"), spmm(adj, h, "rows"))


@settings(max_examples=8, deadline=None)
@given(adj=adjacencies(), f=st.sampled_from([1, 3]))
def test_gradient_passes_gradcheck(adj, f):
    h = torch.randn(adj.num_columns, f, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda h: spmm(adj, h, "rows"), (h,))


@quick
@given(adj=adjacencies(weighted=True, scaled=True, index_dtype=torch.int64), f=widths)
def test_int64_indices(adj, f):
    h = torch.randn(adj.num_columns, f)
    assert torch.allclose(spmm(adj, h, "rows"), spmm_reference(adj, h), rtol=1e-5, atol=1e-5)


@quick
@given(adj=adjacencies(weighted=True, scaled=True), f=widths)
def test_bfloat16_storage_is_summed_in_float32(adj, f):
    h = torch.randn(adj.num_columns, f).bfloat16()
    single = spmm(adj, h, "rows", out_dtype=torch.float32)
    assert torch.allclose(single, spmm_reference(adj, h.float()), rtol=1e-5, atol=1e-5)
    assert torch.equal(spmm(adj, h, "rows"), single.bfloat16())


@quick
@given(adj=adjacencies(), f=widths)
def test_accumulating_into_a_column_slice_leaves_the_rest_alone(adj, f):
    h = torch.randn(adj.num_columns, f + 5)[:, 2 : 2 + f]
    wide = torch.ones(adj.num_rows, f + 4)
    multiply(adj, h, wide[:, 1 : 1 + f], accumulate=True, variant="rows")
    expected = torch.ones_like(wide)
    expected[:, 1 : 1 + f] += spmm_reference(adj, h)
    assert torch.allclose(wide, expected, rtol=1e-5, atol=1e-5)


def test_transposed_and_strided_inputs():
    adj = Adjacency.from_scipy(sp.random_array((20, 30), density=0.2, rng=np.random.default_rng(0)))
    for h in (torch.randn(17, 30).t(), torch.randn(60, 17)[::2], torch.randn(30, 34)[:, ::2]):
        assert torch.allclose(spmm(adj, h), spmm_reference(adj, h), atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_matrices_without_rows_or_columns(shape):
    adj = Adjacency.from_scipy(sp.csr_array(shape))
    assert torch.equal(spmm(adj, torch.ones(shape[1], 4)), torch.zeros(shape[0], 4))
    assert spmm(adj, torch.ones(shape[1], 0)).shape == (shape[0], 0)


def test_result_does_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    adj = Adjacency.from_scipy(sp.random_array((3000, 3000), density=0.01, rng=rng))
    h = torch.randn(3000, 130)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(spmm(adj, h, "rows"))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_bag_of_words_product_and_weight_gradient_equal_torch():
    rng = np.random.default_rng(0)
    words = sp.random_array((2000, 1400), density=0.02, rng=rng, dtype=np.float32)
    x = Adjacency.from_scipy(words)
    weight = torch.randn(1400, 48, requires_grad=True)
    g = torch.randn(2000, 48)
    product = spmm(x, weight)
    (gradient,) = torch.autograd.grad(product, weight, g)
    dense = torch.from_numpy(words.toarray())
    assert torch.allclose(product, dense @ weight, atol=1e-4)
    assert torch.allclose(gradient, dense.t() @ g, atol=1e-4)


def test_wrong_shapes_and_unknown_variants_are_refused():
    adj = Adjacency.from_scipy(sp.eye_array(3))
    with pytest.raises(ShoalError, match=r"expected \(3, f\)"):
        spmm(adj, torch.ones(4, 2))
    with pytest.raises(ShoalError, match="did you mean 'rows'"):
        spmm(adj, torch.ones(3, 2), "row")
    with pytest.raises(ShoalError, match="contiguous rows"):
        multiply(adj, torch.ones(3, 2), torch.empty(3, 3))
    with pytest.raises(ShoalError, match="give out="):
        multiply(adj, torch.ones(3, 2), accumulate=True)
