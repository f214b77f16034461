"""``fnx.numpy.fft``: discrete Fourier transforms, as in ``jax.numpy.fft``.

>>> import fnx.numpy as jnp
>>> print(fft(jnp.asarray([1.0, 2.0, 3.0, 4.0])))
[10.+0.j -2.+2.j -2.+0.j -2.-2.j]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import fnx.numpy.base as base
from fnx.core.array import arguments
from fnx.core.array import axes as axis_rules
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import record
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build, dtypes
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError, lazy_module
from fnx.numpy.fft_core import pairs, part, transform
from fnx.numpy.fft_real import inverse_real_transform, real_transform
from fnx.numpy.math_functions import conj

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]

NORMS = (None, "backward", "ortho", "forward")

_docstr = DocTemplate(
    a="an Array or array-like; 16-bit floats and integers are converted to float32.",
    n="the length that is transformed: longer arrays are cut, shorter ones padded with zeros; "
      "None: that of the array.",
    s="the lengths along the axes; None: those of the array.",
    axis="the axis.", axes="the axes; None: all, or the last ``len(s)``.",
    norm='"backward" or None: the inverse is divided by the length; "forward": the other one is; '
         '"ortho": both are divided by its root.',
    imports="fnx.numpy as jnp",
    returns="An Array of complex64, or complex128 for 64-bit numbers.",
    raises=("ArgumentError: a length is not positive, or ``norm`` is unknown.",
            "AxisError: an axis is out of range or occurs twice."))
_REAL = "An Array of float32, or float64 for 64-bit numbers."
_SHAPE_ERRORS = ("ArgumentError: a length is not positive, or ``norm`` is unknown.",
                 "AxisError: an axis is out of range or occurs twice.",
                 "ShapeError: ``s`` and ``axes`` differ in number.")
_REAL_ERRORS = ("ArgumentError: a length is not positive, or ``norm`` is unknown.",
                "AxisError: an axis is out of range or occurs twice.",
                "DTypeError: the numbers are complex.")


# ---- nodes --------------------------------------------------------------------------------------


def to_pairs(x: UOp) -> UOp:
    """Return the pairs of a node of any numbers."""
    if x.dtype.is_complex:
        return pairs(build.real(x), build.imag(x))
    x = build.cast(x, real_dtype(x))
    return pairs(x, build.const_like(x, 0))


def to_complex(x: UOp) -> UOp:
    """Return the complex numbers of pairs."""
    return build.complex_number(part(x, 0), part(x, 1))


def real_dtype(x: UOp) -> dtypes.DType:
    """Return the dtype in which the parts of a node are transformed."""
    if x.dtype.is_complex:
        return x.dtype.real
    return dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32


def resize(x: UOp, axis: int, n: int) -> UOp:
    """Cut an axis to a length, or pad it with zeros."""
    if x.shape[axis] > n:
        return build.shrink(x, [(0, n if a == axis else m) for a, m in enumerate(x.shape)])
    widths = [(0, n - m if a == axis else 0) for a, m in enumerate(x.shape)]
    return build.pad(x, widths) if x.shape[axis] < n else x


def normalize_lengths(x: Array, s: Any, which: Any, half: bool = False
                      ) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes, and the length of the transform along each. ``half``: the last axis holds
    the non-negative frequencies of a real array."""
    lengths = None if s is None else axis_rules.normalize_shape(s)
    if which is None:
        count = x.ndim if lengths is None else len(lengths)
        if count > x.ndim:
            raise ShapeError(f"expected at most {x.ndim} lengths, got {count}",
                             hint="give one for each axis")
        dims = tuple(range(x.ndim - count, x.ndim))
    else:
        dims = axis_rules.normalize_axis_tuple(which, x.ndim)
    if lengths is None:
        lengths = tuple([x.shape[a] for a in dims])
        if half and lengths:
            lengths = (*lengths[:-1], max(0, 2 * (lengths[-1] - 1)))
    elif len(lengths) != len(dims):
        raise ShapeError(f"expected as many lengths as axes, got {lengths} and {dims}",
                         hint="give one length for each axis")
    if any(n < 1 for n in lengths):
        raise ArgumentError(f"expected a length of at least 1 for each axis, got {lengths}",
                            hint="give n or s, or transform another axis")
    return dims, lengths


