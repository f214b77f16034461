"""Arithmetic fences keep LLVM's shuffle optimization to a few floats in a row. The values are
checked in tests/lower/emit/test_transpose.py."""

from __future__ import annotations

import re

import pytest

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.build_calls import cmd_loop, commands, exec_, slot
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.emit.emit import emit_program
from fnx.lower.loops.inline_command_loop import inline_command_loop
from fnx.lower.render import host
from tests.lower.machine import split


def transposition(dtype: DType, size: int) -> UOp:
    i, _, _ = split(32, (size, "UNROLL"), ids=0)
    j, _, _ = split(32, (size, "VEC"), ids=10)
    x = build.load(build.index_into(build.ref(0, dtype, (32, 32)), i, j))
    store = build.store(build.index_into(build.ref(1, dtype, (32, 32)), j, i), x)
    return build.kernel([store], "turn", (0, 10, 1, 11))


@pytest.mark.parametrize("dtype, size, fences", [
    (dtypes.float32, 16, 16), (dtypes.float64, 8, 8), (dtypes.float32, 4, 0),
    (dtypes.int32, 16, 0)])
def test_a_transposition_is_cut_where_it_is_long_and_of_floats(
        dtype: DType, size: int, fences: int) -> None:
    text = host.render(emit_program(transposition(dtype, size), Target("cpu")))
    assert text.count("= shufflevector") == size * (size.bit_length() - 1)
    assert text.count("@llvm.arithmetic.fence") == fences


def test_what_stands_twice_in_a_loop_is_hidden_twice() -> None:
    """The operands of the second copy are the values loaded after the first."""
    turn = transposition(dtypes.float32, 16)
    run = exec_(turn, [slot("in", i, 0, 4096) for i in (0, 1)], (), "turn")
    program = inline_command_loop(cmd_loop(commands([run, run]), 9, "f"),
                                  lambda k: emit_program(k, Target("cpu")))
    assert host.render(program).count("@llvm.arithmetic.fence") == 32


def test_what_sibling_loops_share_is_hidden_in_each() -> None:
    zeros = UOp(ops.SPLAT, t := dtypes.float32.vector_types[4], (build.const(0.0, dtypes.float32),))
    lines: list[UOp] = []
    for number in (1, 2):
        value = zeros
        lines.append(UOp(ops.FOR, dtypes.index, (build.index_const(0), build.index_const(3)),
                         number))
        for _ in range(4):
            value = UOp(ops.SHUFFLE, t, (value, zeros), (0, 1, 2, 3 + number))
            lines.append(value)
        lines.append(UOp(ops.ENDFOR, dtypes.void, (lines[-5],)))
    text = host.render(UOp(ops.PROGRAM, dtypes.void, (zeros, *lines)))
    hidden = re.findall(r"(%v\d+) = call <4 x float> @llvm.arithmetic.fence\.v4f32(?!.*%)", text)
    first, second = text.split("X1:")
    assert len(hidden) == 2 and hidden[0] not in second and hidden[1] not in first
