"""Discrete cosine transforms, as in ``jax.scipy.fft``.

Source: J. Makhoul, A Fast Cosine Transform in One and Two Dimensions (1980): the even elements,
then the odd ones backwards, have a Fourier transform that is the cosine transform, rotated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import NotBuiltError, lazy_module
from fnx.numpy.fft import normalize_lengths, real_dtype, resize
from fnx.numpy.fft_core import constants, pairs, part, root_values
from fnx.numpy.fft_real import inverse_real_transform, real_transform

__all__ = ["dct", "dctn", "idct", "idctn"]

_docstr = DocTemplate(
    x="an Array or array-like; of complex numbers both parts are transformed.",
    type="the type of the transform, 2.",
    n="the length that is transformed: longer arrays are cut, shorter ones padded with zeros; "
      "None: that of the array.",
    s="the lengths along the axes; None: those of the array.",
    axis="the axis.", axes="the axes; None: all, or the last ``len(s)``.",
    norm='"ortho": the transform is orthogonal; None or "backward": the inverse is divided by 2n.',
    imports="fnx.scipy.fft as fft, fnx.numpy as jnp",
    returns="An Array of float32, or float64 for 64-bit numbers.",
    raises=("NotBuiltError: the type is not 2.",
            "ArgumentError: a length is not positive, or ``norm`` is unknown.",
            "AxisError: an axis is out of range or occurs twice."))


def _check(type: int, norm: str | None) -> None:
    if arguments.check_int("type", type) != 2:
        raise NotBuiltError(f"cosine transforms of type {type} are not implemented",
                            hint="use type=2, or idct for type 3")
    arguments.check_choice("norm", norm, (None, "backward", "ortho"))


def _rotation(n: int, count: int, like: UOp) -> tuple[Expr, Expr]:
    """Return cos and sin of pi k / 2n for k < count along the last axis."""
    shape = (*like.shape[:-1], count)
    w = constants(root_values(4 * n, count), like.dtype)
    c, s = [Expr(build.expand(build.reshape(p, (*(1,) * (len(shape) - 1), count)), shape))
            for p in w]
    return c, -s


def _take(x: UOp, start: int, stop: int) -> UOp:
    return build.shrink(x, [*[(0, n) for n in x.shape[:-1]], (start, stop)])


def _forward(x: UOp, norm: str | None) -> UOp:
    """Transform along the last axis."""
    n = x.shape[-1]
    last = len(x.shape) - 1
    padded = x if n % 2 == 0 else build.pad(x, [*[(0, 0)] * last, (0, 1)])
    columns = build.reshape(padded, (*x.shape[:-1], (n + 1) // 2, 2))
    even, odd = part(columns, 0), _take(part(columns, 1), 0, n // 2)
    v = build.concat([even, build.flip(odd, (last,))], last) if n > 1 else x
    z = real_transform(v, last, 2.0 if norm != "ortho" else math.sqrt(2 / n))
    half = n // 2 + 1
    re, im = Expr(part(z, 0)), Expr(part(z, 1))
    c, s = _rotation(n, half, x)
    first = (re * c + im * s).node
    second = (re * s - im * c).node
    out = build.concat([first, build.flip(_take(second, 1, n - half + 1), (last,))], last) \
        if n > half else first
    return _scale_first(out, math.sqrt(0.5)) if norm == "ortho" else out


def _inverse(x: UOp, norm: str | None) -> UOp:
    """Transform back along the last axis."""
    n = x.shape[-1]
    last = len(x.shape) - 1
    u = _scale_first(x, math.sqrt(2) if norm == "ortho" else 1.0)
    half = n // 2 + 1
    zero = build.const(0, x.dtype, (*x.shape[:-1], 1))
    mirror = build.concat([zero, build.flip(_take(u, n - half + 1, n), (last,))], last) \
        if half > 1 else zero
    a, b = Expr(_take(u, 0, half)), Expr(mirror)
    c, s = _rotation(n, half, x)
    z = pairs((c * a + s * b).node, (s * a - c * b).node)
    scale = 1 / (2 * n) if norm != "ortho" else math.sqrt(1 / (2 * n))
    v = inverse_real_transform(z, last, n, scale)
    count = (n + 1) // 2
    even, odd = _take(v, 0, count), build.flip(_take(v, count, n), (last,))
    if n % 2:
        odd = build.pad(odd, [*[(0, 0)] * last, (0, 1)])
    return _take(build.reshape(pairs(even, odd), (*x.shape[:-1], 2 * count)), 0, n)


def _scale_first(x: UOp, factor: float) -> UOp:
    """Multiply the first element along the last axis."""
    if factor == 1.0:
        return x
    index = build.expand(build.reshape(build.iota(x.shape[-1]),
                                       (*(1,) * (len(x.shape) - 1), x.shape[-1])), x.shape)
    first = build.eq(index, build.const_like(index, 0))
    return build.where(first, build.mul(x, build.const_like(x, factor)), x)


def _along(x: UOp, axis: int, n: int, norm: str | None, inverse: bool) -> UOp:
    order = [*[a for a in range(len(x.shape)) if a != axis], axis]
    rows = build.permute(resize(x, axis, n), order)
    out = _inverse(rows, norm) if inverse else _forward(rows, norm)
    return build.permute(out, sorted(range(len(order)), key=order.__getitem__))


def _transform(x: ArrayLike, s: ShapeLike | None, axes: Sequence[int] | None, norm: str | None,
               inverse: bool) -> Array:
    array = asarray(x)
    if array._dtype.is_complex:
        re, im = [_transform(Array(take(array._node)), s, axes, norm, inverse)
                  for take in (build.real, build.imag)]
        return Array(build.complex_number(re._node, im._node))
    dims, lengths = normalize_lengths(array, s, axes)
    node = build.cast(array._node, real_dtype(array._node))
    for axis, n in zip(dims, lengths):
        node = _along(node, axis, n, norm, inverse)
    return Array(node)


@_docstr()
def dct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1,
        norm: str | None = None) -> Array:
    """Return the discrete cosine transform: twice the sums of x[j] cos(pi (2j + 1) k / 2n).

    >>> print(fft.dct(jnp.ones(3)).round(3) + 0)
    [6. 0. 0.]
    """
    _check(type, norm)
    return _transform(x, None if n is None else (n,), (axis,), norm, False)


@_docstr()
def idct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1,
         norm: str | None = None) -> Array:
    """Return the inverse of the discrete cosine transform.

    >>> print(fft.idct(jnp.asarray([6.0, 0.0, 0.0])).round(3))
    [1. 1. 1.]
    """
    _check(type, norm)
    return _transform(x, None if n is None else (n,), (axis,), norm, True)


@_docstr()
def dctn(x: ArrayLike, type: int = 2, s: ShapeLike | None = None,
         axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """Return the discrete cosine transform along several axes.

    >>> print(fft.dctn(jnp.ones((2, 2))).round(3)[0, 0])
    16.0
    """
    _check(type, norm)
    return _transform(x, s, axes, norm, False)


@_docstr()
def idctn(x: ArrayLike, type: int = 2, s: ShapeLike | None = None,
          axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """Return the inverse of the discrete cosine transform along several axes.

    >>> print(fft.idctn(fft.dctn(jnp.ones((2, 2)))).round(3))
    [[1. 1.]
     [1. 1.]]
    """
    _check(type, norm)
    return _transform(x, s, axes, norm, True)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
