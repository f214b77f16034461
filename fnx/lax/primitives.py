"""Primitives under the names of ``jax.lax``: ``lax.sin_p``, ``lax.scan_p`` ...

A primitive that is one op of fnx is defined with its row in fnx/jaxprs. The others, here, are
functions of fnx.lax that take the params of JAX's primitive: they bind, and what stands in a jaxpr
are the ops that they consist of.

>>> from fnx import lax
>>> lax.sin_p, lax.integer_pow_p.bind(3.0, y=2)
(sin, Array(9., dtype=float32, weak_type=True))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx import lax
from fnx import numpy as jnp
from fnx.core.support.errors import NotBuiltError
from fnx.jaxprs import bodies, op_rows
from fnx.jaxprs.primitive import Primitive, built_in, define, is_built_in
from fnx.lax import linalg
from fnx.lax.gamma_beta import betainc
from fnx.lax.gather_scatter import scatter_by_params
from fnx.lax.generic_reductions import WINDOW_PRIMITIVES
from fnx.lax.parallel import all_gather_by_params, over_axes, reduce_scatter_by_params
from fnx.lax.slicing import dynamic_slice_at, dynamic_update_slice_at
from fnx.numpy.fft import fft_by_params
from fnx.numpy.shape_manipulation import stack_by_params

# attributes whose primitive has another name
_NAMES = {"remat_p": "remat2", "add_jaxvals_p": "add_any", "scatter_add_p": "scatter-add",
          "scatter_mul_p": "scatter-mul", "scatter_min_p": "scatter-min",
          "scatter_max_p": "scatter-max", "scatter_sub_p": "scatter-sub"}
# params that say nothing to fnx
_IGNORED = frozenset({
    "accuracy", "sharding", "out_sharding", "update_jaxpr", "update_consts", "input_dtype",
    "axis_size", "indices_are_sorted", "unique_indices"})
# functions of fnx.lax and fnx.numpy that take the operands, and params by the same names
_SAME = frozenset({
    "square", "population_count", "clz", "mulhi", "clamp", "conj", "integer_pow",
    "reduce_precision", "igamma", "igammac", "igamma_grad_a", "polygamma", "zeta",
    "cumlogsumexp", "cumsum", "cumprod", "cummax", "cummin", "conv_general_dilated",
    "gather", "tile", "ppermute", "all_to_all", "top_k", "split", "unstack"})
_MULTIPLE = frozenset({"split", "top_k", "unstack", "qr", "lu", "svd", "eigh",
                       "optimization_barrier"})


def _same(name: str) -> Callable[..., Any]:
    f = getattr(lax, name)

    def compute(*args: Any, **params: Any) -> Any:
        return f(*args, **{k: v for k, v in params.items() if k not in _IGNORED})
    return compute


_OTHERS: dict[str, Callable[..., Any]] = {
    "copy": jnp.copy,
    "dynamic_slice": dynamic_slice_at, "dynamic_update_slice": dynamic_update_slice_at,
    "gather": _same("gather"),
    "stack": stack_by_params, "fft": fft_by_params,
    "regularized_incomplete_beta": betainc,
    **{f.__name__: over_axes(f) for f in (lax.psum, lax.pmax, lax.pmin)},
    "all_gather": all_gather_by_params, "reduce_scatter": reduce_scatter_by_params,
    "scatter": scatter_by_params(lax.scatter),
    **{f"scatter-{name}": scatter_by_params(getattr(lax, f"scatter_{name}"))
       for name in ("add", "mul", "min", "max")},
    **WINDOW_PRIMITIVES,
    "cholesky": linalg.cholesky_as_is, "triangular_solve": linalg.triangular_solve,
}


def primitive(name: str) -> Primitive:
    """Return the primitive of a name of ``jax.lax`` like ``sin_p``.

    Raises:
        NotBuiltError: fnx has none.
    """
    short = _NAMES.get(name, name.removesuffix("_p"))
    if short in _OTHERS:
        return define(short, _OTHERS[short], short in _MULTIPLE, replace=True)
    if is_built_in(short):
        return built_in(short)
    if short in _SAME and hasattr(lax, short):
        return define(short, _same(short), short in _MULTIPLE)
    raise NotBuiltError(f"the primitive {name}: fnx has no primitive {short!r}",
                        hint="docs/jaxprs.md says which there are")


TABLES = (op_rows, bodies)  # which define the others


def __getattr__(name: str) -> Any:
    if name.endswith("_p"):
        return primitive(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
