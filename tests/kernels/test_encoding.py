"""Features in fewer bits: what is stored, what comes back, what is lost and said to be."""

import numpy as np
import pytest
import torch

from shoal.errors import ShoalError
from shoal.kernels.encoding import (
    FEATURE_TYPES,
    EncodedRows,
    RowEncoder,
    decode_rows,
    describe_type,
    encode_matrix,
    encode_rows,
)
from shoal.kernels.gather import gather_rows, gather_rows_reference


@pytest.fixture
def x():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((700, 13)) * np.exp(rng.standard_normal((700, 1)))
    rows[5] = 0
    return rows.astype(np.float32)


def expect(x, type):
    """The decoded matrix, by other means."""
    if type == "int8":
        scale = np.abs(x).max(1, keepdims=True) / np.float32(127)
        return np.rint(x / np.where(scale > 0, scale, 1)).astype(np.float32) * scale
    return torch.from_numpy(x).to(getattr(torch, type)).float().numpy()


def encode_all(x, type):
    dtype, width = describe_type(type, x.shape[1])
    codes = np.empty((len(x), width), dtype)
    encode_matrix(x, type, codes)
    return EncodedRows(codes, type)


@pytest.mark.parametrize("type", FEATURE_TYPES)
def test_rows_decode_to_the_nearest_value_of_the_type(x, type):
    encoded = encode_all(x, type)
    assert encoded.shape == x.shape
    np.testing.assert_array_equal(encoded[:], expect(x, type))
    np.testing.assert_array_equal(encoded[3], encoded[:][3])
    np.testing.assert_array_equal(encoded[100:400:7], encoded[:][100:400:7])
    np.testing.assert_array_equal(np.asarray(encoded), encoded[:])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("type", FEATURE_TYPES)
def test_gathering_decodes(x, type, threads):
    encoded = encode_all(x, type)
    rows = np.random.default_rng(1).integers(0, len(x), 600)
    found = gather_rows(encoded, rows, num_threads=threads)
    np.testing.assert_array_equal(found.numpy(), expect(x, type)[rows])
    plain = torch.empty_like(found)
    gather_rows_reference(encoded, rows, plain)
    assert torch.equal(found, plain)
    with pytest.raises(ShoalError, match="row 700 asked for"):
        gather_rows(encoded, np.array([700]))


def test_encoding_in_chunks_is_encoding_at_once(x):
    for type in FEATURE_TYPES:
        chunks = [encode_rows(x[start : start + 97], type) for start in range(0, len(x), 97)]
        np.testing.assert_array_equal(np.concatenate(chunks), encode_rows(x, type))


@pytest.mark.parametrize(("type", "most"), [("float16", 2**-11), ("bfloat16", 2**-8), ("int8", 0.5 / 127)])
def test_the_loss_told_is_the_loss_made(x, type, most):
    encoder = RowEncoder(type)
    codes = np.concatenate([encoder.encode(x[:300]), encoder.encode(x[300:])])
    peak = np.abs(x).max(1, keepdims=True)
    lost = np.abs(decode_rows(codes, type) - x) / np.where(peak > 0, peak, 1)
    assert encoder.largest == lost.max() <= most * 1.001
    assert encoder.mean == pytest.approx(lost.mean(), rel=1e-5)
    said = encoder.describe()
    assert f"{lost.max():.2g}" in said
    assert f"{lost.mean():.2g}" in said
    assert type in said
    assert RowEncoder("float32").describe() is None


def test_values_that_a_type_cannot_hold_are_refused():
    with pytest.raises(ShoalError, match=r"1e\+05 does not fit float16, whose maximum is 65,504"):
        encode_rows(np.full((2, 2), 1e5, np.float32), "float16")
    with pytest.raises(ShoalError, match="does not fit bfloat16"):
        encode_rows(np.full((1, 1), np.finfo(np.float32).max, np.float32), "bfloat16")
    with pytest.raises(ShoalError, match="NaN"):
        encode_rows(np.full((1, 1), np.nan, np.float32), "int8")
    with pytest.raises(ShoalError, match="did you mean 'float16'"):
        RowEncoder("flaot16")


def test_codes_of_another_type_are_refused():
    with pytest.raises(ShoalError, match="features of type bfloat16 came as float16"):
        EncodedRows(np.zeros((3, 2), np.float16), "bfloat16")
