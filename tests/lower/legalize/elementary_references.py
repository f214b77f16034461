"""Evaluate decomposed ops in NumPy and measure their errors in ulps."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

import numpy as np

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.target import Target
from fnx.lower.legalize.decompose import decompose
from tests.helpers import same_bits_each

Array = np.ndarray[Any, Any]
FUSED, UNFUSED = Target("cpu"), Target("cpu", fma=False)
_TYPES = {t.np: t for t in (*dtypes.USER, dtypes.index)}


def expanded(op: Op, *xs: Array, arg: Any = None, target: Target = FUSED) -> UOp:
    """Return the expansion of op over parameters with the shapes and dtypes of xs."""
    params = [build.param(i, _TYPES[x.dtype], x.shape) for i, x in enumerate(xs)]
    return decompose(build.elementwise(op, *params, arg=arg), target)


def decomposed(op: Op, *xs: Array, arg: Any = None, target: Target = FUSED,
               under: Literal["ignore", "raise"] = "ignore") -> Array:
    """Evaluate the expansion of op; MULACC rounds exactly once. ``under``: what NumPy does where
    an operation underflows."""
    root = expanded(op, *xs, arg=arg, target=target)
    value: dict[UOp, Array] = {}
    with np.errstate(all="ignore", under=under):
        for node in toposort([root]):
            if node.op is ops.PARAM:
                value[node] = xs[node.arg.slot]
            elif node.op is ops.MULACC:
                value[node] = fused(*[value[s] for s in node.src])
            else:
                assert node.op.meaning is not None
                value[node] = np.asarray(node.op.meaning(node, *[value[s] for s in node.src]))
    return value[root]


def fused(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c, rounded once."""
    return _fused_32(a, b, c) if a.dtype == np.float32 else _fused_64(a, b, c)


def _fused_32(a: Array, b: Array, c: Array) -> Array:
    """Compute in float64 rounded to odd, so that the second rounding, to 24 bits, is correct."""
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + addend
    t = total - product
    error = (product - (total - t)) + (addend - t)
    odd = (total.view(np.int64) & 1) == 1
    towards = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    inexact = (error != 0) & np.isfinite(total)
    return np.where(inexact & ~odd, towards, total).astype(np.float32)


def _fused_64(a: Array, b: Array, c: Array) -> Array:
    out = np.array(a * b + c)
    a, b, c = np.broadcast_arrays(a, b, c)
    for i in np.flatnonzero(np.isfinite(out)):
        exact = Fraction(float(a.flat[i])) * Fraction(float(b.flat[i])) + Fraction(float(c.flat[i]))
        if exact:
            out.flat[i] = float(exact)
    return out


def ulps_32(got: Array, exact: Array) -> Array:
    """Return the errors of float32 results against float64 values, in ulps."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.ldexp(1.0, np.maximum(np.frexp(np.abs(exact))[1] - 24, -149))
        error = np.abs(got.astype(np.float64) - exact) / unit
    settled = same_bits_each(got, rounded) & ~np.isfinite(rounded)
    return np.where(settled, 0.0, np.where(np.isnan(error), np.inf, error))
