"""Effects of primitives of the user's: order, dead code, transforms, jaxprs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import NotBuiltError
from fnx.extend.core import Effect, Primitive
from fnx.interpreters import ad, batching, mlir
from fnx.jaxprs.effects import control_flow_allowed_effects


class Mark(Effect):
    pass


class Unregistered(Effect):
    pass


control_flow_allowed_effects.add_type(Mark)
MARK, UNREGISTERED = Mark(), Unregistered()


def make() -> Primitive:
    p = Primitive("mark")
    p.def_effectful_abstract_eval(lambda x, effect: (x, {effect}))
    p.def_impl(lambda x, effect: x)
    mlir.register_lowering(p, mlir.lower_fun(lambda x, effect: x, multiple_results=False))
    ad.primitive_jvps[p] = lambda xs, ts, effect: (p.bind(*xs, effect=effect), ts[0])
    batching.primitive_batchers[p] = lambda xs, dims, effect: (p.bind(*xs, effect=effect), dims[0])
    return p


def test_what_nothing_reads_stays_in_order() -> None:
    p = make()

    def f(x: Any) -> Any:
        p.bind(x, effect=MARK)
        fnx.debug.callback(lambda: None, ordered=True)
        p.bind(x + 1.0, effect=MARK)
        return x * 2.0

    closed = fnx.make_jaxpr(f)(1.0)
    names = [e.primitive.name for e in closed.eqns]
    assert names.index("mark") < names.index("debug_callback") < len(names) - names[::-1].index(
        "mark") - 1
    assert MARK in closed.effects
    jitted = fnx.jit(f)
    assert jitted(3.0) == 6.0 and fnx.grad(jitted)(3.0) == 2.0
    np.testing.assert_array_equal(fnx.vmap(jitted)(jnp.arange(2.0)), [0.0, 2.0])
    inner = fnx.make_jaxpr(jitted)(1.0).eqns[0]
    assert MARK in inner.effects and MARK in inner.params["jaxpr"].effects


def test_loops_take_registered_types_only() -> None:
    p = make()

    def loop(effect: Effect) -> Any:
        return lambda x: fnx.lax.fori_loop(0, 3, lambda i, c: p.bind(c, effect=effect) + 1.0, x)

    assert fnx.make_jaxpr(loop(MARK))(1.0).effects == {MARK}
    assert fnx.jit(loop(MARK))(1.0) == 4.0
    with pytest.raises(NotBuiltError, match="Effects not supported in `scan`"):
        fnx.make_jaxpr(loop(UNREGISTERED))(1.0)
