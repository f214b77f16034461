"""``custom_gradient``: a function that returns its pullback together with its value."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.pytree_registry import register_pytree_node
from fnx.core.support.errors import ArgumentError
from fnx.core.tracing.trace import ClosedFunction, function_name, trace
from fnx.transforms.custom.check_results import RuleInfo, check_pair
from fnx.transforms.custom.vjp import custom_vjp


def custom_gradient(fun: Callable[..., tuple[Any, Callable[..., Any]]]) -> custom_vjp[..., Any]:
    """Make a function with a custom vjp, which ``fun`` returns together with the value.

    Args:
        fun: takes arrays; returns (result, pull), where ``vjp(ct)`` takes a cotangent like the
            result and returns one for each argument (not in a tuple, if there is one argument).

    Returns:
        A function that returns only the result.

    Raises:
        RuleError: ``fun`` or ``vjp`` returns something else.

    >>> import fnx
    >>> @fnx.custom_gradient
    ... def f(x):
    ...     return x ** 2, lambda g: (g * x,)
    >>> fnx.grad(f)(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    if not callable(fun):
        raise ArgumentError(f"custom_gradient: expected a function, got {type(fun).__name__}")
    info = RuleInfo(fun, "gradient", function_name(fun))

    @functools.wraps(fun)
    def value(*args: Any) -> Any:
        return check_pair(fun(*args), info, "(result, pull)")[0]

    def fwd(*args: Any) -> Any:
        out, pull = check_pair(fun(*args), info, "(result, pull)")
        if not callable(pull):
            raise info.error("a function as the second of the pair", type(pull).__name__,
                             "end it with `return result, pull`")
        leaves, structure = tree.flatten(out)
        avals = [asarray(x)._aval for x in leaves]
        closed = trace(pull, avals, tree.structure(((out,), {})), transform="the gradient of",
                       name=function_name(fun)).close()
        return structure.unflatten(leaves), _PullbackFn([Array(n) for n in closed.captures], closed)

    def bwd(saved: _PullbackFn, ct: Any) -> Any:
        closed = saved.closed.replace(captures=[x._node for x in saved.arrays])
        out = closed.call([asarray(x) for x in tree.leaves(ct)])
        return out if isinstance(out, tuple) else (out,)

    result: custom_vjp[..., Any] = custom_vjp(value)
    result.defvjp(fwd, bwd)
    return result


class _PullbackFn:
    """The captures of a pullback, and the pullback."""

    def __init__(self, arrays: Sequence[Array], closed: ClosedFunction) -> None:
        self.arrays, self.closed = list(arrays), closed


register_pytree_node(_PullbackFn, lambda s: (s.arrays, s.closed), lambda closed, arrays:
                     _PullbackFn(arrays, closed))
