"""Blocked summation: the number of rounding errors in a sum grows with the logarithm of its
length."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops, tiling
from fnx.core.levels.interp import run_kernel
from fnx.core.support.errors import KernelError
from fnx.lower.schedule.blocked_summation import split_sum
from fnx.lower.schedule.tile import tile

COMPILED = True

SHAPES = (((60_001,), (0,)), ((1 << 20,), (0,)), ((9_000, 17), (0,)), ((1_031, 70), (0,)),
          ((70, 50_021), (1,)), ((5_003, 3, 3), (0,)), ((40, 70, 61), (0, 2)), ((257, 300), (0, 1)))


@pytest.mark.parametrize("shape, axes", SHAPES)
@pytest.mark.parametrize("eager", [False, True])
def test_sums_of_any_length_keep_their_bits(shape: tuple[int, ...], axes: tuple[int, ...],
                                            eager: bool) -> None:
    x = np.random.default_rng(1).random(shape, np.float32) + np.float32(1.0)  # all positive
    exact = x.sum(axes, dtype=np.float64)
    got = jnp.sum(jnp.asarray(x), axes) if eager else fnx.jit(lambda x: jnp.sum(x, axes))(x)
    terms = math.prod(shape[a] for a in axes)
    off = np.max(np.abs(np.asarray(got, np.float64) - exact) / exact) / 2.0 ** -24
    assert off <= math.log2(terms), f"{off:.1f} roundings of {terms} terms"


@pytest.mark.parametrize("m, k, n", [(33, 1_023, 40), (8, 5_003, 20), (1, 3_000, 65),
                                     (3, 9_001, 3)])
@pytest.mark.parametrize("eager", [False, True])
def test_products_with_long_sums_keep_their_bits(m: int, k: int, n: int, eager: bool) -> None:
    draw = np.random.default_rng(2)
    x, y = (draw.random(s, np.float32) + np.float32(1.0) for s in ((m, k), (k, n)))
    exact = x.astype(np.float64) @ y.astype(np.float64)
    got = jnp.asarray(x) @ jnp.asarray(y) if eager else fnx.jit(jnp.matmul)(x, y)
    off = np.sqrt(np.mean((np.asarray(got, np.float64) / exact - 1) ** 2)) / 2.0 ** -24
    assert off <= math.log2(k), f"{off:.1f} roundings of {k} terms"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=3), st.integers(2, 300))
def test_no_loop_between_two_subtotals_is_long(lengths: list[int], chain: int) -> None:
    loops = [(f"r{i}", n) for i, n in enumerate(lengths)]
    steps, names = split_sum(loops, chain)
    extents: dict[str, int] = dict(loops)
    marked = {s.range for s in steps if isinstance(s, tiling.Subtotal)}
    for step in steps:
        if isinstance(step, tiling.Split):
            extents[step.inner] = step.factor
            extents[step.outer] = -(-extents[step.range] // step.factor)
            inside = step.range in marked and step.inner
            marked = marked - {step.range} | ({inside} if inside else set())
    inside_ = 1
    for name in reversed([x for of in names.values() for x in of]):
        inside_ = extents[name] if name in marked else inside_ * extents[name]
        assert inside_ <= 2 * chain
    assert list(names) == [name for name, _ in loops]


def _sum(n: int) -> tuple[Any, Any]:
    m, k = build.range_(5, 0, name="m"), build.range_(n, 1, name="k")
    x = build.load(build.index_into(build.ref(0, dtypes.float32, (5, n)), m, k))
    o = build.index_into(build.ref(1, dtypes.float32, (5,)), m)
    return x, build.kernel([build.store(o, build.reduce_ranges(x, ops.ADD, [k]))], "sum", [0, 1])


@pytest.mark.parametrize("n", [64, 70, 131])
def test_a_subtotal_is_a_fold_of_its_own(n: int) -> None:
    _, kernel = _sum(n)
    tiled = tile(kernel, [tiling.split("k", 16, "ko", "ki"), tiling.subtotal("ko"),
                          tiling.split("ko", 3, "koo", "koi"), tiling.subtotal("koo")])
    folds = []
    value = tiled.src[0].src[1]
    while value.op is ops.REDUCE:
        folds.append([r.arg.name for r in value.src[1:]])
        value = value.src[0]
    assert folds == [["koo"], ["koi"], ["ki"]]
    x, got = np.random.default_rng(3).random((5, n), np.float32), np.zeros(5, np.float32)
    run_kernel(tiled, [x, got], [])
    np.testing.assert_allclose(got, x.sum(1), rtol=1e-5)


def test_subtotals_of_what_is_no_loop_are_refused() -> None:
    with pytest.raises(KernelError, match="expected one of the ranges 'm', 'k'; got 'j'"):
        tile(_sum(64)[1], [tiling.subtotal("j")])
