"""Internal names of JAX that libraries import, and their values here.

Only names whose value is not fnx's thing of the same name or of the public name that
private_names.json gives. Names that many programs reach are implemented. The others are inert:
accepted while libraries are imported (inert.py), and raise when a program uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from fnx.as_jax import (
    core_helpers,
    jaxpr_helpers,
    jaxpr_statistics,
    linear_util,
    optimizers,
    partial_eval,
    prefix_errors,
    pretty_printer,
    source_helpers,
    stax,
)
from fnx.as_jax.inert import (
    Format,
    HiPrimitive,
    HiType,
    always_false,
    api_boundary,
    identity,
    ignore,
    set_xla_metadata,
)
from fnx.config_context import ensure_compile_time_eval, named_scope
from fnx.core.array.abstract_values import get_aval
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.pytree_registry import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    SequenceKey,
    pytree_type,
)
from fnx.core.array.tree import TreeDef
from fnx.core.ir.low_precision import ml_dtypes
from fnx.core.scope import scope
from fnx.core.tracing.references import new_ref
from fnx.experimental import checkify, pallas
from fnx.exporting.symbolic_shapes import is_symbolic_dim
from fnx.extend import core as extend_core
from fnx.interpreters import ad
from fnx.jaxprs import callbacks, references, stablehlo
from fnx.jaxprs.effects import EffectTypes, control_flow_allowed_effects
from fnx.jaxprs.make import discharge_state
from fnx.jaxprs.primitive import built_in
from fnx.jaxprs.syntax import (
    DebugEffect,
    IOEffect,
    NameStack,
    OrderedDebugEffect,
    OrderedIOEffect,
    SourceInfo,
)
from fnx.random import generators
from fnx.random.keys import key
from fnx.sharding import (
    Mesh,
    NamedSharding,
    PartitionSpec,
    SingleDeviceSharding,
    shard_map,
)
from fnx.sharding.device_registry import devices
from fnx.transforms.custom.check_results import SymbolicZero
from fnx.transforms.host_callbacks import effects_barrier
from fnx.transforms.jit import jit
from fnx.transforms.saved_residuals import saved_residuals


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


class RegistryEntry(NamedTuple):
    """How a container is taken apart, and made of (data, children)."""

    to_iter: Callable[[Any], tuple[Sequence[Any], Any]]
    from_iter: Callable[[Any, Sequence[Any]], Any]


class TreeRegistry:
    """The registered types of containers: ``_registry[type]``.

    >>> TreeRegistry()[tuple].to_iter((1, 2))[0]
    (1, 2)
    """

    def __getitem__(self, kind: type) -> RegistryEntry:
        entry = pytree_type(kind)
        if entry is None:
            raise KeyError(kind)
        return RegistryEntry(entry.flatten, entry.unflatten)

    def __contains__(self, kind: type) -> bool:
        return pytree_type(kind) is not None


_frames: dict[str, Any] = {"api_boundary": api_boundary, "register_exclusion": ignore,
                           "include_frame": always_false, "_exclude_paths": []}

_NO_NAMES: Mapping[str, Any] = {}
_REF_EFFECTS = {n: getattr(references, n) for n in (
    "RefEffect", "ReadEffect", "WriteEffect", "AccumEffect")}
INTERNAL: dict[str, Mapping[str, Any]] = {
    "jax.experimental.xla_metadata": {"set_xla_metadata": set_xla_metadata},
    "jax.extend.random": {
        "define_prng_impl": generators.define_prng_impl, "rbg_prng_impl": generators.RBG,
        "unsafe_rbg_prng_impl": generators.UNSAFE_RBG, "threefry_prng_impl": generators.THREEFRY,
        "seed_with_impl": lambda impl, seeds: key(seeds, impl=impl)},
    "jax._src.xla_metadata": {"set_xla_metadata": set_xla_metadata},
    "jax.core": {name: getattr(extend_core, name) for name in (
        "CallPrimitive", "DebugInfo", "DropVar", "Effect", "Effects", "JaxprTypeError",
        "check_jaxpr", "gensym", "jaxprs_in_params", "new_jaxpr_eqn", "no_effects",
        "primal_dtype_to_tangent_dtype", "valid_jaxtype")} | {
            **{n: core_helpers.CORE[n] for n in ("is_constant_dim", "max_dim", "min_dim")},
            "eval_context": ensure_compile_time_eval,
            "pytype_aval_mappings": {np.ndarray: get_aval}},
    "jax._src.lib.mlir.dialects": {"hlo": stablehlo},
    "jax._src.api": {"_std_basis": core_helpers.standard_basis} | {
        name: type(name, (), {"__doc__": "Marks a cotangent of ``with_refs``."})
        for name in ("DidntWant", "DontWant", "GradRef", "GradValue", "NotNeeded")},
    "jax._src.jaxpr_util": {n: getattr(jaxpr_statistics, n) for n in jaxpr_statistics.__all__},
    "jax._src.traceback_util": _frames,
    "jax._src.array": {"ArrayImpl": Array},
    "jax._src.lax.lax": {"_convert_element_type": core_helpers.convert_element_type},
    "jax.experimental.shard_alike": {"shard_alike": core_helpers.shard_alike},
    "jax._src.core": {**core_helpers.CORE, **jaxpr_helpers.OF_CORE,
                      "eval_context": ensure_compile_time_eval, "new_ref": new_ref,
                      "InternalMutableArrayEffect": references.InternalMutableArrayEffect,
                      "is_symbolic_dim": is_symbolic_dim,
                      "ref_p": built_in("new_ref"),
                      "freeze_p": built_in("freeze"),
                      "internal_mutable_array_effect": references.INTERNAL_EFFECT,
                      "trace_state_clean": lambda: not scope.is_open(),
                      "extend_axis_env_nd": core_helpers.extend_axis_env_nd},
    "jax._src.interpreters.partial_eval": jaxpr_helpers.OF_PARTIAL_EVAL,
    "jax._src.effects": {name: EffectTypes() for name in (
        "custom_derivatives_allowed_effects", "lowerable_effects", "ordered_effects",
        "partial_eval_kept_effects", "remat_allowed_effects",
        "shardable_ordered_effects")} | {
            "EffectTypeSet": EffectTypes,
            "control_flow_allowed_effects": control_flow_allowed_effects},
    "jax._src.callback": {
        **{f"{n}_p": built_in(n) for n in ("pure_callback", "io_callback")},
        "IOEffect": IOEffect, "OrderedIOEffect": OrderedIOEffect,
        "_IOEffect": callbacks.io_effect, "_OrderedIOEffect": callbacks.ordered_io_effect},
    "jax._src.debugging": {
        **{f"{n}_p": built_in(n) for n in ("debug_callback", "debug_print")},
        "DebugEffect": DebugEffect, "OrderedDebugEffect": OrderedDebugEffect,
        "debug_effect": callbacks.debug_effect,
        "ordered_debug_effect": callbacks.ordered_debug_effect},
    "jax._src.source_info_util": {
        "NameStack": NameStack, "SourceInfo": SourceInfo, "current": SourceInfo,
        "new_source_info": SourceInfo, "current_name_stack": core_helpers.current_name_stack,
        "new_name_stack": core_helpers.new_name_stack, "extend_name_stack": named_scope,
        "user_frame": core_helpers.user_frame, "Frame": core_helpers.Frame,
        "summarize": core_helpers.summarize},
    "jax._src.pretty_printer": pretty_printer.NAMES,
    "jax._src.ad_util": {"Zero": ad.Zero},
    "jax._src.interpreters.ad": {n: getattr(ad, n) for n in ad.__all__},
    "jax.lax": {"composite": core_helpers.composite, "dce_sink": ignore,
                "rng_bit_generator": generators.rng_bit_generator,
                "RandomAlgorithm": generators.RandomAlgorithm},
    "jax._src.ad_checkpoint": {"saved_residuals": saved_residuals},
    "jax._src.config": source_helpers.Settings(),
    "jax._src.util": source_helpers.HELPERS | {
        "weakref_lru_cache": core_helpers.weakref_lru_cache},
    "jax._src.linear_util": {n: getattr(linear_util, n) for n in linear_util.__all__},
    **{f"jax._src.lib.{name}": _NO_NAMES for name in ("xla_client", "pytree", "mlir.ir")},
    "jax._src.lib._jax": {"pytree": SimpleNamespace(
        PyTreeDef=TreeDef, PyTreeRegistry=TreeRegistry, default_registry=TreeRegistry(),
        DictKey=DictKey, SequenceKey=SequenceKey, GetAttrKey=GetAttrKey,
        FlattenedIndexKey=FlattenedIndexKey)},
    "jax._src.state.types": _REF_EFFECTS, "jax._src.state": _REF_EFFECTS,
    "jax._src.state.primitives": {"addupdate_p": built_in("addupdate")},
    "jax._src.state.discharge": {
        "run_state": core_helpers.run_state, "run_state_reference": core_helpers.run_state,
        "discharge_state": discharge_state, "addupdate_p": built_in("addupdate")},
    "jax._src.dtypes": {
        "is_weakly_typed": lambda x: asarray(x).weak_type,
        "lattice_result_type": core_helpers.lattice_result_type,
        **{t: getattr(ml_dtypes(), t) for t in dir(ml_dtypes()) if t.startswith(("float", "int"))},
        "bool_": np.bool_, "int_": np.int64, "uint": np.uint64, "float_": np.float64,
        "complex_": np.complex128},
    "jax._src.checkify": {
        **{n: getattr(checkify, n) for n in ("Error", "NaNError", "OOBError", "FailedCheckError",
                                             "DivisionByZeroError", "JaxRuntimeError")},
        "JaxException": checkify.ErrorCategory},
    "jax._src.custom_derivatives": {"SymbolicZero": SymbolicZero},
    "jax._src.sharding_impls": {
        "Mesh": Mesh, "NamedSharding": NamedSharding, "PartitionSpec": PartitionSpec,
        "SingleDeviceSharding": SingleDeviceSharding},
    "jax._src.distributed": {"global_state": SimpleNamespace(
        client=None, service=None, process_id=0, num_processes=1, coordinator_address=None)},
    "jax._src.xla_bridge": {"_backends": {"cpu": SimpleNamespace(platform="cpu")}},
    "jax._src.dispatch": {"wait_for_tokens": effects_barrier,
                          "apply_primitive": core_helpers.apply_primitive},
    "jax._src.interpreters.pxla": {"global_result_handlers": {}},
    "jax._src.tree_util": {"_registry": TreeRegistry(), **prefix_errors.NAMES},
    "jax.extend.core": {"concrete_or_error": core_helpers.concrete_or_error,
                        "get_opaque_trace_state": TraceState,
                        "find_top_trace": lambda xs: scope.innermost()},
    "jax.extend.linear_util": {n: getattr(linear_util, n) for n in linear_util.__all__},
    "jax.extend.source_info_util": {"register_exclusion": ignore,
                                    "summarize": core_helpers.summarize},
    "jax.experimental.compute_on": {"compute_on": core_helpers.ComputeOn},
    "jax.api_util": {"debug_info": core_helpers.debug_info,
                     "flatten_axes": core_helpers.flatten_axes,
                     "donation_vector": core_helpers.donation_vector,
                     "rebase_donate_argnums": core_helpers.rebase_donate_argnums,
                     "shaped_abstractify": core_helpers.shaped_abstractify,
                     "flatten_fun": linear_util.flatten_fun,
                     "flatten_fun_nokwargs": linear_util.flatten_fun_nokwargs,
                     "safe_map": source_helpers.safe_map},
    "jax._src.api_util": {
        "resolve_kwargs": core_helpers.resolve_kwargs,
        "flatten_fun": linear_util.flatten_fun,
        "infer_argnums_and_argnames": linear_util.infer_argnums_and_argnames},
    "jax.interpreters.xla": {"apply_primitive": core_helpers.apply_primitive,
                             "canonicalize_dtype_handlers": {np.ndarray: asarray}},
    "jax.interpreters.partial_eval": {
        "PartialVal": partial_eval.PartialVal,
        "trace_to_jaxpr_dynamic": core_helpers.trace_to_jaxpr_dynamic,
        "trace_to_jaxpr_nounits": partial_eval.trace_to_jaxpr_nounits},
    "jax.experimental.hijax": {
        "HiPrimitive": HiPrimitive, "VJPHiPrimitive": HiPrimitive, "HiType": HiType,
        "MutableHiType": HiType, "register_hitype": ignore, "instantiate_zeros": identity,
        "is_undefined_primal": always_false, "aval_method": identity, "aval_property": property,
        "control_flow_allowed_effects": control_flow_allowed_effects},
    "jax.experimental.pallas": {n: getattr(pallas, n) for n in pallas.__all__},
    "jax.experimental.pallas.tpu": {
        **{n: pallas.MemorySpace(n) for n in ("ANY", "CMEM", "HBM", "SMEM", "VMEM")},
        "CompilerParams": pallas.CompilerParams, "MemorySpace": pallas.MemorySpace},
    "jax.extend.backend": {"get_backend": lambda platform=None: devices(platform)[0],
                           "backends": lambda: {d.platform: d for d in devices()}},
    "jax.example_libraries.optimizers": vars(optimizers),
    "jax.example_libraries.stax": vars(stax),
    "jax.sharding": {"make_single_device_sharding": SingleDeviceSharding},
    "jax.experimental.layout": {"Format": Format},
    "jax.experimental.shard_map": {"shard_map": shard_map},
    "jax.experimental.pjit": {"pjit": jit},
}
