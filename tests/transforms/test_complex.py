"""Complex numbers as users meet them: values, dtypes, derivatives, loops, files.

The values of JAX are compared live by scripts/compare_complex.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.errors import DTypeError, GradError
from fnx.saving import load, save
from tests.helpers import assert_near

FUNCTIONS = ("abs", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "conj",
             "cos", "cosh", "exp", "exp2", "expm1", "imag", "log", "log10", "log1p", "log2",
             "negative", "real", "reciprocal", "sign", "sin", "sinh", "sqrt", "square", "tan",
             "tanh")
HOLOMORPHIC = tuple([name for name in FUNCTIONS
                     if name not in ("abs", "angle", "conj", "imag", "real", "sign")])
PARTS = [0.0, -0.0, 1.0, -1.0, 2.5, -0.3, np.inf, -np.inf]


def drawn(*shape: int, seed: int = 0, dtype: Any = np.complex64) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def close(got: Any, want: Any, eps: float) -> None:
    """Compare complex numbers by their distance, relative to their size."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    finite = np.isfinite(got) | (np.abs(want) < 1e38)
    assert np.all(np.abs(got - want)[finite] <= eps * np.maximum(np.abs(want[finite]), 1e-30))


# ---- values -------------------------------------------------------------------------------------


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_as_exact_as_those_of_numpy(name: str) -> None:
    z = drawn(400, seed=1) * np.exp(np.random.default_rng(2).uniform(-9, 4, 400))
    z = z.astype(np.complex64)
    want = getattr(np, name)(z.astype(np.complex128))
    for f in (getattr(jnp, name), fnx.jit(getattr(jnp, name))):
        close(np.asarray(f(z)).astype(want.dtype), want, 4e-6)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "cos", "arcsin", "arccos", "arccosh",
                                  "abs", "angle", "conj"])
def test_functions_at_zeros_and_infinities(name: str) -> None:
    z = np.array([complex(x, y) for x in PARTS for y in PARTS
                  if not (np.isinf(x) and np.isinf(y))], np.complex64)
    with np.errstate(all="ignore"):
        want = np.asarray(getattr(np, name)(z))
    got = np.asarray(getattr(jnp, name)(z))
    for g, w in ((got.real, want.real), (got.imag, want.imag)):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_magnitudes_neither_overflow_nor_vanish(size: float) -> None:
    z = (np.array([3 + 4j, 5 - 12j, -8 + 15j, 7j]) * size).astype(np.complex64)
    assert_near(jnp.abs(z) / size, np.array([5, 13, 17, 7], np.float32), rtol=1e-6)
    assert_near(jnp.sqrt(z) ** 2 / size, z / np.float32(size), rtol=1e-5)
    assert_near(z / jnp.asarray(z), np.ones(4, np.complex64))
    assert np.isfinite(jnp.log(z)).all()


@given(st.sampled_from(["add", "subtract", "multiply", "divide", "power"]), st.integers(0, 99))
def test_arithmetic_is_that_of_numpy(name: str, seed: int) -> None:
    a, b = drawn(3, 4, seed=seed), drawn(4, seed=seed + 100)
    close(getattr(jnp, name)(a, b), getattr(np, name)(a, b), 1e-5)
    close(fnx.jit(getattr(jnp, name))(a, b), getattr(np, name)(a, b), 1e-5)


def test_a_real_factor_multiplies_both_parts() -> None:
    z = jnp.asarray([complex(np.inf, 1), complex(1, np.inf)])
    assert np.array_equal(np.asarray(z * 2.0), np.array([complex(np.inf, 2), complex(2, np.inf)],
                                                        np.complex64))
    assert (1j * jnp.asarray([np.inf])).real == 0
    assert np.array_equal(np.asarray(z / 2.0).imag, [0.5, np.inf])


@pytest.mark.parametrize("a, b, want", [
    (1j, np.float32(1), "complex64"), (1j, np.float16(1), "complex64"), (1j, True, "complex64"),
    (np.complex64(1), np.int32(1), "complex64"), (np.complex64(1), 2.5, "complex64"),
    (np.complex64(1), np.complex128(1), "complex64"), (1j, 1, "complex64")])
def test_promotion(a: Any, b: Any, want: str) -> None:
    for x, y in ((a, b), (b, a)):
        assert jnp.add(x, y).dtype == want == jnp.result_type(x, y)


def test_promotion_with_64_bits() -> None:
    with override(x64=True):
        assert (jnp.asarray(1j)).dtype == "complex128"
        assert (jnp.float64(1) + jnp.complex64(1)).dtype == "complex128"
        assert (jnp.float32(1) + jnp.complex64(1)).dtype == "complex64"
        assert (jnp.float32(1) + 1j).dtype == "complex64"
        assert abs(jnp.complex128(3 + 4j)).dtype == "float64"


