"""Where lines go: as far out as whoever uses them needs."""

from __future__ import annotations

import numpy as np
import pytest

import fnx.numpy as jnp
from fnx.core import build, dtypes, ops
from fnx.core.uop import UOp
from fnx.lower.program.builder import Lines

COMPILED = True
F = dtypes.float32


def test_a_line_moves_out_when_it_has_to_live_longer() -> None:
    """LOAD x if i < 1, where i < 1 is known, and LOAD x: one line, before the loop."""
    lines = Lines()
    place = UOp(ops.ADDRESS, F, (build.ref(0, F, ()), build.index_const(0)))
    place = lines.put(ops.ADDRESS, F, place.src)
    loop = lines.open(build.index_const(0), build.index_const(4))
    inner = lines.add(ops.LOAD, F, (place,), at_least=1)
    assert lines.stack[1] == [loop, inner]
    outer = lines.add(ops.LOAD, F, (place,))
    assert outer is inner and lines.stack == [[place, outer], [loop]]
    assert lines.depth(lines.add(ops.EXP, F, (outer,))) == 0
    lines.close(())
    lines.add(ops.NEG, F, (outer,))
    assert [n.op for n in lines.stack[0]] == [ops.ADDRESS, ops.LOAD, ops.EXP, ops.FOR, ops.ENDFOR,
                                              ops.NEG]


@pytest.mark.parametrize("ends", [(0.5, 0.5), (1.0, 8.0), (-4.0, -1.0)])
def test_ends_that_are_also_read_without_a_condition(ends: tuple[float, float]) -> None:
    first, last = jnp.asarray(ends[0]), jnp.asarray(ends[1])  # eager: lengths are arguments
    np.testing.assert_allclose(jnp.geomspace(first, last), np.geomspace(*ends), rtol=1e-5)
