"""CARRY, LOOP and PER_ITERATION: legality, semantics, numbering and printing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fnx.core.ir import build, build_kernel_loops, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp_kernel, show, spec
from fnx.core.levels.interp import run_kernel
from fnx.core.support.errors import SpecError
from fnx.lower.analysis.canonicalize import canonicalize

F32 = dtypes.float32
ONE = build.const(1, F32)


def doubling(id: int = 0, first_range: int = 0, lanes: int = 5, trips: int = 6, over: Any = None,
             stop: float | None = 20.0) -> UOp:
    """x doubles and n counts until x exceeds ``stop``; the x of each step is stored too."""
    t, i = build.range_(trips, first_range, name="t"), build.range_(lanes, first_range + 1)
    x, o, p = (build.ref(s, F32, dims) for s, dims in enumerate(((lanes,), (lanes,),
                                                               (trips, lanes))))
    own = (t, i) if over is None else over(t, i)
    a, n = (build_kernel_loops.carry(id, k, F32, own) for k in (0, 1))
    end = None if stop is None else build.lt(build.const(stop, F32), a)
    loop = build_kernel_loops.loop(id, t, [build.load(build.index_into(x, i)), build.const(0, F32)],
                                   [build.add(a, a), build.add(n, ONE)], end)
    last, count = build.results(loop)
    return build.kernel([build.store(build.index_into(o, i), build.sub(last, count)),
                         build.store(build.index_into(p, t, i),
                                     build_kernel_loops.per_iteration(a, loop))],
                        "doubling", (first_range + 1, first_range))


def expected(x: Any, trips: int, stop: float) -> tuple[Any, Any]:
    a, n, path = x.copy(), np.zeros_like(x), np.full((trips, len(x)), -1, "f4")
    for t in range(trips):
        runs = a <= stop
        path[t, runs] = a[runs]
        a, n = np.where(runs, a + a, a), n + runs
    return a - n, path


@pytest.mark.parametrize("limit", [1, 64, 16 << 20])
def test_each_element_ends_by_itself(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(interp_kernel, "LIMIT", limit)
    x = np.arange(1, 6, dtype="f4")
    out, path = np.zeros(5, "f4"), np.full((6, 5), -1, "f4")
    kernel = doubling()
    spec.check([kernel], "kernel")
    run_kernel(kernel, [x, out, path], ())
    for got, want in zip((out, path), expected(x, 6, 20)):
        np.testing.assert_array_equal(got, want)


def test_equal_loops_are_one_node() -> None:
    assert canonicalize(doubling(7, 3)) is canonicalize(doubling(2, 9)) is canonicalize(doubling())


def test_it_prints_as_a_loop_and_rebuilds() -> None:
    kernel = doubling()
    text = [line.partition("#")[0].rstrip() for line in show.pretty(kernel).splitlines()]
    assert text[1:] == ["  for i in seq(5):", "    x, y = x0[i], 0", "    for t in seq(6):",
                        "      if 20 < x: break", "      o2[t, i] = x",
                        "      x, y = x + x, y + 1", "    o1[i] = x - y"]
    assert show.from_python(show.to_python(kernel)) is kernel


def over(value: UOp) -> UOp:
    """Return a KERNEL that stores a value outside of any range."""
    return build.kernel([build.store(build.index_into(build.ref(0, F32, ())), value)], "k")


T = build.range_(4, 0)
CARRY = build_kernel_loops.carry(0, 0, F32, (T,))
LOOP = build_kernel_loops.loop(0, T, [ONE], [build.add(CARRY, ONE)])
OTHER = build_kernel_loops.loop(0, build.range_(4, 1), [ONE], [ONE])
ILLEGAL = {
    "a CARRY outside of its loop": build.kernel([build.store(build.index_into(build.ref(
        0, F32, (4,)), T), CARRY)], "k"),
    "a first value of the loop": over(UOp(ops.GETTUPLE, F32, (build_kernel_loops.loop(
        0, T, [CARRY], [CARRY]),), 0)),
    "a first value that its range changes": over(UOp(ops.GETTUPLE, F32, (build_kernel_loops.loop(
        0, T, [build.cast(T, F32)], [CARRY]),), 0)),
    "a stop that is no bool": over(UOp(ops.GETTUPLE, F32, (UOp(
        ops.LOOP, dtypes.void, (T, ONE, CARRY, ONE), LOOP.arg),), 0)),
    "a next value too few": over(UOp(ops.GETTUPLE, F32, (UOp(
        ops.LOOP, dtypes.void, (T, ONE), LOOP.arg),), 0)),
    "two loops of one number": over(build.add(*[UOp(ops.GETTUPLE, F32, (loop,), 0)
                                                for loop in (LOOP, OTHER)])),
    "a CARRY over too few ranges": doubling(over=lambda t, i: (t,)),
    "a CARRY that begins with no range": doubling(over=lambda t, i: (build.index_const(0), t, i)),
    "a PER_ITERATION of another range": build.kernel([build.store(
        build.index_into(build.ref(0, F32, (4,)), T),
        UOp(ops.PER_ITERATION, F32, (CARRY, LOOP, OTHER.src[0])))], "k"),
}


@pytest.mark.parametrize("kernel", ILLEGAL.values(), ids=ILLEGAL)
def test_the_spec_refuses(kernel: UOp) -> None:
    with pytest.raises(SpecError):
        spec.check([kernel], "kernel")
    spec.check([over(UOp(ops.GETTUPLE, F32, (LOOP,), 0))], "kernel")
