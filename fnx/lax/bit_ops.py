"""Bit operations of ``jax.lax``, and small functions that other JAX modules have, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import fnx.numpy as jnp
from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import apply, elementwise, record_elementwise
from fnx.core.array.axes import ShapeLike, normalize_axis_tuple
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.ir import build, dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, isnan, where
from fnx.core.ir.uop import set_composite
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.core.support.process import lazy_import

jvp = lazy_import("fnx.transforms.custom.jvp")
gamma_beta = lazy_import("fnx.lax.gamma_beta")
special = lazy_import("fnx.scipy.special")
transforms_jvp = lazy_import("fnx.transforms.jvp")

__all__ = [
    "broadcast_like", "conj", "empty", "igamma_grad_a", "imag", "index_take", "mulhi", "nextafter",
    "platform_dependent", "polygamma", "random_gamma_grad", "real", "reduce_precision", "stack",
    "tile", "unstack", "zeta",
]

T = TypeVar("T")

_docstr = DocTemplate(
    returns="An Array.", imports="fnx.lax as lax", operand="floats.",
    a="above 0.", x="at least 0.", raises=("ShapeError: the shapes do not broadcast.",))


# ---- bits ---------------------------------------------------------------------------------------


def _mul_high(x: Expr, y: Expr) -> Expr:
    """Return the upper half of the bits of the full product x * y."""
    t = x.dtype
    if t.bits < 64:
        wide = dtypes.int64 if t.kind == "int" else dtypes.uint64
        return (x.cast(wide) * y.cast(wide) >> t.bits).cast(t)
    a, b = x.cast(dtypes.uint64), y.cast(dtypes.uint64)
    low = (1 << 32) - 1
    a0, a1, b0, b1 = a & low, a >> 32, b & low, b >> 32
    middle = (a0 * b0 >> 32) + (a1 * b0 & low) + (a0 * b1 & low)
    high = (a1 * b1 + (a1 * b0 >> 32) + (a0 * b1 >> 32) + (middle >> 32)).cast(t)
    if t.kind == "uint":
        return high
    return high - where(x < 0, y, 0) - where(y < 0, x, 0)


_MULHI = ElementwiseFn("mulhi", "whole", _mul_high, is_primitive=True)


@elementwise(_MULHI, imports="fnx.lax as lax")
def mulhi(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the upper half of the bits of the full product x * y.

    >>> print(lax.mulhi(1 << 30, 8))
    2
    """
    return apply(_MULHI, x, y)


def _round_to_bits(x: Expr, exponent: int, mantissa: int) -> Expr:
    """Round to the nearest number of a float type with fewer bits; flush its subnormals to 0."""
    t = x.dtype
    unsigned = dtypes.unsigned(t.integer)
    raw_bits = x.bitcast(unsigned)
    bits, sign = raw_bits, raw_bits & 1 << t.bits - 1
    drop = t.mantissa - mantissa
    if drop > 0:
        keep_mask = (1 << t.bits) - (1 << drop)  # mask of the retained upper bits
        bits = bits + ((bits >> drop & 1) + ((1 << drop - 1) - 1)) & keep_mask
    exponent_bits = t.bits - 1 - t.mantissa
    if exponent < exponent_bits:
        max_exponent = (1 << exponent - 1) - 1
        scale = bits & (1 << exponent_bits) - 1 << t.mantissa
        inf = sign | (1 << exponent_bits) - 1 << t.mantissa
        bits = where(scale > t.bias + max_exponent << t.mantissa, inf, where(
            scale <= t.bias - max_exponent << t.mantissa, sign, bits))
    return where(isnan(x), x, bits.bitcast(t))


@_docstr("An Array of the shape and dtype of the operand.",
         exponent_bits="bits of the exponent, at least 1.", mantissa_bits="bits of the mantissa.",
         raises=("DTypeError: not floats.", "ArgumentError: too few bits."))
