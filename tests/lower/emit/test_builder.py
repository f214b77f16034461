"""Hoisting of program lines: as far out as their users need."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.lower.emit.builder import ProgramBuilder
from fnx.lower.render import host

COMPILED = True
F = dtypes.float32


def test_a_line_moves_out_when_it_has_to_live_longer() -> None:
    """LOAD x if i < 1, where i < 1 is known, and LOAD x: one line, before the loop."""
    lines = ProgramBuilder()
    place = UOp(ops.ADDRESS, F, (build.ref(0, F, ()), build.index_const(0)))
    place = lines.put(ops.ADDRESS, F, place.src)
    loop = lines.open(build.index_const(0), build.index_const(4))
    inner = lines.add(ops.LOAD, F, (place,), min_depth=1)
    assert lines.stack[1] == [loop, inner]
    outer = lines.add(ops.LOAD, F, (place,))
    assert outer is inner and lines.stack == [[place, outer], [loop]]
    assert lines.depth(lines.add(ops.EXP, F, (outer,))) == 0
    lines.close(())
    lines.add(ops.NEG, F, (outer,))
    assert [n.op for n in lines.stack[0]] == [ops.ADDRESS, ops.LOAD, ops.EXP, ops.FOR, ops.ENDFOR,
                                              ops.NEG]


def test_a_line_that_moves_out_is_in_no_loop_that_comes_after_it() -> None:
    """Of two loops in a loop: what each computes from x alone is computed before all, once."""
    lines = ProgramBuilder()
    place = lines.put(ops.ADDRESS, F, (build.ref(0, F, ()), build.index_const(0)))
    ends = build.index_const(0), build.index_const(4)
    lines.open(*ends)
    for min_depth in (2, 0):  # the first reads x under a condition
        lines.open(*ends)
        x = lines.add(ops.LOAD, F, (place,), min_depth=min_depth)
        negative = lines.add(ops.NEG, F, (x,))
        lines.close(())
    lines.close(())
    assert lines.stack[0][:3] == [place, x, negative]
    assert len(set(lines.stack[0])) == len(lines.stack[0])


@pytest.mark.parametrize("ends", [(0.5, 0.5), (1.0, 8.0), (-4.0, -1.0)])
def test_ends_that_are_also_read_without_a_condition(ends: tuple[float, float]) -> None:
    first, last = jnp.asarray(ends[0]), jnp.asarray(ends[1])  # eager: lengths are arguments
    np.testing.assert_allclose(jnp.geomspace(first, last), np.geomspace(*ends), rtol=1e-5)


@pytest.mark.parametrize("swapped", [False, True])
def test_what_waits_for_the_step_before_is_the_second_operand(swapped: bool) -> None:
    """LLVM tests the sign of a maximum's first operand, which takes as long as the rest."""
    ends = build.index_const(0), build.index_const(9)
    loop = UOp(ops.FOR, dtypes.index, ends, 1)
    carried = UOp(ops.PHI, F, (loop, build.const(0.0, F)))
    less = UOp(ops.NEG, F, (carried,))
    place = UOp(ops.ADDRESS, F, (UOp(ops.REF, F, (), build.ref(0, F, ()).arg), loop), 4)
    read = UOp(ops.LOAD, F, (place,))
    largest = UOp(ops.MAX, F, (less, read) if swapped else (read, less))
    end = UOp(ops.ENDFOR, dtypes.void, (loop, largest))
    text = host.render(UOp(ops.PROGRAM, dtypes.void, (
        loop, carried, less, place, read, largest, end)))
    first, second = re.findall(r"maximum\.f32\(float (\S+), float (\S+)\)", text)[0]
    assert f"{first} = load float" in text and f"{second} = fneg float" in text
