"""JAX's settings by their names: which field each of them sets here, and what has no effect.

``scripts/compare_machinery.py config`` compares names and defaults with those of JAX.

>>> FIELD_OF["jax_debug_nans"], FIXED["jax_enable_custom_prng"], INERT["jax_platform_name"]
(('check', {True: 'nan', False: ''}), (False,), '')
"""

from __future__ import annotations

from typing import Any

from fnx.core.support.errors import ArgumentError, UnknownNameError

# name -> the field of fnx.config, and its value for each of JAX's values
FIELD_OF: dict[str, tuple[str, dict[Any, Any]]] = {
    "jax_enable_x64": ("x64", {}),
    "jax_disable_jit": ("disable_jit", {}),
    "jax_disable_most_optimizations": ("disable_most_optimizations", {}),
    "jax_no_tracing": ("no_tracing", {}),
    "jax_num_cpu_devices": ("cpu_devices", {}),
    "jax_numpy_dtype_promotion": ("dtype_promotion", {}),
    "jax_numpy_rank_promotion": ("rank_promotion", {}),
    "jax_threefry_partitionable": ("threefry_partitionable", {}),
    "jax_debug_nans": ("check", {True: "nan", False: ""}),
    "jax_debug_infs": ("check", {True: "inf", False: ""}),
}

# Settings that would change results and cannot be changed here -> the values that are accepted.
FIXED: dict[str, tuple[Any, ...]] = {
    "jax_debug_key_reuse": (False,),
    "jax_default_prng_impl": ("threefry2x32",),
    "jax_enable_custom_prng": (False,),
    "jax_explicit_x64_dtypes": ("warn",),
    "jax_high_dynamic_range_gumbel": (False,),
    "jax_legacy_prng_key": ("allow",),
    "jax_no_execution": (False,),
    "jax_platforms": (None, "cpu", ""),
    "jax_random_seed_offset": (0,),
    **{f"jax_error_checking_behavior_{what}": ("ignore",) for what in ("divide", "nan", "oob")},
}

# The only values of some settings of INERT, as an error in JAX is one here.
CHOICES: dict[str, tuple[Any, ...]] = {
    "jax_default_matmul_precision": (
        None, "default", "high", "highest", "bfloat16", "tensorfloat32", "float32",
        "ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY",
        "ANY_F8_ANY_F8_ANY_FAST_ACCUM", "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16",
        "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9",
        "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64"),
    "jax_platform_name": ("", "cpu", None),
}

