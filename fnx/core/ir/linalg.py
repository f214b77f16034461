"""Routines of linear algebra: the types of their results. Their meaning: linalg_semantics.py.

A signature names the length of each axis of a matrix, as NumPy's generalized ufuncs do: the
results have the batch axes of the operands, then these. k is min(m, n) and p is n - 1. ``i:`` marks
an int32, ``r:`` the real and ``c:`` the complex dtype that belongs to that of the matrices.

    lu            mn -> mn, i:k, i:m                  both factors, pivots, permutation of the rows
    svd           mn -> r:k, mk, kn                   values, left vectors, right vectors

>>> a = (7, 3, 3), dtypes.float32
>>> result_types("lu", (), [a])
(((7, 3, 3), float32), ((7, 3), int32), ((7, 3), int32))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fnx.core.ir import build, dtypes
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import DTypeError, ShapeError
from fnx.core.support.process import lazy_import

semantics = lazy_import("fnx.core.ir.linalg_semantics")

Types = tuple[tuple[Shape, DType], ...]

# routine -> signature; with options that change it, one for each
ROUTINES: dict[str, dict[str, str]] = {
    "cholesky": {"": "nn->nn"},
    "lu": {"": "mn->mn,i:k,i:m"},
    "lu_diagonal": {"": "nn->n,i:n,i:n"},
    "triangular_solve": {"": "nn,nr->nr", "right": "nn,rn->rn"},
    "lu_solve": {"": "nn,nn,i:n,nr->nr"},
    "solve": {"": "nn,nr->nr"},
    "qr": {"": "mn->mk,kn", "full": "mn->mm,mn", "pivoting": "mn->mk,kn,i:n",
           "full pivoting": "mn->mm,mn,i:n"},
    "geqrf": {"": "mn->mn,k"},
    "householder_product": {"": "mn,t->mn"},
    "eigh": {"": "nn->r:n,nn"},
    "eigvalsh": {"": "nn->r:n"},
    "svd": {"": "mn->r:k,mk,kn", "full": "mn->r:k,mm,nn"},
    "svdvals": {"": "mn->r:k"},
    "eig": {"": "nn->c:n,c:nn", "left": "nn->c:n,c:nn,c:nn"},
    "eigvals": {"": "nn->c:n"},
    "schur": {"": "nn->nn,nn"},
    "hessenberg": {"": "nn->nn,p"},
    "tridiagonal": {"": "nn->nn,r:n,r:p,p"},
    "tridiagonal_solve": {"": "n,n,n,nr->nr"},
    "solve_sylvester": {"": "mm,nn,mn->mn"},
}

# Compiler passes make "solve" of lu and lu_solve, and "lu_diagonal", the diagonal of U, pivots and
# permutation, of lu if nothing else is read; they add to the options of cholesky, eigh and
# eigvalsh "symmetrize": of the symmetric part of a matrix, and to those of cholesky "transpose" and
# "upper": the upper factor, by the upper triangle. None of these has a rule for derivatives.

# routines that are linear in their last operand
LINEAR_ROUTINES = frozenset({"triangular_solve", "lu_solve", "tridiagonal_solve",
                             "solve_sylvester"})


class Signature:
    """A parsed signature: for each operand and result, the mark of its dtype, and its axes."""

    def __init__(self, text: str) -> None:
        ins, _, outs = text.partition("->")
        self.ins, self.outs = _parse(ins), _parse(outs)
        self.letters = tuple(dict.fromkeys("".join(axes for _, axes in self.ins)))


def _parse(text: str) -> tuple[tuple[str, str], ...]:
    parts = [part.rpartition(":") for part in text.split(",")]
    return tuple([(mark, axes) for mark, _, axes in parts])


_SIGNATURES = {routine: {key: Signature(text) for key, text in rows.items()}
               for routine, rows in ROUTINES.items()}


def marked_dtype(mark: str, dtype: DType) -> DType:
    """Return the dtype of an operand or result of a routine on matrices of a dtype."""
    return dtypes.int32 if mark == "i" else dtype.real if mark == "r" else \
        dtypes.complex_of(dtype) if mark == "c" else dtype


def signature(routine: str, options: tuple[str, ...]) -> Signature:
    """Return the signature of a routine with these options.

    >>> signature("qr", ("full",)).outs
    (('', 'mm'), ('', 'mn'))
    """
    rows = _SIGNATURES[routine]
    return rows[max([key for key in rows if set(key.split()) <= set(options)], key=len)]


def derived_lengths(lengths: Mapping[str, int]) -> dict[str, int]:
    """Return the lengths by letter, with those that follow from others."""
    n = lengths.get("n", 0)
    return {**lengths, "k": min(lengths.get("m", n), n), "p": max(n - 1, 0)}


def matrix_lengths(routine: str, options: tuple[str, ...], ins: Types
                   ) -> tuple[Shape, dict[str, int]]:
    """Return the batch axes of the operands, and the length of each axis of their matrices.

    Raises:
        ShapeError: the shapes don't match the signature.
    """
    sig = signature(routine, options)
    shapes = [shape for shape, _ in ins]
    lengths: dict[str, int] = {}
    batch: Shape | None = None
    for (_, axes), shape in zip(sig.ins, shapes):
        split = len(shape) - len(axes)
        if batch is None:
            batch = shape[:split]
        if split < 0 or shape[:split] != batch or \
                any(lengths.setdefault(a, n) != n for a, n in zip(axes, shape[split:])):
            raise ShapeError(f"{routine}: expected matrices of shapes "
                             f"{', '.join(str(tuple(a)) for _, a in sig.ins)} with equal batch "
                             f"axes, got {', '.join(map(str, shapes))}".replace("'", ""))
    assert batch is not None
    return batch, derived_lengths(lengths)


def result_types(routine: str, options: tuple[str, ...], ins: Types) -> Types:
    """Return (shape, dtype) of each result.

    Raises:
        DTypeError: an operand is not of the dtype that it must have.
        ShapeError: the shapes don't match the signature.
    """
    sig = signature(routine, options)
    batch, lengths = matrix_lengths(routine, options, ins)
    dtype = ins[0][1]
    for (mark, _), (_, t) in zip(sig.ins, ins):
        if t is not marked_dtype(mark, dtype) or not dtype.is_inexact:
            raise DTypeError(f"{routine}: expected operands of one float or complex dtype, got "
                             f"{', '.join(t.name for _, t in ins)}",
                             hint="convert integers by astype(float)")
    return tuple([((*batch, *[lengths[a] for a in axes]), marked_dtype(mark, dtype))
                  for mark, axes in sig.outs])


def interleaved(types: Types) -> Types:
    """Return the types of arrays in memory: complex ones are real, with one more axis."""
    return tuple([((*shape, 2), t.real) if t.is_complex else (shape, t) for shape, t in types])


def empty_results(routine: str, options: Iterable[str], outs: Types) -> tuple[UOp, ...]:
    """Return the results for matrices without elements: square orthogonal factors are the
    identity, indices count up."""
    chosen = set(options)
    square = {"qr": (0,), "svd": (1, 2)}.get(routine, ()) if "full" in chosen else ()
    return tuple([_identity(shape, t) if i in square else
                  _counting(shape, t) if t is dtypes.int32 else build.const(0, t, shape)
                  for i, (shape, t) in enumerate(outs)])


def _identity(shape: Shape, t: DType) -> UOp:
    rows, columns = (build.expand(build.reshape(build.iota(shape[-1]), core), shape)
                     for core in (_core(shape, -2), _core(shape, -1)))
    return build.cast(build.eq(rows, columns), t)


def _counting(shape: Shape, t: DType) -> UOp:
    return build.expand(build.reshape(build.iota(shape[-1], t), _core(shape, -1)), shape)


def _core(shape: Shape, axis: int) -> Shape:
    """Return the shape of a vector along an axis."""
    return tuple([n if i == len(shape) + axis else 1 for i, n in enumerate(shape)])


def apply_routine(arg: Any, xs: Sequence[NDArray]) -> list[NDArray]:
    """Return the results of a LINALG."""
    results: list[NDArray] = semantics.apply_routine(arg, xs)
    return results
