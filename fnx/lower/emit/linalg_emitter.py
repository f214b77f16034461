"""The base of the emitters of LINALG programs: lengths, memory and loops over matrices.

A program computes a part of a batch. The number of matrices and their lengths are scalars, in the
order of the letters in the signature of the routine (core/ir/linalg.py), so that one program serves
all sizes. Scratch memory is allocated before the loop over matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core.ir import build, dtypes, kernel_args, linalg, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.spec_program import NON_INSTRUCTIONS
from fnx.core.rewriting import symbolic
from fnx.lower.emit.builder import ProgramBuilder

_LINE = 64  # bytes: alignment of scratch memory
Plan = Callable[[], None]
Length = UOp | int | str  # an index expression; a letter of the signature stands for its length


class LinalgEmitter:
    """Emits the lines of a LINALG.

    Attributes:
        lengths: the length of each axis of the matrices, by the letter in the signature.
        matrix_dtype, dtype: of the matrices, and of its parts, which are in memory.
        parts: 2 if the matrices are complex, else 1.
        nbytes: scratch bytes, an index expression.
    """

    def __init__(self, node: UOp) -> None:
        self.arg: op_args.Linalg = node.arg.of_complex or node.arg
        self.options = frozenset(self.arg.options)
        self.signature = linalg.signature(self.arg.routine, self.arg.options)
        self.matrix_dtype = self.arg.ins[0][1]
        self.dtype = self.matrix_dtype.real
        self.parts = 1 + self.matrix_dtype.is_complex
        self.lines = ProgramBuilder()
        self.nbytes = self._end = build.index_const(0)  # _end: the same as a line
        self._stages = 0
        self.matrix = self.nbytes  # the index of the current one, in the loop over matrices
        letters = self.signature.letters
        self.lengths = {a: build.var(1 + i, dtypes.index) for i, a in enumerate(letters)}
        n = self.lengths.get("n")
        if n is not None:
            m = self.lengths.get("m", n)
            self.lengths["k"] = n if m is n else build.elementwise(ops.MIN, m, n)
            self.lengths["p"] = build.elementwise(ops.MAX, build.sub(n, build.index_const(1)),
                                                  build.index_const(0))

    def program(self) -> UOp:
        raise NotImplementedError

    def allocate(self) -> None:
        """Allocate all scratch memory, which ``nbytes`` then counts."""
        self.program()

    def parts_of_batch(self) -> UOp:
        """Return into how many parts a batch may be split."""
        return build.var(0, dtypes.index)

    # ---- lengths

    def length(self, value: Length) -> UOp:
        """Return an index expression: a letter of the signature stands for its length."""
        return self.lengths[value] if isinstance(value, str) else \
            build.index_const(value) if isinstance(value, int) else value

    def product(self, *values: Length) -> UOp:
        return self._fold(ops.MUL, 1, values)

    def sum(self, *values: Length) -> UOp:
        return self._fold(ops.ADD, 0, values)

    def _fold(self, op: Op, number: int, values: Sequence[Length]) -> UOp:
        """Return a sum or product: a number, which is folded, after expressions."""
        out: UOp | None = None
        for x in map(self.length, values):
            if x.op is ops.CONST:
                other = build.const_of(x)
                number = number * other if op is ops.MUL else number + other
            else:
                out = x if out is None else build.elementwise(op, out, x)
        if out is None or op is ops.MUL and not number:
            return build.index_const(number)
        is_neutral = number == (op is ops.MUL)
        return out if is_neutral else build.elementwise(op, out, build.index_const(number))

    def most(self, a: Length, b: Length) -> UOp:
        return build.elementwise(ops.MAX, self.length(a), self.length(b))

    def emit(self, expression: Length) -> UOp:
        """Emit the lines of an index expression; a line is emitted already."""
        if isinstance(expression, UOp) and self.lines.has(expression):
            return expression
        values: dict[UOp, UOp] = {}
        for node in toposort([self.length(expression)]):
            values[node] = node if node.op in NON_INSTRUCTIONS else self.lines.add(
                node.op, node.dtype, tuple([values[s] for s in node.src]), node.arg)
        return values[self.length(expression)]

    # ---- memory

    def scratch(self, t: DType, count: Length) -> UOp:
        """Allocate scratch memory for ``count`` elements; before the loop over matrices."""
        nbytes = self.sum(self.product(self.length(count), t.itemsize), _LINE - 1)
        lines = build.idiv(nbytes, build.index_const(_LINE))
        padded = symbolic.simplify(self.product(lines, _LINE))
        offset = self._end
        self.nbytes, self._end = self.sum(self.nbytes, padded), \
            self.lines.plus(offset, self.emit(padded))
        self._stages += 1
        return self.lines.put(ops.SCRATCH, t, (offset,),
                              kernel_args.Stage(self._stages, "PRIV"))

    def numbers(self, count: Length) -> UOp:
        """Allocate scratch memory for numbers of the dtype of the matrices."""
        return self.scratch(self.dtype, self.product(count, self.parts))

    def operand(self, slot: int) -> UOp:
        """Return the address of the current matrix of an operand, or of a result after them."""
        parts = (*self.signature.ins, *self.signature.outs)
        mark, axes = parts[slot]
        t = linalg.marked_dtype(mark, self.matrix_dtype)
        buffer = UOp(ops.REF, t.real, (), kernel_args.Ref(slot, "", t.real.itemsize))
        size = self.product(*axes, 1 + t.is_complex)
        return self.element(buffer, self.lines.times(self.matrix, self.emit(size)))

    def result(self, index: int) -> UOp:
        return self.operand(len(self.signature.ins) + index)

    def element(self, buffer: UOp, at: UOp) -> UOp:
        return self.lines.add(ops.ADDRESS, buffer.dtype, (buffer, at), buffer.dtype.itemsize)

    def load(self, buffer: UOp, at: UOp) -> UOp:
        return self.lines.put(ops.LOAD, buffer.dtype, (self.element(buffer, at),))

    def store(self, buffer: UOp, at: UOp, value: UOp) -> None:
        self.lines.put(ops.STORE, dtypes.void, (self.element(buffer, at), value))

    def load_vector(self, buffer: UOp, at: UOp, lanes: int, mask: UOp | None = None) -> UOp:
        t = buffer.dtype.vec(lanes)
        address = self.lines.add(ops.ADDRESS, t, (buffer, at), buffer.dtype.itemsize)
        return self.lines.put(ops.LOAD, t, (address, *([] if mask is None else [mask])))

    def store_vector(self, buffer: UOp, at: UOp, value: UOp, mask: UOp | None = None) -> None:
        address = self.lines.add(ops.ADDRESS, value.dtype, (buffer, at), buffer.dtype.itemsize)
        self.lines.put(ops.STORE, dtypes.void, (address, value, *([] if mask is None else [mask])))

    # ---- lines

    def each(self, start: Length, stop: Length) -> UOp:
        return self.lines.open(self.emit(start), self.emit(stop))

    def done(self, *nexts: UOp) -> list[UOp]:
        return self.lines.close(nexts)

    def binary(self, op: Op, a: UOp, b: UOp) -> UOp:
        return self.lines.add(op, dtypes.bool_ if op in ops.COMPARISONS else a.dtype, (a, b))

    def where(self, condition: UOp, a: UOp, b: UOp) -> UOp:
        return self.lines.add(ops.WHERE, a.dtype, (condition, a, b))

    def move(self, target: UOp, to: UOp, source: UOp, at: UOp) -> None:
        """Copy a number: both parts of a complex one."""
        to, at = self.lines.times(to, self.parts), self.lines.times(at, self.parts)
        for part in range(self.parts):
            self.store(target, self.lines.plus(to, part),
                       self.load(source, self.lines.plus(at, part)))

    def fill(self, target: UOp, count: Length, value: float) -> None:
        i = self.each(0, count)
        self.store(target, i, build.const(value, target.dtype))
        self.done()
