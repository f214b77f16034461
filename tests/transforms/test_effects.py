"""Effects in traced code: once each, in the order of the program, on every device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.config import override
from fnx.core.errors import ArgumentError, CallbackError, GradError
from fnx.experimental import io_callback

X = np.arange(1.0, 4.0, dtype=np.float32)


@pytest.fixture(params=["interp", "cpu"], autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with override(device=request.param):
        yield request.param


class Log:
    """What a callback saw, in order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, *xs: Any) -> None:
        self.seen.append(tuple([np.asarray(x).tolist() for x in xs]))

    def taken(self) -> list[Any]:
        fnx.effects_barrier()
        seen, self.seen = self.seen, []
        return seen


def test_equal_prints_stay_two_and_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    @fnx.jit
    def f(x: Any) -> Any:
        fnx.debug.print("twice")
        fnx.debug.print("x = {}, sum {s:.1f} {}", x, "text", s=x.sum())
        fnx.debug.print("twice")
        return x + 1

    for _ in range(2):
        np.testing.assert_array_equal(f(X), X + 1)
        fnx.effects_barrier()
        assert capsys.readouterr().out == "twice\nx = [1. 2. 3.], sum 6.0 text\ntwice\n"


def test_options_first(capsys: pytest.CaptureFixture[str]) -> None:
    fnx.jit(lambda x: fnx.debug.print(ordered=True)("x = {x}", x=x))(2.5)
    fnx.effects_barrier()
    assert capsys.readouterr().out == "x = 2.5\n"


def test_outside_of_traces_it_is_now() -> None:
    log = Log()
    fnx.debug.callback(log, X, 2.5)
    assert log.seen == [([1.0, 2.0, 3.0], 2.5)]


def test_grad_has_the_effects_of_the_forward_pass_once() -> None:
    log = Log()

    def f(x: Any) -> Any:
        fnx.debug.callback(log, x)
        y = jnp.sin(x)
        fnx.debug.callback(log, y.sum())
        return (y * y).sum()

    want = fnx.grad(lambda x: (jnp.sin(x) ** 2).sum())(X)
    for g in (fnx.grad(f), fnx.jit(fnx.grad(f)), fnx.grad(fnx.jit(f)),
              lambda x: fnx.vjp(f, x)[1](1.0)[0], lambda x: fnx.grad(fnx.call(f))(x)):
        np.testing.assert_allclose(g(X), want, rtol=1e-6)
        first, second = log.taken()
        assert first == (X.tolist(),)
        np.testing.assert_allclose(second[0], np.sin(X).sum(), rtol=1e-6)


def test_nested_jits_keep_the_order() -> None:
    log = Log()
    inner = fnx.jit(lambda x, i: (fnx.debug.callback(log, i), x + 1)[1])

    @fnx.jit
    def outer(x: Any) -> Any:
        fnx.debug.callback(log, -1)
        for i in range(3):
            x = inner(x, i)
        fnx.debug.callback(log, 10)
        return inner(x, 3)

    np.testing.assert_array_equal(outer(X), X + 4)
    assert log.taken() == [(-1,), (0,), (1,), (2,), (10,), (3,)]


def test_jvp() -> None:
    log = Log()

    def f(x: Any) -> Any:
        fnx.debug.callback(log, x)
        return x * x

    y, t = fnx.jvp(f, (X,), (np.ones_like(X),))
    np.testing.assert_array_equal(t, 2 * X)
    assert log.taken() == [(X.tolist(),)]


def test_an_effect_whose_function_has_no_other_result() -> None:
    log = Log()
    assert fnx.jit(lambda x: fnx.debug.callback(log, x * 2))(1.5) is None
    assert log.taken() == [(3.0,)]


def test_pure_callback() -> None:
    called = []

    def host(x: Any, scale: Any) -> Any:
        called.append(1)
        return {"sum": np.cumsum(x), "scaled": x * scale}

    shapes = {"sum": X, "scaled": X}

    @fnx.jit
    def f(x: Any) -> Any:
        out = fnx.pure_callback(host, shapes, x, scale=3.0)
        fnx.pure_callback(host, shapes, x, scale=4.0)
        return out["sum"] * 2, out["scaled"]

    a, b = f(X)
    np.testing.assert_array_equal(a, 2 * np.cumsum(X))
    np.testing.assert_array_equal(b, 3 * X)
    assert len(called) == 1, "what nobody reads is not called"


