"""Checks whose errors are values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError
from fnx.experimental import checkify


def message(f: Any, *args: Any, errors: Any = checkify.all_checks) -> str:
    error, _ = fnx.jit(checkify.checkify(f, errors))(*args)
    return error.get() or ""


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=5))
def test_the_first_check_that_fails_is_the_error(values: list[int]) -> None:
    def step(total: Any, x: Any) -> Any:
        checkify.check(x >= 0, "{} at {total}", x, total=total)
        return total + x, None
    error, (total, _) = checkify.checkify(lambda xs: lax.scan(step, 0, xs))(jnp.asarray(values))
    first = next((i for i, x in enumerate(values) if x < 0), None)
    expected = None if first is None else \
        f"{values[first]} at {sum(values[:first])} (`check` failed)"
    assert (error.get(), total) == (expected, sum(values))


def test_operations_are_checked_as_asked() -> None:
    assert "primitive: log" in message(jnp.log, -1.0)
    assert message(jnp.log, -1.0, errors=checkify.div_checks | checkify.index_checks) == ""
    assert "division by zero" in message(lambda x: 7 // x, jnp.int32(0))
    assert "index 9 is out of bounds" in message(lambda x, i: x.at[i].add(1), jnp.ones(3), 9)
    assert message(lambda x, i: x[i], jnp.ones(3), -1) == ""


def test_checks_under_transforms() -> None:
    def f(x: Any) -> Any:
        checkify.check(x > 0, "got {}", x)
        return jnp.sqrt(x)
    error, _ = fnx.vmap(checkify.checkify(f))(jnp.array([1.0, -2.0]))
    assert error.get() == "at mapped index 1: got -2.0 (`check` failed)"
    assert message(fnx.vmap(f), jnp.array([1.0, -2.0])) == "got -2.0 (`check` failed)"
    assert message(fnx.value_and_grad(fnx.checkpoint(f)), -4.0) == "got -4.0 (`check` failed)"
    assert message(lambda x: lax.cond(x > 9, f, lambda x: x, x), -4.0) == ""


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_functions_with_rules_keep_them(kind: str) -> None:
    def f(x: Any) -> Any:
        checkify.check(x > 0, "got {}", x)
        return x
    if kind == "jvp":
        g: Any = fnx.custom_jvp(f)
        g.defjvp(lambda p, t: (g(*p), 5 * t[0]))
    else:
        g = fnx.custom_vjp(f)
        g.defvjp(lambda x: (g(x), None), lambda _, ct: (5 * ct,))
    error, (y, dy) = checkify.checkify(fnx.value_and_grad(g))(-1.0)
    assert (error.get(), y, dy) == ("got -1.0 (`check` failed)", -1, 5)


def test_outside_of_checkify() -> None:
    with pytest.raises(checkify.JaxRuntimeError, match="got 3"):
        checkify.check(False, "got {}", 3)
    with pytest.raises(ArgumentError, match="checkify"):
        fnx.jit(lambda x: checkify.check(x > 0, "x"))(1.0)
    checkify.debug_check(np.bool_(False), "ignored")
    error, _ = checkify.checkify(lambda x: checkify.check(x > 0, "no"))(-1.0)
    with pytest.raises(ValueError, match="no"):
        checkify.check_error(error)
