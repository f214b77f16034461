"""Cases of the transform matrix, continued: the distributions of ``fnx.scipy.stats``.

Functions of continuous families are evaluated where the density is smooth; discrete ones are
differentiated in their parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.scipy import stats
from tests.laws.matrix_cases import Case, generic

KINDS = ("logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")
FAMILIES = ("beta", "cauchy", "chi2", "expon", "gamma", "gennorm", "gumbel_l", "gumbel_r",
            "laplace", "logistic", "norm", "pareto", "t", "truncnorm", "uniform", "vonmises",
            "wrapcauchy")

# Domains of families whose arguments are not in (0, 1).
PLACES: dict[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]] = {
    "pareto": lambda xs: (xs[0] + 1.2, *xs[1:]),
    "truncnorm": lambda xs: (xs[0], -xs[1] - 0.7, xs[2] + 0.9)}

_COUNTS = np.array([1, 3, 2])
DISCRETE: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "bernoulli.logpmf": (lambda p: stats.bernoulli.logpmf(np.array([1, 0, 1]), p), ((3,),)),
    "betabinom.logpmf": (lambda a, b: stats.betabinom.logpmf(_COUNTS, 5, a, b), ((3,), (3,))),
    "binom.logpmf": (lambda p: stats.binom.logpmf(_COUNTS, 4, p), ((3,),)),
    "dirichlet.logpdf": (lambda x, a: stats.dirichlet.logpdf(x / x.sum(), a), ((3,), (3,))),
    "geom.logpmf": (lambda p: stats.geom.logpmf(_COUNTS, p), ((3,),)),
    "multinomial.logpmf": (lambda p: stats.multinomial.logpmf(_COUNTS, 6, p / p.sum()), ((3,),)),
    "multivariate_normal.logpdf": (lambda x, m, c: stats.multivariate_normal.logpdf(
        x, m, c @ c.T + jnp.eye(3)), ((3,), (3,), (3, 3))),
    "nbinom.logpmf": (lambda p: stats.nbinom.logpmf(_COUNTS, 4.0, p), ((3,),)),
    "poisson.logpmf": (lambda mu: stats.poisson.logpmf(_COUNTS, mu), ((3,),))}


def _case(name: str, f: Callable[..., Any], xs: tuple[Any, ...], longest: int) -> Case:
    return Case(f"fnx.scipy.stats.{name}", lambda xs: (f(*xs),), xs, longest)


def distributions() -> list[Case]:
    """Return densities with compositions of length 3. Functions built from special functions get 2,
    as those have cases of their own."""
    cases: list[Case] = []
    for family in FAMILIES:
        for kind in KINDS:
            f = getattr(getattr(stats, family), kind, None)
            if f is not None:
                taken = [p for p in inspect.signature(f).parameters.values()
                         if p.default is p.empty]
                xs = tuple([generic((3,), i) for i in range(len(taken))])
                xs = PLACES.get(family, lambda xs: xs)(xs)
                cases.append(_case(f"{family}.{kind}", f, xs, 3 if "pdf" in kind else 2))
    for name, (f, shapes) in DISCRETE.items():
        xs = tuple([generic(shape, i) for i, shape in enumerate(shapes)])
        cases.append(_case(name, f, xs, 3))
    return cases
