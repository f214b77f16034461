"""Functions of ``fnx.numpy`` on polynomials, whose coefficients begin with the highest power."""

from __future__ import annotations

import numpy as np

from fnx.core import build
from fnx.core.array import arguments, axes
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.documented import Family
from fnx.core.array.promotion import promoted
from fnx.core.array.public import asarray
from fnx.core.errors import ArgumentError, ShapeError
from fnx.numpy.arranging import atleast_1d, trim_zeros
from fnx.numpy.basic import (
    broadcast_to,
    concatenate,
    cumprod,
    flip,
    ones_like,
    ravel,
    stack,
    zeros_like,
)
from fnx.numpy.calculus import convolve

__all__ = [
    "poly", "polyadd", "polyder", "polydiv", "polyint", "polymul", "polysub", "polyval", "vander",
]

_family = Family(
    p="coefficients, the highest power first.", a1="coefficients, the highest power first.",
    a2="coefficients, the highest power first.", u="coefficients, the highest power first.",
    v="coefficients, the highest power first.", x="where.", m="how many times.",
    trim_leading_zeros="cut them off, which needs values that are known.",
    unroll="accepted as JAX's: all steps are written out.",
    returns="An Array of coefficients.",
    raises=("ShapeError: coefficients of more than one axis.", "ArgumentError: a negative m."))


def _vector(a: ArrayLike) -> Array:
    x = asarray(a)
    x = x.reshape(1) if not x.ndim else x
    if x.ndim != 1:
        raise ShapeError(f"expected coefficients of one axis, got shape {x.shape}")
    return x


_MOST_TIMES = 1000


def _times(m: int) -> int:
    n = arguments.integer("m", m)
    if n < 0:
        raise ArgumentError(f"expected m >= 0, got {n}")
    if n > _MOST_TIMES:
        raise ArgumentError(f"expected m <= {_MOST_TIMES}, got {n}")
    return n


def _front(x: Array, n: int) -> Array:
    """x with zeros in front, of length n."""
    more = n - x.shape[0]
    pads = [(more, 0)] + [(0, 0)] * (x.ndim - 1)
    return Array(build.pad(x._node, pads)) if more > 0 else x


