"""Effects in traced code: each once, in program order, on every device."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, CallbackError, GradError
from fnx.experimental import io_callback
from tests.transforms.effect_log import Log

pytestmark = pytest.mark.usefixtures("device")

X = np.arange(1.0, 4.0, dtype=np.float32)


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


@pytest.mark.cases(2)
@pytest.mark.parametrize("traced", [False, True])
def test_a_breakpoint_stops_in_the_function_that_has_it(device: str, traced: bool,
                                                        tmp_path: Path) -> None:
    if traced and device == "cpu":
        return  # refused, as above
    program = tmp_path / "program.py"
    program.write_text(f"""
import fnx
fnx.config.device = {device!r}
def f(x):
    y = x * 2
    fnx.debug.breakpoint()
    z = y + 1
    return z
with fnx.disable_jit({not traced}):
    print("result", fnx.jit(f)(3.0))
""")
    printed = subprocess.run([sys.executable, program], input="p y\nw\nc\n", text=True, check=True,
                             capture_output=True).stdout
    assert "program.py(7)f()" in printed.splitlines()[0]
    assert "6." in printed and "result 7.0" in printed and "--Return--" not in printed
    assert traced or "api_boundary.py" not in printed


@pytest.mark.cases(2)
@pytest.mark.parametrize("reverse", [False, True])
def test_progress(reverse: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def cell(c: Any, x: Any) -> Any:
        return c + x, c * x

    run = fnx.jit(
        lambda x, progress: fnx.lax.scan(cell, 0.0, x, progress=progress, reverse=reverse),
        static_argnums=1)
    for printed, plain in zip(run(X, True), run(X, False)):
        np.testing.assert_array_equal(printed, plain)
    fnx.effects_barrier()
    assert capsys.readouterr().err.split("\r")[1:] == [
        "scan of cell: 1/3 steps", "scan of cell: 2/3 steps", "scan of cell: 3/3 steps\n"]
    fnx.lax.scan(lambda c, x: (c, None), 0, None, 1000, progress=True)
    fnx.effects_barrier()
    assert capsys.readouterr().err.count("\r") == 100


def test_a_partial_is_one_callback_each_time_that_rules_are_traced() -> None:
    """A new partial in each trace is the same function; results may be float64 without x64."""
    def scaled(factor: float, x: Any) -> Any:
        return np.asarray(x) * factor

    def halve(_: Any, b: Any, factor: float = 0.5) -> Any:
        return fnx.pure_callback(functools.partial(scaled, factor),
                                 fnx.ShapeDtypeStruct(b.shape, b.dtype), b,
                                 vmap_method="sequential")

    def f(b: Any) -> Any:
        return fnx.lax.custom_linear_solve(lambda x: 2 * x, b, halve, halve).sum()
    x = jnp.asarray(np.ones(2), "float64")
    np.testing.assert_array_equal(fnx.jit(fnx.grad(f))(x), [0.5, 0.5])
    np.testing.assert_array_equal(fnx.vmap(fnx.grad(f))(x[:, None]), [[0.5], [0.5]])
    assert fnx.grad(f)(x).dtype == "float64"
