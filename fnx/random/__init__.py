"""Random numbers from explicit keys: Threefry-2x32 in counter mode, with JAX's bits.

The same key gives the same bits as JAX 0.10 (``jax_threefry_partitionable``, its default), and
from these the same uniform, normal, ... numbers up to the last places of log. Element i of an
array depends on the key and i only, so random work fuses like any elementwise work.

A key is a uint32 array of shape (2,). Never use one key twice: ``split`` it.

>>> import fnx.random
>>> key = fnx.random.key(0)
>>> fnx.random.uniform(key, (2,))
Array([0.947667 , 0.9785799], dtype=float32)
"""

from typing import TYPE_CHECKING

from fnx.core.errors import module_face
from fnx.random.distributions import (
    categorical,
    exponential,
    gumbel,
    laplace,
    logistic,
    normal,
    truncated_normal,
)
from fnx.random.draws import (
    bernoulli,
    bits,
    rademacher,
    randint,
    uniform,
)
from fnx.random.keys import (
    PRNGKey,
    fold_in,
    key,
    key_data,
    split,
    wrap_key_data,
)
from fnx.random.orders import choice, permutation

__all__ = [
    "PRNGKey", "bernoulli", "bits", "categorical", "choice", "exponential", "fold_in", "gumbel",
    "key", "key_data", "laplace", "logistic", "normal", "permutation", "rademacher", "randint",
    "split", "truncated_normal", "uniform", "wrap_key_data",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_face(__name__, __all__)
