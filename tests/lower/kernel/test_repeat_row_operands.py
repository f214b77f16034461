"""Maps with operands of one row: they are one row of whole vectors, and keep their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort
from fnx.core.support.config import override
from tests.lower.steps import AVX512, tiled_kernels

Program = Callable[..., Any]
TARGETS = {"avx512": AVX512, "avx2": AVX512.replace(vector_bits=256, vector_registers=16)}

# x: (n, c), r: (c,), s: (n,)
PROGRAMS: dict[str, Program] = {
    "bias": lambda x, r, s: x + r,
    "scale and shift": lambda x, r, s: x * jnp.exp(r) + r,
    "activation": lambda x, r, s: jnp.tanh(x - r) * (x - r),
    "two results": lambda x, r, s: (x + r, (x + r).astype("float16")),
    "comparison": lambda x, r, s: x < r,
    "mask": lambda x, r, s: jnp.where(r > 0, x, 0.5),
    "column": lambda x, r, s: x * s[:, None] + r,
    "positions": lambda x, r, s: x * jnp.arange(x.shape[1]) + jnp.arange(x.shape[0])[:, None],
    "its own row": lambda x, r, s: x - x[0],
    "slice": lambda x, r, s: x[1:] + r,
    "columns": lambda x, r, s: x[:, 1:] + r[1:],
    "flipped": lambda x, r, s: x[::-1] + r[::-1],
    "transposed": lambda x, r, s: jnp.sin(x.T) + s,
    "gathered": lambda x, r, s: x + r[jnp.arange(x.shape[1]) ** 2 % x.shape[1]],
    "integers": lambda x, r, s: x.astype("int32") // (r.astype("int32") % 3 + 1),
    "bytes": lambda x, r, s: x.astype("int8") + r.astype("int8"),
    "doubles": lambda x, r, s: x.astype("float64") * r,
    "padded": lambda x, r, s: jnp.pad(x, ((1, 1), (0, 0))) + r,
    "of a reduction": lambda x, r, s: (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1),
    "derivative": lambda x, r, s: fnx.vjp(lambda x, r: jnp.tanh(x + r), x, r)[1](x),
}


def operands(n: int, c: int, seed: int) -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(shape).astype(np.float32) * 4 for shape in ((n, c), (c,), (n,))]


@settings(max_examples=60)
@given(st.sampled_from(sorted(PROGRAMS)), st.sampled_from([64, 127, 128, 257, 640, 1000]),
       st.integers(2, 70), st.integers(0, 99))
def test_values_stay(name: str, n: int, c: int, seed: int) -> None:
    xs = operands(n, c, seed)
    got = fnx.jit(PROGRAMS[name])(*xs)
    with override(device="interp"):
        want = fnx.jit(PROGRAMS[name])(*xs)
    for a, b in zip(fnx.tree.leaves(got), fnx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("name", ["bias", "scale and shift", "activation", "two results", "slice",
                                  "gathered", "its own row"])
@pytest.mark.parametrize("c", [3, 10, 50, 100])
def test_lanes_run_on_past_the_ends_of_rows(name: str, c: int, target: Any) -> None:
    """No store of results is masked by the end of a row."""
    xs = operands(1920 + (name == "slice"), c, 0)
    *_, kernel = tiled_kernels(fnx.jit(PROGRAMS[name]).lower(*xs).simplified, target)
    if c % target.vector_lanes(4):
        assert any(n.op is ops.STAGE for n in toposort(kernel.src))
        assert not any(r.arg.kind == "VEC" for store in kernel.src
                       for condition in store.src[2:] for r in condition.ranges)


@pytest.mark.parametrize("name", ["column", "positions", "flipped", "mask"])
def test_what_does_not_repeat_row_by_row_is_left(name: str) -> None:
    xs = operands(640, 10, 0)
    for kernel in tiled_kernels(fnx.jit(PROGRAMS[name]).lower(*xs).simplified, AVX512):
        assert not any(n.op is ops.STAGE for n in toposort(kernel.src))


@pytest.mark.parametrize("n", [640, 64_000])
def test_a_row_that_is_written_over_is_read_before(n: int) -> None:
    x, = operands(n, 10, 0)[:1]
    got = fnx.jit(lambda x: x - x[n // 2], donate_argnums=0)(jnp.asarray(x))
    np.testing.assert_array_equal(np.asarray(got), x - x[n // 2])


def test_workers_share_the_rows() -> None:
    xs = operands(20_000, 50, 0)
    kernel, = tiled_kernels(fnx.jit(PROGRAMS["bias"]).lower(*xs).simplified, AVX512)
    assert any(r.arg.kind == "PAR" for r in kernel.src[0].ranges)