# Settings of XLA, its clients, caches and messages: stored, and nothing depends on them. The values
# are JAX's defaults.
INERT: dict[str, Any] = {
    **dict.fromkeys((
        "check_vma", "eager_constant_folding", "jax2tf_associative_scan_reductions",
        "jax_bcoo_cusparse_lowering", "jax_check_static_indices", "jax_check_tracer_leaks",
        "jax_compilation_cache_check_contents", "jax_compilation_cache_expect_pgle",
        "jax_compilation_cache_include_metadata_in_key", "jax_custom_vjp3",
        "jax_debug_leaked_clients_on_clear_backends", "jax_disable_bwd_checks",
        "jax_disable_vmap_shmap_error",
        "jax_disallow_mesh_context_manager", "jax_distributed_debug", "jax_enable_checks",
        "jax_enable_pgle", "jax_enable_recoverability",
        "jax_experimental_unsafe_xla_runtime_errors", "jax_explain_cache_misses",
        "jax_export_ignore_forward_compatibility", "jax_force_dcn_cross_host_transfers",
        "jax_log_checkpoint_residuals", "jax_log_compiles", "jax_mosaic_allow_hlo",
        "jax_pallas_enable_debug_checks", "jax_pallas_poison_buffers", "jax_pallas_verbose_errors",
        "jax_ragged_dot_use_gpu_pallas_triton_lowering", "jax_raise_persistent_cache_errors",
        "jax_refs_to_pins", "jax_remat3", "jax_remove_custom_partitioning_ptr_from_cache_key",
        "jax_remove_size_one_mesh_axis_from_type", "jax_scan3", "jax_share_binary_between_hosts",
        "jax_softmax_custom_jvp", "jax_thread_guard", "jax_threefry_gpu_kernel_lowering",
        "jax_use_emit_pipeline_primitive", "jax_use_simplified_jaxpr_constants"), False),
    **dict.fromkeys((
        "jax2tf_default_native_serialization", "jax_allow_f16_reductions", "jax_auto_pcast",
        "jax_check_proxy_envs", "jax_compiler_enable_remat_pass", "jax_cpu_enable_async_dispatch",
        "jax_enable_compilation_cache", "jax_enable_preemption_service",
        "jax_include_debug_info_in_dumps", "jax_include_full_tracebacks_in_locations",
        "jax_mutable_array_checks", "jax_pallas_use_mosaic_gpu", "jax_pprint_use_color",
        "jax_ragged_dot_use_ragged_dot_instruction", "jax_sort_devices_by_process_index",
        "jax_use_direct_linearize", "jax_use_shardy_partitioner"), True),
    **dict.fromkeys((
        "jax_array_garbage_collection_guard", "jax_compilation_cache_dir",
        "jax_cross_host_transfer_timeout_seconds", "jax_cross_host_transfer_transfer_size",
        "jax_default_device", "jax_default_matmul_precision",
        "jax_hlo_source_file_canonicalization_regex", "jax_pjrt_client_create_options",
        "jax_source_url_schema", "jax_transfer_guard", "jax_transfer_guard_device_to_device",
        "jax_transfer_guard_device_to_host", "jax_transfer_guard_host_to_device"), None),
    **dict.fromkeys((
        "jax_backend_target", "jax_cross_host_transfer_socket_address",
        "jax_cross_host_transport_addresses", "jax_debug_log_modules", "jax_dump_ir_to",
        "jax_mock_gpu_topology", "jax_platform_name", "jax_xla_backend"), ""),
    **dict.fromkeys((
        "jax_captured_constants_report_frames", "jax_persistent_cache_min_entry_size_bytes",
        "jax_serialization_version", "jax_xla_profile_version", "mock_num_gpu_processes"), 0),
    "jax_captured_constants_warn_bytes": 2_000_000_000,
    "jax_compilation_cache_max_size": -1, "jax_compiler_detailed_logging_min_ops": 10,
    "jax_cpu_collectives_implementation": "gloo",
    "jax_cpu_get_global_topology_timeout_minutes": 5,
    "jax_cpu_get_local_topology_timeout_minutes": 2,
    "jax_cuda_visible_devices": "all", "jax_oneapi_visible_devices": "all",
    "jax_rocm_visible_devices": "all", "jax_dump_ir_modes": "stablehlo",
    "jax_embedded_constants_max_bytes": 32, "jax_exec_time_optimization_effort": 0.0,
    "jax_export_calling_convention_version": 10, "jax_logging_level": "NOTSET",
    "jax_memory_fitting_effort": 0.0, "jax_memory_fitting_level": "O2",
    "jax_optimization_level": "UNKNOWN",
    "jax_persistent_cache_enable_xla_caches": "xla_gpu_per_fusion_autotune_cache_dir",
    "jax_persistent_cache_min_compile_time_secs": 1.0, "jax_pgle_aggregation_percentile": 90,
    "jax_pgle_profiling_runs": 3, "jax_send_traceback_to_runtime": "off",
    "jax_share_binary_between_hosts_timeout_ms": 1_200_000, "jax_traceback_filtering": "auto",
    "jax_traceback_in_locations_limit": 100, "jax_tracer_error_num_traceback_frames": 5,
    "jax_use_magma": "auto",
}


def check_flag(name: str, value: Any) -> None:
    """Refuse a value of a setting of JAX that is not accepted.

    >>> check_flag("jax_platforms", "cpu")
    """
    choices = FIXED.get(name) or CHOICES.get(name)
    if choices and value not in choices:
        raise ArgumentError(f"config: expected {name} to be "
                            f"{' or '.join(map(repr, choices[:7]))}, got {value!r}",
                            hint="print(fnx.config) lists the settings")


def unknown_flag(name: str) -> UnknownNameError:
    """Return the error for a name that no setting of JAX has."""
    return UnknownNameError("config", name, (*FIELD_OF, *FIXED, *INERT),
                            "config.values lists JAX's settings")
