"""Conversion of Python and NumPy data: which dtype it gets, and whether it fits.

64-bit data becomes 32 bits wide, unless ``config.x64`` is set or the dtype was given explicitly.
An integer that does not fit raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from fnx.core.ir import dtypes, low_precision
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.support.config import config
from fnx.core.support.errors import DTypeError, FnxError, OverflowedError, ShapeError


class HasDType(Protocol):
    """An object with a dtype, such as ``fnx.numpy.float32``."""

    @property
    def dtype(self) -> np.dtype[Any]: ...


DTypeLike: TypeAlias = np.dtype[Any] | type[Any] | str | HasDType
_WIDER_HINT = "use smaller values, pass a wider dtype with dtype= (not under fnx.as_jax), or " \
    "enable 64 bits: jax_enable_x64, fnx.enable_x64()"


def default_float() -> DType:
    """Return the dtype of a Python float."""
    return dtypes.float64 if config.x64 else dtypes.float32


def default_complex() -> DType:
    """Return the dtype of a Python complex number."""
    return dtypes.complex128 if config.x64 else dtypes.complex64


def default_int() -> DType:
    """Return the dtype of a Python int."""
    return dtypes.int64 if config.x64 else dtypes.int32


def sum_dtype(t: DType) -> DType:
    """Return the default dtype of a sum or product of elements of dtype ``t``."""
    if not t.is_integer or t.bits >= default_int().bits:
        return t
    return dtypes.default_width(dtypes.uint64) if t.kind == "uint" else default_int()


SCALAR_DTYPES: dict[type, Callable[[], DType]] = {
    bool: lambda: dtypes.bool_, int: default_int, float: default_float, complex: default_complex}


def parse_dtype(dtype: Any) -> DType:
    """Return the dtype of a ``dtype=`` argument; Python's float and int mean the defaults."""
    t = dtypes.as_dtype(dtype)
    return dtypes.default_width(t) if config.truncate else t


def product_dtype(name: str, operand_dtype: DType, preferred: Any) -> DType:
    """Return the dtype that ``preferred_element_type=`` converts the operands of a product to.

    Raises:
        DTypeError: the operands are integers of more bits.
    """
    t = parse_dtype(preferred)
    if operand_dtype.is_complex and not t.is_complex:
        raise complex_to_real_error(t)
    if operand_dtype.is_integer and t.bits < operand_dtype.bits:
        raise DTypeError(f"{name}: expected a preferred_element_type of at least "
                         f"{operand_dtype.bits} bits "
                         f"for {operand_dtype}, got {t}",
                         hint="convert the operands first, with .astype()")
    return t


def complex_to_real_error(to: DType) -> DTypeError:
    """Return the error for complex numbers where a real type is asked for."""
    return DTypeError(f"expected real numbers for {to}, got complex ones",
                      hint="take .real, .imag or abs() of them first")


def truncate_scalar(x: Any, to: DType) -> Any:
    """Truncate a Python float for a constant of integer dtype ``to``; NaN and inf become 0.

    Raises:
        DTypeError: a complex number for a real dtype.
    """
    if type(x) is complex and not (to.is_complex or to.is_bool):
        raise complex_to_real_error(to)
    if to.is_integer and isinstance(x, float):
        return int(x) if x == x and abs(x) != float("inf") else 0
    return x


def wrap_scalar(x: Any, to: DType) -> Any:
    """Convert a Python scalar that is combined with arrays of dtype ``to``.

    As in JAX it has the default dtype first and is then cast: an integer that fits the default
    dtype wraps around in a narrower one.

    >>> wrap_scalar(300, dtypes.int8), wrap_scalar(-1, dtypes.uint32)
    (44, 4294967295)
    """
    x = truncate_scalar(x, to)
    if type(x) is int and to.is_integer:
        (low, high), (default_min, default_max) = to.limits, default_int().limits
        if not low <= x <= high and default_min <= x <= default_max:
            return (x - low) % (1 << to.bits) + low
    return x


def pytree_hint(x: Any) -> str:
    """Return how to pass an object of a user's class that has arrays; "" for other objects."""
    kind = type(x)
    return "" if kind.__module__ in ("builtins", "numpy") else \
        f"make {kind.__name__} a pytree with fnx.tree_util.register_dataclass, so that its " \
        "arrays are arguments"


_ARGUMENT = re.compile(r"(args|kwargs|operands)\[[^]]*\]|\w+")