def scale_of(norm: str | None, lengths: Sequence[int], inverse: bool) -> float:
    """Return the factor of a transform."""
    arguments.check_choice("norm", norm, NORMS)
    n = math.prod(lengths)
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if (norm == "forward") != inverse else 1.0


def _require_real(name: str, x: Array) -> None:
    if x._dtype.is_complex:
        raise DTypeError(f"{name}: expected real numbers, got {x.dtype}",
                         hint=f"use {name.replace('rfft', 'fft').replace('ihfft', 'ifft')}, or "
                         "pass x.real")


def _complex(a: ArrayLike, s: Any, which: Any, norm: str | None, inverse: bool) -> Array:
    x = asarray(a)
    dims, lengths = normalize_lengths(x, s, which)
    scale = scale_of(norm, lengths, inverse)
    node = to_pairs(x._node)
    for i, (axis, n) in enumerate(zip(dims[::-1], lengths[::-1])):
        node = transform(resize(node, axis, n), axis, inverse, 1.0 if i else scale)
    out = Array(to_complex(node))
    return _record_fft(out, int(inverse), x, dims, lengths, lengths, norm)


def _real(name: str, a: ArrayLike, s: Any, which: Any, norm: str | None) -> Array:
    x = asarray(a)
    _require_real(name, x)
    dims, lengths = normalize_lengths(x, s, which)
    scale = scale_of(norm, lengths, False)
    node = build.cast(x._node, real_dtype(x._node))
    if not dims:
        return Array(to_complex(to_pairs(node)))
    node = real_transform(resize(node, dims[-1], lengths[-1]), dims[-1], scale)
    for axis, n in zip(dims[-2::-1], lengths[-2::-1]):
        node = transform(resize(node, axis, n), axis)
    return _record_fft(Array(to_complex(node)), _RFFT, x, dims, lengths, lengths, norm)


