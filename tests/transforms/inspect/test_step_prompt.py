"""The prompt of ``debug.step``: values that objects and closures hold, commands, what it says."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.transforms.inspect import step_prompt
from fnx.transforms.inspect.step_session import StepSession


def say(session: StepSession, *commands: str) -> list[str]:
    """Return what the prompt said to each command."""
    out = io.StringIO()
    step_prompt.interact(session, stdin=io.StringIO("\n".join([*commands, "q\n"])), stdout=out)
    said = out.getvalue().split("(step) ")[1:]
    return [text.partition("\n")[2].strip() for text in said[:len(commands)]]


def line_of(f: Callable[..., Any], n: int) -> int:
    return f.__code__.co_firstlineno + n


class Model:
    def __init__(self, w: Any) -> None:
        self.w = w
        self.parts = [w * 2, {"bias": w.sum()}]
        self.project = fnx.jit(lambda x: x @ w)

    def __call__(self, x: Any) -> Any:
        h = x @ self.w

        def helper(t: Any) -> Any:
            return t * self.w.sum() + h.mean()
        y = helper(h) + self.parts[0].sum() + self.project(x)
        return y


def model_loss(w: Any, x: Any) -> Any:
    model = Model(w)
    return model(x).sum()


W, X = np.arange(6, dtype=np.float32).reshape(3, 2), np.ones((4, 3), np.float32)


@pytest.mark.parametrize("f", [model_loss, fnx.value_and_grad(model_loss), fnx.jit(model_loss)])
def test_expressions_have_the_values_that_objects_and_closures_hold(f: Any) -> None:
    session, h = fnx.debug.step(f)(W, X), X @ W
    said = say(session, f"b {line_of(Model.__call__, 6)} if self.w.max() > 4", "r", "p self.w",
               "p self.parts[0]", "p self.parts[1]['bias']", "p helper(h)", "p helper(jnp.ones(2))",
               "p self.project(x)", "p [helper(h[0]) for _ in (1, 2)]", "u", "p model.w",
               "p model(x)")
    assert "return y" in said[1]
    expected = [W, W * 2, W.sum(), h * W.sum() + h.mean(), np.ones(2) * W.sum() + h.mean(), h]
    assert said[2:8] == [str(np.asarray(x, np.float32)) for x in expected]
    assert said[8].count("Array([") == 2
    assert said[10] == str(W) and said[11] == str(h * W.sum() + h.mean() + 2 * W.sum() + h)


def test_expressions_have_the_values_of_the_iteration() -> None:
    def f(w: Any, xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            box = SimpleNamespace(c=c, x=x, both=c * x)
            def scaled(t: Any) -> Any:
                return t * c + w
            c = box.both + scaled(x)
            return c, c
        return fnx.lax.scan(body, w, xs)[1]
    session, c = fnx.debug.step(f)(2.0, jnp.arange(3.0)), 2.0
    for t in range(3):
        step = session.run("body")
        assert step is not None and step.loops[-1].number == t
        while not (step.values.keys() & {"c"} and "scaled" in session.names()):
            step = session.step()
            assert step is not None
        after = 2 * c * t + 2
        assert [float(session.evaluate(e)) for e in ("box.c", "box.x", "box.both", "c")] == [
            c, t, c * t, after]
        c = after
        assert float(session.evaluate("scaled(1.0)")) in (c + 2, after + 2)
        while session.current is not None and session.current.loops and \
                session.current.loops[-1].number == t and "return" not in session.current.values:
            session.step()


def test_values_of_later_lines_and_of_examples_say_so() -> None:
    def f(x: Any) -> Any:
        box = SimpleNamespace()
        y = x + 1
        box.h = y * 2
        return box.h.sum()
    line = line_of(f, 2)
    said = say(fnx.debug.step(f)(jnp.ones(2)), f"b {line}", "r", "p box.h + 1", "s", "p box.h + 1")
    assert said[2].startswith("box.h + 1 has no value here: ") and said[4] == "[5. 5.]"

    def row(x: Any) -> Any:
        box = SimpleNamespace(y=x * 2)
        z = box.y + x
        return z
    said = say(fnx.debug.step(fnx.vmap(row))(jnp.ones((4, 3))), f"b {line_of(row, 2)}", "r",
               "p box.y + 1")
    assert said[2].startswith("box.y + 1 has no value here: ")


def test_batches_are_marked() -> None:
    def row(x: Any, scale: Any) -> Any:
        s = x * scale
        t = s.sum()
        return t
    mapped = fnx.vmap(fnx.vmap(row, (0, None)), (0, None))
    session = fnx.debug.step(mapped)(jnp.ones((5, 4, 3)), 2.0)
    text = " ".join(repr(session.step()).split())
    assert "x = float32[5, 4, 3] (batch of 20, each [3])" in text
    assert "scale = float32[] 2" in text
    said = say(session, "s", "v", "args")
    assert "t = float32[5, 4] (batch of 20, each a number)" in said[0]
    assert "s = float32[5, 4, 3] (batch of 20, each [3])" in said[1] and "t = " in said[1]
    assert "x = float32[5, 4, 3] (batch" in said[2] and "t = " not in said[2]
    gradient = fnx.debug.step(fnx.vmap(fnx.grad(lambda x: (x * x).sum())))(jnp.ones((4, 3)))
    assert "derivative of x = float32[4, 3] (batch of 4, each [3])" in repr([*gradient])


def test_the_end_says_what_was_never_reached() -> None:
    def f(x: Any) -> Any:
        first = x + 1
        y = first * 2
        unread = jnp.exp(x)
        return y + unread.ndim
    at = f.__code__.co_firstlineno + 1
    said = say(fnx.debug.step(f)(1.0), f"b {at + 1} if y > 100", f"b {at + 2}", f"b {at + 3}",
               "r", "r")
    assert f"breakpoint {at + 1} if y > 100: its condition was checked 1 time and never" in said[4]
    assert f"breakpoint {at + 2}: never reached; its line ran before, or has no value" in said[4]
    assert f"breakpoint {at + 3}" not in said[4]
    session = fnx.debug.step(f)(1.0)
    assert session.run(at + 1, "y > 100") is None and "never held" in repr(session)


def test_nan_stops_inside_of_lines_and_says_that_there_is_none() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        large = jnp.log(x - 2) > 3
        return jnp.where(large, y, 0).sum()
    session = fnx.debug.step(f)(jnp.array([5.0, 1.0]))
    step = session.first_nan()
    assert step is not None and step.values.keys() == {"large"} and step.line == line_of(f, 2)
    assert "nan from log at [1] of -1 in this line" in repr(step)
    assert session.first_nan() is None
    assert "no NaN and no infinite derivative after step 2" in repr(session)
    session = fnx.debug.step(f)(jnp.array([5.0]))
    assert session.first_nan() is None and "no NaN" in repr(session)
    one = fnx.debug.step(lambda x: jnp.log(x) > 0)(-1.0)
    assert "nan from log of -1 in this line" in say(one, "p step")[0]


def test_a_result_with_a_nan_says_how_to_find_it() -> None:
    hint = "and nan or .first_nan() stops at the line that makes it"
    for x, has_nan in ((-1.0, True), (1.0, False)):
        session = fnx.debug.step(lambda x: jnp.log(x) + 1)(x)
        session.run()
        assert (hint in repr(session)) is has_nan


def test_a_misspelt_variable_is_suggested() -> None:
    session = fnx.debug.step(lambda mask: jnp.log(mask) + 1)(1.0)
    session.step()
    with pytest.raises(KeyError, match="no variable 'maks' .*: did you mean 'mask'"):
        session.variables["maks"]
    assert session.variables.get("maks") is None


def test_what_is_displayed_out_of_its_function_is_not_here() -> None:
    def inner(a: Any) -> Any:
        return a * 2

    def f(x: Any) -> Any:
        n = x + 1
        return inner(n)
    assert say(fnx.debug.step(f)(1.0), "display n", "s")[1].endswith("display n: (not here)")


def test_commands_of_pythons_debugger() -> None:
    def f(x: Any) -> Any:
        n = x + 1
        s = n * 2
        return s.sum()
    at = f.__code__.co_firstlineno
    said = say(fnx.debug.step(f)(jnp.ones(3)), "pp n", "whatis n", "args", "a", "h step", "! n[0]",
               "n + 1", "n.max()", "n = 3", "step.number", "jump 3", "condition 1 n > 2",
               f"b {at + 2}, s.max() > 1", f"tbreak {at + 3}", "display n[0] * 2", "r", "where",
               "undisplay", "until", "cl 999", "ll", "p")
    assert said[0] == "[2. 2. 2.]" and said[1].startswith("float32[3]") and said[5] == "2.0"
    assert said[2] == said[3] and said[2].startswith("x = float32[3]")
    assert said[4].startswith("s(tep): ") and said[6] == "[3. 3. 3.]" and said[7] == "2.0"
    assert said[8].startswith("a variable keeps its value") and said[9] == "1"
    assert said[10].startswith("jump is no command") and said[11].startswith("condition is no")
    assert said[12] == f"will stop at {at + 2} if s.max() > 1" and "will stop" in said[13]
    assert said[14] == "display n[0] * 2: 4.0" and said[15].endswith("display n[0] * 2: 4.0")
    assert f":{at + 2} in f" in said[16] and "return = float32[]  12" in said[18]
    assert said[19].startswith("removed no breakpoint; these are: ") and "def f" in said[20]
    assert said[21] == "expected an expression, such as: p h.max()"
    for word in ("exit", "quit", "q"):
        out, session = io.StringIO(), fnx.debug.step(f)(jnp.ones(3))
        step_prompt.interact(session, stdin=io.StringIO(f"{word}\nnosuch\n"), stdout=out)
        assert "nosuch" not in out.getvalue()


def test_a_breakpoint_for_one_stop_is_removed() -> None:
    def f(x: Any) -> Any:
        for _ in range(3):
            x = x + 1
        return x
    session = fnx.debug.step(f)(1.0)
    session.break_at(line_of(f, 2), once=True)
    assert session.run() is not None and not session.breakpoints and session.run() is None
    said = say(fnx.debug.step(f)(1.0), f"until {line_of(f, 3)}", "until 9999")
    assert "return x" in said[0] and "expected a line that it executes" in said[1]


def test_step_is_told_what_to_write() -> None:
    def f(x: Any) -> Any:
        return x * 2
    for call, cure in ((lambda: fnx.debug.step(f(jnp.ones(2))), "write debug.step(f)(x)"),
                       (lambda: fnx.debug.step(f, 1.0), "write step(f)(x)"),  # type: ignore
                       (lambda: fnx.profile(f, 1.0), r"write profile(f)(x)")):  # type: ignore
        with pytest.raises(fnx.errors.ArgumentError) as caught:
            call()
        assert cure in str(caught.value) and "test_step_prompt.py" in str(caught.value)
