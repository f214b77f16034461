"""Calls of public functions that are compared with JAX: families of expressions over small inputs.

``scripts/compare_jax.py`` evaluates all of them on both and compares; a sample is recorded in
tests/golden/names.json, which tests/public/test_names.py replays. ``{x}`` stands for each of some
inputs of tests/golden/inputs.py and of ``more`` below.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

_ANY = ("b", "i", "u", "f", "e", "w", "m", "odd", "2", "2.5", "True")
_NUMBERS = ("i", "f", "e", "w", "m", "2", "2.5")
_VECTORS = ("i", "f", "v", "odd", "b")
_PAIRS = (("f", "i"), ("m", "f"), ("w", "f"), ("i", "2"), ("2.5", "u"), ("e", "e"), ("b", "f"),
          ("odd", "odd[::-1]"), ("2.5", "2"))


def more(jnp: Any) -> dict[str, Any]:
    """Return inputs besides those of inputs.py: empty, 0-d, with NaN, sorted and unsorted."""
    return {
        "e": jnp.asarray(np.zeros((0, 3), np.float32)), "z": jnp.asarray(np.float32(0.25)),
        "w": jnp.asarray(np.float32(0.75)),
        "nans": jnp.asarray(np.array([[1, np.nan, 3], [np.nan, np.nan, np.nan], [4, 5, 6]],
                                     np.float32)),
        "unit": jnp.asarray(np.linspace(-0.96, 0.97, 23, dtype=np.float32)),
        "pos": jnp.asarray(np.array([0.01, 0.3, 1.0, 1.7, 4.2, 11.0, 60.0], np.float32)),
        "wide": jnp.asarray(np.array([-30.0, -6.5, -2.0, -0.3, 0.0, 0.4, 1.5, 3.0, 8.5, 40.0],
                                     np.float32)),
        "zeros": jnp.asarray(np.array([[0, 1, 0], [2, 0, 3]], np.int32)),
        "counts": jnp.asarray(np.array([1, 4, 1, 0, 2, 1], np.int32)),
        "sorted": jnp.asarray(np.array([-1.0, 0.5, 0.5, 2.0, 3.5], np.float32)),
        "mixed": jnp.asarray(np.array([3.0, -1.0, 2.5, 0.5, 9.0, 2.5], np.float32)),
    }


def _over(template: str, *choices: Any) -> list[str]:
    return [template.format(**dict(zip("xyz", given)))
            for given in itertools.product(*[c if isinstance(c, tuple) else (c,) for c in choices])]


def _unary(names: str, inputs: tuple[str, ...] = _ANY, prefix: str = "jnp") -> list[str]:
    return [f"{prefix}.{n}({x})" for n in names.split() for x in inputs]


def _binary(names: str, pairs: Any = _PAIRS, prefix: str = "jnp") -> list[str]:
    return [f"{prefix}.{n}({x}, {y})" for n in names.split() for x, y in pairs]


ELEMENTWISE = [
    *_unary("""arcsin arccos arctan arcsinh arctanh acos asin atan asinh atanh""",
            ("unit", "odd", "i", "b", "2", "0.5", "e", "w")),
    *_unary("arccosh acosh", ("pos + 1", "odd", "i", "2", "e")),
    *_unary("""signbit deg2rad rad2deg radians degrees sinc spacing real imag conj conjugate isreal
            iscomplex isneginf isposinf angle modf frexp"""),
    "jnp.angle(-f, deg=True)", "jnp.angle(i - 2)", *_unary("bitwise_count", ("i", "-i", "u", "b")),
    *_binary("copysign nextafter fmax fmin heaviside divmod"),
    *_binary("gcd lcm", (("i * 6", "15"), ("zeros", "i"), ("u", "4"), ("-i", "u"))),
    "jnp.ldexp(f, i)", "jnp.ldexp(odd, -3)", "jnp.ldexp(2.5, i)", "jnp.ldexp(1.0, i * 50)",
    "jnp.unwrap(v * 2)", "jnp.unwrap(m * 3, axis=0)", "jnp.unwrap(i * 4, period=6)",
    "jnp.unwrap(v * 2.2, discont=4.0)",
]
ARRANGING = [
    *_unary("atleast_1d atleast_2d atleast_3d fliplr flipud rot90 matrix_transpose unstack",
            ("f", "m", "x", "z", "i")),
    "jnp.append(i, f)", "jnp.append(m, m, 0)", "jnp.append(2, 3)", "jnp.array_equiv(f, m)",
    "jnp.array_equiv(i, u)", "jnp.around(f * 1.37, 1)", "jnp.copy(f)", "jnp.rot90(m, 2)",
    "jnp.rot90(x, -1, (1, 2))", "jnp.rollaxis(x, 2)", "jnp.rollaxis(x, 0, 3)",
    "jnp.rollaxis(x, -1, -2)", "jnp.vsplit(m, 2)", "jnp.hsplit(x, [1])", "jnp.hsplit(v[:4], 2)",
    "jnp.dsplit(x, [1, 3])", "jnp.dstack([f, i])", "jnp.dstack([m, m])",
    "jnp.block([[m, m], [m, m]])", "jnp.block([f, i])", "jnp.block([[m], [f]])", "jnp.block(f)",
    "jnp.resize(i, (2, 5))", "jnp.resize(m, 4)", "jnp.resize(f, (0,))", "jnp.delete(v, 1)",
    "jnp.delete(m, [0, 2], 1)", "jnp.delete(v, slice(1, 3))", "jnp.delete(v, np.array([-1, 0]))",
    "jnp.delete(m, 0, 0)", "jnp.delete(v, np.array([True, False, False, True, False]))",
    "jnp.insert(v, 2, 9)", "jnp.insert(v, [1, 3], [7, 8])", "jnp.insert(m, 1, 5, axis=1)",
    "jnp.insert(m, 0, f, axis=0)", "jnp.insert(i, -1, 2.7)", "jnp.insert(v, slice(0, 2), 6)",
    "jnp.diagflat(m, 1)", "jnp.diagflat(2)", "jnp.diagflat(f)",
    "jnp.fill_diagonal(m, 5, inplace=False)",
    "jnp.fill_diagonal(s, f, inplace=False)",
    "jnp.fill_diagonal(jnp.zeros((5, 2)), 1, wrap=True, inplace=False)",
    "jnp.trim_zeros(jnp.asarray([0, 0, 1, 0, 2, 0]))", "jnp.trim_zeros(v, 'f')",
    "jnp.unstack(x, axis=1)",
]
PLACES = [
    *_unary("nonzero flatnonzero argwhere", ("zeros", "m", "b", "f", "e")),
    *[f"jnp.{n}(zeros, size={k})" for n in ("nonzero", "flatnonzero", "argwhere")
      for k in (0, 2, 5)],
    "jnp.nonzero(zeros, size=5, fill_value=-1)", "jnp.nonzero(zeros, size=5, fill_value=(7, 9))",
    "jnp.where(zeros)", "jnp.where(zeros, size=2)", "jnp.flatnonzero(m, size=9, fill_value=-3)",
    "jnp.extract(b, f)", "jnp.compress(b, f)",
    "jnp.compress(b, m, axis=1)", "jnp.compress(b, v, size=2, fill_value=-1)",
    "jnp.diag_indices(3)", "jnp.diag_indices(2, 3)", "jnp.diag_indices_from(s)",
    *[f"jnp.{n}({a})" for n in ("tril_indices", "triu_indices")
      for a in ("3", "3, 1", "2, -1, 4", "0")],
    "jnp.tril_indices_from(m)", "jnp.triu_indices_from(m, 1)", "jnp.mask_indices(3, jnp.triu)",
    "jnp.mask_indices(3, jnp.tril, -1)", "jnp.indices((2, 3))", "jnp.indices((2,), dtype=float)",
    "jnp.indices((2, 3), sparse=True)", "jnp.ix_(i, i[:2])", "jnp.ix_(b, i)",
    "jnp.fromfunction(lambda i, j: i + 2 * j, (2, 3))",
    "jnp.fromfunction(lambda i: i, 3, dtype=int)", "jnp.unravel_index(i * 2, (2, 4))",
    "jnp.unravel_index(-1, (2, 4))", "jnp.unravel_index(out, (3, 2))",
    "jnp.ravel_multi_index((i - 1, i), (3, 4))",
    "jnp.ravel_multi_index((i, i), (2, 3), mode='clip')",
    "jnp.ravel_multi_index((out, i), (3, 4), mode=('wrap', 'clip'))",
]
CHOOSING = [
    "jnp.choose(i - 1, [f, i, 7])", "jnp.choose(out, [f[0], i[0]], mode='clip')",
    "jnp.choose(out, [1, 2, 3], mode='wrap')", "jnp.select([f > 2, f > 1], [f, -f], 9)",
    "jnp.select([b], [i], 2.5)", "jnp.select([b, ~b], [i, 7])",
    "jnp.piecewise(f, [f < 1, f > 2], [lambda x: -x, lambda x: x * 2, 7])",
    "jnp.piecewise(i, [i < 2], [lambda x, k: x * k, -1], 5)",
    "jnp.place(f, b, v[:2], inplace=False)", "jnp.place(m, m > 0, i, inplace=False)",
    "jnp.put(f, jnp.asarray([0, 2]), i, inplace=False)",
    "jnp.put(m, jnp.asarray([1, 9]), 5, mode='clip', inplace=False)",
    "jnp.put(m, jnp.asarray([1, 9]), 5, mode='wrap', inplace=False)",
    *(f"jnp.put(m, jnp.asarray([-2, 1, -9]), 5, mode={mode}, inplace=False)"
      for mode in ("None", "'clip'", "'wrap'")),
    "jnp.put_along_axis(m, jnp.asarray([[1], [0]]), 9, 1, inplace=False)",
    "jnp.put_along_axis(f, jnp.asarray([2]), 9, None, inplace=False)",
    "jnp.apply_along_axis(jnp.sum, 0, x)", "jnp.apply_along_axis(lambda v: v[::-1], 1, x)",
    "jnp.apply_along_axis(jnp.outer, 0, m, f)", "jnp.apply_over_axes(jnp.sum, x, [0, 2])",
]
_FOLDS = [f"jnp.{n}({x}{a})" for n in ("nansum", "nanprod", "nanmax", "nanmin", "nanmean",
                                        "nanvar", "nanstd")
          for x in ("nans", "m", "i", "b")
          for a in ("", ", axis=0", ", axis=-1, keepdims=True")]
STATISTICS = [
    *_FOLDS, "jnp.nansum(nans, where=m[:, :1] > 9)", "jnp.nanmax(nans, initial=9.0)",
    "jnp.nanvar(nans, 0, ddof=1)", "jnp.nanstd(nans, 1, ddof=2)",
    "jnp.nanmean(nans, 1, where=b)", "jnp.nanvar(nans, 0, where=b)",
    *[f"jnp.{n}({x}{a})" for n in ("nanargmax", "nanargmin") for x in ("nans", "i")
      for a in ("", ", -1")],
    *[f"jnp.{n}({x}{a})" for n in ("nancumsum", "nancumprod") for x in ("nans", "i", "b")
      for a in ("", ", -1")],
    *[f"jnp.{n}({x}{a})" for n in ("cumulative_sum", "cumulative_prod") for x in ("v", "i", "b")
      for a in ("", ", include_initial=True", ", axis=0")], "jnp.cumulative_sum(m, axis=1)",
    "jnp.average(f)", "jnp.average(i)", "jnp.average(m, 0)", "jnp.average(m, 1, f)",
    "jnp.average(f, weights=i)", "jnp.average(i, weights=i)", "jnp.average(m, 1, f, True)",
    "jnp.average(m, 0, returned=True)", "jnp.average(x, (1, 2), keepdims=True)",
    "jnp.cov(m)", "jnp.cov(f)", "jnp.cov(f, i)", "jnp.cov(m, rowvar=False)",
    "jnp.cov(s, bias=True)",
    "jnp.cov(s, ddof=2)", "jnp.cov(s, fweights=i)", "jnp.cov(s, aweights=f)",
    "jnp.cov(s, fweights=i, aweights=f)", "jnp.corrcoef(s + s.T ** 2)", "jnp.corrcoef(f, i)",
    "jnp.corrcoef(f)",
]
COUNTING = [
    *[f"jnp.searchsorted(sorted, {v}, side='{side}')" for v in ("f", "0.5", "m", "odd")
      for side in ("left", "right")],
    "jnp.searchsorted(mixed, f, sorter=jnp.argsort(mixed))", "jnp.searchsorted(i, f)",
    *[f"jnp.searchsorted(sorted, v, method='{how}')" for how in
      ("scan", "scan_unrolled", "sort", "compare_all")],
    "jnp.searchsorted(sorted[:0], f)", "jnp.searchsorted(odd[:1], odd)",
    *[f"jnp.digitize({x}, {bins}, right={r})" for x in ("f", "m") for bins in
      ("sorted", "sorted[::-1]") for r in (False, True)],
    "jnp.bincount(counts)", "jnp.bincount(counts, minlength=8)", "jnp.bincount(counts, length=3)",
    "jnp.bincount(counts, weights=mixed)", "jnp.bincount(counts, weights=counts)",
    "jnp.bincount(b)",
    "jnp.histogram(mixed)", "jnp.histogram(mixed, 4)", "jnp.histogram(counts, 3)",
    "jnp.histogram(mixed, 4, (0, 5))", "jnp.histogram(mixed, sorted)",
    "jnp.histogram(mixed, 4, density=True)", "jnp.histogram(mixed, 4, weights=v[:1] + counts)",
    "jnp.histogram(jnp.ones(3))", "jnp.histogram_bin_edges(mixed, 5)",
    "jnp.histogram_bin_edges(counts, 5, (0, 10))", "jnp.histogram2d(f, i, 2)",
    "jnp.histogram2d(f, i, (2, 3))", "jnp.histogram2d(f, i, 2, ((0, 3), (0, 4)))",
    "jnp.histogramdd(m)", "jnp.histogramdd(s, 2)", "jnp.histogramdd(s, (2, 3, 1), density=True)",
    "jnp.interp(f, sorted[2:], i)", "jnp.interp(m, sorted[2:], f)", "jnp.interp(1, i, f)",
    "jnp.interp(v, i, f, left=-1, right=9)", "jnp.interp(v, i, f, 'extrapolate', 'extrapolate')",
    "jnp.interp(v, jnp.asarray([0.5, 1.5, 1.0]), f, period=2.0)",
]
CALCULUS = [
    *_unary("diff ediff1d trapezoid", _VECTORS), "jnp.diff(x, 2, 1)", "jnp.diff(m, axis=0)",
    "jnp.diff(i, prepend=7)", "jnp.diff(i, append=i)", "jnp.diff(i, prepend=0, append=9.5)",
    "jnp.diff(f, 0)", "jnp.ediff1d(i, 9, 8)", "jnp.gradient(v ** 2)", "jnp.gradient(m)",
    "jnp.gradient(v ** 2, 0.5)", "jnp.gradient(x, axis=1)", "jnp.gradient(x, 1.0, 2.0, 3.0)",
    "jnp.gradient(v ** 2, v ** 2 + 1)", "jnp.gradient(x, axis=(0, -1))", "jnp.gradient(i)",
    "jnp.trapezoid(m, dx=0.5)", "jnp.trapezoid(m, f)", "jnp.trapezoid(m, axis=0)",
    *[f"jnp.{n}({a}, {b}, '{mode}')" for n in ("convolve", "correlate")
      for a, b in (("v", "f"), ("f", "v"), ("i", "i"), ("v", "f[:2]"), ("i", "f"))
      for mode in ("full", "same", "valid")],
    "jnp.convolve(b, i)", "jnp.correlate(v, f)",
    "jnp.convolve(i, i, preferred_element_type='float32')",
    "jnp.cross(f, i)", "jnp.cross(m, f)", "jnp.cross(f[:2], i[:2])", "jnp.cross(f[:2], i)",
    "jnp.cross(s, s.T, axis=0)", "jnp.cross(s, m.T, 0, 1)", "jnp.vecdot(m, f)",
    "jnp.vecdot(x, x, axis=1)", "jnp.vecdot(i, i)", "jnp.matvec(m, f)", "jnp.matvec(x, v[:4])",
    "jnp.vecmat(f, s)", "jnp.vecmat(i, s)", "jnp.logspace(0, 2, 5)",
    "jnp.logspace(0, 2, 4, endpoint=False, base=2.0)", "jnp.logspace(f, 2, 3)",
    "jnp.logspace(0, 2, 3, dtype=int)", "jnp.geomspace(1, 1000, 4)", "jnp.geomspace(-1, -8, 4)",
    "jnp.geomspace(f, 4.0, 3)", "jnp.geomspace(1.0, 16.0, 4, endpoint=False)",
]
POLYNOMIALS = [
    "jnp.polyval(f, 2)", "jnp.polyval(i, m)", "jnp.polyval(m, 2.5)", "jnp.polyval(f, v)",
    "jnp.polyadd(v, f)", "jnp.polyadd(i, i)", "jnp.polysub(f, v)", "jnp.polymul(f, i)",
    "jnp.polymul(i, i)", "jnp.polymul(jnp.asarray([0., 1., 2.]), f, trim_leading_zeros=True)",
    "jnp.polydiv(v[1:], f[:2])", "jnp.polydiv(f, v)", "jnp.polydiv(i, i[:2])", "jnp.polyder(v)",
    "jnp.polyder(i, 2)", "jnp.polyint(f)", "jnp.polyint(i, 2)", "jnp.polyint(f, 2, f[:2])",
    "jnp.polyint(f, k=3)", "jnp.poly(f)", "jnp.poly(i)", "jnp.vander(f)", "jnp.vander(i, 4)",
    "jnp.vander(f, 2, increasing=True)", "jnp.vander(f, 0)",
]
_SPECIAL = ("pos", "wide", "unit", "i", "2.5", "odd", "e")
SPECIAL = [
    *_unary("""gammaln loggamma gamma gammasgn digamma erf erfc erfinv expit i0 i0e i1 i1e entr
            logit ndtr ndtri log_ndtr erfcx exp1 expi dawsn sici fresnel spence factorial""",
            _SPECIAL, "special"),
    *_unary("logsumexp softmax log_softmax", ("f", "m", "i"), "special"),
    "special.logsumexp(m, axis=1, where=b)", "special.logsumexp(f, b=-f, return_sign=True)",
    *_binary("xlogy xlog1py betaln beta rel_entr kl_div boxcox boxcox1p gammainc gammaincc poch",
             (("pos", "pos[::-1]"), ("pos", "2"), ("f", "i"), ("0.0", "f"), ("unit", "0.5")),
             "special"),
    *[f"special.betainc({a}, {b}, {x})" for a, b, x in (
        ("pos", "pos[::-1]", "0.3"), ("2.0", "3.0", "abs(unit)"), ("i", "f", "0.9"))],
    *[f"special.polygamma({n}, pos)" for n in (0, 1, 2, 3)], "special.zeta(pos + 1.5, 2.0)",
    "special.zeta(pos + 1.5, pos)", "special.multigammaln(pos + 3, 4)", "special.expn(2, pos)",
    "special.expn(i, f)", "special.hyp1f1(1.5, 2.5, wide[1:])",
    "special.comb(i + 3, i)", "special.hyp2f1(0.5, 1.5, 2.5, unit)",
    "special.owens_t(f, unit[:3])", "special.bernoulli(8)", "special.bessel_jn(f, v=3)",
]
_DRAWS = (
    ("cauchy", ""), ("lognormal", ""), ("lognormal", "f"), ("maxwell", ""), ("gamma", "f"),
    ("gamma", "0.3"), ("loggamma", "f"), ("beta", "f, 2.0"), ("chisquare", "f"), ("t", "f"),
    ("f", "2.5, 3.0"), ("pareto", "f"), ("rayleigh", "f"), ("wald", "f"), ("poisson", "f"),
    ("poisson", "20.5"), ("geometric", "0.3"), ("triangular", "0.0, 1.0, 3.0"),
    ("generalized_normal", "1.5"), ("dirichlet", "f"), ("weibull_min", "1.0, 2.0"),
    ("double_sided_maxwell", "0.5, 2.0"), ("ball", "3"),
)
RANDOM = [
    *[f"random.{name}(k, {p}{', ' * bool(p)}shape=({shape}))" for name, p in _DRAWS
      for shape in ("3,", "2, 3")],
    "random.multivariate_normal(k, f, jnp.eye(3) + 0.5)", "random.gamma(k, f)",
    "random.multivariate_normal(k, f, jnp.eye(3), (2,))", "random.beta(k, f, i)",
    "random.poisson(k, jnp.asarray([0.0, 3.0, 50.0]))",
]
_SHARES = ("0.5", "0.0", "1.0", "0.3", "jnp.asarray([0.1, 0.5, 0.9])")
SETS = [
    *_unary("unique unique_all unique_counts unique_inverse unique_values",
            ("i * 2 % 3", "counts", "b", "nans", "odd", "mixed", "m", "e", "2.5", "zeros")),
    *[f"jnp.unique({x}, True, True, True{a})" for x in ("counts", "nans", "odd", "zeros", "b")
      for a in ("", ", size=3", ", size=9", ", size=9, fill_value=7", ", equal_nan=False")],
    *[f"jnp.unique({x}, True, True, True, {a})" for x in ("zeros", "s", "nans", "zeros[[0, 1, 0]]")
      for a in ("0", "1", "-1, size=4", "0, size=2, fill_value=-1")],
    "jnp.unique(x, axis=1)", "jnp.unique(e, True, True, True, size=2, fill_value=3)",
    "jnp.unique(e, True, True, True, 0)", "jnp.unique(e, True, True, True, 1)",
    "jnp.unique(i, sorted=False)", "jnp.unique(u)", "jnp.unique(e, size=2)",
    *[f"jnp.{n}({x}, {y}{a})" for n in ("union1d", "intersect1d", "setdiff1d", "setxor1d")
      for x, y in (("counts", "i"), ("i", "counts"), ("nans", "odd"), ("m", "f"), ("b", "i"),
                   ("e", "f"), ("f", "e"), ("i", "f"), ("-mixed", "f - 9"))
      for a in ("", ", size=2", ", size=9", ", size=9, fill_value=-5")],
    *[f"jnp.intersect1d({x}, {y}, {u}, True{a})" for x, y, u in (
        ("counts", "i", False), ("i", "i[::-1]", True), ("m", "f", False), ("sorted", "f", False))
      for a in ("", ", size=2", ", size=7")],
    *[f"jnp.{n}(i[::-1], i[:2] * 2, True{a})" for n in ("intersect1d", "setdiff1d", "setxor1d")
      for a in ("", ", size=4", ", size=4, fill_value=9")],
    *[f"jnp.isin({x}, {y}{a})" for x, y in (("m", "f"), ("nans", "nans"), ("i", "f"), ("2", "i"),
                                           ("e", "f"), ("f", "e"), ("b", "i"), ("x", "2.5"))
      for a in ("", ", invert=True", ", method='sort'", ", method='binary_search'",
                ", method='compare_all'")],
]
QUANTILES = [
    *[f"jnp.{n}({x}{a})" for n in ("median", "nanmedian") for x in ("v", "m", "nans", "i", "b",
                                                                    "odd", "x")
      for a in ("", ", 0", ", axis=-1, keepdims=True")],
    "jnp.median(x, (0, 2))", "jnp.nanmedian(x, (1, 2), keepdims=True)", "jnp.median(2)",
    *[f"jnp.{n}({x}, {q}{a})" for n in ("quantile", "nanquantile")
      for x in ("v", "m", "nans", "i", "odd") for q in _SHARES for a in ("", ", -1", ", 0",
                                                                   ", keepdims=True")],
    *[f"jnp.{n}({x}, {q}, method='{how}')" for n in ("quantile", "nanquantile")
      for x in ("m", "nans", "x", "i", "sorted") for q in ("0.3", "0.5", "jnp.asarray([0.2, 0.8])")
      for how in ("lower", "higher", "midpoint", "nearest", "inverted_cdf")],
    *[f"jnp.{n}({x}, 0.4, 1, method='inverted_cdf', weights={w}{a})"
      for n in ("quantile", "nanquantile") for x, w in (("m", "f"), ("s", "s * s"), ("s", "f - 1"),
                                                        ("nans", "f"))
      for a in ("", ", keepdims=True")],
    "jnp.quantile(x, jnp.asarray([0.2, 0.7]), (0, 2), keepdims=True)",
    "jnp.quantile(x, jnp.asarray([0.2, 0.7]), 1)", "jnp.quantile(x, 0.5, (0, 1))",
    "jnp.quantile(x, jnp.asarray([0.2, 0.7]), 1, method='inverted_cdf', keepdims=True)",
    "jnp.percentile(m, 30)", "jnp.percentile(m, jnp.asarray([10, 90]), 1)",
    "jnp.nanpercentile(nans, 30.5)", "jnp.nanpercentile(nans, 75, 0)", "jnp.quantile(e, 0.5)",
    "jnp.quantile(m.astype('float16'), 0.3)", "jnp.median(m.astype('bfloat16'), 0)",
]
ORDERS = [
    *[f"jnp.einsum('ij,jk,kl->il', m, s, s.T, optimize={path})" for path in (
        "False", "'greedy'", "[(0, 1), (0, 1)]", "[(0, 1, 2)]", "[(0, -1), (0, 1)]")],
    *[f"jnp.einsum('i,i,ij,j->', f[:2], v[:2], m, f, optimize={path})" for path in (
        "False", "[(0, 1), (0, 1), (0, 1)]", "[(0, 1, 2, 3)]", "[(0, -1), (0, 2), (0, 1)]")],
    "jnp.bool(i)", "jnp.bool(2.5)",
    "jnp.lexsort((i, f))", "jnp.lexsort((f, b))", "jnp.lexsort(zeros)", "jnp.lexsort((m, zeros))",
    "jnp.lexsort((m, zeros), axis=0)", "jnp.lexsort((2, 3))", "jnp.lexsort((odd, odd))",
    *[f"jnp.{n}({x}, {k})" for n in ("partition", "argpartition")
      for x in ("v", "mixed", "counts", "x", "u", "m") for k in ("0", "1", "-1")],
    "jnp.partition(m, 1, 0)", "jnp.argpartition(m, 1, 0)", "jnp.argpartition(counts, 3)",
    "jnp.partition(nans, 1)", "jnp.argpartition(nans, 1)",
    *[f"jnp.packbits({x}{a})" for x in ("b", "i", "zeros", "counts", "x.astype(int)", "f", "e > 1")
      for a in ("", ", -1", ", 0, 'little'")],
    *[f"jnp.unpackbits({x}{a})" for x in ("i.astype('uint8')", "zeros.astype('uint8') * 77", "u",
                                         "e.astype('uint8')")
      for a in ("", ", -1", ", 0, None, 'little'", ", 0, 5", ", None, 99", ", -1, -3")],
]
LAX = [
    *[f"lax.mulhi({x}, {y})" for x, y in (("i * 99999999", "-i * 77777777"), ("u", "u"),
                                         ("i.astype('int8') * 50", "i.astype('int8') * 40"),
                                         ("i.astype('uint16') * 999", "i.astype('uint16') * 777"))],
    *[f"lax.reduce_precision({x}, {e}, {m})" for x in ("f", "odd", "v * 1e6", "v * 1e-6", "2.5",
                                                      "f.astype('bfloat16')", "v.astype('float16')")
      for e, m in ((5, 10), (8, 7), (4, 3), (5, 2), (8, 23), (2, 0))],
    "lax.broadcast_like(f, m)", "lax.stack([f, v[:3]], 1)", "lax.empty((2, 0), 'int32')",
    "lax.index_take(m, (i, i + 5), (1, 0))", "lax.index_take(x, (i,), (1,))",
    "lax.igamma_grad_a(pos, pos[::-1])", "lax.igamma_grad_a(f, 2.0)",
    "lax.random_gamma_grad(f, f * 0.7)",
    "lax.platform_dependent(f, cpu=lambda x: x + 1, default=lambda x: x - 1)",
    "lax.conv_shape_tuple((1, 3, 8, 9), (4, 3, 3, 2), (1, 2), 'SAME')",
    "lax.conv_shape_tuple((4, 3, 8), (4, 3, 3), (2,), [(1, 0)], 2)",
    "lax.conv_general_permutations(('NHWC', 'HWIO', 'NCHW'))",
    "lax.conv_general_shape_tuple((1, 8, 9, 3), (3, 3, 3, 4), (2, 1), 'SAME', "
    "('NHWC', 'HWIO', 'NCHW'))",
    *[f"lax.conv_transpose_shape_tuple((1, 4, 3), (3, {k}, 5), ({s},), '{p}', "
      "('NWC', 'WIO', 'NWC'))" for p in ("SAME", "VALID") for k in (1, 2, 5) for s in (1, 2, 3)],
    *[f"lax.padtype_to_pads((5, 8), (3, 2), (2, 3), '{p}')"
      for p in ("SAME", "VALID", "SAME_LOWER")],
    "lax.reduce_window_shape_tuple((8, 3), (3, 2), (2, 1), [(0, 1), (0, 0)], (2, 1), (1, 2))",
    "lax.conv_general_dilated_local(jnp.ones((2, 2, 5)) * f[0], jnp.arange(36.0).reshape(3, 4, 3), "
    "(2,), 'SAME', (2,))",
]
_QKV = "jnp.sin(jnp.arange({n}.0, dtype='float32')).reshape({shape})"
_Q, _K = (_QKV.format(n=n, shape=s) for n, s in ((96, "2, 3, 4, 4"), (80, "2, 5, 2, 4")))
ATTENTION = [
    *[f"nn.dot_product_attention({_Q}, {_K}, {_K} * 2{a})" for a in (
        "", ", is_causal=True", ", scale=0.3", ", local_window_size=1", ", return_residual=True",
        ", local_window_size=(2, 0)", ", mask=jnp.tri(3, 5) > 0.5", ", bias=jnp.eye(3, 5)",
        ", query_seq_lengths=jnp.asarray([2, 3])", ", key_value_seq_lengths=jnp.asarray([2, 0])",
        ", jnp.ones((1, 4, 3, 5)) * 0.5, jnp.ones((2, 4, 1, 5)) > 0")],
    f"nn.dot_product_attention({_K}[0], {_K}[0], {_K}[0], is_causal=True)",
    f"nn.dot_product_attention({_K}.astype('bfloat16'), {_K}.astype('bfloat16'), "
    f"{_K}.astype('bfloat16'))",
    *_unary("sparse_plus sparse_sigmoid log1mexp", ("f", "wide / 9", "odd", "i", "b", "2.5", "e"),
            "nn"),
    *[f"nn.logmeanexp({x}{a})" for x in ("m", "odd", "i", "x") for a in ("", ", 0", ", axis=-1, "
                                                                        "keepdims=True")],
    "nn.logmeanexp(m, 1, b)",
    *[f"nn.initializers.{n}()(k, (3, 4))" for n in ("kaiming_normal", "kaiming_uniform",
                                                    "xavier_normal", "xavier_uniform")],
]
IMAGE = [
    *[f"top.image.resize({x}, {shape}, '{how}'{a})"
      for x, shape in (("m", "(5, 7)"), ("x", "(2, 2, 9)"), ("v", "(2,)"), ("i", "(7,)"))
      for how in ("nearest", "linear", "lanczos3", "lanczos5", "cubic", "cubic-pytorch", "area")
      for a in ("", ", False")],
    "top.image.resize(m, (3, 0), 'linear')", "top.image.resize(m, m.shape, 'cubic')",
    *[f"top.image.scale_and_translate(m, (4, 5), (0, 1), jnp.asarray([1.5, 0.7]), "
      f"jnp.asarray([0.2, -1.0]), '{how}', {a})" for how in ("linear", "cubic", "lanczos3")
      for a in (True, False)],
]
_X = ("wide / 3", "0.25", "i")
_PLAIN = {"norm": "cdf sf logcdf logsf", "uniform": "cdf", "expon": "cdf sf logcdf logsf",
          "laplace": "cdf", "logistic": "cdf sf", "cauchy": "cdf sf logcdf logsf",
          "gumbel_r": "cdf sf logcdf logsf", "gumbel_l": "cdf sf logcdf logsf"}
_SHAPED = {"gamma": "2.5", "chi2": "3.0", "beta": "2.5, 1.5", "pareto": "2.5", "t": "3.5",
           "truncnorm": "-1.0, 2.0"}
_COUNTED = {"bernoulli": "0.3", "binom": "4.0, 0.3", "nbinom": "3.0, 0.3", "geom": "0.3",
            "betabinom": "4.0, 1.5, 2.5", "poisson": "2.5"}
STATS = [
    *[f"stats.{d}.{f}({x}{a})" for d, more in _PLAIN.items() for f in ("logpdf pdf " + more).split()
      for x, a in ((_X[0], ""), (_X[0], ", 0.5, 2.0"), (_X[1], ""), (_X[2], ", 0, 2"))],
    *[f"stats.{d}.ppf({x}{a})" for d in ("norm", "uniform", "expon", "logistic", "cauchy",
                                         "gumbel_r", "gumbel_l")
      for x in ("abs(unit)", "0.25") for a in ("", ", 0.5, 2.0")],
    *[f"stats.{d}.isf(abs(unit), 0.5, 2.0)" for d in ("norm", "logistic", "cauchy")],
    *[f"stats.{d}.{f}({x}, {p}{a})" for d, p in _SHAPED.items()
      for f in ("logpdf", "pdf", *(() if d == "t" else ("cdf", "sf", "logcdf", "logsf")))
      for x, a in (("wide / 3", ""), ("pos", ", 0.25, 2.0"), ("0.5", ""))],
    "stats.pareto.ppf(abs(unit), 2.5, 0.5, 2.0)", "stats.truncnorm.logpdf(wide, 1.0, 3.0)",
    "stats.truncnorm.cdf(wide / 9, -30.0, -20.0)", "stats.beta.logpdf(unit, -1.0, 2.0)",
    *[f"stats.{d}.{f}({x}, {p})" for d, p in (("gennorm", "1.5"), ("vonmises", "2.5"),
                                              ("wrapcauchy", "0.4"), ("wrapcauchy", "1.4"))
      for f in ("logpdf", "pdf") for x in _X],
    "stats.gennorm.cdf(wide / 3, 1.5)",
    *[f"stats.{d}.{f}({x}, {p}{a})" for d, p in _COUNTED.items() for f in ("logpmf", "pmf")
      for x in ("counts", "f", "-1.0", "i") for a in ("", ", 1")],
    "stats.bernoulli.cdf(unit * 2, 0.3)", "stats.bernoulli.ppf(unit, 0.3)",
    "stats.poisson.cdf(wide, 2.5)", "stats.poisson.entropy(pos)",
    "stats.poisson.entropy(abs(wide * 9))",
    "stats.poisson.entropy(2.0)", "stats.dirichlet.logpdf(f / f.sum(), f)",
    "stats.dirichlet.pdf(f[:2] / f.sum(), f)", "stats.dirichlet.logpdf(f, f)",
    "stats.dirichlet.logpdf(s / s.sum(0), f)", "stats.multinomial.logpmf(i, 6, f / f.sum())",
    "stats.multinomial.pmf(zeros, 3, f / f.sum())",
    "stats.multivariate_normal.logpdf(m, f, jnp.eye(3) + 0.5)",
    "stats.multivariate_normal.pdf(f, m, 2.0)", "stats.multivariate_normal.logpdf(f, 1.0, 2.0)",
    *[f"stats.mode({x}{a})" for x in ("counts", "zeros", "nans", "2.5", "e")
      for a in ("", ", None", ", -1, keepdims=True")],
    *[f"stats.rankdata({x}, '{how}'{a})" for x in ("counts", "zeros", "nans", "mixed")
      for how in ("average", "min", "max", "dense", "ordinal") for a in ("", ", axis=-1")],
    *[f"stats.sem({x}{a})" for x in ("m", "i", "nans")
      for a in ("", ", None", ", -1, 2, keepdims=True", ", 0, 1, 'omit'")],
]
_WIDTHS = ("2", "(1, 3)", "((0, 3), (5, 1))")
BROAD = [
    *[f"jnp.pad({x}, {w}, {how})" for x in ("m", "m.astype(int)") for w in _WIDTHS
      for how in ("'edge'", "'wrap'", "'linear_ramp'", "'maximum'", "'mean'", "'median'",
                  "'empty'", "'reflect', reflect_type='odd'", "'symmetric', reflect_type='odd'",
                  "'minimum', stat_length=1", "'mean', stat_length=((1, 2), (9, 2))",
                  "'linear_ramp', end_values=((1, 2), (3, 7))",
                  "constant_values=((1, 2), (3, 4))")],
    *[f"{call}, order='F')" for call in (
        "jnp.reshape(m, (3, 2)", "m.reshape(-1, 3", "jnp.ravel(x", "x.flatten(", "jnp.ravel(z")],
    *[f"jnp.{k}_['{text}', {part}]" for k in "rc" for part in ("i, f", "1:4, i", "2, 3")
      for text in ("0", "0,2", "0,2,0", "-1,3,1", "1,2", "r", "c", "0,2,-2")
      if not (k == "r" and text == "1,2" and part == "2, 3")],
    *[f"jnp.trim_zeros(jnp.pad(zeros, 2), '{trim}', {axis})" for trim in ("f", "b", "fb")
      for axis in ("None", "0", "-1", "(0, 1)")],
    "jnp.meshgrid(f, i, sparse=True)", "jnp.meshgrid(f, i, v, sparse=True, indexing='ij')",
    "jnp.einsum(m, [0, 1], m, [2, 1])", "jnp.einsum(m, [5, ...], [..., 5])",
    "jnp.einsum(m, [1, 0])", "jnp.einsum(m, [30, 0], f, [0], [30])",
    "jax.jit(lambda m, w: jnp.delete(m, w, 1, assume_unique_indices=True))(m, counts[:2])",
    "jax.jit(lambda m, w: jnp.repeat(m, w, 1, total_repeat_length=5))(m, counts[:3])",
    "jnp.piecewise(i, [i < 2, i > 1], [1, lambda v: v * 10, 3])",
    "jnp.piecewise(f, jnp.asarray([False, True]), [1.0, lambda v: v * 10])",
    "jnp.vsplit(v[:4], 2)", "lax.broadcast_in_dim(m, (3, 4, 2), (2, 0))",
    *[f"jnp.linalg.{call}" for call in (
        "cross(m, m[::-1])", "cross(m.T, m.T[:, ::-1], axis=0)", "diagonal(x, offset=1)",
        "trace(x)", "trace(x.astype('int8'), offset=-1)", "outer(f, i)", "matmul(m, m.T)",
        "matrix_power(m @ m.T, 5)", "matrix_power(m[:, :2], 0)", "multi_dot([m, m.T, m])",
        "multi_dot([f, m.T, m, f])", "matrix_norm(x, ord=1)", "matrix_norm(x, keepdims=True)",
        "vector_norm(x, axis=(2, 0))", "vector_norm(x, ord=3, keepdims=True)",
        "vector_norm(m, axis=0, ord=jnp.inf)", "vector_norm(m, ord=0)", "vecdot(m, m)")],
    *[f"m.astype('{a}').view('{b}')" for a, b in (
        ("int16", "uint8"), ("bool", "int8"), ("float32", "float16"), ("bfloat16", "int16"))],
    *[f"m.at[{i}].{do}mode='{mode}', wrap_negative_indices=False)"
      for i in ("-1", "np.array([0, -1])", "0, jnp.asarray([-2, 1])", "1:, np.array([-9, 2])")
      for do, modes in (("set(9, ", "drop clip"), ("add(9.0, ", "drop"), ("get(", "fill clip"))
      for mode in modes.split()],
    "jnp.polyadd(m, f[None])", "jnp.polysub(s, m)", "jnp.linspace(-jnp.pi, jnp.pi, 9)",
    *[f"jnp.{f}.{call}" for f in ("add", "subtract", "maximum", "bitwise_or") for call in (
        "reduce(zeros)", "reduce(zeros, axis=1, keepdims=True)", "accumulate(zeros, 1)",
        "outer(i, zeros)", "reduceat(counts, np.array([0, 2, 3]))",
        "at(i, np.array([0, 0]), 5, inplace=False)", "reduce(zeros, initial=3, where=zeros > 0)")],
    *[f"jnp.frompyfunc(lambda a, b: a * 2 - b, 2, 1).{call}" for call in (
        "reduce(f)", "accumulate(m, 1)", "outer(f, v)", "reduceat(v, np.array([0, 2]))")],
    "jnp.arange(8, dtype='uint8').view('int32')", "m.astype('int16').byteswap()", "m.byteswap()",
    "lax.bitcast_convert_type(m, 'uint16')", "m.compress(b[:2], axis=0)",
    "lax.bitcast_convert_type(jnp.arange(8, dtype='uint8').reshape(2, 4), 'float32')",
]
# Parameters that JAX's functions have beyond those of NumPy and SciPy.
PARAMETERS: list[str] = [" ".join(call.split()) for call in """
jnp.argsort(f, descending=True, dtype='int16') | jnp.nan_to_num(odd, True, 3.0) |
jnp.nan_to_num(odd, copy=False, nan=2) | jnp.stack([f, f], 1, None, 'int8') | jnp.std(f,
mean=f.mean()) | jnp.var(m, axis=1, mean=m.mean(1, keepdims=True)) | jnp.sum(f.astype('int8'),
promote_integers=False) | jnp.prod(b, promote_integers=False) | jnp.take_along_axis(m, out[:2,
None], 1, wrap_negative_indices=False) | jnp.take_along_axis(m, out[2:, None], 1, mode='clip',
wrap_negative_indices=False) | jnp.ptp(m, 0, None, True) | jnp.trace(m, 0, 0, 1, None, None) |
jnp.concat([f, f], axis=0) | jnp.permute_dims(m, axes=(1, 0)) | lax.dynamic_slice(f, (out[2],),
(1,), allow_negative_indices=False) | lax.dynamic_slice(m, (i[0], out[2]), (1, 1),
allow_negative_indices=[True, False]) | lax.dynamic_slice_in_dim(f, out[2], 1,
allow_negative_indices=False) | lax.dynamic_index_in_dim(f, out[2], 0, False,
allow_negative_indices=False) | lax.dynamic_update_slice(f, v[4:], (out[2],),
allow_negative_indices=False) | lax.dynamic_update_index_in_dim(f, 9.0, out[2], 0,
allow_negative_indices=False) | lax.dot(m, m, dimension_numbers=(((1,), (1,)), ((0,), (0,)))) |
lax.exp(x=f) | lax.add(x=f, y=f) | lax.atan2(x=f, y=2 * f) | lax.nextafter(x1=f, x2=f + 1) |
lax.polygamma(m=1.0, x=2.0) | lax.tile(operand=f, reps=(2,)) | lax.unstack(m, 1) | lax.mul(f, f,
out_dtype=None) | lax.sin(f, accuracy=None) | jnp.add(f, f, out=None, where=None) |
jnp.linalg.tensordot(m, m.T, axes=1) | nn.standardize(m, algorithm='stable') | nn.logsumexp(m, 1,
-m, False, True) | nn.logsumexp(m, 1, None, False, False, m > 0) | random.choice(k, 5, (3,),
mode='low') | stats.gumbel_l.ppf(p=0.3, loc=1) | stats.logistic.isf(x=0.3, scale=2) | jnp.argmax(m,
1, None, None) | lax.full_like(f, 2.0, sharding=None)
""".split("|")]

FAMILIES: dict[str, list[str]] = {
    "broad": BROAD,
    "elementwise": ELEMENTWISE, "arranging": ARRANGING, "places": PLACES, "choosing": CHOOSING,
    "statistics": STATISTICS, "counting": COUNTING, "calculus": CALCULUS,
    "polynomials": POLYNOMIALS, "special": SPECIAL, "random": RANDOM,
    "sets": SETS, "quantiles": QUANTILES, "orders": ORDERS, "lax": LAX,
    "attention": ATTENTION, "image": IMAGE, "stats": STATS, "parameters": PARAMETERS,
}

# Relative tolerance of functions for which the default of some ulps is too small.
TOLERANCES: dict[str, float] = {"expm_frechet": 3e-4, "special.": 3e-5, "stats.": 3e-5,
                                "gamma_grad": 3e-4, "igamma": 3e-4, "random.": 2e-5,
                                "jsp.sparse": 1e-3, "jsp.": 1e-4, "jnp.linalg.": 1e-4,
                                "lax.linalg.": 1e-4, "jnp.fft": 1e-5, "odeint": 1e-5,
                                "sparse.": 1e-5, "jnp.roots": 1e-4, "jnp.poly": 1e-4}


# Every n-th call of a family is recorded; every third one of families without an entry.
SAMPLES: dict[str, int] = {"sets": 8, "quantiles": 8, "orders": 6, "stats": 7, "special": 4,
                           "lax": 4, "attention": 6, "image": 6, "broad": 9,
                           "parameters": 1}
# Families whose weak types are not compared.
WITHOUT_WEAK = ("stats.",)


def tolerance(expression: str) -> float:
    return next((t for name, t in TOLERANCES.items() if name in expression), 2e-6)
