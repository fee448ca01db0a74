"""Codecs of messages between ranks: rows of floats as int8 or int4, by unbiased stochastic rounding."""

from __future__ import annotations

import numpy as np
from numba import prange
from torch import Tensor

from shoal.kernels.jit import kernel, parallel_kernel, worker_threads
from shoal.rng import key, random_u64

_PURPOSE = 0xC0DEC  # keeps these draws apart from others with the same seed
_CHUNK = 64  # rows that a thread takes at a time
_VALUE_WORK = 16  # of one value, in the multiply-adds that threads are counted by
_SCALE_BYTES = 4
_PER_DRAW = 2  # values that share 32 random bits
_GAMMA = np.uint32(0x9E3779B9)  # 2³² divided by the golden ratio
_FIRST, _SECOND = np.uint32(0x7FEB352D), np.uint32(0x846CA68B)
_S15, _S16 = np.uint32(15), np.uint32(16)
_LOW, _S32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_SHIFT = 2.0**24 + 0.5  # makes rounding to the nearest a truncation


class Codec:
    """Integers of `bits` bits with a float32 scale for each row: `x ≈ scale · q`, `scale = max |x| / limit`.

    A value is rounded stochastically to one of its two neighbours. The expectation of the decoded value is the value, to
    2⁻¹⁷ of a step; the error is below one step. A row with an infinite or NaN value, or one beyond float32, becomes NaN as
    a whole. A row takes `row_bytes`: its scale, then its values, two in a byte with 4 bits.
    """

    def __init__(self, name: str, bits: int) -> None:
        self.name, self.bits = name, bits
        self.limit = (1 << bits - 1) - 1

    def row_bytes(self, width: int) -> int:
        """Bytes of an encoded row of `width` values, its scale included."""
        return _SCALE_BYTES + (width * self.bits + 7) // 8

    def encode(self, rows: Tensor, ids: np.ndarray, stream: int, out: Tensor) -> None:
        """Write rows (k, f), float32 or float64, to the bytes `out` (k, row_bytes(f)).

        The rounding of a row depends only on its values, its id and the stream (`make_stream`).
        """
        values = rows.detach().numpy()
        patterns = values.view(np.int64 if values.dtype == np.float64 else np.int32)
        with worker_threads(values.size * _VALUE_WORK) as threads:
            run = _encode_rows if threads == 1 else _encode
            run(values, patterns, ids, np.uint64(stream), self.limit, self.bits == 4, out.numpy())

    def decode(self, coded: Tensor, out: Tensor) -> None:
        """Read bytes (k, row_bytes(f)) back into rows `out` (k, f)."""
        with worker_threads(out.numel() * _VALUE_WORK) as threads:
            run = _decode_rows if threads == 1 else _decode
            run(coded.numpy(), self.bits == 4, out.numpy())


CODECS = {codec.name: codec for codec in (Codec("int8", 8), Codec("int4", 4))}
AS_THEY_ARE, HALVED = "float32", "bfloat16"
MESSAGES = (AS_THEY_ARE, HALVED, *CODECS)


def count_row_bytes(messages: str, width: int, item_bytes: int = 4) -> int:
    """Bytes in a message of a row of `width` values that have `item_bytes` in the model."""
    if messages in CODECS:
        return CODECS[messages].row_bytes(width)
    return width * (2 if messages == HALVED else item_bytes)


def make_stream(seed: int, *numbers: int) -> int:
    """The random stream for the rounding of one exchange, keyed by what identifies the exchange."""
    stream = key(seed, _PURPOSE)
    for number in numbers:
        stream = key(np.uint64(stream), number)
    return int(stream)


