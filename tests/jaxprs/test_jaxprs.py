"""make_jaxpr: equations, params and text; evaluating a jaxpr gives what the function gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.errors import ArgumentError, JaxprTypeError
from fnx.extend.core import primitives
from fnx.jaxprs.check import check_jaxpr
from fnx.jaxprs.dead_code import dce_jaxpr
from fnx.jaxprs.evaluate import eval_jaxpr, jaxpr_as_fun
from fnx.jaxprs.syntax import Jaxpr, Literal, Var, jaxprs_in_params, subjaxprs

ONES = jnp.ones((2, 3))
C = jnp.arange(3.0)


@fnx.custom_jvp
def custom(x: Any) -> Any:
    return jnp.sin(x)


custom.defjvp(lambda primals, tangents: (custom(*primals), 3 * tangents[0]))


@fnx.custom_vjp
def custom_rev(x: Any) -> Any:
    return jnp.sin(x)


custom_rev.defvjp(lambda x: (custom_rev(x), x), lambda saved, ct: (ct * saved,))

PROGRAMS: list[Any] = [
    lambda x: jnp.sum(x + jnp.sin(x) * 3.0),
    lambda x: (x * C)[:, ::-1].reshape(6)[1:4],
    lambda x: lax.scan(lambda c, e: (c + e, c * e), C, x),
    lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * C), (0, x)),
    lambda x: lax.cond(x.sum() > 3, jnp.sin, lambda y: y * C, x),
    lambda x: lax.switch(1, [jnp.sin, jnp.cos], x),
    lambda x: fnx.jit(lambda y: jnp.exp(y) @ y.T)(x),
    lambda x: (custom(x), custom_rev(x)),
    lambda x: fnx.checkpoint(jnp.tanh)(x),
    lambda x: (jnp.argmax(x, 1), x.astype(int), jnp.sort(x, 0), x > 1, jnp.cumsum(x, 0)),
    lambda x: (jnp.linalg.norm(x), jnp.concatenate([x, x]), jnp.pad(x, 1), x[jnp.array([1, 0])]),
    fnx.grad(lambda x: jnp.max(jnp.exp(x) * x ** 3)),
    fnx.vmap(lambda x: jnp.where(x > 0, x, -x).mean()),
]


@pytest.mark.cases(12)
@pytest.mark.parametrize("f", PROGRAMS)
def test_evaluating_a_jaxpr_gives_the_results(f: Any) -> None:
    closed = fnx.make_jaxpr(f)(ONES)
    expected = fnx.tree.leaves(f(ONES))
    for run in (jaxpr_as_fun(closed), fnx.jit(jaxpr_as_fun(closed)),
                jaxpr_as_fun(fnx.make_jaxpr(jaxpr_as_fun(closed))(ONES))):
        for a, b in zip(run(ONES), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
            assert a.dtype == b.dtype


def test_derivative_rules_remain_in_a_jaxpr() -> None:
    for f in (custom, custom_rev):
        again = jaxpr_as_fun(fnx.make_jaxpr(f)(2.0))
        assert fnx.grad(lambda x: again(x)[0])(2.0) == fnx.grad(f)(2.0) != np.cos(2.0)


def names(jaxpr: Jaxpr) -> list[str]:
    """Return the primitives of a jaxpr, then of those in it."""
    return [e.primitive.name for e in jaxpr.eqns] + [n for j in subjaxprs(jaxpr) for n in names(j)]


def test_ops_with_bodies_are_equations_with_jaxprs() -> None:
    def f(x: Any) -> Any:
        y = lax.scan(lambda c, _: (c + 1, c), x, None, 3)[0]
        y = lax.cond(y > 0, jnp.sin, jnp.cos, y)
        return custom(custom_rev(fnx.jit(jnp.exp)(lax.while_loop(lambda c: c < 9,
                                                                 lambda c: c * 2, y))))
    closed = fnx.make_jaxpr(f)(2.0)
    found = [e.primitive.name for e in closed.eqns]
    for name in ("scan", "cond", "while", "jit", "custom_vjp_call", "custom_jvp_call"):
        assert name in found
    assert {"sin", "cos", "exp"} <= set(names(closed.jaxpr))
    scan = next(e for e in closed.eqns if e.primitive.name == "scan")
    assert scan.params["length"] == 3 and scan.params["num_carry"] == 1
    assert len(list(jaxprs_in_params(scan.params))) == 1


def test_text() -> None:
    assert str(fnx.make_jaxpr(PROGRAMS[0])(jnp.ones(8))) == """\
{ lambda ; a:f32[8]. let
    b:f32[8] = sin a
    c:f32[8] = mul b 3.0:f32[]
    d:f32[8] = add a c
    e:f32[] = reduce_sum[axes=(0,) out_sharding=None] d
  in (e,) }"""
    assert str(fnx.make_jaxpr(lambda x: x + C)(C)).startswith("{ lambda a:f32[3]; b:f32[3]. let")


def test_types_and_constants() -> None:
    closed, shapes = fnx.make_jaxpr(lambda x, n, *, y: (x * n + y, C * x), static_argnums=1,
                                    return_shape=True)(jnp.ones(3), 2, y=1.0)
    assert [(a.shape, a.weak_type) for a in closed.in_avals] == [((3,), False), ((), True)]
    assert closed.out_avals == list(shapes) and not closed.effects
    np.testing.assert_array_equal(closed.consts[0], C)
    assert closed.jaxpr.eqns is closed.eqns and len(closed.jaxpr.constvars) == 1
    printing = fnx.make_jaxpr(lambda x: fnx.debug.print("{}", x))(1.0)
    assert printing.effects and printing.eqns[0].effects


def test_wrong_values_are_refused() -> None:
    closed = fnx.make_jaxpr(jnp.sin)(1.0)
    with pytest.raises(ArgumentError, match="expected 1 args, got 2"):
        eval_jaxpr(closed.jaxpr, [], 1.0, 2.0)
    with pytest.raises(ArgumentError, match="expected a Jaxpr, got ClosedJaxpr"):
        eval_jaxpr(closed, [], 1.0)  # type: ignore[arg-type]
    unbound = closed.jaxpr.replace(eqns=[])
    with pytest.raises(ArgumentError, match="bound before it is read"):
        eval_jaxpr(unbound, [], 1.0)


def test_wrong_jaxprs_are_refused_by_equation() -> None:
    jaxpr = fnx.make_jaxpr(lambda x: jnp.sin(x) * x)(ONES).jaxpr
    check_jaxpr(jaxpr)
    sin, mul = jaxpr.eqns
    other = Var(sin.outvars[0].aval.update(shape=(3, 2)))
    for eqns, text in (
            ([mul, sin], "equation 0, .* = mul .* reads \\w+, which is not bound before"),
            ([sin, sin, mul], "equation 1, .* binds \\w+, which is bound already"),
            ([sin.replace(outvars=[other])], r"equation 0, .* as f32\[3,2\], and the result "
                                             r"is f32\[2,3\]"),
            ([sin.replace(outvars=[*sin.outvars, other])], "binds 2 variables, and sin has 1"),
            ([sin, mul.replace(invars=[other, sin.outvars[0]])], "equation 1, .* not bound"),
            ([sin.replace(invars=[*sin.invars, Literal(1.0, ONES)])], "equation 0, .* not valid")):
        with pytest.raises(JaxprTypeError, match=text):
            check_jaxpr(jaxpr.replace(eqns=eqns))


def test_dead_code_is_dropped_in_bodies_too() -> None:
    def f(x: Any, y: Any) -> Any:
        a, b = fnx.jit(lambda x, y: (jnp.sin(x), jnp.cos(y)))(x, y)
        (c, d), e = lax.scan(lambda s, _: ((s[0] * 2, s[1] + 1), s[1]), (a, b), length=3)
        g, h = lax.cond(x > 0, lambda: (x, c), lambda: (y, d))
        return c, d, e, g, h
    jaxpr = fnx.make_jaxpr(f)(1.0, 2.0).jaxpr
    for used in np.eye(5, dtype=bool):
        new, inputs = dce_jaxpr(jaxpr, list(used))
        check_jaxpr(new)
        args = [x for x, u in zip((1.0, 2.0), inputs) if u]
        np.testing.assert_allclose(eval_jaxpr(new, [], *args)[0], f(1.0, 2.0)[used.argmax()],
                                   rtol=1e-6)
        assert inputs == [[True, False], [False, True], [False, True]][used.argmax()] \
            if used.argmax() < 3 else any(inputs)
    new, inputs = dce_jaxpr(jaxpr, [False] * 5)
    assert not new.eqns and inputs == [False, False]


def test_primitives_bind_by_the_params_of_jax() -> None:
    x = jnp.arange(6.0).reshape(2, 3) - 2.5
    for name, args, params, expected in (
            ("dot_general", (x, x), {"dimension_numbers": (((1,), (1,)), ((), ())),
                                     "precision": None, "preferred_element_type": None,
                                     "out_sharding": None}, x @ x.T),
            ("integer_pow", (x,), {"y": 3}, x ** 3), ("rsqrt", (x,), {"accuracy": None},
                                                      lax.rsqrt(x)),
            ("reduce_max", (x,), {"axes": (0,)}, x.max(0)), ("ge", (x, x), {}, x >= x),
            ("dynamic_slice", (x, 1, 0), {"slice_sizes": (1, 2)}, x[1:, :2]),
            ("cumsum", (x,), {"axis": 0, "reverse": False}, jnp.cumsum(x, 0)),
            ("select_n", (x > 0, x, -x), {}, jnp.where(x > 0, -x, x)),
            ("iota", (), {"dtype": np.float32, "shape": (2, 3), "dimension": 1,
                          "sharding": None}, jnp.arange(3.0) + 0 * x),
            ("pad", (x, 0.0), {"padding_config": ((1, -1, 1), (0, 0, 0))},
             lax.pad(x, 0.0, ((1, -1, 1), (0, 0, 0)))),
            ("argmax", (x,), {"axes": (1,), "index_dtype": np.int32}, jnp.argmax(x, 1)),
            ("slice", (x,), {"start_indices": (0, 0), "limit_indices": (2, 3),
                             "strides": (1, 2)}, x[:, ::2])):
        p = getattr(lax, f"{name}_p")
        assert p.name == name and p is getattr(primitives, f"{name}_p")
        np.testing.assert_array_equal(p.bind(*args, **params), expected)
    assert lax.sort_p.multiple_results and lax.scatter_add_p.name == "scatter-add"
    assert not hasattr(lax, "no_such_thing_p")
    with pytest.raises(NotImplementedError, match="primitive no_such_thing_p"):
        lax.no_such_thing_p


def test_the_first_index_of_an_extreme_is_one_equation() -> None:
    x = jnp.asarray([[1.0, jnp.nan, 3.0], [4.0, 6.0, 6.0]])
    closed = fnx.make_jaxpr(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 1)))(x)
    assert [str(eqn.primitive) for eqn in closed.eqns] == ["argmax", "argmin"]
    assert [list(map(int, y)) for y in jaxpr_as_fun(closed)(x)] == [[1, 1], [1, 0]]
