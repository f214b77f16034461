"""What LLVM sees of networks of shuffles: of floats, a few in a row. That their values are right is
in test_codegen_transpose.py."""

import pytest

from fnx.core import build, dtypes
from fnx.core.build_commands import commands, exec_, loop, slot
from fnx.core.dtypes import DType
from fnx.core.target import Target
from fnx.core.uop import UOp
from fnx.lower.program.inlined import inlined
from fnx.lower.program.linearize import linearize
from fnx.lower.render import host
from tests.lower.machine import split


def transposition(dtype: DType, size: int) -> UOp:
    i, _, _ = split(32, (size, "UNROLL"), ids=0)
    j, _, _ = split(32, (size, "VEC"), ids=10)
    x = build.load(build.at(build.ref(0, dtype, (32, 32)), i, j))
    store = build.store(build.at(build.ref(1, dtype, (32, 32)), j, i), x)
    return build.kernel([store], "turn", (0, 10, 1, 11))


@pytest.mark.parametrize("dtype, size, fences", [
    (dtypes.float32, 16, 16), (dtypes.float64, 8, 8), (dtypes.float32, 4, 0),
    (dtypes.int32, 16, 0)])
def test_a_transposition_is_cut_where_it_is_long_and_of_floats(
        dtype: DType, size: int, fences: int) -> None:
    text = host.render(linearize(transposition(dtype, size), Target("cpu")))
    assert text.count("= shufflevector") == size * (size.bit_length() - 1)
    assert text.count("@llvm.arithmetic.fence") == fences


def test_what_stands_twice_in_a_loop_is_hidden_twice() -> None:
    """The second time its operands are what was read after the first."""
    turn = transposition(dtypes.float32, 16)
    run = exec_(turn, [slot("in", i, 0, 4096) for i in (0, 1)], (), "turn")
    program = inlined(loop(commands([run, run]), 9, "f"), lambda k: linearize(k, Target("cpu")))
    assert host.render(program).count("@llvm.arithmetic.fence") == 32
