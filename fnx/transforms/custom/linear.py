"""``linear_call``: a linear function with a user-defined transpose.

    y = f(r, x), linear in x    forward mode: f(r, dx)    reverse mode: transpose(r, ct)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.recorded_calls import record_call
from fnx.core.support.errors import PytreeError
from fnx.core.tracing.trace import function_name
from fnx.transforms.custom.vmap import CallWithRules


class _LinearMap:
    """A linear function of one pytree, and its transpose."""

    transpose: _LinearMap
    result: tree.TreeDef | None = None  # the structure that it must return, if there is one

    def __init__(self, f: Callable[[Any, Any], Any], residuals: Any, n_linear: int) -> None:
        def call(x: Any) -> Any:
            out = f(residuals, x)
            if self.result is not None and tree.structure(out) != self.result:
                raise PytreeError(f"linear_call: expected the transpose {call.__name__} to return "
                                  f"cotangents like the operands, {self.result}; got "
                                  f"{tree.structure(out)}",
                                  hint=tree.first_difference(self.result, tree.structure(out)))
            return out
        call.__name__ = getattr(f, "__name__", type(f).__name__)
        self.call: Any = CallWithRules(call, jvp=self._jvp, vjp=(self._forward, self._backward),
                                       linear=n_linear)

    def _jvp(self, primals: Any, tangents: Any) -> Any:
        return self.call(*primals), self.call(*tangents)

    def _forward(self, x: Any) -> Any:
        return self.call(x), ()

    def _backward(self, _: Any, cotangent: Any) -> Any:
        return (self.transpose.call(cotangent),)


def linear_call(fun: Callable[[Any, Any], Any], fun_transpose: Callable[[Any, Any], Any],
                residual_args: Any, linear_args: Any) -> Any:
    """Call a function that is linear in its second argument, with a transpose of the user's.

    Args:
        fun: ``fun(residual_args, linear_args)``, linear in ``linear_args``.
        fun_transpose: ``fun_transpose(residual_args, cotangent)``, like ``linear_args``.
        residual_args: a pytree of arrays, in which it has no derivative.
        linear_args: a pytree of float arrays.

    Returns:
        What ``fun`` returns.

    Raises:
        GradError: a derivative in ``residual_args`` is needed.

    >>> import fnx
    >>> from fnx.custom_derivatives import linear_call
    >>> def f(x, y):
    ...     return linear_call(lambda r, x: x / r, lambda r, ct: ct / r, y, x)
    >>> fnx.grad(f)(6.0, 2.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    n = len(tree.leaves(linear_args))
    residuals = tree.map(asarray, residual_args)
    forward = _LinearMap(fun, residuals, n)
    forward.transpose = _LinearMap(fun_transpose, residuals, 0)
    forward.transpose.transpose, forward.transpose.result = forward, tree.structure(linear_args)
    structure = tree.structure((residuals, linear_args))

    def again(*args: Any) -> Any:
        return linear_call(fun, fun_transpose, *structure.unflatten(args))
    operands = [asarray(x) for x in tree.leaves((residuals, linear_args))]
    return record_call("linear_call", again, function_name(fun), operands,
                       forward.call(linear_args))