def test_products_sums_and_order() -> None:
    a, b = drawn(5, 3), drawn(3, 4, seed=1)
    close(fnx.jit(jnp.matmul)(a, b), a @ b, 1e-6)
    close(a.real @ jnp.asarray(b.T[:3].T), a.real @ b[:, :3], 1e-6)
    close(jnp.vdot(a, a), np.vdot(a, a), 1e-6)
    close(jnp.einsum("ij,jk->k", a, b), np.einsum("ij,jk->k", a, b), 1e-5)
    for name in ("sum", "prod", "mean", "cumsum", "cumprod", "max", "min", "sort", "argsort"):
        got, want = getattr(jnp, name)(a, axis=0), getattr(np, name)(a, axis=0)
        close(got, want.astype(np.asarray(got).dtype), 1e-5)
    assert_near(jnp.var(a), np.var(a), rtol=1e-5)
    assert_near(jnp.std(a, 1), np.std(a, 1), rtol=1e-5)
    assert jnp.sort_complex(jnp.asarray([2, 1])).dtype == "complex64"


def test_reading_and_writing_elements() -> None:
    z = jnp.asarray(drawn(4, 3))
    want = np.array(z)
    want[1] = 2j
    want[2, 0] += 1 - 1j
    got = z.at[1].set(2j).at[2, 0].add(1 - 1j)
    close(got, want, 1e-6)
    assert z[0, 0].item() == np.asarray(z)[0, 0] and complex(z[1, 1]) == np.asarray(z)[1, 1]
    with pytest.raises(DTypeError, match="complex"):
        float(z[0, 0])
    with pytest.raises(DTypeError, match="complex"):
        jnp.zeros(3).at[0].set(1j)
    first = np.asarray(z)[0]
    close(z.at[0].multiply(2j)[0], first * 2j, 1e-6)
    for name, of in (("max", np.maximum), ("min", np.minimum)):
        close(getattr(z.at[0], name)(0.1j)[0], of(first, np.complex64(0.1j)), 1e-6)


