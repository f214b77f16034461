"""A store of one lane writes one element, though LLVM would write more when the value is narrowed
on the way."""

from __future__ import annotations

import numpy as np
import pytest

from fnx.core.ir import build, dtypes
from fnx.core.ir.uop import UOp
from tests.lower import machine

COMPILED = True


def narrowed(n: int, t: dtypes.DType, lanes: int) -> UOp:
    """o[i] = x[i] in a narrower type, in unrolled vectors: the mask is an integer."""
    u, lane = build.range_(-(-n // lanes), 0, "UNROLL"), build.range_(lanes, 1, "VEC")
    i = build.add(build.mul(u, build.index_const(lanes)), lane)
    inside = build.lt(i, build.index_const(n))
    x = build.load(build.index_into(build.ref(0, dtypes.int32, (n,)), i), inside)
    o = build.index_into(build.ref(1, t, (n,)), i)
    return build.kernel([build.store(o, build.cast(x, t), inside)], "narrow", (0, 1))


@pytest.mark.cases(6)
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("t", [dtypes.int16, dtypes.int8, dtypes.uint8, dtypes.int32])
def test_nothing_is_written_behind_the_last_element(t: dtypes.DType, lanes: int) -> None:
    for n in range(1, 2 * lanes + 2):
        x = np.arange(-7, n - 7, dtype=np.int32)
        mine, theirs = machine.both(narrowed(n, t, lanes), [x, np.zeros(n, t.np)])
        assert np.array_equal(mine[1], theirs[1]) and np.array_equal(mine[1], x.astype(t.np))
