"""Jaxpr -> graph: evaluate the equations in order by binding their primitives.

>>> import fnx
>>> closed = fnx.make_jaxpr(lambda x, y: x * y + 1.0)(2.0, 3.0)
>>> eval_jaxpr(closed.jaxpr, closed.consts, 2.0, 3.0)
[Array(7., dtype=float32, weak_type=True)]
>>> jaxpr_as_fun(closed)(2.0, 4.0)
[Array(9., dtype=float32, weak_type=True)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.ir import build, dtypes, low_precision
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, FnxError
from fnx.core.tracing.trace import trace
from fnx.jaxprs.syntax import Atom, ClosedJaxpr, Jaxpr, Literal, Var


@public_api
def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True
               ) -> list[Any]:
    """Evaluate a jaxpr by binding the primitives of its equations, in order.

    Args:
        jaxpr: the jaxpr.
        consts: a value for each of its constvars.
        args: a value for each of its invars.
        propagate_source_info: accepted for JAX's sake.

    Returns:
        The list of its results.

    Raises:
        ArgumentError: another number of values than of variables, or a variable that no earlier
            equation binds.
    """
    if not isinstance(jaxpr, Jaxpr):
        raise ArgumentError(f"expected a Jaxpr, got {type(jaxpr).__name__}",
                            hint="of a ClosedJaxpr c pass c.jaxpr and c.consts")
    env: dict[Var, Any] = {}
    for what, names, values in (("consts", jaxpr.constvars, consts), ("args", jaxpr.invars, args)):
        if len(names) != len(values):
            raise ArgumentError(f"expected {len(names)} {what}, got {len(values)}")
        env.update(zip(names, values))

    def read(v: Atom) -> Any:
        if isinstance(v, Literal):
            return _literal(v)
        if v not in env:
            raise ArgumentError(f"expected a variable that is bound before it is read, got {v!r}",
                                hint="check_jaxpr(jaxpr) names the equation")
        return env[v]

    for i, eqn in enumerate(jaxpr.eqns):
        params = eqn.primitive.get_bind_params(eqn.params)
        try:
            out = eqn.primitive.bind(*map(read, eqn.invars), **params)
        except Exception as error:
            _name_equation(error, f"in equation {i} of the jaxpr", str(eqn))
            raise
        results = out if eqn.primitive.multiple_results else [out]
        if len(results) != len(eqn.outvars):
            raise ArgumentError(f"expected {len(eqn.outvars)} results of {eqn.primitive}, got "
                                f"{len(results)}", hint=f"the equation is {eqn}")
        env.update(zip(eqn.outvars, results))
    return [_with_type(read(v), v.aval) for v in jaxpr.outvars]


def _name_equation(error: Exception, where: str, text: str) -> None:
    """Say in which equation an error was raised: in its message, or in a note of the user's."""
    if isinstance(error, FnxError):
        error.message = f"{where}, {text.splitlines()[0]}: {error.message}"
        error.args = (error.message,)
    else:
        error.add_note(f"{where}: {text}")


def _literal(v: Literal) -> Any:
    """Return a number in its own dtype, also one that asarray would make narrower."""
    if isinstance(v.val, np.generic):
        t = dtypes.as_dtype(v.aval.dtype)
        return Array(build.const(low_precision.decode(np.asarray(v.val), t)[()], t),
                     v.aval.weak_type)
    return v.val if type(v.val) in (int, float, bool) or hasattr(v.val, "dtype") \
        else asarray(v.val)


def _with_type(x: Any, aval: Any) -> Any:
    """Return a result with the weak type that its variable has."""
    array = asarray(x)
    return Array(array._node, True) if aval.weak_type and not array.weak else array


def jaxpr_as_fun(closed_jaxpr: ClosedJaxpr, *args: Any) -> Any:
    """Return the function of a jaxpr: of its arguments, to a list of results.

    Args:
        closed_jaxpr: the jaxpr with its constants.
        args: arguments; if there are any, the function is called with them.
    """
    f = _function_of(closed_jaxpr)
    return f(*args) if args else f


def _function_of(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    def f(*args: Any) -> list[Any]:
        out: list[Any] = eval_jaxpr(closed.jaxpr, closed.consts, *args)
        return out
    f.__name__ = closed.jaxpr.debug_info.func_name or "jaxpr"
    return f


def jaxpr_to_function(closed: ClosedJaxpr, like: Sequence[UOp], name: str) -> UOp:
    """Return the FUNCTION of a jaxpr for operands of these types.

    Raises:
        ArgumentError: it closes over arrays.
    """
    avals = [Aval(x.shape, x.dtype) for x in like]
    traced = trace(jaxpr_as_fun(closed), avals, tree.structure((tuple([0] * len(like)), {})),
                   transform="eval_jaxpr", name=name).close()
    if traced.captures:
        raise ArgumentError(f"expected a jaxpr without arrays that it closes over, got "
                            f"{len(traced.captures)}", hint="pass them as arguments")
    return traced.function
