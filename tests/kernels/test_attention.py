"""Fused attention against plain torch, its gradients by gradcheck."""

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
from shoal.kernels.attention import gat_attention, gat_attention_reference

plain = adjacencies(weighted=False, scaled=False)


def inputs(adj, heads, f, dtype):
    shapes = ((adj.num_columns, heads, f), (adj.num_rows, heads), (adj.num_columns, heads))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


@settings(max_examples=50, deadline=None)
@given(adj=plain, heads=st.integers(1, 9), f=st.integers(1, 70))
def test_result_and_gradients_equal_reference(adj, heads, f):
    given_ = inputs(adj, heads, f, torch.float32)
    ours, theirs = gat_attention(adj, *given_), gat_attention_reference(adj, *given_)
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    g = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, given_, g), torch.autograd.grad(theirs, given_, g), strict=True
    ):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_column_of_scale_three_counts_as_three_of_them():
    heads, f = 2, 5
    pattern = sp.csr_array(np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]]))
    adj = Adjacency.from_scipy(pattern)
    adj.column_scale, adj.values = torch.tensor([1.0, 3.0, 1.0]), None
    copied = np.array([0, 1, 1, 1, 2])
    repeated = Adjacency.from_scipy(sp.csr_array(pattern.toarray()[:, copied]))
    repeated.values = None
    z, dst, src = inputs(adj, heads, f, torch.float64)
    wanted = gat_attention(repeated, z[copied], dst, src[copied])
    g = torch.randn_like(wanted)
    grads = torch.autograd.grad(wanted, (z, dst, src), g)
    for attend in (gat_attention, gat_attention_reference):
        found = attend(adj, z, dst, src)
        assert torch.allclose(found, wanted)
        for a, b in zip(torch.autograd.grad(found, (z, dst, src), g), grads, strict=True):
            assert torch.allclose(a, b)


@settings(max_examples=10, deadline=None)
@given(adj=plain)
def test_gradients_pass_gradcheck(adj):
    assert gradcheck(lambda *given_: gat_attention(adj, *given_), inputs(adj, 2, 3, torch.float64))


@settings(max_examples=10, deadline=None)
@given(adj=plain, seed=st.integers(0, 99))
def test_rows_without_entries_keep_what_they_are_put_onto(adj, seed):
    """Two operators that share out the rows give what one gives, and pass gradcheck, also over a result of others."""
    given_ = inputs(adj, 2, 3, torch.float64)
    chosen = np.random.default_rng(seed).random(adj.num_rows) < 0.5
    halves = (drop_rows(adj, chosen), drop_rows(adj, ~chosen))

    def by_halves(*given_):
        return gat_attention(halves[1], *given_, onto=gat_attention(halves[0], *given_))

    assert torch.equal(by_halves(*given_), gat_attention(adj, *given_))
    assert gradcheck(by_halves, given_)
    onto = torch.randn(adj.num_rows, 2, 3, dtype=torch.float64, requires_grad=True)
    for attend in (gat_attention, gat_attention_reference):
        assert gradcheck(lambda z, a, b, c, f=attend: f(halves[0], z, a, b, onto=c.clone()), (*given_, onto))


def drop_rows(adj, dropped):
    rows = np.repeat(~dropped, adj.indptr.diff().numpy())
    counts = np.where(dropped, 0, adj.indptr.diff().numpy())
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
    return Adjacency(indptr, adj.indices[torch.from_numpy(rows)], adj.num_columns)


def test_large_scores_do_not_overflow():
    adj = Adjacency.from_scipy(sp.csr_array(np.ones((2, 3))))
    source = torch.tensor([[1e4], [-1e4], [1e4]])
    out = gat_attention(adj, torch.tensor([[[1.0]], [[2.0]], [[4.0]]]), torch.zeros(2, 1), source)
    assert torch.allclose(out, torch.full((2, 1, 1), 2.5))


def test_rows_without_entries_give_zeros():
    adj = Adjacency.from_scipy(sp.csr_array((2, 3)))
    given_ = inputs(adj, 2, 4, torch.float32)
    assert torch.equal(gat_attention(adj, *given_), torch.zeros(2, 2, 4))


def test_wrong_shapes_are_refused():
    adj = Adjacency.from_scipy(sp.eye_array(3))
    with pytest.raises(ShoalError, match="expected"):
        gat_attention(adj, torch.ones(3, 2, 4), torch.ones(3, 1), torch.ones(3, 2))
