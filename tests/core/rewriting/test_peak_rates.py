"""FLOP counts of loops of commands; those of kernels are in the example of the module."""

import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, build_calls, dtypes
from fnx.core.ir.uop import UOp
from fnx.core.rewriting.peak_rates import count_flops

F = dtypes.float32


def double_of(n: int) -> UOp:
    """Return a command that adds n times."""
    r = build.range_(n, 0)
    x, y = (build.index_into(build.ref(i, F, (n,)), r) for i in (0, 1))
    loaded = build.load(x)
    kernel = build.kernel([build.store(y, build.add(loaded, loaded))], "double", [0])
    slots = [build_calls.slot("in", 0, 0, 4 * n), build_calls.slot("out", 0, 0, 4 * n)]
    return build_calls.exec_(kernel, slots, [], "double")


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_loop_of_commands_counts_its_trips(trips: int) -> None:
    body = build_calls.commands([double_of(8)])
    loop = build_calls.cmd_loop(body, trips, "again")
    assert count_flops(loop, []) == trips * 8
    outer = build_calls.cmd_loop(build_calls.commands([loop]), 2, "outer")
    assert count_flops(outer, []) == 2 * trips * 8


def test_of_a_while_loop_one_iteration_counts() -> None:
    body = build_calls.commands([double_of(8)])
    flag = build_calls.slot("arena", 0, 0, 1)
    loop = build_calls.cmd_while(build_calls.commands([]), flag, body, "while")
    assert count_flops(loop, []) == 8


def test_loops_that_round_up_are_not_counted() -> None:
    runs = fnx.profile(lambda x: x * 2.5 + 1)(jnp.ones(10)).runs
    assert sum([run.flops for run in runs]) == 20
