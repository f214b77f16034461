"""Error, logistic, entropy, Bessel and normal-distribution functions of ``scipy.special``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fnx.nn as nn
import fnx.numpy as jnp
from fnx.core.array import arguments, bessel, special
from fnx.core.array import elementwise as basic
from fnx.core.array import gamma as gammas
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.documented import Family
from fnx.core.array.operate import apply, elementwise
from fnx.core.array.promotion import in_domain, promoted
from fnx.core.array.public import asarray
from fnx.core.array.rounded import rounded_once
from fnx.core.expr import Expr

__all__ = [
    "boxcox", "boxcox1p", "entr", "erf", "erfc", "erfcx", "erfinv", "expit", "i0", "i0e", "i1",
    "i1e", "kl_div", "log_ndtr", "log_softmax", "logit", "logsumexp", "ndtr", "ndtri", "rel_entr",
    "softmax", "xlog1py", "xlogy",
]

AT = "fnx.scipy.special as special"

_family = Family(
    x="an Array or what ``asarray`` takes, of any shape.", p="probabilities, from 0 to 1.",
    q="of any shape that broadcasts.", lmbda="the power.",
    returns="An Array of the shape that they broadcast to, of a float dtype.", at=AT,
    raises=("ShapeError: the shapes do not broadcast.",), wrap=rounded_once)


@elementwise(special.ERF, at=AT)
def erf(x: ArrayLike) -> Array:
    """Return the error function. core/array/special.py describes the method.

    >>> print(special.erf(0.0))
    0.0
    """
    return apply(special.ERF, x)


@elementwise(special.ERFC, at=AT)
def erfc(x: ArrayLike) -> Array:
    """Return 1 - erf(x), without cancellation for large x.

    >>> print(special.erfc(0.0))
    1.0
    """
    return apply(special.ERFC, x)


@elementwise(special.ERF_INV, at=AT)
def erfinv(x: ArrayLike) -> Array:
    """Return the inverse of erf; NaN outside of [-1, 1].

    >>> print(special.erfinv(0.0))
    0.0
    """
    return apply(special.ERF_INV, x)


@elementwise(bessel.I0E, at=AT)
def i0e(x: ArrayLike) -> Array:
    """Return exp(-abs(x)) times the modified Bessel function of order 0.

    >>> print(special.i0e(0.0).round(6))
    1.0
    """
    return apply(bessel.I0E, x)


@elementwise(bessel.I1E, at=AT)
def i1e(x: ArrayLike) -> Array:
    """Return exp(-abs(x)) times the modified Bessel function of order 1.

    >>> print(special.i1e(0.0))
    0.0
    """
    return apply(bessel.I1E, x)


i0 = jnp.i0


@elementwise(bessel.I1, at=AT)
def i1(x: ArrayLike) -> Array:
    """Return the modified Bessel function of order 1.

    >>> print(special.i1(0.0))
    0.0
    """
    return apply(bessel.I1, x)


@elementwise(gammas.XLOGY, at=AT)
def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """Return x log(y); 0 where x is 0.

    >>> print(special.xlogy(0.0, 0.0))
    0.0
    """
    return apply(gammas.XLOGY, x, y)


@elementwise(gammas.XLOG1PY, at=AT)
def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """Return x log(1 + y); 0 where x is 0.

    >>> print(special.xlog1py(0.0, -1.0))
    0.0
    """
    return apply(gammas.XLOG1PY, x, y)


@elementwise(basic.SIGMOID, at=AT)
def expit(x: ArrayLike) -> Array:
    """Return 1 / (1 + exp(-x)).

    >>> print(special.expit(0.0))
    0.5
    """
    return apply(basic.SIGMOID, x)


def _float(x: ArrayLike) -> Array:
    return Array(in_domain("inexact", x))


def _kept(x: ArrayLike) -> Array:
    """Convert x to a float dtype and preserve its weak type."""
    return Array(in_domain("inexact", x), asarray(x).weak)


@_family()
def logit(x: ArrayLike) -> Array:
    """Return log(x / (1 - x)).

    >>> print(special.logit(0.5))
    0.0
    """
    p = _kept(x)
    return jnp.log(p) - jnp.log1p(-p)


@_family()
def entr(x: ArrayLike) -> Array:
    """Return -x log(x); 0 at 0, -inf below.

    >>> print(special.entr(1.0))
    -0.0
    """
    p = _kept(x)
    return jnp.where(p < 0, -math.inf, -xlogy(p, p))


def _pair(name: str, p: ArrayLike, q: ArrayLike) -> tuple[Array, Array]:
    (a, b), _ = promoted("inexact", name, (p, q))
    return Array(a), Array(b)


@_family()
def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """Return p log(p / q); 0 where p is 0, inf where only q is 0.

    >>> print(special.rel_entr(0.5, 0.5))
    0.0
    """
    x, y = _pair("rel_entr", p, q)
    both, zero = (x > 0) & (y > 0), (x == 0) & (y >= 0)
    safe_x, safe_y = jnp.where(both, x, 1), jnp.where(both, y, 1)
    return jnp.where(both, safe_x * (jnp.log(safe_x) - jnp.log(safe_y)),
                     jnp.where(zero, 0, math.inf))


@_family()
def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """Return p log(p / q) - p + q.

    >>> print(special.kl_div(0.5, 0.5))
    0.0
    """
    x, y = _pair("kl_div", p, q)
    return rel_entr(x, y) - x + y


@_family()
def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """Return (x**lmbda - 1) / lmbda; log(x) where lmbda is 0.

    >>> print(special.boxcox(2.0, 1.0))
    1.0
    """
    a, k = _pair("boxcox", x, lmbda)
    zero = k == 0
    return jnp.where(zero, jnp.log(a), jnp.expm1(xlogy(k, a)) / jnp.where(zero, 1, k))


@_family()
def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """Return ((1 + x)**lmbda - 1) / lmbda; log(1 + x) where lmbda is 0.

    >>> print(special.boxcox1p(1.0, 1.0))
    1.0
    """
    a, k = _pair("boxcox1p", x, lmbda)
    zero = k == 0
    return jnp.where(zero, jnp.log1p(a), jnp.expm1(xlog1py(k, a)) / jnp.where(zero, 1, k))


# ---- the normal distribution --------------------------------------------------------------------


@_family()
def ndtr(x: ArrayLike) -> Array:
    """Return the CDF of the standard normal distribution.

    >>> print(special.ndtr(0.0))
    0.5
    """
    return 0.5 * erfc(_float(x) * -math.sqrt(0.5))


@_family()
def ndtri(p: ArrayLike) -> Array:
    """Return the inverse of ndtr, by Newton steps on its logarithm.

    >>> print(special.ndtri(0.5))
    0.0
    """
    q = _float(p)
    upper = q > 0.5
    tail = jnp.where(upper, 1 - q, q)
    inside = (tail > 0) & (tail <= 0.5)
    safe = jnp.where(inside, tail, 0.25)
    w = jnp.sqrt(-2 * jnp.log(safe))
    # Abramowitz and Stegun 26.2.23, then Newton steps on log(ndtr(x)) = log(tail)
    top = 2.515517 + w * (0.802853 + w * 0.010328)
    x = -(w - top / (1 + w * (1.432788 + w * (0.189269 + w * 0.001308))))
    for _ in range(3):
        ratio = erfcx(-x * math.sqrt(0.5))
        error = jnp.log(0.5 * ratio) - 0.5 * x * x - jnp.log(safe)
        x = x - error * ratio * math.sqrt(math.pi / 2)
    x = jnp.where(q == 0.5, (q - 0.5) * math.sqrt(2 * math.pi), x)
    out = jnp.where(upper, -x, x)
    out = jnp.where(q == 0, -math.inf, jnp.where(q == 1, math.inf, out))
    return jnp.where(inside | (q == 0) | (q == 1), out, np.nan)


@_family(series_order="accepted as JAX's; the tail is by erfcx here.")
def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """Return the logarithm of ndtr(x), without underflow.

    >>> print(special.log_ndtr(0.0))
    -0.6931472
    """
    arguments.integer("series_order", series_order)
    a = _float(x)
    low = a < -1
    tail = jnp.where(low, a, -1)
    far = jnp.log(0.5 * erfcx(-tail * math.sqrt(0.5))) - 0.5 * tail * tail
    near = jnp.log1p(-0.5 * erfc(jnp.where(low, -1, a) * math.sqrt(0.5)))
    return jnp.where(low, far, near)


@_family()
def erfcx(x: ArrayLike) -> Array:
    """Return exp(x**2) erfc(x), which does not underflow.

    >>> print(special.erfcx(0.0))
    1.0
    """
    a = _float(x)
    # where, not abs and clip: their derivative at 0 is the mean of both slopes
    size, most = jnp.where(a < 0, -a, a), 1e18 if a.dtype.itemsize < 8 else 1e150
    size = jnp.where(size > most, most, size)
    scaled = Array(special.scaled_erfc(Expr(size._node)).node)
    below = a < 0
    inside = jnp.where(below, a, 0)
    return jnp.where(jnp.isnan(a), a, jnp.where(
        below, 2 * jnp.exp(inside * inside) - scaled, jnp.where(a == math.inf, 0, scaled)))


# ---- reductions ---------------------------------------------------------------------------------

_folds = Family(
    x="an Array or what ``asarray`` takes.", a="an Array or what ``asarray`` takes.",
    axis="an axis or several; None folds all.", b="factors of the exponentials.",
    return_sign="give the sign too.", where="a mask of the elements that count.",
    returns="An Array of a float dtype.", at=AT,
    raises=("AxisError: an axis outside of the array.",))


@_folds()
def logsumexp(a: ArrayLike, axis: AxisLike = None, b: ArrayLike | None = None,
              keepdims: bool = False, return_sign: bool = False,
              where: ArrayLike | None = None) -> Any:
    """Return the logarithm of the sum of exponentials, without overflow.

    >>> print(special.logsumexp(jnp.zeros(2)))
    0.6931472
    """
    arguments.flag("return_sign", return_sign)
    if not return_sign:
        return nn.logsumexp(a, axis, b, keepdims, where)
    x = _float(a)
    kept = x if where is None else jnp.where(where, x, -math.inf)
    top = jnp.max(kept, axis, keepdims=True)
    top = jnp.where(jnp.isfinite(top), top, 0)
    total = jnp.sum(jnp.exp(kept - top) * (1 if b is None else b), axis, keepdims=True)
    size = jnp.log(jnp.abs(total)) + top
    both = size, jnp.sign(total)
    return both if keepdims else tuple([y.squeeze(axis) for y in both])


@_folds("An Array of the shape of x, of a float dtype.")
def softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """Return the exponentials divided by their sum.

    >>> print(special.softmax(jnp.zeros(2)))
    [0.5 0.5]
    """
    return nn.softmax(x, axis)


@_folds("An Array of the shape of x, of a float dtype.")
def log_softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """Return the logarithm of softmax.

    >>> print(special.log_softmax(jnp.zeros(2)))
    [-0.6931472 -0.6931472]
    """
    return nn.log_softmax(x, axis)
