"""Derivatives of order 1 to 4 along a line, by every composition of modes, against 40 digits.

The reference is the same program over mpmath numbers. Forward and reverse mode are composed in
every order, also through jit, vmap and linearize. What a mode closes over is a constant to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import mp

import fnx
import fnx.numpy as jnp
from fnx import lax
from tests.laws.matrix_cases import values

Line = Callable[[Any], Any]  # number -> number


def forward(f: Line) -> Line:
    return lambda t: fnx.jvp(f, (t,), (jnp.ones_like(t),))[1]


def reverse(f: Line) -> Line:
    return fnx.grad(f)


def linearized(f: Line) -> Line:
    return lambda t: fnx.linearize(f, t)[1](jnp.ones_like(t))


def mapped(f: Line) -> Line:
    """Return the derivative as one of two batch elements."""
    return lambda t: fnx.vmap(fnx.grad(f))(jnp.stack([0 * t, t]))[1]


def called(f: Line) -> Line:
    return fnx.jit(fnx.grad(fnx.jit(f)))


def columns(f: Line) -> Line:
    return fnx.jacfwd(f)


MODES = {"f": forward, "r": reverse, "l": linearized, "v": mapped, "j": called, "c": columns}
WORDS = ["".join(w) for n in range(1, 5) for w in itertools.product("fr", repeat=n)]
MIXED = ["l", "ll", "lr", "rl", "lf", "v", "vv", "vf", "fv", "jv", "vj", "jj", "fj", "cc", "cr",
         "rc", "vlj", "jlv", "cvr", "rvc", "lvr", "fjr", "jfv", "vrlf", "fvjr", "crvj"]


def bump(x: Any, m: Any) -> Any:
    return m.tanh(x) * m.exp(-x * x)


# ---- a loss along a direction -------------------------------------------------------------------

W1, V1 = np.sin(np.arange(12.0)).reshape(3, 4), np.cos(np.arange(12.0)).reshape(3, 4)
W2, V2 = np.sin(np.arange(4.0) + 1), np.cos(np.arange(4.0) - 2)
X, Y = np.cos(np.arange(6.0)).reshape(2, 3), np.array([0.3, -0.4])


def loss(t: Any) -> Any:
    hidden = jnp.tanh(_f8(X) @ (_f8(W1) + t * _f8(V1)))
    return jnp.mean((hidden @ (_f8(W2) + t * _f8(V2)) - _f8(Y)) ** 2)


def _f8(x: Any) -> Any:
    return jnp.asarray(x, np.float64)


def exact_loss(t: Any) -> Any:
    total = mp.mpf(0)
    for x, y in zip(X, Y):
        hidden = [mp.tanh(sum(mp.mpf(x[i]) * (W1[i, j] + t * V1[i, j]) for i in range(3)))
                  for j in range(4)]
        total += (sum(h * (W2[j] + t * V2[j]) for j, h in enumerate(hidden)) - y) ** 2
    return total / len(X)


# ---- a solver of an ODE -------------------------------------------------------------------------

STEPS, H = 6, 0.05


def lorenz(s: Any, rho: Any) -> list[Any]:
    x, y, z = s
    return [10 * (y - x), x * (rho - z) - y, x * y - z * (8 / 3)]


def rk4(s: Any, rho: Any) -> list[Any]:
    def moved(k: Any, h: Any) -> list[Any]:
        return [a + h * b for a, b in zip(s, k)]
    k1 = lorenz(s, rho)
    k2 = lorenz(moved(k1, H / 2), rho)
    k3 = lorenz(moved(k2, H / 2), rho)
    k4 = lorenz(moved(k3, H), rho)
    return [a + H / 6 * (b + 2 * c + 2 * d + e) for a, b, c, d, e in zip(s, k1, k2, k3, k4)]


def solved(t: Any) -> Any:
    """Solve the ODE by scan, as a function of the parameter."""
    start = tuple([_f8(v) + t for v in (1.0, 0.5, -0.3)])
    end, path = lax.scan(lambda s, _: (tuple(rk4(s, 28 + t)), s[0]), start, None, length=STEPS)
    return end[0] * end[1] + path.sum()


def exact_solved(t: Any) -> Any:
    s, path = [mp.mpf(v) + t for v in (1.0, 0.5, -0.3)], mp.mpf(0)
    for _ in range(STEPS):
        path += s[0]
        s = rk4(s, 28 + t)
    return s[0] * s[1] + path


CASES: dict[str, tuple[Line, Line, float]] = {
    "tanh(x) exp(-x^2)": (lambda x: bump(x, jnp), lambda x: bump(x, mp), 0.4),
    "loss": (loss, exact_loss, 0.2),
    "solver": (solved, exact_solved, 0.1),
}


def exact(name: str, order: int) -> float:
    with mp.workdps(40):
        return float(mp.diff(CASES[name][1], mp.mpf(CASES[name][2]), order, h=mp.mpf("1e-8")))


@pytest.mark.cases(9)
@pytest.mark.parametrize("word", [*WORDS, *MIXED])
@pytest.mark.parametrize("name", CASES)
def test_orders_one_to_four(name: str, word: str) -> None:
    f, _, at = CASES[name]
    want = exact(name, len(word))
    for mode in word:
        f = MODES[mode](f)
    got, = values(lambda xs: (f(xs[0]),), (np.asarray(at),))
    assert got.dtype == np.float64
    assert float(got) == pytest.approx(want, rel=1e-9)


@pytest.mark.cases(1)
@pytest.mark.parametrize("word", ["r", "rr", "frf", "rfrf"])
def test_on_the_machine(word: str) -> None:
    for name, (f, _, at) in CASES.items():
        for mode in word:
            f = MODES[mode](f)
        assert float(fnx.jit(f)(_f8(at))) == pytest.approx(exact(name, len(word)), rel=1e-9)


# ---- perturbations ------------------------------------------------------------------------------

TWO = ["f", "r", "l", "v", "j"]


@pytest.mark.parametrize("inner", TWO)
@pytest.mark.parametrize("outer", TWO)
def test_what_a_mode_closes_over_is_a_constant_to_it(outer: str, inner: str) -> None:
    """d/dx [x * d/dy (x * y + x * x * y * y)] at y = 1: perturbations are not confused."""
    def f(x: Any) -> Any:
        return x * MODES[inner](lambda y: x * y + x * x * y * y)(jnp.ones_like(x))

    got, = values(lambda xs: (MODES[outer](f)(xs[0]),), (np.asarray(3.0),))
    assert float(got) == pytest.approx(2 * 3 + 6 * 9)

    def same(x: Any) -> Any:  # at y = x: the inner derivative differentiates y only
        return MODES[inner](lambda y: x * x * y * y)(x)

    got, = values(lambda xs: (MODES[outer](same)(xs[0]),), (np.asarray(3.0),))
    assert float(got) == pytest.approx(6 * 9)


def test_jvp_in_vjp_in_vmap() -> None:
    """Each batch element has its own z, and each derivative its own variable."""
    def one(z: Any) -> Any:
        def f(x: Any) -> Any:
            return fnx.jvp(lambda y: jnp.sin(x * y) * z, (x * z,), (z,))[1]
        return fnx.vjp(f, z)[1](2 * z)[0]

    def exact_one(z: Any) -> Any:
        return 2 * z * mp.diff(lambda x: z * z * x * mp.cos(x * x * z), z)

    zs = np.array([0.3, 0.8, 1.7])
    got, = values(lambda xs: (fnx.vmap(one)(xs[0]),), (zs,))
    np.testing.assert_allclose(got, [float(exact_one(z)) for z in zs], rtol=1e-9)


def test_a_variable_of_a_loop_outside() -> None:
    """A scan inside grad over the variable of an outer grad."""
    def f(x: Any) -> Any:
        def g(y: Any) -> Any:
            return lax.scan(lambda c, _: (c * y * x, None), x, None, length=3)[0]
        return fnx.grad(g)(x)  # d/dy x (xy)^3 = 3 x^4 y^2
    for mode in (forward, reverse, linearized):
        got, = values(lambda xs: (mode(f)(xs[0]),), (np.asarray(1.1),))
        assert float(got) == pytest.approx(18 * 1.1 ** 5)
