"""Activations, softmax, pooling, attention and initializers, as in ``jax.nn``.

>>> import fnx
>>> fnx.nn.softmax(fnx.numpy.asarray([0.0, 0.0]))
Array([0.5, 0.5], dtype=float32)
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.nn import activations, initializers, normalization
from fnx.nn.activations import *
from fnx.nn.normalization import *

if TYPE_CHECKING:  # loaded on first use
    from fnx.nn.attention import *
    from fnx.nn.pooling import *

_HOMES = {"dot_product_attention": "fnx.nn.attention", **dict.fromkeys(
    ("avg_pool", "max_pool", "min_pool"), "fnx.nn.pooling")}

__all__ = ["initializers", *activations.__all__, *normalization.__all__, *_HOMES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules=_HOMES)
