"""The chi-square distribution, as in ``jax.scipy.stats.chi2``."""

from __future__ import annotations

import math

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.special import gammainc, gammaincc, gammaln
from fnx.scipy.stats.distribution import Distribution, points_df

_chi2 = Distribution(__name__, "0.5, 2.0", df="degrees of freedom.")


def _half_standardized(x: Array, loc: Array, scale: Array) -> Array:
    """Return half the standardized x, at least 0, the start of the support."""
    return jnp.maximum((x - loc) / (2 * scale), 0)


@_chi2(points_df, -0.9431)
def logpdf(x: Array, df: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    half = df / 2
    logp = (half - 1) * jnp.log(z) - z / 2 - gammaln(half) - half * math.log(2)
    return jnp.where(x < loc, -jnp.inf, logp - jnp.log(scale))


@_chi2(points_df, 0.2212)
def cdf(x: Array, df: Array, loc: Array, scale: Array) -> Array:
    return gammainc(df / 2, _half_standardized(x, loc, scale))


@_chi2(points_df, 0.7788)
def sf(x: Array, df: Array, loc: Array, scale: Array) -> Array:
    return gammaincc(df / 2, _half_standardized(x, loc, scale))


pdf = _chi2.exp(logpdf, 0.3894)
logcdf = _chi2.log(cdf, -1.5087)
logsf = _chi2.log(sf, -0.25)
