"""fnx.scipy.linalg and fnx.lax.linalg: values are SciPy's, factors multiply to the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg as theirs

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
import fnx.scipy as jsp
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError, FnxError, NotBuiltError, ShapeError

RNG = np.random.default_rng(0)
A, B, C = RNG.normal(size=(4, 4)), RNG.normal(size=(4, 3)), RNG.normal(size=(3, 3))
POSITIVE, TALL = A @ A.T + np.eye(4), RNG.normal(size=(6, 4))
ours = jsp.linalg

CASES: dict[str, tuple[Any, ...]] = {
    "cholesky": (POSITIVE,), "inv": (A,), "det": (A,), "lu": (TALL,), "lu_factor": (A,),
    "hessenberg": (A,), "expm": (A,), "schur": (A,), "solve_sylvester": (A, C, B),
    "solve": (A, B), "solve_triangular": (A, B), "toeplitz": (B[:, 0], C[0]),
    "hankel": (B[:, 0], C[0]), "circulant": (B[:, 0],), "companion": (B[:, 0],),
    "fiedler": (B[:, 0],), "fiedler_companion": (B[:, 0],), "leslie": (B[:, 0], C[0]),
    "hilbert": (4,), "invhilbert": (5,), "pascal": (5,), "invpascal": (5,), "helmert": (4,),
    "hadamard": (4,), "block_diag": (A, B[:1], 3.0), "polar": (TALL,), "expm_frechet": (A, A.T),
}


@pytest.mark.cases(10)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    xs = CASES[name]
    with override(x64=True):
        got, wanted = getattr(ours, name)(*xs), getattr(theirs, name)(*xs)
        for a, b in zip(fnx.tree.leaves(got), wanted if isinstance(wanted, tuple) else [wanted]):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def test_solutions() -> None:
    with override(x64=True):
        for b in (B, B[:, 0]):
            np.testing.assert_allclose(POSITIVE @ ours.cho_solve(ours.cho_factor(POSITIVE), b), b)
            np.testing.assert_allclose(POSITIVE @ ours.solve(POSITIVE, b, assume_a="pos"), b)
            for trans, matrix in ((0, A), (1, A.T), (2, A.T)):
                x = ours.lu_solve(ours.lu_factor(A), b, trans=trans)
                np.testing.assert_allclose(matrix @ x, b)
                x = ours.solve_triangular(A, b, trans=trans, lower=True, unit_diagonal=True)
                low = np.tril(A, -1) + np.eye(4)
                np.testing.assert_allclose((low.T if trans else low) @ x, b)


def test_factors() -> None:
    with override(x64=True):
        for mode in ("full", "economic"):
            q, r, order = ours.qr(TALL, mode=mode, pivoting=True)
            np.testing.assert_allclose(q @ r, TALL[:, np.asarray(order)], atol=1e-12)
        h, q = ours.hessenberg(A, calc_q=True)
        np.testing.assert_allclose(q @ h @ q.T, A, atol=1e-12)
        out, _ = ours.qr_multiply(TALL, np.eye(6))
        np.testing.assert_allclose(out, ours.qr(TALL, mode="economic")[0], atol=1e-12)
        w, v = ours.eigh_tridiagonal(B[:, 0], B[1:, 1])
        matrix = np.diag(B[:, 0]) + np.diag(B[1:, 1], 1) + np.diag(B[1:, 1], -1)
        np.testing.assert_allclose(matrix @ v, v * w, atol=1e-12)
        u, p, _, converged = lax.linalg.qdwh(TALL)
        np.testing.assert_allclose(u @ p, TALL, atol=1e-12)
        assert converged
        r = lax.linalg.cholesky_update(ours.cholesky(POSITIVE), B[:, 0])
        np.testing.assert_allclose(r.T @ r, POSITIVE + np.outer(B[:, 0], B[:, 0]), atol=1e-12)
        reflectors, taus = jnp.linalg.qr(TALL, mode="raw")
        whole = lax.linalg.ormqr(reflectors.T, taus, np.eye(6))
        np.testing.assert_allclose(whole, jnp.linalg.qr(TALL, "complete")[0], atol=1e-12)
        x = lax.linalg.tridiagonal_solve(B[:, 0], B[:, 0] + 5, B[:, 1], B)
        low = np.diag(B[1:, 0], -1) + np.diag(B[:, 0] + 5) + np.diag(B[:-1, 1], 1)
        np.testing.assert_allclose(low @ x, B, atol=1e-12)


def test_complex_matrices() -> None:
    z = A + 1j * RNG.normal(size=(4, 4))
    hermitian = z @ z.conj().T + np.eye(4)
    with override(x64=True):
        for x in (z, A):
            w, v = jnp.linalg.eig(x)
            np.testing.assert_allclose(x @ v, v * w, atol=1e-12)
            w, left, right = lax.linalg.eig(x)
            np.testing.assert_allclose(np.asarray(left).conj().T @ x,
                                       w[:, None] * np.asarray(left).conj().T, atol=1e-12)
            root = ours.sqrtm(x)
            np.testing.assert_allclose(root @ root, x, atol=1e-11)
            t, u = ours.schur(x, output="complex")
            np.testing.assert_allclose(u @ t @ np.asarray(u).conj().T, x, atol=1e-12)
            np.testing.assert_allclose(ours.funm(x, jnp.exp), theirs.expm(x), rtol=1e-8, atol=1e-9)
            np.testing.assert_allclose(ours.expm(x), theirs.expm(x), rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(jnp.linalg.det(x), np.linalg.det(x))
            np.testing.assert_allclose(jnp.linalg.pinv(x), np.linalg.pinv(x))
        t, u = ours.rsf2csf(*ours.schur(A))
        np.testing.assert_allclose(u @ t @ np.asarray(u).conj().T, A, atol=1e-12)
        for b in (B, B + 1j):
            np.testing.assert_allclose(
                hermitian @ ours.cho_solve(ours.cho_factor(hermitian), b), b, atol=1e-12)
            for trans, matrix in ((0, z), (1, z.T), (2, z.conj().T)):
                x = ours.lu_solve(ours.lu_factor(z), b, trans=trans)
                np.testing.assert_allclose(matrix @ x, b, atol=1e-12)
        np.testing.assert_allclose(ours.dft(5, "n"), theirs.dft(5, "n"), atol=1e-15)
        np.testing.assert_allclose(np.sort_complex(jnp.roots(np.array([0.0, 2, -6, 4, 0]))),
                                   [0, 1, 2], atol=1e-12)
        for order in (None, "nuc", 2, 1):
            np.testing.assert_allclose(jnp.linalg.norm(z, order), np.linalg.norm(z, order))


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["cholesky", "eigh", "svd", "qr", "det", "slogdet", "eig",
                                  "solve", "lu"])
def test_derivatives_of_complex_matrices(name: str) -> None:
    f: dict[str, Any] = {
        "cholesky": lambda a: jnp.linalg.cholesky(a @ a.conj().T + jnp.eye(4)),
        "eigh": lambda a: jnp.linalg.eigh(a + a.conj().T)[1], "svd": lambda a: jnp.linalg.svd(a)[0],
        "qr": lambda a: jnp.linalg.qr(a)[0], "det": jnp.linalg.det,
        "slogdet": lambda a: jnp.linalg.slogdet(a)[0], "eig": lambda a: jnp.linalg.eig(a)[1],
        "solve": lambda a: jnp.linalg.solve(a, a.T), "lu": lambda a: lax.linalg.lu(a)[0]}
    a, t = (x + 1j * y for x, y in RNG.normal(size=(2, 2, 4, 4)))
    with override(x64=True):
        weights = RNG.normal(size=np.shape(f[name](a)))

        def scalar(z: Any) -> Any:
            y = f[name](z)
            return (weights * (y.real + 2 * y.imag**2)).sum()
        if name in ("eigh", "svd"):  # the phase of the vectors is arbitrary
            def scalar(z: Any) -> Any:
                return (weights * abs(f[name](z))**2).sum()
        step = 1e-6
        change = (float(scalar(a + step * t)) - float(scalar(a - step * t))) / (2 * step)
        grad = np.asarray(fnx.grad(scalar)(a))
        np.testing.assert_allclose((grad * t).sum().real, change, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(fnx.jvp(scalar, (a,), (t,))[1], change, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("count", [5, 40])
def test_pivots_to_permutation(count: int) -> None:
    x = RNG.normal(size=(2, count, count)).astype(np.float32)
    _, pivots, order = lax.linalg.lu(x)
    np.testing.assert_array_equal(lax.linalg.lu_pivots_to_permutation(pivots, count), order)


@pytest.mark.cases(2)
@pytest.mark.parametrize("scale", [1e-9, 0.3, 4.0, 60.0])
def test_exponentials_of_any_size(scale: float) -> None:
    matrices = np.stack([A, A.T, 1e-3 * A]) * scale
    for dtype, tolerance in (("f4", 3e-3), ("f8", 1e-10)):
        with override(x64=True):
            got = ours.expm(matrices.astype(dtype))
        for a, x in zip(np.asarray(got), matrices):
            wanted = theirs.expm(x)
            np.testing.assert_allclose(a, wanted, rtol=tolerance,
                                       atol=tolerance * abs(wanted).max())
    assert np.isnan(ours.expm(np.eye(2) * 1e9)).all()


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["expm", "polar", "polar tall", "sylvester", "lu_solve"])
def test_derivatives(name: str) -> None:
    f: dict[str, Any] = {
        "expm": lambda a: ours.expm(3 * a), "polar": lambda a: ours.polar(a)[0],
        "polar tall": lambda a: ours.polar(jnp.concatenate((a, a @ a)))[1],
        "sylvester": lambda a: ours.solve_sylvester(a, a @ a.T, a),
        "lu_solve": lambda a: ours.lu_solve(ours.lu_factor(a), a.T)}
    with override(x64=True):
        t, step = RNG.normal(size=(4, 4)), 1e-6
        weights = RNG.normal(size=f[name](A).shape)

        def scalar(a: Any) -> Any:
            return (f[name](a) * weights).sum()
        change = (float(scalar(A + step * t)) - float(scalar(A - step * t))) / (2 * step)
        grad = fnx.grad(scalar)
        np.testing.assert_allclose((np.asarray(grad(A)) * t).sum(), change, rtol=1e-6)
        second = fnx.jvp(grad, (A,), (t,))[1]
        moved = (np.asarray(grad(A + step * t)) - grad(A - step * t)) / (2 * step)
        np.testing.assert_allclose(second, moved, rtol=1e-4, atol=1e-5 * abs(moved).max())


def test_orthogonal_draws() -> None:
    for m in (2, 3, 5):
        q = np.asarray(fnx.random.orthogonal(fnx.random.key(0), 3, (2,), m=m))
        product = q @ q.swapaxes(1, 2) if m > 3 else q.swapaxes(1, 2) @ q
        np.testing.assert_allclose(product, np.broadcast_to(np.eye(min(3, m)), product.shape),
                                   atol=1e-6)
    w = fnx.nn.initializers.delta_orthogonal()(fnx.random.key(0), (3, 3, 2, 4))
    assert np.count_nonzero(w) == 8
    for method in ("cholesky", "svd", "eigh"):
        x = fnx.random.multivariate_normal(fnx.random.key(0), np.zeros(4), POSITIVE, (4000,),
                                           method=method)
        np.testing.assert_allclose(np.cov(x, rowvar=False), POSITIVE, atol=0.6)


def test_fits() -> None:
    x = np.linspace(0, 1, 9)
    y = np.stack([np.sin(3 * x), np.cos(x)], 1)
    with override(x64=True):
        for values in (y, y[:, 0]):
            np.testing.assert_allclose(jnp.polyfit(x, values, 3), np.polyfit(x, values, 3))
            c, v = jnp.polyfit(x, values, 3, w=x + 1, cov=True)
            wanted = np.polyfit(x, values, 3, w=x + 1, cov=True)
            np.testing.assert_allclose(c, wanted[0])
            np.testing.assert_allclose(v, wanted[1])


def test_bad_arguments() -> None:
    bad: list[tuple[type[FnxError], Any]] = [
        (ArgumentError, lambda: ours.qr(A, mode="all")),
        (ArgumentError, lambda: ours.schur(A, "x")),
        (ArgumentError, lambda: ours.solve(A, B, assume_a="neg")),
        (ArgumentError, lambda: ours.hadamard(3)), (ArgumentError, lambda: ours.polar(A, "up")),
        (ArgumentError, lambda: ours.solve_triangular(A, B, trans="X")),
        (ArgumentError, lambda: ours.pascal(3, "both")),
        (ArgumentError, lambda: jnp.polyfit(B[:, 0], B[:, 0], -1)),
        (ArgumentError, lambda: fnx.random.orthogonal(fnx.random.key(0), -1)),
        (NotBuiltError, lambda: ours.eigh(A, A)),
        (ShapeError, lambda: ours.solve_sylvester(A, A, B)), (ShapeError, lambda: ours.expm(B)),
        (ShapeError, lambda: ours.companion(np.ones(1))),
        (ShapeError, lambda: ours.leslie(np.ones(3), np.ones(3))),
        (ShapeError, lambda: lax.linalg.qdwh(B.T)),
        (ShapeError, lambda: lax.linalg.householder_product(B.T, np.ones(3))),
        (ShapeError, lambda: fnx.nn.initializers.orthogonal()(fnx.random.key(0), (3,))),
    ]
    for error, call in bad:
        with pytest.raises(error):
            call()


def test_transposed_factors_are_read_as_they_are() -> None:
    """They and transposed operands become options of the routines."""
    a = RNG.normal(size=(40, 40))
    p, b = (a @ a.T + np.eye(40)).astype(np.float32), np.ones((40, 1), np.float32)
    for lower in (False, True):
        def solve(p: Any, b: Any, lower: bool = lower) -> Any:
            return ours.cho_solve(ours.cho_factor(p, lower), b)
        np.testing.assert_allclose(fnx.jit(solve)(p, b), np.linalg.solve(p, b), rtol=1e-3)


def test_singular_tridiagonal_systems_are_perturbed_if_asked() -> None:
    """By eps times the largest element of the factor U, as JAX's."""
    below, middle, b = np.zeros(3), np.array([3.0, 0.0, 5.0]), np.ones((3, 1))
    with override(x64=True):
        def solve(b: Any, perturb: bool) -> Any:
            return lax.linalg.tridiagonal_solve(below, middle, below, b, perturb_singular=perturb)
        expected = [[1 / 3], [1 / (5 * np.finfo(float).eps)], [0.2]]
        np.testing.assert_allclose(solve(b, True), expected)
        np.testing.assert_allclose(fnx.grad(lambda b: solve(b, True).sum())(b), expected)
        assert np.isnan(solve(b, False)).all()
