"""Bits of arrays: packing into bytes and back, bitcasts to other dtypes, byte swaps.

    uint32 (2, 3)  as uint8   ->  (2, 3, 4), the lowest bits first
    uint8 (2, 4)   as uint32  ->  (2,)
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray, constant_array, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build, dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.numpy.base import moveaxis, ravel, sum
from fnx.numpy.padding import pad

__all__ = ["bitcast_convert_type", "byteswap", "packbits", "unpackbits", "view"]


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


def _bit_weights(bitorder: str) -> Array:
    powers = 1 << np.arange(8)
    return constant_array(powers[::-1] if bitorder == "big" else powers, "uint8")


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


@public_api
def bitcast_convert_type(operand: ArrayLike, new_dtype: convert.DTypeLike) -> Array:
    """Reinterpret the bits as another dtype. Another width adds or removes a last axis.

    Args:
        operand: an Array or array-like of any shape and any dtype except bool.
        new_dtype: a dtype of equal width; or a narrower one, which adds a last axis with the parts
            of each element, lowest bits first; or a wider one, which merges such a last axis.

    Returns:
        An Array.

    Raises:
        DTypeError: the operand or ``new_dtype`` is bool.
        ShapeError: the last axis does not hold the parts of one element.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.bitcast_convert_type(1.0, "uint32"))
    1065353216
    >>> lax.bitcast_convert_type(jnp.asarray([1, 256], "int16"), "uint8")
    Array([[1, 0],
           [0, 1]], dtype=uint8)
    """
    return Array(_bitcast(asarray(operand)._node, convert.parse_dtype(new_dtype)))


def _bitcast(x: UOp, dst: DType) -> UOp:
    old, new = x.dtype.bits, dst.bits
    if x.dtype is dst:
        return x
    if old == new or x.dtype.is_bool or dst.is_bool:
        return build.bitcast(x, dst)
    bits, parts = _uint_dtype(old), _uint_dtype(new)
    words = Expr(build.bitcast(x, bits))
    if old > new:
        count = old // new
        shape = (*x.shape, count)
        k = build.expand(build.reshape(build.cast(build.iota(count), bits),
                                       (1,) * len(x.shape) + (count,)), shape)
        wide = Expr(build.expand(build.reshape(words.node, (*x.shape, 1)), shape))
        return build.bitcast(build.cast((wide >> Expr(k) * new).node, parts), dst)
    count = new // old
    if not x.shape or x.shape[-1] != count:
        raise ShapeError(f"expected a last axis of {count} elements per {dst}, got shape {x.shape} "
                         f"of {x.dtype}")
    total: Expr | None = None
    for i in range(count):
        part = build.shrink(words.node, [*[(0, n) for n in x.shape[:-1]], (i, i + 1)])
        shifted = Expr(build.cast(build.reshape(part, x.shape[:-1]), parts)) << i * old
        total = shifted if total is None else total | shifted
    assert total is not None
    return build.bitcast(total.node, dst)


def _uint_dtype(bits: int) -> DType:
    return next(t for t in dtypes.USER if t.kind == "uint" and t.bits == bits)


@public_api
def view(x: Array, dtype: convert.DTypeLike | None = None, type: Any = None) -> Array:
    """Reinterpret the bits of x as another dtype. Another width changes the last axis.

    Args:
        dtype: the dtype of the result; None returns x. As bool, only 0 and 1 are meaningful.
        type: unsupported; must be None.

    Returns:
        An Array.

    Raises:
        ShapeError: the bits of the last axis do not divide into elements of ``dtype``.

    >>> import fnx.numpy as jnp
    >>> jnp.asarray(1.0).view("uint32")
    Array(1065353216, dtype=uint32)
    >>> jnp.zeros((2, 3), "int16").view("int8").shape
    (2, 6)
    """
    if isinstance(dtype, int) and (type is None or isinstance(type, int)):
        raise ArgumentError(f"view: expected a dtype, got {dtype}",
                            hint="view reinterprets bits; for another shape write x.reshape(...)")
    arguments.check_choice("type", type, (None,))
    if dtype is None:
        return x
    dst, node = convert.parse_dtype(dtype), x._node
    if dst.is_bool and dst is not node.dtype:
        return Array(Expr(view(x, "uint8")._node).ne(0).node)
    if node.dtype.is_bool and dst is not node.dtype:
        node = build.cast(node, _uint_dtype(8))
    old, new = node.dtype.bits, dst.bits
    if old < new:
        *lead, last = node.shape or (0,)
        if not node.shape or last * old % new:
            raise ShapeError(f"expected a last axis whose length is a multiple of {new // old}, "
                             f"got shape {node.shape} of {node.dtype} for {dst}")
        return Array(_bitcast(build.reshape(node, (*lead, last * old // new, new // old)), dst))
    if old > new and not node.shape:
        raise ShapeError(f"expected an array of at least one axis, as {old // new} elements of "
                         f"{dst} are one of {node.dtype}; got a 0-d one")
    out = _bitcast(node, dst)
    return Array(out if old == new else build.reshape(
        out, (*node.shape[:-1], node.shape[-1] * (old // new))))


@public_api
def byteswap(x: Array, inplace: bool = False) -> Array:
    """Reverse the byte order of each element.

    Args:
        inplace: must be False: arrays are immutable.

    Returns:
        An Array of the shape and dtype of x.

    Raises:
        ArgumentError: ``inplace`` is not False.
        DTypeError: x is an array of random keys.

    >>> import fnx.numpy as jnp
    >>> jnp.asarray([1], "int16").byteswap()
    Array([256], dtype=int16)
    """
    arguments.check_choice("inplace", inplace, (False,))
    if x._dtype.kind == "key":
        raise DTypeError("expected numbers, got PRNG keys")
    if x._dtype.bits <= 8:
        return x
    octets = _bitcast(x._node, _uint_dtype(8))
    return Array(_bitcast(build.flip(octets, (x.ndim,)), x._dtype))
