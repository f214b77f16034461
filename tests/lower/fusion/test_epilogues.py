"""Which kernel computes the elementwise work after a contraction, where others compete for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def groups_of(f: Any, *args: Any) -> list[str]:
    """Return the groups of kernels as text."""
    _, *groups = fnx.jit(f).lower(*args).text("groups").split("group ")
    return groups


def product_group(groups: list[str], terms: int) -> str:
    """Return the group that has the sum of so many products."""
    group, = [g for g in groups if f"sum(k < {terms}:" in g]
    return group


def test_a_small_row_sum_leaves_the_product_in_the_kernel_of_its_epilogue() -> None:
    def f(x: Any, w: Any, b: Any, y: Any) -> Any:
        return (x @ w + b) * 0.5 + y.sum(1, keepdims=True)
    x, w, b, y = normal(200, 12), normal(12, 50), normal(50), normal(200, 4)
    group = product_group(groups_of(f, x, w, b, y), 12)
    assert "sum(k < 4" not in group and "b0[i]" in group
    np.testing.assert_allclose(fnx.jit(f)(x, w, b, y), (x @ w + b) * 0.5 + y.sum(1, keepdims=True),
                               rtol=1e-4, atol=1e-4)


def test_a_row_sum_of_what_its_kernel_reads_anyway_is_computed_there() -> None:
    """Its operand would be read twice, which takes longer than the product in memory."""
    def f(x: Any, w: Any, y: Any) -> Any:
        p = y * y
        return x @ w + (p - p.sum(1, keepdims=True))
    group = product_group(groups_of(f, normal(200, 12), normal(12, 50), normal(200, 50)), 12)
    assert "k < 50" not in group and group.count("\n") < 4


@pytest.mark.parametrize("width, kernels", [(4, 2), (64, 1)])
def test_expensive_work_after_a_narrow_product_has_a_kernel(width: int, kernels: int) -> None:
    """The lanes of a product are its columns: of four, twelve of sixteen lanes would idle."""
    def f(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w)
    args = normal(2000, 9), normal(9, width)
    assert len(groups_of(f, *args)) == kernels
    np.testing.assert_allclose(fnx.jit(f)(*args), np.tanh(args[0] @ args[1]), rtol=1e-5, atol=1e-5)


def test_cheap_work_after_a_narrow_product_has_none() -> None:
    assert len(groups_of(lambda x, w, b: x @ w + b, normal(2000, 9), normal(9, 4), normal(4))) == 1


def test_rows_beside_a_contraction_are_written_by_others() -> None:
    """A contraction is tiled only if all that its kernel writes has its shape."""
    def f(x: Any, y: Any, r: Any) -> Any:
        norm = jnp.where(r == 0, 0, jnp.sqrt(r))
        ratio = jnp.einsum("bij,bjk->bik", x, y) / norm[:, :, None]
        return ratio, jnp.cos(ratio) / norm[:, :, None], norm
    draw = np.random.default_rng(3)
    x, y, r = (draw.random(s, np.float32) + 1 for s in ((3, 40, 32), (3, 32, 48), (3, 40)))
    kernels = [k.node for k in fnx.jit(f).lower(x, y, r).kernels]
    sums = [k for k in kernels if any(n.op is ops.REDUCE for n in toposort(k.src))]
    assert sums and all(len({frozenset(s.ranges) for s in k.src}) == 1 for k in sums)
    want = f(*(a.astype(np.float64) for a in (x, y, r)))
    for a, b in zip(fnx.jit(f)(x, y, r), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
