"""Reverse mode against finite differences in float64, to second order, by random projection.

Every op that has a derivative is checked: elementwise ops on operands drawn for them, other ops by
examples. An op without an example fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fnx.core.formulas import fft_plan
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp, spec
from fnx.core.scope import scope
from fnx.core.tracing.trace import close
from fnx.core.tracing.trace import inline_function as inline_at
from fnx.lower.tensor.inline import inline
from fnx.transforms.autodiff.derivatives import DERIVATIVES
from fnx.transforms.autodiff.higher_order import GetTupleRule, HigherOrderRule
from fnx.transforms.autodiff.reverse import pullback
from fnx.transforms.autodiff.rules import Cotangent, Elementwise
from tests.graphs import Graph, graphs

F8 = dtypes.float64
Values = list[np.ndarray[Any, Any]]
Make = Callable[..., UOp]


def params(values: Sequence[Any]) -> list[UOp]:
    return [build.param(i, dtypes.as_dtype(v.dtype), v.shape) for i, v in enumerate(values)]


def projected(outs: Sequence[UOp], rng: np.random.Generator) -> UOp:
    """Return a random linear function of all results, so that errors do not cancel."""
    total = build.const(0.0, F8)
    for out in outs:
        n = math.prod(out.shape)
        place = build.add(build.cast(build.iota(n), F8), build.const(rng.uniform(1, 9), F8, (n,)))
        weights = build.elementwise(ops.SIN, build.mul(place, build.const(1.7, F8, (n,))))
        product = build.mul(build.reshape(out, (n,)), weights)
        total = build.add(total, build.reduce(product, ops.ADD, (0,)))
    return total


def gradients(loss: UOp, wrt: list[UOp]) -> list[UOp]:
    outs, cts = pullback([loss], [Cotangent(build.const_like(loss, 1))], wrt)
    assert outs[0].shape == ()
    return [build.const_like(w, 0) if ct is None else ct.value for w, ct in zip(wrt, cts)]


def check(make: Make, values: Values, order: int = 2, seed: int = 0, tol: float = 2e-6,
          may_be_nonfinite: bool = False) -> None:
    """Check the derivative of make(*values) along a random direction, and that of its gradient.

    A ``wild`` function may vary too fast for finite differences; it is then skipped.
    """
    rng = np.random.default_rng(seed)
    xs = params(values)
    floats = [x for x in xs if x.dtype.is_float]
    loss = projected([make(*xs)], rng)
    for step in range(order):
        grads = gradients(loss, floats)
        spec.check(grads, "tensor")
        env = dict(zip(xs, values))
        direction = {x: rng.normal(size=x.shape) for x in floats}
        got = sum((g * direction[x]).sum()
                  for x, g in zip(floats, interp.evaluate(grads, env)))
        want, doubt = slope(loss, env, direction)
        if may_be_nonfinite:
            assume(doubt <= 1e-4 * max(1.0, abs(want)))
        assert got == pytest.approx(want, rel=tol, abs=max(tol, doubt)), step + 1
        loss = projected(grads, rng)


def slope(loss: UOp, env: dict[UOp, Any], direction: dict[UOp, Any]
          ) -> tuple[float, float]:
    """Return central differences, extrapolated once, and the size of that correction."""
    def at(h: float) -> float:
        moved = {x: v + h * direction[x] if x in direction else v for x, v in env.items()}
        return float(interp.evaluate([loss], moved)[0])

    def central(h: float) -> float:
        return (at(h) - at(-h)) / (2 * h)

    far, near = central(1e-3), central(5e-4)
    return (4 * near - far) / 3, abs(near - far) / 3


# ---- every op ---------------------------------------------------------------------------------


def uniform(*shape: int, low: float = 0.6, high: float = 1.7, seed: int = 1) -> Any:
    return np.random.default_rng(seed + len(shape)).uniform(low, high, shape)


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def distinct(*shape: int) -> Any:
    n = int(np.prod(shape))
    return np.random.default_rng(0).permutation(n).reshape(shape) * 0.37 - 1.0


def reduced(monoid: ops.Op, *axes: int) -> Make:
    return lambda x: build.reduce(x, monoid, axes)


def scattered(monoid: ops.Op | None = None) -> Make:
    return lambda x, i, u: build.scatter(x, [i], u, monoid)


def complex_square(x: UOp, y: UOp) -> UOp:
    """re(z**2) * im(z**2)."""
    z = build.complex_number(x, y)
    square = build.mul(z, z)
    return build.mul(build.real(square), build.imag(square))


WHERE_EXAMPLE = (lambda a, b: build.where(build.lt(a, b), build.mul(a, a), build.exp(b)),
                 [uniform(3, seed=5), uniform(3, seed=6)])
SCATTERED = [distinct(4, 2), ints(1, 3, 1, 7, 1), distinct(5, 2) * 1.1 + 0.05]
WITH_ZEROS = np.array([[1.5, 0.0, 2.0, 0.7], [0.0, 1.2, 0.0, 3.0], [1.1, 0.8, 2.0, 0.5]])
MUL_UPDATES = np.array([[2.0, 0.0], [0.0, 1.5], [1.3, 0.7], [1.1, 1.0], [0.4, 0.0]])

EXAMPLES: dict[ops.Op, list[tuple[Make, Values]]] = {
    ops.ASIN: [(lambda x: build.elementwise(ops.ASIN, x), [uniform(3, low=-0.9, high=0.9)])],
    ops.TAN: [(lambda x: build.elementwise(ops.TAN, x), [uniform(3, low=-0.9, high=0.9)])],
    ops.WHERE: [WHERE_EXAMPLE],
    ops.CAST: [(lambda x: build.cast(build.cast(x, F8), F8), [uniform(3)])],
    ops.ABS: [(lambda x: build.elementwise(ops.ABS, x), [distinct(5) + 0.01])],
    ops.REM: [(lambda a, b: build.rem(a, b), [uniform(4) * 5, uniform(4, seed=9)])],
    ops.REAL: [(lambda x: build.real(build.complex_number(x, build.mul(x, x))), [uniform(3)])],
    ops.IMAG: [(lambda x: build.imag(build.complex_number(build.exp(x), build.mul(x, x))),
                [uniform(3)])],
    ops.COMPLEX: [(lambda x, y: complex_square(x, y), [uniform(3), uniform(3, seed=7)])],
    ops.RESHAPE: [(lambda x: build.reshape(x, (3, 4)), [uniform(2, 6)])],
    ops.PERMUTE: [(lambda x: build.permute(x, (2, 0, 1)), [uniform(2, 3, 4)])],
    ops.EXPAND: [(lambda x: build.expand(x, (4, 2, 3)), [uniform(2, 1)]),
                 (lambda x: build.expand(x, (0, 3)), [uniform(1, 3)])],
    ops.PAD: [(lambda x, v: build.pad(x, [(1, 2), (0, 1)], v), [uniform(2, 3), uniform()])],
    ops.SHRINK: [(lambda x: build.shrink(x, [(1, 3), (0, 2)]), [uniform(4, 3)])],
    ops.FLIP: [(lambda x: build.flip(x, (0, 1)), [uniform(2, 3)])],
    ops.CONCAT: [(lambda x, y: build.concat([x, y, x], 1), [uniform(2, 3), uniform(2, 1)])],
    ops.UNFOLD: [(lambda x: build.unfold(x, 1, 0, 2, 1), [uniform(3, 7)]),
                 (lambda x: build.unfold(build.expand(x, (2, 6)), 1, 0, 1, 3), [uniform(1, 6)])],
    ops.FOLD: [(lambda x: build.fold(x, 1, 0, 2, 1, 10), [uniform(3, 4)])],
    ops.FFT: [(lambda x, table: build_calls.fft(x, table, 1, True, 0.5),
               [uniform(2, 3, 2), fft_plan.table(3, 1)])],
    ops.BARRIER: [(lambda x: build.barrier(x, build.neg(x)), [uniform(3)])],
    ops.REDUCE: [(reduced(ops.ADD, 0), [uniform(3, 2)]),
                 (reduced(ops.MAX, 1), [distinct(3, 4)]),
                 (reduced(ops.MIN, 0, 2), [distinct(2, 3, 4)]),
                 (reduced(ops.MUL, 1), [WITH_ZEROS]),
                 (reduced(ops.MUL, 0, 1), [uniform(5, 1, 2)]),
                 (reduced(ops.MUL, 0), [uniform(0, 2)]),
                 (reduced(ops.LOGADDEXP, 0, 2), [distinct(2, 3, 4)])],
    ops.GATHER: [(lambda x, i: build.gather(x, i), [uniform(4, 2), ints(3, 0, 3, 1)]),
                 (lambda x, i, j: build.gather(x, i, j),
                  [uniform(4, 2, 3), ints(3, 2, 0), ints(1, 1, 0)])],
    ops.SCATTER: [(scattered(m), SCATTERED) for m in (ops.ADD, None, ops.MAX, ops.MIN,
                                                       ops.LOGADDEXP)] + [
        (scattered(ops.MUL), [uniform(4, 2), ints(1, 1, 1, 2, 9), MUL_UPDATES]),
        (lambda x, i, j, u: build.scatter(x, [i, j], u),
         [uniform(3, 2), ints(0, 2, 0), ints(1, 5, 1), uniform(3)])],
}


def examples(op: ops.Op) -> list[tuple[Make, Values]]:
    if op not in EXAMPLES and op.kind == "elementwise":
        values = [uniform(3, seed=10 + i) for i in range(op.arity or 1)]
        return [(lambda *xs: build.elementwise(op, *xs), values)]
    return EXAMPLES[op]


DIFFERENTIABLE = [op for op, rule in DERIVATIVES.items()
                  if type(rule).operands is not type(DERIVATIVES[ops.IOTA]).operands
                  and not isinstance(rule, HigherOrderRule | GetTupleRule)
                  and op.kind != "collective"]  # in tests/transforms/batching/test_collectives.py
CASES = [(op, k) for op in DIFFERENTIABLE for k in range(len(examples(op)))]


def node_of(op: ops.Op, k: int, xs: list[UOp]) -> UOp | None:
    """Return the node of the op in its example; None if the constructor simplified it away."""
    node = examples(op)[k][0](*xs)
    while node.op is not op and node.src:
        node = node.src[0]
    return node if node.op is op else None


ROWS = [(op, k) for op, k in CASES if node_of(op, k, params(examples(op)[k][1])) is not None]


@pytest.mark.cases(31)
@pytest.mark.parametrize("op, k", CASES, ids=lambda x: str(x))
def test_each_op_has_the_slope_that_differences_show(op: ops.Op, k: int) -> None:
    make, values = examples(op)[k]
    squared = lambda *xs: square(make(*[mixed(x) for x in xs]))
    check(make, values)
    check(squared, values)


def square(x: UOp) -> UOp:
    return build.mul(x, x)


def mixed(x: UOp) -> UOp:
    """Return a smooth, increasing function of x with a second derivative; integers are
    unchanged."""
    if not x.dtype.is_float:
        return x
    return build.add(x, build.mul(build.const_like(x, 0.1), build.mul(x, x)))


def drawn_like(x: UOp, rng: np.random.Generator) -> Any:
    drawn = rng.normal(size=x.shape)
    return drawn + 1j * rng.normal(size=x.shape) if x.dtype.is_complex else drawn


@pytest.mark.parametrize("op, k", ROWS, ids=lambda x: str(x))
def test_forward_and_reverse_read_the_same_row(op: ops.Op, k: int) -> None:
    """<ct, jvp(t)> = <vjp(ct), t>, for tangents of all operands together; complex cotangents act
    as the real part of a product."""
    values = examples(op)[k][1]
    xs = params(values)
    node = node_of(op, k, xs)
    assert node is not None
    rule, rng = DERIVATIVES[op], np.random.default_rng(3)
    tangents = [build.param(100 + i, s.dtype, s.shape) if i in rule.operands(node) else None
                for i, s in enumerate(node.src)]
    ct = build.param(200, node.dtype, node.shape)
    env: dict[UOp, Any] = dict(zip(xs, values))
    env.update({p: drawn_like(p, rng) for p in [*tangents, ct] if p is not None})
    out_tangent = rule.jvp(node, tangents)
    assert out_tangent is not None
    forward = (interp.evaluate([out_tangent], env)[0] * env[ct]).sum().real
    reverse = sum((interp.evaluate([rule.vjp(node, i, ct)], env)[0] * env[t]).sum().real
                  for i, t in enumerate(tangents) if t is not None)
    assert forward == pytest.approx(reverse, rel=1e-9, abs=1e-12)


def test_elementwise_rows_are_those_of_elementwise_ops() -> None:
    for op, rule in DERIVATIVES.items():
        if isinstance(rule, Elementwise):
            assert op.kind == "elementwise" and len(rule.jvps) == op.arity


# ---- graphs -----------------------------------------------------------------------------------

SMOOTH = frozenset({
    ops.NEG, ops.SIN, ops.COS, ops.TANH, ops.ADD, ops.SUB, ops.MUL, ops.RESHAPE, ops.PERMUTE,
    ops.EXPAND, ops.PAD, ops.SHRINK, ops.FLIP, ops.CONCAT, ops.UNFOLD, ops.FOLD, ops.REDUCE,
    ops.GATHER, ops.SCATTER, ops.CALL, ops.BARRIER})
smooth_graphs = graphs(types=[F8], allowed=SMOOTH, steps=10, calls=2, smooth=True)


def results(fn: UOp, xs: Sequence[UOp]) -> list[UOp]:
    """Return the float results of a FUNCTION, bounded, as products of products are large."""
    return [build.elementwise(ops.TANH, out) for out in inline_at(fn, xs)
            if out.dtype.is_float]


@settings(max_examples=60)
@given(smooth_graphs, st.integers(0, 1000))
def test_gradients_of_graphs(graph: Graph, seed: int) -> None:
    flat = lambda x: build.reshape(x, (math.prod(x.shape),))
    assume(any(out.dtype.is_float for out in graph.fn.src))
    check(lambda *xs: build.concat([flat(out) for out in results(graph.fn, xs)], 0), graph.args,
          seed=seed, tol=2e-5, may_be_nonfinite=True)


@settings(max_examples=60)
@given(smooth_graphs)
def test_a_call_has_the_derivatives_of_its_body(graph: Graph) -> None:
    xs, found = params(graph.args), []
    floats = [x for x in xs if x.dtype.is_float]
    for fn in (graph.fn, inline(graph.fn)):
        loss = projected(results(fn, xs), np.random.default_rng(1))
        derivatives: list[UOp] = []
        for order in (2, 3, 4):
            derivatives += (new := gradients(loss, floats))
            loss = projected(new, np.random.default_rng(order))
        found.append(interp.evaluate(derivatives, dict(zip(xs, graph.args))))
    for by_call, plain in zip(*found):
        np.testing.assert_allclose(by_call, plain, rtol=1e-7, atol=1e-9 * max(
            1.0, float(np.abs(plain).max(initial=0.0))))


@settings(max_examples=30)
@given(smooth_graphs)
def test_equal_functions_have_one_gradient(graph: Graph) -> None:
    """The order of sums follows from the function, not from what was traced before."""
    def closed() -> UOp:
        with scope.Scope("grad") as opened:
            xs = [opened.leaf(p.dtype, p.shape) for p in params(graph.args)]
            loss = projected(results(graph.fn, xs), np.random.default_rng(0))
            return close(gradients(loss, [x for x in xs if x.dtype.is_float]), xs)[0]
    assert closed() is closed()
