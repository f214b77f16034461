"""Derivatives of order 1 to 4 of every elementwise function, against mpmath.

All entries of ``fnx.numpy``, ``fnx.lax`` and ``fnx.nn`` are discovered. Each needs its definition
in UNARY or BINARY, which mpmath differentiates with 60 digits: at 0, at ties, at small and at large
numbers. Where a function has a corner, CORNERS gives fnx's choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

import fnx
import fnx.lax as lax
import fnx.lax.elementwise
import fnx.nn as nn
import fnx.nn.activations
import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.core.formulas import elementwise, error_functions
from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp
from fnx.core.scope import scope
from fnx.transforms.autodiff.reverse import pullback
from fnx.transforms.autodiff.rules import Cotangent

pytestmark = pytest.mark.usefixtures("float64")

F8 = dtypes.float64
INF, NAN = math.inf, math.nan
ORDERS = 4
Make = Callable[..., UOp]


def of_nodes(f: Callable[..., Any]) -> Make:
    """Return a public function as a function of nodes."""
    def made(*nodes: UOp) -> UOp:
        with scope.Scope("law"):
            return f(*[Array(n) for n in nodes])._node  # type: ignore[no-any-return]
    return made


def derivatives(f: Make, points: Sequence[Any], direction: Sequence[float], order: int = ORDERS
                ) -> list[Any]:
    """Return [f, f', f'', ...] at points along a direction, by repeated reverse mode."""
    values = [np.asarray(p, np.float64) for p in points]
    shape = values[0].shape
    step, *xs = [build.param(i, F8, shape) for i in range(len(values) + 1)]
    out = [f(*[x if d == 0 else (Expr(x) + d * Expr(step)).node for x, d in zip(xs, direction)])]
    for _ in range(order):
        total = build.reduce(out[-1], ops.ADD, range(len(shape)))
        (*rest, _), (ct,) = pullback([*out, total], [None] * len(out) +
                                     [Cotangent(build.const_like(total, 1))], [step])
        out = [*rest, build.const_like(step, 0) if ct is None else ct.value]
    return interp.evaluate(out, dict(zip([step, *xs], [np.zeros(shape), *values])))


# ---- definitions ------------------------------------------------------------------------------


def softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def trunc(x: Any) -> Any:
    return mp.floor(x) if x > 0 else mp.ceil(x)


def relu(x: Any) -> Any:
    return x if x > 0 else mpf(0)


def relu6(x: Any) -> Any:
    return min(max(x, mpf(0)), mpf(6))


def elu(x: Any, alpha: Any) -> Any:
    return x if x > 0 else alpha * mp.expm1(x)


def gelu(x: Any) -> Any:
    return x / 2 * (1 + mp.tanh(mpf(math.sqrt(2 / math.pi)) * (x + mpf(0.044715) * x**3)))


def sparse_plus(x: Any) -> Any:
    return x if x >= 1 else (x + 1)**2 / 4 if x > -1 else mpf(0)


UNARY: dict[str, Callable[[Any], Any]] = {
    "negative": lambda x: -x, "positive": lambda x: x, "absolute": abs, "fabs": abs,
    "sign": mp.sign, "square": lambda x: x * x, "floor": mp.floor, "ceil": mp.ceil,
    "trunc": trunc, "rint": mp.nint,
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "sqrt": mp.sqrt, "rsqrt": lambda x: 1 / mp.sqrt(x), "reciprocal": lambda x: 1 / x,
    "exp": mp.exp, "exp2": lambda x: mpf(2)**x, "expm1": mp.expm1, "log": mp.log,
    "log1p": mp.log1p, "log2": lambda x: mp.log(x, 2), "log10": mp.log10, "sin": mp.sin,
    "arctan": mp.atan,
    "cos": mp.cos, "tan": mp.tan, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh,
    "sigmoid": sigmoid, "erf": mp.erf, "erfc": mp.erfc, "erf_inv": mp.erfinv,
    "silu": lambda x: x * sigmoid(x), "softplus": softplus, "log_sigmoid": lambda x: -softplus(-x),
    "soft_sign": lambda x: x / (1 + abs(x)), "mish": lambda x: x * mp.tanh(softplus(x)),
    "gelu": gelu, "gelu_erf": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2, "relu": relu,
    "relu6": relu6, "hard_tanh": lambda x: min(max(x, mpf(-1)), mpf(1)),
    "hard_sigmoid": lambda x: relu6(x + 3) / 6, "hard_silu": lambda x: x * relu6(x + 3) / 6,
    "selu": lambda x: mpf(1.0507009873554805) * elu(x, mpf(1.6732632423543772)),
    "sparse_plus": sparse_plus, "sparse_sigmoid": lambda x: min(max((x + 1) / 2, mpf(0)), mpf(1)),
    "log1mexp": lambda x: mp.log(-mp.expm1(-x)),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b, "div": lambda a, b: a / b,
    "floor_divide": lambda a, b: mp.floor(a / b),
    "remainder": lambda a, b: a - b * mp.floor(a / b), "fmod": lambda a, b: a - b * trunc(a / b),
    "rem": lambda a, b: a - b * trunc(a / b), "power": lambda a, b: a**b,
    "float_power": lambda a, b: a**b,
    "maximum": lambda a, b: a if a > b else b, "minimum": lambda a, b: a if a < b else b,
    "logaddexp": lambda a, b: mp.log(mp.exp(a) + mp.exp(b)),
    "logaddexp2": lambda a, b: mp.log(mpf(2)**a + mpf(2)**b, 2),
    "hypot": lambda a, b: mp.sqrt(a * a + b * b), "arctan2": lambda y, x: mp.atan2(y, x),
    "elu": elu, "celu": lambda x, alpha: x if x > 0 else alpha * mp.expm1(x / alpha),
}
COMPOSED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "squareplus": (nn.squareplus, lambda x: (x + mp.sqrt(x * x + 4)) / 2),
    "leaky_relu": (nn.leaky_relu, lambda x: x if x >= 0 else mpf(0.01) * x),
    "glu": (lambda x: nn.glu(jnp.concatenate([x, x])), lambda x: x * sigmoid(x)),
    "x ** 3": (lambda x: x ** 3, lambda x: x**3),
    "x ** -2": (lambda x: x ** -2, lambda x: x**-2),
    "x ** 2.5": (lambda x: x ** 2.5, lambda x: x**2.5),
    "x ** 3.0": (lambda x: x ** 3.0, lambda x: x**3),
    "2 ** x": (lambda x: 2 ** x, lambda x: mpf(2)**x),
    "clip": (lambda x: jnp.clip(x, -1.5, 40.0), lambda x: min(max(x, mpf(-1.5)), mpf(40))),
    "clamp": (lambda x: lax.clamp(-1.5, x, 40.0), lambda x: min(max(x, mpf(-1.5)), mpf(40))),
    "nan_to_num": (jnp.nan_to_num, lambda x: x),
    "where": (lambda x: jnp.where(x > 0.1, jnp.sin(x), x * x),
              lambda x: mp.sin(x) if x > 0.1 else x * x),
    "logsumexp": (lambda x: nn.logsumexp(jnp.stack([x, 2 * x, x * 0]), axis=0),
                  lambda x: mp.log(mp.exp(x) + mp.exp(2 * x) + 1)),
    "softmax": (lambda x: nn.softmax(jnp.stack([x, 2 * x, x * 0]), axis=0)[0],
                lambda x: mp.exp(x) / (mp.exp(x) + mp.exp(2 * x) + 1)),
    "log_softmax": (lambda x: nn.log_softmax(jnp.stack([x, 2 * x, x * 0]), axis=0)[0],
                    lambda x: x - mp.log(mp.exp(x) + mp.exp(2 * x) + 1)),
    "prod": (lambda x: jnp.prod(jnp.stack([x, x, x, x]), axis=0), lambda x: x**4),
}

