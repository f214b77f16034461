"""Complex special functions, density estimates, fits, orthogonal matrices, products by groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
import fnx.random as random
from fnx.core.support.errors import ArgumentError, DTypeError, NotBuiltError, ShapeError
from fnx.scipy import special
from fnx.scipy.stats import gaussian_kde

RNG = np.random.default_rng(0)


@pytest.mark.cases(2, of="slow")
def test_the_faddeeva_function(float64: None) -> None:
    x, y = np.meshgrid(np.linspace(-6, 6, 25), np.linspace(-2, 6, 17))
    z = x + 1j * y
    np.testing.assert_allclose(special.wofz(z), scipy.special.wofz(z), rtol=1e-12)
    np.testing.assert_allclose(special.wofz(x[0]), scipy.special.wofz(x[0]), rtol=1e-12)
    slope = fnx.grad(special.wofz, holomorphic=True)(0.5 + 0.25j)
    step = 1e-6
    want = (scipy.special.wofz(0.5 + step + 0.25j) - scipy.special.wofz(0.5 - step + 0.25j)) / (
        2 * step)
    np.testing.assert_allclose(slope, want, rtol=1e-8)


def test_integrals_are_exact_where_their_series_meet(float64: None) -> None:
    x = np.array([0.5, 4.9, 5.03, 5.99, 6.01, 6.5, 9.0, 24.5, 25.4, 39.9, 40.1, 60.0])
    for name in ("dawsn", "expi"):
        want = getattr(scipy.special, name)(x)
        np.testing.assert_allclose(getattr(special, name)(x), want, rtol=1e-13)


def test_comb_of_numbers_that_are_not_whole(float64: None) -> None:
    n = np.array([4.3, 5.0, 7.5])
    np.testing.assert_allclose(special.comb(n, 2.0), scipy.special.comb(n, 2.0), rtol=1e-12)
    assert special.comb(5.0, 2.0) == 10 and fnx.grad(special.comb)(5.0, 2.0) > 4


@pytest.mark.cases(2, of="slow")
def test_complex_covariances_and_polynomials_of_matrices(float64: None) -> None:
    a = RNG.normal(size=(4, 4))
    z = a + 1j * a.T
    for name, x in (("cov", z), ("corrcoef", z), ("poly", a)):
        np.testing.assert_allclose(getattr(jnp, name)(x), getattr(np, name)(x), rtol=1e-9,
                                   atol=1e-12)
    q = random.orthogonal(random.key(0), 3, dtype="complex128")
    np.testing.assert_allclose(q @ q.conj().T, np.eye(3), atol=1e-12)


@pytest.mark.cases(2, of="slow")
def test_spherical_harmonics(float64: None) -> None:
    n, m = [np.asarray(x) for x in zip(*[(n, m) for n in range(9) for m in range(-n, n + 1)])]
    theta, phi = RNG.uniform(-1, 5, n.size), RNG.uniform(0, 6, n.size)
    found = special.sph_harm_y(n, m, theta, phi)
    np.testing.assert_allclose(found, scipy.special.sph_harm_y(n, m, theta, phi), atol=1e-13)
    many = fnx.jit(lambda n, m: special.sph_harm_y(n, m, theta, phi, n_max=8))(n, m)
    np.testing.assert_allclose(many, found, atol=1e-14)
    large = special.sph_harm_y(np.asarray([200]), np.asarray([150]), 1.1, 0.3)
    np.testing.assert_allclose(large[0], scipy.special.sph_harm_y(200, 150, 1.1, 0.3), rtol=1e-10)


@pytest.mark.cases(1)
@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("bandwidth", [None, "silverman", 0.5])
def test_density_estimates(dimensions: int, bandwidth: Any, float64: None) -> None:
    data, points = RNG.normal(size=(dimensions, 20)), RNG.normal(size=(dimensions, 6))
    weights = RNG.uniform(size=20)
    ours, theirs = [kind(data, bandwidth, weights) for kind in (
        gaussian_kde, scipy.stats.gaussian_kde)]
    np.testing.assert_allclose(ours(points), theirs(points), rtol=1e-9)
    np.testing.assert_allclose(ours.logpdf(points), theirs.logpdf(points), rtol=1e-9)
    np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-9)
    np.testing.assert_allclose(ours.integrate_kde(ours), theirs.integrate_kde(theirs), rtol=1e-9)
    mean, cov = np.ones(dimensions), np.eye(dimensions)
    np.testing.assert_allclose(ours.integrate_gaussian(mean, cov),
                               theirs.integrate_gaussian(mean, cov), rtol=1e-9)
    if dimensions == 1:
        np.testing.assert_allclose(ours.integrate_box_1d(-1.0, 0.5),
                                   theirs.integrate_box_1d(-1.0, 0.5), rtol=1e-9)
    np.testing.assert_allclose(fnx.jit(lambda kde, x: kde(x))(ours, points), ours(points))
    draws = ours.resample(random.key(0), (2000,))
    assert draws.shape == (dimensions, 2000)
    np.testing.assert_allclose(draws.mean(1), np.average(data, 1, weights), atol=0.15)


@pytest.mark.cases(1)
@pytest.mark.parametrize("columns", [(), (2,)])
def test_fits(columns: tuple[int, ...], float64: None) -> None:
    x, y, w = RNG.normal(size=15), RNG.normal(size=(15, *columns)), RNG.uniform(size=15)
    np.testing.assert_allclose(jnp.polyfit(x, y, 3), np.polyfit(x, y, 3), rtol=1e-8)
    np.testing.assert_allclose(jnp.polyfit(x, y, 3, w=w), np.polyfit(x, y, 3, w=w), rtol=1e-8)
    for cov in (True, "unscaled"):
        for found, want in zip(jnp.polyfit(x, y, 3, cov=cov), np.polyfit(x, y, 3, cov=cov)):
            np.testing.assert_allclose(np.squeeze(found), np.squeeze(want), rtol=1e-7)
    residuals = jnp.polyfit(x, y, 3, full=True)[1]
    np.testing.assert_allclose(np.squeeze(residuals), np.squeeze(np.polyfit(x, y, 3, full=True)[1]))


@pytest.mark.cases(6)
@pytest.mark.parametrize("n, m", [(4, None), (3, 5), (5, 3), (40, 40)])
def test_orthogonal_matrices(n: int, m: int | None) -> None:
    q = np.asarray(random.orthogonal(random.key(0), n, (2,), m=m))
    assert q.shape == (2, n, m or n)
    inner = q @ q.swapaxes(1, 2) if n <= q.shape[2] else q.swapaxes(1, 2) @ q
    np.testing.assert_allclose(inner, np.broadcast_to(np.eye(inner.shape[1]), inner.shape),
                               atol=1e-5)
    kernel = fnx.nn.initializers.delta_orthogonal()(random.key(1), (3, 3, 2, 4))
    assert np.count_nonzero(np.asarray(kernel).any((2, 3))) == 1


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_normal_vectors(method: str) -> None:
    root = RNG.normal(size=(3, 3)).astype(np.float32)
    cov = root @ root.T
    draws = np.asarray(random.multivariate_normal(random.key(0), np.ones(3), cov, (20_000,),
                                                  method=method))
    np.testing.assert_allclose(np.cov(draws.T), cov, rtol=0.1, atol=0.1)
    np.testing.assert_allclose(draws.mean(0), 1, atol=0.1)


@pytest.mark.cases(2, of="slow")
@settings(max_examples=15)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 3))
def test_products_of_groups_of_rows(sizes: list[int], rest: int) -> None:
    m, rng = sum(sizes) + rest, np.random.default_rng(0)
    x, y = rng.normal(size=(m, 3)), rng.normal(size=(len(sizes), 3, 2))
    want, start = np.zeros((m, 2)), 0
    for group, size in zip(y, sizes):
        want[start:start + size] = x[start:start + size] @ group
        start += size
    found = lax.ragged_dot(x.astype("float32"), y.astype("float32"), np.asarray(sizes))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    roles = lax.RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], [0])
    general = lax.ragged_dot_general(x.astype("float32"), y.astype("float32"), np.asarray(sizes),
                                     roles)
    np.testing.assert_allclose(general, want, rtol=1e-4, atol=1e-5)


def test_groups_of_contracted_and_batch_axes(float64: None) -> None:
    x, y, sizes = RNG.normal(size=(2, 7, 3)), RNG.normal(size=(2, 7, 4)), np.asarray([2, 1, 4])
    roles = lax.RaggedDotDimensionNumbers((([1], [1]), ([0], [0])), [1], [])
    for groups in (sizes, np.stack([sizes, sizes[::-1]])):
        found = np.asarray(lax.ragged_dot_general(x, y, groups, roles))
        for b in range(2):
            ends = np.cumsum(groups if groups.ndim == 1 else groups[b])
            for g, (start, end) in enumerate(zip([0, *ends], ends)):
                np.testing.assert_allclose(found[g, b], x[b, start:end].T @ y[b, start:end])
    roles = lax.RaggedDotDimensionNumbers((([1], [1]), ([0], [0])), [0], [])
    np.testing.assert_allclose(lax.ragged_dot_general(x, y, np.asarray([1, 1]), roles),
                               x.swapaxes(1, 2) @ y)


def test_bad_input() -> None:
    roles = lax.RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], [])
    one, x = np.asarray([1]), np.ones((2, 2))
    for act, kind, part in (
            (lambda: special.sph_harm_y(1.5, 0, 0.0, 0.0), DTypeError, "integers"),
            (lambda: special.sph_harm_y(one, one, 0.0, 0.0, diff_n=1),  # type: ignore
             NotBuiltError, "grad"),
            (lambda: gaussian_kde(1.0), ShapeError, "two elements"),
            (lambda: gaussian_kde(np.ones(3), "scot"), ArgumentError, "scott"),
            (lambda: gaussian_kde(RNG.normal(size=(2, 9)))(np.ones(3)), ShapeError, "2 dimensions"),
            (lambda: gaussian_kde(RNG.normal(size=9)).integrate_box(0, 1), NotBuiltError, "1d"),
            (lambda: lax.ragged_dot(x, x, one), ShapeError, r"\(g, k, n\)"),
            (lambda: lax.ragged_dot_general(x, x, one, roles), ArgumentError, "group axes"),
            (lambda: jnp.polyfit(np.ones(3), np.ones(4), 1), ShapeError, "as many rows"),
            (lambda: random.multivariate_normal(random.key(0), np.ones(2), x, method="qr"),
             ArgumentError, "cholesky")):
        with pytest.raises(kind, match=part):
            act()
