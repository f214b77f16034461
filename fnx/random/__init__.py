"""Random numbers from explicit keys: Threefry-2x32 in counter mode, with JAX's bits.

The same key gives the same bits as JAX 0.10, whatever ``jax_threefry_partitionable`` is, and
from these the same uniform, normal, ... numbers up to the rounding of log. Element i of an array
depends only on the key and i, so random numbers fuse like any elementwise computation.

A key is a scalar Array of the dtype ``key<fry>`` (``random.key``), or its two uint32 words
(``PRNGKey``). Never use one key twice: ``split`` it.

>>> import fnx.random
>>> key = fnx.random.key(0)
>>> fnx.random.uniform(key, (2,))
Array([0.947667 , 0.9785799], dtype=float32)
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.random import inverse_cdf, keys, permutations, uniform_samplers
from fnx.random.inverse_cdf import *
from fnx.random.keys import *
from fnx.random.permutations import *
from fnx.random.uniform_samplers import *

if TYPE_CHECKING:  # loaded on first use
    from fnx.random.continuous import *
    from fnx.random.discrete import *

_LAZY_MODULES = {
    "discrete": (
        "binomial", "geometric", "multinomial", "poisson"),
    "continuous": (
        "ball", "beta", "cauchy", "chisquare", "dirichlet", "double_sided_maxwell", "f",
        "gamma", "generalized_normal", "loggamma", "lognormal", "maxwell",
        "multivariate_normal", "orthogonal", "pareto", "rayleigh", "t", "triangular",
        "wald", "weibull_min"),
}
_HOMES = {name: f"fnx.random.{room}" for room, names in _LAZY_MODULES.items() for name in names}

__all__ = [*inverse_cdf.__all__, *uniform_samplers.__all__, *keys.__all__, *permutations.__all__,
           *_HOMES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules=_HOMES)
