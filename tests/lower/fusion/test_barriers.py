"""BARRIER below the tensor level: it separates kernels, orders them and costs nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fnx.backends.device.base import get_device
from fnx.core.ir import build as b
from fnx.core.ir import build_calls, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.transforms.link import link

f4 = dtypes.float32


def p(slot: int, *shape: int) -> UOp:
    return b.param(slot, f4, shape)


def squares(x: UOp) -> UOp:
    return b.reduce(b.mul(x, x), ops.ADD, (len(x.shape) - 1,))


def commands_of(*outs: UOp) -> list[UOp]:
    """Return the commands of a graph in execution order, having checked the results."""
    slots = {n.arg.slot: n for n in b.params(b.function(outs, 8)).values()}
    fn = b.function(outs, len(slots))
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(slots[i].shape).astype("f4") for i in range(len(slots))]
    device = get_device("cpu")
    program = link(fn, device)
    got = [o.view(n.dtype.np, n.shape)
           for o, n in zip(program.run([device.upload(a) for a in args]), outs)]
    for g, w in zip(got, interp.apply(fn, args)):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
    return list(program.lowered.block.commands.src)


def names_of(*outs: UOp) -> list[str]:
    return [command.arg.name for command in commands_of(*outs)]


def reductions(commands: list[UOp]) -> list[int]:
    """Return the number of reductions in each kernel."""
    return [sum(n.op is ops.REDUCE for n in toposort([c.src[0]])) for c in commands]


def reads(commands: list[UOp]) -> list[set[int]]:
    """Return the arguments that each kernel reads."""
    return [{s.arg.index for s in c.src[1:] if s.op is ops.SLOT and s.arg.kind == "in"}
            for c in commands]


def test_equal_reductions_stay_two() -> None:
    x = p(0, 8, 64)
    assert reductions(commands_of(b.add(squares(x), squares(x)))) == [1]
    assert reductions(commands_of(b.add(squares(x), squares(b.barrier(x))))) == [2]
    assert reductions(commands_of(squares(x), squares(b.barrier(x)))) == [1, 1]


def test_what_waits_runs_later() -> None:
    x, w = p(0, 8, 64), p(1, 8)
    top = b.reduce(b.exp(squares(x)), ops.MAX, (0,))
    again = b.mul(w, squares(b.barrier(x, top)))
    for outs in ((top, again), (again, top)):
        assert reads(commands_of(*outs)) == [{0}, set(), {0, 1}]


def test_a_barrier_waits_for_what_its_value_is_computed_from() -> None:
    """Also if the value has no buffer: only the barrier reads it, or its readers recompute it."""
    y = p(1, 8, 64)
    total = b.reduce(squares(p(0, 8, 64)), ops.ADD, (0,))
    last = b.reduce(squares(b.barrier(y, b.neg(b.exp(total)))), ops.MUL, (0,))
    found = reads(commands_of(last, total))
    assert found.index({0}) < found.index({1})


@pytest.mark.parametrize("make", [
    lambda x: b.neg(x),
    lambda x: b.gather(x, b.flip(b.iota(3), (0,))),
    lambda x: b.scatter(x, [b.iota(3)], b.const(1, f4, (3, 64)), ops.ADD),
    lambda x: b.reshape(x, (64, 8)),
    lambda x: build_calls.call(b.function([b.exp(p(0, 8, 64))], 1, "f"), [x])[0],
], ids=["map", "gather", "scatter", "reshape", "call"])
def test_no_buffer_is_forced(make: Callable[[UOp], UOp]) -> None:
    x = p(0, 8, 64)
    plain, behind = names_of(make(x)), names_of(make(b.barrier(x, squares(x))))
    assert len(behind) == len(plain)


def test_a_matmul_behind_a_barrier_is_a_matmul() -> None:
    def matmul(x: UOp, w: UOp) -> UOp:
        m, k, n = *x.shape, w.shape[1]
        left = b.expand(b.reshape(x, (m, k, 1)), (m, k, n))
        right = b.expand(b.reshape(w, (1, k, n)), (m, k, n))
        return b.reduce(b.mul(left, right), ops.ADD, (1,))
    x, w = p(0, 16, 32), p(1, 32, 16)
    name, = names_of(matmul(b.barrier(x, w), b.barrier(w)))
    assert name.startswith("contract")


def test_a_chain_of_barriers() -> None:
    x: UOp = p(0, 8, 64)
    total = b.reduce(squares(x), ops.ADD, (0,))
    for _ in range(5):
        x = b.barrier(x, total)
        total = b.add(total, b.reduce(squares(x), ops.ADD, (0,)))
    assert sum(reductions(commands_of(total))) == 12
