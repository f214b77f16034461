"""unroll_linalg: small matrices of a batch, element by element, give what LAPACK gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.dtypes import as_dtype
from fnx.core.ir.uop import toposort
from fnx.core.levels import interp, spec
from fnx.core.support.target import Target
from fnx.lower.tensor.unroll_linalg import unroll_linalg

DEVICE = Target("opencl", kind="opencl")  # has no LAPACK, so batches of any size are unrolled
TYPES = (np.float32, np.float64)


def drawn(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    return np.random.default_rng(seed + shape[-1]).normal(size=shape).astype(dtype)


def both(routine: str, options: tuple[str, ...], *xs: Any) -> tuple[list[Any], list[Any]]:
    """Return the results of a routine unrolled, and by LAPACK."""
    params = [build.param(i, as_dtype(x.dtype), x.shape) for i, x in enumerate(xs)]
    fn = build.function(build_calls.linalg(routine, params, options), len(xs))
    unrolled = unroll_linalg(fn, DEVICE)
    spec.check([unrolled], "tensor")
    assert not any(n.op is ops.LINALG for n in toposort(unrolled.src))
    return interp.apply(unrolled, xs), interp.apply(fn, xs)


def check(routine: str, options: tuple[str, ...], *xs: Any) -> None:
    eps = np.finfo(xs[0].dtype).eps
    for got, want in zip(*both(routine, options, *xs), strict=True):
        assert got.dtype == want.dtype
        if want.dtype.kind == "i":
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=200 * eps, atol=200 * eps)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_cholesky_and_qr(n: int, dtype: Any) -> None:
    a = drawn(5, n, n, dtype=dtype)
    check("cholesky", (), a @ a.swapaxes(-1, -2) + np.eye(n, dtype=dtype))
    check("qr", (), a)
    check("qr", (), drawn(5, n + 2, n, dtype=dtype))
    check("qr", (), drawn(5, n, n + 1, dtype=dtype))


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_lu_and_what_solves_by_it(n: int) -> None:
    a = drawn(5, n, n)
    check("lu", (), a)
    check("lu", (), drawn(4, n + 1, n))
    check("lu", (), drawn(4, n, n + 2))
    factors, _, order = both("lu", (), a)[1]
    for sides in (1, 3, 11):
        b = drawn(5, n, sides, seed=3)
        for options in ((), ("transpose",)):
            check("lu_solve", options, a, factors, order, b)


@pytest.mark.parametrize("options", [
    (), ("lower",), ("transpose",), ("lower", "transpose", "unit"), ("lower", "right"),
    ("right",), ("right", "transpose"), ("right", "unit", "lower", "transpose")])
@pytest.mark.parametrize("sides", [1, 4, 12])
def test_triangular_solve(options: tuple[str, ...], sides: int) -> None:
    a = drawn(6, 3, 3) + 3 * np.eye(3)
    b = drawn(6, sides, 3) if "right" in options else drawn(6, 3, sides)
    check("triangular_solve", options, a, b)


def test_matrices_without_an_inverse_or_a_factor() -> None:
    singular = np.array([[[0.0, 0, 1], [0, 0, 2], [0, 1, 0]], np.zeros((3, 3)), np.ones((3, 3))])
    check("lu", (), singular)
    q, r = both("qr", (), singular)[0]  # rounding errors decide about directions
    np.testing.assert_allclose(q @ r, singular, atol=1e-14)
    np.testing.assert_allclose(q.swapaxes(1, 2) @ q, np.broadcast_to(np.eye(3), (3, 3, 3)),
                               atol=1e-14)
    indefinite = np.stack([np.diag([1.0, -1.0]), np.array([[1.0, 2], [2, 1]]), np.eye(2)])
    got, = both("cholesky", (), indefinite)[0]
    assert np.isnan(got[:2]).any((1, 2)).all() and np.array_equal(got[2], np.eye(2))


def test_large_and_small_columns() -> None:
    for size in (1e-200, 1e200):
        (q, r), (want_q, want_r) = both("qr", (), drawn(3, 4, 3) * size)
        np.testing.assert_allclose(q, want_q, atol=1e-14)
        np.testing.assert_allclose(r / size, want_r / size, atol=1e-13)


@pytest.mark.cases(8)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
def test_eigenvalues_and_singular_values(n: int, dtype: Any) -> None:
    a = drawn(4, n, n, dtype=dtype)
    symmetric = (a + a.swapaxes(1, 2)) / 2
    eps = 60 * n * np.finfo(dtype).eps
    for options in ((), ("lower",)):
        (values, vectors), (want, _) = both("eigh", options, symmetric)
        np.testing.assert_allclose(values, want, atol=eps)
        np.testing.assert_allclose(symmetric @ vectors, vectors * values[:, None], atol=eps)
        only, = both("eigvalsh", options, symmetric)[0]
        np.testing.assert_allclose(only, want, atol=eps)
    for rows, columns in ((n, n), (8, n), (n, 8)):
        b = drawn(3, rows, columns, dtype=dtype)
        (s, u, vt), (want, _, _) = both("svd", (), b)
        np.testing.assert_allclose(s, want, atol=eps)
        np.testing.assert_allclose((u * s[:, None]) @ vt, b, atol=eps)
        for q in (u.swapaxes(1, 2) @ u, vt @ vt.swapaxes(1, 2)):
            np.testing.assert_allclose(q, np.broadcast_to(np.eye(len(q[0])), q.shape), atol=eps)


def test_singular_values_of_special_matrices() -> None:
    special = np.stack([np.zeros((4, 3)), np.ones((4, 3)), np.eye(4, 3),
                        np.diag([1.0, 1e-8, 0, 0])[:, :3]])
    (s, u, vt), (want, _, _) = both("svd", (), special)
    np.testing.assert_allclose(s, want, atol=1e-14)
    np.testing.assert_allclose((u * s[:, None]) @ vt, special, atol=1e-14)
    np.testing.assert_allclose(u.swapaxes(1, 2) @ u, np.broadcast_to(np.eye(3), (4, 3, 3)),
                               atol=1e-13)
    bad = np.full((2, 3, 3), np.nan)
    assert np.isnan(both("eigvalsh", (), bad)[0][0]).all()  # and it ends


def test_complex_matrices() -> None:
    a = drawn(3, 5, 5) + 1j * drawn(3, 5, 5, seed=4)
    hermitian = a + a.conj().swapaxes(1, 2)
    check("lu", (), a)
    check("qr", (), a)
    check("cholesky", (), a @ a.conj().swapaxes(1, 2) + np.eye(5))
    (values, vectors), (want, _) = both("eigh", ("lower",), hermitian)
    np.testing.assert_allclose(values, want, atol=1e-13)
    np.testing.assert_allclose(hermitian @ vectors, vectors * values[:, None], atol=1e-13)


def test_what_is_not_unrolled() -> None:
    host = Target("cpu", kind="host", vector_bits=512)
    for shape, target in (((3, 9, 9), DEVICE), ((7, 3, 3), host), ((0, 3, 3), DEVICE)):
        a = build.param(0, as_dtype(np.float64), shape)
        fn = build.function(build_calls.linalg("cholesky", [a], ()), 1)
        assert unroll_linalg(fn, target) is fn
