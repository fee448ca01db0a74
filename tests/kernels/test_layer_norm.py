"""ReLU, layer norm and dropout in one pass, against plain torch."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.fused import drop_entries, dropout, dropout_reference
from shoal.kernels.layer_norm import (
    _differentiate_row,
    _normalize_row,
    relu_norm_dropout,
    relu_norm_dropout_reference,
)
from shoal.models.neighbourhood import take_rows


def make_inputs(n: int, f: int, seed: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(n, f), (f,), (f,), (f,)]
    return [torch.randn(s, generator=generator, dtype=dtype).requires_grad_() for s in shapes]


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 200),
    f=st.integers(1, 70),
    rate=st.sampled_from([0.0, 0.3, 0.9]),
    seed=st.integers(0, 99),
    ids=st.booleans(),
    cut=st.floats(0, 1),
)
def test_values_and_gradients_are_those_of_plain_torch(n, f, rate, seed, ids, cut):
    first = int(cut * f)
    widths = [first, f - first] if 0 < first < f else None
    inputs = make_inputs(n, f, seed)
    n_id = torch.randperm(10 * n + 1)[:n] if ids else None
    found = relu_norm_dropout(*inputs, rate, seed, n_id, widths=widths)
    expected = relu_norm_dropout_reference(*inputs, rate, seed, n_id, widths=widths)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, inputs, grad), torch.autograd.grad(expected, inputs, grad)
    )


def test_gradcheck():
    inputs = make_inputs(7, 5, 3)
    assert torch.autograd.gradcheck(lambda *parts: relu_norm_dropout(*parts, 0.3, 11), inputs)


def test_float32_is_close_and_a_row_of_zeros_is_finite():
    inputs = make_inputs(300, 129, 1, torch.float32)
    with torch.no_grad():
        inputs[0][5] = -100.0
    found = relu_norm_dropout(*inputs, 0.1, 4)
    torch.testing.assert_close(found, relu_norm_dropout_reference(*inputs, 0.1, 4), rtol=1e-4, atol=1e-5)
    found.sum().backward()
    assert torch.isfinite(inputs[0].grad).all()


def test_the_threads_change_nothing():
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            inputs = make_inputs(3000, 64, 2, torch.float32)
            out = relu_norm_dropout(*inputs, 0.2, 9)
            results.append([out.detach(), *torch.autograd.grad(out.square().sum(), inputs)])
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results):
        assert torch.equal(one, two)


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_dropout_alone_has_the_same_mask_forward_and_backward(rate):
    h = torch.randn(130, 33, dtype=torch.float64, requires_grad=True)
    n_id = torch.randperm(1000)[:130]
    found, expected = dropout(h, rate, 5, n_id), dropout_reference(h, rate, 5, n_id)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(h)
    torch.testing.assert_close(torch.autograd.grad(found, h, grad), torch.autograd.grad(expected, h, grad))


def test_sparse_features_lose_what_dense_ones_lose():
    x = torch.rand(40, 23) * (torch.rand(40, 23) < 0.2)
    n_id = torch.randperm(500)[:40]
    features = Adjacency.from_scipy(sp.csr_array(x.numpy()))
    sparse = drop_entries(features, 0.4, 7, n_id)
    torch.testing.assert_close(sparse.to_torch().to_dense(), dropout(x, 0.4, 7, n_id))
    assert sparse.transpose().indices is drop_entries(features, 0.4, 8, n_id).transpose().indices  # made once
    assert take_rows(features, 0, 9) is take_rows(features, 0, 9)


def test_parts_that_do_not_fill_the_row_are_refused():
    with pytest.raises(ShoalError, match="sum to 4: expected 5, the number of columns"):
        relu_norm_dropout(*make_inputs(3, 5, 0), 0.0, 0, widths=[2, 2])


@pytest.mark.parametrize("width", [16, 33, 128])
def test_a_row_does_not_depend_on_where_its_arrays_lie(width):
    """LLVM checks at run time how close arrays lie, and must not choose another order of a sum by that."""
    generator = np.random.default_rng(3)
    given = generator.normal(size=(5, width)).astype(np.float32)  # h, bias, scale, shift and a gradient
    scalars = (np.float32(1.5), np.uint32(0), np.uint64(1), np.uint64(2), 0)
    outcomes = set()
    for gap in (0, 1, 4, 16, 64, 1024):
        room = np.zeros(9 * (width + gap), np.float32)
        h, bias, scale, shift, grad, out, *sums = (
            room[i * (width + gap) : i * (width + gap) + width] for i in range(9)
        )
        h[:], bias[:], scale[:], shift[:], grad[:] = given
        mean, inverse = _normalize_row(h, bias, scale, shift, *scalars, np.float32(1e-5), out)
        forward = out.tobytes()
        _differentiate_row(h, bias, scale, *scalars, mean, inverse, grad, out, *sums)
        outcomes.add((forward, out.tobytes(), *(one.tobytes() for one in sums)))
    assert len(outcomes) == 1
