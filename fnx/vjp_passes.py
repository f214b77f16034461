"""``fwd_and_bwd``: both passes of reverse mode as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.transforms.jit import jit
from fnx.transforms.vjp import vjp

__all__ = ["fwd_and_bwd"]


def fwd_and_bwd(fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False,
                jitted: bool = True) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the forward and the backward pass of a function.

    Args:
        fun: a function of pytrees of arrays.
        argnums: the positional argument to differentiate with respect to, or several.
        has_aux: whether ``fun`` returns a pair whose second part is passed through.
        jitted: whether both are under ``jit``.

    Returns:
        ``fwd(*args)``, which returns (result, residuals), or (result, residuals, aux); and
        ``bwd(residuals, cotangent)``, which returns the cotangents of these arguments.

    >>> fwd, bwd = fwd_and_bwd(lambda x, y: x * y, argnums=0)
    >>> y, residuals = fwd(2.0, 3.0)
    >>> bwd(residuals, 1.0)
    Array(3., dtype=float32, weak_type=True)
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def fwd(*args: Any) -> Any:
        wrt = [i % len(args) for i in numbers]

        def of_some(*some: Any) -> Any:
            values = dict(zip(wrt, some))
            return fun(*[values.get(i, x) for i, x in enumerate(args)])
        primals = [args[i] for i in wrt]
        return vjp(of_some, *primals, has_aux=True) if has_aux else vjp(of_some, *primals)

    def bwd(residuals: Any, cotangent: Any) -> Any:
        grads = residuals(cotangent)
        return grads[0] if isinstance(argnums, int) else grads
    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