# ---- corners: fnx's choice where one-sided derivatives differ ----------------------------------
# name: {point: derivatives of order 1 to 4}. abs' is 0 at 0; ties split evenly; steps have
# derivative 0.

_FLAT = (0.0, 0.0, 0.0, 0.0)
_STEP = {float(x): _FLAT for x in (0, 1, -1, 2, 6, -3, 30, -30, 800, -800, 1e8, -1e8)}
CORNERS: dict[str, dict[float, tuple[float, ...]]] = {
    "absolute": {0.0: _FLAT}, "fabs": {0.0: _FLAT}, "sign": {0.0: _FLAT},
    "floor": _STEP, "ceil": _STEP, "trunc": _STEP, "rint": {0.5: _FLAT},
    "soft_sign": {0.0: (1.0, 0.0, 0.0, 0.0)},          # x / (1 + abs(x)) with abs' = 0
    "relu": {0.0: _FLAT}, "relu6": {0.0: _FLAT, 6.0: _FLAT},
    "hard_tanh": {-1.0: (1.0, 0.0, 0.0, 0.0), 1.0: (1.0, 0.0, 0.0, 0.0)},
    "sparse_plus": {-1.0: _FLAT, 1.0: (1.0, 0.0, 0.0, 0.0)},
    "sparse_sigmoid": dict.fromkeys((-1.0, 1.0), (0.25, 0.0, 0.0, 0.0)),  # as JAX: ties split
    "hard_sigmoid": {-3.0: _FLAT}, "hard_silu": {-3.0: _FLAT},
    "selu": {0.0: (1.0507009873554805 * 1.6732632423543772,) * 4},  # the derivatives for x <= 0
    "cbrt": {0.0: (INF, INF, INF, INF)},    # singular: not checked
    "leaky_relu": {0.0: (1.0, 0.0, 0.0, 0.0)},
}
CORNER_PAIRS: dict[str, Callable[[float, float], bool]] = {
    "maximum": lambda a, b: a == b, "minimum": lambda a, b: a == b,     # ties split
    "elu": lambda x, alpha: x == 0, "celu": lambda x, alpha: x == 0,    # the derivatives for x <= 0
    "hypot": lambda a, b: a == b == 0,                                  # 0, as of a norm
    "arctan2": lambda y, x: y == 0 and x <= 0,                          # other branch cut in mpmath
    "floor_divide": lambda a, b: b != 0 and a % b == 0,                 # steps have derivative 0
    "remainder": lambda a, b: b != 0 and a % b == 0, "fmod": lambda a, b: b != 0 and a % b == 0,
    "rem": lambda a, b: b != 0 and a % b == 0,
}
POINTS = (0.0, 1.0, -1.0, 0.5, 0.75, -0.75, 2.0, 6.0, -3.0, 1e-8, -1e-8, 1e-30, 30.0, -30.0,
          800.0, -800.0, 1e8, -1e8)