def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round to the precision of a float type with fewer bits.

    Values beyond its range become infinity, values below its normal range 0. The derivative is 1.

    >>> lax.reduce_precision(3.14159, 5, 4)
    Array(3.125, dtype=float32, weak_type=True)
    """
    x = asarray(operand)
    if not x._dtype.is_float:
        raise DTypeError(f"expected floats, got {x._dtype}", hint="convert it: .astype(float)")
    e = arguments.check_int("exponent_bits", exponent_bits)
    m = arguments.check_int("mantissa_bits", mantissa_bits)
    if e < 1 or m < 0:
        raise ArgumentError(f"expected exponent_bits >= 1 and mantissa_bits >= 0, got {e} and {m}")

    def rounded(y: Array) -> Array:
        return Array(_round_to_bits(Expr(y._node), e, m).node, y.weak)
    rule = jvp.custom_jvp(rounded)
    rule.defjvp(lambda primals, tangents: (rounded(*primals), tangents[0]))
    out: Array = rule(x)
    set_composite(out._node, "reduce_precision", reduce_precision, [x._node], exponent_bits=e,
                  mantissa_bits=m)
    return out


# ---- derivatives of samplers ---------------------------------------------------------------------


def _gammainc_grad(a: ArrayLike, x: ArrayLike) -> tuple[Array, Array, Array]:
    """Return a and x, broadcast, and the derivative of ``gammainc(a, x)`` with respect to a."""
    shape_param, point = jnp.broadcast_arrays(asarray(a), asarray(x))
    _, grad = transforms_jvp.jvp(lambda p: special.gammainc(p, point), (shape_param,),
                                 (jnp.ones_like(shape_param),))
    return shape_param, point, grad


@_docstr()
def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the derivative of the incomplete gamma function with respect to a.

    >>> print(lax.igamma_grad_a(1.0, 1.0).round(4))
    -0.4317
    """
    shape_param, point, grad = _gammainc_grad(a, x)
    return record_elementwise(grad, "igamma_grad_a", igamma_grad_a, shape_param, point)


@_docstr(sample="a sample of the gamma distribution of a.")
def random_gamma_grad(a: ArrayLike, sample: ArrayLike) -> Array:
    """Return the derivative of a sample of the gamma distribution with respect to a.

    >>> print(lax.random_gamma_grad(1.0, 1.0).round(2))
    1.17
    """
    shape, x, grad = _gammainc_grad(a, sample)
    return -grad / jnp.exp((shape - 1) * jnp.log(x) - x - special.gammaln(shape))


@_docstr(m="the order, an integer.", x="floats.")
def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """Return the m-th derivative of digamma.

    >>> print(lax.polygamma(1.0, 1.0).round(5))
    1.64493
    """
    out: Array = gamma_beta.polygamma(m, x)
    return out


@_docstr(x="the exponent.", q="the first term.")
def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Return the Hurwitz zeta function: the sum of (k + q)**-x over k = 0, 1, 2, ...

    >>> print(lax.zeta(2.0, 1.0).round(5))
    1.64493
    """
    out: Array = gamma_beta.zeta(x, q)
    return out


# ---- numbers ------------------------------------------------------------------------------------


@_docstr(x="complex numbers.")
def conj(x: ArrayLike) -> Array:
    """Return the complex conjugate.

    >>> print(lax.conj(1 + 2j))
    (1-2j)
    """
    return jnp.conj(x)


@_docstr(x="complex numbers.")
def real(x: ArrayLike) -> Array:
    """Return the real part.

    >>> print(lax.real(1 + 2j))
    1.0
    """
    return jnp.real(x)


@_docstr(x="complex numbers.")
def imag(x: ArrayLike) -> Array:
    """Return the imaginary part.

    >>> print(lax.imag(1 + 2j))
    2.0
    """
    return jnp.imag(x)


@_docstr(x1="floats.", x2="floats: the direction.")
def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the next representable float after x1 in the direction of x2.

    >>> print(lax.nextafter(1.0, 2.0))
    1.0000001
    """
    return jnp.nextafter(x1, x2)


# ---- arrays -------------------------------------------------------------------------------------


@_docstr(operand="an Array.", reps="an int or ints, static under tracing.",
         raises=("ArgumentError: a count is negative.",))
def tile(operand: ArrayLike, reps: ShapeLike) -> Array:
    """Repeat an array as a whole, ``reps`` times along each axis.

    >>> lax.tile(lax.iota(int, 2), (2,))
    Array([0, 1, 0, 1], dtype=int32)
    """
    return jnp.tile(operand, reps)


