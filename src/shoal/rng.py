"""The counter-based random generator: a number is a pure function of (seed, stream, counter).

Nothing is carried from one draw to the next, so draws may be made in any order, in chunks and on any number
of threads, and come out the same. With γ = 0x9E3779B97F4A7C15 (2⁶⁴ divided by the golden ratio, odd):

    mix(z)               z ← (z ⊕ z≫30)·0xBF58476D1CE4E5B9;  z ← (z ⊕ z≫27)·0x94D049BB133111EB;  z ⊕ z≫31
    key(seed, stream)    mix(mix(seed + γ) + γ·(stream + 1))
    random(key, i)       mix as above of z = key + γ·i, with ⊕ key between its two multiplications

`mix` is the finaliser of splitmix64, so a key's numbers are a permutation of splitmix64's. The key enters a
second time because key + γ·i alone makes every stream a window of one long sequence: two windows that overlap
would agree from there on. All arithmetic is modulo 2⁶⁴ on uint64 (Numba turns int64 + uint64 into a float:
hence the casts). Every function here is meant to be called from kernels, which inline it.
"""

import math

import numpy as np

from shoal.kernels.csr import index_dtype
from shoal.kernels.jit import kernel

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_S11 = np.uint64(11)
_ONE = np.uint64(1)
_TO_UNIT = 2.0**-53


@kernel
def mix64(x):
    """Scramble 64 bits: a bijection in which every input bit reaches every output bit."""
    z = np.uint64(x)
    z = (z ^ (z >> _S30)) * _FIRST
    z = (z ^ (z >> _S27)) * _SECOND
    return z ^ (z >> _S31)


@kernel
def key(seed, stream):
    """The key of one stream of a seed. Give each purpose (labels, edges, batch k, …) its own stream."""
    return mix64(mix64(np.uint64(seed) + _GAMMA) + _GAMMA * (np.uint64(stream) + _ONE))


@kernel
def random_u64(stream_key, counter):
    """64 random bits: number `counter` of the stream whose key is given."""
    k = np.uint64(stream_key)
    z = k + _GAMMA * np.uint64(counter)
    z = ((z ^ (z >> _S30)) * _FIRST) ^ k
    z = (z ^ (z >> _S27)) * _SECOND
    return z ^ (z >> _S31)


@kernel
def uniform(bits):
    """64 bits as a float64 in [0, 1): the upper 53 of them over 2⁵³."""
    return np.float64(np.uint64(bits) >> _S11) * _TO_UNIT


@kernel
def below(bits, n):
    """64 bits as an int64 in 0 … n-1: ⌊bits·n / 2⁶⁴⌋, whose bias is at most n / 2⁶⁴.

    The upper half of the 128-bit product, put together from 32-bit halves.
    """
    b = np.uint64(bits)
    m = np.uint64(n)
    high, low = b >> _S32, b & _LOW
    m_high, m_low = m >> _S32, m & _LOW
    middle = high * m_low + ((low * m_low) >> _S32)
    if m_high == 0:
        return np.int64(middle >> _S32)
    carry = (middle & _LOW) + low * m_high
    return np.int64(high * m_high + (middle >> _S32) + (carry >> _S32))


@kernel
def normal_pair(bits):
    """64 bits as two independent standard normals (Box-Muller on the two 32-bit halves; |z| < 6.8)."""
    b = np.uint64(bits)
    radius = math.sqrt(-2.0 * math.log((np.float64(b >> _S32) + 0.5) * 2.0**-32))
    angle = np.float64(b & _LOW) * (2.0 * math.pi * 2.0**-32)
    return radius * math.cos(angle), radius * math.sin(angle)


def draw_uniform(numbers: np.ndarray, seed: int, stream: int) -> np.ndarray:
    """A float64 in [0, 1) for each number (node); it depends on that number, the seed and the stream only."""
    drawn = np.empty(len(numbers))
    _fill_uniform(numbers, seed, stream, drawn)
    return drawn


@kernel
def _fill_uniform(numbers, seed, stream, drawn):
    k = key(seed, stream)
    for i in range(len(numbers)):
        drawn[i] = uniform(random_u64(k, numbers[i]))


def permute(n: int, seed: int, stream: int) -> np.ndarray:
    """A uniformly random permutation of 0 … n-1 (Fisher-Yates), int32 where that is enough."""
    order = np.arange(n, dtype=index_dtype(n))
    _shuffle(order, seed, stream)
    return order


@kernel
def _shuffle(order, seed, stream):
    k = key(seed, stream)
    for i in range(len(order) - 1, 0, -1):
        j = below(random_u64(k, i), i + 1)
        order[i], order[j] = order[j], order[i]
