"""What LLVM sees of networks of shuffles: of floats, a few in a row. That their values are right is
in test_codegen_transpose.py."""

import pytest

from fnx.core import build, dtypes
from fnx.core.dtypes import DType
from fnx.core.target import Target
from fnx.lower.program.linearize import linearize
from fnx.lower.render import host
from tests.lower.machine import split


@pytest.mark.parametrize("dtype, size, fences", [
    (dtypes.float32, 16, 16), (dtypes.float64, 8, 8), (dtypes.float32, 4, 0),
    (dtypes.int32, 16, 0)])
def test_a_transposition_is_cut_where_it_is_long_and_of_floats(
        dtype: DType, size: int, fences: int) -> None:
    i, _, _ = split(32, (size, "UNROLL"), ids=0)
    j, _, _ = split(32, (size, "VEC"), ids=10)
    x = build.load(build.at(build.ref(0, dtype, (32, 32)), i, j))
    store = build.store(build.at(build.ref(1, dtype, (32, 32)), j, i), x)
    text = host.render(linearize(build.kernel([store], "turn", (0, 10, 1, 11)), Target("cpu")))
    assert text.count("= shufflevector") == size * (size.bit_length() - 1)
    assert text.count("@llvm.arithmetic.fence") == fences
