"""The inner loop of every sparse product: one row of `A · H`, its columns held in vector registers.

`add_row` sums weighted rows of H into one row of the result. It is written as LLVM IR because Numba has no
vector type: a block of columns (eight AVX2 or eight AVX-512 registers) stays in registers while the row's
entries go by, so that the result is written once and each gathered value costs one fused multiply-add.
"""

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)
_FEATURES = binding.get_host_cpu_features()
VECTOR_BYTES = 64 if _FEATURES.get("avx512f") else 32 if _FEATURES.get("avx2") else 16
NUM_ACCUMULATORS = 8  # of 16 registers without AVX-512, of 32 with it
PREFETCH_DISTANCE = 16  # entries ahead; 8 to 32 measured alike, 4 and none slower


@intrinsic
def add_row(
    typingctx,
    h,
    h_offset,
    h_stride,
    indices,
    start,
    end,
    last,
    values,
    value_offset,
    value_stride,
    column_scale,
    out,
    out_offset,
    num_columns,
    scale,
    accumulate,
    prefetch,
):
    """out[o : o+f] (+)= scale · Σ_{start ≤ k < end} w_k · h[indices[k]·h_stride + h_offset : … + f]

    with w_k = values[value_offset + k·value_stride] · column_scale[indices[k]]; either may be None, for 1.
    All arrays are flat. h may be uint16 (bfloat16 bits), sums are then float32; out may be uint16 too.
    With `prefetch` the rows of later entries are prefetched, up to entry `last`.
    """
    n, flag = types.int64, types.boolean
    where = (values, n, n, column_scale, out, n, n, scale, flag, flag)
    signature = types.void(h, n, n, indices, n, n, n, *where)

    def codegen(context, builder, signature, args):
        _RowEmitter(context, builder, signature, args).emit()
        return context.get_dummy_value()

    return signature, codegen


