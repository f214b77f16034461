"""Reductions of axes and windows and cumulative reductions equal Python loops over the elements."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.core.array import tree
from fnx.core.array.aval import Aval
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support import errors
from fnx.core.tracing.trace import trace
from fnx.transforms.control_flow.bodies import args_tree, trace_body
from fnx.transforms.control_flow.reductions import match_monoids
from fnx.transforms.link import link

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5)).astype(np.float32)


# ---- which functions are recognized as monoids --------------------------------------------------


def monoid(f: Callable[[Any, Any], Any], dtype: dtypes.DType = dtypes.float32
           ) -> list[ops.Op] | None:
    aval = Aval((), dtype)
    return match_monoids(trace_body(f, [aval, aval], args_tree(tree.LEAF, tree.LEAF), "reduce"))


def add(a: Any, b: Any) -> Any:
    return b + a


@pytest.mark.parametrize(("f", "dtype", "op"), [
    (lambda a, b: a + b, dtypes.float32, ops.ADD), (add, dtypes.int32, ops.ADD),
    (jnp.maximum, dtypes.float32, ops.MAX), (lambda a, b: lax.min(b, a), dtypes.int32, ops.MIN),
    (jnp.multiply, dtypes.float64, ops.MUL), (lambda a, b: a & b, dtypes.bool_, ops.AND),
    (jnp.logaddexp, dtypes.float32, ops.LOGADDEXP),
    (jnp.logical_or, dtypes.bool_, ops.OR), (lambda a, b: b ^ a, dtypes.uint32, ops.XOR)])
def test_monoids_are_recognized(f: Any, dtype: dtypes.DType, op: ops.Op) -> None:
    assert monoid(f, dtype) == [op]


@pytest.mark.cases(1)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_a_fold_that_is_a_formula_is_one_kernel_and_right_where_exp_overflows(axes: Any) -> None:
    x = 90 * RNG.normal(size=(37, 45)).astype(np.float32)
    f = fnx.jit(lambda x: lax.reduce(x, -jnp.inf, jnp.logaddexp, axes))
    wide = x.astype(np.float64)
    high = wide.max(axes, keepdims=True)
    want = np.log(np.exp(wide - high).sum(axes, keepdims=True)) + high
    np.testing.assert_allclose(f(x), want.squeeze(axes), rtol=1e-6)
    np.testing.assert_allclose(fnx.grad(lambda x: f(x).sum())(x), np.exp(wide - want), atol=1e-5)
    assert not np.any(fnx.grad(lambda x: f(x).sum())(jnp.full((2, 2), -jnp.inf)))


@pytest.mark.parametrize("f", [
    lambda a, b: a - b, lambda a, b: a + a, lambda a, b: b, lambda a, b: a + b + 1,
    lambda a, b: a + 2 * b, lambda a, b: jnp.maximum(a, 0.0), lambda a, b: a + X[0, 0, 0]])
def test_other_functions_are_not(f: Any) -> None:
    assert monoid(f) is None


def test_pairs_that_are_two_monoids() -> None:
    pair = tree.structure((0, 0))
    avals = [Aval((), dtypes.float32)] * 4
    for f, want in ((lambda a, b: (a[0] + b[0], jnp.maximum(b[1], a[1])), [ops.ADD, ops.MAX]),
                    (lambda a, b: (a[1] + b[0], a[0] + b[1]), None)):
        assert match_monoids(trace_body(f, avals, args_tree(pair, pair), "reduce")) == want


# ---- reduce -------------------------------------------------------------------------------------


def python_reduce(f: Callable[[Any, Any], Any], x: Any, init: float, axes: tuple[int, ...]) -> Any:
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = x.transpose(*sorted(axes), *kept).reshape(-1, *[x.shape[a] for a in kept])
    return functools.reduce(f, rows, np.full(rows.shape[1:], init, x.dtype))


@pytest.mark.parametrize("axes", [(), (0,), (2, 1), (0, 1, 2)])
@pytest.mark.parametrize("f", [
    lambda a, b: a + b, lambda a, b: a * 0.5 + b, lambda a, b: b - a * a * 0.1,
    lambda a, b: jnp.where(a > b, a, 2 * b) if isinstance(a, fnx.Array) else
    np.where(a > b, a, 2 * b)])
def test_reduce_is_the_python_loop(f: Any, axes: tuple[int, ...]) -> None:
    got = lax.reduce(X, 0.25, f, axes)
    np.testing.assert_allclose(got, python_reduce(f, X, 0.25, axes), rtol=2e-5, atol=1e-5)


def test_argmax_as_a_fold_of_pairs() -> None:
    def larger(p: Any, q: Any) -> Any:
        first = (p[0] > q[0]) | ((p[0] == q[0]) & (p[1] < q[1]))
        return tuple(jnp.where(first, a, b) for a, b in zip(p, q))
    places = jnp.broadcast_to(jnp.arange(5), X.shape)
    best, where = lax.reduce((X, places), (-jnp.inf, 99), larger, (2,))
    np.testing.assert_array_equal(best, X.max(2))
    np.testing.assert_array_equal(where, X.argmax(2))


def test_captures_of_the_function_are_operands() -> None:
    @fnx.jit
    def f(x: Any, scale: Any) -> Any:
        return lax.reduce(x, 0.0, lambda a, b: a * scale + b, (0,))
    np.testing.assert_allclose(f(X, 0.5), python_reduce(lambda a, b: a * 0.5 + b, X, 0.0, (0,)),
                               rtol=1e-5)


def test_folds_of_nothing() -> None:
    assert float(lax.reduce(jnp.zeros(0), 2.5, lambda a, b: a * b + b, (0,))) == 2.5
    assert lax.reduce(jnp.zeros((0, 3)), 1.0, lambda a, b: a - b, (0,)).tolist() == [1, 1, 1]
    assert lax.reduce(jnp.zeros((0, 3)), 1.0, lambda a, b: a - b, (1,)).shape == (0,)


# ---- windows ------------------------------------------------------------------------------------


def python_windows(f: Callable[[float, float], float], x: Any, init: float, size: Any,
                   strides: Any, padding: Any, base: Any, dilation: Any) -> Any:
    """Return each window on its own, its elements in row-major order."""
    spread = [(n - 1) * b + 1 for n, b in zip(x.shape, base)]
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation)]
    counts = [max(0, (n + lo + hi - r) // s + 1)
              for n, (lo, hi), r, s in zip(spread, padding, reach, strides)]
    out = np.empty(counts, x.dtype)
    for at in itertools.product(*map(range, counts)):
        out[at] = init
        for j in itertools.product(*map(range, size)):
            places = [i * s + k * d - lo for i, s, k, d, (lo, _)
                      in zip(at, strides, j, dilation, padding)]
            if all(0 <= p < n and p % b == 0 for p, n, b in zip(places, spread, base)):
                out[at] = f(out[at], x[tuple(p // b for p, b in zip(places, base))])
    return out


@st.composite
def window_arguments(draw: st.DrawFn) -> Any:
    rank = draw(st.integers(1, 2))

    def numbers(low: int, high: int) -> Any:
        return tuple(draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))
    padding = tuple(zip(numbers(0, 2), numbers(0, 3)))
    return numbers(1, 6), numbers(1, 3), numbers(1, 3), padding, numbers(1, 2), numbers(1, 2)


FUNCTIONS = [(lambda a, b: a + b, 0.0), (lambda a, b: a + b, 0.5), (max, -np.inf),
             (lambda a, b: a * 0.5 + b, 0.25)]


@settings(deadline=None, max_examples=25)
@given(window_arguments(), st.sampled_from(range(len(FUNCTIONS))))
def test_reduce_window_is_the_python_loop(how: Any, which: int) -> None:
    shape, size, strides, padding, base, dilation = how
    f, init = FUNCTIONS[which]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    got = lax.reduce_window(x, init, jnp.maximum if f is max else f, size, strides, padding, base,
                            dilation)
    want = python_windows(f, x, init, size, strides, padding, base, dilation)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_windows_are_no_memory() -> None:
    """Pooling and its gradient are kernels that read x; windows are not materialized."""
    def loss(x: Any) -> Any:
        return (lax.reduce_window(x, 0.0, lax.add, (3, 3), (2, 2)) ** 2).sum()
    x = RNG.normal(size=(65, 65)).astype(np.float32)

    def commands(f: Any) -> list[UOp]:
        fn = trace(f, [Aval(x.shape, dtypes.float32)], args_tree(tree.LEAF), transform="test",
                   name="f").close().function
        return toposort([link(fn, get_device("cpu")).lowered.block.commands], into_functions=True)
    nodes = commands(lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 3), (2, 2)))
    assert len([n for n in nodes if n.op is ops.EXEC]) == 1
    nodes = commands(fnx.grad(loss))
    largest = max(n.arg.nbytes for n in nodes if n.op is ops.SLOT)
    assert largest <= x.nbytes + 64


@pytest.mark.parametrize("f", [
    lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 3), (1, 2), "SAME"),
    lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3, 2), (2, 1), ((1, 0), (0, 1))),
    lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 2), None, "VALID", (2, 1), (1, 2)),
    lambda x: nn.avg_pool(x[..., None], (2, 2), (2, 2), "SAME", count_include_pad=False)])
def test_gradients_of_windows(f: Any) -> None:
    x = RNG.normal(size=(5, 6))
    out = np.asarray(f(jnp.asarray(x, np.float64)))
    w = RNG.normal(size=out.shape)

    def loss(x: Any) -> Any:
        return (f(x) * w).sum()
    got = np.asarray(fnx.grad(loss)(jnp.asarray(x, np.float64)))
    direction, h = RNG.normal(size=x.shape), 1e-6
    ends = [float(loss(jnp.asarray(x + s * h * direction, np.float64))) for s in (1, -1)]
    np.testing.assert_allclose((got * direction).sum(), (ends[0] - ends[1]) / (2 * h), rtol=1e-5)


@pytest.mark.parametrize("batch", [True, False])
def test_pools(batch: bool) -> None:
    x = RNG.normal(size=(2, 5, 6, 3) if batch else (5, 6, 3)).astype(np.float32)
    whole = x if batch else x[None]
    rows = [whole[:, i:i + 4:2, j:j + 5:2] for i in range(2) for j in range(2)]
    stacked = np.stack([r[:, :2, :3] for r in rows])
    for f, want in ((nn.max_pool, stacked.max(0)), (nn.min_pool, stacked.min(0)),
                    (nn.avg_pool, stacked.mean(0))):
        got = f(x, (2, 2), (2, 2))
        np.testing.assert_allclose(got, want if batch else want[0], rtol=1e-5, atol=1e-6)


# ---- cumulative reductions ----------------------------------------------------------------------


@pytest.mark.cases(4)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan_of_a_function_that_is_not_commutative(n: int, reverse: bool) -> None:
    """Affine maps: (a, b) then (c, d)."""
    a, b = RNG.normal(size=(2, 2, n, 3)).astype(np.float32)

    def then(p: Any, q: Any) -> Any:
        return {"m": p["m"] * q["m"], "t": p["t"] * q["m"] + q["t"]}
    got = lax.associative_scan(then, {"m": a, "t": b}, reverse, axis=1)
    m, t, want = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32), np.zeros_like(b)
    for i in reversed(range(n)) if reverse else range(n):
        m, t = m * a[:, i], t * a[:, i] + b[:, i]
        want[:, i] = t
    np.testing.assert_allclose(got["t"], want, rtol=1e-4, atol=1e-5)


def test_associative_scan_is_work_efficient_and_differentiable() -> None:
    calls: list[int] = []

    def counted(a: Any, b: Any) -> Any:
        calls.append(a.shape[0])
        return a * b
    x = np.linspace(0.5, 1.5, 64).astype(np.float32)
    lax.associative_scan(counted, x)
    assert sum(calls) <= 2 * 64
    assert len(calls) <= 12
    got = fnx.grad(lambda x: lax.associative_scan(lambda a, b: a * b, x)[-1])(x)
    np.testing.assert_allclose(got, np.prod(x) / x, rtol=1e-4)


@pytest.mark.cases(14)
@pytest.mark.parametrize(("name", "f"), [("cummax", np.maximum), ("cummin", np.minimum),
                                         ("cumlogsumexp", np.logaddexp)])
@pytest.mark.parametrize(("axis", "reverse"), [(0, False), (1, True), (-1, False)])
def test_running_folds(name: str, f: Any, axis: int, reverse: bool) -> None:
    got = getattr(lax, name)(X, axis, reverse)
    at = slice(None, None, -1 if reverse else 1)
    rows = np.moveaxis(X, axis, 0)[at]
    want = np.moveaxis(f.accumulate(rows, 0)[at], 0, axis)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# ---- bad input ----------------------------------------------------------------------------------

BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "init dtype": (lambda: lax.reduce(X, jnp.zeros((), np.int32), add, (0,)), errors.DTypeError,
                   "expected an initial value of float32, got int32"),
    "init shape": (lambda: lax.reduce(X, jnp.zeros(2), add, (0,)), errors.ShapeError,
                   "expected a scalar as initial value"),
    "init tree": (lambda: lax.reduce((X, X), 0.0, add, (0,)), errors.PytreeError,
                  "expected an initial value for each operand"),
    "shapes": (lambda: lax.reduce((X, X[0]), (0.0, 0.0), add, (0,)), errors.ShapeError,
               "expected operands of equal shape"),
    "result": (lambda: lax.reduce(X, 0.0, lambda a, b: a > b, (0,)), errors.DTypeError,
               r"expected result of <lambda> to keep its type float32\[\], got bool\[\]"),
    "result tree": (lambda: lax.reduce(X, 0.0, lambda a, b: (a, b), (0,)), errors.PytreeError,
                    "expected <lambda> to return a result of the structure"),
    "axis": (lambda: lax.reduce(X, 0.0, add, (3,)), errors.AxisError, "got 3"),
    "window": (lambda: lax.reduce_window(X, 0.0, add, (2, 2)), errors.ArgumentError,
               r"expected window_dimensions as 3 numbers >= 1, got \(2, 2\)"),
    "stride": (lambda: lax.reduce_window(X, 0.0, add, (2, 2, 2), (0, 1, 1)), errors.ArgumentError,
               "window_strides as 3 numbers >= 1"),
    "padding": (lambda: lax.reduce_window(X, 0.0, add, (1, 1, 1), None, "FULL"),
                errors.ArgumentError, "expected padding 'VALID'"),
    "lengths": (lambda: lax.associative_scan(add, {"a": X, "b": X[:2]}), errors.ShapeError,
                r"got 3 of elems\['a'\] and 2 of elems\['b'\]"),
    "shape": (lambda: lax.associative_scan(lambda a, b: (a + b)[0], X), errors.ShapeError,
              "expected fn to return the shape of its arguments"),
    "nothing": (lambda: lax.associative_scan(add, ()), errors.ArgumentError, "got none"),
    "pool": (lambda: nn.max_pool(X[0, 0], (2, 2)), errors.ShapeError, "with or without batch"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    call, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        call()


def test_windows_as_nodes() -> None:
    x: UOp = build.param(0, dtypes.float32, (3, 7))
    with pytest.raises(errors.OutOfBoundsError, match="at most 3 windows of 3"):
        build.unfold(x, 1, 0, 2, 1, 4)
    with pytest.raises(errors.AxisError, match="two axes"):
        build.unfold(x, 1, 1)
    with pytest.raises(errors.OutOfBoundsError, match="to fit, got length 8"):
        build.fold(x, 1, 0, 1, 1, 8)
