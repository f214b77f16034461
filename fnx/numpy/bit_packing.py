"""Packing of bits into bytes, and back."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.support.errors import DTypeError
from fnx.numpy.base import moveaxis, ravel, sum
from fnx.numpy.padding import pad

__all__ = ["packbits", "unpackbits"]

_docstr = DocTemplate(
    axis="the axis; None flattens the array first.",
    bitorder='"big" (the first bit is the most significant) or "little".',
    count="the number of bits, padded with 0; by default all.", returns="A uint8 Array.",
    raises=("AxisError: the axis is out of range.", "ArgumentError: the bit order is unknown."))


def _axis_last(a: ArrayLike, axis: int | None, bitorder: str) -> tuple[Array, int]:
    """Return the array with the packed axis last, and the original position of that axis."""
    arguments.check_choice("bitorder", bitorder, ("big", "little"))
    x = asarray(a)
    if axis is None:
        return ravel(x), 0
    ax = axes.normalize_axis(axis, x.ndim)
    return moveaxis(x, ax, -1), ax


def _bit_weights(bitorder: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    powers = (1 << np.arange(8)).astype(np.uint8)
    return powers[::-1] if bitorder == "big" else powers


@_docstr(a="bools or integers; nonzero values are 1.",
         raises=("DTypeError: the input has a float dtype.",
                 "AxisError: the axis is out of range."))
def packbits(a: ArrayLike, axis: int | None = None, bitorder: Literal["big", "little"] = "big"
             ) -> Array:
    """Pack bits into bytes along an axis. The last byte is padded with zeros.

    >>> jnp.packbits(jnp.asarray([1, 0, 1]))
    Array([160], dtype=uint8)
    """
    x, ax = _axis_last(a, axis, bitorder)
    if x._dtype.is_float:
        raise DTypeError(f"expected bools or integers, got {x._dtype}", hint="write x > 0")
    bits = (x != 0).astype("uint8")
    bits = pad(bits, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % 8)])
    octets = bits.reshape(*x.shape[:-1], -1 if x.size else bits.shape[-1] // 8, 8)
    return moveaxis(sum(octets * _bit_weights(bitorder), -1, "uint8"), -1, ax)


@_docstr(a="a uint8 Array.",
         raises=("DTypeError: the dtype is not uint8.", "AxisError: the axis is out of range."))
def unpackbits(a: ArrayLike, axis: int | None = None, count: int | None = None,
               bitorder: Literal["big", "little"] = "big") -> Array:
    """Unpack bytes into bits along an axis, one element per bit.

    >>> jnp.unpackbits(jnp.asarray([160], "uint8"), count=3)
    Array([1, 0, 1], dtype=uint8)
    """
    x, ax = _axis_last(a, axis, bitorder)
    if x.dtype != np.uint8:
        raise DTypeError(f"expected uint8, got {x._dtype}", hint='convert it: .astype("uint8")')
    bits = ((x[..., None] & _bit_weights(bitorder)) != 0).astype("uint8")
    bits = bits.reshape(*x.shape[:-1], 8 * x.shape[-1])
    if count is not None:
        n = arguments.check_int("count", count)
        n = n if n >= 0 else max(bits.shape[-1] + n, 0)
        bits = pad(bits[..., :n], [(0, 0)] * (x.ndim - 1) + [(0, max(0, n - bits.shape[-1]))])
    return moveaxis(bits, -1, ax)
