"""Loads whose lanes are all out of bounds read a valid address instead of using a mask; values are
unchanged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import toposort
from fnx.lower.emit.clamp_uniform_mask_addresses import clamp_uniform_mask_addresses
from tests.helpers import same_bits
from tests.lower.machine import both

COMPILED = True
F32 = dtypes.float32
R = build.range_(10, 0, name="i")
L = build.range_(16, 1, "VEC", name="l")
ROW = build.add(R, build.index_const(-1))
NEAR = build.elementwise(ops.MIN, R, build.index_const(7))
ROWS = build.and_(build.le(build.index_const(0), ROW), build.lt(ROW, build.index_const(8)))


def kernel(valid, column=L, rows=ROW, width=16):
    x = build.load(build.index_into(build.ref(0, F32, (8, width)), rows, column), valid)
    return build.kernel([build.store(build.index_into(build.ref(1, F32, (10, 16)), R, L), x)], "k",
                        (0, 1))


def masks(k):
    return [n.src[1] for n in toposort(k.src) if n.op is ops.LOAD and len(n.src) > 1]


@pytest.mark.parametrize("bound", [16, 11])
def test_rows_that_are_outside_together_need_no_mask(bound):
    lanes = build.lt(L, build.index_const(bound))
    before = kernel(build.and_(ROWS, lanes), width=bound)
    after = clamp_uniform_mask_addresses(before)
    assert masks(after) == [lanes]
    x = np.arange(8 * bound, dtype="f4").reshape(8, bound)
    (_, mine), (_, theirs) = both(after, [x, np.ones((10, 16), "f4")])
    assert same_bits(mine, theirs)
    (_, first), _ = both(before, [x, np.ones((10, 16), "f4")])
    assert same_bits(mine, first)


@pytest.mark.parametrize("k", [
    kernel(build.and_(ROWS, build.lt(build.add(R, L), build.index_const(9)))),
    kernel(ROWS, width=4),  # nothing says that lanes 4 to 15 are in bounds
    kernel(build.lt(R, build.index_const(4)), rows=NEAR)])
def test_masks_stay_where_a_lane_decides_or_nothing_is_outside(k):
    assert masks(clamp_uniform_mask_addresses(k)) == masks(k)


@settings(deadline=None, max_examples=16)
@given(st.data(), st.integers(1, 3))
def test_pads_of_any_axis(data, rank):
    shape = tuple(data.draw(st.integers(1, 40)) for _ in range(rank))
    widths = [tuple(data.draw(st.integers(0, 5)) for _ in range(2)) for _ in range(rank)]
    mode = data.draw(st.sampled_from(["constant", "edge", "wrap"]))
    x = np.arange(1, 1 + np.prod(shape), dtype="f4").reshape(shape)
    found = fnx.jit(lambda x: jnp.pad(x, widths, mode=mode))(jnp.asarray(x))
    np.testing.assert_array_equal(np.asarray(found), np.pad(x, widths, mode=mode))
