"""Transforms over every dtype, on the interpreter and as machine code; both x64 modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.experimental
import fnx.lax as lax
import fnx.numpy as jnp
import fnx.random
from fnx.core.ir import dtypes
from fnx.core.support.config import config, override
from fnx.core.support.errors import ArgumentError
from tests.helpers import numbers

FLOATS = [t.name for t in dtypes.USER if t.is_float]
WHOLE = [t.name for t in dtypes.USER if t.is_integer]
RNG = np.random.default_rng(3)
X, W = RNG.uniform(-1, 1, (6, 5)), RNG.uniform(-1, 1, (5, 4))

RECORDED: dict[str, Any] = {"bits": {"uint8": [11, 0, 170],
          "uint16": [10507, 32256, 10666],
          "uint32": [2895194379, 4185947648, 1300703658],
          "uint64": [15571024786774969728, 837714335556982463, 4150233810675416579]},
 "uniform": {"float8_e4m3fn": [0.0, 0.0, 0.625],
             "float8_e5m2": [0.0, 0.0, 0.5],
             "bfloat16": [0.0390625, 0.0, 0.6640625],
             "float16": [0.16015625, 0.4921875, 0.162109375],
             "float32": [0.6740899085998535, 0.9746168851852417, 0.3028435707092285],
             "float64": [0.8441069450823528, 0.04541258512665647, 0.22498462569285382]},
 "randint": {"int8": [-128, 127, [-64, -21, 52]],
             "uint8": [0, 256, [31, 102, 124]],
             "int16": [-300, 300, [-101, 122, 0]],
             "uint16": [0, 65535, [6439, 20252, 12165]],
             "int32": [-5, 1000000000, [899676944, 548400978, 692160370]],
             "uint32": [3, 4000000000, [2899676962, 3548401001, 1692160383]],
             "int64": [-10, 1000000000000000,
                       [925565873479593, 775705619206539, 256908979956480]],
             "uint64": [0, 4611686018427387904,
                        [946239547446147269, 2305089687191887805, 257198853697933698]]}}


def recurrence(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = jnp.tanh(row @ w + h)
        return h, h * 2
    return lax.scan(step, jnp.zeros(4, x.dtype), x)[1]


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "layer": lambda x, w: jnp.tanh(x @ w),
    "softmax": lambda x, w: fnx.nn.softmax(x @ w),
    "scan": recurrence,
    "gather": lambda x, w: x[jnp.asarray([0, 5, 2, 5])] * x[0, 0],
    "scatter": lambda x, w: x.at[jnp.asarray([1, 1, 3])].add(x[:3]),
    "gradient": lambda x, w: fnx.grad(lambda x: jnp.sum(jnp.sin(x @ w) ** 2))(x),
    "tangent": lambda x, w: fnx.jvp(lambda x: jnp.exp(x) @ w, (x,), (x,))[1],
    "lanes": lambda x, w: fnx.vmap(lambda r: jnp.sum(r * r) / (r[0] + 2))(x),
    "gradients of lanes": lambda x, w: fnx.vmap(fnx.grad(lambda r: jnp.mean(r @ w)))(x),
    "gradient of a scan": lambda x, w: fnx.grad(lambda w: jnp.mean(recurrence(x, w)))(w),
    "extremes": lambda x, w: jnp.stack([x.max(), x.min(), jnp.sort(x[:, 0])[0]])
    if hasattr(jnp, "sort") else x.max(0),
}


@pytest.mark.cases(7)
@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_those_of_float64(name: str, t: str) -> None:
    """Machine code agrees with the interpreter within rounding; both are close to float64."""
    f, eps = PROGRAMS[name], float(jnp.finfo(t).eps)

    def run(dtype: str) -> Any:
        x, w = (jnp.asarray(np.asarray(jnp.asarray(a, t), np.float64), dtype) for a in (X, W))
        return fnx.jit(f)(x, w)

    got = run(t)
    with override(device="interp"):
        same = run(t)
        want = np.asarray(run("float64"))
    assert got.dtype == same.dtype == getattr(jnp, t)
    a, b = (np.asarray(x, np.float64) for x in (got, same))
    np.testing.assert_allclose(a, b, rtol=8 * eps, atol=8 * eps)
    np.testing.assert_allclose(a, want, rtol=12 * eps, atol=12 * eps)


@pytest.mark.cases(5)
@pytest.mark.parametrize("t", WHOLE)
def test_integers_wrap_and_keep_their_type(t: str) -> None:
    low, high = dtypes.dtype_by_name(t).limits
    values = np.array([low, high, 0, 1, 3, high // 2, 5], object)

    def f(x: Any) -> Any:
        total, xs = lax.scan(lambda c, a: (c * 3 + a, c), jnp.zeros((), x.dtype), x)
        return total, xs, jnp.cumsum(x), fnx.vmap(lambda a: a + a)(x), x.at[1].add(x[0]), x[::-1]

    def wrapped(n: Any) -> int:
        return (int(n) - low) % (high - low + 1) + low

    x = jnp.asarray(np.array(values.tolist(), np.uint64 if low == 0 else np.int64), t)
    carries = [0]
    for v in values:
        carries.append(wrapped(carries[-1] * 3 + v))
    want = [carries[-1], carries[:-1], [wrapped(sum(values[:i + 1])) for i in range(7)],
            [wrapped(2 * v) for v in values], [low, wrapped(high + low), *values[2:]],
            values[::-1].tolist()]
    for device in ("cpu", "interp"):
        with override(device=device):
            for got, expected in zip(fnx.jit(f)(x), want):
                assert got.dtype == x.dtype
                assert numbers(got).tolist() == np.asarray(expected, object).tolist()


def test_x64_is_part_of_what_a_jitted_function_is_traced_for() -> None:
    f = fnx.jit(lambda x: (x + 1.5, jnp.arange(2), jnp.zeros(1), x.sum(), jnp.argmax(x)))
    x = np.arange(3)
    narrow = ["float32", "int32", "float32", "int32", "int32"]
    wide = ["float64", "int64", "float64", "int64", "int64"]
    for _ in range(2):
        assert [str(y.dtype) for y in f(x)] == narrow
        with fnx.experimental.enable_x64():
            assert [str(y.dtype) for y in f(x)] == wide
            with fnx.experimental.disable_x64():
                assert [str(y.dtype) for y in f(x)] == narrow
    assert f.cache_info().misses and not config.x64


def test_x64_has_jaxs_names() -> None:
    try:
        config.update("jax_enable_x64", True)
        assert config.x64 and config.jax_enable_x64 and config.read("jax_enable_x64")
        assert jnp.asarray(1).dtype == jnp.int_ == jnp.int64 and jnp.float_ == jnp.float64
        assert fnx.random.bits(fnx.random.key(0), (2,)).dtype == np.uint64
        config.jax_enable_x64 = False
        assert not config.x64 and jnp.int_ == jnp.int32
        config.update("jax_debug_nans", True)
        assert config.check == "nan"
    finally:
        config.x64, config.check = False, ""
    assert not hasattr(config, "jax_no_such_thing")
    with pytest.raises(AttributeError, match="no attribute 'jax_no_such_thing'"):
        config.update("jax_no_such_thing", True)
    with pytest.raises(ArgumentError, match="True or False"):
        config.update("jax_enable_x64", "maybe")


def test_random_numbers_of_every_type() -> None:
    """Bits and uniform numbers recorded from JAX 0.10.2: key 7, shape (3,)."""
    key = fnx.random.key(7)
    for t, want in RECORDED["bits"].items():
        assert fnx.random.bits(key, (3,), t).tolist() == want, t
    for t, want in RECORDED["uniform"].items():
        assert numbers(fnx.random.uniform(key, (3,), t)).tolist() == want, t
    for t, want in RECORDED["randint"].items():
        assert fnx.random.randint(key, (3,), *want[:2], t).tolist() == want[2], t
    for t in ("bfloat16", "float16"):
        x = np.asarray(fnx.random.normal(key, (4000,), t), np.float32)
        assert abs(x.mean()) < 0.1 and abs(x.std() - 1) < 0.05
