"""Solvers with implicit differentiation: derivatives follow from the equation that is solved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx.core.array.api_boundary import public_api
from fnx.core.array.arguments import check_bool
from fnx.core.support.errors import ArgumentError
from fnx.core.support.process import lazy_import

implicit = lazy_import("fnx.transforms.custom.implicit")

__all__ = ["custom_linear_solve", "custom_root"]


@public_api
def custom_root(f: Callable[..., Any], initial_guess: Any, solve: Callable[..., Any],
                tangent_solve: Callable[..., Any], has_aux: bool = False) -> Any:
    """Find a root of a function, differentiable with respect to what the function closes over.

    Args:
        f: a function from a pytree to a pytree like it.
        initial_guess: the start value for ``solve``; it is not differentiated.
        solve: ``solve(f, initial_guess)`` returns x with f(x) = 0, or (x, aux).
        tangent_solve: ``tangent_solve(g, y)`` returns x with g(x) = y, for a linear g; for scalars
            ``lambda g, y: y / g(1.0)``.
        has_aux: whether ``solve`` returns a pair (x, aux); aux is returned unchanged.

    Returns:
        x, or (x, aux).

    Raises:
        ShapeError, PytreeError: ``f`` returns a value unlike its argument.

    >>> import fnx
    >>> import fnx.lax as lax
    >>> def newton(f, x):
    ...     return lax.fori_loop(0, 20, lambda _, x: x - f(x) / fnx.grad(f)(x), x)
    >>> def root(a):
    ...     return lax.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> fnx.grad(root)(4.0)
    Array(0.25, dtype=float32, weak_type=True)
    """
    check_bool("has_aux", has_aux)
    if not callable(tangent_solve):
        raise ArgumentError(f"expected tangent_solve as a function, got {tangent_solve!r}")
    return implicit.root(f, initial_guess, solve, tangent_solve, has_aux)


@public_api
def custom_linear_solve(matvec: Callable[..., Any], b: Any, solve: Callable[..., Any],
                        transpose_solve: Callable[..., Any] | None = None,
                        symmetric: bool = False, has_aux: bool = False) -> Any:
    """Solve matvec(x) = b, differentiable with respect to b and what ``matvec`` closes over.

    Args:
        matvec: a linear function from a pytree like ``b`` to a pytree like it.
        b: a pytree of arrays.
        solve: ``solve(matvec, b)`` returns x, or (x, aux).
        transpose_solve: a solver for the transpose of ``matvec``, needed for reverse mode.
        symmetric: whether ``matvec`` is its own transpose; then ``solve`` is used for both.
        has_aux: whether the solvers return a pair (x, aux); aux is returned unchanged.

    Returns:
        x, or (x, aux).

    Raises:
        ArgumentError: ``transpose_solve`` is not a function.
        ShapeError, PytreeError: ``matvec`` returns a value unlike its argument.

    >>> import fnx
    >>> import fnx.lax as lax
    >>> def half(a):
    ...     return lax.custom_linear_solve(lambda x: a * x, 1.0, lambda f, b: b / f(1.0),
    ...                                    symmetric=True)
    >>> fnx.grad(half)(2.0)
    Array(-0.25, dtype=float32, weak_type=True)
    """
    check_bool("symmetric", symmetric)
    check_bool("has_aux", has_aux)
    if transpose_solve is not None and not callable(transpose_solve):
        raise ArgumentError(f"expected transpose_solve as a function, got {transpose_solve!r}")
    return implicit.linear_solve(matvec, b, solve, transpose_solve, symmetric, has_aux)
