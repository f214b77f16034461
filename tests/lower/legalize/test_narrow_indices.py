"""Indices are 32-bit where bounds prove that they fit: results equal those of unbounded
integers."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import spec
from fnx.core.rewriting.algebra import trunc
from fnx.core.support.errors import KernelError, OverflowedError
from fnx.core.support.target import Target
from fnx.lower.emit.emit import emit_program
from fnx.lower.legalize.narrow_indices import check_index_width, narrow_indices
from fnx.lower.pipeline import lower

GROUPS = Target("opencl", kind="opencl", threads=128, shared=16 << 10, private=256)
NARROW = Target("webgpu", kind="wgsl", threads=128, shared=16 << 10, private=256, fma=False)
SIZES = st.sampled_from([1, 3, 100, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 31) + 1,
                         1 << 33])


@st.composite
def kernels(draw: st.DrawFn) -> UOp:
    """A store at a random index expression of all kinds of ranges, arguments and data."""
    g = build.range_(draw(SIZES), 0, "GRID")
    t, k = build.range_(128, 1, "THREAD"), build.range_(draw(SIZES), 2)
    u = build.range_(2, 3, "UNROLL")
    n = build.var(0, dtypes.index, 0, draw(st.sampled_from([100, (1 << 31) - 1, 1 << 40])))
    data = build.load(build.index_into(build.ref(1, draw(st.sampled_from(
        [dtypes.int8, dtypes.int32, dtypes.uint32, dtypes.int64])), (128,)), t))
    some = [g, t, k, u, n, build.cast(data, dtypes.index)]
    for _ in range(draw(st.integers(2, 7))):
        op = draw(st.sampled_from([ops.ADD, ops.SUB, ops.MUL, ops.MIN, ops.MAX, ops.IDIV,
                                   ops.REM, ops.WHERE]))
        a, b = draw(st.sampled_from(some)), build.index_const(draw(SIZES))
        if op is ops.WHERE:
            some.append(build.where(build.lt(a, b), a, draw(st.sampled_from(some))))
        elif op in (ops.IDIV, ops.REM) or draw(st.booleans()):
            some.append(build.elementwise(op, a, b))
        else:
            some.append(build.elementwise(op, a, draw(st.sampled_from(some))))
    place = build.add(some[-1], build.add(build.mul(build.add(g, k), build.index_const(256)),
                                          build.add(t, build.mul(u, build.index_const(128)))))
    o = build.index_into(build.ref(0, dtypes.int32, (1 << 62,)), place)
    value = build.cast(some[-2], dtypes.int32)
    return build.kernel([build.store(o, value, build.lt(some[-1], n))], "k", (0, 1, 2, 3))


_OF_NUMBERS = {
    ops.ADD: lambda a, b: a + b, ops.SUB: lambda a, b: a - b, ops.MUL: lambda a, b: a * b,
    ops.NEG: lambda a: -a, ops.MIN: min, ops.MAX: max, ops.IDIV: trunc,
    ops.REM: lambda a, b: a - b * trunc(a, b), ops.SHR: lambda a, b: a >> b,
    ops.WHERE: lambda c, a, b: a if c else b, ops.CMPLT: lambda a, b: a < b,
    ops.CMPLE: lambda a, b: a <= b, ops.CMPEQ: lambda a, b: a == b,
    ops.CMPNE: lambda a, b: a != b, ops.AND: lambda a, b: a & b, ops.NOT: lambda a: not a,
    ops.CAST: lambda a: a,
}


def wrapped(value: int, width: int | None) -> int:
    return value if width is None else (value + (1 << width - 1)) % (1 << width) - (1 << width - 1)


def effects(program: UOp, given: Mapping[UOp, int], seed: int, narrow: bool) -> list[int]:
    """Return address offsets, conditions and stored values, each loop in one of its iterations.
    Index lines are unbounded, or 32-bit where they are int32."""
    rng = random.Random(seed)
    values: dict[UOp, int] = {}
    found = []

    def value(n: UOp) -> int:
        if n.op is ops.CONST:
            return int(build.const_of(n))
        if n.op is ops.VAR or n.op is ops.ID:
            return given[n.arg if n.op is ops.ID else n.op]
        return values[n]

    for line in program.src:
        if line.op is ops.FOR:
            low, high = map(value, line.src)
            values[line] = rng.choice([low, max(low, high - 1),
                                       rng.randint(low, max(low, high - 1))])
        elif line.op is ops.LOAD:
            low, high = line.dtype.limits
            values[line] = rng.choice([low, high, rng.randint(low, high)])
        elif line.op in _OF_NUMBERS:
            width = None if line.dtype is dtypes.index or line.dtype.is_bool else \
                32 if narrow or line.dtype is dtypes.int32 else None
            values[line] = wrapped(int(_OF_NUMBERS[line.op](*map(value, line.src))), width)
        elif line.op is ops.ADDRESS:
            found.append(value(line.src[1]))
        elif line.op is ops.STORE:
            found.append(wrapped(value(line.src[1]), 32))
        elif line.op is ops.IF:
            found.append(value(line.src[0]))
    return found


@settings(max_examples=300, deadline=None)
@given(kernels(), st.integers(0, 1 << 30))
def test_lines_in_32_bits_give_what_unbounded_integers_give(kernel: UOp, seed: int) -> None:
    try:
        before = emit_program(kernel, GROUPS)
    except OverflowedError:  # a constant of the kernel exceeds 64 bits
        assume(False)
    after = narrow_indices(before)
    spec.check([after], "program")
    rng = random.Random(seed)
    groups, n = before.arg.groups, [v.arg.high for v in [x for line in before.src
                                    for x in line.src if x.op is ops.VAR]]
    given = {"GRID": rng.choice([0, groups - 1, rng.randrange(groups)]),
             "THREAD": rng.choice([0, 127]), ops.VAR: rng.choice([0, min(n, default=0)])}
    assert effects(before, given, seed, False) == effects(after, given, seed, True)


def offsets(size: int) -> set[str]:
    """Return the widths of the element offsets in a copy of so many elements."""
    flipped = build.flip(build.param(0, dtypes.int8, (size,)), (0,))
    kernel, = lower(build.function([flipped], 1), GROUPS).code.values()
    return {line.src[1].dtype.name for line in kernel.program().src
            if line.op is ops.ADDRESS and line.src[1].op is not ops.CONST}


def test_shapes_around_two_to_the_31() -> None:
    assert offsets(300) == {"int32"} == offsets((1 << 31) - 256)
    assert "index" in offsets((1 << 31) + 1)


@pytest.mark.parametrize("size", [1 << 20, (1 << 31) - 1, 1 << 33])
def test_a_target_of_32_bits_refuses_what_has_no_room(size: int) -> None:
    t, k = build.range_(1, 0, "THREAD"), build.range_(size, 1)
    o = build.index_into(build.ref(0, dtypes.float32, (1,)), t)
    total = build.reduce_ranges(build.cast(k, dtypes.float32), ops.ADD, [k])
    program = emit_program(build.kernel([build.store(o, total)], "sum", (0, 1)), NARROW)
    if size < 1 << 31:
        assert check_index_width(program, NARROW) is program
        return
    with pytest.raises(KernelError, match="below 2\\*\\*31, got up to 8589934591") as found:
        check_index_width(program, NARROW)
    assert "split the computation" in str(found.value)