PAIRS = [(a, b) for a in (0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 30.0, 0.03)
         for b in (0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 30.0, 0.03)]
DIRECTIONS = ((1, 0), (0, 1), (1, 1), (1, -2))


def rows() -> dict[str, ElementwiseFn]:
    """Return every function that returns floats, by its name."""
    modules = (elementwise, error_functions, fnx.lax.elementwise,
               fnx.nn.activations)
    tables = (*map(vars, modules), fnx.nn.activations.ACTIVATIONS)
    return {name.lower().strip("_"): row for table in tables
            for name, row in table.items() if isinstance(row, ElementwiseFn)
            and row.domain not in ("bits", "whole", "truth") and _gives_floats(row)}


def _gives_floats(row: ElementwiseFn) -> bool:
    for count in (1, 2):
        try:
            return row.build(*[build.param(i, F8, ()) for i in range(count)]).dtype.is_float
        except Exception:
            continue
    raise AssertionError(f"{row} takes neither one nor two operands")


def wanted(f: Callable[..., Any], point: Sequence[float], direction: Sequence[float]
           ) -> list[float] | None:
    """Return derivatives by mpmath; None where it has none, or no real one."""
    with mp.workdps(60):
        at = [mpf(p) for p in point]
        out = []
        for n in range(1, ORDERS + 1):
            try:
                value = mp.diff(lambda s: f(*[a + d * s for a, d in zip(at, direction)]), 0, n)
            except (ZeroDivisionError, ValueError, OverflowError):
                return None
            if isinstance(value, mp.mpc) and value.imag != 0:
                return None
            value = value.real
            if not mp.isfinite(value):
                return None
            out.append(float(value))
        return out


