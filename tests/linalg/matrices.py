"""Operands for each routine of linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Operands = Callable[..., list[np.ndarray]]
SIZES = ((4, 4, 3), (1, 1, 2), (6, 3, 2), (3, 6, 2), (1, 9, 2), (37, 37, 1))  # m, n, batch

_TRIANGULAR = [tuple(o for o, on in zip(("lower", "right", "transpose", "unit"), flags) if on)
               for flags in ((0, 0, 0, 0), (1, 0, 1, 0), (1, 1, 0, 1), (0, 1, 1, 0))]
OPTIONS: dict[str, list[tuple[str, ...]]] = {
    "triangular_solve": _TRIANGULAR, "lu_solve": [(), ("transpose",)],
    "qr": [(), ("full",), ("pivoting",), ("full", "pivoting")], "svd": [(), ("full",)],
    "eigh": [(), ("lower",)], "eigvalsh": [("lower",)],
    "eig": [(), ("left",)], "tridiagonal": [(), ("lower",)],
    "tridiagonal_solve": [(), ("perturb",)],
}


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def draw(rng: np.random.Generator, shape: tuple[int, ...], t: np.dtype) -> np.ndarray:
    """Return normal numbers, complex ones for a complex dtype."""
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if t.kind == "c" else x).astype(t)


def _any(rng: Any, batch: tuple[int, ...], m: int, n: int, t: Any, options: Any
         ) -> list[np.ndarray]:
    return [draw(rng, (*batch, m, n), t)]


def _square(rng: Any, batch: tuple[int, ...], m: int, n: int, t: Any, options: Any
            ) -> list[np.ndarray]:
    return _any(rng, batch, n, n, t, options)


def _positive(rng: Any, batch: tuple[int, ...], m: int, n: int, t: Any, options: Any
              ) -> list[np.ndarray]:
    a, = _square(rng, batch, m, n, t, options)
    return [(a @ a.swapaxes(-1, -2).conj() + n * np.eye(n)).astype(t)]


def _triangular(rng: Any, batch: tuple[int, ...], m: int, n: int, t: Any, options: Any
                ) -> list[np.ndarray]:
    """Well conditioned with and without a unit diagonal."""
    a, = _square(rng, batch, m, n, t, options)
    a = a / (2 * n) + np.eye(n)
    b = draw(rng, (*batch, m, n) if "right" in options else (*batch, n, m), t)
    return [a.astype(t), b.astype(t)]


def _factors(rng: Any, batch: tuple[int, ...], m: int, n: int, t: Any, options: Any
             ) -> list[np.ndarray]:
    a, b = _triangular(rng, batch, m, n, t, ())
    order = np.stack([rng.permutation(n) for _ in range(batch[0])]).astype(np.int32)
    return [a, a, order, b]


def _reflectors(rng: Any, batch: tuple[int, ...], m: int, n: int, t: Any, options: Any
                ) -> list[np.ndarray]:
    return [*_any(rng, batch, m, n, t, options), rng.uniform(0, 1, (*batch, n)).astype(t)]


def _diagonals(rng: Any, batch: tuple[int, ...], m: int, n: int, t: Any, options: Any
               ) -> list[np.ndarray]:
    low, middle, up = draw(rng, (3, *batch, n), t)
    return [x.astype(t) for x in (low, middle + 4, up, draw(rng, (*batch, n, m), t))]


def _sylvester(rng: Any, batch: tuple[int, ...], m: int, n: int, t: Any, options: Any
               ) -> list[np.ndarray]:
    a, b = (draw(rng, (*batch, k, k), t) / k + 2 * np.eye(k) for k in (m, n))
    return [x.astype(t) for x in (a, b, draw(rng, (*batch, m, n), t))]


OPERANDS: dict[str, Operands] = {
    "cholesky": _positive, "lu": _any, "lu_diagonal": _square, "triangular_solve": _triangular,
    "lu_solve": _factors, "solve": _triangular,
    "qr": _any, "geqrf": _any, "householder_product": _reflectors, "eigh": _positive,
    "eig": _square, "eigvals": _square,
    "eigvalsh": _positive, "svd": _any, "svdvals": _any, "schur": _square,
    "hessenberg": _square, "tridiagonal": _positive, "tridiagonal_solve": _diagonals,
    "solve_sylvester": _sylvester,
}
