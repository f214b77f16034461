"""What the modules of distributions share: arguments, docstrings, and functions of other functions.

A function such as ``points`` has the signature that users see and returns the arguments as Arrays.
A formula takes these; ``Distribution`` makes the public function of both, with its docstring:

    @_norm(points, 0.6915)
    def cdf(x: Array, loc: Array, scale: Array) -> Array:
        return ndtr((x - loc) / scale)
"""

from __future__ import annotations

import inspect
import sys
from bisect import insort
from collections.abc import Callable
from typing import Any, ParamSpec

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.float32_compute import compute_in_float32
from fnx.core.array.promotion import promote_operands
from fnx.core.support.errors import lazy_module

__all__ = ["Distribution", "counts_np", "counts_p", "points", "points_ab", "points_df",
           "probabilities", "promote_floats", "quantiles"]

P = ParamSpec("P")

_SUMMARIES = {
    "logpdf": "the logarithm of the probability density",
    "pdf": "the probability density",
    "logpmf": "the logarithm of the probability mass",
    "pmf": "the probability mass",
    "logcdf": "the logarithm of the CDF",
    "cdf": "the cumulative distribution function (CDF)",
    "logsf": "the logarithm of the survival function",
    "sf": "the survival function, 1 - CDF",
    "ppf": "the quantile function, the inverse of ``cdf``",
    "isf": "the inverse of the survival function ``sf``",
    "entropy": "the entropy, in nats"}
_TEXTS: dict[str, Any] = {
    "x": "the points.", "k": "the counts.",
    "q": "a probability, from 0 to 1.", "p": "a probability, from 0 to 1.",
    "loc": "the location.", "scale": "the scale; above 0."}


class Distribution:
    """Makes the public functions of a distribution's module, and lists them in its ``__all__``.

    Args:
        module: the module's name.
        example: the arguments of the examples; that of quantiles is 0.75.
        returns, error: sections of the docstrings.
        texts: parameter -> its description.
    """

    def __init__(self, module: str, example: str, *,
                 returns: str = "An Array of the broadcast shape, of a float dtype.",
                 error: str = "ShapeError: the shapes do not broadcast.", **texts: str) -> None:
        self._module, self._name, self._example = module, module.rpartition(".")[2], example
        self._docstr = DocTemplate(returns=returns, raises=(error,),
                                   imports=f"{module} as {self._name}", **(_TEXTS | texts))
        self._names: list[str] = []
        missing, listing = lazy_module(module, self._names)
        vars(sys.modules[module]).update(__all__=self._names, __getattr__=missing,
                                         __dir__=listing)

    def __call__(self, arguments: Callable[P, list[Array]], result: float, example: str = ""
                 ) -> Callable[[Callable[..., Array]], Callable[P, Array]]:
        """Decorate a formula of the arguments; ``result`` is that of the example, to 4 digits."""
        signature = inspect.signature(arguments).replace(return_annotation="Array")

        def decorate(formula: Callable[..., Array]) -> Callable[P, Array]:
            def call(*args: P.args, **kwargs: P.kwargs) -> Array:
                return formula(*arguments(*args, **kwargs))
            return self._publish(call, formula.__name__, signature, result, example)
        return decorate

    def exp(self, f: Callable[P, Array], result: float) -> Callable[P, Array]:
        """Return the exponential of a function: ``pdf`` of ``logpdf``."""
        def call(*args: P.args, **kwargs: P.kwargs) -> Array:
            return jnp.exp(f(*args, **kwargs))
        return self._publish(call, f.__name__.removeprefix("log"), inspect.signature(f), result)

    def log(self, f: Callable[P, Array], result: float) -> Callable[P, Array]:
        """Return the logarithm of a function: ``logcdf`` of ``cdf``."""
        def call(*args: P.args, **kwargs: P.kwargs) -> Array:
            return jnp.log(f(*args, **kwargs))
        return self._publish(call, f"log{f.__name__}", inspect.signature(f), result)

    def _publish(self, call: Callable[P, Array], name: str, signature: inspect.Signature,
                 result: float, example: str = "") -> Callable[P, Array]:
        """Give a function its name, signature and docstring, and the checks of the public API."""
        example = example or self._example
        if name in ("ppf", "isf"):
            example = f"0.75{example[example.index(', '):]}" if ", " in example else "0.75"
        lines = [f"Return {_SUMMARIES[name]}.", "",
                 *([">>> import fnx.numpy as jnp"] if "jnp" in example else []),
                 f">>> print({self._name}.{name}({example}).round(4))", f"{result}", ""]
        insort(self._names, name)
        call.__doc__ = self._docstr.docstring("\n    ".join(lines), list(signature.parameters))
        call.__name__ = call.__qualname__ = name
        call.__module__ = self._module
        call.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        call.__annotations__["return"] = "Array"
        call.__dict__["__signature__"] = signature
        return compute_in_float32(call)


def promote_floats(*xs: Any) -> list[Array]:
    """Convert arguments to Arrays of one float dtype.

    >>> [x.dtype.name for x in promote_floats(1, 2.5)]
    ['float32', 'float32']
    """
    nodes, weak = promote_operands("inexact", "", xs, broadcast=False)
    return [Array(node, weak) for node in nodes]


# ---- arguments that several distributions share ----------------------------------------------


def points(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> list[Array]:
    return promote_floats(x, loc, scale)


def quantiles(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> list[Array]:
    return promote_floats(q, loc, scale)


def probabilities(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> list[Array]:
    return promote_floats(p, loc, scale)


def points_df(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
              ) -> list[Array]:
    return promote_floats(x, df, loc, scale)


def points_ab(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
              ) -> list[Array]:
    return promote_floats(x, a, b, loc, scale)


def counts_p(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> list[Array]:
    return promote_floats(k, p, loc)


def counts_np(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> list[Array]:
    return promote_floats(k, n, p, loc)
