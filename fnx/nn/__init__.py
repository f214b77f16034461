"""Activations, softmax and initializers of neural networks, as in ``jax.nn``.

>>> import fnx
>>> fnx.nn.softmax(fnx.numpy.asarray([0.0, 0.0]))
Array([0.5, 0.5], dtype=float32)
"""

from typing import TYPE_CHECKING

from fnx.core.errors import module_face
from fnx.nn import initializers
from fnx.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    squareplus,
    swish,
    tanh,
)
from fnx.nn.normalize import log_softmax, logsumexp, one_hot, softmax, standardize

__all__ = [
    "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh",
    "identity", "initializers", "leaky_relu", "log_sigmoid", "log_softmax", "logsumexp", "mish",
    "one_hot", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus",
    "squareplus", "standardize", "swish", "tanh",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_face(__name__, __all__)
