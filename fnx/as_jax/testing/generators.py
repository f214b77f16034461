"""Random arrays for tests: ``rand_default(rng)(shape, dtype)``.

>>> rand_int(np.random.RandomState(0), 0, 5)((3,), np.int32)
array([4, 0, 3], dtype=int32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.as_jax.testing.tolerances import numpy_dtype
from fnx.core.array import tree
from fnx.core.ir import dtypes as fnx_dtypes
from fnx.core.ir import low_precision
from fnx.core.support.config import config
from fnx.numpy import result_type

Maker = Callable[[Any, Any], Any]


class ScalarShape:
    """A shape of one element that is no array."""

    ndim, size = 0, 1
    shape: tuple[int, ...] = ()

    def __len__(self) -> int:
        return 0

    def __getitem__(self, i: Any) -> Any:
        return ()[i]


class _NumpyScalar(ScalarShape):
    pass


class _PythonScalar(ScalarShape):
    pass


NUMPY_SCALAR_SHAPE, PYTHON_SCALAR_SHAPE = _NumpyScalar(), _PythonScalar()


def _extended(name: str) -> Any:
    return low_precision.public_dtype(fnx_dtypes.as_dtype(name)).type


class Dtypes:
    """The dtypes of the current mode, by their kinds."""

    def supported(self, names: Sequence[Any]) -> list[Any]:
        """Return those of some dtypes that exist without x64, or all of them with it."""
        wide = {np.dtype(t) for t in ("int64", "uint64", "float64", "complex128")}
        return [t for t in names if config.x64 or np.dtype(t) not in wide]

    _FAMILIES = {
        "custom_floats": ("bfloat16",), "floating": ("float32", "float64"),
        "all_floating": ("bfloat16", "float16", "float32", "float64"),
        "integer": ("int32", "int64"), "all_integer": ("int8", "int16", "int32", "int64"),
        "unsigned": ("uint32", "uint64"),
        "all_unsigned": ("uint8", "uint16", "uint32", "uint64"),
        "complex": ("complex64", "complex128"), "boolean": ("bool",)}
    _SUMS = {
        "inexact": ("floating", "complex"), "all_inexact": ("all_floating", "complex"),
        "numeric": ("floating", "integer", "unsigned", "complex"),
        "all": ("all_floating", "all_integer", "all_unsigned", "complex", "boolean")}

    def __getattr__(self, name: str) -> list[Any]:
        if name in self._SUMS:
            return [t for part in self._SUMS[name] for t in getattr(self, part)]
        if name not in self._FAMILIES:
            raise AttributeError(name)
        return self.supported([_extended(n) for n in self._FAMILIES[name]])


dtypes = Dtypes()


def supported_dtypes() -> set[Any]:
    """Return the dtypes of the current mode."""
    return set(dtypes.all)


def _size(shape: Any) -> tuple[int, ...]:
    return () if isinstance(shape, ScalarShape) else \
        (shape,) if isinstance(shape, int) else tuple(shape)


def _as_shape(values: Any, shape: Any, dtype: Any) -> Any:
    """Return values as an array, a NumPy scalar or a Python number of a dtype."""
    array = np.asarray(values).astype(numpy_dtype(dtype))
    return array[()] if isinstance(shape, _NumpyScalar) else \
        array.item() if isinstance(shape, _PythonScalar) else array


def _maker(draw: Callable[..., Any], scale: float = 1.0,
           post: Callable[[Any], Any] = lambda x: x) -> Maker:
    def make(shape: Any, dtype: Any) -> Any:
        t = fnx_dtypes.as_dtype(dtype)
        values: Any = np.asarray(scale * draw(*_size(shape)))
        if t.kind == "complex":
            values = values + 1j * np.asarray(scale * draw(*_size(shape)))
        elif t.kind == "uint":
            values = np.abs(values)
        elif t.is_bool:
            values = values > 0
        if t.is_inexact:
            values = values.astype(np.complex128 if t.kind == "complex" else np.float64)
        return _as_shape(post(np.asarray(values)), shape, dtype)
    return make


def rand_default(rng: Any, scale: float = 3) -> Maker:
    """Make normal numbers."""
    return _maker(rng.randn, scale)


def rand_small(rng: Any) -> Maker:
    """Make normal numbers near 0."""
    return _maker(rng.randn, 1e-3)


def rand_positive(rng: Any) -> Maker:
    """Make numbers above 1 / 2."""
    return _maker(rng.rand, 2.0, lambda x: x + 1)


def rand_small_positive(rng: Any) -> Maker:
    """Make positive numbers near 0."""
    return _maker(rng.rand, 2e-5)


def rand_nonzero(rng: Any) -> Maker:
    """Make normal numbers without zeros."""
    return _maker(rng.randn, 3, lambda x: np.where(x == 0, np.ones_like(x), x))


def rand_not_small(rng: Any, offset: float = 10.0) -> Maker:
    """Make normal numbers far from 0."""
    return _maker(rng.randn, 3, lambda x: x + np.where(np.real(x) > 0, offset, -offset))


def rand_uniform(rng: Any, low: float = 0.0, high: float = 1.0) -> Maker:
    """Make uniform numbers of an interval."""
    return _maker(rng.rand, high - low, lambda x: x + low)


def rand_some_equal(rng: Any) -> Maker:
    """Make normal numbers of which half are the first."""
    def post(x: Any) -> Any:
        return np.where(rng.rand(*np.shape(x)) < 0.5, x.ravel()[0], x) if x.size else x
    return _maker(rng.randn, 100.0, post)


def _spoil(rng: Any, values: Sequence[float], share: float = 0.1) -> Maker:
    base = rand_default(rng)

    def make(shape: Any, dtype: Any) -> Any:
        t = fnx_dtypes.as_dtype(dtype)
        array = np.array(base(shape, dtype))
        for value in values:
            if t.is_inexact or value == 0:
                array[rng.rand(*array.shape) < share] = value
        return _as_shape(array, shape, dtype)
    return make


def rand_some_inf(rng: Any) -> Maker:
    """Make normal numbers, some of them infinite."""
    return _spoil(rng, (np.inf, -np.inf))


def rand_some_nan(rng: Any) -> Maker:
    """Make normal numbers, some of them NaN."""
    return _spoil(rng, (np.nan,))


def rand_some_inf_and_nan(rng: Any) -> Maker:
    """Make normal numbers, some of them infinite or NaN."""
    return _spoil(rng, (np.inf, -np.inf, np.nan))


def rand_some_zero(rng: Any) -> Maker:
    """Make normal numbers, some of them 0."""
    return _spoil(rng, (0.0,), 0.5)


def rand_int(rng: Any, low: int = 0, high: int | None = None) -> Maker:
    """Make integers from ``low`` up to ``high``, which is excluded."""
    def make(shape: Any, dtype: Any) -> Any:
        t = fnx_dtypes.as_dtype(dtype)
        top = high if high is not None else int(np.iinfo(numpy_dtype(dtype)).max) \
            if t.is_integer else 2
        wide = np.uint64 if t.kind == "uint" else np.int64
        return _as_shape(rng.randint(low, top, size=_size(shape), dtype=wide), shape, dtype)
    return make


def rand_unique_int(rng: Any, high: int | None = None) -> Maker:
    """Make integers that differ from each other."""
    def make(shape: Any, dtype: Any) -> Any:
        n = int(np.prod(_size(shape)))
        return _as_shape(rng.choice(high or n, size=_size(shape), replace=False), shape, dtype)
    return make


def rand_bool(rng: Any) -> Maker:
    """Make bools."""
    return lambda shape, dtype: _as_shape(rng.rand(*_size(shape)) < 0.5, shape, dtype)


def rand_fullrange(rng: Any, standardize_nans: bool = False) -> Maker:
    """Make numbers of random bits."""
    def make(shape: Any, dtype: Any) -> Any:
        t = numpy_dtype(dtype)
        n = int(np.prod(_size(shape)))
        raw = rng.randint(0, 256, size=n * t.itemsize, dtype=np.uint8)
        values: Any = (raw % 2 if t == np.bool_ else raw).view(t).reshape(_size(shape))
        if standardize_nans and fnx_dtypes.as_dtype(dtype).is_inexact:
            values = np.where(np.isnan(values), np.nan, values)
        return _as_shape(values, shape, dtype)
    return make


def format_shape_dtype_string(shape: Any, dtype: Any) -> str:
    """Return a dtype and a shape in the form ``float32[2,3]``."""
    name = numpy_dtype(dtype).name if dtype is not None else "None"
    if isinstance(shape, ScalarShape):
        return name + ("py" if isinstance(shape, _PythonScalar) else "")
    if isinstance(shape, int) or all(isinstance(n, int) for n in shape):
        return f"{name}[{','.join(map(str, _size(shape)))}]"
    return f"{name}[{','.join(str(_size(s)) for s in shape)}]"


def is_valid_shape(shape: Any, dtype: Any) -> bool:
    """Whether a scalar of Python can have a dtype; arrays of all dtypes are valid."""
    return not isinstance(shape, _PythonScalar) or dtype in (
        np.bool_, *map(np.dtype, ("int32", "int64", "float32", "float64", "complex64")))


def rand_indices_unique_along_axis(rng: Any) -> Callable[..., Any]:
    """Make indices below a length that differ from each other along an axis."""
    def make(dim: int, shape: Sequence[int], axis: int) -> Any:
        order = np.argsort(rng.rand(*shape[:axis], dim, *shape[axis + 1:]), axis=axis)
        return np.take(order, np.arange(shape[axis]), axis=axis)
    return make


def dtype_str(dtype: Any) -> str:
    """Return the name of a dtype, also of one of Python's.

    >>> dtype_str(np.float32)
    'float32'
    """
    return str(np.dtype(dtype).name)


def promote_like_jnp(fun: Callable[..., Any], inexact: bool = False) -> Callable[..., Any]:
    """Convert the arguments of a function to the dtype that fnx.numpy promotes them to."""
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.flatten(args)
        common = result_type(*leaves)
        if inexact and common.kind not in "fcV":
            common = np.dtype(np.float32)
        converted = structure.unflatten([np.asarray(x).astype(common) for x in leaves])
        return fun(*converted, **kwargs)
    return call
