"""Adjacent accesses of a thread become vectors; memory is the same after any straight-line
program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import spec
from fnx.core.support.target import Target
from fnx.lower.emit.vectorize_accesses import vectorize_accesses
from fnx.lower.pipeline import lower

GPU = Target("gpu", kind="opencl", threads=64, shared=16 << 10, private=256, vector_bits=128,
             vector_registers=64)
F32 = dtypes.float32
ROOM = 24


@st.composite
def programs(draw: st.DrawFn) -> UOp:
    """Loads, sums and stores at offsets from a few pointers, two of which are to one buffer."""
    refs = [UOp(ops.REF, F32, (), kernel_args.Ref(slot)) for slot in (0, 1)]
    near = UOp(ops.ADDRESS, F32, (refs[0], build.index_const(4)))
    lines, values = [near], [build.const(2, F32)]
    for _ in range(draw(st.integers(1, 24))):
        pointer = draw(st.sampled_from([*refs, near]))
        for start in [draw(st.integers(0, 9))]:
            count = draw(st.integers(1, 5))
            places = draw(st.permutations(range(start, start + count)))
            write = draw(st.booleans())
            for i in places:
                aligned = 16 if i % 4 == 0 else 8 if i % 2 == 0 else 4
                at = UOp(ops.ADDRESS, F32, (pointer, build.index_const(i)), aligned)
                lines.append(at)
                if write:
                    value = draw(st.sampled_from(values))
                    lines.append(UOp(ops.STORE, dtypes.void, (at, value)))
                else:
                    values.append(UOp(ops.LOAD, F32, (at,)))
                    lines.append(values[-1])
    return UOp(ops.PROGRAM, dtypes.void, tuple(lines), kernel_args.ThreadGroup(2, 0, 1, 0, 0))


def run(lines: Sequence[UOp]) -> np.ndarray:
    """Return the memory after some lines; a load that occurs twice runs twice."""
    memory = np.arange(2 * ROOM, dtype=np.float32).reshape(2, ROOM)
    values: dict[UOp, np.ndarray] = {}

    def value(node: UOp) -> np.ndarray:
        return np.float32([build.const_of(node)]) if node.op is ops.CONST else values[node]

    def cells(address: UOp) -> np.ndarray:
        start, lanes, node = 0, address.dtype.lanes, address
        while node.op is ops.ADDRESS:
            start += build.const_of(node.src[1])
            node = node.src[0]
        assert start % lanes == 0 and address.arg >= lanes * 4
        return memory[node.arg.slot, start:start + lanes]

    for line in lines:
        if line.op is ops.LOAD:
            values[line] = cells(line.src[0]).copy()
        elif line.op is ops.EXTRACT:
            values[line] = value(line.src[0])[line.arg:line.arg + 1]
        elif line.op is ops.VECTOR:
            values[line] = np.concatenate([value(s) for s in line.src])
        elif line.op is ops.STORE:
            cells(line.src[0])[:] = value(line.src[1])
    return memory


@settings(max_examples=300, deadline=None)
@given(programs())
def test_memory_is_what_scalars_make_of_it(program: UOp) -> None:
    after = vectorize_accesses(program, GPU)
    spec.check([after], "program")
    np.testing.assert_array_equal(run(after.src), run(program.src))
    assert sum(line.op in (ops.LOAD, ops.STORE) for line in after.src) <= \
        sum(line.op in (ops.LOAD, ops.STORE) for line in program.src)


def lanes(columns: int, target: Target = GPU) -> set[tuple[str, int]]:
    """Return the accesses of exp(x) for rows of so many columns."""
    fn = build.function([build.exp(build.param(0, F32, (1000, columns)))], 1)
    kernel, = lower(fn, target).code.values()
    return {(line.op.name, line.src[0].dtype.lanes) for line in kernel.program().src
            if line.op in (ops.LOAD, ops.STORE)}


def test_a_map_moves_vectors_where_rows_are_aligned_for_them() -> None:
    assert lanes(256) == {("LOAD", 4), ("STORE", 4)}
    assert lanes(258) == {("LOAD", 4), ("STORE", 4)}  # all of it is one range
    assert lanes(257) == {("LOAD", 4), ("STORE", 4)}  # of 257_000
    assert lanes(256, GPU.replace(vector_bits=32)) == {("LOAD", 1), ("STORE", 1)}
