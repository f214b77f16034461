"""Probability distributions, as in ``jax.scipy.stats``, with one module for each.

>>> from fnx.scipy.stats import norm
>>> print(norm.cdf(0.0))
0.5
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module

if TYPE_CHECKING:  # loaded on first use
    from fnx.scipy.stats import (
        bernoulli,
        beta,
        betabinom,
        binom,
        cauchy,
        chi2,
        dirichlet,
        expon,
        gamma,
        gennorm,
        geom,
        gumbel_l,
        gumbel_r,
        laplace,
        logistic,
        multinomial,
        multivariate_normal,
        nbinom,
        norm,
        pareto,
        poisson,
        t,
        truncnorm,
        uniform,
        vonmises,
        wrapcauchy,
    )
    from fnx.scipy.stats.descriptive import mode, rankdata, sem
    from fnx.scipy.stats.kde import gaussian_kde

__all__ = [
    "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma",
    "gaussian_kde", "gennorm", "geom", "gumbel_l", "gumbel_r", "laplace", "logistic", "mode",
    "multinomial", "multivariate_normal", "nbinom", "norm", "pareto", "poisson", "rankdata", "sem",
    "t", "truncnorm", "uniform", "vonmises", "wrapcauchy",
]

_HOMES = {**dict.fromkeys(("mode", "rankdata", "sem"), "descriptive"), "gaussian_kde": "kde"}

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(
        __name__, __all__,
        modules={name: f"fnx.scipy.stats.{_HOMES.get(name, name)}" for name in __all__})
