"""Error, logistic, entropy, Bessel and normal-distribution functions of ``scipy.special``."""

from __future__ import annotations

import math

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import apply, elementwise_family
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.float32_compute import compute_in_float32
from fnx.core.array.promotion import as_real, domain_node, promote_arrays
from fnx.core.formulas import bessel, error_functions
from fnx.core.formulas import elementwise as basic
from fnx.core.formulas import gamma as gammas
from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.ir.expr import Expr
from fnx.core.support.process import lazy_import

of_complex = lazy_import("fnx.lax.complex_special_functions")

__all__ = [
    "boxcox", "boxcox1p", "entr", "erf", "erfc", "erfcx", "erfinv", "expit", "i0", "i0e", "i1",
    "i1e", "kl_div", "log_ndtr", "logit", "ndtr", "ndtri", "rel_entr", "xlog1py", "xlogy",
]

IMPORTS = "fnx.scipy.special as special"

_docstr = DocTemplate(
    x="an Array or array-like.", p="probabilities, from 0 to 1.",
    q="any shape that broadcasts.", lmbda="the power.",
    returns="An Array of the broadcast shape, of a float dtype.", imports=IMPORTS,
    raises=("ShapeError: the shapes do not broadcast.",), wrap=compute_in_float32)


@elementwise_family(IMPORTS)
def _unary(fn: ElementwiseFn, x: ArrayLike) -> Array:
    return apply(fn, x)


@elementwise_family(IMPORTS)
def _binary(fn: ElementwiseFn, x: ArrayLike, y: ArrayLike) -> Array:
    return apply(fn, x, y)


erf = _unary(
    error_functions.ERF, "erf",
    "Return the error function. core/formulas/error_functions.py describes the method.",
    "print(special.erf(0.0))", "0.0")
erfc = _unary(
    error_functions.ERFC, "erfc", "Return 1 - erf(x), without cancellation for large x.",
    "print(special.erfc(0.0))", "1.0")
erfinv = _unary(
    error_functions.ERF_INV, "erfinv", "Return the inverse of erf; NaN outside of [-1, 1].",
    "print(special.erfinv(0.0))", "0.0")
i0e = _unary(
    bessel.I0E, "i0e", "Return exp(-abs(x)) times the modified Bessel function of order 0.",
    "print(special.i0e(0.0).round(6))", "1.0")
i1e = _unary(
    bessel.I1E, "i1e", "Return exp(-abs(x)) times the modified Bessel function of order 1.",
    "print(special.i1e(0.0))", "0.0")
i0 = jnp.i0
i1 = _unary(
    bessel.I1, "i1", "Return the modified Bessel function of order 1.",
    "print(special.i1(0.0))", "0.0")
xlogy = _binary(
    gammas.XLOGY, "xlogy", "Return x log(y); 0 where x is 0.",
    "print(special.xlogy(0.0, 0.0))", "0.0")
xlog1py = _binary(
    gammas.XLOG1PY, "xlog1py", "Return x log(1 + y); 0 where x is 0.",
    "print(special.xlog1py(0.0, -1.0))", "0.0")
expit = _unary(
    basic.SIGMOID, "expit", "Return 1 / (1 + exp(-x)).",
    "print(special.expit(0.0))", "0.5")


def _float_keep_weak(x: ArrayLike, domain: str = "inexact") -> Array:
    """Convert x to a float dtype and preserve its weak type."""
    return Array(domain_node(domain, x), asarray(x).weak)


@_docstr()
def logit(x: ArrayLike) -> Array:
    """Return log(x / (1 - x)).

    >>> print(special.logit(0.5))
    0.0
    """
    p = _float_keep_weak(x)
    return jnp.log(p) - jnp.log1p(-p)


@_docstr()
def entr(x: ArrayLike) -> Array:
    """Return -x log(x); 0 at 0, -inf below.

    >>> print(special.entr(1.0))
    -0.0
    """
    p = _float_keep_weak(x, "real")
    return jnp.where(p < 0, -math.inf, -xlogy(p, p))


@_docstr()
def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """Return p log(p / q); 0 where p is 0, inf where only q is 0.

    >>> print(special.rel_entr(0.5, 0.5))
    0.0
    """
    x, y = promote_arrays("rel_entr", p, q, domain="real", broadcast=True)
    both, zero = (x > 0) & (y > 0), (x == 0) & (y >= 0)
    safe_x, safe_y = jnp.where(both, x, 1), jnp.where(both, y, 1)
    return jnp.where(both, safe_x * (jnp.log(safe_x) - jnp.log(safe_y)),
                     jnp.where(zero, 0, math.inf))


