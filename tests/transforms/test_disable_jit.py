"""``disable_jit``: jitted functions and loops in Python, with concrete values in every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support import errors

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def seen(x: Any) -> Any:
    """Return x, which must be concrete."""
    float(jnp.sum(x))
    return x


LOOPS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: fnx.jit(lambda x: f(x) * 2)(jnp.ones(2)),
    "jit in jit": lambda f: fnx.jit(lambda x: fnx.jit(f)(x) + 1)(jnp.ones(2)),
    "scan": lambda f: lax.scan(lambda c, x: (c + f(x), {"y": x * c}), jnp.zeros(2), ROWS),
    "scan backwards": lambda f: lax.scan(lambda c, x: (f(c) + x, c), 0.0, ROWS[:, 0],
                                         reverse=True),
    "scan of a length": lambda f: lax.scan(lambda c, _: (f(c) + 1, None), 0.0, None, 3),
    "map": lambda f: lax.map(lambda x: f(x) * 2, jnp.asarray(ROWS)),
    "fori_loop": lambda f: lax.fori_loop(0, 4, lambda i, c: f(c) + i, 0),
    "fori_loop of data": lambda f: lax.fori_loop(0, jnp.asarray(4), lambda i, c: f(c) + i, 0),
    "while_loop": lambda f: lax.while_loop(lambda c: f(c) < 9.0, lambda c: c * 2.0, 1.0),
    "cond": lambda f: lax.cond(jnp.asarray(True), lambda x: f(x) + 1, lambda x: x, 2.0),
    "switch": lambda f: lax.switch(jnp.asarray(7), [lambda x: x, lambda x: f(x) * 3], 2.0),
}


@pytest.mark.parametrize("name", LOOPS)
def test_values_are_there_and_results_are_equal(name: str) -> None:
    expected = LOOPS[name](lambda x: x)
    with pytest.raises(errors.TracedValueError):
        LOOPS[name](seen)
    with fnx.disable_jit():
        found = LOOPS[name](seen)
    assert fnx.tree.structure(found) == fnx.tree.structure(expected)
    for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(expected)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert (a.dtype, a.shape) == (b.dtype, b.shape)


def test_only_the_branch_that_is_taken_runs() -> None:
    ran = []
    with fnx.disable_jit():
        lax.cond(False, lambda: ran.append("true"), lambda: ran.append("false"))
    assert ran == ["false"]


def test_a_call_that_is_replayed_sees_the_setting() -> None:
    ran = []

    @fnx.jit
    def f(x: Any) -> Any:
        ran.append(1)
        return x + 1

    for _ in range(5):
        f(1.0)
    assert len(ran) == 1
    for value in (True, False, True):
        before = len(ran)
        with fnx.disable_jit(value):
            f(1.0)
        assert len(ran) == before + value
    f(1.0)
    assert len(ran) == 3
    fnx.config.update("jax_disable_jit", True)
    try:
        f(1.0)
        assert len(ran) == 4 and fnx.config.read("jax_disable_jit") is True
    finally:
        fnx.config.disable_jit = False


def test_traces_are_as_ever() -> None:
    with fnx.disable_jit():
        slope = fnx.grad(lambda x: lax.scan(lambda c, y: (c * y, c), x, ROWS[1:, 1])[0])(2.0)
        rows = fnx.vmap(fnx.jit(lambda x: lax.cond(x > 2, jnp.sin, jnp.cos, x)))(jnp.arange(4.0))
    assert float(slope) == 15.0
    np.testing.assert_allclose(rows, [1, np.cos(1), np.cos(2), np.sin(3)], rtol=1e-6)


def test_a_value_that_is_none() -> None:
    with pytest.raises(errors.ArgumentError, match="True or False"), fnx.disable_jit("yes"):
        pass
