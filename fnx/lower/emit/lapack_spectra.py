"""Calls of LAPACK for values and vectors: eigh, svd, eig, Schur forms, and what leads to them."""

from __future__ import annotations

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.lower.emit.lapack import BLOCK, LapackEmitter
from fnx.lower.emit.linalg_emitter import Plan


def eigh(e: LapackEmitter) -> Plan:
    vectors = e.arg.routine == "eigh"
    info, n = e.info_cell(), e.int_cell("n")
    job, uplo = e.char_cell("NV"[vectors]), e.char_cell("L" if "lower" in e.options else "U")
    work = e.numbers(e.product("n", "n"))
    space, size = e.workspace(e.product("n", "n", 2), e.product(e.sum("n", 1), BLOCK))
    ints = e.sum(e.product("n", 5), 3)
    int_space, int_size = e.scratch(dtypes.int32, ints), e.int_cell(ints)
    real_space: tuple[UOp, ...] = ()
    if e.parts == 2:
        reals = e.sum(e.product("n", "n", 2), e.product("n", 5), 1)
        real_space = e.scratch(e.dtype, reals), e.int_cell(reals)

    def run() -> None:
        a, w = e.operand(0), e.result(0)
        if "symmetrize" in e.options:
            e.lower_to_columns(work, a)
        else:
            e.transpose(work, a, "n", "n")
        e.call("syevd", job, uplo, n, work, n, w, space, size, *real_space, int_space, int_size,
               info)
        failed = e.failed(info)
        if vectors:
            e.transpose(e.result(1), work, "n", "n")
        e.nan_if(failed, *range(1 + vectors))
    return run


def svd(e: LapackEmitter) -> Plan:
    full, vectors = "full" in e.options, e.arg.routine == "svd"
    columns, rows = ("m", "n") if full else ("k", "k")
    info, m, n, ldvt = e.info_cell(), e.int_cell("m"), e.int_cell("n"), e.int_cell(rows)
    job = e.char_cell("A" if full else "S" if vectors else "N")
    work, total = e.numbers(e.product("m", "n")), e.scratch(e.dtype, e.lanes)
    left = e.numbers(e.product("m", columns) if vectors else 1)
    right = e.numbers(e.product(rows, "n") if vectors else 1)
    space, size = e.workspace(e.product("k", "k", 4), e.product("k", 7), e.length("m"),
                             e.product(e.sum("m", "n"), BLOCK))
    int_space = e.scratch(dtypes.int32, e.product("k", 8))
    longest = e.most("m", "n")  # of the real workspace: LAPACK's bound for all jobs
    real_space = [e.scratch(e.dtype, e.sum(e.product("k", "k", 7), e.product("k", longest, 2),
                                           e.product("k", 7)))] if e.parts == 2 else []

    def run() -> None:
        a, s = e.operand(0), e.result(0)
        e.transpose(work, a, "m", "n")
        e.call_if_finite(info, total, work, e.product("m", "n", e.parts), "gesdd", job, m, n, work,
                         m, s, left, m, right, ldvt, space, size, *real_space, int_space, info)
        failed = e.failed(info)
        if vectors:
            e.transpose(e.result(1), left, columns, "m")
            e.transpose(e.result(2), right, "n", rows)
        e.nan_if(failed, *range(3 if vectors else 1))
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
        self.space, self.size = e.workspace(e.product(e.sum(letter, 1), BLOCK))
        self.real_space = [e.scratch(e.dtype, letter)] if e.parts == 2 else []
        self.flags, self.total = e.scratch(dtypes.int32, letter), e.scratch(e.dtype, e.lanes)

    def run(self, a: UOp) -> None:
        self.e.transpose(self.a, a, self.letter, self.letter)
        count = self.e.product(self.letter, self.letter, self.e.parts)
        self.e.call_if_finite(
            self.info, self.total, self.a, count, "gees", self.job, self.sort, self.info, self.n,
            self.a, self.n, self.n_sorted, *self.values, self.vectors, self.n, self.space,
            self.size, *self.real_space, self.flags, self.info)


def schur(e: LapackEmitter) -> Plan:
    form = _Schur(e, "n")

    def run() -> None:
        form.run(e.operand(0))
        failed = e.failed(form.info)
        for index, part in enumerate((form.a, form.vectors)):
            e.transpose(e.result(index), part, "n", "n")
        e.nan_if(failed, 0, 1)
    return run


def _unpack_vectors(e: LapackEmitter, imaginary: UOp, out: UOp, packed: UOp) -> None:
    """Two columns of a real matrix are the parts of a pair of conjugate vectors."""
    length, zero = e.emit("n"), build.const(0, e.dtype)
    j = e.each(0, "n")
    part = e.load(imaginary, j)
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


def eig(e: LapackEmitter) -> Plan:
    vectors, left = e.arg.routine == "eig", "left" in e.options
    info, n = e.info_cell(), e.int_cell("n")
    jobs = [e.char_cell("NV"[on]) for on in (left, vectors)]
    square, total = e.product("n", "n"), e.scratch(e.dtype, e.lanes)
    work = e.numbers(square)
    spaces = [e.numbers(square if on else 1) for on in (left, vectors)]
    values = [e.scratch(e.dtype, "n") for _ in range(2)] if e.parts == 1 else []
    space, size = e.workspace(e.product(e.sum("n", 1), BLOCK))
    real_space = [e.scratch(e.dtype, e.product("n", 2))] if e.parts == 2 else []

    def run() -> None:
        w = e.result(0)
        e.transpose(work, e.operand(0), "n", "n")
        e.call_if_finite(info, total, work, e.product("n", "n", e.parts), "geev", *jobs, n, work,
                         n, *(values or [w]), spaces[0], n, spaces[1], n, space, size,
                         *real_space, info)
        failed = e.failed(info)
        if values:
            i = e.each(0, "n")
            at = e.lines.times(i, 2)
            e.store(w, at, e.load(values[0], i))
            e.store(w, e.lines.plus(at, 1), e.load(values[1], i))
            e.done()
        wanted = [x for x, on in zip(spaces, (left, vectors)) if on]
        for index, packed in enumerate(wanted, 1):
            if values:
                _unpack_vectors(e, values[1], e.result(index), packed)
            else:
                e.transpose(e.result(index), packed, "n", "n")
        e.nan_if(failed, *range(1 + len(wanted)))
    return run


def hessenberg(e: LapackEmitter) -> Plan:
    info, n, one = e.info_cell(), e.int_cell("n"), e.int_cell(1)
    work = e.numbers(e.product("n", "n"))
    space, size = e.workspace(e.product("n", BLOCK), build.index_const(80 * 65))

    def run() -> None:
        e.transpose(work, e.operand(0), "n", "n")
        e.call("gehrd", n, one, n, work, n, e.result(1), space, size, info)
        e.transpose(e.result(0), work, "n", "n")
    return run


def tridiagonal(e: LapackEmitter) -> Plan:
    info, n = e.info_cell(), e.int_cell("n")
    uplo = e.char_cell("L" if "lower" in e.options else "U")
    work = e.numbers(e.product("n", "n"))
    space, size = e.workspace(e.product("n", BLOCK))

    def run() -> None:
        e.transpose(work, e.operand(0), "n", "n")
        e.call("sytrd", uplo, n, work, n, e.result(1), e.result(2), e.result(3), space, size, info)
        e.transpose(e.result(0), work, "n", "n")
    return run


def solve_sylvester(e: LapackEmitter) -> Plan:
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
        for form in (left, right):
            e.nan_if(e.failed(form.info), 0)
    return run
