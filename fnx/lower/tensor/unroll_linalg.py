"""Unroll linear algebra of small matrices: one program for all matrices of a batch.

    before  LINALG cholesky (p0)                            p0: (1000, 2, 2)
    after   a, b, d = p0[:, 0, 0], p0[:, 1, 0], p0[:, 1, 1]
            r = sqrt(a);  s = b / r;  t = sqrt(d - s * s)
            CONCAT(r, 0, s, t)                              (1000, 2, 2)

So vectors hold the same element of as many matrices as they have lanes, and what is computed before
and after is part of the same kernel. A routine that reads results of another one takes their
elements as they are: a solution needs no factors in memory. On the host that pays while the
elements of a matrix stay in registers. Larger ones are computed by loops (interleave_linalg.py),
and a few matrices, which fill no vector, by LAPACK; other targets have neither. The formulas are in
core/formulas/small_matrices.py; eigenvalues and singular values are found by a loop of rotations
(jacobi.py).

>>> from fnx.core.ir import dtypes
>>> a = build.param(0, dtypes.float32, (1000, 2, 2))
>>> fn = build.function(build_calls.linalg("cholesky", [a]), 1)
>>> out, = unroll_linalg(fn, Target("cpu", kind="host", vector_bits=512)).src
>>> out.op, out.src[0].op, len(out.src[0].src)
(RESHAPE, CONCAT, 4)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fnx.core.formulas.small_matrices import UNROLLED, Matrix, conj
from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.expr import Expr, complex_number, imag, real
from fnx.core.ir.linalg import matrix_lengths, signature
from fnx.core.ir.op_bodies import replace_results
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.target import Target
from fnx.lower.emit.linalg import is_interleaved
from fnx.lower.tensor import jacobi, linalg_loops
from fnx.lower.tensor.interleave_linalg import symmetrized

ROTATED = frozenset({"eigh", "eigvalsh", "svd", "svdvals"})
MAX_SIZE = 8  # rows or columns of a matrix; the code grows with the cube


def unroll_linalg(fn: UOp, target: Target) -> UOp:
    """Return a FUNCTION in which batches of small matrices are elementwise ops."""
    matrices: dict[UOp, Matrix] = {}  # results of routines, element by element

    def replace(node: UOp, src: tuple[UOp, ...]) -> Sequence[UOp] | None:
        if node.op is not ops.LINALG:
            return None
        unrolled = _unroll(node, src, matrices) if _is_small(node, target) else None
        if unrolled is None and linalg_loops.is_loop(node.arg, target):
            return _loop(node, src)
        return unrolled
    if not any(n.op is ops.LINALG for n in toposort(fn.src)):
        return fn
    return fn.with_operands(tuple(replace_results(fn.src, replace)))


def _is_small(node: UOp, target: Target) -> bool:
    """Whether a LINALG is unrolled."""
    arg = node.arg
    if arg.routine not in UNROLLED and arg.routine not in ROTATED:
        return False
    batch, lengths = matrix_lengths(arg.routine, arg.options, arg.ins)
    n_matrices, itemsize = math.prod(batch), arg.ins[0][1].real.itemsize
    if not n_matrices or not all(0 < lengths[a] <= MAX_SIZE for a in lengths if a in "mnk"):
        return False
    if target.kind != "host":
        return True
    if n_matrices < target.vector_lanes(itemsize):
        return False
    elements = math.prod([lengths[a] for a in signature(arg.routine, arg.options).ins[0][1]])
    return arg.routine not in ROTATED and elements <= target.vector_registers or \
        not is_interleaved(arg, target)


def _unroll(node: UOp, src: Sequence[UOp], matrices: dict[UOp, Matrix]) -> list[UOp] | None:
    arg = node.arg
    batch, lengths = matrix_lengths(arg.routine, arg.options, arg.ins)
    if arg.routine in ROTATED:
        is_wider = "full" in arg.options and lengths["m"] != lengths["n"]
        return None if is_wider else _rotate(arg, src[0], _unrolled_qr)
    sig = signature(arg.routine, arg.options)
    sides = lengths.get("r", 0)
    columns = sides if sides > MAX_SIZE else None  # an axis of the elements; few are unrolled, too
    operands = [_elements(x, axes, batch, columns, matrices) for x, (_, axes) in zip(src, sig.ins)]
    results = UNROLLED[arg.routine](arg.options, *operands)
    if results is None:
        return None
    nodes = []
    for matrix, (_, axes), (shape, _) in zip(results, sig.outs, arg.outs):
        joined = _join(matrix, axes, batch, shape, columns)
        if "r" not in axes:
            matrices[joined] = matrix
        nodes.append(joined)
    return nodes


def _loop(node: UOp, src: Sequence[UOp]) -> list[UOp] | None:
    """Return the results of a routine by loops over columns."""
    arg = node.arg
    if arg.routine in ROTATED:
        return _rotate(arg, src[0], lambda x: linalg_loops.qr(
            ("full",) if "full" in arg.options else (), x))
    batch, _ = matrix_lengths(arg.routine, arg.options, arg.ins)
    flat = [build.reshape(x, (math.prod(batch), *x.shape[len(batch):])) for x in src]
    results = linalg_loops.LOOPS[arg.routine](arg.options, *flat)
    return results and [build.reshape(x, shape) for x, (shape, _) in zip(results, arg.outs)]


def _unrolled_qr(x: UOp) -> list[UOp]:
    factors = _unroll(build_calls.linalg("qr", [x])[0].src[0], [x], {})
    assert factors is not None
    return factors


def _rotate(arg: Any, a: UOp, qr: Callable[[UOp], Sequence[UOp] | None]) -> list[UOp]:
    """Return eigenvalues or singular values, and vectors, by Jacobi rotations."""
    *batch, m, n = a.shape
    flat = build.reshape(a, (math.prod(batch), m, n))

    def results(*nodes: UOp) -> list[UOp]:
        return [build.reshape(x, shape) for x, (shape, _) in zip(nodes, arg.outs)]
    if arg.routine in ("eigh", "eigvalsh"):
        return results(*jacobi.eigh(flat, "lower" in arg.options))
    values, left, right = jacobi.svd(flat if m >= n else jacobi.adjoint(flat))
    if arg.routine == "svdvals":
        return results(values)
    # the triangular factor of orthogonal columns is diagonal; its signs belong to the columns, and
    # a column of zeros gets a direction
    factors = qr(left)
    assert factors is not None
    left = jacobi.scaled_by_phase(*factors)
    first, second = (left, right) if m >= n else (right, left)
    return results(values, first, jacobi.adjoint(second))


def _elements(x: UOp, axes: str, batch: tuple[int, ...], columns: int | None,
              matrices: Mapping[UOp, Matrix]) -> Matrix:
    """Return the elements of a matrix; right-hand sides are its columns. Where these are an axis
    of the elements, there is one, and other elements are expanded along it."""
    at = len(batch)
    if "r" in axes:
        rows = at + axes.index("n")
        sides = at + axes.index("r")
        if columns is not None:
            return [[Expr(_slice(x, {rows: i}))] for i in range(x.shape[rows])]
        return [[Expr(_slice(x, {rows: i, sides: j})) for j in range(x.shape[sides])]
                for i in range(x.shape[rows])]
    shape = batch if columns is None else (*batch, columns)

    def wide(e: UOp) -> Expr:
        return Expr(e if columns is None else
                    build.expand(build.reshape(e, (*batch, 1)), shape))
    if x in matrices:
        return [[wide(e.node) for e in row] for row in matrices[x]]
    if len(axes) == 1:
        return [[wide(_slice(x, {at: i})) for i in range(x.shape[at])]]
    whole = symmetrized(x)
    if whole is not None:
        return [[wide(e.node) for e in row] for row in
                _symmetric_part(_elements(whole, axes, batch, None, matrices))]
    return [[wide(_slice(x, {at: i, at + 1: j})) for j in range(x.shape[at + 1])]
            for i in range(x.shape[at])]


def _symmetric_part(whole: Matrix) -> Matrix:
    """Return half of the sum of a matrix and its adjoint, which is never in memory."""
    total = [[x + conj(y) for x, y in zip(row, column)] for row, column in zip(whole, zip(*whole))]
    return [[complex_number(real(x) / 2, imag(x) / 2) if x.dtype.is_complex else x / 2
             for x in row] for row in total]


def _slice(x: UOp, index: Mapping[int, int]) -> UOp:
    """Return the elements at an index of some axes, which are removed."""
    bounds = [(index[a], index[a] + 1) if a in index else (0, n) for a, n in enumerate(x.shape)]
    return build.reshape(build.shrink(x, bounds), tuple([n for a, n in enumerate(x.shape)
                                                         if a not in index]))


def _join(matrix: Matrix, axes: str, batch: tuple[int, ...], shape: tuple[int, ...],
          columns: int | None) -> UOp:
    """Return an array of the elements."""
    if axes == "rn" and columns is None:
        matrix = [list(column) for column in zip(*matrix)]
    if "r" in axes and columns is not None:
        at = len(batch) + axes.index("n")
        rows = [build.reshape(e.node, (*e.shape[:at], 1, *e.shape[at:])) for e, in matrix]
        return build.concat(rows, at)
    parts = [build.reshape(e.node, (*batch, 1)) for row in matrix for e in row]
    return build.reshape(build.concat(parts, len(batch)), shape)