@_docstr()
def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """Return p log(p / q) - p + q.

    >>> print(special.kl_div(0.5, 0.5))
    0.0
    """
    x, y = promote_arrays("kl_div", p, q, domain="real", broadcast=True)
    return rel_entr(x, y) - x + y


@_docstr()
def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """Return (x**lmbda - 1) / lmbda; log(x) where lmbda is 0.

    >>> print(special.boxcox(2.0, 1.0))
    1.0
    """
    a, k = promote_arrays("boxcox", x, lmbda, broadcast=True)
    zero = k == 0
    return jnp.where(zero, jnp.log(a), jnp.expm1(xlogy(k, a)) / jnp.where(zero, 1, k))


@_docstr()
def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """Return ((1 + x)**lmbda - 1) / lmbda; log(1 + x) where lmbda is 0.

    >>> print(special.boxcox1p(1.0, 1.0))
    1.0
    """
    a, k = promote_arrays("boxcox1p", x, lmbda, broadcast=True)
    zero = k == 0
    return jnp.where(zero, jnp.log1p(a), jnp.expm1(xlog1py(k, a)) / jnp.where(zero, 1, k))


# ---- the normal distribution --------------------------------------------------------------------


@_docstr()
def ndtr(x: ArrayLike) -> Array:
    """Return the CDF of the standard normal distribution.

    >>> print(special.ndtr(0.0))
    0.5
    """
    return 0.5 * erfc(as_real(x) * -math.sqrt(0.5))


@_docstr()
def ndtri(p: ArrayLike) -> Array:
    """Return the inverse of ndtr.

    Source: the inverse of erf, and in the tails Newton steps on the logarithm of ndtr.

    >>> print(special.ndtri(0.5))
    0.0
    """
    q = as_real(p)
    upper = q > 0.5
    tail = jnp.where(upper, 1 - q, q)
    is_far = (tail > 0) & (tail < 0.1)
    safe = jnp.where(is_far, tail, 0.05)
    w = jnp.sqrt(-2 * jnp.log(safe))
    # Abramowitz and Stegun 26.2.23, then Newton steps on log(ndtr(x)) = log(tail)
    top = 2.515517 + w * (0.802853 + w * 0.010328)
    x = -(w - top / (1 + w * (1.432788 + w * (0.189269 + w * 0.001308))))
    for _ in range(3 if q.dtype.itemsize > 4 else 2):  # each doubles the digits; 3 are known
        ratio = erfcx(-x * math.sqrt(0.5))
        error = jnp.log(0.5 * ratio) - 0.5 * x * x - jnp.log(safe)
        x = x - error * ratio * math.sqrt(math.pi / 2)
    # 2 * q - 1 loses no digit there; erfinv is infinite at 0 and 1, and NaN outside
    near = math.sqrt(2) * erfinv(jnp.where(is_far, 0, 2 * q - 1))
    return jnp.where(is_far, jnp.where(upper, -x, x), near)


@_docstr(series_order="ignored; erfcx computes the tail.")
def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """Return the logarithm of ndtr(x), without underflow.

    >>> print(special.log_ndtr(0.0))
    -0.6931472
    """
    arguments.check_int("series_order", series_order)
    a = as_real(x)
    low = a < -1
    tail = jnp.where(low, a, -1)
    far = jnp.log(0.5 * erfcx(-tail * math.sqrt(0.5))) - 0.5 * tail * tail
    near = jnp.log1p(-0.5 * erfc(jnp.where(low, -1, a) * math.sqrt(0.5)))
    return jnp.where(low, far, near)


@_docstr()
def erfcx(x: ArrayLike) -> Array:
    """Return exp(x**2) erfc(x), which does not underflow.

    >>> print(special.erfcx(0.0))
    1.0
    """
    z = asarray(x)
    if z._dtype.is_complex:
        w: Array = of_complex.faddeeva(1j * z)
        return w
    a = as_real(z)
    # where, not abs and clip: their derivative at 0 is the mean of both slopes
    size, limit = jnp.where(a < 0, -a, a), 1e18 if a.dtype.itemsize < 8 else 1e150
    size = jnp.where(size > limit, limit, size)
    scaled = Array(error_functions.scaled_erfc(Expr(size._node)).node)
    below = a < 0
    inside = jnp.where(below, a, 0)
    return jnp.where(jnp.isnan(a), a, jnp.where(
        below, 2 * jnp.exp(inside * inside) - scaled, jnp.where(a == math.inf, 0, scaled)))