def mismatches(f: Make, meaning: Callable[..., Any], points: Sequence[Sequence[float]],
               direction: Sequence[float], corners: dict[float, tuple[float, ...]]) -> list[str]:
    """Return the points that differ and how. Points where a derivative overflows are skipped."""
    kept, wants = [], []
    for point in points:
        want = corners.get(point[0]) if len(point) == 1 else None
        want = wanted(meaning, point, direction) if want is None else list(want)
        if want is not None:
            kept.append(point)
            wants.append(want)
    assert kept, "no point is left to test"
    with np.errstate(all="ignore"):
        got = derivatives(f, list(zip(*kept)), direction)[1:]
    bad = []
    for i, (point, want) in enumerate(zip(kept, wants)):
        for order in range(ORDERS):
            value = float(got[order][i])
            if abs(want[order]) > 1e290:
                break
            if not abs(value - want[order]) <= 1e-8 * abs(want[order]) + 1e-8:
                bad.append(f"order {order + 1} at {point}: got {value}, want {want[order]}")
    return bad


@pytest.mark.cases(7)
@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary(name: str) -> None:
    bad = mismatches(rows()[name].build, UNARY[name], [(x,) for x in POINTS], (1,),
                     CORNERS.get(name, {}))
    assert not bad, "\n".join(bad)


@pytest.mark.cases(16)
@pytest.mark.parametrize("direction", DIRECTIONS, ids=str)
@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary(name: str, direction: tuple[int, int]) -> None:
    at_corner = CORNER_PAIRS.get(name, lambda a, b: False)
    bad = mismatches(rows()[name].build, BINARY[name],
                     [p for p in PAIRS if not at_corner(*p)], direction, {})
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("name", sorted(COMPOSED))
def test_composed(name: str) -> None:
    f, meaning = COMPOSED[name]
    bad = mismatches(of_nodes(f), meaning, [(x,) for x in POINTS], (1,), CORNERS.get(name, {}))
    assert not bad, "\n".join(bad)


def test_every_row_has_a_meaning() -> None:
    assert set(rows()) == set(UNARY) | set(BINARY)


# ---- single points ----------------------------------------------------------------------------


def nested(f: Callable[..., Any], *argnums: int) -> Callable[..., Any]:
    """Return the derivative of f in one argument after another."""
    for i in argnums:
        f = fnx.grad(f, i)
    return f


