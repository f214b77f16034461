"""References in jaxprs: what is recorded, and binding it again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, JaxprTypeError, ShapeError
from fnx.jaxprs.check import check_jaxpr
from fnx.jaxprs.dead_code import dce_jaxpr
from fnx.jaxprs.evaluate import eval_jaxpr
from fnx.jaxprs.make import discharge_state
from fnx.jaxprs.references import InternalMutableArrayEffect, ReadEffect, WriteEffect


def program(r: Any, x: Any) -> Any:
    r[0] = x * r[1]
    fnx.ref.addupdate(r, 2, x)
    fnx.lax.fori_loop(0, 2, lambda i, c: r.__setitem__(1, r[1] + x), None)
    local = fnx.new_ref(x)
    local[...] += fnx.grad(lambda y: y * r[0])(x)
    fnx.jit(lambda s: s.__setitem__(0, s[0] + 1.0))(r)
    return local[...] + fnx.ref.swap(r, 1, x)


def test_binding_the_equations_again_does_the_same() -> None:
    start = jnp.array([1.0, 2.0, 3.0])
    want = fnx.new_ref(start)
    result = program(want, 5.0)
    closed = fnx.make_jaxpr(program)(fnx.new_ref(start), 5.0)
    check_jaxpr(closed.jaxpr)
    got = fnx.new_ref(start)
    out, = eval_jaxpr(closed.jaxpr, closed.consts, got, 5.0)
    np.testing.assert_array_equal(got[...], want[...])
    assert out == result
    jitted = fnx.new_ref(start)
    fnx.jit(lambda r: eval_jaxpr(closed.jaxpr, closed.consts, r, 5.0))(jitted)
    np.testing.assert_array_equal(jitted[...], want[...])
    values = eval_jaxpr(discharge_state(closed).jaxpr, [], start, 5.0)
    np.testing.assert_array_equal(values[1], want[...])
    assert values[0] == result


def test_effects_are_those_on_arguments() -> None:
    def f(r: Any, x: Any) -> Any:
        local = fnx.new_ref(x)
        r[0] = local[...]
        return x

    closed = fnx.make_jaxpr(f)(fnx.new_ref([1.0, 2.0]), 3.0)
    ref = closed.jaxpr.invars[0]
    assert closed.effects == {WriteEffect(ref), *[
        e for e in closed.effects if isinstance(e, InternalMutableArrayEffect)]}
    assert [type(e) for e in fnx.make_jaxpr(lambda r: r[0])(fnx.new_ref([1.0])).effects] == \
        [ReadEffect]
    without, used = dce_jaxpr(closed.jaxpr, [False])
    assert used == [True, True] and [e.primitive.name for e in without.eqns] == \
        ["new_ref", "get", "swap"]


def test_what_does_not_fit_is_refused() -> None:
    closed = fnx.make_jaxpr(lambda r: r[0])(fnx.new_ref([1.0]))
    with pytest.raises(ArgumentError, match="expected all references to be discharged"):
        discharge_state(closed, should_discharge=False)
    with pytest.raises(ArgumentError, match="expected a reference, got"):
        eval_jaxpr(closed.jaxpr, [], jnp.ones(1))
    wrong = closed.jaxpr.replace(invars=[], eqns=[closed.eqns[0].replace(
        invars=fnx.make_jaxpr(lambda x: x)(1.0).jaxpr.invars)])
    with pytest.raises(JaxprTypeError):
        check_jaxpr(wrong)
    with pytest.raises(ShapeError, match="broadcasts to"):
        fnx.make_jaxpr(lambda r: r.__setitem__(0, jnp.ones(3)))(fnx.new_ref(jnp.zeros(2)))