@parallel_kernel
def _encode(values, patterns, ids, stream, limit, halved, out):
    for chunk in prange((len(values) + _CHUNK - 1) // _CHUNK):
        rows = slice(chunk * _CHUNK, (chunk + 1) * _CHUNK)
        _encode_rows(values[rows], patterns[rows], ids[rows], stream, limit, halved, out[rows])


@kernel
def _encode_rows(values, patterns, ids, stream, limit, halved, out):
    """q = ⌊x / scale + u⌋, u uniform in 16 bits; in integers, so that the rounding of floats adds no bias."""
    width = values.shape[1]
    draws = np.empty((width + _PER_DRAW - 1) // _PER_DRAW, np.uint32)
    noise = draws.view(np.uint16)
    found = np.empty(1, patterns.dtype)
    largest = found.view(values.dtype)
    scale = np.empty(1, np.float32)
    scale_bytes = scale.view(np.uint8)
    whole = np.zeros(width + 1, np.uint8)
    for i in range(len(values)):
        found[0] = _find_largest(patterns[i])
        factor = _choose_scale(largest[0], limit, scale)
        own = random_u64(stream, ids[i])
        _draw(np.uint32(own & _LOW), np.uint32(own >> _S32), draws)
        _round(values[i], factor, noise, whole)
        for k in range(_SCALE_BYTES):
            out[i, k] = scale_bytes[k]
        if halved:
            for k in range((width + 1) // 2):
                out[i, _SCALE_BYTES + k] = (whole[2 * k] & 15) | (whole[2 * k + 1] << 4)
        else:
            for k in range(width):
                out[i, _SCALE_BYTES + k] = whole[k]


@kernel
def _draw(key, again, draws):
    """Random bits from counters: two rounds of xor and multiplication, the row's 64 bits of key before and between.

    Products of 32 bits vectorise, those of 64 bits that other draws use do not.
    """
    for k in range(len(draws)):
        z = np.uint32(key + np.uint32(np.uint32(k) * _GAMMA))
        z = np.uint32(np.uint32(np.uint32(z ^ (z >> _S16)) * _FIRST) ^ again)
        z = np.uint32(np.uint32(z ^ (z >> _S15)) * _SECOND)
        draws[k] = z ^ (z >> _S16)


@kernel
def _round(values, factor, noise, whole):
    """Round a row. It vectorises, because 2²⁴ is added to keep numbers positive and within 32 bits; the cast to 8 bits drops it."""
    for k in range(len(values)):
        steps = np.uint32(np.int32(values[k] * factor + _SHIFT))  # of 2⁻¹⁶, the nearest
        whole[k] = np.uint8(np.uint32(steps + np.uint32(noise[k])) >> np.uint32(16))


@kernel
def _find_largest(patterns):
    """The bit pattern of the largest magnitude. Magnitudes are ordered as their patterns are, ∞ and NaN above all."""
    mask = np.iinfo(patterns.dtype).max
    largest = patterns.dtype.type(0)
    for k in range(len(patterns)):
        largest = max(largest, patterns[k] & mask)
    return largest


@kernel
def _choose_scale(largest, limit, scale):
    """Set the scale, rounded up so that no value exceeds the limit; returns the factor from values to 2⁻¹⁶ of a step."""
    size = np.float64(largest)
    scale[0] = size / limit
    if np.float64(scale[0]) * limit < size:
        scale[0] = np.nextafter(scale[0], np.float32(np.inf))
    if not np.isfinite(scale[0]):
        scale[0] = np.nan
    return 0.0 if size == 0 else 65536.0 / np.float64(scale[0])


@parallel_kernel
def _decode(coded, halved, out):
    for chunk in prange((len(out) + _CHUNK - 1) // _CHUNK):
        rows = slice(chunk * _CHUNK, (chunk + 1) * _CHUNK)
        _decode_rows(coded[rows], halved, out[rows])


@kernel
def _decode_rows(coded, halved, out):
    width = out.shape[1]
    scale = np.empty(1, np.float32)
    scale_bytes = scale.view(np.uint8)
    for i in range(len(out)):
        for k in range(_SCALE_BYTES):
            scale_bytes[k] = coded[i, k]
        step = scale[0]
        if not halved:
            for k in range(width):
                out[i, k] = step * np.float32(np.int8(coded[i, _SCALE_BYTES + k]))
            continue
        for k in range(width):
            pair = coded[i, _SCALE_BYTES + k // 2]
            value = np.int8(pair if k % 2 else pair << 4) >> 4
            out[i, k] = step * np.float32(value)
