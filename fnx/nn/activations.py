"""Activation functions: elementwise, of floats (integers become float32)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fnx.numpy as jnp
from fnx.core import build, ops
from fnx.core.array import elementwise, special
from fnx.core.array.array import Array, public
from fnx.core.array.elementwise import Function
from fnx.core.array.operate import apply
from fnx.core.uop import UOp

Activation = Callable[[Any], Array]


# ---- in terms of nodes ------------------------------------------------------------------------


def _relu(x: UOp) -> UOp:
    """The comparison is <= so that NaN stays NaN, and the slope at 0 is 0."""
    zero = build.like(x, 0)
    return build.where(build.le(x, zero), zero, x)


def _softplus(x: UOp) -> UOp:
    return elementwise.logaddexp(x, build.like(x, 0))


def _log_sigmoid(x: UOp) -> UOp:
    return build.neg(_softplus(build.neg(x)))


def _silu(x: UOp) -> UOp:
    return build.mul(x, elementwise.sigmoid(x))


def _soft_sign(x: UOp) -> UOp:
    return build.div(x, build.add(build.elementwise(ops.ABS, x), build.like(x, 1)))


def _relu6(x: UOp) -> UOp:
    six = build.like(x, 6)
    return build.where(build.le(six, x), six, _relu(x))


def _hard_tanh(x: UOp) -> UOp:
    one = build.like(x, 1)
    high = build.where(build.lt(one, x), one, x)
    return build.where(build.lt(x, build.neg(one)), build.neg(one), high)


def _hard_sigmoid(x: UOp) -> UOp:
    return build.div(_relu6(build.add(x, build.like(x, 3))), build.like(x, 6))


def _hard_swish(x: UOp) -> UOp:
    return build.mul(x, _hard_sigmoid(x))


def _mish(x: UOp) -> UOp:
    return build.mul(x, build.elementwise(ops.TANH, _softplus(x)))


def _selu(x: UOp) -> UOp:
    """Constants: Klambauer et al., Self-Normalizing Neural Networks, 2017."""
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return build.mul(build.like(x, scale), _elu(x, build.like(x, alpha)))


def _elu(x: UOp, alpha: UOp) -> UOp:
    """The argument of expm1 is kept where it matters, so that nothing overflows."""
    positive = build.lt(build.like(x, 0), x)
    below = build.where(positive, build.like(x, 0), x)
    return build.where(positive, x, build.mul(alpha, build.elementwise(ops.EXPM1, below)))


def _celu(x: UOp, alpha: UOp) -> UOp:
    positive = build.lt(build.like(x, 0), x)
    below = build.div(build.where(positive, build.like(x, 0), x), alpha)
    return build.where(positive, x, build.mul(alpha, build.elementwise(ops.EXPM1, below)))


def _gelu_tanh(x: UOp) -> UOp:
    """Hendrycks and Gimpel, Gaussian Error Linear Units, 2016."""
    cube = build.mul(build.mul(x, x), x)
    inner = build.add(x, build.mul(build.like(x, 0.044715), cube))
    t = build.elementwise(ops.TANH, build.mul(build.like(x, math.sqrt(2 / math.pi)), inner))
    half = build.like(x, 0.5)
    return build.mul(x, build.mul(half, build.add(build.like(x, 1), t)))


def _gelu_erf(x: UOp) -> UOp:
    tail = special.erfc(build.mul(x, build.like(x, -math.sqrt(0.5))))
    return build.mul(build.mul(build.like(x, 0.5), x), tail)


# ---- the public rows --------------------------------------------------------------------------


def _activation(name: str, f: Callable[[UOp], UOp], text: str, argument: str, value: str
                ) -> Activation:
    row = Function(name, "inexact", f)

    def activation(x: Any, /) -> Array:
        return apply(row, x)
    activation.__name__ = activation.__qualname__ = name
    activation.__doc__ = f"""{text}

    >>> import fnx
    >>> print(fnx.nn.{name}({argument}))
    {value}
    """
    return activation


# fmt: off
sigmoid = _activation("sigmoid", elementwise.sigmoid, "1 / (1 + exp(-x)).", "0.0", "0.5")
silu = _activation("silu", _silu, "x * sigmoid(x).", "0.0", "0.0")
softplus = _activation("softplus", _softplus, "log(1 + exp(x)).", "-200.0", "0.0")
log_sigmoid = _activation("log_sigmoid", _log_sigmoid, "log(sigmoid(x)).", "200.0", "-0.0")
soft_sign = _activation("soft_sign", _soft_sign, "x / (1 + |x|).", "1.0", "0.5")
tanh = _activation("tanh", lambda x: build.elementwise(ops.TANH, x), "Hyperbolic tangent.",
                   "0.0", "0.0")
hard_tanh = _activation("hard_tanh", _hard_tanh, "x cut to [-1, 1].", "3.0", "1.0")
hard_sigmoid = _activation("hard_sigmoid", _hard_sigmoid, "relu6(x + 3) / 6.", "0.0", "0.5")
hard_swish = _activation("hard_swish", _hard_swish, "x * hard_sigmoid(x).", "3.0", "3.0")
mish = _activation("mish", _mish, "x * tanh(softplus(x)).", "0.0", "0.0")
selu = _activation("selu", _selu, "Scaled elu, which keeps mean 0 and variance 1.", "0.0", "0.0")
hard_silu, swish = hard_swish, silu
# fmt: on

_RELU = Function("relu", "any", _relu)
_RELU6 = Function("relu6", "any", _relu6)
_GELU = Function("gelu", "inexact", _gelu_tanh)
_GELU_ERF = Function("gelu", "inexact", _gelu_erf)
_ELU = Function("elu", "inexact", _elu)
_CELU = Function("celu", "inexact", _celu)


def relu(x: Any, /) -> Array:
    """The larger of x and 0. Its slope at 0 is 0; NaN stays NaN.

    >>> import fnx
    >>> print(fnx.nn.relu(-1.0))
    0.0
    """
    return apply(_RELU, x)


def relu6(x: Any, /) -> Array:
    """x cut to [0, 6].

    >>> import fnx
    >>> print(fnx.nn.relu6(7.0))
    6.0
    """
    return apply(_RELU6, x)


def gelu(x: Any, approximate: bool = True) -> Array:
    """x times the normal distribution function of x, by tanh, or exactly by erf.

    >>> import fnx
    >>> print(fnx.nn.gelu(0.0))
    0.0
    """
    return apply(_GELU if approximate else _GELU_ERF, x)


def elu(x: Any, alpha: Any = 1.0) -> Array:
    """x above 0, alpha * (exp(x) - 1) below.

    >>> import fnx
    >>> print(fnx.nn.elu(2.0))
    2.0
    """
    return apply(_ELU, x, alpha)


def celu(x: Any, alpha: Any = 1.0) -> Array:
    """x above 0, alpha * (exp(x / alpha) - 1) below.

    >>> import fnx
    >>> print(fnx.nn.celu(2.0))
    2.0
    """
    return apply(_CELU, x, alpha)


@public
def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Array:
    """x above 0, negative_slope * x below.

    >>> import fnx
    >>> print(fnx.nn.leaky_relu(-1.0, 0.5))
    -0.5
    """
    array = jnp.asarray(x)
    return jnp.where(array >= 0, array, negative_slope * array)


@public
def squareplus(x: Any, b: Any = 4.0) -> Array:
    """(x + sqrt(x**2 + b)) / 2.

    >>> import fnx
    >>> print(fnx.nn.squareplus(0.0))
    1.0
    """
    array = jnp.asarray(x)
    return 0.5 * (array + jnp.sqrt(array * array + b))


@public
def glu(x: Any, axis: int = -1) -> Array:
    """The first half along an axis, gated by the sigmoid of the second.

    >>> import fnx
    >>> print(fnx.nn.glu(fnx.numpy.asarray([2.0, 0.0])))
    [1.]
    """
    value, gate = jnp.split(x, 2, axis)
    return value * sigmoid(gate)


def identity(x: Any) -> Array:
    """x itself.

    >>> import fnx
    >>> print(fnx.nn.identity(2.0))
    2.0
    """
    return jnp.positive(x)
