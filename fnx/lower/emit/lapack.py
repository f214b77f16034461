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

Programs are shared: the number of matrices and their lengths are scalars, in the order of the
letters in the signature of the routine (core/ir/linalg.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.core.ir import build, dtypes, linalg, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.spec_program import NON_INSTRUCTIONS
from fnx.core.rewriting import symbolic
from fnx.lower.emit.builder import ProgramBuilder

_LINE = 64  # bytes: alignment of scratch memory
_BLOCK = 64  # rows of a block in LAPACK's blocked routines, at most
PREFIXES = {dtypes.float32: "s", dtypes.float64: "d", dtypes.complex64: "c",
            dtypes.complex128: "z"}
# the names of routines that differ for complex matrices
_COMPLEX_NAMES = {"orgqr": "ungqr", "syevd": "heevd", "sytrd": "hetrd"}


def program(node: UOp) -> UOp:
    """Return the PROGRAM of a LINALG over a part of its batch.

    >>> types = (((8, 3, 3), dtypes.float32),)
    >>> arg = op_args.Linalg("cholesky", "cholesky", (), types, types)
    >>> program(generalize_sizes(UOp(ops.LINALG, dtypes.void, (), arg))[0]).op
    PROGRAM
    """
    return LapackEmitter(node).program()


def scratch(node: UOp) -> UOp:
    """Return the scratch bytes per worker as an index expression."""
    emitter = LapackEmitter(node)
    emitter.program()
    return symbolic.simplify(emitter.nbytes)


def generalize_sizes(node: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """Return a LINALG for any batch and any matrices, and its scalars as CONSTs."""
    arg: op_args.Linalg = node.arg
    of = arg.of_complex or arg
    batch, lengths = linalg.matrix_lengths(of.routine, of.options, of.ins)
    letters = linalg.signature(arg.routine, arg.options).letters
    scalars = [math.prod(batch), *[lengths[a] for a in letters]]
    any_size = _without_shapes(arg)
    if arg.of_complex is not None:
        any_size = any_size.replace(of_complex=_without_shapes(arg.of_complex))
    return node.replace(arg=any_size), tuple(map(build.index_const, scalars))


def _without_shapes(arg: op_args.Linalg) -> op_args.Linalg:
    ins, outs = (tuple([((), t) for _, t in types]) for types in (arg.ins, arg.outs))
    return arg.replace(ins=ins, outs=outs, any_size=True)


def batch_size(node: UOp) -> UOp:
    return build.var(0, dtypes.index)


class LapackEmitter:
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
        self.nbytes = build.index_const(0)
        self._stages = 0
        self._cells: dict[object, UOp] = {}
        letters = self.signature.letters
        self.lengths = {a: build.var(1 + i, dtypes.index) for i, a in enumerate(letters)}
        n = self.lengths.get("n")
        if n is not None:
            m = self.lengths.get("m", n)
            self.lengths["k"] = n if m is n else build.elementwise(ops.MIN, m, n)
            self.lengths["p"] = build.elementwise(ops.MAX, build.sub(n, build.index_const(1)),
                                                  build.index_const(0))

    def program(self) -> UOp:
        emit = EMITTERS[self.arg.routine]
        plan = emit(self)  # allocates scratch memory and stores integers, before the loop
        self.matrix = self.lines.open(*[UOp(ops.PARALLEL_RANGE, dtypes.index, (), i)
                                        for i in (0, 1)])
        plan()
        self.lines.close([])
        return self.lines.program()

    # ---- lengths

    def length(self, value: UOp | int | str) -> UOp:
        """Return an index expression: a letter of the signature stands for its length."""
        return self.lengths[value] if isinstance(value, str) else \
            build.index_const(value) if isinstance(value, int) else value

    def product(self, *values: UOp | int | str) -> UOp:
        out = build.index_const(1)
        for value in values:
            out = symbolic.simplify(build.mul(out, self.length(value)))
        return out

    def sum(self, *values: UOp | int | str) -> UOp:
        out = build.index_const(0)
        for value in values:
            out = symbolic.simplify(build.add(out, self.length(value)))
        return out

    def most(self, a: UOp | int | str, b: UOp | int | str) -> UOp:
        return build.elementwise(ops.MAX, self.length(a), self.length(b))

    def emit(self, expression: UOp | int | str) -> UOp:
        """Emit the lines of an index expression."""
        values: dict[UOp, UOp] = {}
        for node in toposort([self.length(expression)]):
            values[node] = node if node.op in NON_INSTRUCTIONS else self.lines.add(
                node.op, node.dtype, tuple([values[s] for s in node.src]), node.arg)
        return values[self.length(expression)]

    # ---- memory

    def scratch(self, t: DType, count: UOp | int | str) -> UOp:
        """Allocate scratch memory for ``count`` elements; before the loop over matrices."""
        nbytes = self.sum(self.product(self.length(count), t.itemsize), _LINE - 1)
        lines = build.idiv(nbytes, build.index_const(_LINE))
        offset, self.nbytes = self.nbytes, self.sum(self.nbytes, self.product(lines, _LINE))
        self._stages += 1
        return self.lines.put(ops.SCRATCH, t, (self.emit(symbolic.simplify(offset)),),
                              op_args.Stage(self._stages, "PRIV"))

    def numbers(self, count: UOp | int | str) -> UOp:
        """Allocate scratch memory for numbers of the dtype of the matrices."""
        return self.scratch(self.dtype, self.product(count, self.parts))

    def int_cell(self, value: UOp | int | str) -> UOp:
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

    def char_cell(self, text: str) -> UOp:
        """Return the address of a character."""
        if text not in self._cells:
            cell = self.element(self.scratch(dtypes.uint8, 1), build.index_const(0))
            self.lines.put(ops.STORE, dtypes.void, (cell, build.const(ord(text), dtypes.uint8)))
            self._cells[text] = cell
        return self._cells[text]

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

    def operand(self, slot: int) -> UOp:
        """Return the address of the current matrix of an operand, or of a result after them."""
        parts = (*self.signature.ins, *self.signature.outs)
        mark, axes = parts[slot]
        t = linalg.marked_dtype(mark, self.matrix_dtype)
        buffer = UOp(ops.REF, t.real, (), op_args.Ref(slot, "", t.real.itemsize))
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

    # ---- lines

    def each(self, start: UOp | int | str, stop: UOp | int | str) -> UOp:
        return self.lines.open(self.emit(start), self.emit(stop))

    def done(self, *nexts: UOp) -> list[UOp]:
        return self.lines.close(nexts)

    def binary(self, op: Op, a: UOp, b: UOp) -> UOp:
        return self.lines.add(op, dtypes.bool_ if op in ops.COMPARISONS else a.dtype, (a, b))

    def where(self, condition: UOp, a: UOp, b: UOp) -> UOp:
        return self.lines.add(ops.WHERE, a.dtype, (condition, a, b))

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

    def transpose(self, target: UOp, source: UOp, rows: UOp | int | str,
                  columns: UOp | int | str) -> None:
        """Copy a matrix of so many rows and columns to its transpose."""
        r, c = self.emit(rows), self.emit(columns)
        i = self.each(0, c)
        j = self.each(0, r)
        self.move(target, self.lines.plus(self.lines.times(i, r), j),
                  source, self.lines.plus(self.lines.times(j, c), i))
        self.done()
        self.done()

    def move(self, target: UOp, to: UOp, source: UOp, at: UOp) -> None:
        """Copy a number: both parts of a complex one."""
        to, at = self.lines.times(to, self.parts), self.lines.times(at, self.parts)
        for part in range(self.parts):
            self.store(target, self.lines.plus(to, part),
                       self.load(source, self.lines.plus(at, part)))

    def succeeded(self, info: UOp) -> UOp:
        """Return whether a routine succeeded."""
        value = self.lines.put(ops.LOAD, dtypes.int32, (info,))
        return self.binary(ops.CMPEQ, value, build.const(0, dtypes.int32))

    def nan_unless(self, succeeded: UOp, *results: int) -> None:
        """Overwrite results by NaNs if a routine failed."""
        failed = self.lines.add(ops.NOT, dtypes.bool_, (succeeded,))
        branch = self.lines.branch(failed)
        for index in results:
            mark, axes = self.signature.outs[index]
            parts = 1 + linalg.marked_dtype(mark, self.matrix_dtype).is_complex
            self.fill(self.result(index), self.product(*axes, parts), math.nan)
        self.lines.end_branch(branch)

    def fill(self, target: UOp, count: UOp | int | str, value: float) -> None:
        i = self.each(0, count)
        self.store(target, i, build.const(value, target.dtype))
        self.done()


Plan = Callable[[], None]
Emitter = Callable[[LapackEmitter], Plan]


def _cholesky(e: LapackEmitter) -> Plan:
    """The lower triangle of rows is the upper one of columns, also of complex matrices."""
    info, upper, lower, n = e.info_cell(), e.char_cell("U"), e.char_cell("L"), e.int_cell("n")
    zero, before = e.float_cell(0.0), e.int_cell("p")
    e.int_cell(e.product("n", "n"))
    e.int_cell(1)

    def run() -> None:
        a, out = e.operand(0), e.result(0)
        e.copy(out, a, e.product("n", "n"))
        e.call("potrf", upper, n, out, n, info)
        ok = e.succeeded(info)
        e.nan_unless(ok, 0)
        second = e.element(out, build.index_const(e.parts))
        e.call("laset", lower, before, before, zero, zero, second, n)
    return run


def _triangular_solve(e: LapackEmitter) -> Plan:
    """A X = B of rows is X' A' = B' of columns."""
    right, lower = "right" in e.options, "lower" in e.options
    side, uplo = e.char_cell("L" if right else "R"), e.char_cell("U" if lower else "L")
    transpose = e.char_cell("T" if "transpose" in e.options else "N")
    diagonal = e.char_cell("U" if "unit" in e.options else "N")
    n, r, one = e.int_cell("n"), e.int_cell("r"), e.float_cell(1.0)
    rows, columns = (n, r) if right else (r, n)

    def run() -> None:
        a, b, out = e.operand(0), e.operand(1), e.result(0)
        e.copy(out, b, e.product("n", "r"))
        e.call("trsm", side, uplo, transpose, diagonal, rows, columns, one, a, n, out, rows,
               library="blas")
    return run


def _lu(e: LapackEmitter) -> Plan:
    info, m, n = e.info_cell(), e.int_cell("m"), e.int_cell("n")
    work = e.numbers(e.product("m", "n"))
    one = build.const(1, dtypes.int32)

    def run() -> None:
        a, out, pivots, order = e.operand(0), *map(e.result, range(3))
        e.transpose(work, a, "m", "n")
        e.call("getrf", m, n, work, m, pivots, info)
        e.transpose(out, work, "n", "m")
        i = e.each(0, "m")
        e.store(order, i, e.lines.add(ops.CAST, dtypes.int32, (i,)))
        e.done()
        i = e.each(0, "k")
        pivot = e.binary(ops.SUB, e.load(pivots, i), one)
        e.store(pivots, i, pivot)
        other = e.lines.add(ops.CAST, dtypes.index, (pivot,))
        first, second = e.load(order, i), e.load(order, other)
        e.store(order, i, second)
        e.store(order, other, first)
        e.done()
    return run


def _lu_solve(e: LapackEmitter) -> Plan:
    """The factors are of rows: L U X = P B is X' U' L' = (P B)' of columns."""
    n, r, one = e.int_cell("n"), e.int_cell("r"), e.float_cell(1.0)
    right, lower, upper, unit, non_unit, no, yes = map(e.char_cell, "RLUUNNT")
    transpose = "transpose" in e.options
    work = e.numbers(e.product("n", "r")) if transpose else None

    def permute(target: UOp, source: UOp, order: UOp, scatter: bool) -> None:
        """Move row order[i] to row i, or back."""
        i = e.each(0, "n")
        other = e.lines.add(ops.CAST, dtypes.index, (e.load(order, i),))
        to, of = (other, i) if scatter else (i, other)
        columns = e.emit("r")
        j = e.each(0, "r")
        e.move(target, e.lines.plus(e.lines.times(to, columns), j),
               source, e.lines.plus(e.lines.times(of, columns), j))
        e.done()
        e.done()

    def run() -> None:
        factors, order, b, out = e.operand(1), e.operand(2), e.operand(3), e.result(0)

        def solve(x: UOp, uplo: UOp, diagonal: UOp, trans: UOp) -> None:
            e.call("trsm", right, uplo, trans, diagonal, r, n, one, factors, n, x, r,
                   library="blas")

        if work is None:
            permute(out, b, order, False)
            solve(out, upper, unit, no)
            solve(out, lower, non_unit, no)
        else:
            e.copy(work, b, e.product("n", "r"))
            solve(work, lower, non_unit, yes)
            solve(work, upper, unit, yes)
            permute(out, work, order, True)
    return run


def _workspace(e: LapackEmitter, *sizes: UOp) -> tuple[UOp, UOp]:
    """Return scratch memory for a routine, and the address of its length."""
    count = e.sum(*sizes)
    return e.numbers(count), e.int_cell(count)


def _geqrf(e: LapackEmitter) -> Plan:
    info, m, n = e.info_cell(), e.int_cell("m"), e.int_cell("n")
    work = e.numbers(e.product("m", "n"))
    space, size = _workspace(e, e.product("n", _BLOCK))

    def run() -> None:
        a, out, taus = e.operand(0), e.result(0), e.result(1)
        e.transpose(work, a, "m", "n")
        e.call("geqrf", m, n, work, m, taus, space, size, info)
        e.transpose(out, work, "n", "m")
    return run


def _householder_product(e: LapackEmitter) -> Plan:
    info, m, n, t = e.info_cell(), e.int_cell("m"), e.int_cell("n"), e.int_cell("t")
    work = e.numbers(e.product("m", "n"))
    space, size = _workspace(e, e.product("n", _BLOCK))

    def run() -> None:
        a, taus, out = e.operand(0), e.operand(1), e.result(0)
        e.transpose(work, a, "m", "n")
        e.call("orgqr", m, n, t, work, m, taus, space, size, info)
        e.transpose(out, work, "n", "m")
    return run


def _qr(e: LapackEmitter) -> Plan:
    pivoting, columns = "pivoting" in e.options, "m" if "full" in e.options else "k"
    info, m, n = e.info_cell(), e.int_cell("m"), e.int_cell("n")
    k, c = e.int_cell("k"), e.int_cell(columns)
    work = e.numbers(e.product("m", e.most("n", columns)))
    taus = e.numbers("k")
    space, size = _workspace(e, e.product(e.sum(e.most("n", columns), 1), _BLOCK))
    real_space = [e.scratch(e.dtype, e.product("n", 2))] if e.parts == 2 else []
    zero, one = (build.const(i, dtypes.int32) for i in (0, 1))

    def run() -> None:
        a, q, r = e.operand(0), e.result(0), e.result(1)
        e.transpose(work, a, "m", "n")
        if pivoting:
            order = e.result(2)
            i = e.each(0, "n")
            e.store(order, i, zero)
            e.done()
            e.call("geqp3", m, n, work, m, order, taus, space, size,
                   *real_space, info)
            i = e.each(0, "n")
            e.store(order, i, e.binary(ops.SUB, e.load(order, i), one))
            e.done()
        else:
            e.call("geqrf", m, n, work, m, taus, space, size, info)
        rows, length = e.emit("m"), e.emit("n")
        i = e.each(0, columns)
        j = e.each(0, "n")
        at = e.lines.times(e.lines.plus(e.lines.times(j, rows), i), e.parts)
        to = e.lines.times(e.lines.plus(e.lines.times(i, length), j), e.parts)
        for part in range(e.parts):
            value = e.load(work, e.lines.plus(at, part))
            value = e.where(e.binary(ops.CMPLE, i, j), value, build.const(0, e.dtype))
            e.store(r, e.lines.plus(to, part), value)
        e.done()
        e.done()
        e.call("orgqr", m, c, k, work, m, taus, space, size, info)
        e.transpose(q, work, columns, "m")
    return run


def _eigh(e: LapackEmitter) -> Plan:
    vectors = e.arg.routine == "eigh"
    info, n = e.info_cell(), e.int_cell("n")
    job, uplo = e.char_cell("NV"[vectors]), e.char_cell("L" if "lower" in e.options else "U")
    work = e.numbers(e.product("n", "n"))
    space, size = _workspace(e, e.product("n", "n", 2), e.product(e.sum("n", 1), _BLOCK))
    ints = e.sum(e.product("n", 5), 3)
    int_space, int_size = e.scratch(dtypes.int32, ints), e.int_cell(ints)
    real_space: tuple[UOp, ...] = ()
    if e.parts == 2:
        reals = e.sum(e.product("n", "n", 2), e.product("n", 5), 1)
        real_space = e.scratch(e.dtype, reals), e.int_cell(reals)

    def run() -> None:
        a, w = e.operand(0), e.result(0)
        e.transpose(work, a, "n", "n")
        e.call("syevd", job, uplo, n, work, n, w, space, size, *real_space, int_space, int_size,
               info)
        ok = e.succeeded(info)
        if vectors:
            e.transpose(e.result(1), work, "n", "n")
        e.nan_unless(ok, *range(1 + vectors))
    return run


def _svd(e: LapackEmitter) -> Plan:
    full, vectors = "full" in e.options, e.arg.routine == "svd"
    columns, rows = ("m", "n") if full else ("k", "k")
    info, m, n, ldvt = e.info_cell(), e.int_cell("m"), e.int_cell("n"), e.int_cell(rows)
    job = e.char_cell("A" if full else "S" if vectors else "N")
    work = e.numbers(e.product("m", "n"))
    left = e.numbers(e.product("m", columns) if vectors else 1)
    right = e.numbers(e.product(rows, "n") if vectors else 1)
    space, size = _workspace(e, e.product("k", "k", 4), e.product("k", 7), e.length("m"),
                             e.product(e.sum("m", "n"), _BLOCK))
    int_space = e.scratch(dtypes.int32, e.product("k", 8))
    longest = e.most("m", "n")  # of the real workspace: LAPACK's bound for all jobs
    real_space = [e.scratch(e.dtype, e.sum(e.product("k", "k", 7), e.product("k", longest, 2),
                                           e.product("k", 7)))] if e.parts == 2 else []

    def run() -> None:
        a, s = e.operand(0), e.result(0)
        e.transpose(work, a, "m", "n")
        e.call("gesdd", job, m, n, work, m, s, left, m, right, ldvt, space, size, *real_space,
               int_space, info)
        ok = e.succeeded(info)
        if vectors:
            e.transpose(e.result(1), left, columns, "m")
            e.transpose(e.result(2), right, "n", rows)
        e.nan_unless(ok, *range(3 if vectors else 1))
    return run


class _Schur:
    """The Schur form of a matrix in scratch memory: a becomes t, and ``vectors`` is written."""

    def __init__(self, e: LapackEmitter, letter: str) -> None:
        self.e, self.letter = e, letter
        self.n, self.info, self.n_sorted = e.int_cell(letter), e.info_cell(), e.info_cell()
        self.job, self.sort = e.char_cell("V"), e.char_cell("N")
        square = e.product(letter, letter)
        self.a, self.vectors = e.numbers(square), e.numbers(square)
        # eigenvalues: two arrays of parts of real matrices, one of numbers of complex ones
        self.values = [e.numbers(letter) for _ in range(3 - e.parts)]
        self.space, self.size = _workspace(e, e.product(e.sum(letter, 1), _BLOCK))
        self.real_space = [e.scratch(e.dtype, letter)] if e.parts == 2 else []
        self.flags = e.scratch(dtypes.int32, letter)

    def run(self, a: UOp) -> None:
        self.e.transpose(self.a, a, self.letter, self.letter)
        self.e.call("gees", self.job, self.sort, self.info, self.n, self.a, self.n, self.n_sorted,
                    *self.values, self.vectors, self.n, self.space, self.size, *self.real_space,
                    self.flags, self.info)


def _schur(e: LapackEmitter) -> Plan:
    form = _Schur(e, "n")

    def run() -> None:
        form.run(e.operand(0))
        ok = e.succeeded(form.info)
        for index, part in enumerate((form.a, form.vectors)):
            e.transpose(e.result(index), part, "n", "n")
        e.nan_unless(ok, 0, 1)
    return run


def _eig(e: LapackEmitter) -> Plan:
    """Of a real matrix two columns are the parts of a pair of conjugate vectors."""
    vectors, left = e.arg.routine == "eig", "left" in e.options
    info, n = e.info_cell(), e.int_cell("n")
    jobs = [e.char_cell("NV"[on]) for on in (left, vectors)]
    square = e.product("n", "n")
    work = e.numbers(square)
    spaces = [e.numbers(square if on else 1) for on in (left, vectors)]
    values = [e.scratch(e.dtype, "n") for _ in range(2)] if e.parts == 1 else []
    space, size = _workspace(e, e.product(e.sum("n", 1), _BLOCK))
    real_space = [e.scratch(e.dtype, e.product("n", 2))] if e.parts == 2 else []
    zero = build.const(0, e.dtype)

    def unpack(out: UOp, packed: UOp) -> None:
        length = e.emit("n")
        j = e.each(0, "n")
        part = e.load(values[1], j)
        first = e.binary(ops.CMPLT, zero, part)
        second = e.binary(ops.CMPLT, part, zero)
        before = e.lines.add(ops.MAX, dtypes.index, (e.lines.plus(j, -1), build.index_const(0)))
        after = e.lines.add(ops.MIN, dtypes.index, (e.lines.plus(j, 1), e.lines.plus(length, -1)))
        re_column = e.lines.times(e.where(second, before, j), length)
        im_column = e.lines.times(e.where(first, after, j), length)
        i = e.each(0, "n")
        re = e.load(packed, e.lines.plus(re_column, i))
        im = e.load(packed, e.lines.plus(im_column, i))
        negative = e.lines.add(ops.NEG, e.dtype, (im,))
        im = e.where(first, im, e.where(second, negative, zero))
        at = e.lines.times(e.lines.plus(e.lines.times(i, length), j), 2)
        e.store(out, at, re)
        e.store(out, e.lines.plus(at, 1), im)
        e.done()
        e.done()

    def run() -> None:
        w = e.result(0)
        e.transpose(work, e.operand(0), "n", "n")
        e.call("geev", *jobs, n, work, n, *(values or [w]), spaces[0], n, spaces[1], n, space,
               size, *real_space, info)
        ok = e.succeeded(info)
        if values:
            i = e.each(0, "n")
            at = e.lines.times(i, 2)
            e.store(w, at, e.load(values[0], i))
            e.store(w, e.lines.plus(at, 1), e.load(values[1], i))
            e.done()
        wanted = [x for x, on in zip(spaces, (left, vectors)) if on]
        for index, packed in enumerate(wanted, 1):
            if values:
                unpack(e.result(index), packed)
            else:
                e.transpose(e.result(index), packed, "n", "n")
        e.nan_unless(ok, *range(1 + len(wanted)))
    return run


def _hessenberg(e: LapackEmitter) -> Plan:
    info, n, one = e.info_cell(), e.int_cell("n"), e.int_cell(1)
    work = e.numbers(e.product("n", "n"))
    space, size = _workspace(e, e.product("n", _BLOCK), build.index_const(80 * 65))

    def run() -> None:
        e.transpose(work, e.operand(0), "n", "n")
        e.call("gehrd", n, one, n, work, n, e.result(1), space, size, info)
        e.transpose(e.result(0), work, "n", "n")
    return run


def _tridiagonal(e: LapackEmitter) -> Plan:
    info, n = e.info_cell(), e.int_cell("n")
    uplo = e.char_cell("L" if "lower" in e.options else "U")
    work = e.numbers(e.product("n", "n"))
    space, size = _workspace(e, e.product("n", _BLOCK))

    def run() -> None:
        e.transpose(work, e.operand(0), "n", "n")
        e.call("sytrd", uplo, n, work, n, e.result(1), e.result(2), e.result(3), space, size, info)
        e.transpose(e.result(0), work, "n", "n")
    return run


def _tridiagonal_solve(e: LapackEmitter) -> Plan:
    info, n, r = e.info_cell(), e.int_cell("n"), e.int_cell("r")
    low, middle, up = (e.numbers("n") for _ in range(3))
    work = e.numbers(e.product("n", "r"))

    def run() -> None:
        for target, operand in ((low, 0), (middle, 1), (up, 2)):
            e.copy(target, e.operand(operand), e.length("n"))
        e.transpose(work, e.operand(3), "n", "r")
        second = e.element(low, build.index_const(e.parts))
        e.call("gtsv", n, r, second, middle, up, work, n, info)
        e.transpose(e.result(0), work, "r", "n")
        e.nan_unless(e.succeeded(info), 0)
    return run


def _solve_sylvester(e: LapackEmitter) -> Plan:
    """With a = U R U' and b = V S V': R Y + Y S = U' c V, then x = U Y V'."""
    left, right = _Schur(e, "m"), _Schur(e, "n")
    m, n, info = e.int_cell("m"), e.int_cell("n"), e.info_cell()
    no, yes, sign = e.char_cell("N"), e.char_cell("C"), e.int_cell(1)
    one, zero = e.float_cell(1.0), e.float_cell(0.0)
    scale = e.element(e.scratch(e.dtype, 1), build.index_const(0))
    x, y = (e.numbers(e.product("m", "n")) for _ in range(2))
    c_one = build.const(1, e.dtype)

    def multiply(trans: UOp, vectors: UOp, by: UOp) -> None:
        """y = vectors x, then x = y by."""
        e.call("gemm", trans, no, m, n, m, one, left.vectors, m, x, m, zero, y, m, library="blas")
        e.call("gemm", no, by, m, n, n, one, y, m, vectors, n, zero, x, m, library="blas")

    def run() -> None:
        left.run(e.operand(0))
        right.run(e.operand(1))
        e.transpose(x, e.operand(2), "m", "n")
        multiply(yes, right.vectors, no)
        e.call("trsyl", no, no, sign, m, n, left.a, m, right.a, n, x, m, scale, info)
        multiply(no, right.vectors, yes)
        factor = e.binary(ops.DIV, c_one, e.lines.put(ops.LOAD, e.dtype, (scale,)))
        i = e.each(0, e.product("m", "n", e.parts))
        e.store(x, i, e.binary(ops.MUL, e.load(x, i), factor))
        e.done()
        e.transpose(e.result(0), x, "n", "m")
    return run


EMITTERS: dict[str, Emitter] = {
    "cholesky": _cholesky, "triangular_solve": _triangular_solve, "lu": _lu,
    "lu_solve": _lu_solve, "qr": _qr, "geqrf": _geqrf,
    "householder_product": _householder_product, "eigh": _eigh, "eigvalsh": _eigh, "svd": _svd,
    "svdvals": _svd, "eig": _eig, "eigvals": _eig, "schur": _schur,
    "hessenberg": _hessenberg, "tridiagonal": _tridiagonal,
    "tridiagonal_solve": _tridiagonal_solve, "solve_sylvester": _solve_sylvester,
}
