"""Differences, integrals, convolutions, vector products and spaced ranges of ``fnx.numpy``."""

from __future__ import annotations

from typing import Any, Literal

from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import as_node, domain_node, promote_arrays
from fnx.core.ir import build
from fnx.core.ir.dtypes import as_dtype
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.numpy.base import (
    broadcast_to,
    concatenate,
    einsum,
    exp,
    flip,
    linspace,
    log,
    moveaxis,
    not_equal,
    power,
    ravel,
    stack,
    sum,
    where,
)

__all__ = [
    "convolve", "correlate", "cross", "diff", "ediff1d", "geomspace", "gradient", "logspace",
    "matvec", "trapezoid", "vecdot", "vecmat",
]

ConvMode = Literal["full", "same", "valid"]

_docstr = DocTemplate(
    a="an Array or array-like.", v="a vector.", axis="the axis.", x1="of at least one axis.",
    x2="of at least one axis.", returns="An Array.",
    raises=("ShapeError: the shapes do not match.", "AxisError: the axis is out of range."))


@_docstr(n="the number of times.", prepend="values to prepend before taking differences.",
         append="values to append before taking differences.",
         raises=("AxisError: the axis is out of range.", "ArgumentError: n is negative."))
def diff(a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None,
         append: ArrayLike | None = None) -> Array:
    """Return the n-th differences of neighbors along an axis; for bools, whether they differ.

    >>> jnp.diff(jnp.asarray([1, 4, 9]))
    Array([3, 5], dtype=int32)
    """
    x, times = asarray(a), arguments.check_int("n", n)
    if times < 0:
        raise ArgumentError(f"expected n >= 0, got {times}")
    ax = axes.normalize_axis(axis, x.ndim)
    if not times:  # n = 0 also ignores prepend and append
        return x
    parts = [x]
    for extra, position in ((prepend, 0), (append, len(parts) + 1)):
        if extra is not None:
            e = asarray(extra)
            slab = broadcast_to(e, (*x.shape[:ax], 1, *x.shape[ax + 1:])) if not e.ndim else e
            parts.insert(position, slab)
    x = concatenate(parts, ax) if len(parts) > 1 else x
    prefix = (slice(None),) * ax
    for _ in range(min(times, x.shape[ax])):  # beyond that the axis is empty
        upper, lower = x[(*prefix, slice(1, None))], x[(*prefix, slice(None, -1))]
        x = not_equal(upper, lower) if x._dtype.is_bool else upper - lower
    return x


@_docstr(ary="an Array or array-like, which is flattened.",
         to_end="values to append to the differences.",
         to_begin="values to prepend to the differences.", raises=())
def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None
            ) -> Array:
    """Return the differences of neighbors in the flattened array.

    >>> jnp.ediff1d(jnp.asarray([1, 4, 9]), to_end=0)
    Array([3, 5, 0], dtype=int32)
    """
    inner = diff(ravel(ary))
    ends = [None if e is None else ravel(e).astype(inner.dtype) for e in (to_begin, to_end)]
    parts = [x for x in (ends[0], inner, ends[1]) if x is not None]
    return concatenate(parts) if len(parts) > 1 else inner


@_docstr("An Array of the shape of f, or a list of them for several axes.",
         f="an Array or array-like of any shape.",
         varargs="the spacing: none (1), one for all axes, or one per axis. Each is a number, or "
                 "the coordinates.", axis="the axis or axes; None means all.",
         edge_order="unsupported; must be None.",
         raises=("ArgumentError: the spacings do not match the axes, or ``edge_order`` is given.",
                 "ShapeError: an axis is shorter than 2, or the coordinates do not match its "
                 "length."))
def gradient(f: ArrayLike, *varargs: ArrayLike, axis: Any = None, edge_order: None = None) -> Any:
    """Estimate the gradient by central differences, one-sided at the ends.

    >>> jnp.gradient(jnp.asarray([1.0, 2.0, 4.0]))
    Array([1. , 1.5, 2. ], dtype=float32)
    """
    if edge_order is not None:
        raise ArgumentError(f"expected edge_order=None, got {edge_order!r}")
    x = Array(domain_node("inexact", f))
    dims = tuple(range(x.ndim)) if axis is None else \
        axes.normalize_axis_tuple(axis, x.ndim) if isinstance(axis, (tuple, list)) else \
        (axes.normalize_axis(axis, x.ndim),)
    if len(varargs) not in (0, 1, len(dims)):
        raise ArgumentError(f"expected 0, 1 or {len(dims)} spacings, got {len(varargs)}")
    steps = [1.0] * len(dims) if not varargs else list(varargs) * (
        len(dims) if len(varargs) == 1 else 1)
    out = [_gradient_along(x, at, asarray(step)) for at, step in zip(dims, steps)]
    return out[0] if len(dims) == 1 and not isinstance(axis, (tuple, list)) else out


