"""eval_shape, make_jaxpr, closure_convert, typeof; and check_grads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.errors import ArgumentError
from fnx.test_util import check_grads


def test_eval_shape_computes_nothing() -> None:
    big = fnx.ShapeDtypeStruct((1 << 30, 4), "float32")
    out = fnx.eval_shape(lambda p, *, n: {"a": p["w"].sum(0) + n, "b": (n, 1)}, {"w": big}, n=2)
    assert out == {"a": fnx.ShapeDtypeStruct(4, "float32"), "b": (
        fnx.ShapeDtypeStruct((), "int32", weak_type=True),) * 2}
    assert fnx.eval_shape(lambda x: x, out)["b"][0].weak_type
    assert fnx.eval_shape(fnx.grad(lambda x: x.sum()), np.ones(3)).shape == (3,)
    with pytest.raises(ArgumentError, match="args.0..'k'."):
        fnx.eval_shape(lambda x: x, {"k": "text"})


def test_make_jaxpr_shows_the_graph() -> None:
    graph, shape = fnx.make_jaxpr(lambda x, n, *, y: x * n + y, static_argnums=1,
                                  return_shape=True)(jnp.ones(3), 2, y=1.0)
    assert "x0[i] * 2" in graph.show() and "mul a 2.0:f32[]" in str(graph)
    assert shape == fnx.ShapeDtypeStruct(3, "float32")
    assert graph.in_avals == [shape, fnx.typeof(1.0)] and graph.out_avals == [shape]
    c = jnp.ones(3)
    assert fnx.make_jaxpr(lambda x: x * c)(2.0).consts[0].shape == (3,)


def test_closure_convert_hands_out_what_is_traced() -> None:
    w = jnp.ones(2)

    def f(y: Any) -> Any:
        inner, consts = fnx.closure_convert(lambda x: (x * y * w).sum(), 1.0)
        assert len(consts) == 1
        with pytest.raises(ArgumentError, match="consts"):
            inner(2.0)
        return inner(2.0, *consts)
    assert fnx.grad(f)(3.0) == 4.0
    assert fnx.closure_convert(lambda x: x * w, 1.0)[1] == []


def test_typeof() -> None:
    assert fnx.typeof(np.ones(2)) == fnx.ShapeDtypeStruct(2, "float32")
    seen = []
    fnx.eval_shape(lambda x: seen.append(fnx.typeof(x)) or x, jnp.ones(2))
    assert seen == [fnx.ShapeDtypeStruct(2, "float32")]


def test_check_grads_passes_and_fails() -> None:
    for modes in (("fwd",), ("rev",), ("lin",), ("fwd", "rev", "lin")):
        check_grads(lambda x, y: {"a": jnp.tanh(x * y["k"]).sum(), "n": 3},
                    (np.linspace(0, 1, 3), {"k": 0.5}), 2, modes)
    wrong = lambda x: x * lax.stop_gradient(x)
    for mode in ("fwd", "rev", "lin"):
        with pytest.raises(AssertionError, match="jvp: tangent|vjp: cotangents"):
            check_grads(wrong, (2.0,), 1, (mode,))
        with pytest.raises(AssertionError):
            check_grads(lambda x: x * x * lax.stop_gradient(x) / 3 + 2 * x * x * x / 9, (2.0,), 2,
                        (mode,))
        check_grads(wrong, (2.0,), 1, (mode,), atol=5.0, rtol={np.float32: 1})
    with pytest.raises(ArgumentError, match="modes"):
        check_grads(wrong, (2.0,), 1, ("forward",))
