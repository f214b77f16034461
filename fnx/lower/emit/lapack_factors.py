"""Calls of LAPACK for factors and solutions: cholesky, lu, qr, and the solvers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.lower.emit.lapack import BLOCK, LapackEmitter
from fnx.lower.emit.linalg_emitter import Plan


def cholesky(e: LapackEmitter) -> Plan:
    """LAPACK's lower triangle is the upper one of rows. Matrices are transposed, as the routine for
    the lower triangle is faster, if that takes little; else it is the upper triangle of columns.
    The upper factor of rows is the lower one of columns."""
    if e.square == 1 or "upper" in e.options:
        return _cholesky_in_place(e)
    info, lower, n = e.info_cell(), e.char_cell("L"), e.int_cell("n")
    work = e.numbers(e.product("n", "n"))
    e.int_cell(e.product("n", "n"))
    e.int_cell(1)

    def run() -> None:
        if "transpose" in e.options:
            e.copy(work, e.operand(0), e.product("n", "n"))
        else:
            e.lower_to_columns(work, e.operand(0))
        e.call("potrf", lower, n, work, n, info)
        branch = e.lines.branch(e.failed(info))
        e.fill(work, e.product("n", "n"), math.nan)
        e.lines.end_branch(branch)
        e.lower_to_rows(e.result(0), work)
    return run


def _cholesky_in_place(e: LapackEmitter) -> Plan:
    is_upper = "upper" in e.options
    info, upper, lower, n = e.info_cell(), e.char_cell("U"), e.char_cell("L"), e.int_cell("n")
    zero, before = e.float_cell(0.0), e.int_cell("p")
    triangle, other = (lower, upper) if is_upper else (upper, lower)
    e.int_cell(e.product("n", "n"))
    e.int_cell(1)

    def run() -> None:
        a, out = e.operand(0), e.result(0)
        e.copy(out, a, e.product("n", "n"))
        e.call("potrf", triangle, n, out, n, info)
        failed = e.failed(info)
        e.nan_if(failed, 0)
        second = e.element(out, e.lines.times(e.emit("n"), e.parts) if is_upper else
                           build.index_const(e.parts))
        e.call("laset", other, before, before, zero, zero, second, n)
    return run


def triangular_solve(e: LapackEmitter) -> Plan:
    """A X = B of rows is X' A' = B' of columns. One right-hand side is in order both ways, and
    faster as a column: (A')' x = b."""
    lower, n, r, one = "lower" in e.options, e.int_cell("n"), e.int_cell("r"), e.float_cell(1.0)
    no, yes = ("T", "N") if "transpose" in e.options else ("N", "T")
    diagonal = e.char_cell("U" if "unit" in e.options else "N")
    if "right" in e.options:
        side, transpose, rows, columns = e.char_cell("L"), e.char_cell(no), n, r
    else:
        side, transpose = e.char_cell("R", "L"), e.char_cell(no, yes)
        rows, columns = (e.int_cell(e.if_one_side(*x)) for x in (("n", "r"), ("r", "n")))
    uplo = e.char_cell("U" if lower else "L")

    def run() -> None:
        a, b, out = e.operand(0), e.operand(1), e.result(0)
        e.copy(out, b, e.product("n", "r"))
        e.call("trsm", side, uplo, transpose, diagonal, rows, columns, one, a, n, out, rows,
               library="blas")
    return run


def lu(e: LapackEmitter) -> Plan:
    """Also lu_diagonal: of square matrices, the diagonal instead of the factors."""
    is_whole = e.arg.routine == "lu"
    info, n = e.info_cell(), e.int_cell("n")
    m = e.int_cell("m") if is_whole else n
    work = e.numbers(e.product("m" if is_whole else "n", "n"))

    def run() -> None:
        a, out, pivots, order = e.operand(0), *map(e.result, range(3))
        e.transpose(work, a, "m" if is_whole else "n", "n")
        e.call("getrf", m, n, work, m, pivots, info)
        if is_whole:
            e.transpose(out, work, "n", "m")
        else:
            i = e.each(0, "n")
            e.move(out, i, work, e.lines.times(i, e.lines.plus(e.emit("n"), 1)))
            e.done()
        _permutation(e, pivots, order, "m" if is_whole else "n")
    return run


def _permutation(e: LapackEmitter, pivots: UOp, order: UOp, rows: str) -> None:
    """Count pivots from 0, and exchange the numbers of the rows by them."""
    i = e.each(0, rows)
    e.store(order, i, e.lines.add(ops.CAST, dtypes.int32, (i,)))
    e.done()
    i = e.each(0, "k")
    pivot = e.binary(ops.SUB, e.load(pivots, i), build.const(1, dtypes.int32))
    e.store(pivots, i, pivot)
    other = e.lines.add(ops.CAST, dtypes.index, (pivot,))
    first, second = e.load(order, i), e.load(order, other)
    e.store(order, i, second)
    e.store(order, other, first)
    e.done()


def lu_solve(e: LapackEmitter) -> Plan:
    """The factors are of rows: L U X = P B is X' U' L' = (P B)' of columns."""
    one = e.float_cell(1.0)
    rows, columns = (e.int_cell(e.if_one_side(*x)) for x in (("n", "r"), ("r", "n")))
    n, side, lower, upper, unit, non_unit = e.int_cell("n"), e.char_cell("R", "L"), \
        *map(e.char_cell, "LUUN")
    no, yes = e.char_cell("N", "T"), e.char_cell("T", "N")
    transpose = "transpose" in e.options
    work = e.numbers(e.product("n", "r")) if transpose else None
    if transpose:
        e.int_cell(e.product("n", "r"))

    def permute(target: UOp, source: UOp, order: UOp, scatter: bool) -> None:
        """Move row order[i] to row i, or back."""
        i = e.each(0, "n")
        other = e.lines.add(ops.CAST, dtypes.index, (e.load(order, i),))
        to, of = (other, i) if scatter else (i, other)
        length = e.emit("r")
        j = e.each(0, "r")
        e.move(target, e.lines.plus(e.lines.times(to, length), j),
               source, e.lines.plus(e.lines.times(of, length), j))
        e.done()
        e.done()

    def run() -> None:
        factors, order, b, out = e.operand(1), e.operand(2), e.operand(3), e.result(0)

        def solve(x: UOp, uplo: UOp, diagonal: UOp, trans: UOp) -> None:
            e.call("trsm", side, uplo, trans, diagonal, rows, columns, one, factors, n, x, rows,
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


def solve(e: LapackEmitter) -> Plan:
    """Singular matrices give infinities and NaN, as no step stops at a zero."""
    info, n, r, no = e.info_cell(), e.int_cell("n"), e.int_cell("r"), e.char_cell("N")
    work, x = e.numbers(e.product("n", "n")), e.numbers(e.product("n", "r"))
    pivots = e.scratch(dtypes.int32, "n")

    def run() -> None:
        e.transpose(work, e.operand(0), "n", "n")
        e.transpose(x, e.operand(1), "n", "r")
        e.call("getrf", n, n, work, n, pivots, info)
        e.call("getrs", no, n, r, work, n, pivots, x, n, info)
        e.transpose(e.result(0), x, "r", "n")
    return run


def geqrf(e: LapackEmitter) -> Plan:
    info, m, n = e.info_cell(), e.int_cell("m"), e.int_cell("n")
    work = e.numbers(e.product("m", "n"))
    space, size = e.workspace(e.product("n", BLOCK))

    def run() -> None:
        a, out, taus = e.operand(0), e.result(0), e.result(1)
        e.transpose(work, a, "m", "n")
        e.call("geqrf", m, n, work, m, taus, space, size, info)
        e.transpose(out, work, "n", "m")
    return run


def householder_product(e: LapackEmitter) -> Plan:
    info, m, n, t = e.info_cell(), e.int_cell("m"), e.int_cell("n"), e.int_cell("t")
    work = e.numbers(e.product("m", "n"))
    space, size = e.workspace(e.product("n", BLOCK))

    def run() -> None:
        a, taus, out = e.operand(0), e.operand(1), e.result(0)
        e.transpose(work, a, "m", "n")
        e.call("orgqr", m, n, t, work, m, taus, space, size, info)
        e.transpose(out, work, "n", "m")
    return run


def qr(e: LapackEmitter) -> Plan:
    pivoting, columns = "pivoting" in e.options, "m" if "full" in e.options else "k"
    info, m, n = e.info_cell(), e.int_cell("m"), e.int_cell("n")
    k, c = e.int_cell("k"), e.int_cell(columns)
    work = e.numbers(e.product("m", e.most("n", columns)))
    taus = e.numbers("k")
    space, size = e.workspace(e.product(e.sum(e.most("n", columns), 1), BLOCK))
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


def tridiagonal_solve(e: LapackEmitter) -> Plan:
    info, n, r = e.info_cell(), e.int_cell("n"), e.int_cell("r")
    low, middle, up = (e.numbers("n") for _ in range(3))
    work = e.numbers(e.product("n", "r"))
    perturb = _perturbed_solution(e) if "perturb" in e.options else None

    def run() -> None:
        for target, operand in ((low, 0), (middle, 1), (up, 2)):
            e.copy(target, e.operand(operand), e.length("n"))
        e.transpose(work, e.operand(3), "n", "r")
        second = e.element(low, build.index_const(e.parts))
        if perturb is None:
            e.call("gtsv", n, r, second, middle, up, work, n, info)
        else:
            perturb(second, middle, up, work)
        e.transpose(e.result(0), work, "r", "n")
        if perturb is None:
            e.nan_if(e.failed(info), 0)
    return run


def _perturbed_solution(e: LapackEmitter) -> Callable[[UOp, UOp, UOp, UOp], None]:
    """Factors, pivots below the least normal number plus eps times the largest element of U, and
    the solution: as linalg_semantics.py says."""
    info, n, r, no = e.info_cell(), e.int_cell("n"), e.int_cell("r"), e.char_cell("N")
    limits = np.finfo(e.dtype.np)
    tiny, zero, one = (build.const(float(x), e.dtype) for x in (limits.tiny, 0, 1))
    order, above = e.scratch(dtypes.int32, "n"), e.numbers("n")
    largest, at_zero = e.scratch(e.dtype, 1), build.index_const(0)

    def rise(x: UOp, count: UOp) -> None:
        """Keep the largest element."""
        i = e.each(0, count)
        size = e.modulus(x, i)
        best = e.load(largest, at_zero)
        e.store(largest, at_zero, e.where(e.binary(ops.CMPLT, best, size), size, best))
        e.done()

    def run(low: UOp, middle: UOp, up: UOp, work: UOp) -> None:
        e.call("gttrf", n, low, middle, up, above, order, info)
        e.store(largest, at_zero, zero)
        length = e.emit("n")
        for x, shorter in ((middle, 0), (up, 1), (above, 2)):
            rise(x, e.lines.add(ops.MAX, dtypes.index, (e.lines.plus(length, -shorter), at_zero)))
        eps = build.const(float(limits.eps), e.dtype)
        change = e.lines.add(ops.MAX, e.dtype, (
            e.binary(ops.MUL, e.load(largest, at_zero), eps), tiny))
        opposite = e.lines.add(ops.NEG, e.dtype, (change,))
        i = e.each(0, "n")
        at = e.lines.times(i, e.parts)
        pivot = e.load(middle, at)
        is_negative = e.binary(ops.CMPLT, e.binary(ops.DIV, one, pivot), zero)  # also -0
        signed = e.where(is_negative, opposite, change)
        moved = e.binary(ops.ADD, pivot, signed)
        is_tiny = e.binary(ops.CMPLT, e.modulus(middle, i), tiny)
        e.store(middle, at, e.where(is_tiny, moved, pivot))
        e.done()
        e.call("gttrs", no, n, r, low, middle, up, above, order, work, n, info)
    return run
