"""The functions of ``fnx.numpy`` that are methods of Array, which take the array first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.array import arguments
from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array, ArrayLike, LazyMethod, set_methods
from fnx.core.array.array_operators import as_operator
from fnx.core.support.errors import MutationError, TracedValueError
from fnx.core.support.process import lazy_import, load
from fnx.numpy import (
    composite_ufuncs,
    contraction,
    creation,
    rearrange,
    reductions,
    shape_manipulation,
    ufuncs,
)
from fnx.numpy.shape_manipulation import ElementOrder

device_transfer = lazy_import("fnx.device_transfer")
indexing = lazy_import("fnx.numpy.indexing")
math_functions = lazy_import("fnx.numpy.math_functions")
meshes = lazy_import("fnx.sharding.mesh")
sharding = lazy_import("fnx.sharding.named_sharding")


def _unpack_varargs(args: tuple[Any, ...]) -> Any:
    """Accept both ``f(2, 3)`` and ``f((2, 3))``."""
    return args[0] if len(args) == 1 and isinstance(args[0], Sequence) else args


@public_api
def reshape(x: Array, *shape: Any, order: ElementOrder = "C") -> Array:
    """Return the elements in another shape.

    Args:
        shape: ints, or one tuple of ints; one length may be -1, which is inferred.
        order: the order of the elements: "C" (row-major) or "F" (column-major).

    Returns:
        An Array of the dtype of x.

    Raises:
        ShapeError: the number of elements differs.

    >>> import fnx.numpy as jnp
    >>> jnp.arange(4).reshape(2, -1).shape
    (2, 2)
    """
    return shape_manipulation.reshape(x, shape[0] if len(shape) == 1 else shape, order)


@public_api
def transpose(x: Array, *axes: Any) -> Array:
    """Permute the axes; by default, reverse them.

    Args:
        axes: ints, or one tuple of ints: the axis of x for each axis of the result.

    Returns:
        An Array of the dtype of x.

    Raises:
        AxisError: the axes are not a permutation.

    >>> import fnx.numpy as jnp
    >>> jnp.zeros((2, 3, 4)).transpose(2, 0, 1).shape
    (4, 2, 3)
    """
    return shape_manipulation.transpose(x, _unpack_varargs(axes) or None)


@public_api
def flatten(x: Array, order: ElementOrder = "C") -> Array:
    """Return the elements as a vector.

    Args:
        order: the order of the elements: "C" (row-major) or "F" (column-major).

    Returns:
        An Array of one axis and the dtype of x.

    >>> import fnx.numpy as jnp
    >>> jnp.ones((2, 1)).flatten()
    Array([1., 1.], dtype=float32)
    """
    return shape_manipulation.ravel(x, order)


@public_api
def compress(x: Array, condition: ArrayLike, axis: int | None = None, *, size: int | None = None,
             fill_value: ArrayLike = 0, out: None = None) -> Array:
    """Select the slices along an axis where a condition holds: see ``fnx.numpy.compress``.

    Args:
        condition: a vector with one bool for each slice.
        axis: the axis; None flattens x first.
        size: the number of slices in the result, which must be static under tracing.
        fill_value: the padding if there are fewer than ``size``.
        out: unsupported; must be None.

    Returns:
        An Array of the dtype of x.

    Raises:
        AxisError: the axis is out of range.
        ShapeError: the condition has more than one axis.

    >>> import fnx.numpy as jnp
    >>> jnp.arange(3).compress(jnp.asarray([True, False, True]))
    Array([0, 2], dtype=int32)
    """
    result: Array = indexing.compress(condition, x, axis, size=size, fill_value=fill_value, out=out)
    return result


@public_api
def conjugate(x: Array) -> Array:
    """Return the complex conjugate; a real number is its own.

    Returns:
        The Array.

    >>> import fnx.numpy as jnp
    >>> jnp.ones(2).conjugate()
    Array([1., 1.], dtype=float32)
    """
    result: Array = math_functions.conjugate(x)
    return result


def _real(x: Array) -> Array:
    result: Array = math_functions.real(x) if x._dtype.is_complex else x
    return result


def _imag(x: Array) -> Array:
    result: Array = math_functions.imag(x) if x._dtype.is_complex else creation.zeros_like(x)
    return result


def _unsharded(ndim: int) -> Any:
    return sharding.NamedSharding(meshes.AbstractMesh((), ()),
                                  sharding.PartitionSpec(*[None] * ndim))


def _sharding_on(device: str) -> Any:
    return sharding.whole_on(device)


def _single_device(device: Any) -> Any:
    return sharding.SingleDeviceSharding(device)


def _placed_result(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any],
                   target: Any) -> Any:
    return device_transfer.placed_result(f, args, kwargs, target)


def _sharding(x: Array) -> Any:
    return device_transfer.sharding_of(x)


@public_api
def to_device(x: Array, device: Any, *, stream: Any = None) -> Array:
    """Copy this array to a device and commit it there.

    Args:
        device: a Device or its name, a sharding, or None.
        stream: unsupported; must be None.

    Returns:
        An Array of the same values.

    Raises:
        ArgumentError: a stream is given, or ``device`` does not name a device.

    >>> import fnx, fnx.numpy as jnp
    >>> jnp.ones(1).to_device(fnx.devices()[0])
    Array([1.], dtype=float32)
    """
    arguments.check_choice("stream", stream, (None,))
    result: Array = device_transfer.device_put(x, device)
    return result


def _array_namespace(x: Array, *, api_version: str | None = None) -> Any:
    """Return the module whose functions take Arrays, as the Python array API standard requires."""
    arguments.check_choice("api_version", api_version, (
        None, "2021.12", "2022.12", "2023.12", "2024.12"))
    return load("fnx.numpy")


def _array_ufunc(x: Array, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Apply a NumPy ufunc to Arrays; the result is NumPy data, as in JAX.

    The exception is ``data + x``, which is an Array: NumPy calls this before ``x.__radd__``.
    """
    name = ufunc.__name__
    out = kwargs.get("out", ())
    if any(type(y) is Array for y in out):
        raise MutationError(f"np.{name}: expected NumPy data as out=, got an Array",
                            hint=f"arrays are immutable: use the result of fnx.numpy.{name}"
                            if name in _FNX_UFUNCS else "arrays are immutable: use the result")
    if method == "__call__" and not kwargs and type(inputs[0]) is not Array \
            and name in _OPERATOR_UFUNCS:
        return _FNX_UFUNCS[name](*inputs)
    try:
        np_inputs = [np.asarray(y) if type(y) is Array else y for y in inputs]
    except TracedValueError as error:
        error.message = f"np.{name}: {error.message}"
        error.hint = f"use fnx.numpy.{name}" if name in _FNX_UFUNCS else \
            "NumPy needs values: compute outside the traced function, or in a pure_callback"
        raise
    return getattr(ufunc, method)(*np_inputs, **kwargs)


