"""Conversion of Python and NumPy data: which dtype it gets, and whether it fits.

64-bit data becomes 32 bits wide, unless ``config.x64`` is set or the dtype was given explicitly.
An integer that does not fit raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from fnx.core import dtypes, narrow
from fnx.core.config import config
from fnx.core.dtypes import DType, NDArray
from fnx.core.errors import DTypeError, OverflowedError, ShapeError


class HasDType(Protocol):
    """An object with a dtype, such as ``fnx.numpy.float32``."""

    @property
    def dtype(self) -> np.dtype[Any]: ...


DTypeLike: TypeAlias = np.dtype[Any] | type[Any] | str | HasDType
_WIDER = "name a wider dtype with dtype=, or reduce the values"


def default_float() -> DType:
    """Return the dtype of a Python float."""
    return dtypes.float64 if config.x64 else dtypes.float32


def default_int() -> DType:
    """Return the dtype of a Python int."""
    return dtypes.int64 if config.x64 else dtypes.int32


def sum_type(t: DType) -> DType:
    """Return the default dtype of a sum or product of elements of dtype ``t``."""
    if not t.is_integer or t.bits >= default_int().bits:
        return t
    return dtypes.default(dtypes.uint64) if t.kind == "uint" else default_int()


SCALARS: dict[type, Callable[[], DType]] = {
    bool: lambda: dtypes.bool_, int: default_int, float: default_float}


def dtype_argument(dtype: Any) -> DType:
    """Return the dtype of a ``dtype=`` argument; Python's float and int mean the defaults."""
    t = dtypes.as_dtype(dtype)
    return dtypes.default(t) if config.truncate else t


def element_type(name: str, of: DType, preferred: Any) -> DType:
    """Return the dtype that ``preferred_element_type=`` converts the operands of a product to.

    Raises:
        DTypeError: the operands are integers of more bits.
    """
    t = dtype_argument(preferred)
    if of.is_integer and t.bits < of.bits:
        raise DTypeError(f"{name}: expected a preferred_element_type of at least {of.bits} bits "
                         f"for {of}, got {t}", hint="convert the operands first, with .astype()")
    return t


def fits(x: Any, to: DType) -> Any:
    """Truncate a Python float for a constant of integer dtype ``to``; NaN and inf become 0."""
    if to.is_integer and isinstance(x, float):
        return int(x) if x == x and abs(x) != float("inf") else 0
    return x


def wrapped(x: Any, to: DType) -> Any:
    """Convert a Python scalar that is combined with arrays of dtype ``to``.

    As in JAX it has the default dtype first and is then cast: an integer that fits the default
    dtype wraps around in a narrower one.

    >>> wrapped(300, dtypes.int8), wrapped(-1, dtypes.uint32)
    (44, 4294967295)
    """
    x = fits(x, to)
    if type(x) is int and to.is_integer:
        (low, high), (least, most) = to.limits, default_int().limits
        if not low <= x <= high and least <= x <= most:
            return (x - low) % (1 << to.bits) + low
    return x


def numpy_data(x: Any, to: DType | None) -> NDArray:
    """Convert anything that NumPy accepts to NumPy data of a supported dtype.

    Raises:
        DTypeError: objects, text, dates, and unsupported dtypes.
        OverflowedError: an integer that does not fit.
    """
    data = x if isinstance(x, np.ndarray) else listed(x)
    if type(data) is not np.ndarray:
        check_mask(type(data))
    if not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))
    if data.dtype.name in dtypes.NARROW or data.dtype.names is not None and \
            data.dtype in dtypes.HELD:  # a dtype of ml_dtypes, or fnx's own storage dtype
        return _narrow_data(data, dtypes.as_dtype(data.dtype), to)
    if data.dtype.kind == "c":
        raise dtypes.no_complex(data.dtype)
    if data.dtype.kind not in "biuf":
        raise DTypeError(
            f"expected an array or a number, got {type(x).__name__}"
            if data.ndim == 0 and not isinstance(x, np.ndarray | np.generic) else
            f"expected numbers, got NumPy data of dtype {data.dtype}",
            hint="make the rows of one length and the elements numbers, then .astype(float32)"
            if data.dtype.kind == "O" else "convert the data to numbers first")
    if to is None:
        to = dtypes.default(dtypes.as_dtype(data.dtype))
    if data.dtype == to.np:
        return data
    if to.storage is not None:
        return _rounded(data, to)
    if to.is_integer and data.dtype.kind in "iu":
        _check_range(data, to)
    with np.errstate(over="ignore", invalid="ignore"):
        return data.astype(to.np)


def _narrow_data(data: NDArray, t: DType, to: DType | None) -> NDArray:
    """Convert data of a type that NumPy lacks."""
    if to is None or to is t:
        return data.view(t.np)
    return numpy_data(narrow.decoded(data.view(t.np), t), to)


def _rounded(data: NDArray, to: DType) -> NDArray:
    """Convert data to a storage-only type."""
    if to.is_integer and data.dtype.kind in "iu":
        _check_range(data, to)
    with np.errstate(over="ignore", invalid="ignore"):
        if to.is_integer and data.dtype.kind == "f":
            data = np.clip(np.nan_to_num(data, nan=0.0), *to.limits)
        return narrow.encoded(data.astype(to.compute.np), to)


def check_mask(kind: type) -> None:
    """Raise for NumPy's masked arrays, whose mask would be lost silently."""
    if issubclass(kind, np.ndarray) and hasattr(kind, "mask"):
        raise DTypeError("expected plain data, got a masked array, whose mask would be lost",
                         hint="fill in what is masked: x.filled(value); or hand over x.data and "
                              "x.mask")


def listed(x: Any) -> NDArray:
    """Convert a list, or anything that NumPy accepts, to a NumPy array."""
    try:
        return np.asarray(x)
    except OverflowError as e:
        raise OverflowedError(f"expected integers that fit 64 bits: {e}", hint=_WIDER) from e
    except ValueError as e:
        raise ShapeError("expected rows of one shape, got a list whose rows differ",
                         hint="pad the rows to one length") from e


def _check_range(data: NDArray, to: DType) -> None:
    if not data.size:
        return
    least, most = to.limits
    low, high = int(data.min()), int(data.max())
    if low < least or high > most:
        raise OverflowedError(f"expected integers that fit {to}, got "
                              f"{low if low < least else high}", hint=_WIDER)
