"""Chains of reductions over short rows go step by step for a block of rows, and keep values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx import nn
from fnx.core.ir import ops
from fnx.core.ir.accessors import bound_ranges
from fnx.core.ir.uop import toposort
from fnx.core.support.config import override
from tests.lower.steps import AVX512, tiled_kernels

Program = Callable[..., Any]


def norm(x: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


PROGRAMS: dict[str, Program] = {
    "softmax": lambda x: nn.softmax(x),
    "log_softmax": lambda x: nn.log_softmax(x),
    "logsumexp": lambda x: nn.logsumexp(x, -1),
    "activation": lambda x: nn.gelu(norm(x)),
    "two softmaxes": lambda x: nn.softmax(nn.softmax(x) * 3),
    "temperature": lambda x: nn.softmax(x / (1 + abs(x).max(-1, keepdims=True))),
    "masked": lambda x: nn.softmax(x, where=jnp.arange(x.shape[-1]) % 3 != 1),
    "triangle": lambda x: nn.softmax(jnp.where(
        jnp.arange(x.shape[-1]) <= jnp.arange(x.shape[-2])[:, None], x, -1e9)),
    "two results": lambda x: (nn.softmax(x), nn.logsumexp(x, -1)),
    "entropy": lambda x: -(nn.softmax(x) * nn.log_softmax(x)).sum(-1),
    "transposed": lambda x: jnp.exp(nn.softmax(jnp.swapaxes(x, -1, -2))),
    "derivative": lambda x: fnx.grad(lambda x: (nn.softmax(x) ** 2).sum())(x),
    "second derivative": lambda x: fnx.grad(lambda x: fnx.grad(
        lambda x: (nn.log_softmax(x) ** 2).sum())(x)[..., 0].sum())(x),
    "norm of a residual mean": lambda x: norm(jnp.sin(x) + jnp.sin(x).mean(-1, keepdims=True)),
    "cross entropy": lambda x: fnx.value_and_grad(
        lambda x: -nn.log_softmax(x)[..., 0].mean())(x),
}


def operand(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(np.float32)


@settings(max_examples=60)
@given(st.sampled_from(sorted(PROGRAMS)), st.sampled_from([
    (32,), (33,), (100,), (3, 32), (5, 37), (2, 3, 16), (4, 4)]), st.integers(8, 270),
    st.sampled_from(["float32", "float16", "bfloat16", "float64"]), st.integers(0, 99))
def test_values_stay(name: str, rows: tuple[int, ...], length: int, dtype: str, seed: int) -> None:
    x = operand((*rows, length), seed)

    def f(x: Any) -> Any:
        return fnx.tree.map(lambda y: y.astype("float32"), PROGRAMS[name](x.astype(dtype)))

    got = fnx.jit(f)(x)
    with override(device="interp"):
        want = fnx.jit(f)(x)
    near = {"float16": 1e-2, "bfloat16": 8e-2}.get(dtype, 1e-4)
    for a, b in zip(fnx.tree.leaves(got), fnx.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=near, atol=near)


def blocks(f: Program, *shape: int) -> list[int]:
    """Return the rows of the stages of the last kernel."""
    *_, kernel = tiled_kernels(fnx.jit(f).lower(jnp.ones(shape)).simplified, AVX512)
    return [int(bound_ranges(n)[0].src[0].arg) for n in toposort(kernel.src)
            if n.op is ops.STAGE and n.src[0].op is ops.REDUCE]


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "activation"])
@pytest.mark.parametrize("rows", [320, 323])
def test_short_rows_are_in_blocks(name: str, rows: int) -> None:
    stages = blocks(PROGRAMS[name], rows, 64)
    assert len(stages) == 2 and len(set(stages)) == 1 and 8 < stages[0] <= 16


def test_what_is_reduced_and_staged_is_computed_once() -> None:
    *_, kernel = tiled_kernels(fnx.jit(PROGRAMS["norm of a residual mean"]).lower(
        jnp.ones((300, 128))).simplified, AVX512)
    nodes = toposort(kernel.src)
    assert len([n for n in nodes if n.op is ops.SIN]) == 1
    assert len([n for n in nodes if n.op is ops.STAGE]) > 3


def test_what_gains_nothing_is_not() -> None:
    assert not blocks(norm, 320, 64)  # cheap work
    assert not blocks(nn.softmax, 320, 1000)  # long rows
    assert not blocks(nn.softmax, 8, 64)  # few rows
    assert not blocks(lambda x: jnp.exp(x).sum(1), 320, 64)  # no chain
    assert not blocks(lambda x: nn.softmax(x, 0), 64, 320)  # columns


@pytest.mark.parametrize("rows", [640, 641])
def test_rows_are_written_over(rows: int) -> None:
    """Each block is read before it is written."""
    x = operand((rows, 64), 0)
    f = fnx.jit(lambda x: nn.softmax(jnp.tanh(x)), donate_argnums=0)
    e = np.exp(np.tanh(x.astype(np.float64)))
    np.testing.assert_allclose(np.asarray(f(jnp.asarray(x))), e / e.sum(1, keepdims=True),
                               rtol=1e-5)
