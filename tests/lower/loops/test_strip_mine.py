"""While loops are strip-mined into counted loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.support.config import override
from fnx.core.support.errors import DeviceError
from fnx.core.tracing.trace import inline_function
from fnx.lower.loops.fuse_loop_into_kernel import fuse_loop_into_kernel
from fnx.lower.loops.strip_mine import strip_mine_while

I32 = dtypes.int32


def counting(extra: bool = True) -> UOp:
    """(n, i, x, unread): i counts to n, x grows by i; nothing reads the last carry."""
    n, i, x = (build.param(k, I32, ()) for k in range(3))
    step = [(Expr(i) + 1).node, (Expr(x) + Expr(i)).node, build.const(7, I32)]
    body = build.function(step, 4, "count")
    condition = build.function([build.lt(i, n)], 4, "below")
    zero = build.const(0, I32)
    made = build_calls.while_(condition, body, [build.param(0, I32, ())], [zero, zero, zero])
    return build.function(made[:2] if extra else made[1:2], 1)


@pytest.mark.parametrize("trips", [0, 1, 9, 10, 11, 20, 35])
def test_any_number_of_steps(trips: int) -> None:
    """Strips of ten steps, and the kernel form."""
    fn = counting()
    loop = fn.src[0].src[0]
    made = strip_mine_while(loop, [0, 1], lambda node, used, steps: _ten(node, used))
    cut = fn.with_operands((made[0], made[1]))
    want = interp.apply(fn, [np.int32(trips)])
    got = interp.apply(cut, [np.int32(trips)])
    assert [int(a) for a in got] == [int(a) for a in want] == [trips, trips * (trips - 1) // 2]


def _ten(node: UOp, used: Any) -> dict[int, UOp]:
    """At most ten steps, predicated."""
    n = node.arg.n_consts
    consts, carries = node.src[2:2 + n], list(node.src[2 + n:])
    for _ in range(10):
        given = [*consts, *carries]
        goes_on, = inline_function(node.src[0], given)
        carries = [build.where(goes_on, new, old)
                   for new, old in zip(inline_function(node.src[1], given), carries)]
    return {i: carries[i] for i in used}


@pytest.mark.parametrize("trips", [0, 1, 4095, 4096, 4097, 20_000])
def test_results_of_many_strips(trips: int) -> None:
    f = fnx.jit(lambda n: lax.fori_loop(0, n, lambda i, x: x + i % 7, 0))
    assert int(f(trips)) == sum(i % 7 for i in range(trips))


def test_what_is_not_needed_is_not_carried() -> None:
    loop, = [n for n in toposort(fuse_loop_into_kernel(counting(False)).src) if n.op is ops.WHILE]
    assert len(loop.arg.outs) == 3  # the count, the sum and the flag
    kernels = [n for n in toposort(loop.src[1].src) if n.op is ops.KERNEL]
    assert len(kernels) == 1


def test_a_short_loop_wakes_no_worker() -> None:
    f = fnx.jit(lambda n, x: lax.fori_loop(0, n, lambda i, x: x * 1.5 + 1, x))
    x = jnp.asarray(1.0)
    f(3, x).block_until_ready()
    cpu: Any = get_device("cpu")
    before = cpu.stats()["submitted"]
    for n in (0, 1, 3, 50):
        f(n, x).block_until_ready()
    assert cpu.stats()["submitted"] == before
    f(3_000_000, x).block_until_ready()
    assert cpu.stats()["submitted"] == before + 1


def test_one_that_never_ends_is_left_between_strips() -> None:
    """The thread that ran it remains usable: it need not be abandoned."""
    f = fnx.jit(lambda x: lax.while_loop(lambda x: x >= 0, lambda x: (x + 1) % 1000, x))
    g = fnx.jit(lambda x: jnp.sin(x).sum())
    x = jnp.ones(300_000)
    g(x).block_until_ready()
    cpu: Any = get_device("cpu")
    with override(time_limit=0.3), pytest.raises(DeviceError, match="the time limit, for"):
        f(0).block_until_ready()
    assert not cpu.queue._abandoned
    assert float(g(x)) == pytest.approx(300_000 * np.sin(1.0), rel=1e-4)
