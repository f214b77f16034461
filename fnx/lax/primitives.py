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
from fnx.lax.slicing import dynamic_slice_at, dynamic_update_slice_at

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
    "cumlogsumexp", "conv_general_dilated", "gather", "tile", "axis_index", "ppermute",
    "all_to_all", "fft"})
_MULTIPLE = frozenset({"split", "top_k", "unstack", "qr", "lu", "svd", "eigh",
                       "optimization_barrier"})


def _same(name: str) -> Callable[..., Any]:
    f = getattr(lax, name)

    def compute(*args: Any, **params: Any) -> Any:
        return f(*args, **{k: v for k, v in params.items() if k not in _IGNORED})
    return compute


def _over_axes(f: Callable[..., Any]) -> Callable[..., Any]:
    def compute(x: Any, *, axes: Any, axis_index_groups: Any = None, **ignored: Any) -> Any:
        return f(x, axes, axis_index_groups=axis_index_groups)
    return compute


def _all_gather(x: Any, *, all_gather_dimension: int, axis_name: Any, axis_index_groups: Any = None,
                tiled: bool = False, **ignored: Any) -> Any:
    return lax.all_gather(x, axis_name, axis=all_gather_dimension, tiled=tiled,
                          axis_index_groups=axis_index_groups)


def _top_k(x: Any, *, k: int, axis: int = -1) -> list[Any]:
    return list(lax.top_k(x, k, axis=axis))


def _window(init: float, f: Callable[..., Any]) -> Callable[..., Any]:
    def compute(x: Any, **params: Any) -> Any:
        return lax.reduce_window(x, init, f, **params)
    return compute


_OTHERS: dict[str, Callable[..., Any]] = {
    "copy": jnp.copy,
    "dynamic_slice": dynamic_slice_at, "dynamic_update_slice": dynamic_update_slice_at,
    "gather": _same("gather"),
    "stack": lambda *xs, axis: jnp.stack(xs, axis),
    "unstack": lambda x, *, axis: list(jnp.unstack(x, axis=axis)), "top_k": _top_k,
    "split": lambda x, *, sizes, axis: list(lax.split(x, sizes, axis)),
    "regularized_incomplete_beta": betainc,
    "psum": _over_axes(lax.psum), "pmax": _over_axes(lax.pmax), "pmin": _over_axes(lax.pmin),
    "all_gather": _all_gather,
    "scatter": scatter_by_params(lax.scatter),
    **{f"scatter-{name}": scatter_by_params(getattr(lax, f"scatter_{name}"))
       for name in ("add", "mul", "min", "max")},
    "reduce_window_sum": _window(0.0, lax.add), "reduce_window_max": _window(-jnp.inf, lax.max),
    "reduce_window_min": _window(jnp.inf, lax.min),
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
