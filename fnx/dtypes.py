"""Dtypes under the names of ``jax.dtypes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.api_boundary import join_dtypes, public_api
from fnx.core.ir import dtypes, low_precision
from fnx.core.support.errors import DTypeError, lazy_module
from fnx.numpy import finfo, iinfo, issubdtype
from fnx.numpy.dtypes import dtype_and_weak, extended, prng_key

__all__ = [
    "TypePromotionError", "bfloat16", "canonicalize_dtype", "extended", "finfo", "float0", "iinfo",
    "issubdtype", "itemsize_bits", "prng_key", "result_type", "scalar_type_of",
]

float0 = np.dtype([("float0", np.void, 0)])


@public_api
def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> np.dtype[Any]:
    """Return the dtype that data is converted to: 64 bits become 32 unless ``config.x64``.

    Args:
        dtype: a dtype.
        allow_extended_dtype: accepted for compatibility with JAX; there are none.

    Returns:
        A NumPy dtype.

    Raises:
        DTypeError: an unsupported dtype.

    >>> canonicalize_dtype("float64")
    dtype('float32')
    """
    kind = dtypes.default_width(dtypes.as_dtype(dtype))
    return low_precision.public_dtype(kind)


@public_api
def itemsize_bits(dtype: Any) -> int:
    """Return the number of bits of an element.

    Args:
        dtype: a dtype.

    Returns:
        An int.

    >>> itemsize_bits("float32")
    32
    """
    t = dtypes.as_dtype(dtype)
    return 8 if t.is_bool else t.bits


@public_api
def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """Return the dtype that these arrays, numbers and dtypes promote to.

    Args:
        args: Arrays, numbers and dtypes.
        return_weak_type_flag: whether to also return whether it is weak.

    Returns:
        A NumPy dtype, or (this, a bool).

    Raises:
        ArgumentError: there are no arguments.

    >>> result_type(1, return_weak_type_flag=True)
    (dtype('int32'), True)
    """
    dtype = jnp.result_type(*args)
    return (dtype, join_dtypes(map(dtype_and_weak, args))[1]) if return_weak_type_flag else dtype


@public_api
def scalar_type_of(x: Any) -> type:
    """Return the Python type of scalars like the elements of x.

    Args:
        x: an array or a number.

    Returns:
        bool, int or float.

    Raises:
        DTypeError: the elements are not numbers.

    >>> scalar_type_of(1.5)
    <class 'float'>
    """
    kinds: dict[str, type] = {"b": bool, "i": int, "u": int, "f": float}
    kind = jnp.result_type(x).kind
    if kind not in kinds:
        raise DTypeError(f"expected numbers, got {x!r}")
    return kinds[kind]


if TYPE_CHECKING:  # imported lazily, on first use
    from fnx.core.support.errors import TypePromotionError
    from fnx.numpy import bfloat16

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules={
        "TypePromotionError": "fnx.core.support.errors", "bfloat16": "fnx.numpy"})
