"""fnx.numpy.linalg: values are NumPy's, bad input is refused or gives what JAX gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, FnxError, ShapeError

la = jnp.linalg
RNG = np.random.default_rng(0)
SQUARE = RNG.normal(size=(3, 5, 5)).astype(np.float32)
TALL = RNG.normal(size=(2, 6, 4)).astype(np.float32)
POSITIVE = (SQUARE @ SQUARE.swapaxes(1, 2) + np.eye(5)).astype(np.float32)
B = RNG.normal(size=(3, 5, 2)).astype(np.float32)

CASES: dict[str, tuple[Any, ...]] = {
    "cholesky": (POSITIVE,), "eigvalsh": (POSITIVE,), "inv": (SQUARE,), "det": (SQUARE,),
    "slogdet": (SQUARE,), "solve": (SQUARE, B), "svdvals": (TALL,), "pinv": (TALL,),
    "cond": (SQUARE,), "matrix_rank": (TALL,), "matrix_power": (SQUARE, -2),
    "tensorinv": (SQUARE[0].reshape(5, 1, 5), 2),
    "tensorsolve": (SQUARE[0].reshape(5, 1, 5), B[0, :, :1]),
}


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    xs = CASES[name]
    got, wanted = getattr(la, name)(*xs), getattr(np.linalg, name)(*xs)
    for a, b in zip(fnx.tree.leaves(got), wanted if isinstance(wanted, tuple) else [wanted]):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
        assert a.dtype in (np.float32, np.int32)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_factors_multiply_to_the_matrix(mode: str) -> None:
    for x in (TALL, TALL.swapaxes(1, 2), SQUARE):
        q, r = la.qr(x, mode)
        np.testing.assert_allclose(q @ r, x, atol=2e-6)
        u, s, vh = la.svd(x, full_matrices=mode == "complete")
        k = s.shape[-1]
        np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, atol=3e-6)
        for a in (q, u, vh):
            eye = np.broadcast_to(np.eye(min(a.shape[-2:])), (len(a), *[min(a.shape[-2:])] * 2))
            wide = a.shape[-1] > a.shape[-2]
            np.testing.assert_allclose(a @ a.mT if wide else a.mT @ a, eye, atol=3e-6)
    w, v = la.eigh(POSITIVE)
    np.testing.assert_allclose(v * w[..., None, :], POSITIVE @ v, atol=1e-4)


@pytest.mark.parametrize("ord", [2, -2, "nuc"])
def test_norms_of_singular_values(ord: Any) -> None:
    for axis, keepdims in (((1, 2), False), ((2, 0), True), ((0, 1), True)):
        np.testing.assert_allclose(la.norm(TALL, ord, axis, keepdims),
                                   np.linalg.norm(TALL, ord, axis, keepdims), rtol=1e-5)


def test_least_squares() -> None:
    a, b = TALL[0], B[:, :, 0].T.reshape(-1)[:6]
    for ours, theirs in zip(la.lstsq(a, b, numpy_resid=True), np.linalg.lstsq(a, b)):
        np.testing.assert_allclose(np.ravel(ours), np.ravel(theirs), rtol=1e-4)
    singular = np.ones((4, 2), np.float32)
    assert la.lstsq(singular, b[:4])[2] == 1


def test_batches_broadcast() -> None:
    one = la.solve(SQUARE[0], B)
    np.testing.assert_allclose(one, np.stack([np.linalg.solve(SQUARE[0], b) for b in B]),
                               rtol=1e-3, atol=1e-4)
    vector = la.solve(SQUARE, B[0, :, 0])
    assert vector.shape == (3, 5)
    np.testing.assert_allclose(fnx.vmap(la.solve)(SQUARE, B), la.solve(SQUARE, B), rtol=1e-5)


def test_symmetric_singular_values() -> None:
    x = SQUARE + SQUARE.swapaxes(1, 2)
    u, s, vh = la.svd(x, hermitian=True)
    np.testing.assert_allclose((u * s[..., None, :]) @ vh, x, atol=1e-5)
    np.testing.assert_allclose(s, np.linalg.svd(x)[1], rtol=1e-4)
    part = la.svd(x, full_matrices=False, subset_by_index=(1, 3))
    np.testing.assert_allclose(part.S, np.asarray(s)[..., 1:3], rtol=1e-4)


def test_failures_are_nan_or_inf() -> None:
    """What is not positive definite, or singular, gives NaN or infinities in that matrix only."""
    mixed = POSITIVE.copy()
    mixed[1] *= -1
    factor = np.asarray(la.cholesky(mixed))
    assert np.isnan(factor[1]).any() and np.isfinite(factor[[0, 2]]).all()
    singular = SQUARE.copy()
    singular[1] = 0
    assert not np.isfinite(la.inv(singular)[1]).any() and np.isfinite(la.inv(singular)[0]).all()
    assert la.det(singular)[1] == 0 and la.slogdet(singular)[1][1] == -np.inf


def test_determinants_of_nearly_singular_matrices() -> None:
    """A change of the matrix by eps explains the error: that of cofactors is larger."""
    rng = np.random.default_rng(0)
    u, v = np.linalg.qr(rng.normal(size=(2, 64, 3, 3)))[0]
    a = ((u * [1, 1e-3, 1e-6]) @ v).astype(np.float32)
    np.testing.assert_allclose(la.det(a), np.linalg.det(a.astype(float)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("f", [la.cholesky, la.inv, la.det, la.eigh, la.slogdet])
def test_matrices_must_be_square(f: Any) -> None:
    with pytest.raises(ShapeError, match="square matrices"):
        f(TALL)
    with pytest.raises(ShapeError, match="two axes"):
        f(TALL[0, 0])


def test_bad_arguments() -> None:
    bad: list[tuple[type[FnxError], Any]] = [
        (ArgumentError, lambda: la.qr(TALL, "thin")), (ArgumentError, lambda: la.eigh(SQUARE, "X")),
        (ArgumentError, lambda: la.slogdet(SQUARE, method="svd")),
        (ArgumentError, lambda: la.pinv(TALL, 1e-3, rcond=1e-3)),
        (ArgumentError, lambda: la.svd(TALL, False, subset_by_index=(3, 9))),
        (ShapeError, lambda: la.solve(SQUARE, np.ones((4, 1)))),
        (ShapeError, lambda: la.lstsq(SQUARE, B)), (ShapeError, lambda: la.cond(np.ones((0, 3)))),
        (ShapeError, lambda: la.tensorsolve(TALL, TALL)),
        (ArgumentError, lambda: la.tensorinv(TALL, 0)),
    ]
    for error, call in bad:
        with pytest.raises(error):
            call()


def test_integers_and_empty_matrices() -> None:
    assert la.inv(np.array([[2, 0], [0, 4]])).dtype == np.float32
    assert la.det(np.zeros((0, 0))) == 1 and la.inv(np.zeros((2, 0, 0))).shape == (2, 0, 0)
    assert la.cholesky(np.zeros((0, 3, 3))).shape == (0, 3, 3)
    assert la.solve(np.zeros((0, 0)), np.zeros((0, 2))).shape == (0, 2)
