"""Comparisons, data and counts that tests of several parts share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fnx
from fnx import random
from fnx.backends.device.base import get_device
from fnx.core.ir import dtypes, low_precision
from fnx.core.ir.dtypes import DType

# ---- values of any dtype --------------------------------------------------------------------


def encoded(x: Any, dtype: DType) -> Any:
    """Convert NumPy's numbers to fnx's storage of a dtype."""
    if dtype.storage is None:
        return np.asarray(x).astype(dtype.np)
    return low_precision.encode(np.asarray(x).astype(dtype.compute.np), dtype)


def numbers(x: Any) -> Any:
    """Convert values of fnx's storage or of ml_dtypes to NumPy's numbers."""
    x = np.asarray(x)
    if x.dtype.kind in "biufc" and x.dtype.name not in dtypes.LOW_PRECISION:
        return x
    t = dtypes.as_dtype(x.dtype)
    return low_precision.decode(x.view(t.np), t)


def as_float64(x: Any) -> Any:
    """Return the values of an Array of a narrow float type."""
    return np.asarray(x.astype("float32")).astype(np.float64)


# ---- comparisons ------------------------------------------------------------------------------


def same_bits_each(a: Any, b: Any) -> Any:
    """Return where two arrays of NumPy's numbers have equal bits; any NaN equals any NaN."""
    if a.dtype.kind == "c":
        return same_bits_each(a.real, b.real) & same_bits_each(a.imag, b.imag)
    if a.dtype.kind != "f":
        return a == b
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def same_bits(a: Any, b: Any) -> bool:
    """Return whether dtype, shape and bits are equal; any NaN equals any NaN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.all(same_bits_each(numbers(a), numbers(b))))


def assert_same(got: Sequence[Any], want: Sequence[Any]) -> None:
    """Check that each pair of values has the same bits."""
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want)):
        assert same_bits(g, w), f"output {i}: got\n{g!r}\nexpected\n{w!r}"


def assert_equal(got: Any, want: Any, ulps: float = 0) -> None:
    """Check for equal shapes and dtypes, and values within a few ulps."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if want.dtype.kind == "f" and ulps:
        np.testing.assert_allclose(got, want, rtol=ulps * np.finfo(want.dtype).eps, atol=1e-30)
    else:
        np.testing.assert_array_equal(got, want)


def assert_near(got: Any, want: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Check that trees have one structure, and their leaves one shape and near values."""
    assert fnx.tree.structure(got) == fnx.tree.structure(want)
    for g, w in zip(fnx.tree.leaves(got), fnx.tree.leaves(want)):
        g, w = np.asarray(g), np.asarray(w)
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)


# ---- fixed data ---------------------------------------------------------------------------------


def small_integers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return float32 integers, of which sums of products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def key_data(key: Any) -> list[Any]:
    """Return the words of a typed key."""
    data: list[Any] = np.asarray(random.key_data(key)).tolist()
    return data


# ---- functions and counts -----------------------------------------------------------------------


def jvp_derivative(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the derivative of a function of a number, by forward mode."""
    return lambda x: fnx.jvp(f, (x,), (1.0,))[1]


def new_kernels() -> int:
    """Return the number of kernels that this process compiled or loaded from disk."""
    stats = get_device("cpu").stats()
    return stats["compiled"] + stats["disk"]
