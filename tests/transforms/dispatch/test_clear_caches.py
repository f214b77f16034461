"""After ``clear_caches`` nothing is replayed: captured values are read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp

# (transform, how often it calls its function)
TRANSFORMED: list[tuple[Callable[[Callable[[Any], Any]], Callable[[Any], Any]], int]] = [
    (fnx.jit, 1), (lambda f: fnx.jit(fnx.vmap(f)), 1),
    (lambda f: fnx.jit(lambda x: fnx.jit(f)(x)), 1), (lambda f: fnx.jit(fnx.checkpoint(f)), 1),
    (lambda f: fnx.jit(fnx.grad(lambda x: f(x).sum())), 1),
    (lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0], 2),
    (lambda f: lambda x: lax.cond(True, f, f, x), 1)]


def test_one_function_is_traced_anew() -> None:
    scale = {"by": 2.0}
    g, same = [fnx.jit(lambda x: x * scale["by"]) for _ in range(2)]
    for _ in range(5):
        assert float(g(1.0)) == float(same(1.0)) == 2
    scale["by"] = 3.0
    g.clear_cache()
    assert float(g(1.0)) == 3


@pytest.mark.cases(9)
@pytest.mark.parametrize("number", range(len(TRANSFORMED)))
@pytest.mark.parametrize("calls", [1, 5])
def test_all_is_traced_anew(number: int, calls: int) -> None:
    scale = {"by": 2.0}  # changes inside of an object are not noticed
    transform, steps = TRANSFORMED[number]
    g = transform(lambda x: x * scale["by"])
    x = jnp.ones(3)
    for _ in range(calls):  # by the general path, then by the fast path, then by the native call
        before = g(x)[0]
    scale["by"] = 3.0
    fnx.clear_caches()
    assert float(g(x)[0]) == float(before) * 1.5**steps