SINGLE: dict[str, tuple[Callable[..., Any], tuple[float, ...], float]] = {
    "d/dy d/dx of x**y": (nested(lambda x, y: x**y, 0, 1), (2.0, 0.0), 0.5),
    "d/dx d/dy of x**y": (nested(lambda x, y: x**y, 1, 0), (2.0, 0.0), 0.5),
    "d/dx of x**y at 0, 0": (nested(lambda x, y: x**y, 0), (0.0, 0.0), 0.0),
    "d/dy of x**y at 0, 0": (nested(lambda x, y: x**y, 1), (0.0, 0.0), 0.0),
    "three factors at one place": (
        nested(lambda x: jnp.ones(1).at[np.array([0, 0, 0])].multiply(x)[0], 0, 0, 0),
        (0.0,), 6.0),
    "four factors at one place": (
        nested(lambda x: jnp.full(1, 2.0).at[np.array([0] * 4)].multiply(x)[0], 0, 0, 0, 0),
        (0.0,), 48.0),
    "four factors, one not zero": (
        nested(lambda x: jnp.ones(1).at[np.array([0] * 4)].multiply(
            jnp.stack([x, x, x, x + 2]))[0], 0, 0, 0), (0.0,), 12.0),
    "a product": (nested(lambda x: jnp.prod(jnp.stack([x, x, x])), 0, 0, 0), (0.0,), 6.0),
    "erf of an infinity": (nested(lax.erf, 0), (INF,), 0.0),
    "erf of a large number": (nested(lax.erf, 0, 0), (1e200,), 0.0),
    "gelu of a large number": (nested(lambda x: nn.gelu(x, False), 0), (1e200,), 1.0),
    "x // 0": (nested(lambda x, y: x // y, 0), (1.0, 0.0), 0.0),
    "logaddexp of -inf twice, in b": (nested(jnp.logaddexp, 1), (-INF, -INF), 0.0),
    "logaddexp2 of -inf twice": (nested(jnp.logaddexp2, 0), (-INF, -INF), 0.0),
    "logaddexp of inf and -inf": (nested(jnp.logaddexp, 0), (INF, -INF), 1.0),
    "logaddexp of -inf and 1": (nested(jnp.logaddexp, 1), (-INF, 1.0), 1.0),
    "logaddexp of NaN": (nested(jnp.logaddexp, 0), (NAN, 1.0), NAN),
    "sign of NaN": (nested(jnp.sign, 0), (NAN,), 0.0),
}

# Where JAX 0.10 has another value: (f, at, fnx's, JAX's), and why.
DIFFERENT: dict[str, tuple[Callable[..., Any], tuple[float, ...], float, float]] = {
    # The mean of the slopes on both sides; the gradient of a norm at 0 is 0.
    "abs'": (nested(jnp.abs, 0), (0.0,), 0.0, 1.0),
    "soft_sign''": (nested(nn.soft_sign, 0, 0), (0.0,), 0.0, -2.0),
    "hypot' at the origin": (nested(jnp.hypot, 0), (0.0, 0.0), 0.0, 0.5),
    # fnx is right where JAX is wrong or has NaN.
    "hypot'' at a tie": (nested(jnp.hypot, 0, 0), (1.0, 1.0), 8 ** -0.5, 0.0),
    "celu'' at 0": (nested(nn.celu, 0, 0), (0.0, 2.0), 0.5, 0.125),
    "hypot' beside an infinity": (nested(jnp.hypot, 0), (INF, 1.0), 0.0, NAN),
    "logaddexp' beside an infinity": (nested(jnp.logaddexp, 0), (1.0, INF), 0.0, math.e),
    # A choice where no limit exists: what is constant nearby stays constant.
    "d/dx x**y at 0, 0": (nested(lambda x, y: x**y, 0), (0.0, 0.0), 0.0, NAN),
    "logaddexp' of -inf twice": (nested(jnp.logaddexp, 0), (-INF, -INF), 0.0, NAN),
    "logaddexp' of inf twice": (nested(jnp.logaddexp, 0), (INF, INF), 0.0, 1.0),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_where_jax_differs(name: str) -> None:
    f, at, ours, theirs = DIFFERENT[name]
    assert ours != theirs
    np.testing.assert_allclose(f(*map(jnp.asarray, at)), ours, rtol=1e-12)


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", SINGLE)
def test_single_points(name: str) -> None:
    f, at, want = SINGLE[name]
    np.testing.assert_allclose(f(*map(jnp.asarray, at)), want, rtol=1e-12)


@pytest.mark.parametrize("read, want", [
    (lambda x, i: x[i], [0, 0, 0]),                                 # as JAX: read, but no gradient
    (lambda x, i: x.at[i].get(), [0, 0, 0]),
    (lambda x, i: x.at[i].get(mode="fill", fill_value=0), [0, 0, 0]),
    (lambda x, i: x.at[i].get(mode="clip"), [0, 0, 1]),
    (lambda x, i: jnp.take(x, i, mode="clip"), [0, 0, 1]),
    (lambda x, i: x[i[0]], [0, 0, 1]),  # one index is a slice, whose start is clamped
    (lambda x, i: lax.dynamic_slice(x, (i[0],), (2,)), [0, 1, 1]),
])
def test_an_index_outside(read: Callable[[Any, Any], Any], want: list[float]) -> None:
    x, i = jnp.arange(3.0), jnp.asarray(np.array([5], np.int32))
    assert fnx.grad(lambda x: read(x, i).sum())(x).tolist() == want


# Reads of 1, 2, 3 at -5, -1, 0, 2, 3, 7: JAX's tangents along 10, 20, 30 and cotangents of 1, 2, 4,
# .... With promise_in_bounds, out-of-bounds reads get no derivative; in JAX only in reverse mode.
READS: dict[str, tuple[Callable[[Any, Any], Any], list[float], list[float]]] = {
    "clip": (lambda x, i: x.at[i].get(mode="clip"), [10, 30, 10, 30, 30, 30], [5, 0, 58]),
    "fill": (lambda x, i: x.at[i].get(mode="fill", fill_value=0), [0, 30, 10, 30, 0, 0],
             [4, 0, 10]),
    "take clip": (lambda x, i: jnp.take(x, i, mode="clip"), [10, 10, 10, 30, 30, 30], [7, 0, 56]),
    "take wrap": (lambda x, i: jnp.take(x, i, mode="wrap"), [20, 30, 10, 30, 10, 20],
                  [20, 33, 10]),
    "slices": (lambda x, i: fnx.vmap(lambda j: lax.dynamic_slice(x, (j,), (1,))[0])(i),
               [10, 30, 10, 30, 30, 30], [5, 0, 58]),
    "promised": (lambda x, i: x.at[i].get(mode="promise_in_bounds"), [0, 30, 10, 30, 0, 0],
                 [4, 0, 10]),
    "plain": (lambda x, i: x[i], [0, 30, 10, 30, 0, 0], [4, 0, 10]),
}


@pytest.mark.cases(8)
@pytest.mark.parametrize("name", READS)
def test_both_modes_agree_at_indices_outside(name: str) -> None:
    read, along, back = READS[name]
    x, i = jnp.asarray([1.0, 2.0, 3.0], "float64"), jnp.asarray(np.array([-5, -1, 0, 2, 3, 7]))
    weights = 2.0 ** np.arange(6)
    t = 10 * x
    moved = fnx.jvp(lambda x: read(x, i), (x,), (t,))[1]
    gradient = fnx.grad(lambda x: (read(x, i) * weights).sum())(x)
    assert moved.tolist() == along
    assert gradient.tolist() == back
    assert (moved * weights).sum() == (gradient * t).sum()
    if name not in ("promised", "plain"):
        step = 1e-3
        change = (read(x + step * t, i) - read(x - step * t, i)) / (2 * step)
        np.testing.assert_allclose(moved, change, rtol=1e-9)


def test_hessian_of_logistic_regression_at_zero() -> None:
    features = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.25]])

    def loss(w: Any, v: Any) -> Any:
        return (fnx.grad(lambda w: nn.softplus(features @ w).sum())(w) * v).sum()

    rows_ = [fnx.grad(loss)(jnp.zeros(2), v) for v in np.eye(2)]
    np.testing.assert_allclose(rows_, features.T @ features / 4, rtol=1e-12)


