"""Effects under other transforms: gradients, checkpoints, custom derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.experimental import io_callback
from tests.transforms.effect_log import Log

pytestmark = pytest.mark.usefixtures("device")

X = np.arange(1.0, 4.0, dtype=np.float32)


def watched(log: Log) -> Any:
    def f(x: Any) -> Any:
        y = jnp.sin(x)
        fnx.debug.callback(log, y)
        return jnp.sin(y)
    return f


ONCE = {
    "checkpoint": lambda f: fnx.checkpoint(f),
    "grad of checkpoint": lambda f: fnx.grad(fnx.checkpoint(f)),
    "jvp of checkpoint": lambda f: lambda x: fnx.jvp(fnx.checkpoint(f), (x,), (1.0,))[1],
    "hessian": fnx.hessian, "jacfwd": fnx.jacfwd, "jacrev": fnx.jacrev,
    "linearize": lambda f: lambda x: fnx.linearize(f, x)[1](1.0),
    "grad of grad": lambda f: fnx.grad(fnx.grad(f)),
    "grad of cond": lambda f: fnx.grad(lambda x: fnx.lax.cond(x > 0, f, lambda v: v, x)),
    "closure_convert": lambda f: lambda x: fnx.closure_convert(f, x)[0](x),
    "call": fnx.call, "jit": fnx.jit,
}


@pytest.mark.cases(22)
@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize("outer", [lambda f: f, fnx.jit], ids=["eager", "jit"])
def test_once_under(name: str, outer: Any) -> None:
    log, transform = Log(), ONCE[name]
    got = outer(transform(watched(log)))(1.0)
    (first,), = log.taken()
    np.testing.assert_allclose(first, np.sin(1.0), rtol=1e-6)
    np.testing.assert_allclose(got, transform(lambda x: jnp.sin(jnp.sin(x)))(1.0), rtol=1e-6)


def test_vmap_of_the_gradient_of_a_checkpoint() -> None:
    log = Log()
    fnx.vmap(fnx.grad(fnx.checkpoint(watched(log))))(X[:2])
    np.testing.assert_allclose(np.ravel(log.taken()), np.sin(X[:2]), rtol=1e-6)


@pytest.mark.parametrize("checkpoint", [None, 1, 2])
def test_the_gradient_of_a_scan_has_each_effect_once(checkpoint: int | None) -> None:
    log = Log()

    def step(c: Any, x: Any) -> Any:
        fnx.debug.callback(log, c)
        return jnp.sin(c) + x, c

    want, states = 0.5, []
    for x in X:
        states.append(want)
        want = np.sin(want) + x
    fnx.jit(fnx.grad(lambda c: fnx.lax.scan(step, c, X, checkpoint=checkpoint)[0]))(0.5)
    np.testing.assert_allclose(np.ravel(log.taken()), states, rtol=1e-5)


def test_the_gradient_of_a_while_loop_has_each_effect_once() -> None:
    log = Log()

    def body(c: Any) -> Any:
        fnx.debug.callback(log, c)
        return c * 2

    g = fnx.jit(fnx.grad(lambda c: fnx.lax.while_loop(lambda s: s < 10, body, c)))
    assert g(1.5) == 8 and log.taken() == [(1.5,), (3.0,), (6.0,)]


def test_io_callback_in_a_checkpoint_is_not_repeated() -> None:
    calls = [0]

    def count() -> Any:
        calls[0] += 1
        return np.float32(calls[0])

    f = fnx.checkpoint(lambda x: jnp.sin(x * io_callback(count, np.float32(0))))
    np.testing.assert_allclose(fnx.jit(fnx.grad(f))(1.0), np.cos(1.0), rtol=1e-6)
    assert calls == [1]


def test_custom_derivatives() -> None:
    log = Log()

    @fnx.custom_jvp
    def f(x: Any) -> Any:
        fnx.debug.callback(log, 0, x)
        return jnp.sin(x)

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        x, = primals
        fnx.debug.callback(log, 1, x)
        return f(x), jnp.cos(x) * tangents[0]

    for g, want in ((f, [(0, 1.0)]), (fnx.grad(f), [(1, 1.0), (0, 1.0)]),
                    (lambda x: fnx.jvp(f, (x,), (1.0,))[1], [(1, 1.0), (0, 1.0)])):
        fnx.jit(g)(1.0)
        assert log.taken() == want
    np.testing.assert_allclose(fnx.vmap(fnx.grad(f))(X[:2]), np.cos(X[:2]), rtol=1e-6)
    assert log.taken() == [(1, 1.0), (1, 2.0), (0, 1.0), (0, 2.0)]

    @fnx.custom_vjp
    def h(x: Any) -> Any:
        fnx.debug.callback(log, 0, x)
        return jnp.sin(x)

    h.defvjp(lambda x: (fnx.debug.callback(log, 1, x), (jnp.sin(x), x))[1],
             lambda x, ct: (ct * jnp.cos(x),))
    for g, want in ((h, [(0, 1.0)]), (fnx.grad(h), [(1, 1.0)])):
        fnx.jit(g)(1.0)
        assert log.taken() == want
    np.testing.assert_allclose(fnx.jit(fnx.vmap(fnx.grad(h)))(X[:2]), np.cos(X[:2]), rtol=1e-6)
    assert log.taken() == [(1, 1.0), (1, 2.0)]
    h.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (
        fnx.debug.callback(log, ct), (ct * jnp.cos(x),))[1])
    fnx.jit(fnx.grad(h))(1.0)
    assert log.taken() == [(1.0,)]
