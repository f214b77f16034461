"""Student's t distribution, as in ``jax.scipy.stats.t``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.special import gammaln
from fnx.scipy.stats.distribution import Distribution, points_df

_t = Distribution(__name__, "0.5, 2.0", df="degrees of freedom; above 0.")


@_t(points_df, -1.2164)
def logpdf(x: Array, df: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    log_norm = gammaln(df / 2) - gammaln(df / 2 + 0.5) + jnp.log(jnp.pi * df * scale * scale) / 2
    return -log_norm - (df / 2 + 0.5) * jnp.log1p(z * z / df)


pdf = _t.exp(logpdf, 0.2963)
