"""The error function and its inverse, built from ops.

In float32, erf is x + x P(x**2) near 0 and 1 - exp(-x + x P(x)) beyond (polynomials:
scripts/fit_polynomials.py). In float64 it is its Taylor series near 0, then 1 - erfc, where erfc(x)
is t exp(-x**2) times a Chebyshev series in t = 2 / (2 + x) (scripts/fit_erfc.py). The inverse is
that of M. Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011), with the same
coefficients as in XLA, so that normal random numbers agree with JAX's.
"""

from __future__ import annotations

import math

from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, erf, erfc, exp, log, mulacc, polynomial, sqrt, where

_ERFC = (
    0.577033738616469689,
    0.355436921270498487,
    0.0650951588287865246,
    0.00367114239583663917,
    -0.0011128447433526325,
    -0.000160758299153780798,
    0.0000327803157417313706,
    5.44244164550501603e-6,
    -1.51546655531714816e-6,
    -1.42976081811698649e-7,
    8.23460882741949343e-8,
    -1.29628468523065625e-9,
    -4.1547216310151983e-9,
    6.34705827836281118e-10,
    1.43208227122562237e-10,
    -6.16039010520458554e-11,
    2.06121385547216963e-12,
    3.57149314884770445e-12,
    -8.58642284325179648e-13,
    -6.14560021379063055e-14,
    7.41872574859661706e-14,
    -1.28950427550323256e-14,
    -2.35872638571063236e-15,
    1.57293493816859114e-15,
    -2.27829662395464652e-16,
    -6.31233045075642981e-17,
    3.5916763531814923e-17,
    -5.04980914984772928e-18,
)
# erf(x) / x - 1 as a polynomial in x**2, |x| <= 7/8; error 2**-25.69
ERF_32 = (
    0.12837915122509003,
    -0.3761255741119385,
    0.11282523721456528,
    -0.026793936267495155,
    0.005035839509218931,
    -0.0006222233059816062,
)
# log(erfc(x)) / x + 1 for 7/8 <= x <= 4; error of erf 2**-28.62
ERFC_LOG_32 = (
    -0.12862293422222137,
    -0.6352567672729492,
    -0.10605983436107635,
    0.023607412353157997,
    -0.0035683740861713886,
    0.00030436055385507643,
    -9.367890015710145e-06,
)
_NEAR_32, _ERF_ONE_32 = 0.875, 4.0  # the end of the first polynomial; erf rounds to 1 from here on
_ERFC_TERMS = {dtypes.float32: 13, dtypes.float64: 28}
_TAYLOR_TERMS = {dtypes.float32: 9, dtypes.float64: 15}
_NEAR = 0.75     # erf uses the Taylor series below this, and 1 - erfc above
_ERFC_ZERO = 30.0      # erfc and its derivatives round to 0 before this

# Giles: (upper bound of w, offset, whether to use sqrt(w), coefficients, highest power first).
_Polynomial = tuple[float, float, bool, tuple[float, ...]]
_INVERSE: dict[DType, tuple[_Polynomial, ...]] = {
    dtypes.float32: (
        (5.0, 2.5, False, (
            2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
            -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)),
        (math.inf, 3.0, True, (
            -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
            -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)),
    ),
    dtypes.float64: (
        (6.25, 3.125, False, (
            -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
            1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
            6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
            2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
            1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
            4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
            0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
            0.24015818242558961693, 1.6536545626831027356)),
        (16.0, 3.25, True, (
            2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
            1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
            2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
            6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
            0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
            -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334,
            3.0838856104922207635)),
        (math.inf, 5.0, True, (
            -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
            -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
            2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
            -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
            7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
            1.0103004648645343977, 4.8499064014085844221)),
    ),
}


def scaled_erfc(x: Expr) -> Expr:
    """exp(x**2) erfc(x) for x >= 0."""
    t = 2 / (2 + x)
    return t * polynomial(_monomial_coefficients(_ERFC[:_ERFC_TERMS[x.dtype]]), 2 * t - 1)


def _monomial_coefficients(series: tuple[float, ...]) -> list[float]:
    """Convert Chebyshev coefficients to monomial coefficients, lowest power first."""
    total = [0.0] * len(series)
    previous, current = [0.0] * len(series), [1.0] + [0.0] * (len(series) - 1)
    for n, c in enumerate(series):
        total = [s + c * a for s, a in zip(total, current)]
        doubled = [(2 - (n == 0)) * a for a in [0.0, *current[:-1]]]
        previous, current = current, [a - b for a, b in zip(doubled, previous)]
    return total


def _erfc_positive(x: Expr) -> Expr:
    """erfc(x) for x >= 0."""
    return scaled_erfc(x) * exp(-(x * x))


def _taylor(x: Expr) -> Expr:
    n = _TAYLOR_TERMS[x.dtype]
    terms = [2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1))
             for k in range(n)]
    return x * polynomial(terms, x * x)


def _clamped_abs(x: Expr) -> Expr:
    """|x| by a WHERE whose derivative at 0 is that of x; clamped where erfc is 0."""
    magnitude = where(x < 0, -x, x)
    return where(magnitude > _ERFC_ZERO, _ERFC_ZERO, magnitude)


def erf_formula(x: Expr) -> Expr:
    """The decomposition of ERF."""
    if x.dtype is dtypes.float32:
        return _erf_single(x)
    magnitude = _clamped_abs(x)
    near, far = magnitude < _NEAR, 1 - _erfc_positive(magnitude)
    return where(near, _taylor(where(near, x, 0)), where(x < 0, -far, far))


def _erf_single(x: Expr) -> Expr:
    magnitude = abs(x)
    near = mulacc(x, polynomial(ERF_32, x * x), x)
    clamped = where(magnitude > _ERF_ONE_32, _ERF_ONE_32, magnitude)
    far = 1 - exp(mulacc(clamped, polynomial(ERFC_LOG_32, clamped), -clamped))
    return where(magnitude < _NEAR_32, near, where(x < 0, -far, far))


def erfc_formula(x: Expr) -> Expr:
    """The decomposition of ERFC."""
    magnitude = _clamped_abs(x)
    near, far = magnitude < _NEAR, _erfc_positive(magnitude)
    return where(near, 1 - _taylor(where(near, x, 0)), where(x < 0, 2 - far, far))


def erf_inv(x: Expr) -> Expr:
    """The inverse of erf: NaN outside -1..1, infinite at -1 and 1."""
    w = -log((1 - x) * (1 + x))  # a small factor is exact
    *inner, outermost = _INVERSE[x.dtype]
    out = _erf_inv_branch(w, outermost)
    for branch in reversed(inner):
        out = where(w < branch[0], _erf_inv_branch(w, branch), out)
    return x * where(abs(x).eq(1), math.inf, out)


def _erf_inv_branch(w: Expr, branch: _Polynomial) -> Expr:
    _, offset, uses_sqrt, coefficients = branch
    return polynomial(coefficients[::-1], (sqrt(w) if uses_sqrt else w) - offset)


ERF = ElementwiseFn("erf", "inexact", erf)
ERFC = ElementwiseFn("erfc", "inexact", erfc)
ERF_INV = ElementwiseFn("erf_inv", "inexact", erf_inv)
