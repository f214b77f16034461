"""The PROGRAM of a LINALG: a loop over the matrices of a batch that calls LAPACK.

    LINALG cholesky(a: float32[1000, 40, 40])  ->  FOR i in lo..hi:
                                                     copy a[i] to out[i]
                                                     EXTERN_CALL lapack_spotrf("U", n, out[i], n,
                                                                               info)
                                                     zeros above the diagonal; NaN if info != 0

LAPACK stores matrices by columns. So a matrix of rows is its transpose there: where a routine has a
counterpart for the transpose (the other triangle, the other side, the other singular vectors), that
is called and nothing is moved; otherwise matrices are transposed on the way into scratch memory and
back. All arguments of LAPACK are pointers. Integers and characters are in scratch memory.

All calls are made with one thread of BLAS: ``blas_hold`` and ``blas_release`` are fnx's own
(backends/llvm/blas_threads.py).

The routines are functions of an emitter (lapack_factors.py, lapack_spectra.py): each allocates its
scratch memory and returns what emits the calls for a matrix.

Programs are shared: the number of matrices and their lengths are scalars, in the order of the
letters in the signature of the routine (core/ir/linalg.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.core.ir import build, dtypes, linalg, ops
from fnx.core.ir.uop import UOp
from fnx.lower.emit import shuffles
from fnx.lower.emit.linalg_emitter import Length, LinalgEmitter, Plan

BLOCK = 64  # rows of a block in LAPACK's blocked routines, at most
PREFIXES = {dtypes.float32: "s", dtypes.float64: "d", dtypes.complex64: "c",
            dtypes.complex128: "z"}
# the names of routines that differ for complex matrices
_COMPLEX_NAMES = {"orgqr": "ungqr", "syevd": "heevd", "sytrd": "hetrd"}


class LapackEmitter(LinalgEmitter):
    """Emits the calls of a LINALG.

    Integers, characters and numbers that LAPACK takes by address are stored before the loop over
    matrices; equal ones are shared. ``lanes``: those of a vector of real numbers; blocks of as many
    rows are transposed by shuffles.
    """

    def __init__(self, node: UOp, lanes: int, plan: Callable[[LapackEmitter], Plan]) -> None:
        super().__init__(node)
        self._plan, self.lanes = plan, lanes
        numbers = lanes // self.parts
        self.square = numbers if shuffles.can_transpose(numbers) else 1
        self._cells: dict[object, UOp] = {}

    def program(self) -> UOp:
        run = self._plan(self)
        self.lines.put(ops.EXTERN_CALL, dtypes.void, (), "blas_hold")
        self.matrix = self.lines.open(*[UOp(ops.PARALLEL_RANGE, dtypes.index, (), i)
                                        for i in (0, 1)])
        run()
        self.lines.close([])
        self.lines.put(ops.EXTERN_CALL, dtypes.void, (), "blas_release")
        return self.lines.program()

    # ---- cells

    def if_one_side(self, then: str, other: str) -> UOp:
        """Return a length as an index expression: another one if there is one right-hand side."""
        is_one = build.eq(self.length("r"), build.index_const(1))
        return build.where(is_one, self.length(then), self.length(other))

    def int_cell(self, value: Length) -> UOp:
        """Return the address of an int32, stored before the loop; equal ones are shared."""
        expression = self.length(value)
        if expression not in self._cells:
            cell = self.element(self.scratch(dtypes.int32, 1), build.index_const(0))
            number = build.const(build.const_of(expression), dtypes.int32) \
                if expression.op is ops.CONST else \
                self.lines.add(ops.CAST, dtypes.int32, (self.emit(expression),))
            self.lines.put(ops.STORE, dtypes.void, (cell, number))
            self._cells[expression] = cell
        return self._cells[expression]

    def char_cell(self, text: str, if_one_side: str = "") -> UOp:
        """Return the address of a character; of another one if there is one right-hand side."""
        key = text, if_one_side or text
        if key not in self._cells:
            value, other = (build.const(ord(x), dtypes.uint8) for x in key)
            if value is not other:
                is_one = self.binary(ops.CMPEQ, self.emit("r"), build.index_const(1))
                value = self.where(is_one, other, value)
            cell = self.element(self.scratch(dtypes.uint8, 1), build.index_const(0))
            self.lines.put(ops.STORE, dtypes.void, (cell, value))
            self._cells[key] = cell
        return self._cells[key]

    def float_cell(self, value: float) -> UOp:
        """Return the address of a number of the dtype of the matrices."""
        key = "float", value
        if key not in self._cells:
            number = self.numbers(1)
            for i, part in enumerate((value, 0.0)[:self.parts]):
                self.store(number, build.index_const(i), build.const(part, self.dtype))
            self._cells[key] = self.element(number, build.index_const(0))
        return self._cells[key]

    def info_cell(self) -> UOp:
        """Return the address where a routine says whether it succeeded."""
        return self.element(self.scratch(dtypes.int32, 1), build.index_const(0))

    def workspace(self, *sizes: UOp) -> tuple[UOp, UOp]:
        """Return scratch memory for a routine, and the address of its length."""
        count = self.sum(*sizes)
        return self.numbers(count), self.int_cell(count)

    # ---- calls

    def call(self, name: str, *arguments: UOp, library: str = "lapack") -> None:
        """Call a routine; the dtype of the matrices gives the first letter of its name."""
        if self.parts == 2:
            name = _COMPLEX_NAMES.get(name, name)
        self.lines.put(ops.EXTERN_CALL, dtypes.void, arguments,
                       f"{library}_{PREFIXES[self.matrix_dtype]}{name}")

    def copy(self, target: UOp, source: UOp, count: UOp) -> None:
        """Copy so many numbers."""
        one = self.int_cell(1)
        self.call("copy", self.int_cell(count), source, one, target, one, library="blas")

    def transpose(self, target: UOp, source: UOp, rows: Length, columns: Length) -> None:
        """Copy a matrix of so many rows and columns to its transpose: whole blocks, then the rest
        of the rows, then that of the columns."""
        r, c = self.emit(rows), self.emit(columns)
        across, along = self._whole(c), self._whole(r)
        if self.square > 1:
            i = self.each(0, self.lines.divide(across, self.square))
            j = self.each(0, self.lines.divide(along, self.square))
            self._transpose_block(target, source, r, c, i, j)
            self.done()
            self.done()
            self._transpose_elements(target, source, (r, c), (across, c), (0, along))
        self._transpose_elements(target, source, (r, c), (0, c), (along, r))

    def _transpose_elements(self, target: UOp, source: UOp, lengths: tuple[UOp, UOp],
                            columns: tuple[Length, Length], rows: tuple[Length, Length]) -> None:
        """Copy the elements in some columns and rows of the source."""
        i = self.each(*columns)
        j = self.each(*rows)
        self.move(target, self.lines.plus(self.lines.times(i, lengths[0]), j),
                  source, self.lines.plus(self.lines.times(j, lengths[1]), i))
        self.done()
        self.done()

    def _whole(self, length: UOp) -> UOp:
        """Return the part of a length that blocks cover."""
        return build.index_const(0) if self.square == 1 else \
            self.lines.times(self.lines.divide(length, self.square), self.square)

    def _transpose_block(self, target: UOp, source: UOp, rows: UOp, columns: UOp, i: UOp, j: UOp,
                         is_lower: bool = False, is_mean: bool = False) -> None:
        """Copy a block to row block i, column block j of the target. ``is_lower``: with zeros above
        the diagonal. ``is_mean``: the mean of it and of the conjugates that are there in the
        source."""
        lines, n, parts = self.lines, self.square, self.parts
        i, j = lines.times(i, n), lines.times(j, n)

        def starts(row: UOp, length: UOp, column: UOp) -> list[UOp]:
            return [lines.times(lines.plus(lines.times(lines.plus(row, k), length), column), parts)
                    for k in range(n)]
        block = [self.load_vector(source, at, self.lanes) for at in starts(j, columns, i)]
        transposed = shuffles.transpose(lines, block, parts)
        for k, (at, row) in enumerate(zip(starts(i, rows, j), transposed)):
            if is_mean:
                row = self._mean(row, self.load_vector(source, at, self.lanes))
            if is_lower:
                count = lines.plus(lines.plus(i, lines.times(j, -1)), k + 1)
                mask = lines.add(ops.LANE_MASK, dtypes.bool_.vec(self.lanes),
                                 (lines.times(count, parts),))
                row = self.where(mask, row, lines.widen(build.const(0, self.dtype), self.lanes))
            self.store_vector(target, at, row)

    def modulus(self, numbers: UOp, i: UOp) -> UOp:
        """Return the absolute value of a number: of a complex one, a sqrt(1 + (b / a)**2) for its
        parts a >= b, of which no square overflows."""
        at = self.lines.times(i, self.parts)
        sizes = []
        for part in range(self.parts):
            x = self.load(numbers, self.lines.plus(at, part))
            minus = self.lines.add(ops.NEG, self.dtype, (x,))
            sizes.append(self.where(self.binary(ops.CMPLT, x, minus), minus, x))
        if self.parts == 1:
            return sizes[0]
        is_less = self.binary(ops.CMPLT, *sizes)
        a, b = self.where(is_less, *sizes[::-1]), self.where(is_less, *sizes)
        one, zero = (build.const(x, self.dtype) for x in (1, 0))
        is_zero = self.binary(ops.CMPLE, a, zero)
        ratio = self.binary(ops.DIV, b, self.where(is_zero, one, a))
        square = self.binary(ops.ADD, self.binary(ops.MUL, ratio, ratio), one)
        return self.binary(ops.MUL, a, self.lines.add(ops.SQRT, self.dtype, (square,)))

    def _mean(self, a: UOp, b: UOp, part: int | None = None) -> UOp:
        """Return the mean of numbers and of conjugates; ``part``: of this part."""
        lanes = a.dtype.lanes
        half, minus = (self.lines.widen(build.const(x, self.dtype), lanes) for x in (0.5, -1.0))
        if part is None and self.parts == 2:
            ones = self.lines.widen(build.const(1.0, self.dtype), lanes)
            alternating = tuple([i + lanes * (i % 2) for i in range(lanes)])
            minus = self.lines.add(ops.SHUFFLE, a.dtype, (ones, minus), alternating)
        if part == 1 or part is None and self.parts == 2:
            b = self.binary(ops.MUL, b, minus)
        return self.binary(ops.MUL, self.binary(ops.ADD, a, b), half)

    def lower_to_columns(self, target: UOp, source: UOp) -> None:
        """Copy the lower triangle of a matrix of rows, or of its symmetric part, to one of columns.
        """
        is_mean = "symmetrize" in self.options
        n = self.emit("n")
        whole = self._whole(n)
        blocks = self.lines.divide(whole, self.square)
        i = self.each(0, blocks)
        self._transpose_block(target, source, n, n, i, self.each(i, blocks), is_mean=is_mean)
        self.done()
        self.done()
        column, row = self.each(0, n), self.each(whole, n)
        to, at = (self.lines.times(self.lines.plus(self.lines.times(a, n), b), self.parts)
                  for a, b in ((column, row), (row, column)))
        for part in range(self.parts):
            mirrored = self.lines.plus(to, part)
            value = self.load(source, self.lines.plus(at, part))
            self.store(target, mirrored, self._mean(value, self.load(source, mirrored), part)
                       if is_mean else value)
        self.done()
        self.done()

    def lower_to_rows(self, target: UOp, source: UOp) -> None:
        """Copy the lower triangle of a matrix of columns to one of rows, zeros above the diagonal.
        """
        n, zero = self.emit("n"), build.const(0, self.dtype)
        whole = self._whole(n)
        i = self.each(0, self.lines.divide(whole, self.square))
        after = self.lines.plus(i, 1)
        self._transpose_block(target, source, n, n, i, self.each(0, after), is_lower=True)
        self.done()
        row = self.each(self.lines.times(i, self.square), self.lines.times(after, self.square))
        column = self.each(self.lines.times(after, self.square), n)
        to = self.lines.times(self.lines.plus(self.lines.times(row, n), column), self.parts)
        for part in range(self.parts):
            self.store(target, self.lines.plus(to, part), zero)
        self.done()
        self.done()
        self.done()
        row = self.each(whole, n)
        column = self.each(0, n)
        to, at = (self.lines.times(self.lines.plus(self.lines.times(a, n), b), self.parts)
                  for a, b in ((row, column), (column, row)))
        for part in range(self.parts):
            value = self.load(source, self.lines.plus(at, part))
            value = self.where(self.binary(ops.CMPLE, column, row), value, zero)
            self.store(target, self.lines.plus(to, part), value)
        self.done()
        self.done()

    def call_if_finite(self, info: UOp, total: UOp, numbers: UOp, count: UOp, name: str,
                       *arguments: UOp) -> None:
        """Call a routine whose results are wrong, or that complains, if a number is not finite;
        then it counts as failed. ``total`` is memory for a vector: 0 times all of them."""
        at, zero = build.index_const(0), build.const(0, self.dtype)
        self.lines.put(ops.STORE, dtypes.void, (info, build.const(1, dtypes.int32)))
        zeros = self.lines.widen(zero, self.lanes)
        self.store_vector(total, at, zeros)
        size = self.emit(count)
        whole = self.lines.divide(size, self.lanes)
        start = self.lines.times(self.each(0, whole), self.lanes)
        product = self.binary(ops.MUL, self.load_vector(numbers, start, self.lanes), zeros)
        before = self.load_vector(total, at, self.lanes)
        self.store_vector(total, at, self.binary(ops.ADD, before, product))
        self.done()
        for source, first, stop, factor in (
                (numbers, self.lines.times(whole, self.lanes), size, zero),
                (total, build.index_const(1), build.index_const(self.lanes), None)):
            x = self.load(source, self.each(first, stop))
            x = x if factor is None else self.binary(ops.MUL, x, factor)
            self.store(total, at, self.binary(ops.ADD, self.load(total, at), x))
            self.done()
        branch = self.lines.branch(self.binary(ops.CMPEQ, self.load(total, at), zero))
        self.call(name, *arguments)
        self.lines.end_branch(branch)

    def failed(self, info: UOp) -> UOp:
        """Return whether a routine failed."""
        value = self.lines.put(ops.LOAD, dtypes.int32, (info,))
        return self.binary(ops.CMPNE, value, build.const(0, dtypes.int32))

    def nan_if(self, failed: UOp, *results: int) -> None:
        """Overwrite results by NaNs if a routine failed."""
        branch = self.lines.branch(failed)
        for index in results:
            mark, axes = self.signature.outs[index]
            parts = 1 + linalg.marked_dtype(mark, self.matrix_dtype).is_complex
            self.fill(self.result(index), self.product(*axes, parts), math.nan)
        self.lines.end_branch(branch)
