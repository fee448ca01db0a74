"""The inner loop of edge gradients: the dot product of two contiguous ranges, summed in vector registers."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from shoal.kernels.rows import VECTOR_BYTES, constant, int_constant

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)


@intrinsic
def dot(typingctx, a, a_offset, b, b_offset, count):
    """Σ_{i < count} a[a_offset + i] · b[b_offset + i] of flat arrays, with four vector accumulators."""
    n = types.int64

    def codegen(context, builder, signature, args):
        first = context.make_array(signature.args[0])(context, builder, args[0]).data
        second = context.make_array(signature.args[2])(context, builder, args[2]).data
        element = first.type.pointee
        width = VECTOR_BYTES // (8 if isinstance(element, ir.DoubleType) else 4)
        first, second = builder.gep(first, [args[1]]), builder.gep(second, [args[3]])
        place, total = int_constant(0), ir.Constant(element, 0.0)
        for step, lanes in ((4, width), (1, width), (1, 1)):
            place, sums = _emit_dot_loop(builder, first, second, place, args[4], step, lanes)
            total = builder.fadd(total, _emit_reduction(builder, sums))
        return total

    return a.dtype(a, n, b, n, n), codegen


def _emit_dot_loop(b, first, second, start, end, step, lanes):
    """A loop over whole groups of step · lanes elements; returns where it stopped and its sums."""
    element = first.type.pointee
    vector = element if lanes == 1 else ir.VectorType(element, lanes)
    before = b.block
    head, body, done = (b.append_basic_block(f"dot.{part}") for part in ("head", "body", "done"))
    b.branch(head)
    b.position_at_end(head)
    place = b.phi(_I64)
    place.add_incoming(start, before)
    sums = [b.phi(vector) for _ in range(step)]
    for total in sums:
        total.add_incoming(constant(vector, 0.0), before)
    following = b.add(place, int_constant(step * lanes))
    b.cbranch(b.icmp_signed("<=", following, end), body, done)
    b.position_at_end(body)
    for t, total in enumerate(sums):
        loaded = []
        for array in (first, second):
            address = b.gep(array, [b.add(place, int_constant(t * lanes))])
            if lanes > 1:
                address = b.bitcast(address, vector.as_pointer())
            loaded.append(b.load(address))
            loaded[-1].align = 4
        product = b.fmul(*loaded, flags=("contract",))
        total.add_incoming(b.fadd(total, product, flags=("contract",)), body)
    place.add_incoming(following, body)
    b.branch(head)
    b.position_at_end(done)
    return place, sums


def _emit_reduction(b, sums):
    """The sum of all lanes, halving the vector until one is left."""
    while len(sums) > 1:
        sums = [b.fadd(x, y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
    total = sums[0]
    while isinstance(total.type, ir.VectorType):
        half = total.type.count // 2
        empty = ir.Constant(total.type, ir.Undefined)
        if half == 0:
            break
        parts = [
            b.shuffle_vector(
                total,
                empty,
                ir.Constant(ir.VectorType(_I32, half), list(range(side * half, side * half + half))),
            )
            for side in (0, 1)
        ]
        total = b.fadd(*parts)
        if half == 1:
            return b.extract_element(total, ir.Constant(_I32, 0))
    return total