def _inverse_real(a: ArrayLike, s: Any, which: Any, norm: str | None, inverse: bool = True
                  ) -> Array:
    """``inverse``: whether it is the inverse for the sake of ``norm``; hfft is none."""
    x = asarray(a)
    dims, lengths = normalize_lengths(x, s, which, half=True)
    scale = scale_of(norm, lengths, inverse)
    node = to_pairs(x._node)
    if not dims:
        return Array(part(node, 0))
    for axis, n in zip(dims[:-1], lengths[:-1]):
        node = transform(resize(node, axis, n), axis, True)
    node = resize(node, dims[-1], lengths[-1] // 2 + 1)
    out = Array(inverse_real_transform(node, dims[-1], lengths[-1], scale))
    if not inverse:
        return out
    return _record_fft(out, _IRFFT, x, dims, (*lengths[:-1], lengths[-1] // 2 + 1), lengths, norm)


_FFT, _IFFT, _RFFT, _IRFFT = range(4)  # lax.FftType


def _record_fft(out: Array, kind: int, x: Array, dims: Sequence[int], of: Sequence[int],
                lengths: Sequence[int], norm: str | None) -> Array:
    """Record a transform of the last axes, as long as they are, as an operation."""
    first = x.ndim - len(dims)
    if list(dims) != list(range(first, x.ndim)) or x.shape[first:] != tuple(of) or \
            norm not in (None, "backward"):
        return out
    t = real_dtype(x._node)
    wide = dtypes.complex128 if t is dtypes.float64 else dtypes.complex64
    operand = build.cast(x._node, t if kind == _RFFT else wide)
    return record(out, "fft", fft_by_params, operand, fft_type=kind, fft_lengths=tuple(lengths))


def fft_by_params(x: Any, *, fft_type: int, fft_lengths: Sequence[int]) -> Array:
    """Transform the last axes, as JAX's primitive does."""
    f = {_FFT: fftn, _IFFT: ifftn, _RFFT: rfftn, _IRFFT: irfftn}[fft_type]
    out: Array = f(x, fft_lengths)
    return out


def _one(n: int | None) -> tuple[int] | None:
    return None if n is None else (arguments.check_int("n", n),)


# ---- one axis -----------------------------------------------------------------------------------


@_docstr()
def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the discrete Fourier transform: sums of a[j] exp(-2i pi j k / n).

    >>> print(jnp.fft.fft(jnp.asarray([1.0, 0.0, 0.0])))
    [1.+0.j 1.+0.j 1.+0.j]
    """
    return _complex(a, _one(n), (axis,), norm, False)


@_docstr()
def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the inverse of the discrete Fourier transform.

    >>> print(jnp.fft.ifft(jnp.asarray([4.0, 0.0, 0.0, 0.0])).real)
    [1. 1. 1. 1.]
    """
    return _complex(a, _one(n), (axis,), norm, True)


@_docstr(raises=_REAL_ERRORS)
def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the transform of real numbers for frequencies 0 to n / 2; the others are conjugate.

    >>> print(jnp.fft.rfft(jnp.asarray([1.0, 2.0, 3.0, 4.0])))
    [10.+0.j -2.+2.j -2.+0.j]
    """
    return _real("rfft", a, _one(n), (axis,), norm)


@_docstr(_REAL)
def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the real numbers whose ``rfft`` this is; n is 2 (m - 1) for m frequencies, if None.

    >>> print(jnp.fft.irfft(jnp.asarray([10.0, -2 + 2j, -2.0])))
    [1. 2. 3. 4.]
    """
    return _inverse_real(a, _one(n), (axis,), norm)


@_docstr(_REAL)
def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the transform, which is real, of numbers whose other half is conjugate.

    >>> print(jnp.fft.hfft(jnp.asarray([1.0, 2.0, 3.0])))
    [ 8. -2.  0. -2.]
    """
    return _inverse_real(conj(a), _one(n), (axis,), norm, False)


@_docstr(raises=_REAL_ERRORS)
def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the inverse of ``hfft``.

    >>> print(jnp.fft.ihfft(jnp.asarray([8.0, -2.0, 0.0, -2.0])).real)
    [1. 2. 3.]
    """
    x = asarray(a)
    _require_real("ihfft", x)
    _, lengths = normalize_lengths(x, _one(n), (axis,))
    arguments.check_choice("norm", norm, NORMS)
    forward = {"forward": "backward", "ortho": "ortho"}.get(norm or "", "forward")
    return conj(_real("ihfft", x, lengths, (axis,), forward))


# ---- several axes -------------------------------------------------------------------------------


@_docstr(raises=_SHAPE_ERRORS)
def fftn(a: ArrayLike, s: ShapeLike | None = None, axes: Sequence[int] | None = None,
         norm: str | None = None) -> Array:
    """Return the discrete Fourier transform along several axes.

    >>> print(jnp.fft.fftn(jnp.ones((2, 2))).real)
    [[4. 0.]
     [0. 0.]]
    """
    return _complex(a, s, axes, norm, False)


@_docstr(raises=_SHAPE_ERRORS)
def ifftn(a: ArrayLike, s: ShapeLike | None = None, axes: Sequence[int] | None = None,
          norm: str | None = None) -> Array:
    """Return the inverse of the discrete Fourier transform along several axes.

    >>> print(jnp.fft.ifftn(jnp.ones((2, 2))).real)
    [[1. 0.]
     [0. 0.]]
    """
    return _complex(a, s, axes, norm, True)


@_docstr(raises=(*_SHAPE_ERRORS, "DTypeError: the numbers are complex."))
def rfftn(a: ArrayLike, s: ShapeLike | None = None, axes: Sequence[int] | None = None,
          norm: str | None = None) -> Array:
    """Return the transform of real numbers along axes; along the last frequencies are 0 to n / 2.

    >>> jnp.fft.rfftn(jnp.ones((4, 6))).shape
    (4, 4)
    """
    return _real("rfftn", a, s, axes, norm)


@_docstr(_REAL, _SHAPE_ERRORS)
def irfftn(a: ArrayLike, s: ShapeLike | None = None, axes: Sequence[int] | None = None,
           norm: str | None = None) -> Array:
    """Return the real numbers whose ``rfftn`` this is.

    >>> print(jnp.fft.irfftn(jnp.fft.rfftn(jnp.ones((2, 2)))))
    [[1. 1.]
     [1. 1.]]
    """
    return _inverse_real(a, s, axes, norm)


def _two(axes: Sequence[int]) -> Sequence[int]:
    if len(axes) != 2:
        raise ArgumentError(f"expected 2 axes, got {tuple(axes)}",
                            hint="use the function for n axes, such as fftn")
    return axes


@_docstr(raises=_SHAPE_ERRORS)
def fft2(a: ArrayLike, s: ShapeLike | None = None, axes: Sequence[int] = (-2, -1),
         norm: str | None = None) -> Array:
    """Return the discrete Fourier transform along two axes.

    >>> print(jnp.fft.fft2(jnp.eye(2)).real)
    [[2. 0.]
     [0. 2.]]
    """
    return _complex(a, s, _two(axes), norm, False)


@_docstr(raises=_SHAPE_ERRORS)
def ifft2(a: ArrayLike, s: ShapeLike | None = None, axes: Sequence[int] = (-2, -1),
          norm: str | None = None) -> Array:
    """Return the inverse of the discrete Fourier transform along two axes.

    >>> print(jnp.fft.ifft2(2 * jnp.eye(2)).real)
    [[1. 0.]
     [0. 1.]]
    """
    return _complex(a, s, _two(axes), norm, True)


@_docstr(raises=(*_SHAPE_ERRORS, "DTypeError: the numbers are complex."))
def rfft2(a: ArrayLike, s: ShapeLike | None = None, axes: Sequence[int] = (-2, -1),
          norm: str | None = None) -> Array:
    """Return the transform of real numbers along two axes; of the last, for 0 to n / 2.

    >>> jnp.fft.rfft2(jnp.ones((4, 6))).shape
    (4, 4)
    """
    return _real("rfft2", a, s, _two(axes), norm)


@_docstr(_REAL, _SHAPE_ERRORS)
def irfft2(a: ArrayLike, s: ShapeLike | None = None, axes: Sequence[int] = (-2, -1),
           norm: str | None = None) -> Array:
    """Return the real numbers whose ``rfft2`` this is.

    >>> print(jnp.fft.irfft2(jnp.fft.rfft2(jnp.eye(2))))
    [[1. 0.]
     [0. 1.]]
    """
    return _inverse_real(a, s, _two(axes), norm)


# ---- frequencies --------------------------------------------------------------------------------


_frequencies = DocTemplate(
    n="the length of the transform.", d="the distance of the samples.",
    dtype="a float dtype; None: the default one.", imports="fnx.numpy as jnp",
    returns="A vector of floats.",
    raises=("ArgumentError: n is not positive.", "DTypeError: the dtype is no float."))


def _count(n: int) -> int:
    count = arguments.check_int("n", n)
    if count < 1:
        raise ArgumentError(f"expected n >= 1, got {count}", hint="give the length of the "
                            "transform")
    return count


def _scaled(index: Array, n: int, d: ArrayLike, dtype: DTypeLike | None) -> Array:
    t = base.result_type(float) if dtype is None else base.dtype(dtype)
    if not base.issubdtype(t, base.floating):
        raise DTypeError(f"expected a float dtype, got {t}", hint="leave dtype out, or give a "
                         "float dtype")
    return index.astype(t) / (asarray(d).astype(t) * n)


@_frequencies()
def fftfreq(n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None) -> Array:
    """Return the frequencies of the elements of ``fft``.

    >>> print(jnp.fft.fftfreq(4, 0.5))
    [ 0.   0.5 -1.  -0.5]
    """
    count = _count(n)
    index = base.arange(count)
    return _scaled(base.where(index < (count + 1) // 2, index, index - count), count, d, dtype)


@_frequencies()
def rfftfreq(n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None) -> Array:
    """Return the frequencies of the elements of ``rfft``.

    >>> print(jnp.fft.rfftfreq(4, 0.5))
    [0.  0.5 1. ]
    """
    count = _count(n)
    return _scaled(base.arange(count // 2 + 1), count, d, dtype)


@_docstr.family("An Array of the shape and dtype of x.",
                ("AxisError: an axis is out of range or occurs twice.",),
                x="an Array or array-like.", axes="an axis or several; None: all.")
def _shift(inverse: bool, x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    array = asarray(x)
    dims = axis_rules.sorted_axes(axes, array.ndim)
    shifts = [-(array.shape[a] // 2) if inverse else array.shape[a] // 2 for a in dims]
    return base.roll(array, shifts, dims)


fftshift = _shift(False, "fftshift", "Move frequency 0 to the middle.",
                  "print(jnp.fft.fftshift(jnp.fft.fftfreq(4)))", "[-0.5  -0.25  0.    0.25]")
ifftshift = _shift(True, "ifftshift", "Undo ``fftshift``.",
                   "print(jnp.fft.ifftshift(jnp.asarray([-1, 0, 1])))", "[ 0  1 -1]")


if not TYPE_CHECKING:  # __getattr__ would make every name exist for type checkers
    __getattr__, __dir__ = lazy_module(__name__, __all__)
