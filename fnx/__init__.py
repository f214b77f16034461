"""fnx: composable transforms of pure Python functions, compiled to machine code.

>>> import fnx
>>> import fnx.numpy as jnp
>>> loss = lambda w: jnp.sum((w - 3.0) ** 2)
>>> step = fnx.jit(lambda w: w - 0.5 * fnx.grad(loss)(w))
>>> step(jnp.zeros(2))
Array([3., 3.], dtype=float32)
"""

from typing import TYPE_CHECKING

import numpy as _numpy  # imported first: inside a deep stack of imports it takes 7 ms longer

from fnx import numpy
from fnx.core.array.array import Array
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.support.config import config
from fnx.core.support.errors import FnxError, lazy_module
from fnx.transforms.jit import jit

if TYPE_CHECKING:  # imported lazily, on first use
    from fnx import (
        ad_checkpoint,
        cache,
        checkpoint_policies,
        custom_batching,
        custom_derivatives,
        debug,
        distributed,
        dlpack,
        dtypes,
        errors,
        experimental,
        flatten_util,
        image,
        kernel,
        lax,
        monitoring,
        nn,
        onnx,
        ops,
        profiler,
        random,
        ref,
        scipy,
        sharding,
        stages,
        test_util,
        tree,
        tree_util,
        typing,
    )
    from fnx.config_context import (
        check_tracer_leaks,
        checking_leaks,
        debug_key_reuse,
        default_device,
        default_matmul_precision,
        default_prng_impl,
        disable_jit,
        enable_checks,
        enable_custom_prng,
        ensure_compile_time_eval,
        explain_cache_misses,
        legacy_prng_key,
        log_compiles,
        named_call,
        named_scope,
        no_tracing,
        numpy_dtype_promotion,
        numpy_rank_promotion,
        softmax_custom_jvp,
        threefry_partitionable,
        transfer_guard,
        transfer_guard_device_to_device,
        transfer_guard_device_to_host,
        transfer_guard_host_to_device,
    )
    from fnx.core.ir.cache import clear_caches
    from fnx.core.rewriting.dimensions import dim
    from fnx.debug import infs as debug_infs
    from fnx.debug import nans as debug_nans
    from fnx.device_transfer import (
        block_until_ready,
        copy_to_host_async,
        device_get,
        device_put,
        live_arrays,
        make_array_from_callback,
        make_array_from_process_local_data,
        make_array_from_single_device_arrays,
    )
    from fnx.dtypes import float0
    from fnx.environment_info import print_environment_info, show_versions
    from fnx.experimental.x64_context import enable_x64
    from fnx.exporting import export, load_exported
    from fnx.jaxprs.make import make_jaxpr
    from fnx.profiling import profile
    from fnx.ref import Ref, empty_ref, free_ref, freeze, new_ref
    from fnx.saving import load, save
    from fnx.sharding import (
        NamedSharding,
        make_mesh,
        pmap,
        reshard,
        set_mesh,
        shard_map,
    )
    from fnx.sharding import PartitionSpec as P
    from fnx.sharding.device_registry import (
        Device,
        default_backend,
        device_count,
        devices,
        local_device_count,
        local_devices,
        process_count,
        process_index,
        process_indices,
    )
    from fnx.sharding.device_registry import process_count as host_count
    from fnx.sharding.device_registry import process_index as host_id
    from fnx.sharding.device_registry import process_indices as host_ids
    from fnx.transforms.abstract_eval import closure_convert, eval_shape, typeof
    from fnx.transforms.call import call
    from fnx.transforms.checkpoint import checkpoint, remat
    from fnx.transforms.custom.gradient import custom_gradient
    from fnx.transforms.custom.jvp import custom_jvp
    from fnx.transforms.custom.vjp import custom_vjp
    from fnx.transforms.grad import grad, value_and_grad
    from fnx.transforms.host_callbacks import effects_barrier, pure_callback
    from fnx.transforms.jacobian import hessian, jacfwd, jacobian, jacrev
    from fnx.transforms.jvp import jvp
    from fnx.transforms.vjp import linear_transpose, linearize, vjp
    from fnx.transforms.vmap import vmap
    from fnx.vjp_passes import fwd_and_bwd

