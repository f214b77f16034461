"""The geometric distribution: trials up to the first success, as in ``jax.scipy.stats.geom``."""

from __future__ import annotations

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.scipy.special import xlog1py
from fnx.scipy.stats.distribution import Distribution, counts_p

_geom = Distribution(__name__, "2.0, 0.25")


@_geom(counts_p, -1.674)
def logpmf(k: Array, p: Array, loc: Array) -> Array:
    y = k - loc
    return jnp.where(y <= 0, -jnp.inf, xlog1py(y - 1, -p) + jnp.log(p))


pmf = _geom.exp(logpmf, 0.1875)