_FNX_UFUNCS = {name: f for name, f in vars(ufuncs).items()
               if isinstance(getattr(np, name, None), np.ufunc)}
_FNX_UFUNCS["matmul"] = contraction.matmul
# The ufuncs that NumPy arrays call for Python operators.
_OPERATOR_UFUNCS = frozenset((
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "matmul",
    "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "less",
    "less_equal", "greater", "greater_equal", "equal", "not_equal"))

set_methods({"__array_ufunc__": _array_ufunc, "__array_namespace__": _array_namespace,
             "conj": conjugate, "_real": _real, "_imag": _imag, "_sharding": _sharding,
             "_sharding_on": _sharding_on, "_placed_result": _placed_result,
             "_unsharded": _unsharded, "_single_device": _single_device,
             "_matmul": as_operator(contraction.matmul)})
set_methods({f.__name__: f for f in (
    compress, conjugate, contraction.dot, contraction.matmul, composite_ufuncs.clip,
    composite_ufuncs.round, flatten, shape_manipulation.ravel, shape_manipulation.squeeze,
    shape_manipulation.swapaxes, rearrange.diagonal, rearrange.repeat, reductions.all,
    reductions.any, reductions.max, reductions.mean, reductions.min, reductions.prod,
    reductions.ptp, reductions.std, reductions.sum, reductions.trace, reductions.var, reshape,
    reductions.argmax, reductions.argmin, reductions.cumprod,
    reductions.cumsum, rearrange.take, to_device, transpose)})
set_methods({name: LazyMethod(f"fnx.numpy.{room}", name) for room, names in {
    "sorting": ("argpartition", "argsort", "sort"), "selection": ("choose",),
    "histograms": ("searchsorted",), "indexing": ("nonzero",),
    "bits": ("byteswap", "view")}.items() for name in names})
