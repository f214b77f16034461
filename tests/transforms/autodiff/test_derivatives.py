"""The derivative table is complete, and its choices at singular points are those it documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.transforms.autodiff.derivatives import DERIVATIVES
from fnx.transforms.autodiff.forward import pushforward
from fnx.transforms.autodiff.reverse import pullback
from fnx.transforms.autodiff.rules import Cotangent

F8 = dtypes.float64
INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("op", sorted(ops.ops_at_level("t"), key=lambda op: op.name), ids=str)
def test_each_op_of_the_tensor_level_has_a_row(op: ops.Op) -> None:
    assert op in DERIVATIVES


def derivative(f: Callable[..., UOp], *at: float, modes: str = "r",
               shape: tuple[int, ...] = ()) -> Any:
    """Return the derivative of f in its first argument, whose elements of ``shape`` are all equal.

    ``modes`` has "f" (forward, along a direction of ones) or "r" (reverse) for each order.
    """
    xs = [build.param(i, F8, shape) for i in range(len(at))]
    y = f(*xs)
    for mode in modes:
        total = build.reduce(y, ops.ADD, range(len(y.shape)))
        t: UOp | None
        if mode == "f":
            (_,), (t,) = pushforward([total], {xs[0]: build.const_like(xs[0], 1)})
        else:
            (_,), (ct,) = pullback([total], [Cotangent(build.const_like(total, 1))], xs[:1])
            t = None if ct is None else ct.value
        y = build.const_like(xs[0] if mode == "r" else total, 0) if t is None else t
    env = {x: np.full(shape, v) for x, v in zip(xs, at)}
    return interp.evaluate([y], env)[0]


def zero(x: UOp) -> UOp:
    return build.const_like(x, 0)


def one(op: ops.Op) -> Callable[[UOp], UOp]:
    return lambda x: build.elementwise(op, x)


SINGULAR: list[tuple[Callable[..., UOp], tuple[float, ...], float]] = [
    (build.sqrt, (0.0,), INF),
    (one(ops.ABS), (0.0,), 0.0),
    (build.maximum, (1.0, 1.0), 0.5),
    (build.minimum, (1.0, 1.0), 0.5),
    (build.maximum, (2.0, 1.0), 1.0),
    (build.maximum, (0.0, 1.0), 0.0),
    (build.power, (0.0, 2.0), 0.0),
    (build.power, (0.0, 1.0), 1.0),
    (build.power, (0.0, 0.5), INF),
    (build.power, (0.0, 0.0), 0.0),
    (build.power, (-2.0, 3.0), 12.0),
    (lambda y, a: build.power(a, y), (2.0, 0.0), 0.0),
    (lambda y, a: build.power(a, y), (0.0, 0.0), 0.0),
    (lambda x: build.mul(build.sqrt(x), build.sqrt(x)), (0.0,), NAN),
    (one(ops.FLOOR), (1.5,), 0.0),
    (lambda x: build.stop_gradient(x), (1.5,), 0.0),
    (lambda x: build.mul(x, build.stop_gradient(x)), (1.5,), 1.5),
    (one(ops.EXPM1), (-30.0,), float(np.exp(-30.0))),
]


@pytest.mark.parametrize("mode", ["f", "r"])
@pytest.mark.parametrize("k", range(len(SINGULAR)))
def test_singular_points(k: int, mode: str) -> None:
    f, at, expected = SINGULAR[k]
    np.testing.assert_allclose(derivative(f, *at, modes=mode), expected, rtol=1e-12)


@pytest.mark.parametrize("monoid, values, expected", [
    (ops.MAX, [3.0, 1.0, 3.0], [0.5, 0.0, 0.5]),
    (ops.MIN, [1.0, 1.0, 1.0], [1 / 3, 1 / 3, 1 / 3]),
    (ops.MUL, [2.0, 0.0, 3.0], [0.0, 6.0, 0.0]),
    (ops.MUL, [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    (ops.MUL, [5.0], [1.0]),
])
def test_folds(monoid: ops.Op, values: list[float], expected: list[float]) -> None:
    x = build.param(0, F8, (len(values),))
    y = build.reduce(x, monoid, (0,))
    (_,), (ct,) = pullback([y], [Cotangent(build.const_like(y, 1))], [x])
    assert ct is not None
    np.testing.assert_allclose(interp.evaluate([ct.value], {x: np.array(values)})[0], expected)


# ---- symbolic zeros ---------------------------------------------------------------------------


def positive(f: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """where(x > 0, f(x), 0)"""
    return lambda x: build.where(build.lt(zero(x), x), f(x), zero(x))


def norm(x: UOp) -> UOp:
    total = build.reduce(build.mul(x, x), ops.ADD, (0,))
    return positive(build.sqrt)(total)


def unit(x: UOp) -> UOp:
    """x / |x|, and 0 at 0: the mask has to pass the sum, the root and the broadcast."""
    root = build.sqrt(build.reduce(build.mul(x, x), ops.ADD, (0,)))
    root = build.expand(build.reshape(root, (1,)), x.shape)
    return build.where(build.lt(zero(x), root), build.div(x, root), zero(x))


def tail(f: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """f of all elements, none of which is read."""
    return lambda x: build.shrink(f(x), [(2, 2)])


def picked(f: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """f of all elements, of which only the first is read, and then overwritten."""
    def g(x: UOp) -> UOp:
        first = build.gather(f(x), build.const(0, dtypes.int32, (1,)))
        index = build.const(0, dtypes.int32, (1,))
        return build.scatter(first, [index], build.const(1.0, F8, (1,)))
    return g


def called(f: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """f as a FUNCTION: the mask has to pass into the call."""
    def g(x: UOp) -> UOp:
        fn = build.function([f(build.param(0, F8, x.shape))], 1, "f")
        return build_calls.call(fn, [x])[0]
    return g


def product(x: UOp, y: UOp) -> UOp:
    """x * y in a call."""
    a, b = build.param(0, F8, x.shape), build.param(1, F8, x.shape)
    return build_calls.call(build.function([build.mul(a, b)], 2, "product"), [x, y])[0]


HARMLESS: list[tuple[str, Callable[[UOp], UOp], tuple[int, ...]]] = [
    ("sqrt", positive(build.sqrt), ()),
    ("log", positive(build.log), ()),
    ("x log x", positive(lambda x: build.mul(x, build.log(x))), ()),
    ("1 / x", positive(lambda x: build.div(build.const_like(x, 1), x)), ()),
    ("x ** 0.5", positive(lambda x: build.power(x, build.const_like(x, 0.5))), ()),
    ("x ** -2", positive(lambda x: build.power(x, build.const_like(x, -2.0))), ()),
    ("x ** x", positive(lambda x: build.power(x, x)), ()),
    ("log sqrt", positive(lambda x: build.log(build.sqrt(x))), ()),
    ("sin log", positive(lambda x: build.elementwise(ops.SIN, build.log(x))), ()),
    ("sqrt of sum", positive(lambda x: build.sqrt(build.add(x, x))), ()),
    ("norm", norm, (3,)),
    ("unit", unit, (3,)),
    ("in a call", positive(called(build.sqrt)), ()),
    ("before a call", positive(lambda x: called(lambda y: build.mul(y, y))(build.sqrt(x))), ()),
    ("in a call in a call", positive(called(called(build.log))), ()),
    ("wild operand of a call", positive(lambda x: product(x, build.log(x))), ()),
    ("wild result of a call", positive(lambda x: build.mul(x, called(build.log)(x))), ()),
    ("where in a call", called(positive(build.sqrt)), ()),
    ("shrink", tail(build.sqrt), (4,)),
    ("gather", picked(build.sqrt), (3,)),
    ("max", lambda x: build.maximum(build.sqrt(x), build.const_like(x, 1.0)), ()),
    ("reduce max", lambda x: build.reduce(build.concat(
        [build.sqrt(x), build.const_like(x, 1.0)], 0), ops.MAX, (0,)), (2,)),
    ("padding", lambda x: build.shrink(build.pad(build.sqrt(x), [(2, 0)]), [(0, 2)]), (2,)),
    ("concat", lambda x: build.shrink(build.concat([build.sqrt(x), x], 0), [(2, 4)]), (2,)),
]


@pytest.mark.parametrize("modes", ["f", "r", "ff", "fr", "rf", "rr"])
@pytest.mark.parametrize("name, f, shape", HARMLESS, ids=[h[0] for h in HARMLESS])
def test_a_branch_not_taken_hands_on_zero(name: str, f: Callable[[UOp], UOp],
                                          shape: tuple[int, ...], modes: str) -> None:
    expected = {"f": 2.0, "r": 1.0}.get(modes, 0.0) if name == "concat" else 0.0
    np.testing.assert_array_equal(derivative(f, 0.0, modes=modes, shape=shape), expected)


def test_overflow_in_a_branch_not_taken() -> None:
    def elu(x: UOp) -> UOp:
        return build.where(build.lt(zero(x), x), x, build.elementwise(ops.EXPM1, x))
    assert derivative(elu, 1000.0) == 1.0


def test_a_zero_that_is_a_number_hides_nothing() -> None:
    """At 1, the second derivative of log(x)**2 / 2 is 1, although the cotangent of the log is 0."""
    def f(x: UOp) -> UOp:
        return build.div(build.mul(build.log(x), build.log(x)), build.const_like(x, 2.0))
    assert {derivative(f, 1.0, modes=modes).item() for modes in ("ff", "fr", "rf", "rr")} == {1.0}
    assert np.isnan(derivative(lambda x: build.mul(zero(x), build.sqrt(x)), 0.0))


def nodes_of(f: Callable[[UOp], UOp], shape: tuple[int, ...]) -> list[ops.Op]:
    x = build.param(0, F8, shape)
    total = build.reduce(f(x), ops.ADD, range(len(f(x).shape)))
    (_,), (ct,) = pullback([total], [Cotangent(build.const_like(total, 1))], [x])
    assert ct is not None
    return [n.op for n in toposort([ct.value])]


def test_ordinary_code_pays_no_mask() -> None:
    """leaky relu after polynomials and products: one WHERE for its own gradient, no more."""
    def leaky(x: UOp) -> UOp:
        h = build.mul(build.add(x, x), x)
        return build.where(build.lt(zero(h), h), h, build.mul(h, build.const_like(h, 0.01)))
    assert nodes_of(leaky, (4,)).count(ops.WHERE) <= 2
    assert ops.OR not in nodes_of(leaky, (4,))


def test_a_contraction_lets_no_mask_through() -> None:
    """relu(norm(x) @ w): the gradient of the product stays a plain contraction."""
    def layer(x: UOp) -> UOp:
        scale = build.sqrt(build.reduce(build.mul(x, x), ops.ADD, (1,)))
        h = build.div(x, build.expand(build.reshape(scale, (3, 1)), (3, 4)))
        left = build.expand(build.reshape(h, (3, 1, 4)), (3, 5, 4))
        right = build.expand(build.reshape(build.const(0.5, F8, (5, 4)), (1, 5, 4)), (3, 5, 4))
        y = build.reduce(build.mul(left, right), ops.ADD, (2,))
        return build.where(build.lt(zero(y), y), y, zero(y))
    found = nodes_of(layer, (3, 4))
    assert found.count(ops.WHERE) == 1 and ops.OR not in found
