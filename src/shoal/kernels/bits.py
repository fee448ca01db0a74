"""Node sets as bitmaps, 64 nodes per word, so that a million nodes fit in 128 KiB of cache; prefetching.

The words of a set are followed by a summary with one bit per word, so that the nodes of a set are listed without a pass
over all nodes. Kernels index with uint64: Numba then omits the test for negative indices, which halves inner loops.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shoal.kernels.jit import kernel

_ONE = np.uint64(1)
_WORD = np.uint64(63)
_SHIFT = np.uint64(6)


def make_bitmap(num_nodes: int) -> np.ndarray:
    """An empty set of nodes 0 … num_nodes-1, one bit each, and its summary."""
    words = (num_nodes + 63) // 64
    return np.zeros(words + (words + 63) // 64, np.uint64)


@kernel
def _count_words(bitmap):
    """The number of words before the summary."""
    return np.uint64(len(bitmap)) * np.uint64(64) // np.uint64(65)


@intrinsic
def popcount(context, x):
    """The number of ones in 64 bits."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.ctpop.i64")
        return builder.call(function, arguments)

    return types.uint64(types.uint64), generate


@intrinsic
def prefetch(context, array, place):
    """Prefetch the cache line of `array[place]` (one dimension, contiguous); `place` may be out of range."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(function, [address, *(ir.Constant(word, number) for number in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@kernel
def mark(bitmap, node):
    """Add a node to the set; returns 1 if it is new, else 0."""
    v = np.uint64(node)
    word, bit = v >> _SHIFT, _ONE << (v & _WORD)
    old = bitmap[word]
    bitmap[word] = old | bit
    bitmap[_count_words(bitmap) + (word >> _SHIFT)] |= _ONE << (word & _WORD)
    return np.int64((old & bit) == 0)


@kernel
def is_marked(bitmap, node):
    """Whether the bit of `node` is set."""
    v = np.uint64(node)
    return ((bitmap[v >> _SHIFT] >> (v & _WORD)) & _ONE) != 0


@kernel
def _lowest(word):
    """The position of the lowest set bit of a non-zero word."""
    return popcount((word & (~word + _ONE)) - _ONE)


@kernel
def take_marked(bitmap, count):
    """The increasing nodes of the set, int64 (count,); empties the set. Cost: num_nodes / 4096 + count."""
    nodes = np.empty(count, np.int64)
    size = 0
    words = _count_words(bitmap)
    for place in range(words, np.uint64(len(bitmap))):
        summary = bitmap[place]
        bitmap[place] = 0
        while summary != 0:
            word = ((place - words) << _SHIFT) + _lowest(summary)
            summary &= summary - _ONE
            rest = bitmap[word]
            bitmap[word] = 0
            while rest != 0 and size < count:
                nodes[size] = (word << _SHIFT) + _lowest(rest)
                size += 1
                rest &= rest - _ONE
    return nodes[:size]
