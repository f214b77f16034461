"""Check a jaxpr: each variable is bound before it is read, once, and types agree with the rules.

>>> import fnx
>>> check_jaxpr(fnx.make_jaxpr(lambda x: x * 2.0)(1.0).jaxpr)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.array.abstract_values import ShapedArray
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.scope import scope
from fnx.core.support.errors import FnxError, JaxprTypeError
from fnx.jaxprs.primitive import BuiltInPrimitive
from fnx.jaxprs.printer import Names, format_eqn, short_type
from fnx.jaxprs.syntax import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params
from fnx.jaxprs.user_rules import result_types

_PARAMS: dict[str, dict[str, type]] = {
    "scan": {"reverse": bool, "length": int, "num_consts": int, "num_carry": int,
             "jaxpr": ClosedJaxpr},
    "while": {"cond_jaxpr": ClosedJaxpr, "body_jaxpr": ClosedJaxpr, "cond_nconsts": int,
              "body_nconsts": int},
    "cond": {"branches": tuple}}


def check_jaxpr(jaxpr: Jaxpr) -> None:
    """Check a jaxpr and those in it.

    Args:
        jaxpr: the jaxpr.

    Raises:
        JaxprTypeError: a variable that is not bound, or bound twice, or of another type than the
            primitive gives; names the equation.
    """
    known, names = set[Var](), Names()
    for v in (*jaxpr.constvars, *jaxpr.invars):
        _bind(v, known, "an argument of the jaxpr", names)
        names.of(v)
    for i, eqn in enumerate(jaxpr.eqns):
        what = f"equation {i}, {format_eqn(eqn, names)},"
        for x in eqn.invars:
            _check_read(x, known, what, names)
        _check_params(eqn, what)
        for inner in jaxprs_in_params(eqn.params):
            check_jaxpr(inner)
        _check_types(eqn, what, names)
        for v in eqn.outvars:
            _bind(v, known, what, names)
    for out in jaxpr.outvars:
        _check_read(out, known, "the result of the jaxpr", names)


def _check_params(eqn: JaxprEqn, what: str) -> None:
    """Check the types of the params of loops and branches."""
    name = str(eqn.primitive)
    for param, kind in _PARAMS.get(name, {}).items():
        value = eqn.params.get(param)
        if param == "branches":
            fits = isinstance(value, tuple) and all(isinstance(b, ClosedJaxpr) for b in value)
            text = "tuple of ClosedJaxpr"
        else:
            fits, text = isinstance(value, kind), kind.__name__
        if not fits:
            raise JaxprTypeError(f"{what} has the param {param} of {name}, a "
                                 f"{type(value).__name__}; expected {text}, got {value}",
                                 hint="take params from an equation that make_jaxpr makes")


def _bind(v: Any, known: set[Var], what: str, names: Names) -> None:
    if not isinstance(v, Var):
        raise JaxprTypeError(f"{what}: expected variables, got {type(v).__name__}",
                             hint="make variables with gensym()(aval)")
    if v in known:
        raise JaxprTypeError(f"{what} binds {names.of(v)}, which is bound already",
                             hint="make a new variable for each result")
    known.add(v)


def _check_read(v: Atom, known: set[Var], what: str, names: Names) -> None:
    if not isinstance(v, Var | Literal):
        raise JaxprTypeError(f"{what} reads {type(v).__name__}, expected a Var or a Literal",
                             hint="wrap numbers: Literal(value, aval)")
    if isinstance(v, Var) and v not in known:
        raise JaxprTypeError(f"{what} reads {names.of(v)}, which is not bound before",
                             hint="put the equation that binds it first, or make it an argument")


def _check_types(eqn: JaxprEqn, what: str, names: Names) -> None:
    avals = [v.aval for v in eqn.invars]
    try:
        types = _types(eqn, avals)
    except Exception as error:
        text = error.message if isinstance(error, FnxError) else str(error)
        raise JaxprTypeError(f"{what} is not valid: {text}",
                             hint="check its operands and params") from error
    if len(types) != len(eqn.outvars):
        raise JaxprTypeError(f"{what} binds {len(eqn.outvars)} variables, and {eqn.primitive} has "
                             f"{len(types)} results", hint="bind one variable for each result")
    for v, (shape, dtype) in zip(eqn.outvars, types):
        if tuple(v.aval.shape) != tuple(shape) or v.aval.dtype != dtype:
            raise JaxprTypeError(f"{what} binds {names.of(v)} as {short_type(v.aval)}, and the "
                                 f"result is {short_type(Aval(tuple(shape), dtype))}",
                                 hint="give the variable that aval")


def _access_types(eqn: JaxprEqn) -> list[tuple[Any, Any]]:
    """Return the types of the results of an access of a reference."""
    if eqn.primitive.name in ("new_ref", "freeze"):
        return [(v.aval.shape, v.aval.dtype) for v in eqn.invars[:1]]
    ref = eqn.invars[0].aval
    if not hasattr(ref, "inner_aval"):
        raise JaxprTypeError(f"expected a reference as first operand, got {ref}",
                             hint="make it an argument of type AbstractRef")
    return [(v.aval.shape, ref.dtype) for v in eqn.outvars]


def _types(eqn: JaxprEqn, avals: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the types of the results that a primitive gives."""
    primitive, params = eqn.primitive, eqn.params
    if primitive.ref_primitive:
        return _access_types(eqn)
    if not isinstance(primitive, BuiltInPrimitive):
        typed = result_types(primitive, avals, params)
        return [(a.shape, ShapedArray.of(a).dtype) for a in typed]
    with scope.Scope(f"check of {primitive}") as opened:
        args = [v.val if isinstance(v, Literal) else
                Array(opened.leaf(a._aval.dtype, a.shape), a.weak_type)
                for v, a in zip(eqn.invars, avals)]
        out = primitive.bind(*args, **params)
    outs = out if primitive.multiple_results else [out]
    return [(x.shape, x.dtype) for x in outs]
