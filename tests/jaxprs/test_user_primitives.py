"""Primitives of the user's: their rules in all transforms; mistakes in rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.array.abstract_values import ShapedArray
from fnx.core.support.errors import FnxError, NotBuiltError, RuleError
from fnx.interpreters.mlir import register_lowering
from fnx.jaxprs.lowering_context import lower_fun
from fnx.jaxprs.primitive import Primitive, built_in
from fnx.jaxprs.registries import (
    UndefinedPrimal,
    Zero,
    axis_primitive_batchers,
    lowerings,
    primitive_batchers,
    primitive_jvps,
    primitive_transposes,
)


def multiply_add() -> Primitive:
    """Return a primitive x * y + z with all rules."""
    p = Primitive("multiply_add")

    def f(x: Any, y: Any, z: Any) -> Any:
        return p.bind(x, y, z)
    p.def_impl(lambda x, y, z: np.add(np.multiply(x, y), z))
    p.def_abstract_eval(lambda x, y, z: ShapedArray(x.shape, x.dtype))
    lowerings[p] = {None: lower_fun(lambda x, y, z: x * y + z, multiple_results=False)}

    def jvp(primals: Any, tangents: Any) -> Any:
        (x, y, z), (tx, ty, tz) = primals, [
            jnp.zeros_like(x) if type(t) is Zero else t for x, t in zip(primals, tangents)]
        return f(x, y, z), f(tx, y, f(x, ty, tz))

    def transpose(ct: Any, x: Any, y: Any, z: Any) -> Any:
        if not isinstance(x, UndefinedPrimal):
            return None, f(x, ct, jnp.zeros_like(x)), ct
        return f(ct, y, jnp.zeros_like(y)), None, ct

    def batcher(args: Any, dims: Any) -> Any:
        size = next(x.shape[d] for x, d in zip(args, dims) if d is not None)
        return f(*[jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
                   for x, d in zip(args, dims)]), 0
    primitive_jvps[p], primitive_transposes[p], primitive_batchers[p] = jvp, transpose, batcher
    return p


def transforms_of(f: Any) -> list[Any]:
    """Return results of transforms of f(x, y, z) of scalars."""
    xs = jnp.arange(1.0, 5.0)
    of = fnx.grad(lambda x: f(x, x, f(x, 2.0, x)))

    def loop(x: Any) -> Any:
        return lax.scan(lambda c, e: (f(c, e, x), f(e, c, e)), x, xs)
    return [f(2.0, 3.0, 4.0), fnx.jit(f)(2.0, 3.0, 4.0), fnx.grad(f, (0, 1, 2))(2.0, 3.0, 4.0),
            of(3.0), fnx.jit(of)(3.0), fnx.grad(of)(3.0), fnx.grad(fnx.grad(of))(3.0),
            fnx.jacfwd(of)(3.0), fnx.vmap(f, (0, None, 0))(xs, 2.0, xs), fnx.vmap(of)(xs),
            fnx.jit(fnx.vmap(fnx.grad(of)))(xs), loop(0.5), fnx.jit(loop)(0.5),
            fnx.grad(lambda x: loop(x)[1].sum())(0.5), fnx.vmap(fnx.jacrev(loop))(xs),
            fnx.hessian(lambda x: loop(x)[0])(0.5),
            fnx.jvp(lambda x: lax.cond(x > 1, lambda: f(x, x, x), lambda: x), (2.0,), (1.0,)),
            fnx.grad(fnx.checkpoint(lambda x: f(x, x, x)))(2.0),
            fnx.linear_transpose(lambda x: f(x, 3.0, 0.0), 1.0)(2.0)]


def test_all_transforms_use_the_rules() -> None:
    p = multiply_add()
    found = transforms_of(lambda x, y, z: p.bind(x, y, z))
    for a, b in zip(fnx.tree.leaves(found),
                    fnx.tree.leaves(transforms_of(lambda x, y, z: x * y + z))):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_jaxpr_shows_the_primitive() -> None:
    p = multiply_add()
    closed = fnx.make_jaxpr(lambda x: p.bind(x, x, 1.0))(2.0)
    assert [e.primitive for e in closed.eqns] == [p]
    assert "multiply_add a a 1.0:f32[]" in str(closed)


def test_without_a_lowering() -> None:
    """Eager transforms call impl, whatever it is; jit does not."""
    p = multiply_add()
    lowerings[p] = {}

    def f(x: Any) -> Any:
        return p.bind(x, x, x)
    assert fnx.grad(f)(3.0) == 7.0  # its rule binds it again: impl is a callback
    p.def_impl(lambda x, y, z: x * y + z)
    assert fnx.grad(f)(3.0) == 7.0
    assert fnx.make_jaxpr(fnx.jit(f))(3.0).eqns
    with pytest.raises(NotImplementedError, match="translation rule for primitive 'multiply_add'"):
        fnx.jit(f)(3.0)


def test_missing_rules_are_named() -> None:
    p = multiply_add()
    f = fnx.jit(lambda x: p.bind(x, x, x))
    for table, use, text in (
            (primitive_transposes, fnx.grad(f), "Transpose rule .* for 'multiply_add'"),
            (primitive_jvps, fnx.jvp, "Differentiation rule for 'multiply_add'"),
            (primitive_batchers, fnx.vmap(f), "Batching rule for 'multiply_add'")):
        del table[p]  # type: ignore[attr-defined]
        with pytest.raises(NotBuiltError, match=text):
            use(f, (1.0,), (1.0,)) if use is fnx.jvp else use(  # type: ignore[operator]
                jnp.ones(2) if "Batch" in text else 1.0)
    with pytest.raises(NotBuiltError, match="Abstract evaluation for 'nothing'"):
        fnx.jit(Primitive("nothing").bind)(1.0)
    with pytest.raises(NotBuiltError, match="Evaluation rule for 'nothing'"):
        Primitive("nothing").bind(1.0)


@pytest.mark.parametrize(("table", "rule", "text"), [
    (lowerings, {None: lower_fun(lambda x, y, z: jnp.ones(3), False)},
     r"the lowering rule <lambda> \(.*test_user_primitives.py:\d+\) of the primitive multiply_add"
     r" to return results of type float32\[\], got float32\[3\]"),
    (primitive_jvps, lambda primals, tangents: (jnp.ones(2), 0.0), r"jvp rule .* got float32\[2\]"),
    (primitive_jvps, lambda primals, tangents: 1.0, "jvp rule .* to return a pair, got float"),
    (primitive_transposes, lambda ct, *args: (ct,), "transpose rule .* 3 cotangents, got 1"),
    (primitive_transposes, lambda ct, *args: (jnp.ones(2),) * 3, r"got float32\[2\]")])
def test_wrong_rules_are_named(table: Any, rule: Any, text: str) -> None:
    p = multiply_add()
    table[p] = rule
    with pytest.raises(RuleError, match=text):
        fnx.jit(fnx.grad(lambda x: p.bind(x, x, x)))(2.0)


def test_several_results_and_params() -> None:
    p = Primitive("powers")
    p.multiple_results = True

    def powers(x: Any, *, n: int) -> Any:
        return [x ** i for i in range(1, n + 1)]
    p.def_impl(powers)
    p.def_abstract_eval(lambda x, n: [ShapedArray(x.shape, x.dtype)] * n)
    lowerings[p] = {None: lower_fun(powers)}
    primitive_jvps[p] = lambda primals, tangents, n: (
        p.bind(*primals, n=n), [i * primals[0] ** (i - 1) * tangents[0] for i in range(1, n)]
        + [Zero(ShapedArray((), "float32"))])
    primitive_batchers[p] = lambda args, dims, n: (p.bind(*args, n=n), [dims[0]] * n)
    assert fnx.jit(lambda x: p.bind(x, n=3))(2.0) == [2.0, 4.0, 8.0]
    assert fnx.grad(lambda x: sum(p.bind(x, n=3)))(2.0) == 5.0  # the rule has no third tangent
    np.testing.assert_array_equal(fnx.vmap(lambda x: p.bind(x, n=2)[1])(jnp.arange(3.0)),
                                  [0, 1, 4])


def test_rules_close_over_arrays_and_call_python() -> None:
    """Rules that are traced in a body may read arrays of any size, and callbacks."""
    w = np.arange(300.0, dtype=np.float32)
    p = Primitive("weigh")
    p.def_impl(lambda x: x * w)
    p.def_abstract_eval(lambda x: ShapedArray(x.shape, x.dtype))
    register_lowering(p, lower_fun(lambda x: x * w, False))

    def jvp(primals: Any, tangents: Any) -> Any:
        struct = fnx.ShapeDtypeStruct((), "float32")
        doubled = fnx.pure_callback(lambda x: 2 * np.asarray(x), struct,
                                    fnx.lax.stop_gradient(primals[0][0]))
        return p.bind(*primals), tangents[0] * w + 0 * doubled
    primitive_jvps[p] = jvp
    axis_primitive_batchers[p] = lambda size, name, _, args, dims: (args[0] * w + size, 0)
    f = fnx.jit(lambda x: jnp.sum(p.bind(x) ** 2))
    x = jnp.ones(300)
    loop = fnx.jit(lambda x: fnx.lax.scan(lambda c, _: (c + f(x), None), 0.0, None, 2)[0])
    branch = fnx.jit(lambda x: fnx.lax.cond(x[0] > 0, f, jnp.sum, x))
    for derivative in (fnx.grad(f), fnx.jit(fnx.grad(f)), fnx.jit(fnx.grad(branch)),
                       fnx.jit(fnx.grad(fnx.checkpoint(f))), fnx.jacfwd(f)):
        np.testing.assert_allclose(derivative(x), 2 * w * w)
    np.testing.assert_allclose(fnx.jit(fnx.grad(loop))(x), 4 * w * w)
    np.testing.assert_allclose(fnx.vmap(fnx.jit(p.bind))(jnp.ones((2, 300)))[1], w + 2)


def double() -> Primitive:
    p = Primitive("double")
    p.def_impl(lambda x: 2 * x)
    p.def_abstract_eval(lambda x: ShapedArray(x.shape, x.dtype))
    register_lowering(p, lower_fun(lambda x: 2 * x, False))
    return p


def test_what_rules_return_is_checked_before_it_is_used() -> None:
    p = double()
    primitive_transposes[p] = lambda ct, x: ct  # no list
    with pytest.raises(RuleError, match="transpose rule .* to return a list of cotangents, got Ar"):
        fnx.grad(p.bind)(1.0)
    primitive_batchers[p] = lambda xs, dims: (p.bind(*xs), 3)
    with pytest.raises(RuleError, match=r"batch dimensions that its results have, got 3 for float"):
        fnx.vmap(p.bind)(jnp.ones(2))


@pytest.mark.parametrize("operand", ["text", None, b"bytes"])
def test_operands_are_arrays(operand: Any) -> None:
    with pytest.raises(FnxError, match="expected an array or a number"):
        double().bind(operand)


def test_params_that_are_missing_are_named_with_their_primitive() -> None:
    with pytest.raises(TypeError, match=r"^reduce_sum\(\) missing 1 required .*: 'axes'"):
        built_in("reduce_sum").bind(jnp.ones(2))
