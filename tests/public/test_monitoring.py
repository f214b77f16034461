"""Settings under JAX's names, events and their listeners."""

from __future__ import annotations

import pytest

import fnx
import fnx.numpy as jnp
from fnx import monitoring
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError, UnknownNameError

COMPILED = True


def test_settings_of_jax_are_readable_and_end_with_their_block() -> None:
    with fnx.default_matmul_precision("highest"):
        assert config.jax_default_matmul_precision == "highest"
    assert config.jax_default_matmul_precision is None
    assert config.values["jax_debug_nans"] is False


def test_unknown_and_refused_settings_of_jax() -> None:
    with pytest.raises(UnknownNameError):
        config.update("jax_enable_x46", True)
    with pytest.raises(ArgumentError, match="threefry"):
        config.update("jax_default_prng_impl", "rbg")


def test_strict_promotion_refuses_two_dtypes_but_not_numbers() -> None:
    with fnx.numpy_dtype_promotion("strict"):
        assert (jnp.ones(2, "float16") * 2).dtype == "float16"
        with pytest.raises(fnx.errors.TypePromotionError, match="float32"):
            jnp.ones(2) + jnp.ones(2, int)
        with pytest.raises(fnx.errors.TypePromotionError, match="int32"):
            fnx.jit(lambda x: x + 0.5)(jnp.ones(2, int))
    assert (jnp.ones(2) + jnp.ones(2, int)).dtype == "float32"


def test_strict_rank_promotion() -> None:
    with fnx.numpy_rank_promotion("raise"), pytest.raises(fnx.errors.ShapeError, match="rank"):
        jnp.ones((2, 3)) + jnp.ones(3)
    for _ in range(2):  # a call that warned is not cached
        with fnx.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="rank"):
            jnp.ones((2, 3)) + jnp.ones(3)


def test_compilation_is_an_event() -> None:
    seen: list[str] = []
    monitoring.register_event_duration_secs_listener(lambda name, _, **__: seen.append(name))
    try:
        fnx.jit(lambda x: x * 3.125 + 7)(jnp.ones(11))
    finally:
        monitoring.clear_event_listeners()
    assert "backend_compile" in seen[-1] and "jaxpr_trace" in seen[-2]


def test_only_registered_listeners_are_unregistered() -> None:
    with pytest.raises(AssertionError):
        monitoring.unregister_scalar_listener(print)


def test_known_values_inside_a_trace_next_to_traced_ones() -> None:
    def f(x: fnx.Array) -> fnx.Array:
        with fnx.ensure_compile_time_eval():
            n = int(jnp.arange(3).sum())
            y = jnp.sin(x) * n
        return y + 1
    assert fnx.jit(f)(0.0) == 1
    assert fnx.grad(f)(0.0) == 3
