"""Effects in loops, branches and batches: those of active steps and elements, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
from fnx.experimental import io_callback
from tests.transforms.effect_log import Log

pytestmark = pytest.mark.usefixtures("device")

X = np.arange(1.0, 4.0, dtype=np.float32)


def cell(c: Any, x: Any, log: Any) -> Any:
    fnx.debug.callback(log, c, x)
    return c + x, c * x


@pytest.mark.parametrize("unroll", [1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(unroll: int, reverse: bool) -> None:
    log, quiet = Log(), lambda c, x: (c + x, c * x)
    run = fnx.jit(lambda x: fnx.lax.scan(lambda c, x: cell(c, x, log), 0.0, x, unroll=unroll,
                                         reverse=reverse))
    carry, ys = run(X)
    want, wanted = fnx.lax.scan(quiet, 0.0, X, reverse=reverse)
    np.testing.assert_array_equal(carry, want)
    np.testing.assert_array_equal(ys, wanted)
    xs = X[::-1] if reverse else X
    assert log.taken() == [(float(xs[:i].sum()), float(x)) for i, x in enumerate(xs)]


def test_while_loop_with_effects_in_body_and_condition() -> None:
    log = Log()

    def body(c: Any) -> Any:
        fnx.debug.callback(log, 0, c)
        return c * 2

    def goes_on(c: Any) -> Any:
        fnx.debug.callback(log, 1, c)
        return c < 10

    assert fnx.jit(lambda x: fnx.lax.while_loop(goes_on, body, x))(3.0) == 12
    assert log.taken() == [(1, 3.0), (0, 3.0), (1, 6.0), (0, 6.0), (1, 12.0)]
    assert fnx.jit(lambda x: fnx.lax.while_loop(goes_on, lambda c: c * 2, x))(6.0) == 12
    assert log.taken() == [(1, 6.0), (1, 12.0)]
    assert fnx.jit(lambda x: fnx.lax.while_loop(lambda c: c < 10, body, x))(30.0) == 30
    assert log.taken() == []


@pytest.mark.parametrize("bound", [3, np.int32(3)])
def test_fori_loop(bound: Any) -> None:
    log = Log()

    def body(i: Any, c: Any) -> Any:
        fnx.debug.callback(log, i)
        return c + i

    assert fnx.jit(lambda x, n: fnx.lax.fori_loop(0, n, body, x),
                   static_argnums=1 if bound is int else ())(1.0, bound) == 4
    assert log.taken() == [(0,), (1,), (2,)]


def test_branches() -> None:
    log = Log()
    f = fnx.jit(lambda i, x: fnx.lax.switch(i, [
        lambda x: x, lambda x: (fnx.debug.callback(log, x), -x)[1], lambda x: x * 2], x))
    assert [float(f(i, 3.0)) for i in range(3)] == [3, -3, 6]
    assert log.taken() == [(3.0,)]


def test_map_and_what_a_loop_returns() -> None:
    counter = [0]

    def count(x: Any) -> Any:
        counter[0] += 1
        return np.float32(counter[0])

    f = fnx.jit(lambda x: fnx.lax.map(lambda v: v * io_callback(count, np.float32(0), v), x))
    np.testing.assert_array_equal(f(X), X * [1, 2, 3])


# ---- vmap ----------------------------------------------------------------------------------


def test_vmap_calls_once_for_each_lane_in_order() -> None:
    log = Log()

    def f(x: Any, y: Any) -> Any:
        fnx.debug.callback(log, x, y)
        fnx.debug.callback(log, y)
        return x * y

    grid = np.arange(6, dtype=np.float32).reshape(2, 3)
    for g in (fnx.vmap(f, (0, None)), fnx.jit(fnx.vmap(f, (0, None)))):
        np.testing.assert_array_equal(g(X, 2.0), 2 * X)
        assert log.taken() == [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (2.0,)]
    fnx.vmap(fnx.vmap(f, (0, None)), (0, 0))(grid, X[:2])
    assert log.taken() == [*[(x, y) for row, y in zip(grid.tolist(), X.tolist()) for x in row],
                           (1.0,), (2.0,)]


def test_vmap_of_grad_and_of_scan() -> None:
    log = Log()
    fnx.vmap(fnx.grad(lambda x: (fnx.debug.callback(log, x), x * x)[1]))(X)
    assert log.taken() == [(1.0,), (2.0,), (3.0,)]
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    fnx.vmap(lambda x: fnx.lax.scan(lambda c, x: cell(c, x, log), 0.0, x))(rows)
    assert log.taken() == [(0.0, 0.0), (0.0, 3.0), (0.0, 1.0), (3.0, 4.0), (1.0, 2.0), (7.0, 5.0)]


SHAPES = {"sequential": ((), ()), "sequential_unrolled": ((), ()), "expand_dims": ((3,), (1,)),
          "broadcast_all": ((3,), (3,)), "legacy_vectorized": ((3,), ())}


@pytest.mark.parametrize("method", SHAPES)
def test_pure_callback_under_vmap(method: str) -> None:
    seen = []

    def host(x: Any, y: Any) -> Any:
        seen.append((x.shape, y.shape))
        return np.asarray(x) + np.asarray(y)

    def f(x: Any, y: Any) -> Any:
        return fnx.pure_callback(host, np.float32(0), x, y, vmap_method=method)

    np.testing.assert_array_equal(fnx.jit(fnx.vmap(f, (0, None)))(X, 2.0), X + 2)
    assert seen == [SHAPES[method]] * (3 if "sequential" in method else 1)


def test_pure_callback_says_what_it_does_under_vmap_or_is_refused() -> None:
    f = fnx.vmap(lambda x: fnx.pure_callback(np.sin, np.float32(0), x))
    with pytest.raises(NotImplementedError, match="expected a vmap_method for pure_callback"):
        f(X)


def test_lanes_that_choose_have_the_effects_of_their_own_branch() -> None:
    log = Log()

    def f(x: Any) -> Any:
        return fnx.lax.cond(x > 1.5, lambda v: (fnx.debug.callback(log, 1, v), v * 2)[1],
                            lambda v: (fnx.debug.callback(log, 0, v), fnx.debug.callback(log, 7),
                                       -v)[2], x)

    np.testing.assert_array_equal(fnx.jit(fnx.vmap(f))(X), [-1, 4, 6])
    assert log.taken() == [(0, 1.0), (7,), (1, 2.0), (1, 3.0)]
    np.testing.assert_array_equal(fnx.jit(fnx.vmap(f))(X[1:]), [4, 6])
    assert log.taken() == [(1, 2.0), (1, 3.0)]


def test_lanes_that_have_ended_have_no_effects() -> None:
    log = Log()

    def body(c: Any) -> Any:
        fnx.debug.callback(log, c)
        return c * 2

    def until(x: Any) -> Any:
        return fnx.lax.while_loop(lambda c: c < 6, body, x)

    np.testing.assert_array_equal(fnx.jit(fnx.vmap(until))(X), [8, 8, 6])
    assert log.taken() == [(1.0,), (2.0,), (3.0,), (2.0,), (4.0,), (4.0,)]


@pytest.mark.cases(1)
def test_lanes_in_loops_in_branches() -> None:
    """A print in a scan in a branch that depends on the batch element."""
    log = Log()

    def step(c: Any, x: Any) -> Any:
        fnx.debug.callback(log, c, x)
        return c + x, None

    def f(x: Any) -> Any:
        return fnx.lax.cond(x > 1.5, lambda v: fnx.lax.scan(step, v, fnx.numpy.arange(2.0))[0],
                            lambda v: v, x)

    np.testing.assert_array_equal(fnx.vmap(fnx.jit(f))(X), [1, 3, 4])
    assert log.taken() == [(2.0, 0.0), (3.0, 0.0), (2.0, 1.0), (3.0, 1.0)]
    grid = np.stack([X, X])
    fnx.vmap(fnx.vmap(f))(grid)
    assert log.taken() == [(2.0, 0.0), (3.0, 0.0), (2.0, 0.0), (3.0, 0.0),
                           (2.0, 1.0), (3.0, 1.0), (2.0, 1.0), (3.0, 1.0)]
