"""Every elementwise op at every length of a vector's tail: jit, eager and interpreter agree.

All ops that take a dtype are outputs of one function, so each length costs one trace. jit and eager
results are bitwise equal although the kernels differ: jit's kernel knows the length, eager's takes
it as an argument. The interpreter is bitwise equal too, except for functions computed by
polynomials, where it agrees within the sum of both error bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fnx.backends.device.base import get_device
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp
from fnx.transforms.jit import jit
from tests.helpers import encoded, numbers
from tests.laws.device import MACHINE, computes

NDArray = np.ndarray[Any, Any]
LETTER = {"bool": "b", "int": "i", "uint": "i", "float": "f", "complex": "c"}
APPROXIMATE = {op.name for op in ops.ELEMENTWISE if not op.exact}
MAX_ULPS = 4
TAIL_ULPS = {"ERFC float32": 80, "ERFC float64": 128}  # far from 0, as docs/precision.md says
COMPLEX_ULPS = 64  # powers multiply the error of a logarithm by the exponent
CORNERS = {
    "float": [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 3e9, -7.5, 1e-30],
    "int": [0, 1, -1, 7],  # plus the limits
    "uint": [0, 1, 7],
    "bool": [False, True],
    "complex": [0, 1, -1j, 2 - 2j, complex(np.inf, 1), complex(0.5, -np.inf), 1e-30j, -1e9],
}


def nodes_of(t: DType, x: UOp, y: UOp, z: UOp, w: UOp) -> Iterator[tuple[str, UOp]]:
    """Return (name, node) of every elementwise op that takes operands of dtype t."""
    for op in sorted(ops.ELEMENTWISE, key=lambda op: op.name):
        if op is ops.CAST:
            for to in dtypes.USER:
                if to is not t and computes([to]):
                    yield f"CAST {to}", build.cast(x, to)
        elif op is ops.BITCAST:
            for to in dtypes.USER if not t.is_complex else ():
                if to is not t and to.bits == t.bits and not (to.is_bool or to.is_complex):
                    yield f"BITCAST {to}", build.bitcast(x, to)
        elif op is ops.THREEFRY:
            if t is dtypes.uint32:
                for word in (0, 1):
                    yield f"THREEFRY {word}", build.elementwise(op, x, y, z, w, arg=word)
        elif op is ops.WHERE:
            yield "WHERE", build.where(build.ne(z, w), x, y)
        elif LETTER[t.kind] in op.accepts:
            if op in (ops.SHL, ops.SHR):  # mostly within the bit width
                by = build.and_(y, build.const_like(y, min(39, t.limits[1])))
                yield op.name, build.elementwise(op, x, by)
            else:
                yield op.name, build.elementwise(op, *(x, y, z)[:op.arity])


def _results(*xs: Array) -> list[Array]:
    nodes = [x._node for x in xs]
    return [Array(node) for _, node in nodes_of(xs[0]._dtype, *nodes)]


eager = public_api(_results)
compiled = jit(_results)


def operands(t: DType, n: int) -> list[NDArray]:
    """Return four operands of length n: corner cases, random bit patterns and ordinary numbers."""
    rng = np.random.default_rng(n)
    out = []
    ends = list(t.limits) if t.is_integer else []
    for _ in range(4):
        known = [v for v in CORNERS[t.kind] if not t.is_integer or v <= t.limits[1]]
        corners = rng.choice(encoded(known + ends, t), n)
        if t.is_bool:
            out.append(corners)
            continue
        if t.is_complex:
            usual = (rng.uniform(-20, 20, n) + 1j * rng.uniform(-20, 20, n)).astype(t.np)
            out.append(np.where(rng.random(n) < 0.3, corners, usual))
            continue
        patterns = rng.integers(0, 1 << t.bits, n, f"u{t.itemsize}").view(t.np)
        usual = encoded(rng.uniform(0 if t.kind == "uint" else -20, 20, n), t)
        kind = rng.integers(0, 3, n)
        out.append(np.where(kind == 0, corners, np.where(kind == 1, patterns, usual)))
    return out


def agree(got: NDArray, want: NDArray, ulps: int) -> bool:
    """Return whether bits are equal (any NaN equals any NaN) or floats are within ``ulps``."""
    if dtypes.as_dtype(got.dtype) is not dtypes.as_dtype(want.dtype) or got.shape != want.shape:
        return False
    got, want = numbers(got), numbers(want)
    if got.dtype.kind == "c" and not ulps:
        return agree(got.real, want.real, 0) and agree(got.imag, want.imag, 0)
    if got.dtype.kind == "c":  # errors of a part are relative to the whole
        eps = COMPLEX_ULPS * np.finfo(got.dtype).eps
        size = np.where(np.isfinite(want), np.abs(want), 0)
        return bool(np.all([np.isclose(g, w, rtol=eps, atol=eps * size, equal_nan=True)
                            for g, w in ((got.real, want.real), (got.imag, want.imag))]))
    if got.dtype.kind != "f":
        return bool((got == want).all())
    equal = (np.isnan(got) & np.isnan(want)) | \
        ((got == want) & (np.signbit(got) == np.signbit(want)))
    if not ulps or equal.all():
        return bool(equal.all())
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= ulps * np.spacing(np.abs(want))
    return bool((equal | near).all())


def lengths(t: DType) -> list[int]:
    """Return lengths near each end of one and of two vectors for float32; for others one below
    and one between, as tails depend on the count of lanes and not on the op."""
    lanes = get_device(MACHINE).target.vector_lanes(t.itemsize if t.bits > 1 else 4)
    if t.storage is not None or MACHINE != "cpu":  # GPU thread groups have one kind of tail
        return [0, 1, lanes + 3]
    if t is dtypes.float32:
        return sorted({0, 1, 2, lanes // 2, lanes // 2 + 1, lanes - 1, lanes, lanes + 1,
                       2 * lanes - 1, 2 * lanes + 1})
    return [0, lanes // 2 + 1, 2 * lanes - 1]


LENGTHS = [(t, n) for t in dtypes.USER if computes([t]) for n in lengths(t)]


@pytest.mark.cases(1)
@pytest.mark.parametrize("t,n", LENGTHS, ids=str)
def test_every_op_at_the_lengths_of_tails(t: DType, n: int) -> None:
    xs = operands(t, n)
    params = [build.param(i, t, (n,)) for i in range(4)]
    names, nodes = zip(*nodes_of(t, *params))
    want = interp.evaluate(nodes, dict(zip(params, xs)))
    arrays = [asarray(x, t) for x in xs]
    by_jit, by_eager = [[np.asarray(r) for r in f(*arrays)] for f in (compiled, eager)]
    assert len(names) == len(by_jit) == len(by_eager)
    for name, j, e, w in zip(names, by_jit, by_eager, want):
        assert agree(j, e, 0), f"{name}: jit and eager differ"
        ulps = TAIL_ULPS.get(f"{name} {t}", MAX_ULPS) if name in APPROXIMATE else 0
        assert agree(j, w, ulps), f"{name}: not the meaning"
