"""Quasi-Newton minimization: BFGS and L-BFGS, with exact gradients.

Source: Nocedal and Wright, Numerical Optimization, 2nd edition, algorithms 6.1, 7.4 and 7.5.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.promotion import as_float
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.name_hints import suggestion
from fnx.lax.control_flow import fori_loop, while_loop
from fnx.scipy.optimize.line_search import search_line
from fnx.transforms.grad import value_and_grad

__all__ = ["OptimizeResults", "minimize"]

LBFGS = "l-bfgs-experimental-do-not-rely-on-this"


class OptimizeResults(NamedTuple):
    """The result of ``minimize``.

    Args:
        x: the point.
        success: whether the gradient is below the tolerance.
        status: 0 if so; 1 at the limit of iterations; the line search failed with 3 (interval too
            short) or 5 (too many steps) for BFGS, with 5 for L-BFGS; 2 and 3 at the limits of
            calls and gradients, 4 when the value no longer decreases, for L-BFGS.
        fun: the value.
        jac: the gradient.
        hess_inv: the estimate of the inverse of the Hessian; None for L-BFGS.
        nfev, njev, nit: how many values, gradients and iterations were computed.

    >>> from fnx.scipy.optimize import minimize
    >>> print(minimize(lambda x: (x[0] - 1.0) ** 2, [5.0], method="BFGS").success)
    True
    """

    x: Array
    success: Array
    status: Array
    fun: Array
    jac: Array
    hess_inv: Array | None
    nfev: Array
    njev: Array
    nit: Array


@public_api
def minimize(fun: Callable[..., Any], x0: ArrayLike, args: tuple[Any, ...] = (), *, method: str,
             tol: float | None = None, options: Mapping[str, Any] | None = None
             ) -> OptimizeResults:
    """Minimize a differentiable function of a vector.

    It works under jit and vmap. Derivatives of the minimum: ``lax.custom_root`` on the gradient.

    Args:
        fun: ``fun(x, *args)`` returns a scalar.
        x0: the vector to start from.
        args: further arguments of ``fun``.
        method: "BFGS" or "l-bfgs-experimental-do-not-rely-on-this".
        tol: the tolerance of the gradient, unless ``options`` has ``gtol``.
        options: BFGS: ``maxiter`` (200 per element), ``norm`` (of the gradient; inf), ``gtol``
            (1e-5), ``line_search_maxiter`` (10). L-BFGS: ``maxiter``, ``norm``, ``maxcor`` (pairs
            of steps and changes of gradients that are kept; 10), ``ftol`` (2.2e-9), ``gtol``
            (1e-5), ``maxfun``, ``maxgrad``, ``maxls`` (20).

    Returns:
        The result: ``x``, ``success`` and others.

    Raises:
        ArgumentError: unknown method or option, or ``args`` is not a tuple.
        ShapeError: ``x0`` is not a vector.
        GradError: ``fun`` does not return a real scalar.

    >>> import fnx.numpy as jnp
    >>> def rosenbrock(x):
    ...     return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    >>> print(minimize(rosenbrock, jnp.zeros(3), method="BFGS").x.round(2))
    [1. 1. 1.]
    """
    if not isinstance(args, tuple):
        raise ArgumentError(f"expected args as a tuple, got {type(args).__name__}",
                            hint="write args=(a,) for one argument")
    if not callable(fun):
        raise ArgumentError(f"expected fun as a function, got {type(fun).__name__}")
    solve = _METHODS.get(method.lower() if isinstance(method, str) else "")
    if solve is None:
        raise ArgumentError(f"expected method 'BFGS' or {LBFGS!r}, got {method!r}")
    if not isinstance(options, Mapping | None):
        raise ArgumentError(f"expected options as a dict, got {type(options).__name__}")
    chosen = dict(options or {})
    if tol is not None:
        chosen.setdefault("gtol", arguments.check_number("tol", tol))
    known = [p.name for p in inspect.signature(solve).parameters.values()
             if p.kind is p.KEYWORD_ONLY]
    for name in chosen:
        if name not in known:
            raise ArgumentError(f"expected options {', '.join(known)}; got {name!r}",
                                hint=suggestion(str(name), known))
    x = as_float(x0)
    if x.ndim != 1:
        raise ShapeError(f"expected x0 as a vector, got shape {x.shape}",
                         hint="use fnx.flatten_util.ravel_pytree for other parameters")
    return solve(lambda x: fun(x, *args), x, **chosen)


class _Iterate(NamedTuple):
    """What both methods carry: the point, its value and gradient, counts, and how it ended."""

    x: Array
    value: Array
    gradient: Array
    converged: Array
    failed: Array
    status: Array
    iterations: Array
    evaluations: Array


def _start(f: Callable[[Array], Array], x: Array) -> _Iterate:
    value, gradient = value_and_grad(f)(x)
    no, zero = jnp.zeros((), "bool"), jnp.zeros((), "int32")
    return _Iterate(x, value, gradient, no, no, zero, zero, zero + 1)


def _minimize_bfgs(f: Callable[[Array], Array], x: Array, *, maxiter: int | None = None,
                   norm: Any = np.inf, gtol: float = 1e-5, line_search_maxiter: int = 10
                   ) -> OptimizeResults:
    limit = 200 * x.size if maxiter is None else maxiter
    identity = jnp.eye(x.size, dtype=x.dtype)

    def is_open(state: Any) -> Array:
        now: _Iterate = state[0]
        return ~now.converged & ~now.failed & (now.iterations < limit)

    def step(state: Any) -> Any:
        now, inverse, earlier_value = state
        direction = -inverse @ now.gradient
        slope = jnp.dot(now.gradient, direction)
        guess = 2.02 * (now.value - earlier_value) / jnp.where(slope == 0, -1, slope)
        line = search_line(f, now.x, direction, now.value, now.gradient,
                            jnp.where(guess > 1, 1, guess), line_search_maxiter)
        change = line.length * direction
        bend = line.gradient - now.gradient
        product = jnp.dot(bend, change)
        rho = 1 / jnp.where(product == 0, 1, product)
        w = identity - rho * change[:, None] * bend
        updated = w @ inverse @ w.T + rho * change[:, None] * change
        converged = jnp.linalg.norm(line.gradient, norm) < gtol
        return _Iterate(
            now.x + change, line.value, line.gradient, converged, line.failed,
            jnp.where(line.failed, 2 + line.status, 0).astype("int32"), now.iterations + 1,
            now.evaluations + line.evaluations), jnp.where(
                (product != 0) & jnp.isfinite(rho), updated, inverse), now.value

    begin = _start(f, x)
    begin = begin._replace(converged=jnp.linalg.norm(begin.gradient, norm) < gtol)
    earlier = begin.value + jnp.linalg.norm(begin.gradient) / 2
    end, inverse, _ = while_loop(is_open, step, (begin, identity, earlier))
    status = jnp.where(end.converged, 0, jnp.where(
        end.iterations >= limit, 1, jnp.where(end.failed, end.status, -1)))
    return OptimizeResults(end.x, end.converged & ~end.failed, status, end.value, end.gradient,
                           inverse, end.evaluations, end.evaluations, end.iterations)


def _minimize_lbfgs(f: Callable[[Array], Array], x: Array, *, maxiter: float | None = None,
                    norm: Any = np.inf, maxcor: int = 10, ftol: float = 2.220446049250313e-09,
                    gtol: float = 1e-5, maxfun: float | None = None,
                    maxgrad: float | None = None, maxls: int = 20) -> OptimizeResults:
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = 200 * x.size
    limits = [math.inf if limit is None else limit for limit in (maxiter, maxfun, maxgrad)]

    def is_open(state: Any) -> Array:
        now: _Iterate = state[0]
        return ~now.converged & ~now.failed

    def step(state: Any) -> Any:
        now, changes, bends, scale = state
        direction = -_apply_inverse(changes, bends, scale, now.gradient, now.iterations)
        line = search_line(f, now.x, direction, now.value, now.gradient,
                            jnp.ones_like(now.value), maxls)
        change = line.length * direction
        bend = line.gradient - now.gradient
        product, square = jnp.dot(bend, change), jnp.dot(bend, bend)
        reasons = [line.failed, now.iterations >= limits[0], now.evaluations >= limits[1],
                   now.evaluations >= limits[2], now.value - line.value < ftol]
        status = jnp.zeros((), "int32")
        for reason, code in zip(reasons[::-1], (4, 3, 2, 1, 5)):
            status = jnp.where(reason, code, status)
        converged = jnp.linalg.norm(line.gradient, norm) < gtol
        return (_Iterate(now.x + change, line.value, line.gradient, converged,
                         (status > 0) & ~converged, jnp.where(converged, 0, status),
                         now.iterations + 1, now.evaluations + line.evaluations),
                jnp.roll(changes, -1, 0).at[-1].set(change),
                jnp.roll(bends, -1, 0).at[-1].set(bend),
                jnp.where(square > 0, product / jnp.where(square > 0, square, 1), scale))

    begin = _start(f, x)
    begin = begin._replace(converged=jnp.linalg.norm(begin.gradient, norm) == 0)
    pairs = jnp.zeros((maxcor, x.size), x.dtype)
    end = while_loop(is_open, step, (begin, pairs, pairs, jnp.ones((), x.dtype)))[0]
    return OptimizeResults(end.x, end.converged & ~end.failed, end.status, end.value,
                           end.gradient, None, end.evaluations, end.evaluations, end.iterations)


def _apply_inverse(changes: Array, bends: Array, scale: Array, gradient: Array, count: Array
                   ) -> Array:
    """Multiply by the estimate of the inverse Hessian: the two-loop recursion.

    Rows are the last changes of x and of the gradient, the newest last; the first are empty while
    there are fewer than rows.
    """
    size = changes.shape[0]
    first = jnp.maximum(size - count, 0)
    products = (changes * bends).sum(1)
    weights = jnp.where(products == 0, 0, 1 / jnp.where(products == 0, 1, products))

    def down(j: Array, state: Any) -> Any:
        q, factors = state
        i = size - 1 - j
        factor = weights[i] * jnp.dot(changes[i], q)
        return q - factor * bends[i], factors.at[i].set(factor)

    def up(i: Array, q: Array) -> Array:
        return q + (factors[i] - weights[i] * jnp.dot(bends[i], q)) * changes[i]

    q, factors = fori_loop(0, size - first, down, (gradient, jnp.zeros(size, gradient.dtype)))
    result: Array = fori_loop(first, size, up, scale * q)
    return result


_METHODS: dict[str, Callable[..., OptimizeResults]] = {
    "bfgs": _minimize_bfgs, LBFGS: _minimize_lbfgs}