def test_conversions_say_what_they_drop() -> None:
    z = jnp.asarray([1 + 2j, 0j])
    with pytest.warns(np.exceptions.ComplexWarning, match="imaginary part"):
        assert np.array_equal(z.astype("float32"), [1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(z.astype(bool), [True, False])
    with pytest.raises(DTypeError, match="real numbers"):
        jnp.asarray([1j], "float32")
    assert jnp.asarray([1, 2.5, 1j]).dtype == "complex64"
    assert repr(jnp.asarray(1j)) == "Array(0.+1.j, dtype=complex64, weak_type=True)"


@pytest.mark.parametrize("name", ["floor", "arctan2", "remainder", "cbrt", "bitwise_and"])
def test_functions_of_real_numbers_say_so(name: str) -> None:
    if name == "arctan2":
        assert jnp.arctan2(1j, 2.0).dtype == "complex64"
        return
    operands = (1j,) if name in ("floor", "cbrt") else (1j, 2)
    with pytest.raises(DTypeError, match="expected"):
        getattr(jnp, name)(*operands)


# ---- derivatives --------------------------------------------------------------------------------


@pytest.mark.cases(6)
@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_holomorphic_derivatives(name: str) -> None:
    f = getattr(jnp, name)
    z, h = np.complex128(0.4 + 0.7j), 1e-6
    with override(x64=True):
        got = fnx.grad(f, holomorphic=True)(z)
        assert_near(got, fnx.jvp(f, (z,), (jnp.complex128(1),))[1], rtol=1e-12)
    numeric = (getattr(np, name)(z + h) - getattr(np, name)(z - h)) / (2 * h)
    assert_near(got, numeric, rtol=1e-7)


@pytest.mark.parametrize("f", [
    lambda z: abs(z), lambda z: (z * z).real, lambda z: jnp.angle(z),
    lambda z: abs(jnp.exp(z)) ** 2, lambda z: (z.conj() * z).real, lambda z: abs(jnp.sign(z) + z)])
def test_gradients_of_real_functions_are_as_in_jax(f: Callable[[Any], Any]) -> None:
    """df/dx - i df/dy, the conjugate of the direction of steepest ascent."""
    z, h = np.complex128(0.4 + 0.7j), 1e-6
    with override(x64=True):
        got = fnx.grad(f)(z)
        of_x, of_y = ((f(jnp.asarray(z + d)) - f(jnp.asarray(z - d))) / (2 * h)
                      for d in (h, 1j * h))
    assert_near(got, of_x - 1j * of_y, rtol=1e-6)


def test_which_derivatives_are_refused() -> None:
    z = jnp.asarray(1 + 2j)
    with pytest.raises(GradError, match="expected real results"):
        fnx.grad(lambda z: z * z)(z)
    with pytest.raises(GradError, match="expected complex arguments"):
        fnx.grad(lambda x: x * x, holomorphic=True)(2.0)
    with pytest.raises(GradError, match="expected real arguments"):
        fnx.jacfwd(jnp.abs)(z)
    with pytest.raises(GradError, match="expected complex results"):
        fnx.grad(jnp.abs, holomorphic=True)(z)
    assert fnx.jacfwd(lambda x: jnp.exp(1j * x))(0.0).dtype == "complex64"
    assert_near(fnx.jacrev(lambda z: z ** 2, holomorphic=True)(jnp.asarray([1 + 2j])),
                np.array([[2 + 4j]], np.complex64))


def test_the_derivative_of_abs_at_zero_is_zero() -> None:
    assert fnx.grad(jnp.abs)(0j) == 0
    assert fnx.jvp(jnp.abs, (jnp.asarray(0j),), (jnp.asarray(1j),))[1] == 0


# ---- transforms, loops, files -------------------------------------------------------------------


def test_loops_and_branches() -> None:
    xs = drawn(6)

    def scanned(z: Any) -> Any:
        return lax.scan(lambda c, x: (c * x + 1j, abs(c)), z, xs)

    def counted(z: Any) -> Any:
        return lax.while_loop(lambda c: abs(c) < 50, lambda c: c * (1 + 1j), z)

    def chosen(z: Any) -> Any:
        return lax.cond(z.real > 0, lambda z: z * 2j, lambda z: z.conj(), z)
    z = jnp.asarray(0.5 - 1j)
    c, sizes = np.complex64(0.5 - 1j), []
    for x in xs:
        sizes.append(abs(c))
        c = c * x + 1j
    for f in (scanned, fnx.jit(scanned)):
        last, ys = f(z)
        assert_near(last, c, rtol=1e-5)
        assert_near(ys, np.array(sizes, np.float32), rtol=1e-5)
    for f in (counted, fnx.jit(counted)):
        assert 50 <= abs(f(z)) < 50 * 2 ** 0.5
    assert fnx.vmap(chosen)(jnp.asarray([1 + 1j, -1 + 1j])).tolist() == [-2 + 2j, -1 - 1j]
    assert_near(fnx.grad(lambda z: abs(scanned(z)[0]))(z), fnx.jit(
        fnx.grad(lambda z: abs(scanned(z)[0])))(z), rtol=1e-5)


def test_callbacks_take_complex_arrays() -> None:
    z = jnp.asarray(drawn(3))

    def host(x: Any) -> Any:
        assert x.dtype == np.complex64 and x.shape == (3,)
        return np.asarray(x * 2j).astype(np.complex64)

    def f(z: Any) -> Any:
        return fnx.pure_callback(host, fnx.ShapeDtypeStruct((3,), "complex64"), z) + 1
    for g in (f, fnx.jit(f)):
        close(g(z), np.asarray(z) * np.complex64(2j) + 1, 1e-6)


def test_files_and_exchange(tmp_path: Path) -> None:
    z = jnp.asarray(drawn(4, 2))
    save(tmp_path / "z.npz", {"z": z})
    assert np.array_equal(load(tmp_path / "z.npz")["z"], z)
    assert np.array_equal(np.from_dlpack(z), z)
    assert np.array_equal(jnp.from_dlpack(np.asarray(z)), z)


def test_nan_is_found_in_complex_arrays() -> None:
    with override(check="nan"), pytest.raises(fnx.errors.NotFiniteError):
        jnp.log(jnp.asarray([0j])) * 0.0


def test_random_numbers() -> None:
    z = np.asarray(fnx.random.normal(fnx.random.key(0), (4000,), "complex64"))
    assert z.dtype == np.complex64 and abs(z.mean()) < 0.05
    assert abs(np.var(z.real) - 0.5) < 0.05 and abs(np.var(z.imag) - 0.5) < 0.05


@pytest.mark.parametrize("name", ["multiply", "max", "min"])
@pytest.mark.parametrize("rows", [False, True])
def test_scatters_combine_complex_numbers_in_order(name: str, rows: bool) -> None:
    """Products, and extremes by the order of real, then imaginary parts; also of whole rows."""
    x, updates = drawn(5, 2), drawn(6, 2, seed=1)
    x, updates = (x, updates) if rows else (x[:, 0], updates[:, 0])
    of_numpy = {"multiply": np.multiply, "max": np.maximum, "min": np.minimum}[name]
    run = fnx.jit(lambda i: getattr(jnp.asarray(x).at[i], name)(updates))
    for places in ([0, 3, 0, -1, 3, 0], [7, 4, -6, -5, 0, 1], [2, 2, 2, 2, 2, 2]):
        want, inside = x.copy(), [k for k, i in enumerate(places) if -5 <= i < 5]
        of_numpy.at(want, np.array(places)[inside], updates[inside])
        np.testing.assert_allclose(run(np.array(places)), want, rtol=1e-5)


def test_a_scatter_of_complex_products_has_derivatives_and_batches() -> None:
    with override(x64=True):
        x, u, i = drawn(3, dtype=complex), drawn(3, seed=1, dtype=complex), np.array([0, 2, 0])

        def f(u: Any) -> Any:
            return abs(jnp.asarray(x).at[i].multiply(u)).sum()
        np.testing.assert_allclose(fnx.grad(f)(u), fnx.grad(lambda u: abs(jnp.stack(
            [x[0] * u[0] * u[2], x[1], x[2] * u[1]])).sum())(u), rtol=1e-9)
        both = fnx.vmap(lambda u: jnp.asarray(x).at[i].max(u))(np.stack([u, -u]))
        for row, v in zip(both, (u, -u)):
            np.testing.assert_array_equal(row, jnp.asarray(x).at[i].max(v))