def test_io_callback_results_are_read_in_order() -> None:
    state = [0]

    def count(step: Any) -> Any:
        state[0] += int(step)
        return np.int32(state[0])

    @fnx.jit
    def f(x: Any) -> Any:
        a = io_callback(count, np.int32(0), 1)
        fnx.debug.callback(lambda: state.append(state[0]))
        b = io_callback(count, np.int32(0), 1)
        c = io_callback(count, np.int32(0), 1)
        return x * c, a, b

    x, a, b = f(X)
    assert (a, b) == (1, 2) and np.array_equal(x, 3 * X) and state == [3, 1]


def test_a_value_that_comes_with_one_behind_a_later_effect() -> None:
    """``y`` is printed before the callback whose result it is added to in one kernel."""
    log = Log()

    @fnx.jit
    def f(x: Any) -> Any:
        y = jnp.exp(x) * 2
        fnx.debug.callback(log, y)
        return y, y + io_callback(lambda: (log(0), np.float32(1))[1], np.float32(0))

    y, z = f(X)
    np.testing.assert_allclose(z, y + 1)
    first, second = log.taken()
    np.testing.assert_allclose(first[0], y, rtol=1e-6)
    assert second == (0,)


def test_a_callback_may_use_fnx() -> None:
    inner = fnx.jit(lambda x: (fnx.debug.callback(log, x[:2]), jnp.cumsum(x))[1])
    log = Log()

    def host(x: Any) -> Any:
        big = jnp.ones((300, 300)) @ jnp.ones((300, 300))
        return fnx.grad(lambda v: (inner(v) ** 2).sum())(x) + big[0, 0]

    got = fnx.jit(lambda x: fnx.pure_callback(host, X, x) * 2)(X)
    want = fnx.grad(lambda v: (jnp.cumsum(v) ** 2).sum())(X)
    np.testing.assert_allclose(got, 2 * (np.asarray(want) + 300), rtol=1e-6)
    assert log.taken() == [(X[:2].tolist(),)]


def test_an_error_of_a_callback_surfaces_once_with_the_line() -> None:
    seen = []

    def fail(x: Any) -> Any:
        raise ValueError("as it should")

    @fnx.jit
    def f(x: Any) -> Any:
        y = fnx.pure_callback(fail, X, x)
        fnx.debug.callback(seen.append, y)
        return y + 1

    with pytest.raises(CallbackError, match=r"test_effects.py:\d+: pure_callback of fail raised "
                       "ValueError: as it should") as e:
        f(X).block_until_ready()
    assert isinstance(e.value.__cause__, ValueError)
    fnx.effects_barrier()
    assert seen == []
    np.testing.assert_array_equal(fnx.jit(lambda x: x + 1)(X), X + 1)


@pytest.mark.parametrize(("out", "said"), [
    ((X, X), r"expected a result of the structure"),
    ({"a": X[:2]}, r"expected float32\[3\] at \['a'\] as result, got float32\[2\]"),
    ({"a": X.astype(np.int32)}, r"expected float32\[3\] at \['a'\] as result, got int32\[3\]"),
    ({"a": "text"}, r"expected float32\[3\] at \['a'\] as result, got str"),
])
def test_wrong_results(out: Any, said: str) -> None:
    f = fnx.jit(lambda x: fnx.pure_callback(lambda v: out, {"a": X}, x))
    with pytest.raises(CallbackError, match=said):
        f(X)["a"].block_until_ready()


