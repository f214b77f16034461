"""Exported functions of arrays with dimensions: all lengths, derivatives, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import nn
from fnx.exporting import exported as jax_export

B, T = jax_export.symbolic_shape("b, t", constraints=("t <= 512",))


def _f(x: Any, w: Any) -> Any:
    return nn.softmax(x @ w, -1).mean(1)


@pytest.fixture(scope="module")
def exported() -> Any:
    return jax_export.export(fnx.jit(_f))(fnx.ShapeDtypeStruct((B, T, 8), "float32"),
                                          fnx.ShapeDtypeStruct((8, 4), "float32"))


def _arrays(b: int, t: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return (jnp.asarray(rng.normal(size=(b, t, 8)).astype("float32")),
            jnp.asarray(rng.normal(size=(8, 4)).astype("float32")))


@pytest.mark.cases(2)
@pytest.mark.parametrize(("b", "t"), [(2, 3), (5, 7), (1, 1), (3, 512)])
def test_all_lengths(exported: Any, b: int, t: int) -> None:
    args = _arrays(b, t)
    np.testing.assert_allclose(exported.call(*args), _f(*args), rtol=1e-5)
    got, want = (fnx.grad(lambda w, f=f: (f(args[0], w) ** 2).sum())(args[1])
                 for f in (exported.call, _f))
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-6)


def test_types_and_pullback(exported: Any) -> None:
    assert str(exported.in_avals[0]) == "float32[b,t,8]"
    assert str(exported.out_avals[0]) == "float32[b,4]"
    pullback = exported.vjp()
    x, w = _arrays(2, 3)
    g = jnp.ones((2, 4))
    for got, want in zip(pullback.call(x, w, g), fnx.vjp(_f, x, w)[1](g), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_call_within_another_export(exported: Any) -> None:
    half = jax_export.symbolic_shape("h", constraints=("h <= 256",))[0]
    outer = jax_export.export(fnx.jit(lambda x, w: 2 * exported.call(x, w)))(
        fnx.ShapeDtypeStruct((half, 2 * half, 8), "float32"),
        fnx.ShapeDtypeStruct((8, 4), "float32"))
    args = _arrays(3, 6)
    np.testing.assert_allclose(outer.call(*args), 2 * _f(*args), rtol=1e-5)
    with pytest.raises(fnx.errors.ShapeError, match=r"expected 2\*h as axis 1"):
        outer.call(*_arrays(3, 5))


@pytest.mark.parametrize(("shape", "text"), [
    ((2, 600, 8), "expected 1 <= t <= 512, got 600"),
    ((2, 3, 9), r"expected float32\[b, t, 8\]"),
    ((3, 8), r"expected float32\[b, t, 8\]"),
])
def test_other_arguments(exported: Any, shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        exported.call(jnp.ones(shape), jnp.ones((8, 4)))


@pytest.mark.parametrize(("text", "constraints"), [
    ("b, t", ("b + t >= 10",)), ("b, t", ("b * t >= 4",)), ("b", ("b >= 4", "b <= 3")),
    ("b, t", ("b == 2*t", "b == 3*t")), ("b, t", ("b <= 9", "b >= t")), ("b", ("b",)),
    ("b +", ()), ("f(b, 2)", ()), ("b, ...", ()), ("b.c", ()), ("2**b", ()),
])
def test_bad_shapes(text: str, constraints: Any) -> None:
    with pytest.raises(fnx.errors.ArgumentError):
        jax_export.symbolic_shape(text, constraints=constraints)


def test_constraints_between_dimensions() -> None:
    a, b, c = jax_export.symbolic_shape("a, b, c", constraints=("a >= b", "c <= b"))
    assert a >= b >= c and max(a, c) == a and a - c >= 0
    exported = jax_export.export(fnx.jit(lambda x, y, z: x[:y.shape[0]] * y + z.sum()))(
        *[fnx.ShapeDtypeStruct((n,), "float32") for n in (a, b, c)])
    assert exported.call(jnp.ones(4), jnp.ones(2), jnp.ones(1)).tolist() == [2, 2]
    with pytest.raises(fnx.errors.ShapeError, match="expected 0 <= a_minus_b"):
        exported.call(jnp.ones(2), jnp.ones(4), jnp.ones(1))


def test_multiples_and_quotients() -> None:
    a, b = jax_export.symbolic_shape("a, b", constraints=("mod(a, 8) == 0", "floordiv(b, 4) >= 2",
                                                          "a <= 64"))
    assert a % 8 == 0 and (a // 8) * 8 == a and a.bounds == (8, 64) and b.bounds[0] == 8
    exported = jax_export.export(fnx.jit(lambda x: x.reshape(-1, 8).sum(0)))(
        fnx.ShapeDtypeStruct((a,), "float32"))
    assert exported.call(jnp.ones(16)).tolist() == [2] * 8
    with pytest.raises(fnx.errors.ShapeError):
        exported.call(jnp.ones(12))


def test_shapes_are_completed() -> None:
    assert jax_export.symbolic_shape("b, ...", like=(4, 3, 2))[1:] == (3, 2)
    text = "(2*b, floordiv(b + 1, 2), max(b, 3), mod(b, 4), b*t - 1)"
    assert str(jax_export.symbolic_shape(text)) == text
    struct, = jax_export.symbolic_args_specs((jnp.ones((4, 3)),), "b, _")
    assert struct.shape == (jax_export.symbolic_shape("b")[0], 3)


def test_files_are_refused(exported: Any) -> None:
    with pytest.raises(fnx.errors.NotBuiltError, match="dimensions"):
        exported.serialize()


@pytest.mark.parametrize("make", [
    lambda: jnp.ones((T, 3)), lambda: jnp.ones(3) * T, lambda: fnx.grad(lambda x: x.sum() * T)(1.0),
    lambda: fnx.jit(lambda x: x + 1).lower(fnx.ShapeDtypeStruct((T,), "float32")),
])
def test_what_runs_needs_numbers(make: Any) -> None:
    with pytest.raises(fnx.errors.InconclusiveDimensionError, match="got the dimension t"):
        make()