def _both(name: str, a: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
    """Coefficients along the first axis, of as many powers; more axes broadcast."""
    nodes, _ = promoted("any", name, (atleast_1d(a), atleast_1d(b)), broadcast=False)
    x, y = map(Array, nodes)
    n = max(x.shape[0], y.shape[0])
    return _front(x, n), _front(y, n)


@_family("An Array of the shape of x.", p="coefficients, the highest power first; more axes "
         "broadcast with x.")
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """The value of a polynomial, by Horner's scheme.

    >>> print(jnp.polyval(jnp.asarray([1, 0, 2]), 3))
    11
    """
    arguments.integer("unroll", unroll)
    nodes, _ = promoted("any", "polyval", [atleast_1d(p), asarray(x)], broadcast=False)
    coefficients, at = map(Array, nodes)
    shape = axes.broadcast_shapes(coefficients.shape[1:], at.shape)
    out = Array(build.const(0, at._dtype, shape))
    for i in range(coefficients.shape[0]):
        out = out * at + coefficients[i]
    return out


@_family()
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The sum of two polynomials.

    >>> jnp.polyadd(jnp.asarray([1, 2]), jnp.asarray([3]))
    Array([1, 5], dtype=int32)
    """
    x, y = _both("polyadd", a1, a2)
    return x + y


@_family()
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The difference of two polynomials.

    >>> jnp.polysub(jnp.asarray([1, 2]), jnp.asarray([3]))
    Array([ 1, -1], dtype=int32)
    """
    x, y = _both("polysub", a1, a2)
    return x - y


def _trimmed(x: Array, trim: bool) -> Array:
    arguments.flag("trim_leading_zeros", trim)
    if not trim:
        return x
    cut = trim_zeros(x, "f")
    return cut if cut.size else x[-1:] * 0


def _or_zero(x: Array) -> Array:
    """The coefficients; of none of them the polynomial is 0."""
    return x if x.size else zeros_like(x, shape=(1,))


@_family()
def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials.

    >>> jnp.polymul(jnp.asarray([1, 1]), jnp.asarray([1, -1]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    nodes, _ = promoted("inexact", "polymul", (_vector(a1), _vector(a2)), broadcast=False)
    x, y = (_trimmed(Array(node), trim_leading_zeros) for node in nodes)
    return convolve(_or_zero(x), _or_zero(y))


@_family("(quotient, remainder), Arrays of coefficients.")
def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False
            ) -> tuple[Array, Array]:
    """The quotient of two polynomials and what is left.

    >>> jnp.polydiv(jnp.asarray([1.0, 0.0, -1.0]), jnp.asarray([1.0, 1.0]))
    (Array([ 1., -1.], dtype=float32), Array([0., 0., 0.], dtype=float32))
    """
    nodes, _ = promoted("inexact", "polydiv", (_vector(u), _vector(v)), broadcast=False)
    left, divisor = map(Array, nodes)
    steps = max(left.size - divisor.size + 1, 1)
    if left.size < divisor.size:
        return _or_zero(left)[:1] * 0, _trimmed(left, trim_leading_zeros)
    out = []
    for i in range(steps):
        factor = left[i] / divisor[0]
        out.append(factor)
        left = left.at[i:i + divisor.size].add(-factor * divisor).at[i].set(0)
    return stack(out), _trimmed(left, trim_leading_zeros)


@_family()
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """The derivative of a polynomial.

    >>> print(jnp.polyder(jnp.asarray([1.0, 2.0, 3.0])))
    [2. 2.]
    """
    nodes, _ = promoted("inexact", "polyder", (_vector(p),), broadcast=False)
    x = Array(nodes[0])
    for _ in range(_times(m)):
        x = x[:-1] * np.arange(x.size - 1, 0, -1).astype(x.dtype)
    return x


@_family(k="the constants, the last one first; by default 0.")
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    """The integral of a polynomial.

    >>> print(jnp.polyint(jnp.asarray([2.0, 2.0]), k=5))
    [1. 2. 5.]
    """
    times = _times(m)
    nodes, _ = promoted("inexact", "polyint", (_vector(p), 0 if k is None else k),
                        broadcast=False)
    x, constants = Array(nodes[0]), ravel(Array(nodes[1]))
    if constants.size not in (1, times):
        raise ShapeError(f"expected 1 or {times} constants, got {constants.size}")
    for i in range(times):
        constant = constants[i if constants.size > 1 else 0].reshape(1)
        x = concatenate([x / np.arange(x.size, 0, -1).astype(x.dtype), constant])
    return x


@_family(seq_of_zeros="the zeros: a vector.",
         raises=("ShapeError: a matrix: its eigenvalues are not built.",))
def poly(seq_of_zeros: ArrayLike) -> Array:
    """The polynomial that has these zeros, and 1 in front.

    >>> jnp.poly(jnp.asarray([1.0, -1.0]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    nodes, _ = promoted("inexact", "poly", (_vector(seq_of_zeros),))
    zeros = Array(nodes[0])
    if not zeros.size:
        return ones_like(zeros, shape=())
    out = ones_like(zeros, shape=(1,))
    for i in range(zeros.size):
        out = convolve(out, stack([ones_like(zeros[i]), -zeros[i]]))
    return out


@_family("A matrix, a row for each x.", x="a vector.", N="how many columns; by default as many.",
         increasing="begin with the power 0.", raises=("ShapeError: no vector.",))
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """Powers of a vector, as columns.

    >>> jnp.vander(jnp.asarray([1, 2, 3]), 2)
    Array([[1, 1],
           [2, 1],
           [3, 1]], dtype=int32)
    """
    arguments.flag("increasing", increasing)
    base = asarray(x)
    if base.ndim != 1:
        raise ShapeError(f"expected a vector, got shape {base.shape}")
    n = base.size if N is None else axes.shape(N)[0]
    if not n:
        return Array(build.const(0, base._dtype, (base.size, 0)))
    column = base[:, None]
    factors = broadcast_to(column, (base.size, n - 1))
    powers = cumprod(concatenate([ones_like(column), factors], 1), 1).astype(base.dtype)
    return powers if increasing else flip(powers, 1)
