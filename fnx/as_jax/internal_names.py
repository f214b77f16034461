"""Internal names of JAX that libraries import, and their values here.

Those of optax 0.2.8, jaxopt 0.8.5, equinox 0.13.8 and flax 0.12.8. Names that many programs reach
are implemented. The others are inert: accepted while libraries are imported (inert.py), and raise
when a program uses them. A name of a public JAX module that is not in this table is fnx's own, or a
placeholder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fnx.as_jax import partial_eval
from fnx.as_jax.inert import (
    EffectTypes,
    HiPrimitive,
    HiType,
    Primitive,
    always_false,
    api_boundary,
    identity,
    ignore,
)
from fnx.as_jax.placeholders import make_placeholder
from fnx.core.array.abstract_values import AbstractValue, ShapedArray
from fnx.core.array.pytree_registry import pytree_type
from fnx.core.scope import scope
from fnx.core.support.errors import TypePromotionError
from fnx.transforms.host_callbacks import effects_barrier


class TraceState:
    """The stack of open traces; equal if the same traces are open.

    >>> TraceState() == TraceState()
    True
    """

    def __init__(self, convention: str = "") -> None:
        self.open = tuple(scope.open_scopes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TraceState) and len(self.open) == len(other.open) \
            and all(a is b for a, b in zip(self.open, other.open))

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.open)))


class TreeRegistry:
    """``type in _registry``: whether a type is a registered container."""

    def __contains__(self, kind: type) -> bool:
        return pytree_type(kind) is not None


def _stubs(module: str, **kinds: str) -> dict[str, Any]:
    """Return placeholders, given kind -> names."""
    return {name: make_placeholder(f"{module}.{name}", kind, ())
            for kind, names in kinds.items() for name in names.split()}


_frames: dict[str, Any] = {"api_boundary": api_boundary, "register_exclusion": ignore,
                           "include_frame": always_false, "_exclude_paths": []}

INTERNAL: dict[str, Mapping[str, Any]] = {
    "jax._src.traceback_util": _frames,
    "jax._src.core": {"ShapedArray": ShapedArray, "AbstractValue": AbstractValue,
                      "trace_state_clean": lambda: not scope.is_open(),
                      **_stubs("jax._src.core", functions="physical_aval")},
    "jax._src.dispatch": {"wait_for_tokens": effects_barrier},
    "jax._src.dtypes": {"TypePromotionError": TypePromotionError,
                        **_stubs("jax._src.dtypes", types="ExtendedDType DType extended",
                                 functions="finfo supports_inf")},
    "jax._src.earray": _stubs("jax._src.earray", types="EArray"),
    "jax._src.interpreters.pxla": {"global_result_handlers": {}},
    "jax._src.checkify": _stubs("jax._src.checkify", types="Out Error", errors="JaxException",
                                values="user_checks", functions="checkify"),
    "jax._src.state.types": _stubs("jax._src.state.types", types="AbstractRef"),
    "jax._src.tree_util": {"_registry": TreeRegistry()},
    "jax.extend.core": {"Primitive": Primitive, "get_opaque_trace_state": TraceState},
    "jax.extend.linear_util": {"wrap_init": partial_eval.wrap_init},
    "jax.extend.source_info_util": {"register_exclusion": ignore},
    "jax.api_util": {"debug_info": ignore, "flatten_fun": partial_eval.flatten_fun,
                     "flatten_fun_nokwargs": partial_eval.flatten_fun_nokwargs},
    "jax.interpreters.ad": {"primitive_jvps": {}, "primitive_transposes": {},
                            "instantiate_zeros": identity, "is_undefined_primal": always_false},
    "jax.interpreters.batching": {"primitive_batchers": {}, "axis_primitive_batchers": {}},
    "jax.interpreters.mlir": {"register_lowering": ignore, "lower_fun": ignore},
    "jax.interpreters.partial_eval": {
        "PartialVal": partial_eval.PartialVal,
        "trace_to_jaxpr_nounits": partial_eval.trace_to_jaxpr_nounits},
    "jax.experimental.hijax": {
        "HiPrimitive": HiPrimitive, "VJPHiPrimitive": HiPrimitive, "HiType": HiType,
        "MutableHiType": HiType, "register_hitype": ignore, "instantiate_zeros": identity,
        "is_undefined_primal": always_false, "aval_method": identity, "aval_property": property,
        "control_flow_allowed_effects": EffectTypes()},
    "jax.monitoring": dict.fromkeys((
        "record_event", "record_event_duration_secs", "record_event_time_span", "record_scalar",
        "register_event_listener", "register_event_duration_secs_listener",
        "register_scalar_listener", "unregister_event_listener",
        "unregister_event_duration_listener", "unregister_scalar_listener"), ignore),
}
INTERNAL_PACKAGES = ("jax._src",)
