"""Rules of functions are traced when a derivative needs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.jaxprs.evaluate import jaxpr_as_fun


def twice_with(log: list[str]) -> Any:
    """Return 2 x + y, whose rules say 3 t + s, and which are traced when."""
    @fnx.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return 2 * x + y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        log.append("jvp")
        return f(*primals), 3 * tangents[0] + tangents[1]
    return f


def test_a_call_without_derivative_traces_no_rule() -> None:
    log: list[str] = []
    f = twice_with(log)
    g = fnx.jit(lambda x: jnp.sum(f(x, 1.0)))
    assert g(jnp.ones(3)) == 9.0
    fnx.jit(fnx.vmap(lambda x: f(x, 1.0)))(jnp.ones(3))
    fnx.eval_shape(f, 1.0, 2.0)
    closed = fnx.make_jaxpr(lambda x: f(x, 1.0))(2.0)
    assert "custom_jvp_call" in str(closed)
    assert not log
    np.testing.assert_array_equal(fnx.grad(g)(jnp.ones(3)), [3.0, 3.0, 3.0])
    assert log
    assert fnx.grad(lambda x: jaxpr_as_fun(closed)(x)[0])(2.0) == 3.0


@pytest.mark.parametrize("transform", [
    fnx.grad, lambda f: fnx.jit(fnx.grad(f)), lambda f: lambda x: fnx.jvp(f, (x,), (1.0,))[1],
    lambda f: lambda x: fnx.vmap(fnx.grad(f))(jnp.stack([x, x]))[1],
    lambda f: fnx.grad(lambda x: fnx.vmap(fnx.jit(f))(jnp.stack([x, 0 * x]))[0])])
def test_derivatives_of_what_was_called_before(transform: Any) -> None:
    f = twice_with([])
    g = fnx.jit(lambda x: lax.scan(lambda c, _: (f(c, x), None), x, None, 2)[0])
    g(1.0)
    fnx.vmap(g)(jnp.ones(2))
    assert transform(g)(jnp.float32(1.0)) == 13.0


def test_a_rule_that_forbids_derivatives() -> None:
    @fnx.custom_jvp
    def constant(x: Any) -> Any:
        return x

    @constant.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        raise RuntimeError("not differentiable")
    assert fnx.grad(lambda x: x * constant(lax.stop_gradient(x)))(3.0) == 3.0
    with pytest.raises(RuntimeError, match="not differentiable"):
        fnx.grad(lambda x: x * constant(x))(3.0)


def test_symbolic_zeros_are_exact() -> None:
    found: list[Any] = []

    @fnx.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y, x + y

    def fwd(x: Any, y: Any) -> Any:
        found.append((x.perturbed, y.perturbed))
        return (x.value * y.value, x.value + y.value), (x.value, y.value)

    def bwd(saved: Any, cts: Any) -> Any:
        found.append([type(ct).__name__ for ct in cts])
        return saved[1] * cts[0], saved[0] * cts[0]
    f.defvjp(fwd, bwd, symbolic_zeros=True)
    assert fnx.jit(fnx.grad(lambda x, y: f(x, y)[0]))(2.0, 3.0) == 3.0
    assert found == [(True, False), ["Array", "SymbolicZero"]]


def test_compile_time_evaluation_keeps_the_rules() -> None:
    f = twice_with([])

    def g(x: Any) -> Any:
        with fnx.ensure_compile_time_eval():
            return f(x, 0.0)
    assert fnx.grad(g)(1.0) == fnx.jit(fnx.grad(g))(1.0) == 3.0


def test_linear_maps_have_the_same_captures_at_constants() -> None:
    """Libraries compare jaxprs of a map at zeros and at other values."""
    def captures(y: Any, scale: Any) -> int:
        _, linear = fnx.linearize(lambda y: jnp.sin(y) * lax.stop_gradient(scale), y)
        return len(fnx.make_jaxpr(linear)(y).consts)

    def f(y: Any, scale: Any) -> Any:
        assert captures(jnp.zeros(3), jnp.array(0.0)) == captures(y, scale)
        return y
    fnx.jit(f)(jnp.ones(3), 2.0)


def test_jaxprs_read_values_of_enclosing_traces() -> None:
    def f(w: Any, x: Any) -> Any:
        product = w * x
        closed = fnx.make_jaxpr(lambda y: jnp.sum(product) * y)(1.0)
        assert len(closed.consts) == 1
        assert "leaf" not in str(closed)
        return jaxpr_as_fun(closed)(2.0)[0]
    assert fnx.jit(f)(jnp.ones(3), jnp.arange(3.0)) == 6.0


def test_derivatives_of_jitted_functions_trace_once() -> None:
    calls: list[int] = []

    @fnx.custom_jvp
    def f(x: Any) -> Any:
        return 2 * x
    f.defjvp(lambda primals, tangents: (f(*primals), 3 * tangents[0]), symbolic_zeros=True)

    @fnx.jit
    def g(x: Any) -> Any:
        calls.append(1)
        return f(x)
    g(1.0)
    for _ in range(3):
        assert fnx.grad(g)(1.0) == 3.0
    assert len(calls) == 1


def test_rules_that_call_their_function_for_smaller_numbers() -> None:
    """A rule is traced for the derivatives that are taken, not for those of what it calls."""
    log: list[int] = []

    def power(n: int, x: Any) -> Any:
        return x ** n
    f = fnx.custom_jvp(power, nondiff_argnums=(0,))

    @f.defjvp
    def rule(n: int, primals: Any, tangents: Any) -> Any:
        log.append(n)
        return f(n, *primals), n * f(n - 1, *primals) * tangents[0]
    assert fnx.grad(lambda x: f(9, x))(1.0) == 9.0
    assert log == [9]
    assert fnx.grad(fnx.grad(lambda x: f(9, x)))(1.0) == 72.0
