"""The beta distribution, as in ``jax.scipy.stats.beta``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.special import betainc, betaln, xlog1py, xlogy
from fnx.scipy.stats.distribution import Distribution, points_ab

_beta = Distribution(__name__, "0.5, 2.0, 2.0", a="above 0.", b="above 0.")


@_beta(points_ab, 0.4055)
def logpdf(x: Array, a: Array, b: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    logp = xlogy(a - 1, z) + xlog1py(b - 1, -z) - betaln(a, b) - jnp.log(scale)
    logp = jnp.where((x > loc + scale) | (x < loc), -jnp.inf, logp)
    return jnp.where((a <= 0) | (b <= 0) | (scale <= 0), jnp.nan, logp)


@_beta(points_ab, 0.5)
def cdf(x: Array, a: Array, b: Array, loc: Array, scale: Array) -> Array:
    return betainc(a, b, jnp.clip((x - loc) / scale, 0, 1))


@_beta(points_ab, 0.5)
def sf(x: Array, a: Array, b: Array, loc: Array, scale: Array) -> Array:
    return betainc(b, a, 1 - jnp.clip((x - loc) / scale, 0, 1))


pdf = _beta.exp(logpdf, 1.5)
logcdf = _beta.log(cdf, -0.6931)
logsf = _beta.log(sf, -0.6931)
