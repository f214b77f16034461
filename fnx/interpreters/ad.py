"""Derivative rules of primitives, under the names of ``jax.interpreters.ad``.

>>> from fnx.extend.core import Primitive
>>> p = Primitive("twice")
>>> deflinear2(p, lambda ct, x: (2 * ct,))
>>> get_primitive_transpose(p)(1.0, UndefinedPrimal(None))
(2.0,)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fnx.core.array import tree
from fnx.core.array.abstract_values import JVPTracer, ShapedArray
from fnx.core.array.api_boundary import asarray
from fnx.core.support.errors import ArgumentError, NotBuiltError
from fnx.jaxprs.primitive import Primitive
from fnx.jaxprs.registries import (
    Rule,
    UndefinedPrimal,
    Zero,
    primitive_jvps,
    primitive_transposes,
    tangent_aval,
    zeros_like_aval,
)
from fnx.numpy import add

__all__ = [
    "JVPTrace", "JVPTracer", "UndefinedPrimal", "Zero", "add_jaxvals", "add_jaxvals_p",
    "add_tangents", "defbilinear", "defjvp", "defjvp2", "deflinear", "deflinear2",
    "get_primitive_transpose", "instantiate_zeros", "is_undefined_primal", "jvp",
    "primitive_jvps", "primitive_transposes", "zeros_like_aval"]


class JVPTrace:
    """The type of traces of forward mode in JAX; fnx has no trace objects."""


def is_undefined_primal(x: Any) -> bool:
    """Whether an operand of a transpose rule has no value."""
    return type(x) is UndefinedPrimal


def instantiate_zeros(tangent: Any) -> Any:
    """Return a tangent as an array, also if it is a Zero."""
    return zeros_like_aval(tangent.aval) if type(tangent) is Zero else tangent


def add_jaxvals(x: Any, y: Any) -> Any:
    """Return the sum of two arrays."""
    return add_jaxvals_p.bind(x, y)


def add_tangents(x: Any, y: Any) -> Any:
    """Return the sum of two tangents, of which any may be a Zero."""
    return y if type(x) is Zero else x if type(y) is Zero else add(x, y)


def get_primitive_transpose(p: Primitive) -> Rule:
    """Return the transpose rule of a primitive.

    Raises:
        NotBuiltError: it has none.
    """
    if p not in primitive_transposes:
        raise NotBuiltError(f"Transpose rule (for reverse-mode differentiation) for '{p}' not "
                            "implemented", hint=f"define one: primitive_transposes[{p}_p] = rule")
    return primitive_transposes[p]


def jvp(fun: Any, primals: Sequence[Any], tangents: Sequence[Any], **options: Any) -> NoReturn:
    """Raise: it transforms functions of JAX's tracers."""
    raise NotBuiltError("interpreters.ad.jvp transforms functions of JAX's tracers, and fnx has "
                        "none", hint="use fnx.jvp")


# ---- tables -------------------------------------------------------------------------------------


def deflinear(primitive: Primitive, transpose_rule: Rule) -> None:
    """Define a primitive as linear in all its operands together.

    Args:
        primitive: the primitive.
        transpose_rule: ``rule(ct, **params)`` returns a cotangent for each operand.
    """
    primitive_jvps[primitive] = functools.partial(_linear_jvp, primitive)
    primitive_transposes[primitive] = _named(
        lambda ct, *args, **params: _zeros(args) if type(ct) is Zero
        else transpose_rule(ct, **params), transpose_rule)


def deflinear2(primitive: Primitive, transpose_rule: Rule) -> None:
    """Define a primitive as linear; its transpose rule takes the operands, too.

    Args:
        primitive: the primitive.
        transpose_rule: ``rule(ct, *args, **params)`` returns a cotangent for each operand; those
            in which the equation is linear are UndefinedPrimals.
    """
    primitive_jvps[primitive] = functools.partial(_linear_jvp, primitive)
    primitive_transposes[primitive] = _named(
        lambda ct, *args, **params: _zeros(args) if type(ct) is Zero
        else transpose_rule(ct, *args, **params), transpose_rule)


def defjvp(primitive: Primitive, *jvprules: Callable[..., Any] | None) -> None:
    """Define a jvp rule for each operand; the tangents of the result are summed.

    Args:
        primitive: a primitive with one result.
        jvprules: ``rule(tangent, *primals, **params)`` for each operand; None: zero.
    """
    _reject_several(primitive, "defjvp")
    primitive_jvps[primitive] = functools.partial(_sum_of_jvps, jvprules, primitive, False)


def defjvp2(primitive: Primitive, *jvprules: Callable[..., Any] | None) -> None:
    """Define a jvp rule for each operand, which takes the result, too.

    Args:
        primitive: a primitive with one result.
        jvprules: ``rule(tangent, ans, *primals, **params)`` for each operand; None: zero.
    """
    _reject_several(primitive, "defjvp2")
    primitive_jvps[primitive] = functools.partial(_sum_of_jvps, jvprules, primitive, True)


def defbilinear(prim: Primitive, lhs_rule: Rule, rhs_rule: Rule) -> None:
    """Define a primitive as linear in each of two operands.

    Args:
        prim: the primitive.
        lhs_rule: ``rule(ct, x, y, **params)`` returns the cotangent of x.
        rhs_rule: the same for y.
    """
    defjvp(prim, lambda t, x, y, **params: prim.bind(t, y, **params),
           lambda t, x, y, **params: prim.bind(x, t, **params))

    def transpose(ct: Any, x: Any, y: Any, **params: Any) -> Any:
        first = is_undefined_primal(x)
        if type(ct) is Zero:
            return _zeros([x, y])
        out = (lhs_rule if first else rhs_rule)(ct, x, y, **params)
        return (out, None) if first else (None, out)
    primitive_transposes[prim] = _named(transpose, lhs_rule)


def _named(f: Callable[..., Any], rule: Rule) -> Rule:
    """Give a rule the name and the line of the user's, for messages."""
    vars(f)["__wrapped__"] = rule
    return f


def _reject_several(primitive: Primitive, what: str) -> None:
    if primitive.multiple_results:
        raise ArgumentError(f"{what}: expected a primitive with one result, got {primitive}, with "
                            "multiple_results", hint="set primitive_jvps[p] = rule")


def _zeros(args: Sequence[Any]) -> list[Any]:
    return [Zero(x.aval) if is_undefined_primal(x) else None for x in args]


def _zero_of(x: Any) -> Zero:
    array = asarray(x)
    return Zero(tangent_aval(array._shape, array._dtype))


def _linear_jvp(primitive: Primitive, primals: Any, tangents: Any, **params: Any) -> Any:
    out = primitive.bind(*primals, **params)
    if all(type(t) is Zero for t in tangents):
        return out, tree.map(_zero_of, out)
    return out, primitive.bind(*map(instantiate_zeros, tangents), **params)


def _sum_of_jvps(rules: Sequence[Any], primitive: Primitive, takes_result: bool, primals: Any,
                 tangents: Any, **params: Any) -> Any:
    out = primitive.bind(*primals, **params)
    first = (out,) if takes_result else ()
    terms = [rule(t, *first, *primals, **params) for rule, t in zip(rules, tangents)
             if rule is not None and type(t) is not Zero]
    return out, functools.reduce(add_tangents, terms, _zero_of(out))


add_jaxvals_p = Primitive("add_any")
add_jaxvals_p.def_impl(add)
add_jaxvals_p.def_abstract_eval(lambda x, y: ShapedArray(x.shape, x.dtype))
deflinear2(add_jaxvals_p, lambda ct, *args: (ct, ct))