@_docstr("A tuple of Arrays without the axis.", x="an Array.", axis="the axis.",
         raises=("AxisError: the axis is out of range.", "ShapeError: x is 0-d."))
def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """Split an array into its slices along an axis.

    >>> lax.unstack(lax.iota(int, 2))
    (Array(0, dtype=int32), Array(1, dtype=int32))
    """
    return jnp.unstack(x, axis=axis)


@_docstr("An Array of the shape of ``like_arr``.", arr="an array to broadcast.",
         like_arr="an Array.")
def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Array:
    """Broadcast an array to the shape of another.

    >>> lax.broadcast_like(1, lax.iota(int, 2))
    Array([1, 1], dtype=int32, weak_type=True)
    """
    x = asarray(arr)
    return Array(build.expand(x._node, asarray(like_arr).shape), x.weak)


@_docstr(shape="ints.", dtype="a dtype.", raises=("DTypeError: a dtype that fnx does not hold.",))
def empty(shape: ShapeLike, dtype: DTypeLike, *, out_sharding: None = None) -> Array:
    """Return an array whose contents are unspecified; here they are 0.

    >>> lax.empty((2,), float).shape
    (2,)
    """
    arguments.check_choice("out_sharding", out_sharding, (None,))
    t: DType = dtypes.as_dtype(dtype)
    return Array(build.const(0, t, axes.normalize_shape(shape)))


@_docstr(operands="Arrays of one shape and dtype.", axis="the position of the new axis.",
         raises=("ShapeError: the shapes differ.", "DTypeError: the dtypes differ."))
def stack(operands: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Stack arrays along a new axis.

    >>> lax.stack([1.0, 2.0])
    Array([1., 2.], dtype=float32, weak_type=True)
    """
    arrays = [asarray(x) for x in operands]
    for x in arrays:
        if x._dtype is not arrays[0]._dtype:
            raise DTypeError(f"expected arrays of the same dtype, got {arrays[0]._dtype} and "
                             f"{x._dtype}",
                             hint="use fnx.numpy.stack, which converts")
    return Array(jnp.stack(arrays, axis)._node, all(x.weak for x in arrays))


@_docstr(src="an Array.", idxs="index vectors, one for each axis.",
         axes="the axes to index.",
         raises=("AxisError: an axis is out of range or repeated.",
                 "ShapeError: not one index vector per axis."))
def index_take(src: ArrayLike, idxs: Sequence[ArrayLike], axes: Sequence[int]) -> Array:
    """Take elements at indices along some axes; out-of-bounds indices wrap around.

    >>> lax.index_take(lax.iota(int, 3), (lax.iota(int, 4),), (0,))
    Array([0, 1, 2, 0], dtype=int32)
    """
    x = asarray(src)
    indexed_axes = normalize_axis_tuple(axes, x.ndim)
    if len(idxs) != len(indexed_axes):
        raise ShapeError(f"expected indices for each of {len(indexed_axes)} axes, got {len(idxs)}",
                         hint="pass one vector of indices for each axis")
    indices = [asarray(i) % x.shape[a] for i, a in zip(idxs, indexed_axes)]
    front = jnp.moveaxis(x, indexed_axes, tuple(range(len(indexed_axes))))
    return front[tuple(indices)]


@_docstr("The result of the selected function.", args="passed to the function.",
         default="the function for other platforms.", per_platform="a function for a platform.",
         raises=("ArgumentError: no function for cpu.",))
def platform_dependent(*args: Any, default: Callable[..., T] | None = None,
                       **per_platform: Callable[..., T]) -> T:
    """Call the function for the current platform, which is always the cpu.

    >>> lax.platform_dependent(1.0, cpu=lambda x: x + 1, cuda=lambda x: x - 1)
    2.0
    """
    for name, f in (*per_platform.items(), ("default", default)):
        if f is not None and not callable(f):
            raise ArgumentError(f"expected a function for {name!r}, got {f!r}")
    chosen = per_platform.get("cpu", default)
    if chosen is None:
        raise ArgumentError(f"expected a function for cpu, got {sorted(per_platform)}",
                            hint="pass cpu= or default=")
    return chosen(*args)
