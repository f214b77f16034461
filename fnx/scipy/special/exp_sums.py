"""Sums of exponentials and softmax under the names of ``scipy.special``, over ``fnx.nn``."""

from __future__ import annotations

import math
from typing import Any

import fnx.nn as nn
import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import as_float
from fnx.lax.special_functions import IMPORTS

__all__ = ["log_softmax", "logsumexp", "softmax"]

_reduce_docstr = DocTemplate(
    x="an Array or array-like.", a="an Array or array-like.",
    axis="the axes to reduce; None: all.", b="factors of the exponentials.",
    return_sign="also return the sign.", where="a mask of elements to include.",
    returns="An Array of a float dtype.", imports=IMPORTS,
    raises=("AxisError: the axis is out of range.",))


@_reduce_docstr()
def logsumexp(a: ArrayLike, axis: AxisLike = None, b: ArrayLike | None = None,
              keepdims: bool = False, return_sign: bool = False,
              where: ArrayLike | None = None) -> Any:
    """Return the logarithm of the sum of exponentials, without overflow.

    >>> print(special.logsumexp(jnp.zeros(2)))
    0.6931472
    """
    if not return_sign:
        return nn.logsumexp(a, axis, b, keepdims, where)
    x = as_float(a)
    masked = x if where is None else jnp.where(where, x, -math.inf)
    max_value = jnp.max(masked, axis, keepdims=True)
    max_value = jnp.where(jnp.isfinite(max_value), max_value, 0)
    total = jnp.sum(jnp.exp(masked - max_value) * (1 if b is None else b), axis, keepdims=True)
    size = jnp.log(jnp.abs(total)) + max_value
    results = size, jnp.sign(total)
    return results if keepdims else tuple([y.squeeze(axis) for y in results])


@_reduce_docstr("An Array of the shape of x, of a float dtype.")
def softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """Return the exponentials divided by their sum.

    >>> print(special.softmax(jnp.zeros(2)))
    [0.5 0.5]
    """
    return nn.softmax(x, axis)


@_reduce_docstr("An Array of the shape of x, of a float dtype.")
def log_softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """Return the logarithm of softmax.

    >>> print(special.log_softmax(jnp.zeros(2)))
    [-0.6931472 -0.6931472]
    """
    return nn.log_softmax(x, axis)