def non_array_hint(x: Any, where: str, cure: str, error: FnxError) -> str:
    """Return how to pass ``x``, which is at ``where`` in the arguments and no array.

    A class of the user's can be a pytree; any other leaf of a container has no place in it.

    >>> error = DTypeError("expected an array or a number, got str")
    >>> non_array_hint("a", "args[0]['mode']", "close over it", error)
    'take it out of args[0]; close over it'
    """
    if type(error) is not DTypeError or isinstance(x, np.ndarray):
        return error.hint
    argument = _ARGUMENT.match(where)
    nested = argument is not None and argument.end() < len(where)
    removal = f"take it out of {argument[0]}" if argument and nested else ""
    return "; ".join(filter(None, [pytree_hint(x), removal, cure]))


def to_numpy(x: Any, to: DType | None) -> NDArray:
    """Convert anything that NumPy accepts to NumPy data of a supported dtype.

    Raises:
        DTypeError: objects, text, dates, and unsupported dtypes.
        OverflowedError: an integer that does not fit.
    """
    data = x if isinstance(x, np.ndarray) else numpy_from_list(x)
    if type(data) is not np.ndarray:
        reject_masked(type(data))
    if not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))
    if data.dtype.name in dtypes.LOW_PRECISION or data.dtype.names is not None and \
            data.dtype in dtypes.NUMPY_DTYPES:  # a dtype of ml_dtypes, or fnx's own storage dtype
        return _convert_extended(data, dtypes.as_dtype(data.dtype), to)
    if data.dtype.kind not in "biufc":
        raise DTypeError(
            f"expected an array or a number, got {type(x).__name__}"
            if data.ndim == 0 and not isinstance(x, np.ndarray | np.generic) else
            f"expected numbers, got NumPy data of dtype {data.dtype}",
            hint="a function without a return statement returns None" if x is None else
            pytree_hint(x) if data.ndim == 0 and pytree_hint(x) else
            "make all rows the same length and all elements numbers, then use .astype(float32)"
            if data.dtype.kind == "O" else "convert the data to numbers first")
    if to is None:
        to = dtypes.default_width(dtypes.as_dtype(data.dtype))
    if data.dtype == to.np:
        return data
    if data.dtype.kind == "c" and not to.is_complex:
        raise complex_to_real_error(to)
    if to.storage is not None:
        return _to_storage_only(data, to)
    if to.is_integer and data.dtype.kind in "iu":
        _check_range(data, to)
    with np.errstate(over="ignore", invalid="ignore"):
        return data.astype(to.np)


def _convert_extended(data: NDArray, t: DType, to: DType | None) -> NDArray:
    """Convert data of a type that NumPy lacks."""
    if to is None or to is t:
        return data.view(t.np)
    return to_numpy(low_precision.decode(data.view(t.np), t), to)


def _to_storage_only(data: NDArray, to: DType) -> NDArray:
    """Convert data to a storage-only type."""
    if to.is_integer and data.dtype.kind in "iu":
        _check_range(data, to)
    with np.errstate(over="ignore", invalid="ignore"):
        if to.is_integer and data.dtype.kind == "f":
            data = np.clip(np.nan_to_num(data, nan=0.0), *to.limits)
        return low_precision.encode(data.astype(to.compute.np), to)


def reject_masked(kind: type) -> None:
    """Raise for NumPy's masked arrays, whose mask would be lost silently."""
    if issubclass(kind, np.ndarray) and hasattr(kind, "mask"):
        raise DTypeError("expected plain data, got a masked array, whose mask would be lost",
                         hint="fill masked elements with x.filled(value), or pass x.data and "
                              "x.mask")


def numpy_from_list(x: Any) -> NDArray:
    """Convert a list, or anything that NumPy accepts, to a NumPy array."""
    try:
        return np.asarray(x)
    except OverflowError as e:
        raise OverflowedError(f"expected integers that fit 64 bits: {e}", hint=_WIDER_HINT) from e
    except FnxError:  # of an element's __array__
        raise
    except ValueError as e:
        raise ShapeError("expected rows of one shape, got a list whose rows differ",
                         hint="pad the rows to one length") from e


def _check_range(data: NDArray, to: DType) -> None:
    if not data.size:
        return
    lower, upper = to.limits
    low, high = int(data.min()), int(data.max())
    if low < lower or high > upper:
        raise OverflowedError(f"expected integers that fit {to}, got "
                              f"{low if low < lower else high}", hint=_WIDER_HINT)
