"""Broken jaxprs and broken primitives are refused by equation, or by primitive, rule and line."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.array.abstract_values import ShapedArray
from fnx.core.support.errors import ArgumentError, FnxError, JaxprTypeError, RuleError
from fnx.interpreters.mlir import register_lowering
from fnx.jaxprs.check import check_jaxpr
from fnx.jaxprs.evaluate import eval_jaxpr
from fnx.jaxprs.lowering_context import lower_fun
from fnx.jaxprs.primitive import Primitive
from fnx.jaxprs.registries import primitive_batchers, primitive_jvps
from fnx.jaxprs.syntax import Jaxpr, Var

CLOSED = fnx.make_jaxpr(lambda x, y: jnp.sin(x) * y + 1.0)(jnp.ones(3), jnp.ones(3))


@pytest.mark.parametrize("name", ["sin", "add", "round", "reduce_sum", "scan", "cond", "jit"])
def test_params_that_a_primitive_does_not_have_are_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name}: expected params among.*'nonsense'"):
        getattr(lax, f"{name}_p").bind(1.0, nonsense=3)


CALLS: list[Callable[[Any], Any]] = [
    jnp.cumsum, jnp.sort, jnp.argmax, lambda x: x @ x, lambda x: x.astype("int32"),
    lambda x: x[jnp.asarray([0, 2])], lambda x: x.at[1].set(2), lambda x: jnp.concatenate([x, x]),
    lambda x: jnp.pad(x, 1), jnp.exp, lambda x: x.reshape(3, 1).T, fnx.checkpoint(jnp.sin),
    fnx.jit(jnp.cos), lambda x: lax.top_k(x, 2), lambda x: jnp.convolve(x, x), lax.stop_gradient,
    lambda x: lax.dynamic_slice(x, (1,), (1,)), lambda x: x > 1, jnp.linalg.norm, jnp.fft.fft,
    lambda x: lax.scan(lambda c, a: (c + a, c * a), 0.0, x),
    lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))]


@pytest.mark.parametrize("f", CALLS)
def test_params_that_no_equation_of_a_program_has_are_refused(f: Callable[[Any], Any]) -> None:
    closed = fnx.make_jaxpr(f)(jnp.arange(3.0))
    for i, eqn in enumerate(closed.jaxpr.eqns):
        changed = eqn.replace(params={**eqn.params, "nonsense": 3})
        eqns = [changed if e is eqn else e for e in closed.jaxpr.eqns]
        with pytest.raises(JaxprTypeError, match=f"equation {i}, (.*\n)*.*nonsense"):
            check_jaxpr(closed.jaxpr.replace(eqns=eqns))


def test_factors_of_another_dtype_are_converted() -> None:
    product = lax.mul_p.bind(jnp.int8(100), jnp.int8(100), out_dtype=np.dtype("int32"))
    assert product.dtype == np.int32 and int(product) == 10000


def test_missing_params_are_refused() -> None:
    with pytest.raises(TypeError, match=r"reduce_sum\(\) missing.*axes"):
        lax.reduce_sum_p.bind(jnp.ones(2))


def test_wrong_params_of_an_equation_are_refused_by_equation() -> None:
    jaxpr = CLOSED.jaxpr
    wrong = jaxpr.eqns[0].replace(params={"nonsense": 3})
    broken = jaxpr.replace(eqns=[wrong, *jaxpr.eqns[1:]])
    with pytest.raises(JaxprTypeError, match="equation 0.*nonsense"):
        check_jaxpr(broken)
    with pytest.raises(ArgumentError, match="in equation 0 of the jaxpr.*nonsense"):
        eval_jaxpr(broken, [], jnp.ones(3), jnp.ones(3))


def test_operands_of_wrong_shape_are_refused_by_equation() -> None:
    with pytest.raises(FnxError, match="in equation 1 of the jaxpr, .*mul.*one shape"):
        eval_jaxpr(CLOSED.jaxpr, [], jnp.ones(3), jnp.ones(4))


def scaled(**rules: Any) -> Primitive:
    p = Primitive("scaled")
    p.def_impl(lambda x, **_: x)
    p.def_abstract_eval(rules.get("abstract", lambda x, **_: ShapedArray(x.shape, x.dtype)))
    register_lowering(p, lower_fun(rules.get("lowering", lambda x, **_: x * 2.0),
                                   multiple_results=False))
    return p


def test_a_lowering_with_another_signature_names_primitive_rule_and_line() -> None:
    p = scaled(lowering=lambda x: x)
    with pytest.raises(RuleError, match=r"lowering rule .*test_bad_input.py:\d+.* scaled.*k="):
        fnx.jit(lambda x: p.bind(x, k=2))(1.0)


@pytest.mark.parametrize("transform", [fnx.jit, fnx.make_jaxpr])
def test_params_without_a_hash_are_refused_in_traces(transform: Any) -> None:
    p = scaled()
    assert p.bind(1.0, k=[1]) == 1.0
    with pytest.raises(ArgumentError, match=r"scaled: expected params.*hashed.*k=\[1\]"):
        transform(lambda x: p.bind(x, k=[1]))(1.0)


def failing(*args: Any, **params: Any) -> Any:
    raise LookupError("of the user's")


def notes(f: Any, *args: Any) -> str:
    with pytest.raises(LookupError, match="of the user's") as caught:
        f(*args)
    return "\n".join(caught.value.__notes__)


def test_errors_raised_within_rules_name_primitive_and_rule() -> None:
    p = scaled()
    primitive_jvps[p] = failing
    primitive_batchers[p] = failing
    for kind, text in (
            ("abstract evaluation", notes(fnx.jit(scaled(abstract=failing).bind), 1.0)),
            ("lowering", notes(fnx.jit(scaled(lowering=failing).bind), 1.0)),
            ("jvp", notes(fnx.grad(p.bind), 1.0)),
            ("batching", notes(fnx.vmap(p.bind), jnp.ones(2)))):
        assert kind in text and "test_bad_input.py" in text and "primitive scaled" in text


def mutated(jaxpr: Jaxpr, rng: random.Random) -> Jaxpr:
    """Return a jaxpr with one part changed, at random."""
    eqns, i = list(jaxpr.eqns), rng.randrange(len(jaxpr.eqns))
    kind = rng.randrange(6)
    if kind == 0:
        del eqns[i]
    elif kind == 1:
        eqns[i] = eqns[i].replace(invars=eqns[i].invars[::-1])
    elif kind == 2:
        eqns[i] = eqns[i].replace(params={**eqns[i].params, "nonsense": 0})
    elif kind == 3:
        v = eqns[i].outvars[0]
        changed = Var(ShapedArray((*v.aval.shape, 2), v.aval.dtype))
        eqns[i] = eqns[i].replace(outvars=[changed, *eqns[i].outvars[1:]])
    elif kind == 4:
        eqns.insert(i, eqns[i])
    else:
        eqns[i] = eqns[i].replace(outvars=eqns[i].outvars * 2)
    return jaxpr.replace(eqns=eqns)


PROGRAMS = (
    lambda x, y: jnp.sin(x) * y + 1.0,
    lambda x, y: jnp.sum(x @ x.T, axis=0) / (1.0 + y[0] ** 2),
    lambda x, y: lax.scan(lambda c, a: (c + a, c * a), y, x),
    lambda x, y: lax.cond(x.sum() > 0, lambda a: a * 2.0, lambda a: a - 1.0, y) + x,
    lambda x, y: jnp.sort(x, axis=1)[:, ::-1] * jnp.max(y),
)


@pytest.mark.parametrize("seed", range(60))
def test_a_changed_jaxpr_is_refused_or_has_a_value(seed: int) -> None:
    rng = random.Random(seed)
    x = np.linspace(-1.0, 1.0, 9, dtype=np.float32).reshape(3, 3)
    y = np.arange(3.0, dtype=np.float32)
    closed = fnx.make_jaxpr(PROGRAMS[seed % len(PROGRAMS)])(x, y)
    check_jaxpr(closed.jaxpr)
    jaxpr = mutated(closed.jaxpr, rng)
    try:
        check_jaxpr(jaxpr)
    except JaxprTypeError as error:
        assert "equation" in error.message or "the jaxpr" in error.message
        return
    values = eval_jaxpr(jaxpr, closed.consts, x, y)
    assert [(v.shape, v.dtype) for v in values] == [
        (v.aval.shape, v.aval.dtype) for v in jaxpr.outvars]