def _gradient_along(x: Array, ax: int, step: Array) -> Array:
    n = x.shape[ax]
    if n < 2:
        raise ShapeError(f"expected at least 2 elements along axis {ax}, got shape {x.shape}")

    def part(low: int, high: int) -> Array:
        return Array(build.shrink(x._node, [(low, high) if a == ax else (0, m)
                                            for a, m in enumerate(x.shape)]), x.weak)
    if step.ndim:
        if step.shape != (n,):
            raise ShapeError(f"expected {n} coordinates along axis {ax}, got shape {step.shape}")
        spacing = (step[1:] - step[:-1]).astype(x.dtype).reshape((-1,) + (1,) * (x.ndim - 1 - ax))
        h, k = spacing[:-1], spacing[1:]
        middle = (-k / (h * (h + k)) * part(0, n - 2) + (k - h) / (h * k) * part(1, n - 1)
                  + h / (k * (h + k)) * part(2, n))
        first, last = spacing[:1], spacing[-1:]
    else:
        middle = (part(2, n) - part(0, n - 2)) * 0.5 / step
        first = last = step
    begin, end = (part(1, 2) - part(0, 1)) / first, (part(n - 1, n) - part(n - 2, n - 1)) / last
    return concatenate([begin, middle, end], ax)


@_docstr(y="the values to integrate.", x="the sample points; by default evenly spaced by ``dx``.",
         dx="the spacing of the sample points if x is None.")
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
              ) -> Array:
    """Integrate along an axis by the trapezoidal rule.

    >>> print(jnp.trapezoid(jnp.asarray([1.0, 2.0, 3.0])))
    4.0
    """
    values = Array(domain_node("inexact", y))
    ax = axes.normalize_axis(axis, values.ndim)
    moved = moveaxis(values, ax, -1)
    if x is None:
        return sum((moved[..., 1:] + moved[..., :-1]) * 0.5, -1) * asarray(dx).astype(moved.dtype)
    points = asarray(x)
    points = points if points.ndim == 1 else moveaxis(points, ax, -1)
    spacing = points[..., 1:] - points[..., :-1]
    return sum((moved[..., 1:] + moved[..., :-1]) * spacing * 0.5, -1)


# ---- convolutions and products ------------------------------------------------------------------

_conv_docstr = DocTemplate(
    a="a vector.", v="a vector.",
    mode='"full" (every overlap), "same" (the length of the longer input) or "valid" (complete '
         "overlap).", returns="A vector.",
    raises=("ShapeError: an input is not a vector, or is empty.",
            "ArgumentError: the mode is unknown."))


