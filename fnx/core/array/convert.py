"""Data that arrives from Python and NumPy: which dtype it gets, and whether it fits.

64-bit data that arrives without being asked for becomes 32 bits wide, unless ``config.x64``;
an integer that does not fit raises. A dtype that is named is taken at its word.
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
    """What names its dtype, such as ``fnx.numpy.float32``."""

    @property
    def dtype(self) -> np.dtype[Any]: ...


DTypeLike: TypeAlias = np.dtype[Any] | type[Any] | str | HasDType
_WIDER = "name a wider dtype with dtype=, or reduce the values"


def default_float() -> DType:
    """What a Python float becomes."""
    return dtypes.float64 if config.x64 else dtypes.float32


def default_int() -> DType:
    """What a Python int becomes."""
    return dtypes.int64 if config.x64 else dtypes.int32


def sum_type(t: DType) -> DType:
    """What a sum or product of these is where nothing else is asked for."""
    if not t.is_integer or t.bits >= default_int().bits:
        return t
    return dtypes.default(dtypes.uint64) if t.kind == "uint" else default_int()


SCALARS: dict[type, Callable[[], DType]] = {
    bool: lambda: dtypes.bool_, int: default_int, float: default_float}


def dtype_argument(dtype: Any) -> DType:
    """The type that a ``dtype=`` argument names; Python's float and int are the defaults."""
    t = dtypes.as_dtype(dtype)
    return dtypes.default(t) if config.truncate else t


def element_type(name: str, of: DType, preferred: Any) -> DType:
    """What the operands of a product are converted to by ``preferred_element_type=``.

    Raises:
        DTypeError: it has fewer bits than the whole numbers that it is to hold.
    """
    t = dtype_argument(preferred)
    if of.is_integer and t.bits < of.bits:
        raise DTypeError(f"{name}: expected a preferred_element_type of at least {of.bits} bits "
                         f"for {of}, got {t}", hint="convert the operands first, with .astype()")
    return t


def fits(x: Any, to: DType) -> Any:
    """A Python scalar that will be a constant of dtype ``to``; checked if an integer."""
    if to.is_integer and isinstance(x, float):
        return int(x) if x == x and abs(x) != float("inf") else 0
    return x


def wrapped(x: Any, to: DType) -> Any:
    """A Python scalar among arrays of dtype ``to``. As in JAX it is of the default dtype first, and
    then of theirs: so one that fits the default is taken modulo their size.

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
    """NumPy data of a dtype that fnx holds, from anything that NumPy takes.

    Raises:
        DTypeError: objects, text, dates, and types that fnx does not hold.
        OverflowedError: an integer that does not fit.
    """
    data = x if isinstance(x, np.ndarray) else listed(x)
    if type(data) is not np.ndarray:
        check_mask(type(data))
    if not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))
    if data.dtype.name in dtypes.NARROW or data.dtype.names is not None and \
            data.dtype in dtypes.HELD:  # of ml_dtypes, or as fnx holds it
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
    """Data of a type that NumPy lacks."""
    if to is None or to is t:
        return data.view(t.np)
    return numpy_data(narrow.decoded(data.view(t.np), t), to)


def _rounded(data: NDArray, to: DType) -> NDArray:
    """Data as a type that is stored only."""
    if to.is_integer and data.dtype.kind in "iu":
        _check_range(data, to)
    with np.errstate(over="ignore", invalid="ignore"):
        if to.is_integer and data.dtype.kind == "f":
            data = np.clip(np.nan_to_num(data, nan=0.0), *to.limits)
        return narrow.encoded(data.astype(to.compute.np), to)


def check_mask(kind: type) -> None:
    """Refuse NumPy's masked arrays, whose mask would be lost in silence."""
    if issubclass(kind, np.ndarray) and hasattr(kind, "mask"):
        raise DTypeError("expected plain data, got a masked array, whose mask would be lost",
                         hint="fill in what is masked: x.filled(value); or hand over x.data and "
                              "x.mask")


def listed(x: Any) -> NDArray:
    """What NumPy makes of a list, or of anything that it takes."""
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
