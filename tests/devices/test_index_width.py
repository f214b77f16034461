"""Kernels for any lengths: indices are 32-bit if all of them fit, else 64-bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.config import override
from fnx.core.support.target import Target
from fnx.lower.kernel import runtime_extents
from fnx.lower.pipeline import lower

GROUPS = Target("opencl", kind="opencl", threads=128, shared=16 << 10, private=256)
X = np.random.default_rng(0).normal(size=(7, 12)).astype(np.float32)
AT = np.array([3, -1, 900, 0, -900, 2**31 - 1, -2**31], np.int64)
WIDE = np.array([2**40, -2**40, 1, -1, 2**63 - 1], np.int64)

FUNCTIONS: dict[str, Any] = {
    "map": lambda x: jnp.tanh(x) * 2 + x[0], "columns": lambda x: (x.sum(0), x.max(1)),
    "flip": lambda x: x[::-1, ::2], "pad": lambda x: jnp.pad(x, ((1, 2), (0, 3))),
    "concat": lambda x: jnp.concatenate([x, x * 2, x[3:]]), "roll": lambda x: jnp.roll(x, 5, 1),
    "softmax": lambda x: fnx.nn.softmax(x), "product": lambda x: x @ x.T,
    "taken": lambda x: (x[jnp.asarray(AT, "int64")], x[:, jnp.asarray(AT, "int64")], jnp.take(
        x, jnp.asarray(WIDE, "int64"), axis=0, mode="clip")),
    "scatter": lambda x: x.at[jnp.asarray(AT, "int64")].add(1.0),
    "numbers": lambda x: jnp.arange(0, 2**36, 2**33, dtype="int64") + x.shape[0],
    "reshape": lambda x: x.reshape(12, 7) + 1, "diagonal": lambda x: jnp.diag(x[0]) + jnp.eye(12),
    "slices": lambda x: fnx.lax.dynamic_slice(x, (jnp.asarray(2**31 - 1, "int32"), 2), (3, 4)),
}


def any_length(size: int) -> UOp:
    """Return the PROGRAM of a kernel for any lengths that flips so many bytes."""
    flipped = build.flip(build.param(0, dtypes.int8, (size // 64, 64)), (0, 1))
    kernel, = lower(build.function([flipped], 1), GROUPS, frozenset()).code.values()
    return kernel.program()


def widths_of(program: UOp) -> set[str]:
    """Return the dtypes that lines compute in, not counting casts of arguments."""
    return {line.dtype.name for line in program.src
            if line.op in ops.ELEMENTWISE and line.op is not ops.CAST
            and line.dtype in (dtypes.index, dtypes.int32)}


def test_two_kernels_by_what_has_room() -> None:
    small, other, large = any_length(640), any_length(1 << 20), any_length(1 << 31)
    assert small is other and widths_of(small) == {"int32"}
    assert "index" in widths_of(large)


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_both_compute(name: str, opencl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = FUNCTIONS[name]
    with override(device="cpu"):
        want = [np.asarray(x) for x in fnx.tree.leaves(f(jnp.asarray(X)))]
    for limit in (runtime_extents.INT32_LIMIT, 40):
        monkeypatch.setattr(runtime_extents, "INT32_LIMIT", limit)
        fnx.clear_caches()
        got = [np.asarray(x) for x in fnx.tree.leaves(f(jnp.asarray(X)))]
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=3e-6, atol=1e-6)