__all__ = [
    "Array", "Device", "FnxError", "NamedSharding", "P", "Ref", "ShapeDtypeStruct", "ad_checkpoint",
    "block_until_ready", "cache", "call", "check_tracer_leaks", "checking_leaks", "checkpoint",
    "checkpoint_policies", "clear_caches", "closure_convert", "config", "copy_to_host_async",
    "custom_batching", "custom_derivatives", "custom_gradient", "custom_jvp", "custom_vjp", "debug",
    "debug_infs", "debug_key_reuse", "debug_nans", "default_backend", "default_device",
    "default_matmul_precision", "default_prng_impl", "device_count", "device_get", "device_put",
    "devices", "dim", "disable_jit", "distributed", "dlpack", "dtypes", "effects_barrier",
    "empty_ref", "enable_checks", "enable_custom_prng", "enable_x64", "ensure_compile_time_eval",
    "errors", "eval_shape", "experimental", "explain_cache_misses", "export", "flatten_util",
    "float0", "free_ref", "freeze", "fwd_and_bwd", "grad", "hessian", "host_count", "host_id",
    "host_ids", "image", "jacfwd", "jacobian", "jacrev", "jit", "jvp", "kernel",
    "lax", "legacy_prng_key", "linear_transpose", "linearize", "live_arrays", "load",
    "load_exported", "local_device_count", "local_devices", "log_compiles",
    "make_array_from_callback", "make_array_from_process_local_data",
    "make_array_from_single_device_arrays", "make_jaxpr", "make_mesh", "monitoring", "named_call",
    "named_scope", "new_ref", "nn", "no_tracing", "numpy", "numpy_dtype_promotion",
    "numpy_rank_promotion", "onnx", "ops", "pmap",
    "print_environment_info", "process_count", "process_index", "process_indices", "profile",
    "profiler", "pure_callback", "random", "ref", "remat", "reshard", "save", "scipy", "set_mesh",
    "shard_map", "sharding", "show_versions", "softmax_custom_jvp", "stages", "test_util",
    "threefry_partitionable", "transfer_guard", "transfer_guard_device_to_device",
    "transfer_guard_device_to_host", "transfer_guard_host_to_device", "tree", "tree_util",
    "typeof", "typing", "value_and_grad", "vjp", "vmap",
]
__version__ = "0.1.0"

_MODULES = (
    "ad_checkpoint", "cache", "checkpoint_policies", "custom_batching", "custom_derivatives",
    "debug", "distributed", "dlpack", "dtypes", "errors", "experimental", "flatten_util", "image",
    "kernel", "lax",
    "monitoring", "nn", "onnx", "ops", "profiler", "random", "ref", "scipy", "sharding", "stages",
    "test_util", "tree", "tree_util", "typing")
_LAZY_NAMES = {
    "fnx.transforms.host_callbacks": ("effects_barrier", "pure_callback"),
    "fnx.config_context": (
        "check_tracer_leaks", "checking_leaks", "debug_key_reuse", "default_device",
        "default_matmul_precision", "default_prng_impl", "disable_jit", "enable_checks",
        "enable_custom_prng", "ensure_compile_time_eval", "explain_cache_misses",
        "legacy_prng_key", "log_compiles", "named_call", "named_scope", "no_tracing",
        "numpy_dtype_promotion", "numpy_rank_promotion", "softmax_custom_jvp",
        "threefry_partitionable", "transfer_guard", "transfer_guard_device_to_device",
        "transfer_guard_device_to_host", "transfer_guard_host_to_device"),
    "fnx.core.ir.cache": ("clear_caches",),
    "fnx.core.rewriting.dimensions": ("dim",),
    "fnx.experimental.x64_context": ("enable_x64",),
    "fnx.vjp_passes": ("fwd_and_bwd",),
    "fnx.exporting": ("export", "load_exported"),
    "fnx.device_transfer": ("block_until_ready", "copy_to_host_async", "device_get", "device_put",
        "live_arrays", "make_array_from_callback", "make_array_from_process_local_data",
        "make_array_from_single_device_arrays"),
    "fnx.sharding.device_registry": ("Device", "default_backend", "device_count", "devices",
        "local_device_count", "local_devices", "process_count", "process_index",
        "process_indices"),
    "fnx.profiling": ("profile",),
    "fnx.ref": ("Ref", "empty_ref", "free_ref", "freeze", "new_ref"),
    "fnx.saving": ("load", "save"),
    "fnx.sharding": ("NamedSharding", "make_mesh", "pmap", "reshard", "set_mesh", "shard_map"),
    "fnx.transforms.call": ("call",),
    "fnx.transforms.checkpoint": ("checkpoint", "remat"),
    "fnx.transforms.custom.gradient": ("custom_gradient",),
    "fnx.transforms.custom.jvp": ("custom_jvp",),
    "fnx.transforms.custom.vjp": ("custom_vjp",),
    "fnx.transforms.grad": ("grad", "value_and_grad"),
    "fnx.transforms.jacobian": ("hessian", "jacfwd", "jacobian", "jacrev"),
    "fnx.transforms.jvp": ("jvp",),
    "fnx.jaxprs.make": ("make_jaxpr",),
    "fnx.transforms.abstract_eval": ("closure_convert", "eval_shape", "typeof"),
    "fnx.transforms.vjp": ("linear_transpose", "linearize", "vjp"),
    "fnx.transforms.vmap": ("vmap",),
    "fnx.environment_info": ("print_environment_info", "show_versions"),
}
_ALIASES = {"P": "fnx.sharding:PartitionSpec", "debug_infs": "fnx.debug:infs",
            "debug_nans": "fnx.debug:nans", "float0": "fnx.dtypes",
            "host_count": "fnx.sharding.device_registry:process_count",
            "host_id": "fnx.sharding.device_registry:process_index",
            "host_ids": "fnx.sharding.device_registry:process_indices"}

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules={
        name: home for home, names in _LAZY_NAMES.items() for name in names}
        | {name: f"fnx.{name}" for name in _MODULES} | _ALIASES)
