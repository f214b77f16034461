"""A branch that a condition masks out does not contribute to a derivative of any order.

    where(x > 1, f(x), 0)    has derivatives 0 below 1 up to the third, though f has none there
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
import fnx.scipy.special as special

SINGULAR: dict[str, Callable[[Any], Any]] = {
    "sqrt": jnp.sqrt, "log": jnp.log, "1 / x": lambda x: 1 / x, "reciprocal": jnp.reciprocal,
    "rsqrt": lax.rsqrt, "cbrt": jnp.cbrt, "log1p": lambda x: jnp.log1p(x - 1),
    "arcsin": lambda x: jnp.arcsin(1 - x / 4), "arccos": lambda x: jnp.arccos(1 - x / 4),
    "arccosh": jnp.arccosh, "arctanh": lambda x: jnp.arctanh(1 - x / 4), "log2": jnp.log2,
    "x log x": lambda x: x * jnp.log(x), "lgamma": special.gammaln, "digamma": special.digamma,
    "erf_inv": lambda x: lax.erf_inv(1 - x / 4), "logit": lambda x: special.logit(x / 4),
    "exp(1 / x)": lambda x: jnp.exp(1 / x), "x ** x": lambda x: x ** x,
    "hypot": lambda x: jnp.hypot(x, x), "sums": lambda x: (x ** 1.5 + x ** 0.5) ** 2.5}
AT = np.array([-1.0, 0.0, 2.0], np.float32)
POWERS = st.one_of(st.sampled_from([0.5, 1.5, 2.5, 3.5, -0.5, -1.0, -1.5, -2.0, 3.0]),
                   st.floats(-4, 4, width=32))


def _derivative(f: Callable[[Any], Any], word: str) -> Callable[[Any], Any]:
    """Return f differentiated once per mode: r is reverse, f is forward."""
    if not word:
        return f
    g = _derivative(f, word[1:])
    if word[0] == "r":
        return fnx.grad(lambda x: g(x).sum())
    return lambda x: fnx.jvp(g, (x,), (jnp.ones_like(x),))[1]


def _check(f: Callable[[Any], Any], word: str, way: str) -> None:
    def guarded(x: Any) -> Any:
        return jnp.where(x > 1, f(x), 0)

    def twice(x: Any) -> Any:
        return lax.scan(lambda c, _: (c + guarded(x), None), 0 * x, None, 2)[0]

    if way == "scan":
        found = _derivative(twice, word)(AT)
    elif way == "vmap":
        found = fnx.vmap(lambda x: _derivative(guarded, word)(x[None])[0])(AT)
    else:
        g = _derivative(guarded, word)
        found = (fnx.jit(g) if way == "jit" else g)(AT)
    assert np.asarray(found)[:2].tolist() == [0, 0] and np.isfinite(found[2])


WORDS = st.text("rf", min_size=1, max_size=3)
WAYS = st.sampled_from(["eager", "jit", "vmap", "scan"])


@given(POWERS, st.booleans(), WORDS, WAYS)
@example(1.5, False, "rr", "jit")
@example(2.5, True, "rrr", "scan")
@settings(max_examples=25)
def test_powers(n: float, as_data: bool, word: str, way: str) -> None:
    exponent: Any = jnp.full(3, n) if as_data and way != "vmap" else n
    _check(lambda x: x ** exponent, word, way)


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", SINGULAR)
@given(WORDS, WAYS)
@example("rrr", "eager")
@settings(max_examples=3)
def test_functions(name: str, word: str, way: str) -> None:
    _check(SINGULAR[name], word, way)
