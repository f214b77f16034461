"""``jax._src.test_util``: what tests written for JAX are built of. Needs absl, as they do.

    cases        JaxTestCase: comparisons of values, dtypes, shapes; numbers of traces
    generators   random arrays of a shape and dtype
    selection    which cases run: sampled products, devices, versions
    counters     blocks that count traces, compilations and transfers
"""

from typing import Any

from fnx.as_jax.testing.cases import (
    BufferDonationTestCase,
    JaxTestCase,
    JaxTestLoader,
    assert_dot_precision,
    assert_dot_preferred_element_type,
    check_close,
    check_eq,
    check_raises,
    check_raises_regexp,
    fwd_bwd_jaxprs,
    iter_eqns,
)
from fnx.as_jax.testing.counters import (
    assert_global_configs_unchanged,
    assert_num_jit_and_pmap_compilations,
    count_aot_jit_cpp_cache_miss,
    count_device_put,
    count_device_put_fast_path_hit,
    count_internal_device_puts,
    count_jax_array_shard_arg_calls,
    count_jit_and_pmap_lowerings,
    count_jit_compilation_cache_miss,
    count_jit_tracing_cache_miss,
    count_pjit_cpp_cache_miss,
    count_primitive_compiles,
)
from fnx.as_jax.testing.generators import (
    NUMPY_SCALAR_SHAPE,
    PYTHON_SCALAR_SHAPE,
    dtype_str,
    dtypes,
    format_shape_dtype_string,
    is_valid_shape,
    promote_like_jnp,
    rand_bool,
    rand_default,
    rand_fullrange,
    rand_indices_unique_along_axis,
    rand_int,
    rand_nonzero,
    rand_not_small,
    rand_positive,
    rand_small,
    rand_small_positive,
    rand_some_equal,
    rand_some_inf,
    rand_some_inf_and_nan,
    rand_some_nan,
    rand_some_zero,
    rand_uniform,
    rand_unique_int,
    supported_dtypes,
)
from fnx.as_jax.testing.selection import (
    JIT_IMPLEMENTATION,
    NUM_GENERATED_CASES,
    SKIP_SLOW_TESTS,
    TEST_NUM_THREADS,
    capture_stderr,
    capture_stdout,
    create_mesh,
    device_kind_match,
    device_supports_buffer_donation,
    device_under_test,
    global_config_context,
    ignore_warning,
    is_optimized_build,
    is_running_under_pytest,
    jaxlib_version,
    named_cases_from_sampler,
    never,
    numpy_version,
    parameterized_filterable,
    parse_version,
    pattern_search,
    pytest_mark_if_available,
    request_cpu_devices,
    run_on_devices,
    runtime_environment,
    sample_product,
    sample_product_testcases,
    sanitize_test_name,
    set_env,
    skip_on_devices,
    skip_on_flag,
    skip_under_pytest,
    test_device_matches,
    thread_local_config_context,
    thread_unsafe_test,
    thread_unsafe_test_class,
    with_config,
    with_explicit_mesh,
    with_global_config,
    with_mesh,
)
from fnx.as_jax.testing.tolerances import (
    default_gradient_tolerance,
    default_tolerance,
    join_tolerance,
    num_float_bits,
    tolerance,
)
from fnx.test_util import check_grads, check_jvp, check_vjp

__all__ = [name for name in dir() if not name.startswith("_")]
_OF_HARDWARE = ("is_", "pjrt_c_api_version_at_least", "stablehlo_version_at_least")


def __getattr__(name: str) -> Any:
    """Return a question about hardware or a build, which is answered by no."""
    if name.startswith(_OF_HARDWARE):
        return never
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
