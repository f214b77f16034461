"""Cheap branches of a COND are selected: which ones, and the same values as by branching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp import evaluate
from fnx.lower.tensor.select_branches import select_branches

F = dtypes.float32
RNG = np.random.default_rng(0)


def branching(branches: Sequence[Callable[[UOp], Sequence[UOp]]], n: int) -> UOp:
    """Return the FUNCTION (which, x: [n]) that runs one of some branches on x."""
    x, which = build.param(1, F, (n,)), build.param(0, dtypes.int32, ())
    at = build.param(0, F, (n,))
    bodies = [build.function(list(f(at)), 1) for f in branches]
    return build.function(build_calls.cond(bodies, which, [x]), 2)


def has_cond(fn: UOp) -> bool:
    return any(n.op is ops.COND for n in toposort(fn.src))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_selected_values_are_those_of_the_branch(count: int) -> None:
    def branch(k: int) -> Callable[[UOp], Sequence[UOp]]:
        return lambda x: [build.add(x, build.const_like(x, k)), build.mul(x, x) if k % 2 else x]
    fn = branching([branch(k) for k in range(count)], 7)
    selected = select_branches(fn)
    assert not has_cond(selected)
    x = RNG.standard_normal(7).astype("float32")
    for which in (-3, *range(count), count, 99):
        known = {p: np.asarray(which, np.int32) if p.arg.slot == 0 else x
                 for p in toposort(fn.src) if p.op is ops.PARAM}
        for got, want in zip(evaluate(selected.src, known), evaluate(fn.src, known)):
            np.testing.assert_array_equal(got, want)


def test_work_that_is_worth_skipping_stays_a_branch() -> None:
    def long(x: UOp) -> Sequence[UOp]:
        for _ in range(40):
            x = build.elementwise(ops.SIN, x)
        return [x]

    def total(x: UOp) -> Sequence[UOp]:
        return [build.expand(build.reshape(build.reduce(x, ops.ADD, [0]), (1,)), x.shape)]
    assert has_cond(select_branches(branching([lambda x: [x], long], 4096)))
    assert has_cond(select_branches(branching([lambda x: [x], total], 8)))
    # a large carry that one branch leaves as it is stays in place
    assert has_cond(select_branches(branching([lambda x: [x], lambda x: [build.neg(x)]], 1 << 20)))
    assert not has_cond(select_branches(branching([lambda x: [x], lambda x: [build.neg(x)]], 64)))


def test_a_scan_with_a_branch_is_one_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    def step(x: Any, u: Any) -> Any:
        x = lax.cond(u > 0, lambda x: x + u, lambda x: x * 0.5, x)
        return x, x
    run = fnx.jit(lambda us: lax.scan(step, 0.0, us))
    us = jnp.asarray(RNG.standard_normal(100).astype("float32"))
    run.lower(us).show("kernels")
    assert capsys.readouterr().out.count("\nkernel ") == 1
    for got, want in zip(run(us), fnx.jit(lambda us: lax.scan(step, 0.0, us), device="interp")(us)):
        np.testing.assert_array_equal(got, want)


def test_what_is_undefined_in_the_other_branch() -> None:
    @fnx.jit
    def ratio(a: Any, b: Any) -> Any:
        return lax.cond(b != 0, lambda: (a // b, a % b), lambda: (a, -a))
    for a, b in ((7, 0), (7, 2), (-2**31, -1), (-2**31, 0)):
        pair = ratio(jnp.int32(a), jnp.int32(b))
        if b == 0:
            np.testing.assert_array_equal(pair, np.array([a, -np.int64(a)]).astype(np.int32))
        elif b != -1:
            np.testing.assert_array_equal(pair, (a // b, a % b))


def test_lanes_that_branch_launch_no_kernels_of_branches(
        capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        return lax.cond(x > 0, lambda: jnp.sqrt(x), lambda: -x)
    many = fnx.jit(fnx.vmap(f))
    x = jnp.asarray(RNG.standard_normal(1000).astype("float32"))
    many.lower(x).show("kernels")
    assert capsys.readouterr().out.count("\nkernel ") == 1
    np.testing.assert_array_equal(many(x), [f(v) for v in x])
    slopes = fnx.vmap(fnx.grad(f))(jnp.asarray([4.0, -1.0, 0.0]))
    np.testing.assert_array_equal(slopes, [0.25, -1, -1])
