"""The PROGRAM of a LINALG on many small matrices: a matrix in each lane of vectors.

    FOR group in lo..hi           16 matrices (of float32), a lane for each
      load                        their elements are transposed: a vector in scratch memory for each
                                  element, which holds it of all matrices
      the algorithm               loops over such vectors, as if there were one matrix
      store                       transposed back

The layout is the compact one of batched BLAS (Intel MKL's compact routines). Where matrices take
different ways, such as pivots, both are computed and one is chosen lane by lane. Lanes of the last
group that have no matrix of their own compute the last one again.

``Value`` lets an algorithm be written with Python's operators; lengths and indices are scalars of
dtype index, and elements are vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fnx.core.ir import build, dtypes, kernel_args, linalg, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Operators
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.emit import shuffles
from fnx.lower.emit.linalg_emitter import Length, LinalgEmitter, Plan

_PAGE = 4096  # bytes of memory that are stored together
_FOLDED = frozenset({ops.ADD, ops.MUL, ops.MIN, ops.MAX})  # of constants, by the builder


class Value(Operators):
    """A line of a program."""

    __slots__ = ("emitter", "node")

    def __init__(self, emitter: InterleavedEmitter, node: UOp) -> None:
        self.emitter, self.node = emitter, node

    def _apply(self, op: Op, *operands: Any) -> Value:
        return self.emitter.apply(op, *operands)

    def eq(self, other: Any) -> Value:
        return self._apply(ops.CMPEQ, self, other)


Operand = Value | float


class Tile:
    """Matrices in scratch memory: a vector for each element, row by row."""

    def __init__(self, emitter: InterleavedEmitter, buffer: UOp, columns: Value) -> None:
        self.emitter, self.buffer, self.columns = emitter, buffer, columns

    def _at(self, i: Value | int, j: Value | int) -> UOp:
        e = self.emitter
        return (e.index(i) * self.columns * e.lanes + e.index(j) * e.lanes).node

    def __getitem__(self, at: tuple[Value | int, Value | int]) -> Value:
        return self.emitter.load_lanes(self.buffer, self._at(*at))

    def __setitem__(self, at: tuple[Value | int, Value | int], value: Value) -> None:
        self.emitter.store_lanes(self.buffer, self._at(*at), value)

    def with_columns(self, columns: Value) -> Tile:
        """Return the same memory with another length of rows."""
        return Tile(self.emitter, self.buffer, columns)


class InterleavedEmitter(LinalgEmitter):
    """Emits the lines of a LINALG, a matrix in each lane.

    Attributes:
        lanes: the number of matrices of a group, if it is full.
        count: the number of its matrices. ``own``: the one of each lane.
        block: rows and columns of a block whose sums are kept in registers.
        n_columns: columns that are updated together: two rows of them take half of the registers.
    """

    def __init__(self, node: UOp, target: Target, algorithm: Callable[[InterleavedEmitter], Plan]
                 ) -> None:
        super().__init__(node)
        self.lanes = target.vector_lanes(self.dtype.itemsize)
        self.fma, self.algorithm = target.fma, algorithm
        # the sums of a block, and the elements of a row and a column of it, are in registers
        self.block = math.isqrt(target.vector_registers + 1) - 1
        self.n_columns = target.vector_registers // 4

    def parts_of_batch(self) -> UOp:
        count = super().parts_of_batch()
        return build.idiv(build.add(count, build.index_const(self.lanes - 1)),
                          build.index_const(self.lanes))

    def allocate(self) -> None:
        self._allocate_pages()
        self.algorithm(self)

    def program(self) -> UOp:
        self._allocate_pages()
        run = self.algorithm(self)
        group = self.lines.open(*[UOp(ops.PARALLEL_RANGE, dtypes.index, (), i) for i in (0, 1)])
        count = super().parts_of_batch()
        self.first = Value(self, group) * self.lanes
        last = Value(self, count) - 1 - self.first
        self.matrices = [self.apply(ops.MIN, last, i) for i in range(self.lanes)]
        self.count = self.matrices[-1] + 1
        run()
        self.lines.close([])
        return self.lines.program()

    # ---- values

    def apply(self, op: Op, *operands: Any) -> Value:
        """Emit a line; a number among the operands gets the dtype of the others, an index among
        vectors that of those."""
        types = [x.node.dtype for x in operands if isinstance(x, Value)]
        dtype = next((t for t in types if t.lanes > 1 and not t.is_bool), types[-1]).scalar
        if dtype is dtypes.int32 and len(types) > 1:
            operands = tuple([self.cast(x, dtype) if isinstance(x, Value) and
                              x.node.dtype is dtypes.index else x for x in operands])
        nodes = [x.node if isinstance(x, Value) else build.const(x, dtype) for x in operands]
        if dtype is dtypes.index:
            if op in _FOLDED:
                return Value(self, self.lines.integer(op, *nodes))
            if op is ops.SUB:
                return Value(self, self.lines.plus(nodes[0], self.lines.times(nodes[1], -1)))
        result = dtypes.bool_ if op in ops.COMPARISONS else dtype
        return Value(self, self.lines.across(op, result, nodes))

    def index(self, x: Value | Length) -> Value:
        """Return an index: a letter of the signature stands for its length."""
        return x if isinstance(x, Value) else Value(self, self.emit(x))

    def const(self, x: float, dtype: DType | None = None) -> Value:
        node = build.const(x, dtype or self.dtype)
        return Value(self, self.lines.widen(node, self.lanes))

    def splat(self, i: Value) -> Value:
        """Return an index in all lanes, as int32."""
        return Value(self, self.lines.widen(self.cast(i, dtypes.int32).node, self.lanes))

    def cast(self, x: Value, dtype: DType) -> Value:
        return Value(self, self.lines.across(ops.CAST, dtype, (x.node,)))

    def choose(self, condition: Value, a: Operand, b: Operand) -> Value:
        """Choose lane by lane; one of both may be a number."""
        return self.apply(ops.WHERE, condition, a, b)

    def plus_product(self, x: Value, a: Value, b: Value) -> Value:
        """x + a b."""
        return self.apply(ops.MULACC, a, b, x) if self.fma else x + a * b

    def minus_product(self, x: Value, a: Value, b: Value) -> Value:
        """x - a b."""
        return self.apply(ops.MULACC, -a, b, x) if self.fma else x - a * b

    def sqrt(self, x: Value) -> Value:
        return self.apply(ops.SQRT, x)

    def hypotenuse(self, x: Value) -> Value:
        """sqrt(1 + x**2), also where the square would overflow."""
        is_large = abs(x) > 1 / float(np.finfo(self.dtype.np).eps)
        square = self.choose(is_large, 0.0, x)
        return self.choose(is_large, abs(x), self.sqrt(self.plus_product(
            self.const(1), square, square)))

    def largest(self, a: Value, b: Value) -> Value:
        """The larger one of positive numbers; a NaN of the first is kept."""
        return self.choose(a < b, b, a)

    def any(self, mask: Value) -> Value:
        """Return whether a mask holds in some lane, a scalar."""
        none = self.lines.add(ops.ALL_LANES, dtypes.bool_, ((~mask).node,))
        return Value(self, self.lines.add(ops.NOT, dtypes.bool_, (none,)))

    def power_of_two(self, x: Value) -> tuple[Value, Value]:
        """Return powers of two: one that brings x > 0 to the cube root of the largest number, so
        that squares of it, and of much smaller numbers, are normal; and its inverse."""
        t = {32: dtypes.int32, 64: dtypes.int64}[self.dtype.bits]
        mantissa = {32: 23, 64: 52}[self.dtype.bits]
        twice = (1 << self.dtype.bits - mantissa - 1) - 2  # the bias of exponents

        def number(exponent: Value) -> Value:
            bits = self.lines.across(ops.SHL, t, (exponent.node, build.const(mantissa, t)))
            return Value(self, self.lines.across(ops.BITCAST, self.dtype, (bits,)))
        bits = Value(self, self.lines.across(ops.BITCAST, t, (x.node,)))
        shifted = self.lines.across(ops.SHR, t, (bits.node, build.const(mantissa, t)))
        exponent = twice + twice // 6 - Value(self, shifted)
        exponent = self.choose(exponent < 1, 1, exponent)
        exponent = self.choose(exponent > twice - 1, twice - 1, exponent)
        return number(exponent), number(twice - exponent)

    # ---- loops

    @contextmanager
    def loop(self, start: Value | int, stop: Value | int | str) -> Iterator[Value]:
        yield Value(self, self.lines.open(self.index(start).node, self.index(stop).node))
        self.lines.close([])

    def fold(self, start: Value | int, stop: Value | int | str, init: Sequence[Value],
             step: Callable[..., Sequence[Value]]) -> list[Value]:
        """Return the values that a loop carries, after it; ``step(i, *values)`` returns the next
        ones."""
        i = self.lines.open(self.index(start).node, self.index(stop).node)
        values = [Value(self, self.lines.phi(x.node)) for x in init]
        nexts = step(Value(self, i), *values)
        return [Value(self, x) for x in self.lines.close([x.node for x in nexts])]

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        branch = self.lines.branch(condition.node)
        yield
        self.lines.end_branch(branch)

    def identity(self, target: Tile, start: int | Value, stop: Value) -> None:
        """Write rows of the identity matrix, of ``stop`` columns."""
        with self.loop(start, stop) as i:
            with self.loop(0, stop) as j:
                target[i, j] = self.const(0)
            target[i, i] = self.const(1)

    @contextmanager
    def repeat(self, times: int) -> Iterator[Callable[[Value], None]]:
        """Open a loop that at most runs so often; it yields a function that leaves it if all lanes
        of a mask hold."""
        loop = self.lines.open(build.index_const(0), build.index_const(times))

        def leave_if(mask: Value) -> None:
            done = self.lines.add(ops.ALL_LANES, dtypes.bool_, (mask.node,))
            self.lines.put(ops.BREAK, dtypes.void, (loop, done))
        yield leave_if
        self.lines.close([])

    # ---- memory

    def tile(self, rows: Length | Value, columns: Length | Value = 1, dtype: DType | None = None
             ) -> Tile:
        """Allocate a tile; before the loop over groups."""
        r, c = [x.node if isinstance(x, Value) else self.length(x) for x in (rows, columns)]
        # whole squares are loaded
        count = self.product(self.sum(self.product(r, c), self.lanes), self.lanes)
        return Tile(self, self.scratch(dtype or self.dtype, count), self.index(c))

    def load_lanes(self, buffer: UOp, at: UOp) -> Value:
        t = buffer.dtype.vec(self.lanes)
        return Value(self, self.lines.put(ops.LOAD, t, (self._vector(buffer, at),)))

    def store_lanes(self, buffer: UOp, at: UOp, value: Value) -> None:
        address = self._vector(buffer, at)
        self.lines.put(ops.STORE, dtypes.void,
                       (address, self.lines.widen(value.node, self.lanes)))

    def _vector(self, buffer: UOp, at: UOp) -> UOp:
        t = buffer.dtype.vec(self.lanes)
        return self.lines.add(ops.ADDRESS, t, (buffer, at), self.lanes * buffer.dtype.itemsize)

    def gather(self, tile: Tile, rows: Value | int, columns: Value | int) -> Value:
        """Load an element whose row or column is another one in each lane, a vector of int32."""
        lane = Value(self, self.lines.add(ops.LANES, dtypes.int32.vec(self.lanes), ()))
        width = self.cast(tile.columns, dtypes.int32)
        at = (rows * width + columns) * self.lanes + lane
        t = tile.buffer.dtype.vec(self.lanes)
        address = self.lines.add(ops.ADDRESS, t, (tile.buffer, at.node),
                                 tile.buffer.dtype.itemsize)
        return Value(self, self.lines.put(ops.LOAD, t, (address,)))

    def read(self, slot: int, tile: Tile) -> None:
        """Load the matrices of an operand; rows of the tile follow each other without a gap."""
        buffer, size = self._operand(slot)
        if self._is_vector(slot):
            with self.loop(0, self.lanes) as lane, self.loop(0, size) as at:
                matrix = self.first + self.apply(ops.MIN, lane, self.count - 1)
                self.store(tile.buffer, (at * self.lanes + lane).node,
                           self.load(buffer, (matrix * size + at).node))
            return
        with self.loop(0, self._squares(size)) as square:
            at = square * self.lanes
            mask = self._mask(size - at)
            block = [self.load_vector(buffer, ((self.first + matrix) * size + at).node, self.lanes,
                                      mask) for matrix in self.matrices]
            for i, column in enumerate(shuffles.transpose(self.lines, block)):
                self.store_lanes(tile.buffer, ((at + i) * self.lanes).node, Value(self, column))

    def symmetrize(self, tile: Tile) -> None:
        """Replace matrices by their symmetric parts, with that option: the triangle that is read.
        """
        if "symmetrize" not in self.options:
            return
        with self.loop(0, tile.columns) as i, self.loop(0, i) as j:
            mean = (tile[i, j] + tile[j, i]) * 0.5
            tile[i, j] = tile[j, i] = mean

    def write(self, index: int, tile: Tile) -> None:
        """Store the matrices of a result: a page of parts of rows is put together, then stored
        row by row, as a processor fetches lines ahead that are written in order."""
        slot = len(self.signature.ins) + index
        buffer, size = self._operand(slot)
        if self._is_vector(slot):
            with self.loop(0, self.count) as lane, self.loop(0, size) as at:
                self.store(buffer, ((self.first + lane) * size + at).node,
                           self.load(tile.buffer, (at * self.lanes + lane).node))
            return
        page = self.pages[buffer.dtype]
        n_squares = _PAGE // (self.lanes * self.lanes * buffer.dtype.itemsize)
        length = n_squares * self.lanes
        last = self._squares(size)
        n_pages = Value(self, self.lines.divide((last + (n_squares - 1)).node, n_squares))
        with self.loop(0, n_pages) as part:
            start = part * n_squares
            stop = self.apply(ops.MIN, last - start, n_squares)
            with self.loop(0, stop) as square:
                at = (start + square) * self.lanes
                block = [self.load_lanes(tile.buffer, ((at + i) * self.lanes).node).node
                         for i in range(self.lanes)]
                for i, row in enumerate(shuffles.transpose(self.lines, block)):
                    self.store_vector(page, (square * self.lanes + i * length).node, row)
            with self.loop(0, self.count) as matrix, self.loop(0, stop) as square:
                at = square * self.lanes
                row = self.load_vector(page, (matrix * length + at).node, self.lanes)
                at = at + start * self.lanes
                self.store_vector(buffer, ((self.first + matrix) * size + at).node, row,
                                  self._mask(size - at))

    def _is_vector(self, slot: int) -> bool:
        """Whether an operand or result has one axis: few elements, which are moved one by one."""
        return len((*self.signature.ins, *self.signature.outs)[slot][1]) == 1

    def _operand(self, slot: int) -> tuple[UOp, Value]:
        """Return an operand or result, and the number of elements of a matrix."""
        mark, axes = (*self.signature.ins, *self.signature.outs)[slot]
        t = linalg.marked_dtype(mark, self.dtype)
        buffer = UOp(ops.REF, t, (), kernel_args.Ref(slot, "", t.itemsize))
        return buffer, self.index(self.product(*axes))

    def _mask(self, count: Value) -> UOp:
        return self.lines.add(ops.LANE_MASK, dtypes.bool_.vec(self.lanes), (count.node,))

    def _squares(self, size: Value) -> Value:
        return Value(self, self.lines.divide((size + (self.lanes - 1)).node, self.lanes))

    def _allocate_pages(self) -> None:
        """Allocate memory for parts of results, before they are stored."""
        results = [linalg.marked_dtype(mark, self.dtype) for mark, axes in self.signature.outs
                   if len(axes) > 1]
        self.pages = {t: self.scratch(t, _PAGE // t.itemsize) for t in dict.fromkeys(results)}

    # ---- blocks and columns

    def column_blocks(self, start: Value | int, stop: Value, width: int | None = None
                      ) -> Iterator[list[Value]]:
        """Open a loop over blocks of columns. In the last one those that are not there are the last
        column: all elements of a row must be loaded before one is stored."""
        width = width or self.n_columns
        blocks = Value(self, self.lines.divide((stop - start + (width - 1)).node, width))
        with self.loop(0, blocks) as block:
            first = block * width + start
            yield [self.apply(ops.MIN, first + c, stop - 1) for c in range(width)]

    def blocks(self, length: Length) -> UOp:
        """Return a length in blocks, rounded up, as an index expression."""
        return build.idiv(build.add(self.length(length), build.index_const(self.block - 1)),
                          build.index_const(self.block))

    def widen(self, tile: Tile, rows: Value, columns: Value, padded: Value) -> None:
        """Move rows to where a longer length puts them, the last ones first."""
        with self.when(columns < padded):
            wide = tile.with_columns(padded)
            with self.loop(0, rows) as i, self.loop(0, columns) as j:
                row, column = rows - 1 - i, columns - 1 - j
                wide[row, column] = tile.with_columns(columns)[row, column]

    def nan_if(self, failed: Value, value: Value) -> Value:
        return self.choose(failed, math.nan, value)
