"""``split_masked_stores``: only the last vector of a length known at run time is masked."""

from __future__ import annotations

import numpy as np

from fnx.backends.llvm.binding import host_target
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.lower.driver import Driver
from fnx.lower.target_lowerings import kernel_code
from tests.lower.machine import aligned, run, split

AVX2 = host_target().replace(vector_bits=256)


def rows_of_any_length() -> UOp:
    """Two results of 2 x 8 lanes: o0[i] = 2 x[i] and o1[i] = x[i] for i below a scalar."""
    n = build.var(0, dtypes.index, 0, 1000)
    i, inside, _ = split(n, (2, "UNROLL"), (8, "VEC"))
    assert inside is not None
    x, first, second = (build.index_into(build.ref(s, dtypes.float32, (n,)), i) for s in range(3))
    value = build.load(x, inside)
    twice = build.mul(value, build.const(2, dtypes.float32))
    return build.kernel([build.store(first, twice, inside), build.store(second, value, inside)],
                        "rows", (0, 1, 2))


def test_the_first_lanes_are_stored_for_each_length() -> None:
    kernel = rows_of_any_length()
    for n in range(36):
        x = np.arange(1, n + 1, dtype=np.float32)
        buffers = [aligned(x), aligned(np.zeros(n), np.float32), aligned(np.zeros(n), np.float32)]
        run(kernel, buffers, [n], made_for=AVX2)  # checks what lies behind the buffers, too
        np.testing.assert_array_equal(buffers[1:], [2 * x, x])


def test_a_masked_store_is_in_a_branch_of_its_own() -> None:
    program = kernel_code(rows_of_any_length(), Driver(AVX2)).program()
    lines = program.src
    masked = [at for at, line in enumerate(lines) if line.op is ops.STORE and len(line.src) == 3]
    whole = [line for line in lines if line.op is ops.STORE and len(line.src) == 2]
    assert masked and len(whole) >= len(masked)
    assert all(lines[at - 1].op in (ops.IF, ops.STORE) for at in masked)
    wide = kernel_code(rows_of_any_length(), Driver(AVX2.replace(vector_bits=512))).program()
    assert not any(line.op is ops.IF for line in wide.src)
