"""The PROGRAM of a LINALG: calls of LAPACK, or a matrix in each lane of vectors.

Many small matrices are computed in lanes: LAPACK spends more time on its calls than on them. The
alternatives have a price each (backends/device/cost_model.py has those of LAPACK).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.core.ir import build, dtypes, linalg, op_args, ops
from fnx.core.ir.derivations import recent_forms
from fnx.core.ir.uop import UOp
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.target import Target
from fnx.lower.emit import (
    interleaved_factors,
    interleaved_spectra,
    lapack_factors,
    lapack_spectra,
    shuffles,
)
from fnx.lower.emit.interleaved_linalg import InterleavedEmitter
from fnx.lower.emit.lapack import LapackEmitter
from fnx.lower.emit.linalg_emitter import LinalgEmitter, Plan

LAPACK_ROUTINES: dict[str, Callable[[LapackEmitter], Plan]] = {
    "cholesky": lapack_factors.cholesky, "eig": lapack_spectra.eig, "eigh": lapack_spectra.eigh,
    "eigvals": lapack_spectra.eig, "eigvalsh": lapack_spectra.eigh,
    "geqrf": lapack_factors.geqrf, "hessenberg": lapack_spectra.hessenberg,
    "householder_product": lapack_factors.householder_product, "lu": lapack_factors.lu,
    "lu_diagonal": lapack_factors.lu, "lu_solve": lapack_factors.lu_solve,
    "qr": lapack_factors.qr, "schur": lapack_spectra.schur, "solve": lapack_factors.solve,
    "solve_sylvester": lapack_spectra.solve_sylvester,
    "svd": lapack_spectra.svd, "svdvals": lapack_spectra.svd,
    "triangular_solve": lapack_factors.triangular_solve,
    "tridiagonal": lapack_spectra.tridiagonal,
    "tridiagonal_solve": lapack_factors.tridiagonal_solve,
}
ALGORITHMS: dict[str, Callable[[InterleavedEmitter], Plan]] = {
    "cholesky": interleaved_factors.cholesky, "eigh": interleaved_spectra.eigh,
    "eigvalsh": interleaved_spectra.eigh, "lu": interleaved_factors.lu,
    "lu_diagonal": interleaved_factors.lu,
    "lu_solve": interleaved_factors.lu_solve, "qr": interleaved_factors.qr,
    "solve": interleaved_factors.solve, "svd": interleaved_spectra.svd,
    "svdvals": interleaved_spectra.svd,
    "triangular_solve": interleaved_factors.triangular_solve,
}
SYMMETRIC = frozenset({"cholesky", "eigh", "eigvalsh"})
_MISSING_OPTIONS = frozenset({"pivoting"})
# of LAPACK's routines those with the fewest operations
_QUICK = frozenset({"cholesky", "lu", "lu_diagonal", "lu_solve", "solve", "triangular_solve",
                    "tridiagonal_solve"})


def program(node: UOp, target: Target) -> UOp:
    """Return the PROGRAM of a LINALG over a part of its batch.

    >>> types = (((8, 3, 3), dtypes.float32),)
    >>> arg = op_args.Linalg("cholesky", "cholesky", (), types, types)
    >>> host = Target("cpu")
    >>> program(generalize_sizes(UOp(ops.LINALG, dtypes.void, (), arg))[0], host).op
    PROGRAM
    """
    return _emitter(node, target).program()


def extents(node: UOp, target: Target) -> dict[str, UOp]:
    """Return the launch parameters: parts of the batch, and scratch bytes per worker."""
    parameters: dict[str, UOp] = recent_forms.get_or_make(
        ("linalg extents", node.arg, target), lambda: _extents(node, target))
    return parameters


def _extents(node: UOp, target: Target) -> dict[str, UOp]:
    emitter = _emitter(node, target)
    emitter.allocate()
    return {"parallel": emitter.parts_of_batch(), "scratch": symbolic.simplify(emitter.nbytes)}


def _emitter(node: UOp, target: Target) -> LinalgEmitter:
    if node.arg.interleaved:
        return InterleavedEmitter(node, target, ALGORITHMS[node.arg.routine])
    itemsize = (node.arg.of_complex or node.arg).ins[0][1].real.itemsize
    return LapackEmitter(node, target.vector_lanes(itemsize),
                         LAPACK_ROUTINES[node.arg.routine])


def is_interleaved(arg: op_args.Linalg, target: Target) -> bool:
    """Whether a LINALG is computed with a matrix in each lane: there is an algorithm, the matrices
    fill a vector, and those of a group stay in the cache of a core."""
    dtype = arg.ins[0][1]
    lanes = target.vector_lanes(dtype.real.itemsize)
    if target.kind != "host" or arg.routine not in ALGORITHMS or dtype.is_complex or \
            arg.of_complex is not None or _MISSING_OPTIONS & set(arg.options) or \
            not shuffles.can_transpose(lanes):
        return False
    batch, lengths = linalg.matrix_lengths(arg.routine, arg.options, arg.ins)
    is_square = lengths.get("m", lengths["n"]) == lengths["n"]
    if math.prod(batch) < lanes or arg.routine == "svd" and arg.options and not is_square:
        return False
    node = UOp(ops.LINALG, dtypes.void, (), _without_shapes(arg).replace(interleaved=True))
    letters = linalg.signature(arg.routine, arg.options).letters
    scalars: dict[UOp | int, int] = {1 + i: lengths[a] for i, a in enumerate(letters)}
    return evaluate(extents(node, target)["scratch"], scalars) <= target.l2


def is_library_call(arg: op_args.Linalg) -> bool:
    """Whether LAPACK takes nearly all of the time of a LINALG: not where it computes so little that
    copying matrices counts, and not in an interleaved program, which is all fnx's own."""
    return not arg.interleaved and arg.routine not in _QUICK


def takes_symmetric_part(arg: op_args.Linalg, target: Target) -> bool:
    """Whether the program of a LINALG can compute the symmetric part of its operand."""
    dtype = arg.ins[0][1]
    if arg.routine not in SYMMETRIC or arg.interleaved:
        return arg.routine in SYMMETRIC
    return (arg.routine == "cholesky" or "lower" in arg.options) and \
        shuffles.can_transpose(target.vector_lanes(dtype.itemsize))


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
