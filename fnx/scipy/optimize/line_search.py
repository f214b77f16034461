"""A step length that satisfies the strong Wolfe conditions.

Source: Nocedal and Wright, Numerical Optimization, 2nd edition, algorithms 3.5 and 3.6.

The search has two phases: steps are doubled until an interval is known to contain such a length,
and this interval is narrowed by cubic and quadratic interpolation or bisection. Both are one loop
here, so that the function is traced, differentiated and compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.lax.control_flow import while_loop
from fnx.transforms.grad import value_and_grad

__all__ = ["LineSearchResult", "search_line"]

SUFFICIENT_DECREASE = 1e-4  # c1 of the first Wolfe condition
CURVATURE = 0.9  # c2 of the second
MAX_ZOOMS = 30  # steps of the second phase
CUBIC_MARGIN, QUADRATIC_MARGIN = 0.2, 0.1  # of the interval: its ends are not tried again


class LineSearchResult(NamedTuple):
    """The result of a line search.

    Args:
        failed: whether no length was found.
        status: 0, 1 if the interval became too short, or 3 at the step limit.
        length: the step length.
        value, gradient: of the function at the new point.
        evaluations: how often the function was called.
    """

    failed: Array
    status: Array
    length: Array
    value: Array
    gradient: Array
    evaluations: Array


class _Point(NamedTuple):
    """A step length with the value and the slope of the function there."""

    at: Array
    value: Array
    slope: Array


class _State(NamedTuple):
    is_zooming: Array
    is_done: Array
    has_failed: Array
    bracket_steps: Array
    zoom_steps: Array
    low: _Point  # in the first phase the previous point; then the best one
    high: _Point  # the other end of the interval
    old: _Point  # the end that was replaced last, for the cubic
    best: _Point
    gradient: Array


def search_line(f: Callable[[Array], Array], x: Array, direction: Array, value: Array,
                gradient: Array, start: Array, max_steps: int) -> LineSearchResult:
    """Search a step length along a direction of descent.

    Args:
        f: the function.
        x: the point; ``value`` and ``gradient`` are those of f there.
        start: the first length to try.
        max_steps: how often a step is doubled at most.
    """
    slope = jnp.dot(gradient, direction)
    origin = _Point(jnp.zeros((), x.dtype), value, slope)
    shortest = 1e-5 if x.dtype.itemsize < 8 else 1e-10

    def evaluate(length: Array) -> tuple[_Point, Array]:
        value, gradient = value_and_grad(f)(x + length * direction)
        return _Point(length, value, jnp.dot(gradient, direction)), gradient

    def is_open(state: _State) -> Array:
        return ~state.is_done & ~state.has_failed & (
            state.is_zooming | (state.bracket_steps < max_steps))

    def step(state: _State) -> _State:
        first = state.bracket_steps == 0
        length = jnp.where(state.is_zooming, _interpolate(state),
                           jnp.where(first, start, 2 * state.low.at))
        point, gradient = evaluate(length)
        decreases = point.value <= origin.value + SUFFICIENT_DECREASE * length * slope
        is_worse = ~decreases | (
            (point.value >= state.low.value) & (state.is_zooming | ~first))
        is_good = (jnp.abs(point.slope) <= -CURVATURE * slope) & ~is_worse
        width = jnp.abs(state.high.at - state.low.at)
        # the interval is from the better end to the worse one
        points_away = jnp.where(state.is_zooming,
                                point.slope * (state.high.at - state.low.at) >= 0,
                                point.slope >= 0)
        high = _select(is_worse, point, _select(points_away, state.low, state.high))
        low = _select(is_worse, state.low, point)
        old = _select(is_worse | points_away,
                      _select(state.is_zooming, state.high, _midpoint(low, high)), state.low)
        zoom_steps = state.zoom_steps + jnp.where(state.is_zooming, 1, 0)
        return _State(
            is_zooming=state.is_zooming | is_worse | (points_away & ~is_good),
            is_done=is_good,
            has_failed=~is_good & state.is_zooming & (
                (width <= shortest) | (zoom_steps >= MAX_ZOOMS)),
            bracket_steps=state.bracket_steps + jnp.where(state.is_zooming, 0, 1),
            zoom_steps=zoom_steps, low=low, high=high, old=old,
            best=_select(is_good, point, state.best),
            gradient=jnp.where(is_good, gradient, state.gradient))

    no, zero = jnp.zeros((), "bool"), jnp.zeros((), "int32")
    end = while_loop(is_open, step, _State(
        no, no, no, zero, zero, origin, origin, origin, origin, gradient))
    failed = ~end.is_done
    length = end.best.at
    if x.dtype.itemsize < 8:  # a length near 0 gets stuck in few digits
        length = jnp.where(jnp.abs(length) < 1e-8, jnp.sign(length) * 1e-8, length)
    status = jnp.where(end.has_failed, 1, jnp.where(failed, 3, 0))
    return LineSearchResult(failed, status, length, end.best.value, end.gradient,
                            end.bracket_steps + end.zoom_steps)


def _select(condition: Array, a: _Point, b: _Point) -> _Point:
    return _Point(*[jnp.where(condition, x, y) for x, y in zip(a, b)])


def _midpoint(a: _Point, b: _Point) -> _Point:
    return _Point(*[(x + y) / 2 for x, y in zip(a, b)])


def _interpolate(state: _State) -> Array:
    """Return the minimum of a cubic or quadratic through known points, or the middle."""
    low, high, old = state.low, state.high, state.old
    width = jnp.abs(high.at - low.at)
    left, right = jnp.minimum(low.at, high.at), jnp.maximum(low.at, high.at)

    def is_inside(at: Array, margin: float) -> Array:
        return (at > left + margin * width) & (at < right - margin * width)

    cubic = _cubic_minimum(low, high, old)
    quadratic = _quadratic_minimum(low, high)
    middle = (low.at + high.at) / 2
    return jnp.where((state.zoom_steps > 0) & is_inside(cubic, CUBIC_MARGIN), cubic,
                     jnp.where(is_inside(quadratic, QUADRATIC_MARGIN), quadratic, middle))


def _divide(a: Any, b: Array) -> Array:
    """Return a / b; infinity, which no interval contains, where b is 0."""
    zero = b == 0
    return jnp.where(zero, jnp.inf, a / jnp.where(zero, 1, b))


def _quadratic_minimum(a: _Point, b: _Point) -> Array:
    """Return the minimum of the parabola with the value and slope of a and the value of b."""
    d = b.at - a.at
    curvature = b.value - a.value - a.slope * d
    return a.at - _divide(a.slope * d * d, 2 * curvature)


def _cubic_minimum(a: _Point, b: _Point, c: _Point) -> Array:
    """Return the minimum of the cubic with the value and slope of a and the values of b and c."""
    db, dc = b.at - a.at, c.at - a.at
    rest_b, rest_c = b.value - a.value - a.slope * db, c.value - a.value - a.slope * dc
    scale = (db * dc) ** 2 * (db - dc)
    third = dc ** 2 * rest_b - db ** 2 * rest_c
    second = db ** 3 * rest_c - dc ** 3 * rest_b
    radicand = second * second - 3 * third * a.slope * scale
    root = jnp.sqrt(jnp.maximum(radicand, 0)) * jnp.where(scale < 0, -1, 1)
    at = a.at + _divide(root - second, 3 * third)
    return jnp.where((radicand >= 0) & (scale != 0), at, jnp.inf)
