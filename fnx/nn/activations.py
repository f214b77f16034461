"""Activation functions: elementwise functions of floats (integers become float32)."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi, sqrt

import fnx.numpy as jnp
from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import alias, apply, elementwise
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import domain_node
from fnx.core.formulas import elementwise as rows
from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.formulas.formulas import logaddexp
from fnx.core.ir import build, expr
from fnx.core.ir.dtypes import default_width, float64
from fnx.core.ir.expr import Expr, erfc, expm1, where

__all__ = [
    "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh",
    "identity", "leaky_relu", "log1mexp", "log_sigmoid", "mish", "relu", "relu6", "selu",
    "sigmoid", "silu", "soft_sign", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus",
    "swish", "tanh",
]

# ---- formulas of one number -------------------------------------------------------------------

ACTIVATIONS = dict[str, ElementwiseFn]()


def _activation(domain: str = "inexact", weak: bool = False
                ) -> Callable[[Callable[[Expr], Expr]], Callable[[ArrayLike], Array]]:
    """Decorate a formula: make the public function that applies it to the elements of an array.

    Args:
        domain: which operands are converted to what (``core/formulas/elementwise.py``).
        weak: integers become weak floats, as in JAX's arithmetic with Python numbers.
    """
    def decorate(formula: Callable[[Expr], Expr]) -> Callable[[ArrayLike], Array]:
        name = formula.__name__
        fn = ACTIVATIONS[name] = ElementwiseFn(name, domain, formula)

        def call(x: ArrayLike, /) -> Array:
            return apply(fn, _as_weak_float(x) if weak else x)
        call.__name__ = call.__qualname__ = name
        call.__doc__ = formula.__doc__
        return elementwise(fn, imports="fnx")(call)
    return decorate


def _as_weak_float(x: ArrayLike) -> ArrayLike:
    array = jnp.asarray(x)
    return array if array._dtype.is_inexact else Array(
        build.cast(array._node, default_width(float64)), weak=True)


def _softplus(x: Expr) -> Expr:
    return logaddexp(x, x.like(0))


def _relu6(x: Expr) -> Expr:
    return where(6 <= x, 6, where(x <= 0, 0, x))


def _elu(x: Expr, alpha: Expr | float) -> Expr:
    """Return elu. The argument of expm1 is 0 where x > 0, so that nothing overflows."""
    return where(x > 0, x, alpha * expm1(where(x > 0, 0, x)))


@elementwise(rows.SIGMOID, imports="fnx")
def sigmoid(x: ArrayLike, /) -> Array:
    """Return 1 / (1 + exp(-x)).

    >>> print(fnx.nn.sigmoid(0.0))
    0.5
    """
    return apply(rows.SIGMOID, x)


@_activation()
def silu(x: Expr) -> Expr:
    """Return x * sigmoid(x): the sigmoid linear unit, also called swish.

    Source: Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, 2017.

    >>> print(fnx.nn.silu(0.0))
    0.0
    """
    return x * rows.sigmoid(x)


@_activation()
def softplus(x: Expr) -> Expr:
    """Return log(1 + exp(x)), without overflow.

    >>> print(fnx.nn.softplus(-200.0))
    0.0
    """
    return _softplus(x)


@_activation()
def log_sigmoid(x: Expr) -> Expr:
    """Return log(sigmoid(x)), without cancellation.

    >>> print(fnx.nn.log_sigmoid(200.0))
    -0.0
    """
    return -_softplus(-x)


@_activation()
def soft_sign(x: Expr) -> Expr:
    """Return x / (1 + |x|).

    >>> print(fnx.nn.soft_sign(1.0))
    0.5
    """
    return x / (abs(x) + 1)


@_activation(weak=True)
def sparse_plus(x: Expr) -> Expr:
    """Return 0 below -1, x above 1, and between them the parabola that joins smoothly.

    >>> print(fnx.nn.sparse_plus(0.0))
    0.25
    """
    return where(x <= -1, 0, where(x >= 1, x, (x + 1) ** 2 / 4))


@_activation(weak=True)
def sparse_sigmoid(x: Expr) -> Expr:
    """Return 0 below -1, 1 above 1, and a line between: the derivative of ``sparse_plus``.

    >>> print(fnx.nn.sparse_sigmoid(0.0))
    0.5
    """
    return expr.minimum(expr.maximum(x + 1, 0), 2) / 2


@_activation()
def log1mexp(x: Expr) -> Expr:
    """Return log(1 - exp(-x)), accurate near 0 and far from it; NaN for x < 0.

    >>> print(fnx.nn.log1mexp(0.0))
    -inf
    """
    is_small = x < log(2)  # another form on each side of log 2, where the other has finite slope
    return where(is_small, expr.log(-expm1(-where(is_small, x, 0.5))),
                 expr.log1p(-expr.exp(-where(is_small, 1, x))))


@_activation("integer")
def hard_tanh(x: Expr) -> Expr:
    """Clip x to [-1, 1].

    >>> print(fnx.nn.hard_tanh(3.0))
    1.0
    """
    upper_clipped = where(1 < x, 1, x)
    return upper_clipped if x.dtype.kind == "uint" else where(x < -1, -1, upper_clipped)


@_activation(weak=True)
def hard_sigmoid(x: Expr) -> Expr:
    """Return relu6(x + 3) / 6.

    >>> print(fnx.nn.hard_sigmoid(0.0))
    0.5
    """
    return _relu6(x + 3) / 6


@_activation(weak=True)
def hard_silu(x: Expr) -> Expr:
    """Return x * hard_sigmoid(x).

    Source: Howard et al., Searching for MobileNetV3, 2019.

    >>> print(fnx.nn.hard_silu(3.0))
    3.0
    """
    return x * (_relu6(x + 3) / 6)


@_activation()
def mish(x: Expr) -> Expr:
    """Return x * tanh(softplus(x)).

    Source: Misra, Mish: A Self Regularized Non-Monotonic Activation Function, 2019.

    >>> print(fnx.nn.mish(0.0))
    0.0
    """
    return x * expr.tanh(_softplus(x))


@_activation(weak=True)
def selu(x: Expr) -> Expr:
    """Return the scaled elu, which preserves mean 0 and variance 1.

    Source: Klambauer et al., Self-Normalizing Neural Networks, 2017.

    >>> print(fnx.nn.selu(0.0))
    0.0
    """
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return scale * _elu(x, alpha)


@_activation("integer")
def relu(x: Expr) -> Expr:
    """Return max(x, 0). The slope at 0 is 0; NaN propagates.

    >>> print(fnx.nn.relu(-1.0))
    0.0
    """
    return where(x <= 0, 0, x)  # NaN is not <= 0


@_activation(weak=True)
def relu6(x: Expr) -> Expr:
    """Clip x to [0, 6].

    >>> print(fnx.nn.relu6(7.0))
    6.0
    """
    return _relu6(x)


tanh = alias("tanh", jnp.tanh, "nn")
hard_swish, swish = hard_silu, silu


# ---- functions of several arguments -----------------------------------------------------------


def _celu(x: Expr, alpha: Expr) -> Expr:
    return where(x > 0, x, alpha * expm1(where(x > 0, 0, x) / alpha))


def _gelu_tanh(x: Expr) -> Expr:
    return 0.5 * x * (1 + expr.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))


def _gelu_erf(x: Expr) -> Expr:
    return 0.5 * x * erfc(x * -sqrt(0.5))


_docstr = DocTemplate(
    x="an Array, NumPy data or a Python number of any shape; bool and integers become the\n"
      "default float.",
    alpha="minus the limit for large negative x; broadcasts with x.",
    b="the width of the range around 0 where it differs from relu; broadcasts with x.",
    approximate="True computes it by tanh, with an error below 0.0005; False by erf, exactly.",
    returns="An Array of the shape that they broadcast to, of a float dtype.", imports="fnx")
_GELU = ElementwiseFn("gelu", "inexact", _gelu_tanh)
_GELU_ERF = ElementwiseFn("gelu", "inexact", _gelu_erf)
_ELU = ElementwiseFn("elu", "inexact", _elu)
_CELU = ElementwiseFn("celu", "inexact", _celu)


@_docstr("An Array of the shape of x, of a float dtype.",
         ("ArgumentError: ``approximate`` is neither True nor False.",))
def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """Return x times the normal CDF of x: the Gaussian error linear unit.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.

    >>> print(fnx.nn.gelu(0.0))
    0.0
    """
    return apply(_GELU if approximate else _GELU_ERF, x)


@_docstr()
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """Return x for x > 0, else alpha * (exp(x) - 1).

    Source: Clevert, Unterthiner and Hochreiter, Exponential Linear Units, 2015.

    >>> print(fnx.nn.elu(2.0))
    2.0
    """
    return apply(_ELU, x, alpha)


@_docstr()
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """Return x for x > 0, else alpha * (exp(x / alpha) - 1).

    Source: Barron, Continuously Differentiable Exponential Linear Units, 2017.

    >>> print(fnx.nn.celu(2.0))
    2.0
    """
    return apply(_CELU, x, alpha)


@public_api
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Array:
    """Return x for x >= 0, else negative_slope * x.

    Args:
        x: an Array or array-like of any shape and dtype.
        negative_slope: the slope below 0; broadcasts with x.

    Returns:
        An Array of the shape that they broadcast to.

    Source: Maas, Hannun and Ng, Rectifier Nonlinearities Improve Neural Network Acoustic Models,
    2013.

    >>> import fnx
    >>> print(fnx.nn.leaky_relu(-1.0, 0.5))
    -0.5
    """
    array = jnp.asarray(x)
    return jnp.where(array >= 0, array, jnp.multiply(negative_slope, array))


@_docstr()
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """Return (x + sqrt(x**2 + b)) / 2, a smooth relu.

    Source: Barron, Squareplus: A Softplus-Like Algebraic Rectifier, 2021.

    >>> print(fnx.nn.squareplus(0.0))
    1.0
    """
    floats = jnp.asarray(x)
    array = Array(domain_node("inexact", floats), floats.weak)
    return 0.5 * (array + jnp.sqrt(jnp.add(array * array, b)))


@public_api
def glu(x: ArrayLike, axis: int = -1) -> Array:
    """Return the first half along an axis times the sigmoid of the second half.

    Args:
        x: an Array of even length along the axis.
        axis: the axis to halve.

    Returns:
        An Array whose axis is half as long, of a float dtype.

    Raises:
        ShapeError: the length is odd.
        AxisError: the axis is out of range.

    Source: Dauphin et al., Language Modeling with Gated Convolutional Networks, 2017.

    >>> import fnx
    >>> print(fnx.nn.glu(fnx.numpy.asarray([2.0, 0.0])))
    [1.]
    """
    value, gate = jnp.split(x, 2, axis)
    return value * sigmoid(gate)


@public_api
def identity(x: ArrayLike) -> Array:
    """Return x.

    Args:
        x: an Array or array-like of any shape and dtype.

    Returns:
        An Array of the shape and dtype of x.

    >>> import fnx
    >>> print(fnx.nn.identity(2.0))
    2.0
    """
    return jnp.positive(x)
