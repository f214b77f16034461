"""vjp, linearize, linear_transpose: maps as values, and functions that are not linear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import DTypeError, GradError, PytreeError, ShapeError
from fnx.transforms.autodiff.arguments import FLOAT0

W = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
X = np.linspace(0.3, 2, 12, dtype=np.float32).reshape(4, 3)


def model(w: Any, x: Any) -> Any:
    h = fnx.jit(lambda x: jnp.exp(x).sum(1, keepdims=True))(x)
    return {"a": jnp.tanh(x @ w) * h, "b": jnp.where(x > 1, jnp.log(x), 0.0).sum()}


def close(one: Any, other: Any) -> None:
    fnx.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), one, other)


def test_linearize_is_jvp_at_a_point() -> None:
    out, push = fnx.linearize(model, W, X)
    along = (np.cos(W), np.sin(X))
    want = fnx.jvp(model, (W, X), along)
    close(out, want[0])
    close(push(*along), want[1])
    close(push(*[2 * t for t in along]), fnx.tree.map(lambda t: 2 * t, want[1]))


@pytest.mark.cases(1)
@pytest.mark.parametrize("of", [fnx.linearize, fnx.vjp])
def test_linear_maps_are_arrays(of: Any) -> None:
    """They pass through jit and vmap, as functions and as arguments, and can be reused."""
    out, linear = of(model, W, X)
    given = (out,) if of is fnx.vjp else (W, X)
    want = linear(*given)
    close(fnx.jit(linear)(*given), want)
    close(fnx.jit(lambda m, g: m(*g))(linear, given), want)
    twice = fnx.tree.map(lambda x: jnp.stack([x, 3 * x]), given)
    close(fnx.tree.map(lambda x: x[1], fnx.vmap(linear)(*twice)),
          fnx.tree.map(lambda x: 3 * x, want))
    leaves, structure = fnx.tree.flatten(linear)
    assert leaves and all(type(x) is fnx.Array for x in leaves)
    close(structure.unflatten(leaves)(*given), want)


def test_a_linear_map_may_leave_a_trace() -> None:
    maps = fnx.jit(lambda x: fnx.vjp(jnp.tanh, x)[1])(X)
    close(maps(jnp.ones_like(X))[0], 1 - np.tanh(X) ** 2)
    maps = fnx.vmap(lambda x: fnx.linearize(jnp.tanh, x)[1])(X)
    close(fnx.vmap(lambda m, t: m(t))(maps, X), X * (1 - np.tanh(X) ** 2))


def test_the_forward_pass_is_not_run_again() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return jnp.exp(x).sum()

    for of, given in ((fnx.vjp, 1.0), (fnx.linearize, X)):
        calls.clear()
        _, linear = of(f, X)
        for _ in range(3):
            linear(given)
        assert len(calls) == 1


def test_integers_and_aux() -> None:
    out, push, aux = fnx.linearize(lambda x, n: ((x * n, n + 1), "aux"), 2.0, 3, has_aux=True)
    t = push(1.0, None)
    assert out == (6.0, 4) and aux == "aux" and t[0] == 3.0 and t[1].dtype == FLOAT0
    _, pull = fnx.vjp(lambda x, n: (x * n, n + 1), 2.0, 3)
    assert pull((1.0, None))[0] == 3.0
    assert pull((1.0, np.zeros((), FLOAT0)))[1].dtype == FLOAT0


@pytest.mark.parametrize("given, error", [
    (((1.0,),), PytreeError), ((None,), PytreeError), ((jnp.ones(2),), ShapeError),
    ((1,), DTypeError), ((np.zeros((), FLOAT0),), PytreeError), ((), TypeError),
    ((1.0, 2.0), TypeError)])
def test_what_linear_maps_refuse(given: Any, error: type[Exception]) -> None:
    for of in (fnx.vjp, fnx.linearize):
        with pytest.raises(error, match="test_vjp.py"):
            of(lambda x: x * x, 3.0)[1](*given)


def test_a_derivative_goes_through_a_linear_map() -> None:
    f = lambda x: fnx.linearize(jnp.sin, x)[1](2.0)
    assert fnx.grad(f)(0.5) == pytest.approx(-2 * np.sin(0.5), rel=1e-6)
    g = lambda x: fnx.vjp(jnp.sin, x)[1](x)[0]
    assert fnx.jvp(g, (0.5,), (1.0,))[1] == pytest.approx(np.cos(0.5) - 0.5 * np.sin(0.5))


# ---- transposes ---------------------------------------------------------------------------------

C = np.arange(1, 4, dtype=np.float32)
LINEAR: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("used twice", lambda x: x + 2 * x - x / 4, (C,)),
    ("two arguments", lambda x, y: x * 2 - y, (C, C)),
    ("matmul", lambda x: X @ x, (C,)),
    ("mean, flip", lambda x: jnp.flip(x, 0).mean(), (C,)),
    ("concatenate zeros", lambda x: jnp.concatenate([x * C, jnp.zeros(2)]), (C,)),
    ("pad", lambda x: jnp.pad(x, 2), (C,)),
    ("gather", lambda x: x[np.array([0, 2, 2, 1])], (C,)),
    ("set", lambda x: jnp.zeros(4).at[np.array([1, 3, 1])].set(x), (C,)),
    ("add at", lambda x: jnp.asarray(x).at[np.array([1, 1])].add(2 * x[:2]), (C,)),
    ("where", lambda x: jnp.where(C > 1, x, 0.0) + jnp.where(C > 2, x, -x), (C,)),
    ("calls", fnx.jit(lambda x: fnx.jit(jnp.sum)(x * C) * fnx.jit(jnp.exp)(C)), (C,)),
    ("a residual", lambda x: x * jnp.exp(C).sum(), (C,)),
    ("a pushforward", fnx.linearize(lambda x: jnp.tanh(x) * C, C)[1], (C,)),
    ("a pullback", lambda x: fnx.vjp(lambda x: jnp.tanh(x) * C, C)[1](x)[0], (C,)),
    ("nothing", lambda x: jnp.zeros(2), (C,)),
]


@pytest.mark.cases(8)
@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit], ids=["", "jit"])
@pytest.mark.parametrize("name, f, like", LINEAR, ids=[c[0] for c in LINEAR])
def test_a_transpose_turns_a_product_around(name: str, f: Any, like: Any, wrap: Any) -> None:
    """<ct, f(x)> = <transpose(ct), x>, and the transpose of the transpose is f."""
    back = fnx.linear_transpose(f, *[fnx.ShapeDtypeStruct(x.shape, x.dtype) for x in like])
    x = [np.sin(3 * v + k) for k, v in enumerate(like)]
    y = np.asarray(f(*x))
    ct = np.asarray(np.cos(np.arange(y.size).reshape(y.shape)), np.float32)
    found = wrap(back)(ct)
    assert sum(np.sum(a * b) for a, b in zip(found, x)) == pytest.approx(
        np.sum(ct * y), rel=1e-5, abs=1e-5)
    again = fnx.linear_transpose(back, ct)(tuple(map(jnp.asarray, x)))[0]
    np.testing.assert_allclose(again, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("f, says", [
    (lambda x: x + 1, "adds a constant to them: ADD"),
    (lambda x: jnp.concatenate([x, jnp.ones(1)]), "adds a constant to them: CONCAT"),
    (lambda x: jnp.pad(x, 1, constant_values=1.0), "adds a constant to them: PAD"),
    (lambda x: jnp.where(C > 1, x, 1.0), "adds a constant to them: WHERE"),
    (lambda x: jnp.ones(3).at[0].add(x[0]), "adds a constant to them: ADD"),
    (lambda x: x * x, "multiplies them with one another: MUL"),
    (lambda x: fnx.jit(lambda y: y * fnx.jit(jnp.negative)(y))(x), "with one another: MUL"),
    (lambda x: C / x, "is not linear: DIV"),
    (jnp.sin, "is not linear: SIN"),
    (lambda x: abs(x), "is not linear: ABS"),
    (lambda x: jnp.where(x > 0, x, 0.0), "is not linear: CMPLT"),
    (lambda x: jnp.max(x), "is not linear: REDUCE"),
    (lambda x: x.astype(int), "is not linear: CAST"),
    (lambda x: (x, 2.0), "returns a result that is a constant"),
])
def test_what_is_not_linear_is_refused(f: Any, says: str) -> None:
    with pytest.raises(GradError, match=f"test_vjp.py:(?s:.)*{says}"):
        fnx.linear_transpose(f, C)


N = np.arange(6)
INTEGERS = [
    ("multiples and sums", lambda x: x * 3 - (-x), (N,)),
    ("overflow", lambda x: x * 2**30, (N,)),
    ("a sum over an axis", lambda x: x.reshape(2, 3).sum(0), (N,)),
    ("a product with a matrix", lambda x: np.arange(18).reshape(3, 6) @ x, (N,)),
    ("parts", lambda x, y: jnp.concatenate([x[::2], 2 * y[jnp.array([0, 0, 2])]]), (N, N)),
    ("a narrower type", lambda x: x.astype("int16").sum(dtype="int16"), (N,)),
    ("a jitted function", lambda x: fnx.jit(lambda y: jnp.where(C[0] > 1, y, 0))(x), (N,)),
]


@pytest.mark.parametrize("name, f, like", INTEGERS, ids=[c[0] for c in INTEGERS])
def test_a_transpose_of_integers_is_exact(name: str, f: Any, like: Any) -> None:
    """As of floats, but modulo 2**32."""
    back = fnx.linear_transpose(f, *[jnp.asarray(v) for v in like])
    x = [(v * v + 5).astype("int32") for v in like]
    y = np.asarray(f(*map(jnp.asarray, x)))
    ct = (np.arange(y.size).reshape(y.shape) * 7 + 3).astype(y.dtype)
    found = back(jnp.asarray(ct))
    assert [v.dtype for v in found] == ["int32"] * len(like)
    products = [np.sum(np.asarray(a, np.int64) * b) for a, b in zip(found, x)]
    assert (sum(products) - np.sum(ct.astype(np.int64) * y)) % (1 << 8 * y.dtype.itemsize) == 0
    again = fnx.linear_transpose(back, jnp.asarray(ct))(tuple(map(jnp.asarray, x)))[0]
    assert (np.asarray(again) == y).all()


@pytest.mark.parametrize("f, like, says", [
    (lambda x: x * x, N, "multiplies them with one another: MUL"),
    (lambda x: x // 2, N, "is not linear"),
    (lambda x: fnx.lax.fori_loop(0, 3, lambda i, c: c * 2, x), N, "has a body that takes integers"),
    (lambda x: x * 2.0, N, "expected integers as results of integers, got float32"),
    (lambda x: x[0], (N, 1.0), "all floats or all integers, got int32.6. at args.0..0."),
    (lambda x: x, True, "all floats or all integers, got bool"),
    (lambda x: (x, 2), N, "returns a result that is a constant"),
])
def test_what_is_not_linear_in_integers_is_refused(f: Any, like: Any, says: str) -> None:
    with pytest.raises(GradError, match=says):
        fnx.linear_transpose(f, fnx.tree.map(jnp.asarray, like))
