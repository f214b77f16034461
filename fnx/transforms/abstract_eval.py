"""``eval_shape``, ``closure_convert``, ``typeof``: trace without running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.abstract_values import AbstractValue, ShapedArray
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval, ShapeDtypeStruct
from fnx.core.array.call_validation import validate_call
from fnx.core.array.convert import non_array_hint
from fnx.core.ir import build, ops
from fnx.core.support.errors import ArgumentError, FnxError
from fnx.core.tracing.state import State
from fnx.core.tracing.trace import (
    ClosedFunction,
    TracedFunction,
    function_name,
    inline_function,
    trace,
    unflatten_arrays,
)


@public_api
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Compute the shapes and dtypes of the result of a function, without running it.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> fnx.eval_shape(lambda x: {"sum": x.sum(0)}, fnx.ShapeDtypeStruct((4, 3), "float32"))
    {'sum': ShapeDtypeStruct(shape=(3,), dtype=float32)}

    Args:
        fun: a pure function of pytrees of arrays; it may also return ShapeDtypeStructs.
        args: arrays, or anything with ``shape`` and ``dtype``.
        kwargs: the same, by name.

    Returns:
        A pytree like the result, of ShapeDtypeStructs.
    """
    def arrays(*args: Any, **kwargs: Any) -> Any:
        return tree.map(_zeros_of_struct, fun(*args, **kwargs))

    traced = trace_function(arrays, args, kwargs, "eval_shape", function_name(fun))[0]
    return traced.out_tree.unflatten([_shape_struct(x._aval) for x in traced.outs])


@public_api
def closure_convert(fun: Callable[..., Any], *example_args: Any
                    ) -> tuple[Callable[..., Any], list[Array]]:
    """Convert the traced arrays that ``fun`` closes over to arguments.

    So a custom rule can differentiate with respect to them. Only traced float arrays become
    arguments; other values that ``fun`` closes over stay inside.

    >>> import fnx
    >>> def root(y):
    ...     f, consts = fnx.closure_convert(lambda x: x * y, 1.0)
    ...     return f(2.0, *consts)
    >>> fnx.grad(root)(3.0)
    Array(2., dtype=float32, weak_type=True)

    Args:
        fun: a pure function of pytrees of arrays.
        example_args: arguments of the types that it will be called with.

    Returns:
        (function, consts). ``function(*args, *consts)`` computes ``fun(*args)``.

    Raises:
        ArgumentError: an example that is not an array, or later arguments of another structure.
    """
    closed = _trace_closed(fun, example_args, {}, "closure_convert")
    in_tree = tree.structure((example_args, {}))
    out = [i for i, c in enumerate(closed.captures) if c.op is ops.LEAF and c.dtype.is_inexact]

    @public_api
    def converted(*args: Any) -> Any:
        n = len(args) - len(out)
        structure = tree.structure((args[:max(n, 0)], {}))
        if n < 0 or structure != in_tree:
            raise ArgumentError(f"{function_name(fun)}: expected arguments like {in_tree} and then "
                                f"{len(out)} consts, got {tree.structure((args, {}))}",
                                hint="pass the consts that closure_convert returned")
        captures = list(closed.operands())
        for i, x in zip(out, args[n:]):
            captures[i] = asarray(x)._node
        inputs = [asarray(x)._node for x in tree.leaves(args[:n])]
        nodes = inline_function(closed.function, [*inputs, *captures])
        closed.advance_token(nodes)
        return unflatten_arrays(closed.out_tree, nodes, closed.outs)

    return converted, [Array(closed.captures[i]) for i in out]


@validate_call
def typeof(x: Any) -> AbstractValue:
    """Return the shape and dtype of an array, or of what can become one.

    >>> import fnx
    >>> fnx.typeof(2.0)
    ShapedArray(float32[], weak_type=True)

    Args:
        x: an array, also a traced one, or anything that can be converted to one.

    Returns:
        A ShapedArray, which is a ShapeDtypeStruct; an AbstractRef of a reference.
    """
    if isinstance(x, State):
        aval: AbstractValue = x.aval
        return aval
    return ShapedArray.of(x._aval if type(x) is Array else public_api(_aval, "typeof")(x))


def trace_closed(fun: Callable[..., Any], args: tuple[Any, ...], by: str
                 ) -> tuple[ClosedFunction, list[Aval], tree.TreeDef]:
    """Trace a function to a closed graph; return it, the avals of its arguments, and their tree."""
    leaves, in_tree = tree.flatten(args)
    closed = _trace_closed(fun, args, {}, by)
    return closed, [_aval(x) for x in leaves], in_tree


def _trace_closed(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], by: str
                  ) -> ClosedFunction:
    return trace_function(fun, args, kwargs, by)[0].close()


def trace_function(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], by: str,
                   name: str = "") -> tuple[TracedFunction, list[Aval]]:
    """Trace a function of pytrees of arrays, or of what has shape and dtype; also return the avals
    of the leaves."""
    leaves, in_tree = tree.flatten((args, kwargs))
    avals = []
    for i, x in enumerate(leaves):
        try:
            avals.append(_aval(x))
        except FnxError as e:
            first, *rest = tree.paths(in_tree)[i]
            where = f"{'kwargs' if first.idx else 'args'}{tree.keystr(tuple(rest))}"
            raise ArgumentError(f"{by} of {name or function_name(fun)}: expected an array at "
                                f"{where}, "
                                f"got {type(x).__name__}: {e.message}",
                                hint=non_array_hint(x, where, "close over values that are not "
                                                    "arrays", e)) from None
    return trace(fun, avals, in_tree, transform=by, name=name or function_name(fun)), avals


def _aval(x: Any) -> Aval:
    if isinstance(x, ShapeDtypeStruct):
        return x._aval
    if isinstance(x, Array | np.ndarray | np.generic) or not hasattr(x, "dtype"):
        return asarray(x)._aval
    return ShapeDtypeStruct(x.shape, x.dtype)._aval


def _zeros_of_struct(x: Any) -> Any:
    """Return zeros of the shape and dtype of a ShapeDtypeStruct, and any other value as it is."""
    if not isinstance(x, ShapeDtypeStruct):
        return x
    return Array(build.const(0, x._aval.dtype, x._aval.shape), x._aval.weak)


def _shape_struct(aval: Aval) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(aval.shape, aval.dtype.np, weak_type=aval.weak)
