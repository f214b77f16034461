"""Matrices for scripts/linalg_accuracy.py, and what is exact about them, in long double.

``groups(dtype)`` returns random and hard matrices by shape.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

RANDOM_SHAPES = ((2, 2), (3, 3), (5, 5), (8, 8), (8, 5), (5, 8), (12, 12), (24, 24), (40, 25),
                 (64, 64))
EACH = 20  # random matrices of each shape
HARD_SIZES = (3, 8, 24)

NDArray = np.ndarray[Any, Any]


# ---- long double --------------------------------------------------------------------------------


def wide(x: NDArray) -> NDArray:
    return x if x.dtype.kind == "i" else \
        x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)


def adjoint(x: NDArray) -> NDArray:
    return x.conj().swapaxes(-1, -2)


def norm(x: NDArray) -> NDArray:
    """The Frobenius norms of matrices."""
    out: NDArray = np.sqrt((abs(x)**2).sum((-1, -2)))
    return out


def quotient(error: NDArray, scale: NDArray) -> NDArray:
    return np.where(error == 0, 0, error / np.where(scale == 0, 1, scale))


def residual(product: NDArray, a: NDArray) -> NDArray:
    return quotient(norm(product - a), norm(a))


def orthogonality(q: NDArray) -> NDArray:
    """|Q^H Q - I|, or |Q Q^H - I| if there are more columns than rows."""
    q = q if q.shape[-2] >= q.shape[-1] else adjoint(q)
    return norm(adjoint(q) @ q - np.eye(q.shape[-1]))


def reflections(h: NDArray, taus: NDArray, below: int = 0) -> NDArray:
    """The product of reflections whose vectors are in the columns of h, from a diagonal on."""
    *batch, m, _ = h.shape
    q = np.broadcast_to(np.eye(m, dtype=h.dtype), (*batch, m, m)).copy()
    for j in reversed(range(taus.shape[-1])):
        v = np.zeros((*batch, m, 1), h.dtype)
        v[..., j + below, 0] = 1
        v[..., j + below + 1:, 0] = h[..., j + below + 1:, j]
        q -= taus[..., j, None, None] * v @ (adjoint(v) @ q)
    return q


def tridiagonal(below: NDArray, middle: NDArray, above: NDArray) -> NDArray:
    """Matrices from three diagonals, as ``tridiagonal_solve`` takes them."""
    n = middle.shape[-1]
    out: NDArray = middle[..., None] * np.eye(n) + below[..., None] * np.eye(n, k=-1) + \
        above[..., None] * np.eye(n, k=1)
    return out


def exact_eigenvalues(a: NDArray) -> NDArray:
    """The eigenvalues of a Hermitian matrix: LAPACK's vectors make it nearly diagonal, rotations
    remove what is left."""
    scale = abs(a).max()
    if not np.isfinite(scale) or scale == 0:
        return np.zeros(len(a), np.longdouble)
    a = wide(a) / wide(scale)
    v = wide(np.linalg.eigh(a.astype(np.complex128 if a.dtype.kind == "c" else float))[1])
    for _ in range(2):
        v = v @ (3 * np.eye(len(a)) - adjoint(v) @ v) / 2
    b = adjoint(v) @ a @ v
    for _ in range(4):
        d = b.diagonal().real
        gaps = abs(d[:, None] - d)
        matters = np.triu(abs(b)**2 > 1e-20 * np.maximum(gaps, abs(b)) * abs(d).max(), 1)
        for i, j in np.argwhere(matters):
            _rotate(b, i, j)
    return np.sort(b.diagonal().real) * scale


def _rotate(b: NDArray, i: int, j: int) -> None:
    """Make b[i, j] zero."""
    size = abs(b[i, j])
    if size == 0:
        return
    theta = (b[j, j].real - b[i, i].real) / (2 * size)
    tangent = (1 if theta >= 0 else -1) / (abs(theta) + np.sqrt(1 + theta * theta))
    cosine = 1 / np.sqrt(1 + tangent * tangent)
    phase = b[i, j] / size
    pair = np.array([[cosine, tangent * cosine * phase],
                     [-tangent * cosine * phase.conjugate(), cosine]])
    b[:, [i, j]] = b[:, [i, j]] @ pair
    b[[i, j]] = adjoint(pair) @ b[[i, j]]


def exact_singular_values(a: NDArray) -> NDArray:
    """The largest eigenvalues of [[0, A], [A^H, 0]]."""
    m, n = a.shape
    both = np.block([[np.zeros((m, m)), a], [adjoint(a), np.zeros((n, n))]])
    return exact_eigenvalues(both)[::-1][:min(m, n)]


def determinant(a: NDArray) -> NDArray:
    """Determinants by elimination."""
    a, out = a.copy(), np.ones(len(a), a.dtype)
    rows = np.arange(len(a))
    for j in range(a.shape[-1]):
        pivot = j + abs(a[:, j:, j]).argmax(1)
        out *= np.where(pivot == j, 1, -1)
        top = a[rows, pivot].copy()
        a[rows, pivot] = a[:, j]
        a[:, j] = top
        out *= top[:, j]
        a[:, j + 1:] -= (a[:, j + 1:, j] / np.where(top[:, j] == 0, 1, top[:, j])[:, None]
                         )[..., None] * top[:, None]
    return out


def exponential(a: NDArray) -> NDArray:
    """Exponentials of matrices whose norms are at most 4: Taylor's series, and squares."""
    squares, terms = 5, 20  # of norms of at most 1/8: the rest of the series is below 1e-38
    a = a / 2**squares
    term = out = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    for k in range(1, terms):
        term = term @ a / k
        out = out + term
    for _ in range(squares):
        out = out @ out
    return out


