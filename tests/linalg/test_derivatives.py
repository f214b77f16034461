"""Derivatives of factorizations and solvers: both modes, first and second order, batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import GradError
from fnx.numpy import linear_systems

la = jnp.linalg
STEP = 1e-6
SQUARE, TALL, WIDE = (4, 4), (5, 3), (3, 5)


def _symmetric(a: Any) -> Any:
    return a @ a.T + jnp.eye(a.shape[0])


# a function of matrices, the shapes of its operands
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "cholesky": (lambda a: la.cholesky(_symmetric(a)), [SQUARE]),
    "eigh": (lambda a: la.eigh(_symmetric(a)), [SQUARE]),
    "eigvalsh": (lambda a: la.eigvalsh(_symmetric(a)), [SQUARE]),
    "qr": (la.qr, [SQUARE]), "qr tall": (la.qr, [TALL]), "qr wide": (la.qr, [WIDE]),
    "qr complete": (lambda a: la.qr(a, "complete"), [TALL]),
    "svd": (lambda a: la.svd(a, full_matrices=False), [TALL]),
    "svd wide": (lambda a: la.svd(a, full_matrices=False), [WIDE]),
    "svd square": (la.svd, [SQUARE]),
    "svdvals": (la.svdvals, [TALL]),
    "solve": (la.solve, [SQUARE, (4, 2)]), "inv": (la.inv, [SQUARE]),
    "transposed solve": (lambda a, b: linear_systems.solve_matrices(
        jnp.asarray(a), jnp.asarray(b), True), [SQUARE, (4, 2)]),
    "det": (la.det, [SQUARE]), "det 3": (la.det, [(3, 3)]),
    "slogdet": (lambda a: la.slogdet(a)[1], [SQUARE]),
    "slogdet by qr": (lambda a: la.slogdet(a, method="qr")[1], [SQUARE]), "pinv": (la.pinv, [TALL]),
    "pinv wide": (la.pinv, [WIDE]),
    "lstsq": (lambda a, b: la.lstsq(a, b)[:2], [TALL, (5, 2)]),
    "lstsq wide": (lambda a, b: la.lstsq(a, b)[:1], [WIDE, (3, 2)]),
    "lstsq, equal values": (lambda a, b: la.lstsq(la.qr(a)[0], b)[:1], [TALL, (5, 2)]),
    "nuclear norm": (lambda a: la.norm(a, "nuc"), [TALL]),
}


def _flat(y: Any) -> Any:
    return jnp.concatenate([x.reshape(-1) for x in fnx.tree.leaves(y)])


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_differences(name: str) -> None:
    f, shapes = CASES[name]
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=s) for s in shapes]
    ts = [rng.normal(size=s) for s in shapes]
    with override(x64=True):
        def along(step: float) -> list[Any]:
            return [x + step * t for x, t in zip(xs, ts)]

        value, rate = fnx.jvp(lambda *a: _flat(f(*a)), tuple(xs), tuple(ts))
        weights = rng.normal(size=value.shape)

        def scalar(*a: Any) -> Any:
            return _flat(f(*a)) @ weights
        difference = (np.asarray(_flat(f(*along(STEP)))) - _flat(f(*along(-STEP)))) / (2 * STEP)
        np.testing.assert_allclose(rate, difference, rtol=1e-6, atol=1e-6)

        grad = fnx.jit(fnx.grad(scalar, argnums=tuple(range(len(xs)))))
        total = sum(float((np.asarray(g) * t).sum()) for g, t in zip(grad(*xs), ts))
        np.testing.assert_allclose(total, np.asarray(rate) @ weights, rtol=1e-9)

        _, second = fnx.jvp(grad, tuple(xs), tuple(ts))  # forward over reverse
        for g, high, low in zip(second, grad(*along(STEP)), grad(*along(-STEP))):
            change = (np.asarray(high) - low) / (2 * STEP)
            scale = max(1.0, float(abs(change).max()))
            np.testing.assert_allclose(g / scale, change / scale, rtol=1e-5, atol=1e-6)

        stacked = [np.stack([x, x + t / 8]) for x, t in zip(xs, ts)]
        batched = fnx.vmap(grad)(*stacked)
        for i in range(2):
            for a, b in zip(batched, grad(*[s[i] for s in stacked])):
                np.testing.assert_allclose(a[i], b, rtol=1e-9, atol=1e-9)


def test_gradient_of_det_of_singular_matrices() -> None:
    """It is the matrix of cofactors, for any rank."""
    rng = np.random.default_rng(0)
    for n, rank in ((4, 2), (4, 3), (4, 4), (3, 1), (3, 3)):
        a = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, n))
        minors = [[np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) * (-1)**(i + j)
                   for j in range(n)] for i in range(n)]
        with override(x64=True):
            np.testing.assert_allclose(fnx.grad(la.det)(a), minors, atol=1e-12, rtol=1e-9)


def test_functions_of_all_eigenvalues_have_derivatives_where_some_are_equal() -> None:
    grad = fnx.grad(lambda a: jnp.exp(la.eigvalsh(a)).sum())(jnp.eye(3))
    np.testing.assert_allclose(grad, np.e * np.eye(3), rtol=1e-6)
    grad = fnx.grad(lambda a: (la.eigh(a)[1]**2).sum())(jnp.eye(3))
    assert np.isfinite(grad).all()


def test_what_has_no_derivative_says_so() -> None:
    with pytest.raises(GradError, match="full_matrices=False"):
        fnx.grad(lambda a: la.svd(a)[0].sum())(np.ones((3, 2), np.float32))
    with pytest.raises(GradError, match="geqrf, which has none"):
        fnx.grad(lambda a: la.qr(a, "raw")[0].sum())(np.ones((3, 2), np.float32))
