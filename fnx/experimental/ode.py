"""Ordinary differential equations, as in ``jax.experimental.ode``.

>>> import fnx.numpy as jnp
>>> print(odeint(lambda y, t: -y, jnp.asarray(1.0), jnp.asarray([0.0, 1.0])).round(4))
[1.     0.3679]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.promotion import as_float
from fnx.core.support.errors import (
    ArgumentError,
    DTypeError,
    ShapeError,
    TracedValueError,
    lazy_module,
)
from fnx.flatten_util import ravel_pytree
from fnx.lax.control_flow import scan, while_loop
from fnx.transforms.abstract_eval import closure_convert
from fnx.transforms.custom.vjp import custom_vjp
from fnx.transforms.vjp import vjp
from fnx.transforms.vmap import vmap

__all__ = ["odeint"]

Slope: TypeAlias = Callable[[Array, Array], Array]

# The method of Dormand and Prince: times and weights of the stages, the last of which is the new
# point; weights of the error estimate and of the middle of the step.
STAGE_TIMES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
STAGE_WEIGHTS = (
    (1 / 5,), (3 / 40, 9 / 40), (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84))
ERROR_WEIGHTS = (
    35 / 384 - 1951 / 21600, 0.0, 500 / 1113 - 22642 / 50085, 125 / 192 - 451 / 720,
    -2187 / 6784 + 12231 / 42400, 11 / 84 - 649 / 6300, -1 / 60)
MIDDLE_WEIGHTS = (
    6025192743 / 30085553152 / 2, 0.0, 51252292925 / 65400821598 / 2,
    -2691868925 / 45128329728 / 2, 187940372067 / 1594534317056 / 2,
    -1776094331 / 19743644256 / 2, 11237099 / 235043384 / 2)
ORDER = 5
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0  # the next step is the optimal one times SAFETY, in bounds


@public_api
def odeint(func: Callable[..., Any], y0: Any, t: ArrayLike, *args: Any, rtol: float = 1.4e-8,
           atol: float = 1.4e-8, mxstep: float = jnp.inf, hmax: float = jnp.inf) -> Any:
    """Integrate dy/dt = func(y, t, *args) with steps of adaptive size.

    Reverse mode integrates the adjoint equation backwards, so that its memory does not depend on
    the number of steps.

    Source: Dormand and Prince, A family of embedded Runge-Kutta formulae, J. Comp. Appl. Math. 6
    (1980); Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, II.4; Chen et
    al., Neural Ordinary Differential Equations (2018), appendix C.

    Args:
        func: returns the time derivative, a pytree like ``y0``.
        y0: the values at ``t[0]``: a pytree of arrays.
        t: increasing times, of a float dtype.
        args: pytrees of arrays, derivatives with respect to which are defined.
        rtol, atol: the relative and absolute tolerance of the error of a step.
        mxstep: how many steps are done between two times at most.
        hmax: the largest step.

    Returns:
        The values at the times: a pytree like ``y0``, with an axis of times in front. NaN at the
        times that were not reached: at the limit of steps, if a step is too short to change the
        time, or where ``func`` returned NaN.

    Raises:
        DTypeError: the times are not floats.
        ShapeError: the times are no vector, or ``func`` returns other shapes than ``y0``.
        ArgumentError: the times do not increase (checked if they are not traced), or a tolerance
            is no number.

    >>> import fnx.numpy as jnp
    >>> def pendulum(state, t, length):
    ...     angle, speed = state
    ...     return speed, -9.81 / length * jnp.sin(angle)
    >>> angle, _ = odeint(pendulum, (0.1, 0.0), jnp.linspace(0.0, 1.0, 3), 2.0)
    >>> print(angle.round(3))
    [ 0.1    0.045 -0.06 ]
    """
    if not callable(func):
        raise ArgumentError(f"expected func as a function, got {type(func).__name__}")
    times = asarray(t)
    if not times._dtype.is_float:
        raise DTypeError(f"expected t as floats, got {times.dtype}", hint="use t.astype(float)")
    if times.ndim != 1 or not times.size:
        raise ShapeError(f"expected t as a vector of times, got shape {times.shape}")
    if not _may_increase(times):
        raise ArgumentError("expected increasing times t", hint="integrate backwards by "
                            "odeint(lambda y, s: -func(y, -s), y0, -t)")
    for name, value in (("rtol", rtol), ("atol", atol), ("mxstep", mxstep), ("hmax", hmax)):
        if isinstance(value, str) or not hasattr(value, "__float__"):
            raise ArgumentError(f"expected {name} as a number, got {value!r}")
    start = tree.map(as_float, y0)
    arguments = tree.map(asarray, args)
    convert, captures = closure_convert(func, start, times[0], *arguments)
    flat, unravel = ravel_pytree(start)
    leaves, structure = tree.flatten((*arguments, *captures))
    is_inexact = [x._dtype.is_inexact for x in leaves]
    constants = [x for x, varies in zip(leaves, is_inexact) if not varies]

    def slope(y: Array, t: Array, varying: Sequence[Array]) -> Array:
        others, floats = iter(constants), iter(varying)
        full = structure.unflatten([next(floats if varies else others) for varies in is_inexact])
        rate, _ = ravel_pytree(convert(unravel(y), t, *full))
        if rate.shape != y.shape:
            raise ShapeError(f"expected func to return {y.size} elements like y0, got {rate.size}")
        return rate.astype(y.dtype)

    options = _Options(rtol, atol, mxstep, hmax)
    ys = _solve(slope, options, flat, times,
                [x for x, varies in zip(leaves, is_inexact) if varies])
    return vmap(unravel)(ys)


class _Options(NamedTuple):
    """The tolerances and limits."""

    rtol: Any
    atol: Any
    max_steps: Any
    max_length: Any


def _may_increase(times: Array) -> bool:
    """Whether times increase; True if they are traced."""
    try:
        values = np.asarray(times)
    except TracedValueError:
        return True
    return bool((values[1:] >= values[:-1]).all())


def _integrate(slope: Callable[..., Array], options: _Options, y0: Array, times: Array,
               varying: list[Array]) -> Array:
    def rate(y: Array, t: Array) -> Array:
        return slope(y, t, varying)

    def to_time(state: _State, target: Array) -> tuple[_State, Array]:
        def is_open(state: _State) -> Array:
            may_step: Array = state.steps < options.max_steps
            return (state.t < target) & may_step & (state.t + state.length > state.t)

        end = while_loop(is_open, lambda state: _step(rate, options, state),
                         state._replace(steps=jnp.zeros((), "int32")))
        span = end.t - end.old_t
        fraction = (target - end.old_t) / jnp.where(span > 0, span, 1)
        y = jnp.where(span > 0, _evaluate(end.polynomial, fraction.astype(y0.dtype)), end.y)
        reached = (end.old_t <= target) & (target <= end.t)
        return end, jnp.where(reached, y, jnp.nan)

    first = rate(y0, times[0])
    length = jnp.minimum(_first_length(rate, options, y0, times[0], first), options.max_length)
    zero = jnp.zeros_like(y0)
    state = _State(jnp.zeros((), "int32"), y0, first, times[0], length.astype(times.dtype),
                   times[0], (zero, zero, zero, zero, y0))
    _, ys = scan(to_time, state, times[1:])
    return jnp.concatenate([y0[None], ys])


_solve: custom_vjp[Any, Array] = custom_vjp(_integrate, nondiff_argnums=(0, 1))


def _forward(slope: Callable[..., Array], options: _Options, y0: Array, times: Array,
             varying: list[Array]) -> tuple[Array, Any]:
    ys = _integrate(slope, options, y0, times, varying)
    return ys, (ys, times, varying)


def _backward(slope: Callable[..., Array], options: _Options, residuals: Any, ct: Array) -> Any:
    """Integrate y backwards together with the cotangents of y, t and the arguments."""
    ys, times, varying = residuals

    def adjoint(state: Any, negative_t: Array, varying: list[Array]) -> Any:
        y, y_ct, _, _ = state
        rate, pull = vjp(slope, y, -negative_t, varying)
        return (-rate, *pull(y_ct))

    def interval(carry: Any, at: Any) -> tuple[Any, Array]:
        y_ct, t_ct, varying_ct = carry
        y, t, earlier, ct, earlier_ct = at
        moved = jnp.vdot(slope(y, t, varying), ct).real.astype(t.dtype)
        state = y, y_ct, t_ct - moved, varying_ct
        flat, unravel = ravel_pytree(state)
        ends = _integrate(lambda s, t, varying: ravel_pytree(
            adjoint(unravel(s), t, varying))[0].astype(s.dtype),
            options, flat, jnp.stack([-t, -earlier]), varying)
        _, y_ct, t_ct, varying_ct = unravel(ends[1])
        return (y_ct + earlier_ct, t_ct, varying_ct), moved

    init = ct[-1], jnp.zeros((), times.dtype), [jnp.zeros_like(x) for x in varying]
    (y_ct, t_ct, varying_ct), moved = scan(
        interval, init, (ys[1:], times[1:], times[:-1], ct[1:], ct[:-1]), reverse=True)
    return y_ct, jnp.concatenate([t_ct[None], moved]), varying_ct


_solve.defvjp(_forward, _backward)


class _State(NamedTuple):
    """Steps since the last time, the point, the next step, and the polynomial of the last one."""

    steps: Array
    y: Array
    rate: Array
    t: Array
    length: Array
    old_t: Array
    polynomial: tuple[Array, ...]  # from the highest power of (t - old_t) / step down


def _combine(weights: Sequence[float], rates: Sequence[Array]) -> Array:
    total = jnp.zeros_like(rates[0])
    for weight, rate in zip(weights, rates):
        total = total + weight * rate if weight else total
    return total


def _step(rate: Slope, options: _Options, state: _State) -> _State:
    """Try a step: accept it if its error is tolerable, and choose the next length."""
    y, t, length = state.y, state.t, state.length
    h = length.astype(y.dtype)
    rates = [state.rate]
    for time, weights in zip(STAGE_TIMES, STAGE_WEIGHTS):
        stage = y + h * _combine(weights, rates)
        rates.append(rate(stage, t + length * time))
    error = h * _combine(ERROR_WEIGHTS, rates)
    tolerance = options.atol + options.rtol * jnp.maximum(jnp.abs(y), jnp.abs(stage))
    ratio = jnp.sqrt(jnp.mean(jnp.abs(error / tolerance) ** 2)).astype(t.dtype)
    accepted = ratio <= 1
    shrink = jnp.where(ratio < 1, 1.0, SHRINK)
    factor = jnp.clip(SAFETY * jnp.where(ratio > 0, ratio, 1) ** (-1 / ORDER), shrink, GROW)
    next_length = jnp.minimum(length * jnp.where(ratio == 0, GROW, factor), options.max_length)
    middle = y + h * _combine(MIDDLE_WEIGHTS, rates)
    proposal = (stage, rates[-1], t + length, t, _fit(y, stage, middle, h * rates[0],
                                                      h * rates[-1]))
    y, last_rate, t, old_t, polynomial = tree.map(
        lambda new, old: jnp.where(accepted, new, old), proposal,
        (y, state.rate, t, state.old_t, state.polynomial))
    return _State(state.steps + 1, y, last_rate, t, next_length.astype(length.dtype), old_t,
                  polynomial)


def _fit(y0: Array, y1: Array, middle: Array, d0: Array, d1: Array) -> tuple[Array, ...]:
    """Return the quartic with the values at 0, 1/2 and 1 and the slopes at 0 and 1."""
    return (2 * (d1 - d0) - 8 * (y0 + y1) + 16 * middle,
            5 * d0 - 3 * d1 + 18 * y0 + 14 * y1 - 32 * middle,
            d1 - 4 * d0 - 11 * y0 - 5 * y1 + 16 * middle, d0, y0)


def _evaluate(polynomial: Sequence[Array], x: Array) -> Array:
    value = polynomial[0]
    for coefficient in polynomial[1:]:
        value = value * x + coefficient
    return value


def _first_length(rate: Slope, options: _Options, y: Array, t: Array, first: Array) -> Array:
    """Return the length of the first step from estimates of the first two derivatives."""
    tolerance = options.atol + jnp.abs(y) * options.rtol
    size, speed = [jnp.linalg.norm(x / tolerance) for x in (y, first)]
    tiny = (size < 1e-5) | (speed < 1e-5)
    guess = jnp.where(tiny, 1e-6, 0.01 * size / jnp.where(tiny, 1, speed))
    later = rate(y + guess * first, t + guess.astype(t.dtype))
    bend = jnp.linalg.norm((later - first) / tolerance) / guess
    flat = (speed <= 1e-15) & (bend <= 1e-15)
    largest = jnp.maximum(speed, bend)
    length = jnp.where(flat, jnp.maximum(1e-6, guess * 1e-3),
                       (0.01 / jnp.where(flat, 1, largest)) ** (1 / ORDER))
    return jnp.minimum(100 * guess, length)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
