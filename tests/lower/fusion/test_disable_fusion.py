"""A kind of fusion is disabled: other kernels, the same values, a cache entry of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.nn as nn
import fnx.numpy as jnp
from fnx.core.support.config import FUSIONS, override

N = np.random.default_rng(0)
A, B, C = (N.standard_normal(s).astype("float32") for s in ((48, 32), (32, 64), (64, 32)))


def product(x: Any, w: Any, v: Any) -> Any:
    return nn.relu((x * 2 + 1) @ w + 1)


def centred(x: Any, w: Any, v: Any) -> Any:
    return x - x.mean(-1, keepdims=True)


def joined(x: Any, w: Any, v: Any) -> Any:
    return jnp.tanh(jnp.concatenate([x, jnp.cos(x)], -1))


def read_twice(x: Any, w: Any, v: Any) -> Any:
    y = x * 2 + 1
    return jnp.cos(y).sum(0), jnp.sin(y).sum(1)


def loop(x: Any, w: Any, v: Any) -> Any:
    return fnx.lax.scan(lambda c, row: (c * 0.5 + row, None), jnp.zeros(32), x)[0]


def kernels(f: Any, kind: str) -> tuple[list[str], list[Any]]:
    """Return the names of the kernels, and the results, with a kind of fusion disabled."""
    jitted = fnx.jit(f)
    with override(unfused=kind):
        names = [k.name.split()[0] for k in jitted.lower(A, B, C).kernels]
        return names, [np.asarray(y) for y in fnx.tree.leaves(jitted(A, B, C))]


@pytest.mark.cases(3)
@pytest.mark.parametrize("f, kind", [
    (product, "prologue"), (product, "epilogue"), (centred, "row"), (joined, "concat"),
    (read_twice, "recompute"), (loop, "fuse_loop_into_kernel"), (product, "all")])
def test_what_is_left_out_is_a_kernel_of_its_own(f: Any, kind: str) -> None:
    fused, want = kernels(f, "")
    unfused, got = kernels(f, kind)
    assert len(unfused) > len(fused)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_call_has_the_kernels_of_its_setting() -> None:
    """The setting is part of the key: the same jitted function, alternately with and without it."""
    f = fnx.jit(product)
    assert len(f.lower(A, B, C).kernels) == 1
    with override(unfused="epilogue"):
        lowered = f.lower(A, B, C)
        assert len(lowered.kernels) == 2
    assert len(f.lower(A, B, C).kernels) == 1
    assert lowered.text("kernels").count("kernel ") == 2  # also if it is read later


@pytest.mark.cases(2)
@pytest.mark.parametrize("kind", FUSIONS)
def test_every_kind_computes_the_same(kind: str) -> None:
    def f(x: Any, w: Any, v: Any) -> Any:
        h = nn.softmax(jnp.concatenate([jnp.sin(x) @ w, x[:, ::2]], -1))
        return nn.relu(h @ N_OUT) @ v[:8], h.sum(0)
    N_OUT = jnp.asarray(N.standard_normal((80, 8)).astype("float32"))
    for a, b in zip(kernels(f, kind)[1], kernels(f, "")[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
