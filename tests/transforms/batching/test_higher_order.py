"""batch through loops and branches whose trip counts and branches differ between batch elements."""

from __future__ import annotations

import numpy as np
import pytest

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp, spec
from fnx.transforms.batching.batch import batch
from tests.helpers import assert_same
from tests.transforms.batching.test_batch import looped


def check_lanes(fn: UOp, args: list[np.ndarray], batched: tuple[bool, ...]) -> None:
    size = next(len(a) for a, b in zip(args, batched) if b)
    function, outs = batch(fn, size, batched)
    spec.check([function], "tensor")
    got = interp.apply(function, args)
    for lane, want in enumerate(looped(fn, args, batched, size)):
        assert_same([g[lane] if b else g for g, b in zip(got, outs)], want)


def patterns(n: int) -> list[tuple[bool, ...]]:
    return [tuple([bool(p >> i & 1) for i in range(n)]) for p in range(1, 1 << n)]


@pytest.mark.parametrize("batched", patterns(3), ids=repr)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(batched: tuple[bool, ...], reverse: bool) -> None:
    """One carry becomes batched only in a step, and one stops being batched."""
    f = dtypes.float32
    k, total, last, x = build.param(0, f, ()), *[build.param(i, f, (2,)) for i in (1, 2, 3)]
    ones = build.const(1, f, (2,))
    body = build.function([build.add(total, x), ones, build.mul(total, last),
                           build.expand(k, (2,))], 4, "step")
    a, b, c = build.param(0, f, ()), build.param(1, f, (2,)), build.param(2, f, (5, 2))
    fn = build.function(build_calls.scan(body, 5, [a], [b, b], [c], reverse), 3)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((4,) * b + s).astype(np.float32)
            for s, b in zip([(), (2,), (5, 2)], batched)]
    check_lanes(fn, args, batched)


def _while(limit: float) -> UOp:
    """(step, x, n) -> x and n after scaling x by step while its sum is below the limit; sqrt of an
    inactive element would be NaN."""
    f = dtypes.float32
    step, x, n = build.param(0, f, ()), build.param(1, f, (2,)), build.param(2, dtypes.int32, ())
    total = build.reduce(x, ops.ADD, (0,))
    condition = build.function([build.lt(total, build.const(limit, f))], 3, "below")
    rest = build.sqrt(build.sub(build.const(limit, f), total))
    more = build.add(build.expand(step, (2,)), build.add(x, build.expand(rest, (2,))))
    body = build.function([more, build.add(n, build.const_like(n, 1))], 3, "grow")
    return build.function(build_calls.while_(condition, body, [step], [x, n]), 3)


@pytest.mark.parametrize("batched", patterns(3), ids=repr)
def test_while(batched: tuple[bool, ...]) -> None:
    rng = np.random.default_rng(0)
    args = [rng.uniform(0.1, 3, (4,) * batched[0]).astype(np.float32),
            rng.uniform(0, 40, (4,) * batched[1] + (2,)).astype(np.float32),
            rng.integers(0, 9, (4,) * batched[2]).astype(np.int32)]
    check_lanes(_while(60.0), args, batched)


def test_a_loop_that_counts_alike_in_all_lanes_has_one_condition() -> None:
    i, x = build.param(0, dtypes.int32, ()), build.param(1, dtypes.float32, (2,))
    condition = build.function([build.lt(i, build.const_like(i, 3))], 2)
    body = build.function([build.add(i, build.const_like(i, 1)), build.mul(x, x)], 2)
    fn = build.function(build_calls.while_(condition, body, [], [i, x]), 2)
    function, outs = batch(fn, 4, (False, True))
    assert outs == (False, True)
    loop = function.src[0].src[0]
    assert loop.src[0].src[0].op is ops.CMPLT
    check_lanes(fn, [np.int32(0), np.ones((4, 2), np.float32)], (False, True))


@pytest.mark.parametrize("batched", patterns(3), ids=repr)
def test_cond(batched: tuple[bool, ...]) -> None:
    f = dtypes.float32
    x, y = build.param(0, f, (2,)), build.param(1, f, ())
    branches = [build.function([build.neg(x), y], 2, "neg"),
                build.function([build.sqrt(x), build.add(y, y)], 2, "sqrt"),
                build.function([build.expand(y, (2,)), build.const(1, f)], 2, "other")]
    which = build.param(0, dtypes.int32, ())
    fn = build.function(build_calls.cond(branches, which, [build.param(1, f, (2,)),
                                                           build.param(2, f, ())]), 3)
    rng = np.random.default_rng(0)
    for n in range(-2, 4):
        numbers = np.array([n, 0, 7, 1, 2], np.int32) if batched[0] else np.int32(n)
        args = [numbers, rng.uniform(0, 2, (5,) * batched[1] + (2,)).astype(np.float32),
                rng.uniform(0, 2, (5,) * batched[2]).astype(np.float32)]
        check_lanes(fn, args, batched)


def test_a_branch_that_no_lane_takes_is_not_run() -> None:
    """Its loop would never end."""
    x = build.param(0, dtypes.float32, ())
    true = build.function([build.eq(x, x)], 1)
    forever = build_calls.while_(true, build.function([x], 1), [], [x])
    branches = [build.function([x], 1), build.function(forever, 1)]
    which, y = build.param(0, dtypes.int32, ()), build.param(1, dtypes.float32, ())
    fn = build.function(build_calls.cond(branches, which, [y]), 2)
    check_lanes(fn, [np.zeros(3, np.int32), np.ones(3, np.float32)], (True, True))


def test_lanes_that_do_not_take_a_branch_do_not_hang_in_it() -> None:
    """x -> x / 2 while x > 1 would never end for infinity, which takes the other branch."""
    x = build.param(0, dtypes.float32, ())
    one = build.const_like(x, 1)
    halved = build_calls.while_(build.function([build.lt(one, x)], 1),
                                build.function([build.mul(x, build.const_like(x, 0.5))], 1), [],
                                [x])
    branches = [build.function([one], 1), build.function(halved, 1)]
    fits = build.cast(build.lt(x, build.const_like(x, 1e30)), dtypes.int32)
    fn = build.function(build_calls.cond(branches, fits, [x]), 1)
    check_lanes(fn, [np.array([np.inf, 3, 100, np.inf], np.float32)], (True,))
