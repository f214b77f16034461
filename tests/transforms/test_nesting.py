"""Deeply nested calls, traced already or traced now."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import NestingError

DEEP = 300
WAYS = {
    "jit": lambda f, x: fnx.jit(f)(x),
    "grad": lambda f, x: fnx.grad(lambda x: f(x).sum())(x),
    "jvp": lambda f, x: fnx.jvp(f, (x,), (x,))[1],
    "vmap": lambda f, x: fnx.vmap(f)(jnp.stack([x, x])),
    "linearize": lambda f, x: fnx.linearize(f, x)[1](x),
    "transpose": lambda f, x: fnx.linear_transpose(fnx.linearize(f, x)[1], x)(x)[0],
    "hessian": lambda f, x: fnx.hessian(lambda x: f(x).sum())(x),
}


@pytest.fixture(scope="module")
def deep() -> Any:
    """Nest calls, each traced when the next is made."""
    x = jnp.ones(2)
    f = fnx.jit(lambda x: jnp.sin(x) * x)
    for _ in range(DEEP):
        f = fnx.jit((lambda g: lambda x: g(x) + x * x)(f))
        fnx.eval_shape(f, x)
    return f


@pytest.mark.cases(1)
@pytest.mark.parametrize("way", WAYS)
def test_many_calls_that_are_traced_already(deep: Any, way: str) -> None:
    """Later stages do not recurse."""
    flat = lambda x: jnp.sin(x) * x + DEEP * (x * x)
    x = jnp.asarray(np.array([0.3, 0.7], np.float32))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        got = fnx.jit(lambda x: WAYS[way](deep, x))(x)
    finally:
        sys.setrecursionlimit(limit)
    np.testing.assert_allclose(got, WAYS[way](flat, x), rtol=1e-4)


def alone(f: Any) -> Any:
    """Run f under vmap on one batch element."""
    return fnx.vmap(f, in_axes=None, out_axes=None, axis_size=1)


@pytest.mark.cases(1)
@pytest.mark.parametrize("wrap", [fnx.jit, fnx.call, fnx.checkpoint, alone],
                         ids=lambda f: f.__name__)
def test_fresh_nesting(wrap: Any) -> None:
    """130 levels work; infinite recursion raises an error that names line and depth."""
    def nested(n: int) -> Any:
        f = wrap(jnp.sin)
        for _ in range(n):
            f = wrap((lambda g: lambda x: g(x) * x)(f))
        return f
    x = fnx.ShapeDtypeStruct((2,), "float32")
    assert fnx.eval_shape(nested(130), x) == x

    def endless(x: Any) -> Any:
        return wrap(endless)(x)
    with pytest.raises(NestingError, match=r"test_nesting.py:\d+: .*\d+ nested"):
        fnx.eval_shape(endless, x)
