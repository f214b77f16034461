"""Rules as users write them: shapes, flags and numbers among the residuals of a fwd, and Python
control flow where an eager transform knows the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.errors import TracedValueError
from fnx.custom_derivatives import (
    SymbolicZero,
    custom_vjp_primal_tree_values,
    zero_from_primal,
)

X = np.array([3.0, 0.5, 2.0], np.float32)


class Sizes(NamedTuple):
    shape: tuple[int, ...]
    axis: int | None


SAVED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a shape": (lambda x: x.shape, lambda saved: jnp.ones(saved)),
    "an int": (lambda x: x.shape[0], lambda saved: jnp.ones(saved)),
    "a bool": (lambda x: True, lambda saved: jnp.ones(3) if saved else None),
    "None": (lambda x: None, lambda saved: jnp.ones(3) if saved is None else None),
    "a float": (lambda x: 0.5, lambda saved: jnp.full(3, saved + 0.5)),
    "an axis and a shape": (lambda x: Sizes(x.shape, 0),
                            lambda saved: jnp.expand_dims(jnp.ones(saved.shape), saved.axis)[0]),
    "a dict": (lambda x: {"x": x, "keep": True, "sizes": [x.size, x.ndim]},
               lambda s: jnp.ones(s["sizes"][0]) * (1 if s["keep"] else s["x"])),
    "a slice's ends": (lambda x: (0, x.shape[0], 1), lambda s: jnp.ones(5)[slice(*s)]),
    "no number of int32": (lambda x: 1 << 40, lambda saved: jnp.ones(3) * (saved >> 40)),
    "NumPy's bool": (lambda x: np.bool_(True), lambda saved: jnp.ones(3) if saved else None),
    "a NumPy mask": (lambda x: np.array([True, False, True, True]),
                     lambda saved: jnp.ones(4)[saved])}

AROUND: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "grad": fnx.grad,
    "jit of grad": lambda f: fnx.jit(fnx.grad(f)),
    "grad of jit": lambda f: fnx.grad(fnx.jit(f)),
    "checkpoint": lambda f: fnx.grad(fnx.checkpoint(f)),
    "vmap": lambda f: lambda x: fnx.vmap(fnx.grad(f))(jnp.stack([x, x]))[1],
    "scan": lambda f: fnx.grad(
        lambda x: lax.scan(lambda c, _: (c + f(x) / 2, None), 0.0, None, length=2)[0]),
    "cond": lambda f: fnx.grad(lambda x: lax.cond(x[0] > 0, f, lambda x: 0.0, x)),
    "twice": lambda f: lambda x: fnx.grad(lambda x: (x * fnx.grad(f)(x)).sum())(x)}


@pytest.mark.cases(44)
@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("around", AROUND)
def test_a_fwd_saves_numbers(name: str, around: str) -> None:
    saved, slopes = SAVED[name]

    @fnx.custom_vjp
    def total(x: Any) -> Any:
        return x.sum()

    def bwd(saved: Any, ct: Any) -> Any:
        found = slopes(saved)
        return (None if found is None else found * ct,)

    total.defvjp(lambda x: (total(x), saved(x)), bwd)
    np.testing.assert_array_equal(AROUND[around](total)(jnp.asarray(X)), jnp.ones(3))


def test_numbers_that_differ_are_other_traces() -> None:
    @fnx.custom_vjp
    def total(x: Any) -> Any:
        return x.sum()

    total.defvjp(lambda x: (total(x), x.shape), lambda shape, ct: (jnp.full(shape, ct * shape[0]),))
    for n in (2, 3, 2):
        np.testing.assert_array_equal(fnx.grad(total)(jnp.ones(n)), np.full(n, n))


def test_what_is_perturbed_may_be_saved() -> None:
    seen: list[Any] = []

    @fnx.custom_vjp
    def scaled(p: Any) -> Any:
        return p["x"] * p["y"]

    def fwd(p: Any) -> Any:
        flags = {k: v.perturbed for k, v in p.items()}
        given = custom_vjp_primal_tree_values(p)
        return scaled(given), (given, flags)

    def bwd(saved: Any, ct: Any) -> Any:
        p, flags = saved
        seen.append(flags)
        return ({"x": p["y"] * ct if flags["x"] else None,
                 "y": p["x"] * ct if flags["y"] else None},)

    scaled.defvjp(fwd, bwd, symbolic_zeros=True)
    assert fnx.grad(lambda x: scaled({"x": x, "y": 3.0}))(2.0) == 3
    assert {"x": True, "y": False} in seen
    assert fnx.jit(fnx.grad(lambda p: scaled(p)))({"x": 2.0, "y": 3.0}) == {"x": 3, "y": 2}


def test_zeros_of_values() -> None:
    assert zero_from_primal(jnp.ones(2)).tolist() == [0, 0]
    assert zero_from_primal(3).dtype == fnx.float0
    assert isinstance(zero := zero_from_primal(jnp.ones(2), symbolic_zeros=True), SymbolicZero)
    assert (zero.aval.shape, zero.shape, str(zero.dtype)) == ((2,), (2,), "float32")


# ---- control flow ---------------------------------------------------------------------------


def _by_sign() -> Any:
    """x**2 or x**3: each rule branches on the sign and calls the function for other values."""
    @fnx.custom_jvp
    def f(x: Any) -> Any:
        return x ** 2 if x > 0 else x ** 3

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return f(x), t * (2 * x if x > 0 else 3 * f(x) / x + 0 * f(-x))
    return f


def _by_sign_in_reverse() -> Any:
    @fnx.custom_vjp
    def f(x: Any) -> Any:
        return x ** 2 if x > 0 else x ** 3

    def fwd(x: Any) -> Any:
        return f(x), (x, x > 0, 0 * f(x / 2))  # half of it, and half of that, ...

    def bwd(saved: Any, ct: Any) -> Any:
        x, positive, _ = saved
        return (ct * 2 * x if positive else ct * 3 * x * x,)

    f.defvjp(fwd, bwd)
    return f


@pytest.mark.cases(1)
@pytest.mark.parametrize("make", [_by_sign, _by_sign_in_reverse], ids=["jvp", "vjp"])
def test_rules_ask_for_values(make: Any) -> None:
    f = make()
    derivative, want = f, [lambda x: x ** 3, lambda x: 3 * x * x, lambda x: 6 * x]
    for order in range(3):
        assert derivative(-2.0) == want[order](-2.0), order
        assert derivative(2.0) == [4.0, 4.0, 2.0][order], order
        derivative = fnx.grad(derivative)
    assert fnx.grad(lambda x: f(f(x) - 5))(2.0) == 12  # f(2) is 4, f(-1) takes the other branch
    assert fnx.grad(lambda x: sum(f(x * k) for k in (-1.0, 1.0, 2.0)))(2.0) == 8
    hessian = fnx.hessian(lambda x: f(x[0]) * f(x[1]))(jnp.asarray([1.0, -2.0]))
    np.testing.assert_allclose(hessian, [[-16, 24], [24, -12]])


@pytest.mark.parametrize("around", [fnx.jit, fnx.vmap], ids=["jit", "vmap"])
def test_values_that_nobody_knows(around: Any) -> None:
    with pytest.raises(TracedValueError, match="expected a concrete value, got a traced bool"):
        around(fnx.grad(_by_sign()))(jnp.ones(2) if around is fnx.vmap else 1.0)


def test_masks_in_rules() -> None:
    @fnx.custom_vjp
    def large(x: Any) -> Any:
        return x[x > 1].sum()

    large.defvjp(lambda x: (large(x), x), lambda x, ct: (jnp.zeros_like(x).at[x > 1].set(ct),))
    np.testing.assert_array_equal(fnx.grad(large)(jnp.asarray(X)), X > 1)


def test_what_a_rule_closes_over_has_a_value() -> None:
    def slope(w: Any) -> Any:
        @fnx.custom_vjp
        def f(x: Any) -> Any:
            return x * 2
        f.defvjp(lambda x: (f(x), w), lambda w, ct: (ct * 2 if w > 0 else -ct,))
        return fnx.grad(f)(1.0)

    for sign, want in ((1.0, 2), (-1.0, -1)):
        assert slope(jnp.asarray(sign)) == want
        assert fnx.grad(lambda w: w * slope(lax.stop_gradient(w)))(sign) == want


def test_rules_are_not_asked_where_nothing_has_a_derivative() -> None:
    f = fnx.custom_jvp(lambda x: x * 2.5)
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0].sum()))
    g = fnx.custom_vjp(lambda x: x * 2.5)
    g.defvjp(lambda x: (g(x), x.no_such_name), lambda saved, ct: ct)
    for rule in (f, g):
        for around in (fnx.jit, fnx.vmap):
            np.testing.assert_array_equal(around(rule)(jnp.arange(3)), [0, 2.5, 5])
