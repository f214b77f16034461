"""``debug.step`` and ``debug_nans`` in derivative rules of the user's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

X = np.array([1.0, 0.5], np.float32)


@fnx.custom_jvp
def square(x: Any) -> Any:
    return x * x


@square.defjvp
def square_rule(p: Any, t: Any) -> Any:
    x, = p
    dx, = t
    slope = jnp.log(x - 3)  # the wrong line
    return square(x), slope * dx


@fnx.custom_vjp
def cube(x: Any) -> Any:
    return x ** 3


def cube_fwd(x: Any) -> Any:
    return x ** 3, x


def cube_bwd(x: Any, g: Any) -> Any:
    slope = jnp.log(x - 4)  # the wrong line
    return (slope * g,)


cube.defvjp(cube_fwd, cube_bwd)


@fnx.custom_vjp
def ratio(x: Any) -> Any:
    return x * 0.5


def ratio_bwd(x: Any, g: Any) -> Any:
    slope = g / (x * 0)  # the wrong line: infinite, and a NaN below
    return (slope * (x * 0),)


ratio.defvjp(lambda x: (x * 0.5, x), ratio_bwd)


def in_scan(f: Any) -> Callable[[Any], Any]:
    def body(c: Any, _: Any) -> Any:
        return f(c), None
    return lambda x: lax.scan(body, x, None, length=2)[0].sum()


def in_while(f: Any) -> Callable[[Any], Any]:
    return lambda x: lax.fori_loop(0, jnp.int32(2), lambda i, c: f(c), x).sum()


def in_cond(f: Any) -> Callable[[Any], Any]:
    return lambda x: lax.cond(x[0] > 0, f, lambda c: c, x).sum()


USES: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "grad": lambda f: fnx.grad(lambda x: f(x).sum()),
    "jit": lambda f: fnx.grad(fnx.jit(lambda x: (f(x) * 1).sum())),
    "jvp": lambda f: lambda x: fnx.jvp(f, (x,), (x,)),
    "vmap": lambda f: fnx.vmap(lambda x: fnx.grad(f)(x)),
    "scan": lambda f: fnx.grad(in_scan(f)),
    "while": lambda f: fnx.grad(in_while(f)),
    "cond": lambda f: fnx.grad(in_cond(f)),
    "checkpoint": lambda f: fnx.grad(fnx.checkpoint(in_scan(f))),
}


RULES = {square_rule: (square, "log"), cube_bwd: (cube, "log"), ratio_bwd: (ratio, "div")}


@pytest.mark.cases(1)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("use", USES)
def test_lines_of_a_rule_are_steps(rule: Any, use: str) -> None:
    function, op = RULES[rule]
    f, compiled = USES[use](function), fnx.jit(USES[use](function))
    compiled(X)  # nodes that have lines already
    lines, start = inspect.getsourcelines(rule)
    wrong = start + next(i for i, text in enumerate(lines) if "the wrong line" in text)
    with np.errstate(all="ignore"):
        session = fnx.debug.step(f)(X)
        session.break_at(rule.__name__)
        step = session.run()
        assert step is not None, session
        while step is not None and step.line != wrong:
            step = session.run()
        assert step is not None
        if use != "jvp" or rule is not ratio_bwd:  # linear in g there: transposed, without values
            assert "slope" in session.variables
        if use == "scan" and rule is not square_rule:
            assert step.loops[-1].number == 1 and step.loops[-1].is_backward
        step = fnx.debug.step(f)(X).first_nan()
        assert step is not None and step.line == wrong and op in repr(step)
    for g in (f, compiled):
        with fnx.debug_nans(), pytest.raises(fnx.errors.NotFiniteError) as raised:
            g(X)
        assert raised.value.loc == (__file__, wrong), raised.value
        assert f"from {op} at" in str(raised.value) and "_run_call" not in str(raised.value)