def _sliding_dot(name: str, a: ArrayLike, v: ArrayLike, mode: ConvMode, dtype: DTypeLike | None,
                 reverse: bool) -> Array:
    arguments.check_choice("mode", mode, ("full", "same", "valid"))
    x, y = promote_arrays(name, asarray(a), asarray(v))
    if dtype is not None:
        x, y = x.astype(dtype), y.astype(dtype)
    if x.ndim != 1 or y.ndim != 1 or not x.size or not y.size:
        raise ShapeError(f"expected two non-empty vectors, got {x.shape} and {y.shape}")
    swapped = x.size < y.size
    if swapped:
        x, y = y, x
    if reverse:
        y = flip(y)
    m = y.size
    before, after = {"full": (m - 1, m - 1), "same": (m // 2, m - m // 2 - 1),
                     "valid": (0, 0)}[mode]
    padded = build.pad(x._node, [(before, after)])
    rows = build.unfold(build.expand(build.reshape(padded, (*padded.shape, 1)), (*padded.shape, m)),
                        0, 1)
    out = Array(rows) @ y
    return flip(out) if swapped and not reverse else out


@_conv_docstr()
def convolve(a: ArrayLike, v: ArrayLike, mode: ConvMode = "full", *,
             precision: PrecisionLike = None,
             preferred_element_type: DTypeLike | None = None) -> Array:
    """Return the convolution of two vectors: out[n] is the sum of a[i] v[n - i] over i.

    >>> jnp.convolve(jnp.asarray([1, 2, 3]), jnp.asarray([1, 1]))
    Array([1., 3., 5., 3.], dtype=float32)
    """
    return _sliding_dot("convolve", a, v, mode, preferred_element_type, True)


@_conv_docstr()
def correlate(a: ArrayLike, v: ArrayLike, mode: ConvMode = "valid", *,
              precision: PrecisionLike = None,
              preferred_element_type: DTypeLike | None = None) -> Array:
    """Return the cross-correlation of two vectors: out[n] is the sum of a[n + i] v[i] over i.

    A complex ``v`` is conjugated.

    >>> jnp.correlate(jnp.asarray([1, 2, 3]), jnp.asarray([1, 1]))
    Array([3., 5.], dtype=float32)
    """
    return _sliding_dot("correlate", a, asarray(v).conj(), mode, preferred_element_type, False)


@_docstr(a="an Array of vectors of 2 or 3 elements.", b="an Array of vectors of 2 or 3 elements.",
         axisa="the axis of a that holds the vectors.",
         axisb="the axis of b that holds the vectors.",
         axisc="the axis of the result that holds the vectors.",
         axis="overrides ``axisa``, ``axisb`` and ``axisc``.")
def cross(a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1,
          axis: int | None = None) -> Array:
    """Return the cross product of vectors of 2 or 3 elements.

    Two vectors of 2 elements give only the third component, the one that is not 0.

    >>> jnp.cross(jnp.asarray([1, 0, 0]), jnp.asarray([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = asarray(a), asarray(b)
    x = moveaxis(x, axes.normalize_axis(axisa, x.ndim), -1)
    y = moveaxis(y, axes.normalize_axis(axisb, y.ndim), -1)
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ShapeError(f"expected vectors of 2 or 3 elements, got {x.shape[-1]} and "
                         f"{y.shape[-1]}")
    p, q = ([v[..., i] for i in range(v.shape[-1])] for v in (x, y))
    z = p[0] * q[1] - p[1] * q[0]
    if len(p) == len(q) == 2:
        return z
    p2, q2 = p[2] if len(p) == 3 else p[0] * 0, q[2] if len(q) == 3 else q[0] * 0
    out = stack([p[1] * q2 - p2 * q[1], p2 * q[0] - p[0] * q2, z], -1)
    return moveaxis(out, -1, axes.normalize_axis(axisc, out.ndim))


@_docstr("An Array without the axis.")
def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1, precision: PrecisionLike = None,
           preferred_element_type: DTypeLike | None = None) -> Array:
    """Return the dot products of vectors along an axis; a complex ``x1`` is conjugated.

    >>> jnp.vecdot(jnp.asarray([[1, 2], [3, 4]]), jnp.asarray([1, 1]))
    Array([3, 7], dtype=int32)
    """
    x, y = asarray(x1).conj(), asarray(x2)
    x, y = (moveaxis(v, axes.normalize_axis(axis, v.ndim), -1) for v in (x, y))
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"expected vectors of equal length, got {x.shape[-1]} and {y.shape[-1]}")
    return einsum("...i,...i->...", x, y, precision=precision,
                  preferred_element_type=preferred_element_type)


@_docstr("An Array of vectors.", x1="matrices: an Array of at least two axes.",
         x2="vectors: an Array of at least one axis.")
def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Multiply matrices by vectors.

    >>> jnp.matvec(jnp.asarray([[1, 2], [3, 4]]), jnp.asarray([1, 1]))
    Array([3, 7], dtype=int32)
    """
    return einsum("...ij,...j->...i", asarray(x1), asarray(x2))


@_docstr("An Array of vectors.", x1="vectors: an Array of at least one axis.",
         x2="matrices: an Array of at least two axes.")
def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Multiply vectors by matrices; complex vectors are conjugated.

    >>> jnp.vecmat(jnp.asarray([1, 1]), jnp.asarray([[1, 2], [3, 4]]))
    Array([4, 6], dtype=int32)
    """
    return einsum("...i,...ij->...j", asarray(x1).conj(), asarray(x2))


# ---- ranges -------------------------------------------------------------------------------------

_range_docstr = DocTemplate(
    start="the first value.", stop="the last value.", num="the number of values.",
    endpoint="whether ``stop`` is included.", dtype="the dtype of the result; by default a float.",
    axis="the position of the new axis.", returns="An Array with a new axis of length ``num``.",
    raises=("ArgumentError: ``num`` is negative.", "ShapeError: the shapes do not broadcast."))


@_range_docstr(start="the exponent of the first value.", stop="the exponent of the last value.",
               base="the base of the powers.")
def logspace(start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True,
             base: ArrayLike = 10.0, dtype: DTypeLike | None = None, axis: int = 0) -> Array:
    """Return ``num`` powers of ``base`` whose exponents are evenly spaced.

    >>> print(jnp.logspace(0, 2, 3))
    [  1.  10. 100.]
    """
    out_dtype = None if dtype is None else as_dtype(dtype)
    out = power(base, linspace(start, stop, num, endpoint, axis=axis))
    return out if out_dtype is None else out.astype(out_dtype)


@_range_docstr()
def geomspace(start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True,
              dtype: DTypeLike | None = None, axis: int = 0) -> Array:
    """Return ``num`` numbers in geometric progression: evenly spaced on a log scale.

    >>> print(jnp.geomspace(1.0, 4.0, 3))
    [1. 2. 4.]
    """
    first, last = promote_arrays("geomspace", asarray(start), asarray(stop), broadcast=True)
    negative = first < 0
    sign = where(negative, -1, 1).astype(first.dtype)
    arguments.check_int("axis", axis)
    magnitude = exp(linspace(log(first * sign), log(last * sign), num, endpoint, axis=0))
    out = magnitude * sign
    n = magnitude.shape[0]
    if n:
        out = out.at[0].set(first)
    if n > 1 and endpoint:
        out = out.at[-1].set(last)
    out = moveaxis(out, 0, axis)
    return out if dtype is None else Array(as_node(out, as_dtype(dtype)))
