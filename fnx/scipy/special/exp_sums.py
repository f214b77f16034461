"""Sums of exponentials and softmax under the names of ``scipy.special``, over ``fnx.nn``."""

from __future__ import annotations

from typing import Any

import fnx.nn as nn
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.lax.special_functions import IMPORTS

__all__ = ["log_softmax", "logsumexp", "softmax"]

_reduce_docstr = DocTemplate(
    x="an Array or array-like.", a="an Array or array-like.",
    axis="the axes to reduce; None: all.", b="factors of the exponentials.",
    return_sign="also return the sign.", where="a mask of elements to include.",
    returns="An Array of a float dtype.", imports=f"fnx.numpy as jnp, {IMPORTS}",
    raises=("AxisError: the axis is out of range.",))


@_reduce_docstr()
def logsumexp(a: ArrayLike, axis: AxisLike = None, b: ArrayLike | None = None,
              keepdims: bool = False, return_sign: bool = False,
              where: ArrayLike | None = None) -> Any:
    """Return the logarithm of the sum of exponentials, without overflow.

    >>> print(special.logsumexp(jnp.zeros(2)))
    0.6931472
    """
    return nn.logsumexp(a, axis, b, keepdims, return_sign, where)


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
