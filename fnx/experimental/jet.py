"""Derivatives of higher order along a curve, under the names of ``jax.experimental.jet``.

    x(t) = x + x1 t + x2 t^2 / 2 + ...      ->  f(x(t)) and its derivatives at t = 0

They are the tangents of nested calls of ``jvp``, whose cost grows by a factor with each order.

>>> import fnx.numpy as jnp
>>> jet(jnp.sin, (0.0,), ((1.0, 0.0, 0.0),))[1]
[Array(1., dtype=float32, weak_type=True), Array(0., dtype=float32, weak_type=True), \
Array(-1., dtype=float32, weak_type=True)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.support.errors import ArgumentError, lazy_module
from fnx.transforms.jvp import jvp

__all__ = ["jet", "zero_series", "zero_term"]


class ZeroTerm:
    """A term of a series that is zero."""


class ZeroSeries:
    """A series whose terms are all zero."""


zero_term, zero_series = ZeroTerm(), ZeroSeries()


@public_api
def jet(fun: Callable[..., Any], primals: Sequence[Any], series: Sequence[Any],
        factorial_scaled: bool = True, **_: Any) -> tuple[Any, Any]:
    """Return the value of a function along a curve, and its derivatives by the parameter.

    Args:
        fun: a function of arrays.
        primals: the point, a tuple of its arguments.
        series: for each argument, its derivatives of order 1, 2, ... along the curve.
        factorial_scaled: whether the terms are derivatives; else they are Taylor coefficients.
        _: accepted for compatibility with JAX.

    Returns:
        (result, terms): for each array of the result, a list of as many terms.

    Raises:
        ArgumentError: the series do not fit the primals, or differ in length.

    >>> jet(lambda x: x * x, (3.0,), ((1.0, 0.0),))[1]
    [Array(6., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True)]
    """
    if len(primals) != len(series):
        raise ArgumentError(f"jet: expected a series for each of {len(primals)} primals, got "
                            f"{len(series)}")
    orders = {len(terms) for terms in series if not isinstance(terms, ZeroSeries)}
    if len(orders) > 1:
        raise ArgumentError(f"jet: expected series of one length, got {sorted(orders)}")
    order = max(orders, default=0)
    leaves, structure = tree.flatten(tuple(primals))
    rows = [_terms(terms, x, order, i) for i, (x, terms) in enumerate(zip(primals, series))]
    coefficients = [[column[i] for column in row] for row in rows for i in range(len(row[0]))] \
        if order else [[] for _ in leaves]
    arrays = [asarray(x) for x in leaves]
    scales = [1 / math.factorial(k + 1) if factorial_scaled else 1.0 for k in range(order)]

    def on_curve(t: Any) -> tuple[Any]:
        points = [x if not x._dtype.is_inexact else _polynomial(x, row, scales, t)
                  for x, row in zip(arrays, coefficients)]
        return (fun(*structure.unflatten(points)),)
    derivatives: Callable[[Any], tuple[Any, ...]] = on_curve
    for _k in range(order):
        derivatives = _with_next_derivative(derivatives)
    value, *terms = derivatives(asarray(0.0))
    results, out = tree.flatten(value)
    columns = [tree.leaves(term) for term in terms]
    inverse = [1.0 if factorial_scaled else 1 / math.factorial(k + 1) for k in range(order)]
    return value, out.unflatten([[column[i] if s == 1 else column[i] * s
                                  for column, s in zip(columns, inverse)]
                                 for i in range(len(results))])


def _terms(terms: Any, primal: Any, order: int, number: int) -> list[list[Any]]:
    """Return the leaves of each term of the series of an argument; None stands for zero."""
    n = len(tree.leaves(primal))

    def leaf(x: Any, k: int) -> Array:
        if tree.structure(x) != tree.LEAF:
            raise ArgumentError(f"jet: expected an array as term {k} of argument {number}, got "
                                f"{type(x).__name__}",
                                hint="write the series of each argument as a list of arrays")
        return asarray(x)
    if isinstance(terms, ZeroSeries):
        return [[None] * n] * order
    return [[None] * n if isinstance(term, ZeroTerm) else
            [leaf(x, k) for x in tree.flatten_up_to(tree.structure(primal), term)]
            for k, term in enumerate(terms)]


def _polynomial(x: Array, terms: Sequence[Any], scales: Sequence[float], t: Any) -> Any:
    """Return the curve of an argument at t."""
    total: Any = 0.0
    for term, scale in zip(reversed(terms), reversed(scales)):
        total = (total if term is None else total + term * scale) * t
    return x + total


def _with_next_derivative(f: Callable[[Any], tuple[Any, ...]]
                          ) -> Callable[[Any], tuple[Any, ...]]:
    """Return f with the derivative of its last result as one more."""
    def g(t: Any) -> tuple[Any, ...]:
        values, tangents = jvp(f, (t,), (asarray(1.0),))
        last = tree.map(lambda x, dx: dx if asarray(x)._dtype.is_inexact else x,
                        values[-1], tangents[-1])
        return (*values, last)
    return g


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
