"""Bias + ReLU + dropout in one pass, its mask, the fused optimizer and the SAGE product."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from random_adjacencies import adjacencies
from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.fused import (
    bias_relu_dropout,
    bias_relu_dropout_reference,
    keep_mask_reference,
    mix_key,
)
from shoal.kernels.sage import sage_linear, sage_linear_reference


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 200),
    f=st.integers(1, 70),
    rate=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    key=st.integers(0, 2**64 - 1),
    biased=st.booleans(),
)
def test_one_pass_equals_reference_with_the_same_mask(n, f, rate, key, biased):
    n_id = torch.randint(0, 2**40, (n,))
    h, bias = torch.randn(n, f, requires_grad=True), torch.randn(f, requires_grad=True) if biased else None
    ours = bias_relu_dropout(h, bias, rate, key, n_id)
    theirs = bias_relu_dropout_reference(h, bias, rate, key, n_id)
    assert torch.equal(ours > 0, theirs > 0)
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    wanted = [h, bias] if biased else [h]
    g = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, wanted, g), torch.autograd.grad(theirs, wanted, g), strict=True
    ):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-4)


def test_gradients_pass_gradcheck():
    h = torch.randn(6, 9, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(9, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda h, b: bias_relu_dropout(h, b, 0.3, 7), (h, bias))


def test_in_place_overwrites_h_and_keeps_the_gradient():
    x, weight = torch.randn(50, 8), torch.randn(8, 20, requires_grad=True)
    results = []
    for inplace in (False, True):
        h = x @ weight
        out = bias_relu_dropout(h, None, 0.4, 3, inplace=inplace)
        assert (out.data_ptr() == h.data_ptr()) == inplace
        results.append(torch.autograd.grad(out.square().sum(), weight)[0])
    assert torch.equal(*results)


def test_mask_does_not_depend_on_threads_or_on_the_order_of_nodes():
    n_id = torch.randperm(5000)
    h = torch.ones(5000, 33)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = bias_relu_dropout(h, None, 0.5, 1, n_id)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, bias_relu_dropout(h, None, 0.5, 1, n_id))
    assert torch.equal(one, bias_relu_dropout(h, None, 0.5, 1)[n_id])


def test_mask_keeps_at_the_stated_rate_and_neighbours_are_independent():
    """Each statistic is a mean of about a million draws: within 5 standard errors but for one time in 2 million."""
    rate, n, f = 0.3, 4000, 256
    kept = keep_mask_reference(mix_key(0, 5, 1), torch.arange(n)[:, None], torch.arange(f), rate).double()
    following = keep_mask_reference(
        mix_key(0, 6, 1), torch.arange(n)[:, None], torch.arange(f), rate
    ).double()
    variance = rate * (1 - rate)
    assert abs(kept.mean() - (1 - rate)) < 5 * math.sqrt(variance / (n * f))
    centred = kept - (1 - rate)
    pairs = {
        "columns": centred[:, 1:] * centred[:, :-1],
        "distant columns": centred[:, 64:] * centred[:, :-64],
        "nodes": centred[1:] * centred[:-1],
        "distant nodes": centred[1024:] * centred[:-1024],
        "steps": centred * (following - (1 - rate)),
    }
    for name, products in pairs.items():
        assert abs(products.mean()) < 5 * variance / math.sqrt(products.numel()), name
    # Per column and per node the counts are binomial: their chi-square is normal for this many.
    for axis, count in ((0, n), (1, f)):
        chi = ((kept.sum(axis) - count * (1 - rate)) ** 2 / (count * variance)).sum()
        degrees = kept.shape[1 - axis]
        assert abs(chi - degrees) < 5 * math.sqrt(2 * degrees)


def test_keys_differ_for_every_seed_step_and_layer():
    keys = {mix_key(a, b, c) for a in range(12) for b in range(12) for c in range(12)}
    assert len(keys) == 12**3
    assert all(0 <= key < 2**64 for key in keys)


def test_wrong_rates_and_ids_are_refused():
    with pytest.raises(ShoalError, match="expected 0 ≤ rate < 1"):
        bias_relu_dropout(torch.ones(2, 2), None, 1.0, 0)
    with pytest.raises(ShoalError, match="one id per row"):
        bias_relu_dropout(torch.ones(2, 2), None, 0.5, 0, torch.arange(3))


@settings(max_examples=8, deadline=None)
@given(adj=adjacencies(), transform_first=st.booleans(), num_neighbor=st.integers(0, 5))
def test_sage_linear_equals_concatenation_and_passes_gradcheck(adj, transform_first, num_neighbor):
    if adj.num_rows > adj.num_columns:
        adj = adj.transpose()
    h = torch.randn(adj.num_columns, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    ours = sage_linear(adj, h, weight, num_neighbor, transform_first)
    assert torch.allclose(ours, sage_linear_reference(adj, h, weight, num_neighbor))
    assert gradcheck(lambda h, w: sage_linear(adj, h, w, num_neighbor, transform_first), (h, weight))


def test_nan_is_not_hidden_by_relu():
    h = torch.tensor([[torch.nan, 1.0, -1.0]], requires_grad=True)
    out = bias_relu_dropout(h, None, 0.0, 1)
    assert torch.equal(out.isnan(), bias_relu_dropout_reference(h, None, 0.0, 1).isnan())
    out.sum().backward()
    assert torch.equal(h.grad[0, 1:], torch.tensor([1.0, 0.0]))


def test_sage_linear_takes_column_major_features():
    adj = Adjacency.from_edge_index(torch.tensor([[0, 1, 4], [1, 2, 0]]), 5)
    h = torch.randn(3, 5).t().requires_grad_()
    weight = torch.randn(3, 4, requires_grad=True)
    found = torch.autograd.grad(sage_linear(adj, h, weight, 2).square().sum(), [h, weight])
    expected = torch.autograd.grad(sage_linear_reference(adj, h, weight, 2).square().sum(), [h, weight])
    torch.testing.assert_close(found, expected)
