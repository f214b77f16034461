"""Two-pass scans of cumulative reductions: which loops qualify, and the values they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.formulas.cumulative import cumulative
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp import evaluate
from fnx.core.support.target import Target
from fnx.lower.loops import two_pass_scan as module
from fnx.lower.loops.two_pass_scan import two_pass_scan

CPU = Target("cpu")
MONOIDS = {"sum": (ops.ADD, np.add), "prod": (ops.MUL, np.multiply),
           "max": (ops.MAX, np.maximum), "min": (ops.MIN, np.minimum)}


def _scans(fn: UOp) -> list[tuple[int, tuple[int, ...]]]:
    return [(n.arg.length, n.arg.outs[0][0]) for n in toposort(fn.src) if n.op is ops.SCAN]


def test_chunks_are_lanes() -> None:
    x = build.param(0, dtypes.float32, (1 << 17,))
    before = build.function([cumulative(x, 0, ops.ADD)], 1)
    assert _scans(before) == [(1 << 17, ())]
    assert sorted(_scans(two_pass_scan(before, CPU))) == [(256, ()), (512, (256,))]


@pytest.mark.parametrize(("x", "monoid"), [
    (build.param(0, dtypes.float32, (4096,)), ops.ADD),        # too short
    (build.param(0, dtypes.float32, (1 << 17, 2)), ops.ADD),   # several chains side by side
    (build.param(0, dtypes.float64, (1 << 17,)), ops.ADD),     # float64 is not reassociated
    (build.param(0, dtypes.float32, (1 << 17,)), ops.LOGADDEXP)])
def test_other_loops_stay(x: UOp, monoid: Any) -> None:
    before = build.function([cumulative(x, 0, monoid)], 1)
    assert two_pass_scan(before, CPU) is before


def test_a_carry_that_is_read_stays() -> None:
    x = build.param(0, dtypes.float32, (1 << 17,))
    c, u = build.param(0, dtypes.float64, ()), build.param(1, dtypes.float32, ())
    total = build.add(c, build.cast(u, dtypes.float64))
    body = build.function([total, build.cast(total, dtypes.float32)], 2, "sum")
    last, ys = build_calls.scan(body, 1 << 17, [], [build.const(0.0, dtypes.float64, ())], [x])
    both = build.function([last, ys], 1)
    assert two_pass_scan(both, CPU) is both
    assert len(_scans(two_pass_scan(build.function([ys], 1), CPU))) == 2


def test_other_steps_stay() -> None:
    x = build.param(0, dtypes.int32, (1 << 17,))
    c, u = build.param(0, dtypes.int32, ()), build.param(1, dtypes.int32, ())
    for step in (build.add(c, c), build.sub(c, u), build.add(u, u),
                 build.add(c, build.add(c, u))):
        body = build.function([step, step], 2, "step")
        ys = build_calls.scan(body, 1 << 17, [], [build.const(0, dtypes.int32, ())], [x])[1]
        fn = build.function([ys], 1)
        assert two_pass_scan(fn, CPU) is fn


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([*MONOIDS]), st.integers(256, 1300), st.booleans(),
       st.sampled_from([(), (1,)]), st.sampled_from(["float32", "int32", "float16", "bfloat16"]),
       st.integers(0, 1 << 30))
def test_what_they_compute(monoid: str, n: int, reverse: bool, lanes: tuple[int, ...], dtype: str,
                           seed: int) -> None:
    """The same as the loop, at any length, in both directions; also the last carry, where it may be
    read."""
    op, _ = MONOIDS[monoid]
    t = dtypes.as_dtype(dtype)
    values = np.random.default_rng(seed).normal(1, 0.01 if monoid == "prod" else 2, (n, *lanes))
    x = build.param(0, t, (n, *lanes))
    outs = [cumulative(x, 0, op, reverse)]
    scan, = [node for node in toposort(outs) if node.op is ops.SCAN]
    if dtype == "int32" or monoid in ("max", "min"):
        outs.append(build.results(scan)[0])
    before = build.function(outs, 1)
    was = module.MIN_STEPS, module.MIN_UNEVEN_STEPS
    module.MIN_STEPS = module.MIN_UNEVEN_STEPS = 256
    try:
        after = two_pass_scan(before, CPU)
    finally:
        module.MIN_STEPS, module.MIN_UNEVEN_STEPS = was
    assert len(_scans(after)) > len(_scans(before))
    given_x = evaluate([build.cast(build.param(0, dtypes.float64, x.shape), t)],
                       {build.param(0, dtypes.float64, x.shape): values})[0]
    for a, b in zip(*(evaluate(fn.src, {x: given_x}) for fn in (before, after))):
        if dtype == "int32" or monoid in ("max", "min"):
            np.testing.assert_array_equal(a, b)
        elif a.dtype == np.float32:
            np.testing.assert_allclose(a, b, rtol=1.2e-7)
        elif a.dtype == np.float16:
            np.testing.assert_allclose(a, b, rtol=2e-3)


@pytest.mark.parametrize(("n", "loops"), [(8191, 1), (8192, 2), (16635, 1), (65_537, 3)])
def test_what_would_be_left_over_is_walked_with_the_rest_of_short_ones(n: int, loops: int) -> None:
    before = build.function([cumulative(build.param(0, dtypes.float32, (n,)), 0, ops.ADD)], 1)
    assert len(_scans(two_pass_scan(before, CPU))) == loops