def test_no_derivative() -> None:
    f = fnx.jit(lambda x: fnx.pure_callback(np.sin, np.float32(0), x) * x)
    with pytest.raises(GradError, match="expected a derivative for pure_callback of sin") as e:
        fnx.grad(f)(1.0)
    assert "custom_jvp" in str(e.value) and "custom_vjp" in str(e.value)
    with pytest.raises(GradError, match="expected a derivative for pure_callback of sin"):
        fnx.jvp(f, (1.0,), (1.0,))
    g = fnx.grad(lambda x: fnx.pure_callback(
        np.sin, np.float32(0), fnx.lax.stop_gradient(x)) * x)
    np.testing.assert_allclose(g(1.0), np.sin(np.float32(1.0)), rtol=1e-6)


@pytest.mark.parametrize(("fmt", "args", "said"), [
    ("{} {}", (1,), "names 1"), ("{}", (1, 2), "does not name 1"), ("{a}", (), "names a"),
    ("{", (1,), "expected a format string"), (3, (), "expected a format string, got int"),
])
def test_bad_formats(fmt: Any, args: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        fnx.debug.print(fmt, *args)


# ---- loops and branches --------------------------------------------------------------------


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


def test_lanes_in_loops_in_branches() -> None:
    """A print in a scan in a branch that each lane takes or not."""
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


# ---- breakpoint, progress ---------------------------------------------------------------------


def test_breakpoint(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []

    def hook() -> None:
        frame = sys._getframe(1)
        stopped.append((frame.f_locals["y"].tolist(), frame.f_locals["text"],
                        frame.f_code.co_filename, frame.f_lineno))

    def f(x: Any) -> Any:
        y, text = x * 2, "as it is"
        fnx.debug.breakpoint()
        return y, text

    monkeypatch.setattr(sys, "breakpointhook", hook)
    if device == "cpu":
        with pytest.raises(ArgumentError, match='expected device="interp", got \'cpu\'') as e:
            fnx.jit(lambda x: f(x)[0])(X)
        assert 'fnx.config.device = "interp"' in str(e.value)
        return
    fnx.jit(lambda x: f(x)[0])(X)
    line = f.__code__.co_firstlineno + 2
    assert stopped == [((2 * X).tolist(), "as it is", __file__, line)]


@pytest.mark.parametrize("reverse", [False, True])
def test_progress(reverse: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def cell(c: Any, x: Any) -> Any:
        return c + x, c * x

    run = fnx.jit(lambda x, told: fnx.lax.scan(cell, 0.0, x, progress=told, reverse=reverse),
                  static_argnums=1)
    for told, quiet in zip(run(X, True), run(X, False)):
        np.testing.assert_array_equal(told, quiet)
    fnx.effects_barrier()
    assert capsys.readouterr().err.split("\r")[1:] == [
        "scan of cell: 1/3 steps", "scan of cell: 2/3 steps", "scan of cell: 3/3 steps\n"]
    fnx.lax.scan(lambda c, x: (c, None), 0, None, 1000, progress=True)
    fnx.effects_barrier()
    assert capsys.readouterr().err.count("\r") == 100


# ---- with other transforms ----------------------------------------------------------------------


def watched(log: Log) -> Any:
    def f(x: Any) -> Any:
        y = jnp.sin(x)
        fnx.debug.callback(log, y)
        return jnp.sin(y)
    return f


ONCE = {
    "checkpoint": lambda f: fnx.checkpoint(f),
    "grad of checkpoint": lambda f: fnx.grad(fnx.checkpoint(f)),
    "jvp of checkpoint": lambda f: lambda x: fnx.jvp(fnx.checkpoint(f), (x,), (1.0,))[1],
    "hessian": fnx.hessian, "jacfwd": fnx.jacfwd, "jacrev": fnx.jacrev,
    "linearize": lambda f: lambda x: fnx.linearize(f, x)[1](1.0),
    "grad of grad": lambda f: fnx.grad(fnx.grad(f)),
    "grad of cond": lambda f: fnx.grad(lambda x: fnx.lax.cond(x > 0, f, lambda v: v, x)),
    "closure_convert": lambda f: lambda x: fnx.closure_convert(f, x)[0](x),
    "call": fnx.call, "jit": fnx.jit,
}


@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize("outer", [lambda f: f, fnx.jit], ids=["eager", "jit"])
def test_once_under(name: str, outer: Any) -> None:
    log, transform = Log(), ONCE[name]
    got = outer(transform(watched(log)))(1.0)
    (first,), = log.taken()
    np.testing.assert_allclose(first, np.sin(1.0), rtol=1e-6)
    np.testing.assert_allclose(got, transform(lambda x: jnp.sin(jnp.sin(x)))(1.0), rtol=1e-6)


def test_vmap_of_the_gradient_of_a_checkpoint() -> None:
    log = Log()
    fnx.vmap(fnx.grad(fnx.checkpoint(watched(log))))(X[:2])
    np.testing.assert_allclose(np.ravel(log.taken()), np.sin(X[:2]), rtol=1e-6)


@pytest.mark.parametrize("checkpoint", [None, 1, 2])
def test_the_gradient_of_a_scan_has_each_effect_once(checkpoint: int | None) -> None:
    log = Log()

    def step(c: Any, x: Any) -> Any:
        fnx.debug.callback(log, c)
        return jnp.sin(c) + x, c

    want, states = 0.5, []
    for x in X:
        states.append(want)
        want = np.sin(want) + x
    fnx.jit(fnx.grad(lambda c: fnx.lax.scan(step, c, X, checkpoint=checkpoint)[0]))(0.5)
    np.testing.assert_allclose(np.ravel(log.taken()), states, rtol=1e-5)


def test_the_gradient_of_a_while_loop_has_each_effect_once() -> None:
    log = Log()

    def body(c: Any) -> Any:
        fnx.debug.callback(log, c)
        return c * 2

    g = fnx.jit(fnx.grad(lambda c: fnx.lax.while_loop(lambda s: s < 10, body, c)))
    assert g(1.5) == 8 and log.taken() == [(1.5,), (3.0,), (6.0,)]


def test_io_callback_in_a_checkpoint_is_not_repeated() -> None:
    calls = [0]

    def count() -> Any:
        calls[0] += 1
        return np.float32(calls[0])

    f = fnx.checkpoint(lambda x: jnp.sin(x * io_callback(count, np.float32(0))))
    np.testing.assert_allclose(fnx.jit(fnx.grad(f))(1.0), np.cos(1.0), rtol=1e-6)
    assert calls == [1]


def test_custom_derivatives() -> None:
    log = Log()

    @fnx.custom_jvp
    def f(x: Any) -> Any:
        fnx.debug.callback(log, 0, x)
        return jnp.sin(x)

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        x, = primals
        fnx.debug.callback(log, 1, x)
        return f(x), jnp.cos(x) * tangents[0]

    for g, want in ((f, [(0, 1.0)]), (fnx.grad(f), [(1, 1.0), (0, 1.0)]),
                    (lambda x: fnx.jvp(f, (x,), (1.0,))[1], [(1, 1.0), (0, 1.0)])):
        fnx.jit(g)(1.0)
        assert log.taken() == want
    np.testing.assert_allclose(fnx.vmap(fnx.grad(f))(X[:2]), np.cos(X[:2]), rtol=1e-6)
    assert log.taken() == [(1, 1.0), (1, 2.0), (0, 1.0), (0, 2.0)]

    @fnx.custom_vjp
    def h(x: Any) -> Any:
        fnx.debug.callback(log, 0, x)
        return jnp.sin(x)

    h.defvjp(lambda x: (fnx.debug.callback(log, 1, x), (jnp.sin(x), x))[1],
             lambda x, ct: (ct * jnp.cos(x),))
    for g, want in ((h, [(0, 1.0)]), (fnx.grad(h), [(1, 1.0)])):
        fnx.jit(g)(1.0)
        assert log.taken() == want
    np.testing.assert_allclose(fnx.jit(fnx.vmap(fnx.grad(h)))(X[:2]), np.cos(X[:2]), rtol=1e-6)
    assert log.taken() == [(1, 1.0), (1, 2.0)]
    h.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (
        fnx.debug.callback(log, ct), (ct * jnp.cos(x),))[1])
    fnx.jit(fnx.grad(h))(1.0)
    assert log.taken() == [(1.0,)]