# ---- matrices -----------------------------------------------------------------------------------


def draw(rng: np.random.Generator, dtype: np.dtype[Any], *shape: int) -> NDArray:
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if dtype.kind == "c" else x


class Matrices(NamedTuple):
    """Three matrices of one kind: of any shape, Hermitian, and positive definite."""

    any: NDArray
    hermitian: NDArray
    positive: NDArray


def from_values(values: NDArray, rng: np.random.Generator, dtype: np.dtype[Any]) -> Matrices:
    """Matrices with these singular values."""
    n = len(values)
    u, v = (np.linalg.qr(draw(rng, dtype, n, n))[0] for _ in range(2))
    signs = np.where(rng.random(n) < 0.5, -1, 1)
    return Matrices(u * values @ adjoint(v), u * (values * signs) @ adjoint(u),
                    u * values @ adjoint(u))


def random_matrices(m: int, n: int, rng: np.random.Generator, dtype: np.dtype[Any]) -> Matrices:
    a, g, h = (draw(rng, dtype, *shape) for shape in ((m, n), (n, n), (n, n)))
    return Matrices(a, g + adjoint(g), h @ adjoint(h) / n + np.eye(n))


def graded(n: int, rng: np.random.Generator, dtype: np.dtype[Any], step: int) -> Matrices:
    """Rows and columns fall by a factor, eight powers of ten in all, or rise."""
    scales = np.logspace(0, -4, n)[::step]
    a, h, p = random_matrices(n, n, rng, dtype)
    return Matrices(*[scales[:, None] * x * scales for x in (a, h, p)])


def hilbert(n: int) -> Matrices:
    return Matrices(*[scipy.linalg.hilbert(n)] * 3)


def scaled(matrices: Matrices, scale: float) -> Matrices:
    return Matrices(*[x * scale for x in matrices])


def hard_matrices(n: int, rng: np.random.Generator, dtype: np.dtype[Any]) -> dict[str, Matrices]:
    info = np.finfo(dtype)
    eps, largest, least = float(info.eps), float(info.max), float(info.tiny)
    close = 1 + eps * np.arange(n)
    return {
        "graded": graded(n, rng, dtype, 1),
        "graded, rising": graded(n, rng, dtype, -1),
        "clustered": from_values(close[::-1], rng, dtype),
        "two clusters": from_values(np.where(np.arange(n) < n // 2, 1, 1e-3) * close, rng, dtype),
        "rank deficient": from_values(np.where(np.arange(n) <= n // 2, 1.0, 0.0), rng, dtype),
        "ill conditioned": from_values(np.logspace(0, np.log10(eps), n), rng, dtype),
        "one small value": from_values(np.where(np.arange(n) < n - 1, 1, 4 * eps), rng, dtype),
        "Hilbert": hilbert(n),
        "near overflow": scaled(random_matrices(n, n, rng, dtype), largest / (64 * n)),
        "near underflow": scaled(random_matrices(n, n, rng, dtype), least * 1e4),
    }


class Group(NamedTuple):
    """All matrices of one shape, stacked, and their names."""

    names: list[str]
    any: NDArray
    hermitian: NDArray
    positive: NDArray


def groups(dtype: np.dtype[Any]) -> list[Group]:
    rng = np.random.default_rng(27)
    by_shape: dict[tuple[int, int], list[tuple[str, Matrices]]] = {}
    for m, n in RANDOM_SHAPES:
        by_shape[m, n] = [(f"random {m} x {n}", random_matrices(m, n, rng, dtype))
                          for _ in range(EACH)]
    for n in HARD_SIZES:
        by_shape[n, n] += [(f"{name} {n} x {n}", x)
                           for name, x in hard_matrices(n, rng, dtype).items()]
    return [Group([name for name, _ in rows],
                  *[np.stack([getattr(x, part) for _, x in rows]).astype(dtype)
                    for part in Matrices._fields]) for rows in by_shape.values()]