# ---- corners below an infinite factor ----------------------------------------------------------

SINGULAR: dict[str, Callable[[Any], Any]] = {
    "log": jnp.log, "sqrt": jnp.sqrt, "1 / x": lambda x: 1 / x, "x**0.25": lambda x: x**0.25}
WITH_CORNER: dict[str, Callable[[Any], Any]] = {
    "abs": jnp.abs, "relu": fnx.nn.relu, "hypot": lambda x: jnp.hypot(x, 0.0), "round": jnp.round,
    "norm": lambda x: jnp.linalg.norm(jnp.stack([x, 2 * x])), "where": lambda x: jnp.where(
        x > 0, x, 0.0), "maximum": lambda x: jnp.maximum(x, 0.0), "leaky": fnx.nn.leaky_relu,
    "max of abs": lambda x: jnp.abs(jnp.stack([x, x])).max(), "sum of abs": lambda x: jnp.abs(
        jnp.stack([x, x])).sum(), "std": lambda x: jnp.std(jnp.stack([x, -x])),
    "custom": fnx.jit(lambda x: jnp.abs(x) * 2)}


@pytest.mark.cases(4)
@pytest.mark.parametrize("inner", WITH_CORNER)
def test_forward_mode_has_what_reverse_mode_has_at_corners(inner: str) -> None:
    for name, outer in SINGULAR.items():
        def f(x: Any, outer: Any = outer) -> Any:
            return outer(WITH_CORNER[inner](x))
        with np.errstate(all="ignore"):
            want = float(fnx.grad(f)(0.0))
            modes = {"jvp": fnx.jvp(f, (0.0,), (1.0,))[1], "jacfwd": fnx.jacfwd(f)(0.0),
                     "linearize": fnx.linearize(f, 0.0)[1](1.0),
                     "vmap": fnx.vmap(fnx.jacfwd(f))(jnp.zeros(2))[1]}
        for mode, value in modes.items():
            np.testing.assert_equal(float(value), want, f"{mode} of {name} of {inner}")
