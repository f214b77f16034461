"""``experimental.sparse.linalg``, and iterative solvers of complex systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.experimental import sparse
from fnx.experimental.sparse import linalg
from fnx.scipy.sparse.linalg import bicgstab, cg, gmres


def system(seed: int, n: int, t: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a sparse matrix, which is regular, and a vector."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.4) + n * np.eye(n)
    b = rng.normal(size=n)
    if "complex" in t:
        a, b = a * np.exp(1j * a), b + 1j * rng.normal(size=n)
    return a.astype(t), b.astype(t)


def csr(a: Any) -> list[Any]:
    mat = sparse.BCSR.fromdense(a)
    return [mat.data, mat.indices, mat.indptr]


@given(st.integers(0, 99), st.integers(1, 9),
       st.sampled_from(["float32", "float64", "complex64", "complex128"]))
@settings(max_examples=20, deadline=None)
def test_spsolve_solves(seed: int, n: int, t: str) -> None:
    with override(x64=True):
        a, b = system(seed, n, t)
        x = linalg.spsolve(*csr(a), b)
        assert x.dtype == t
        np.testing.assert_allclose(a @ np.asarray(x), b, rtol=0, atol=1e-4 if "4" not in t[-2:]
                                   or t == "complex64" else 1e-10)


def test_derivatives_of_spsolve_are_those_of_solve() -> None:
    with override(x64=True):
        a, b = system(3, 5, "float64")
        data, indices, indptr = csr(a)
        rows, columns = np.nonzero(a)

        def sparse_sum(data: Any, b: Any) -> Any:
            return (linalg.spsolve(data, indices, indptr, b) ** 2).sum()

        def dense_sum(data: Any, b: Any) -> Any:
            mat = jnp.zeros((5, 5)).at[rows, columns].set(data)
            return (jnp.linalg.solve(mat, b) ** 2).sum()
        for d in (fnx.grad, fnx.hessian, lambda f, i: fnx.jit(fnx.grad(f, i))):
            for got, want in zip(d(sparse_sum, (0, 1))(data, b), d(dense_sum, (0, 1))(data, b)):
                for g, w in zip(fnx.tree.leaves(got), fnx.tree.leaves(want)):
                    np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12)
        batch = fnx.vmap(lambda b: linalg.spsolve(data, indices, indptr, b))(np.stack([b, -b]))
        np.testing.assert_allclose(batch[0], -batch[1], rtol=1e-12)


def test_a_singular_matrix_has_no_solution() -> None:
    data, indices, indptr = csr(jnp.eye(3))
    assert jnp.isnan(linalg.spsolve(data * 0, indices, indptr, jnp.ones(3))).all()


def test_bad_systems_are_refused() -> None:
    data, indices, indptr = csr(jnp.eye(3))
    with pytest.raises(ShapeError, match="indptr one longer than b"):
        linalg.spsolve(data, indices, indptr, jnp.ones(4))
    with pytest.raises(DTypeError, match="data and b of one dtype"):
        linalg.spsolve(data, indices, indptr, jnp.ones(3, "int32"))
    with pytest.raises(ArgumentError, match="reorder from 0 to 3"):
        linalg.spsolve(data, indices, indptr, jnp.ones(3), reorder=4)
    with pytest.raises(ShapeError, match="0 < 5 k < n"):
        linalg.lobpcg_standard(jnp.eye(5), jnp.ones((5, 1)))


@pytest.mark.cases(1)
@pytest.mark.parametrize("t", ["float32", "complex64"])
def test_lobpcg_finds_the_largest_eigenvalues(t: str) -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(40, 40)) + np.diag(np.arange(40.0))
    a = a + a.T + (1j * (np.triu(a) - np.triu(a).T) if t == "complex64" else 0)
    a, start = a.astype(t), rng.normal(size=(40, 3)).astype(t)
    w, v, steps = fnx.jit(linalg.lobpcg_standard)(a, start)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a)[:-4:-1], rtol=1e-5)
    np.testing.assert_allclose(a @ np.asarray(v), np.asarray(v) * np.asarray(w), atol=0.05)
    assert 0 < int(steps) < 100
    of_function, _, _ = linalg.lobpcg_standard(lambda x: jnp.asarray(a) @ x, start)
    np.testing.assert_allclose(of_function, w, rtol=1e-5)


@pytest.mark.cases(2)
@pytest.mark.parametrize("solver", [cg, bicgstab, gmres])
def test_iterative_solvers_take_complex_systems(solver: Any) -> None:
    a, b = system(0, 6, "complex64")
    if solver is cg:
        a = a @ a.conj().T
    x, _ = solver(jnp.asarray(a), jnp.asarray(b), tol=1e-6)
    np.testing.assert_allclose(a @ np.asarray(x), b, atol=1e-4)
