"""Large results use nontemporal stores, if whole vectors lie in cache lines of their own."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.target import Target
from fnx.lower.emit.emit import emit_program
from fnx.lower.emit.stores import CACHE_BYTES, MIN_BYTES, large_results
from fnx.lower.kernel.runtime_extents import generalize
from fnx.lower.render import host
from fnx.lower.schedule.heuristics import choose_schedule
from fnx.lower.schedule.tile import tile

COMPILED = True

X86 = Target("cpu", triple="x86_64-linux")
LARGE = MIN_BYTES // 4


def _streams(shape: tuple[int, ...], target: Target = X86, reads_itself: bool = False) -> bool:
    """Whether ``o = x + x`` has nontemporal stores; it ends with a fence exactly then."""
    ranges = [build.range_(n, i) for i, n in enumerate(shape)]
    x, o = (build.index_into(build.ref(s, dtypes.float32, shape), *ranges) for s in (0, 1))
    value = build.load(o if reads_itself else x)
    kernel = build.kernel([build.store(o, build.add(value, value))], "k", [*range(len(shape))])
    program = emit_program(tile(kernel, choose_schedule(kernel, target)), target)
    found = any(n.op is ops.STORE and n.arg == "STREAM" for n in program.src)
    text = host.module("f", host.render(program))
    assert [found] * 3 == [x in text for x in ("!nontemporal", "sfence", "!0 = !{i32 1}")]
    return found


def test_large_results_stream() -> None:
    assert _streams((LARGE,)) and _streams((LARGE // 64, 64))


def test_what_its_operands_push_out_streams() -> None:
    """Two buffers of half the size stream; a result that is small compared to its operands does
    not."""
    assert _streams((CACHE_BYTES // 8,)) and CACHE_BYTES // 2 < MIN_BYTES
    r = build.range_(1 << 20, 0)
    x, o = build.ref(0, dtypes.float32, (1 << 20, 16)), build.ref(1, dtypes.float32, (1 << 20,))
    first = build.load(build.index_into(x, r, build.index_const(0)))
    assert not large_results(toposort([build.store(build.index_into(o, r), first)]))


def _generalized(shape: tuple[int, ...]) -> UOp:
    ranges = [build.range_(n, i) for i, n in enumerate(shape)]
    x, o = (build.index_into(build.ref(s, dtypes.float32, shape), *ranges) for s in (0, 1))
    kernel = build.kernel([build.store(o, build.load(x))], "k", [*range(len(shape))])
    return generalize(kernel)[0]


def test_kernels_of_any_length_stream_where_they_are_large() -> None:
    """Size class and alignment of rows are part of the kernel; lengths are not."""
    for shape, other, streams in (((LARGE,), (2 * LARGE + 16,), True),
                                  ((LARGE // 64, 64), (96, LARGE // 32), True),
                                  ((LARGE // 50, 51), (51, LARGE // 50 + 1), False),
                                  ((512,), (CACHE_BYTES // 8 - 16,), False)):
        kernel = _generalized(shape)
        assert kernel is _generalized(other)
        program = emit_program(tile(kernel, choose_schedule(kernel, X86)), X86)
        assert any(n.op is ops.STORE and n.arg == "STREAM" for n in program.src) is streams, shape


def test_others_do_not() -> None:
    assert not _streams((CACHE_BYTES // 8 - 16,))              # a cache may hold it
    assert not _streams((LARGE,), reads_itself=True)        # its lines are cached
    assert not _streams((LARGE // 50, 51))                  # rows are not whole lines
    assert not _streams((LARGE,), Target("cpu", triple="aarch64-linux"))


def _rows(n: int) -> Any:
    return np.arange(LARGE + 4096, dtype=np.float32)[:LARGE // n * n].reshape(-1, n)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "map": lambda x: x * 2 + 1,
    "two": lambda x: (x + 1, jnp.sum(x, 0)),
    "turned": lambda x: jnp.transpose(x) + 1,
    "read next": lambda x: jnp.cumsum(jnp.abs(x) + 1, 0)[-1],
}


@pytest.mark.cases(4)
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="streams on x86 only")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("width", [64, 61])
def test_what_streams_is_there_when_it_is_read(name: str, width: int) -> None:
    f, x = FUNCTIONS[name], _rows(width)
    got = fnx.jit(f)(x)
    small = 4 * width  # rows of x read by the same function without nontemporal stores
    if name in ("map", "turned"):
        part = np.asarray(f(jnp.asarray(x[-small:])))
        got = np.asarray(got)
        np.testing.assert_array_equal(got[-small:] if name == "map" else got[:, -small:], part)
        assert np.count_nonzero(got) >= math.prod(x.shape) - 1
    elif name == "two":
        np.testing.assert_array_equal(np.asarray(got[0]), x + 1)
        np.testing.assert_allclose(np.asarray(got[1]), x.sum(0, dtype=np.float64), rtol=1e-5)
    else:
        np.testing.assert_allclose(np.asarray(got), (x + 1).sum(0, dtype=np.float64), rtol=1e-3)


def test_a_program_says_that_it_streams() -> None:
    address = UOp(ops.ADDRESS, dtypes.float32, (
        UOp(ops.REF, dtypes.float32, (), build.ref(0, dtypes.float32, (4,)).arg),
        build.index_const(0)), 4)
    one = build.const(1.0, dtypes.float32)
    assert UOp(ops.STORE, dtypes.void, (address, one), "STREAM") is not UOp(
        ops.STORE, dtypes.void, (address, one))
