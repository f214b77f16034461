"""Lanes and strides: short rows that are staged are gathered once, and written as whole vectors;
lanes go along what is contiguous where that is read most often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import show
from fnx.core.support.config import override
from fnx.lower.analysis.workload import stride
from tests.lower.steps import AVX512, tiled_kernels

RNG = np.random.default_rng(0)


def away(x: Any, i: Any, j: Any) -> Any:
    d = x[i] - x[j]
    return d / (1 + jnp.sum(d * d, -1, keepdims=True))


@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("rows", [4000, 3989])
def test_gathered_rows(width: int, rows: int) -> None:
    x = RNG.normal(size=(50, width)).astype("float32")
    i, j = (RNG.integers(-60, 60, rows).astype("int32") for _ in range(2))
    with override(device="interp"):
        wanted = fnx.jit(away)(x, i, j)
    np.testing.assert_allclose(fnx.jit(away)(x, i, j), wanted, rtol=1e-5, atol=1e-6)
    if rows == 4000:  # no loop has a tail
        lines = fnx.jit(away).lower(x, i, j).text("programs").splitlines()
        assert sum("store(&x3" in line for line in lines) == width
        assert sum("load(&x1" in line for line in lines) == 2 * width


@pytest.mark.parametrize("width", [18, 36, 50])
def test_rows_of_sums_in_parts_are_transposed_as_vectors(width: int) -> None:
    """Blocked summation splits the sum's range; the stage for it is filled along all of it."""
    def waves(ns: Any, x: Any) -> Any:
        return ns.sin(ns.exp(x)).sum(-1)
    x = RNG.normal(size=(70, width)).astype("float32")
    f = fnx.jit(lambda x: waves(jnp, x))
    np.testing.assert_allclose(f(x), waves(np, x.astype("float64")), rtol=1e-5, atol=1e-4)
    kernel, = tiled_kernels(f.lower(x).simplified, AVX512)
    assert "_v in vec(" in show.pretty(kernel)


def strided_lanes(kernel: UOp) -> list[UOp]:
    """LOADs that are gathers."""
    return [n for n in toposort([kernel]) if n.op is ops.LOAD for r in n.ranges
            if r.arg.kind == "VEC" and abs(stride(n, r)) > 1]


@pytest.mark.parametrize("batch", [1, 200])
def test_pairs_of_rows_have_lanes_along_what_is_contiguous(batch: int) -> None:
    """What varies in a reduction is read again for each result, so gathers of it are not cheap."""
    def ranks(x: Any) -> Any:
        return (x[:, :, None] < x[:, None]).sum(1)
    x = RNG.normal(size=(batch, 300)).astype("float32")
    f = fnx.jit(ranks)
    np.testing.assert_array_equal(f(x), ranks(x))
    kernel, = tiled_kernels(f.lower(x).simplified, AVX512)
    assert not strided_lanes(kernel)


def test_lanes_are_those_of_the_most_expensive_statement() -> None:
    """The first column has a STORE of its own, which comes first; lanes go along the others."""
    def differences(x: Any) -> Any:
        return x.at[:, 1:].add(-x[:, :-1]) * x
    x = RNG.normal(size=(72, 24)).astype("float32")
    wanted = np.hstack([x[:, :1], np.diff(x, axis=1)]) * x
    f = fnx.jit(differences)
    np.testing.assert_allclose(f(x), wanted, rtol=1e-6)
    kernel, = tiled_kernels(f.lower(x).simplified, AVX512)
    assert not strided_lanes(kernel)
