"""Numbers and functions of numbers in user-written kernels, on both devices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
from tests.transforms.kernel_arguments import normal, spec


def test_ranges_are_numbers_among_numbers(device: str) -> None:
    @fnx.call(out=lambda x: (x, x, spec(x.shape[0], dtype="int32"), x))
    def kernel(x: Any, a: Any, b: Any, c: Any, d: Any) -> None:
        i = k.range(x.shape[0])
        a[i] = x[i] * i + i / 2
        b[i] = k.sin(i) + k.where(x[i] > 0, i, 0.5)
        c[i] = i * 2
        d[i] = x[i] + (i ** 2) % 3

    x, i = normal(10), np.arange(10)
    a, b, c, d = kernel(x)
    np.testing.assert_allclose(a, x * i + i / 2, rtol=1e-6)
    np.testing.assert_allclose(b, np.sin(i) + np.where(x > 0, i, 0.5), rtol=1e-5)
    np.testing.assert_array_equal(c, i * 2)
    np.testing.assert_allclose(d, x + i ** 2 % 3, rtol=1e-6)


UNARY = [name for name in k.__all__ if getattr(k, name).__doc__ and "values of the kernel or num"
         in getattr(k, name).__doc__ and name not in ("clip", "where", "cast")]
NUMPY = {"erf": math.erf, "erfc": math.erfc, "rsqrt": lambda x: 1 / np.sqrt(x),
         "sigmoid": lambda x: 1 / (1 + np.exp(-x))}


def test_the_functions_of_numbers_are_all_tested() -> None:
    """They are found by their docstrings: what remains is no function of a number."""
    assert {*k.__all__} - {*UNARY} == {
        "Reference", "Value", "all", "any", "cast", "clip", "collect", "grid", "local", "loop",
        "max", "min", "order", "parallel", "print", "prod", "range", "split", "stage", "subtotal",
        "sum", "tensorize", "thread", "unroll", "vectorize", "when", "where"}


@pytest.mark.cases(23)
@pytest.mark.parametrize("name", UNARY)
def test_every_function_is_that_of_numpy(device: str, name: str) -> None:
    f, bits = getattr(k, name), "i, 1" in getattr(k, name).__doc__ or "(i)" in \
        getattr(k, name).__doc__
    two = "x, y:" in f.__doc__

    @fnx.call(out=lambda x, y: x)
    def kernel(x: Any, y: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o[i] = k.cast(f(x[i], y[i]) if two else f(x[i]), x.dtype)

    x, y = np.abs(normal(2, 18)) + 0.1
    if bits:
        x, y = (x * 20).astype("int32"), (y * 2).astype("int32")
    reference = NUMPY.get(name) or getattr(np, name)
    want = np.vectorize(reference)(x, y) if two else np.vectorize(reference)(x)
    np.testing.assert_allclose(kernel(x, y), want, rtol=3e-6, atol=1e-6)


def test_arctan2_has_all_quadrants_and_edges(device: str) -> None:
    @fnx.call(out=lambda y, x: x)
    def angle(y: Any, x: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o[i] = k.arctan2(y[i], x[i])

    edges = np.array([0.0, -0.0, 1, -1, 2.5, -1e-20, 1e20, np.inf, -np.inf, np.nan], "f4")
    y, x = (a.ravel() for a in np.meshgrid(edges, edges))
    got, want = np.asarray(angle(y, x)), np.arctan2(y, x)
    np.testing.assert_allclose(got, want, rtol=3e-7, atol=1e-37)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_clip(device: str) -> None:
    @fnx.call(out=lambda x: (x, x))
    def kernel(x: Any, o: Any, p: Any) -> None:
        i = k.range(x.shape[0])
        o[i], p[i] = k.clip(x[i], -0.5, 0.5), k.clip(x[i], min=0)

    x = normal(30)
    o, p = kernel(x)
    np.testing.assert_array_equal(o, np.clip(x, np.float32(-0.5), np.float32(0.5)))
    np.testing.assert_array_equal(p, np.maximum(x, 0))


@pytest.mark.parametrize("to", ["bool", "int8", "int32", "uint8", "float16", "float32"])
@pytest.mark.parametrize("number", [True, 3, 0.7, 1j])
def test_a_number_is_stored_in_its_kind_or_a_higher_one(to: str, number: complex) -> None:
    """No store drops a fraction, be it of a number or of a number times an element."""
    kinds = "biufc".replace("u", "")
    fits = kinds.index(np.asarray(number).dtype.kind) <= kinds.index(
        np.dtype(to).kind.replace("u", "i"))
    for value in (lambda x: number, lambda x: x * number):
        def kernel(x: Any, o: Any, value: Any = value) -> None:
            i = k.range(2)
            o[i] = value(x[i])
        x = np.ones(2, to)
        if fits:
            np.testing.assert_array_equal(fnx.call(kernel, out=lambda x: x)(x),
                                          np.full(2, number, to))
        elif not (to == "bool" and value(2) == 2):
            with pytest.raises(fnx.errors.DTypeError, match=f"expected {to}, got"):
                fnx.call(kernel, out=lambda x: x)(x)


def test_a_carried_number_takes_the_kind_of_the_next() -> None:
    @fnx.call(out=lambda x: spec(2))
    def kernel(x: Any, o: Any) -> None:
        i = k.range(2)
        o[i] = k.loop(3, lambda t, s: s + x[i] * 0.5, 0)
    np.testing.assert_array_equal(kernel(np.arange(2, dtype=np.int32)), [0, 1.5])