class _RowEmitter:
    """Writes the IR of `add_row` at the builder's position."""

    def __init__(self, context, builder, signature, args):
        self.builder = builder
        kinds = signature.args

        def pointer(position):
            if isinstance(kinds[position], types.NoneType):
                return None
            return context.make_array(kinds[position])(context, builder, args[position]).data

        self.h, self.indices, self.values = pointer(0), pointer(3), pointer(7)
        self.column_scale, self.out = pointer(10), pointer(11)
        self.h_half = kinds[0].dtype == types.uint16
        self.out_half = kinds[11].dtype == types.uint16
        self.element = ir.DoubleType() if kinds[0].dtype == types.float64 else ir.FloatType()
        self.width = VECTOR_BYTES // (8 if isinstance(self.element, ir.DoubleType) else 4)
        self.item_bytes = kinds[0].dtype.bitwidth // 8
        self.h_offset, self.h_stride = args[1], args[2]
        self.start, self.end, self.last = args[4], args[5], args[6]
        self.value_offset, self.value_stride = args[8], args[9]
        self.out_offset, self.num_columns, self.scale = args[12:15]
        self.accumulate, self.prefetch = args[15:17]

    def emit(self):
        """Full blocks of registers first, then one pass over as many registers as the rest needs.

        The last register of the rest ends exactly at the last column and overlaps the one before it: no
        masks and no scalar loop, whatever the number of columns.
        """
        b, f, width = self.builder, self.num_columns, self.width
        with b.if_else(b.icmp_signed(">=", f, int_constant(width))) as (wide, narrow):
            with wide:
                first = self.emit_blocks(width)
                self.emit_rest(first, b.sub(f, first), width, NUM_ACCUMULATORS)
            with narrow, b.if_else(b.icmp_signed(">=", f, int_constant(4))) as (some, few):
                with some:
                    self.emit_rest(int_constant(0), f, 4, max(width // 4, 1))
                with few:
                    self.emit_rest(int_constant(0), f, 1, 3)

    def emit_blocks(self, width):
        """A loop over full blocks; returns the first column left over."""
        b = self.builder
        block = width * NUM_ACCUMULATORS
        before = b.block
        head, body, done = (b.append_basic_block(f"block.{part}") for part in ("head", "body", "done"))
        b.branch(head)
        b.position_at_end(head)
        column = b.phi(_I64)
        column.add_incoming(int_constant(0), before)
        following = b.add(column, int_constant(block))
        b.cbranch(b.icmp_signed("<=", following, self.num_columns), body, done)
        b.position_at_end(body)
        self.emit_pass([b.add(column, int_constant(t * width)) for t in range(NUM_ACCUMULATORS)], width)
        column.add_incoming(following, b.block)
        b.branch(head)
        b.position_at_end(done)
        return column

    def emit_rest(self, first, rest, width, most):
        """One pass with ceil(rest / width) ≤ most registers, chosen at run time."""
        b = self.builder
        needed = b.sdiv(b.add(rest, int_constant(width - 1)), int_constant(width))
        done = b.append_basic_block("rest.done")
        choice = b.switch(needed, done)
        for count in range(1, most + 1):
            case = b.append_basic_block(f"rest.{count}")
            choice.add_case(int_constant(count), case)
            b.position_at_end(case)
            columns = [b.add(first, int_constant(t * width)) for t in range(count - 1)]
            final = b.sub(self.num_columns, int_constant(width))
            repeated = b.sub(b.add(first, int_constant((count - 1) * width)), final)
            self.emit_pass([*columns, final], width, repeated)
            b.branch(done)
        b.position_at_end(done)

    def emit_pass(self, columns, width, repeated=None):
        """The loop over the row's entries with one accumulator per element of `columns`.

        The first `repeated` lanes of the last one overlap what has been stored already.
        """
        b = self.builder
        vector = self.element if width == 1 else ir.VectorType(self.element, width)
        zero = ir.Constant(vector, 0.0 if width == 1 else [0.0] * width)
        before = b.block
        head, body, done = (b.append_basic_block(f"pass.{part}") for part in ("head", "body", "done"))
        b.branch(head)
        b.position_at_end(head)
        k = b.phi(_I64)
        sums = [b.phi(vector) for _ in columns]
        k.add_incoming(self.start, before)
        for total in sums:
            total.add_incoming(zero, before)
        b.cbranch(b.icmp_signed("<", k, self.end), body, done)
        b.position_at_end(body)
        with b.if_then(self.prefetch):
            self.emit_prefetch(k, columns[0], len(columns) * width)
        node = self.load_index(k)
        weight = self.load_weight(k, node)
        row = b.add(b.mul(node, self.h_stride), self.h_offset)
        if weight is not None:
            weight = splat(b, weight, width)
            suffix = "f64" if isinstance(self.element, ir.DoubleType) else "f32"
            name = f"llvm.fma.{suffix}" if width == 1 else f"llvm.fma.v{width}{suffix}"
            fma = cgutils.get_or_insert_function(b.module, ir.FunctionType(vector, [vector] * 3), name)
        for column, total in zip(columns, sums, strict=True):
            x = self.load_vector(self.h, b.add(row, column), width, self.h_half)
            total.add_incoming(
                b.fadd(total, x) if weight is None else b.call(fma, [weight, x, total]), b.block
            )
        k.add_incoming(b.add(k, int_constant(1)), b.block)
        b.branch(head)
        b.position_at_end(done)
        scale = splat(b, self.scale, width)
        results = [b.fmul(total, scale) for total in sums]
        self.emit_stores(columns, results, width, repeated)

    def emit_stores(self, columns, results, width, repeated):
        b = self.builder
        with b.if_else(self.accumulate) as (add, put):
            with add:
                for number, (column, result) in enumerate(zip(columns, results, strict=True)):
                    place = b.add(self.out_offset, column)
                    old = self.load_vector(self.out, place, width, self.out_half)
                    total = b.fadd(old, result)
                    if width > 1 and repeated is not None and number == len(columns) - 1:
                        lanes = ir.Constant(ir.VectorType(_I64, width), list(range(width)))
                        fresh = b.icmp_signed(">=", lanes, splat(b, repeated, width))
                        total = b.select(fresh, total, old)
                    self.store_vector(total, place, width)
            with put:
                for column, result in zip(columns, results, strict=True):
                    self.store_vector(result, b.add(self.out_offset, column), width)

    def emit_prefetch(self, k, column, num_columns):
        b = self.builder
        ahead = b.add(k, int_constant(PREFETCH_DISTANCE))
        ahead = b.select(b.icmp_signed("<", ahead, self.last), ahead, self.last)
        place = b.add(b.add(b.mul(self.load_index(ahead), self.h_stride), self.h_offset), column)
        byte = ir.IntType(8).as_pointer()
        address = b.bitcast(b.gep(self.h, [place]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        fetch = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
        for offset in range(0, num_columns * self.item_bytes, 64):
            where = b.gep(address, [int_constant(offset)])
            b.call(fetch, [where, ir.Constant(_I32, 0), ir.Constant(_I32, 3), ir.Constant(_I32, 1)])

    def load_index(self, k):
        b = self.builder
        node = b.load(b.gep(self.indices, [k]))
        return node if node.type == _I64 else b.sext(node, _I64)

    def load_weight(self, k, node):
        b, weight = self.builder, None
        if self.values is not None:
            place = b.add(self.value_offset, b.mul(k, self.value_stride))
            weight = b.load(b.gep(self.values, [place]))
        if self.column_scale is not None:
            scale = b.load(b.gep(self.column_scale, [node]))
            weight = scale if weight is None else b.fmul(weight, scale)
        return weight

    def load_vector(self, array, place, width, half):
        """`width` elements from `place` on; bfloat16 bits are widened by a shift."""
        b = self.builder
        stored = ir.IntType(16) if half else self.element
        address = b.gep(array, [place])
        if width > 1:
            stored = ir.VectorType(stored, width)
            address = b.bitcast(address, stored.as_pointer())
        loaded = b.load(address)
        loaded.align = 2 if half else 4
        if not half:
            return loaded
        word = _I32 if width == 1 else ir.VectorType(_I32, width)
        shifted = b.shl(b.zext(loaded, word), constant(word, 16))
        return b.bitcast(shifted, self.element if width == 1 else ir.VectorType(self.element, width))

    def store_vector(self, value, place, width):
        """Store at `place`; to bfloat16 by rounding to nearest, ties to even."""
        b = self.builder
        if self.out_half:
            word = _I32 if width == 1 else ir.VectorType(_I32, width)
            bits = b.bitcast(value, word)
            odd = b.and_(b.lshr(bits, constant(word, 16)), constant(word, 1))
            bits = b.lshr(b.add(bits, b.add(odd, constant(word, 0x7FFF))), constant(word, 16))
            value = b.trunc(bits, ir.IntType(16) if width == 1 else ir.VectorType(ir.IntType(16), width))
        address = b.gep(self.out, [place])
        if width > 1:
            address = b.bitcast(address, value.type.as_pointer())
        b.store(value, address).align = 2 if self.out_half else 4


def int_constant(value):
    """A 64-bit integer constant."""
    return ir.Constant(_I64, value)


def constant(kind, value):
    """A constant of a scalar or vector type; a vector holds `value` in every lane."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def splat(builder, scalar, width):
    """A vector of `width` lanes that all hold `scalar`."""
    if width == 1:
        return scalar
    kind = ir.VectorType(scalar.type, width)
    empty = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(_I32, width), [0] * width))
