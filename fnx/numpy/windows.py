"""Window functions, as in ``numpy``: M weights that taper off towards both ends.

Source: R. B. Blackman and J. W. Tukey, The Measurement of Power Spectra (1958), and J. F. Kaiser,
Nonrecursive digital filter design (1974), as NumPy has them.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import apply, elementwise
from fnx.core.array.convert import default_float
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.formulas import bessel
from fnx.core.ir import build
from fnx.numpy.base import abs, clip, cos, ones, sqrt

__all__ = ["bartlett", "blackman", "hamming", "hanning", "i0", "kaiser"]


@elementwise(bessel.I0)
def i0(x: ArrayLike) -> Array:
    """Return the modified Bessel function of the first kind, order 0.

    >>> print(jnp.i0(0.0).round(6))
    1.0
    """
    return apply(bessel.I0, x)


_docstr = DocTemplate(
    M="the number of points.", returns="A vector of M floats.",
    raises=("ArgumentError: M is not an int.",))
_PI = 3.141592653589793


def _sample(M: int, shape: Callable[[Array], Array]) -> Array:
    """Sample a window shape at M points over -1..1; a single point is 1."""
    n = arguments.check_int("M", M)
    if n <= 1:
        return ones(max(n, 0))
    index = Array(build.cast(build.iota(n), default_float()))
    return shape(index * 2 / (n - 1) - 1)


@_docstr.family()
def _window(shape: Callable[[Array], Array], M: int) -> Array:
    return _sample(M, shape)


bartlett = _window(
    lambda t: 1 - abs(t), "bartlett",
    "Return the Bartlett window, a triangle that is 0 at both ends.",
    "jnp.bartlett(3)", "Array([0., 1., 0.], dtype=float32)")
blackman = _window(
    lambda t: 0.42 + 0.5 * cos(_PI * t) + 0.08 * cos(2 * _PI * t), "blackman",
    "Return the Blackman window: 0.42 + 0.5 cos(pi t) + 0.08 cos(2 pi t) for t from -1 to 1.",
    "print(jnp.blackman(3).round(3))", "[-0.  1. -0.]")
hamming = _window(
    lambda t: 0.54 + 0.46 * cos(_PI * t), "hamming",
    "Return the Hamming window: 0.54 + 0.46 cos(pi t) for t from -1 to 1.",
    "print(jnp.hamming(3).round(3))", "[0.08 1.   0.08]")
hanning = _window(
    lambda t: 0.5 + 0.5 * cos(_PI * t), "hanning",
    "Return the Hann window: 0.5 + 0.5 cos(pi t) for t from -1 to 1.",
    "print(jnp.hanning(3).round(3))", "[0. 1. 0.]")


@_docstr(beta="the shape parameter; larger values taper faster.")
def kaiser(M: int, beta: ArrayLike) -> Array:
    """Return the Kaiser window: I0(beta sqrt(1 - t**2)) / I0(beta) for t from -1 to 1.

    >>> print(jnp.kaiser(3, 0.0))
    [1. 1. 1.]
    """
    b = asarray(beta)
    return _sample(M, lambda t: i0(b * sqrt(clip(1 - t * t, 0))) / i0(b))
