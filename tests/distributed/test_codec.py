"""int8 and int4 messages: unbiased, repeatable, within their bounds, and never hiding what is not a number."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shoal.distributed.codec import CODECS, MESSAGES, Codec, count_row_bytes, make_stream

both = pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))


def send(codec: Codec, rows: torch.Tensor, ids: np.ndarray | None = None, stream: int = 1) -> torch.Tensor:
    """The rows as the receiver has them."""
    coded = torch.full((len(rows), codec.row_bytes(rows.shape[1])), 255, dtype=torch.uint8)
    codec.encode(rows, np.arange(len(rows)) if ids is None else ids, stream, coded)
    out = torch.full_like(rows, 1e9)
    codec.decode(coded, out)
    return out


def steps(codec: Codec, rows: torch.Tensor) -> torch.Tensor:
    """The distance between neighbours of every row."""
    return rows.abs().amax(1, keepdim=True).double() / codec.limit


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [*range(1, 34), 257])
def test_values_come_within_a_step_and_the_largest_one_exactly(codec, dtype, width):
    rows = torch.randn(131, width, generator=torch.Generator().manual_seed(width), dtype=dtype)
    rows *= torch.logspace(-30, 30, 131, dtype=dtype)[:, None]
    out = send(codec, rows)
    assert ((out - rows).abs() <= steps(codec, rows) * (1 + 1e-6)).all()
    at = rows.abs().argmax(1, keepdim=True)
    torch.testing.assert_close(out.gather(1, at), rows.gather(1, at), rtol=1e-6, atol=0)


@both
def test_the_expectation_is_the_value(codec):
    """200,000 rounds of 40 values each: the means differ by less than five deviations, which biases of 1 % of a step do not."""
    value = torch.linspace(-1, 1, 40)
    rounds = 200_000
    out = send(codec, value.expand(rounds, 40).contiguous()).double()
    step = float(steps(codec, value[None]))
    share = (value.double() / step) % 1
    deviation = (share * (1 - share)).sqrt() * step / rounds**0.5
    off = (out.mean(0) - value.double()).abs()
    assert (off <= 5 * deviation + step * 2**-16).all()
    assert (deviation < 0.002 * step).all()


@both
def test_roundings_of_one_row_are_independent(codec):
    """Neighbours share a draw of 64 bits: their errors must not be correlated, nor those of consecutive rows."""
    rounds = 100_000
    rows = torch.full((rounds, 12), 0.0)
    rows[:, 1:] = 0.4 / codec.limit
    rows[:, 0] = 1
    errors = (send(codec, rows) - rows)[:, 1:].double()
    found = torch.corrcoef(torch.cat([errors.T, errors.roll(1, 0).T])) - torch.eye(22)
    assert found.abs().max() < 5.5 / rounds**0.5


@both
def test_roundings_depend_on_the_row_and_the_stream_only(codec):
    rows = torch.randn(300, 33, generator=torch.Generator().manual_seed(0))
    ids = np.arange(300) * 977 - 1000  # those of sums are below 0
    once = send(codec, rows, ids)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    assert torch.equal(send(codec, rows[order], ids[order.numpy()]), once[order])
    assert torch.equal(send(codec, rows[7:8].clone(), ids[7:8]), once[7:8])
    assert not torch.equal(send(codec, rows, ids + 1), once)
    assert not torch.equal(send(codec, rows, ids, stream=2), once)


@both
def test_threads_do_not_change_roundings(codec):
    rows = torch.randn(5000, 64, generator=torch.Generator().manual_seed(0))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = send(codec, rows)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(send(codec, rows), alone)


@both
def test_rows_of_zeros_and_no_rows_stay_what_they_are(codec):
    assert torch.equal(send(codec, torch.zeros(3, 7)), torch.zeros(3, 7))
    assert send(codec, torch.zeros(0, 7)).shape == (0, 7)
    constant = torch.full((2, 9), -2.54)
    torch.testing.assert_close(send(codec, constant), constant)


@both
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_makes_its_row_nan_and_no_other(codec, odd):
    rows = torch.randn(5, 6)
    rows[2, 3] = odd
    out = send(codec, rows)
    assert out[2].isnan().all()
    assert out[[0, 1, 3, 4]].isfinite().all()
    assert send(codec, torch.tensor([[1e300, 1.0]], dtype=torch.float64)).isnan().all()


@both
def test_tiny_rows_keep_their_scale(codec):
    rows = torch.tensor([[1e-44, -1e-44, 0.0], [3e-38, 1e-38, -2e-38]])
    assert ((send(codec, rows) - rows).abs() <= steps(codec, rows) + 2e-45).all()


def test_a_stream_is_told_by_each_of_its_numbers():
    found = {make_stream(seed, a, b) for seed in range(3) for a in range(5) for b in range(5)}
    assert len(found) == 75
    assert make_stream(0, 1, 2) == make_stream(0, 1, 2)


def test_bytes_of_a_row():
    wanted = {"float32": 132, "bfloat16": 66, "int8": 37, "int4": 21}
    assert {name: count_row_bytes(name, 33) for name in MESSAGES} == wanted
