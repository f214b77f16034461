"""The gamma distribution, as in ``jax.scipy.stats.gamma``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.scipy.special import gammainc, gammaincc, gammaln, xlogy
from fnx.scipy.stats.distribution import Distribution, promote_floats

_gamma = Distribution(__name__, "0.5, 2.0", a="the shape parameter.")


def _points(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> list[Array]:
    return promote_floats(x, a, loc, scale)


def _standardized(x: Array, loc: Array, scale: Array) -> Array:
    """Return the standardized x, at least 0, the start of the support."""
    return jnp.maximum((x - loc) / scale, 0)


@_gamma(_points, -1.1931)
def logpdf(x: Array, a: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    logp = xlogy(a - 1, z) - z - gammaln(a) - jnp.log(scale)
    return jnp.where(x < loc, -jnp.inf, logp)


@_gamma(_points, 0.0902)
def cdf(x: Array, a: Array, loc: Array, scale: Array) -> Array:
    return gammainc(a, _standardized(x, loc, scale))


@_gamma(_points, 0.9098)
def sf(x: Array, a: Array, loc: Array, scale: Array) -> Array:
    return gammaincc(a, _standardized(x, loc, scale))


pdf = _gamma.exp(logpdf, 0.3033)
logcdf = _gamma.log(cdf, -2.4057)
logsf = _gamma.log(sf, -0.0945)
