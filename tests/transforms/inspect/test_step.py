"""``debug.step``: the values of lines are those of the interpreter, in the order of the lines."""

from __future__ import annotations

import io
import linecache
import os
import sys
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir.uop import interned_nodes
from fnx.core.support.line_visits import LineVisit, recording
from fnx.transforms.inspect import step_prompt, step_values
from fnx.transforms.inspect.step_session import StepSession
from tests.helpers import assert_same


def double(t: Any) -> Any:
    u = t * 2
    return u + 1


def loss(w: Any, x: Any) -> Any:
    h = double(x @ w)

    def cell(c: Any, row: Any) -> Any:
        c = c * 0.5 + row.sum()
        return c, c
    last, cs = lax.scan(cell, 0.0, h)
    for power in (1, 2):
        last = last ** power
    return jnp.log(last - 100) + cs.mean()


W, X = np.ones((3, 2), np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)


def lines_of(session: StepSession) -> list[tuple[str, str]]:
    """Return (function, source line) of all steps."""
    return [(s.function, linecache.getline(s.file, s.line).strip()) for s in session]


def test_lines_come_in_the_order_of_execution() -> None:
    lines = lines_of(fnx.debug.step(loss)(W, X))
    assert lines[:3] == [("double", "u = t * 2"), ("double", "return u + 1"),
                         ("loss", "h = double(x @ w)")]
    assert lines[3:11] == [("cell", "c = c * 0.5 + row.sum()"), ("cell", "return c, c")] * 4
    assert lines[11:] == [("loss", "last, cs = lax.scan(cell, 0.0, h)"),
                          ("loss", "last = last ** power"), ("loss", "last = last ** power"),
                          ("loss", "return jnp.log(last - 100) + cs.mean()")]


def test_a_fori_loop_with_a_traced_bound_is_entered() -> None:
    def body(i: Any, x: Any) -> Any:
        return x * 2 + i

    def f(n: Any, x: Any) -> Any:
        return lax.fori_loop(0, n, body, x)
    steps = list(fnx.debug.step(f)(3, 1.0))
    inside = [(s.loops[-1].number, float(s.values["return"]))
              for s in steps if s.function == "body"]
    assert inside == [(0, 2.0), (1, 5.0), (2, 12.0)]


def test_iterations_and_arguments_have_names() -> None:
    session = fnx.debug.step(loss)(W, X)
    session.run("cell", lambda step: step.loops[-1].number == 2)
    step = session.current
    assert step is not None
    assert step.loops[-1].length == 4 and step.loops[-1].loop == "scan"
    assert step.values.keys() == {"c", "row"}
    h = X @ W * 2 + 1
    np.testing.assert_allclose(step.values["row"], h[2])
    np.testing.assert_allclose(step.values["c"], (h[0].sum() * 0.5 + h[1].sum()) * 0.5 + h[2].sum())
    assert "iteration 2 of 4 of scan" in repr(step)


def test_variables_are_those_of_the_iteration() -> None:
    for f in (loss, fnx.grad(loss), fnx.value_and_grad(fnx.jit(loss))):
        session, before, forward = fnx.debug.step(f)(W, X), None, dict[int, Any]()
        for step in session:
            if not step.loops:
                continue
            number, known = step.loops[-1].number, session.variables
            assert number is not None
            if before != (before := (number, step.kind)):
                expected = forward[number] if step.kind else {}
                assert known.keys() == expected.keys() | step.values.keys()
            if not step.kind:
                forward[number] = known
            assert_same([known[name] for name in forward[number]], [*forward[number].values()])
        assert [*forward] == [0, 1, 2, 3]


def test_variables_of_callers_are_those_of_the_iteration() -> None:
    def f(x: Any) -> Any:
        def body(c: Any, t: Any) -> Any:
            half = 0.5  # a line without a value in the graph
            u = double(x * half)
            return c + u, None
        return lax.fori_loop(0, 3, lambda i, c: body(c, i)[0], x)
    session = fnx.debug.step(f)(1.0)
    while (step := session.run("double")) is not None:
        assert step.loops and "u" not in session.frames[-2][1] and "u" not in session.names(1)


def test_values_of_forward_lines_are_those_of_one_call_or_none() -> None:
    inner = fnx.jit(lambda t: jnp.sin(t) * jnp.sin(t + 1))

    def f(x: Any) -> Any:
        def body(c: Any, t: Any) -> Any:
            return inner(inner(c) * t), None
        return lax.scan(body, x, jnp.arange(3.0))[0]
    out, session = io.StringIO(), fnx.debug.step(fnx.value_and_grad(f))(0.5)
    step = session.run("<lambda>", lambda step: step.kind)
    assert step is not None and "t" not in session.variables
    step_prompt.interact(session, stdin=io.StringIO("p t\n"), stdout=out)
    assert "t has no value here: its function runs several times" in out.getvalue()


def test_few_values_of_forward_lines_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_values, "MAX_KEPT", 50)
    session = fnx.debug.step(fnx.value_and_grad(loss))(W, X)
    numbers = [step.loops[-1].number for step in session
               if step.kind and step.loops and "c" in session.variables]
    assert numbers and 0 not in numbers


def test_next_steps_over_and_out_steps_back() -> None:
    session = fnx.debug.step(loss)(W, X)
    session.step()
    outer = session.out()
    assert outer is not None and outer.function == "loss" and "h" in outer.values
    after = session.next()
    assert after is not None and after.values.keys() == {"last", "cs"}
    assert session.variables.keys() >= {"h", "w", "x", "last", "cs"}
    power = session.next()
    assert power is not None and power.constants == {"power": 1}


def test_breakpoints() -> None:
    session = fnx.debug.step(loss)(W, X)
    session.break_at("cell", "c > 50")
    step = session.run()
    assert step is not None and step.values["c"] > 50 and step.loops[-1].number > 0
    session.breakpoints.clear()
    line = loss.__code__.co_firstlineno + 9
    step = session.run(line)
    assert step is not None and step.line == line
    step = session.run(f"test_step.py:{line}")
    assert session.done and step is None
    with pytest.raises(fnx.errors.ArgumentError, match="expected an expression after 'if'"):
        session.break_at("", "c >")


def test_first_nan() -> None:
    step = fnx.debug.step(lambda x: jnp.log(double(x)) * 2)(np.float32([1, -2])).first_nan()
    assert step is not None and "jnp.log" in linecache.getline(step.file, step.line)
    session = fnx.debug.step(fnx.grad(lambda p: (p * jnp.sqrt(p * 0)).sum()))(np.ones(2))
    step = session.first_nan()
    assert step is not None and step.notes == (
        "inf from div at [0] of 1 and 0 in the derivative of sqrt in this line; "
        "it became NaN in mul of 0 and inf",)
    assert session.first_nan() is None and "derivative after step" in repr(session)


def test_derivatives_of_lines_follow_in_reverse() -> None:
    session = fnx.debug.step(fnx.grad(loss))(W, X)
    steps = list(session)
    derivatives = [s for s in steps if s.kind == "derivative"]
    assert len(derivatives) >= 8 and steps[-1] is derivatives[-1]
    backward = [s.loops[-1].number for s in derivatives if s.loops]
    assert backward == sorted(backward, reverse=True)
    of_u = [s.values["derivative of u"] for s in steps if "derivative of u" in s.values]
    np.testing.assert_allclose(of_u[0].shape, (4, 2))
    np.testing.assert_allclose(np.asarray(session.result), np.asarray(fnx.grad(loss)(W, X)),
                               rtol=1e-5)


def test_a_function_that_was_compiled_before_has_all_lines() -> None:
    f = fnx.jit(fnx.grad(loss))
    before = lines_of(fnx.debug.step(f)(W, X))
    f(W, X)
    assert lines_of(fnx.debug.step(f)(W, X)) == before


def test_effects_happen_once_and_in_order() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        fnx.debug.callback(lambda v: seen.append(float(v)), x)
        y = x * 2
        fnx.debug.callback(lambda v: seen.append(float(v)), y)
        return y
    session = fnx.debug.step(f)(1.0)
    assert session.step() is not None and seen == [1.0]
    assert float(session.result) == 2.0 and seen == [1.0, 2.0]


def test_nodes_keep_no_record_of_a_session() -> None:
    tracer = sys.gettrace()
    list(fnx.debug.step(fnx.grad(loss))(W, X))
    with pytest.raises(ZeroDivisionError):
        fnx.debug.step(lambda x: jnp.sin(x) / (1 // 0))(1.0)
    assert recording.recorder is None and sys.gettrace() is tracer
    assert not any(type(loc) is LineVisit for n in interned_nodes() for loc in n.locs)


def test_stepping_inside_of_stepping_is_refused() -> None:
    with pytest.raises(fnx.errors.ArgumentError, match="expected a call outside of all transforms"):
        fnx.debug.step(lambda x: fnx.debug.step(jnp.sin)(x).result)(1.0)


def test_a_function_without_lines_says_so() -> None:
    session = fnx.debug.step(jnp.sin)(1.0)
    assert "none of its lines is in a file of yours" in repr(session)
    assert session.step() is None and float(session.result) == pytest.approx(np.sin(1))


def test_functions_without_source_have_values() -> None:
    names: dict[str, Any] = {"jnp": jnp, "__name__": "__main__"}
    exec("def f(x):\n    y = jnp.sin(x)\n    return y * 2", names)
    step = fnx.debug.step(names["f"])(1.0).step()
    assert step is not None and "y" in step.values and "(no source)" in repr(step)


def test_static_arguments() -> None:
    def f(x: Any, n: int) -> Any:
        for _ in range(n):
            x = x * 2
        return x
    assert float(fnx.debug.step(f, static_argnums=1)(1.0, 3).result) == 8
    assert float(fnx.debug.step(fnx.jit(f, static_argnums=1), static_argnums=1)(1.0, 3).result) == 8


def test_html_escapes_and_draws_histograms() -> None:
    def f(x: Any) -> Any:
        y = x * 2 if x.ndim < 3 else x
        return y
    session = fnx.debug.step(f)(np.arange(50.0))
    assert "<pre>" in session._repr_html_()
    page = session.step()._repr_html_()  # type: ignore[union-attr]
    assert "x.ndim &lt; 3" in page and page.count("<rect") == 2 * 24 and "<b>" in page
    nothing = np.full(50, np.nan)
    assert "<svg" not in fnx.debug.step(f)(nothing).step()._repr_html_()  # type: ignore[union-attr]


def prompt(commands: str) -> str:
    out = io.StringIO()
    step_prompt.interact(fnx.debug.step(loss)(W, X), stdin=io.StringIO(commands), stdout=out)
    return out.getvalue()


def test_prompt() -> None:
    said = prompt("s\no\np h.shape\nh[0]\np 1 +\nb 3 if\nb cell if c > 50\nb\nc\nw\nv\nnan\n")
    for text in ("u = t * 2", "(4, 2)", "[7. 7.]", "SyntaxError", "will stop at cell if c > 50",
                 "of scan", "c = float32[]", "loss: returned after"):
        assert text in said, (text, said)
    assert "expected an expression after 'if'" in said
    assert "(step) help step\ns(tep): go to the next line" in prompt("help step\nq\n")
    said = prompt("help\nhelp nosuch\n")
    assert all(f"{text}: " in said for text in ("r(un) or c(ontinue)", "l(ist)", "q(uit)"))
    assert "nosuch is no command; these are: step" in said


def test_python_numbers_are_variables() -> None:
    def repeat(x: Any) -> Any:
        for i in range(3):
            half = 0.5
            x = x * half + i
        return x
    out, session = io.StringIO(), fnx.debug.step(repeat)(jnp.ones(2))
    at = repeat.__code__.co_firstlineno + 3
    step_prompt.interact(session, stdin=io.StringIO(
        f"b {at} if i == 2\nr\np 10 * i\np half\nv\n"), stdout=out)
    said = out.getvalue()
    assert "(step) p 10 * i\n20\n(step) p half\n0.5\n" in said and "   i = 2\n" in said


def test_a_condition_that_raises_stops_and_says_so() -> None:
    session = fnx.debug.step(loss)(W, X)
    step = session.run("cell", "c.maxx() > 1")
    assert step is not None and step.function == "cell" and not session.done
    assert "AttributeError: 'numpy.ndarray' object has no attribute 'maxx'" in repr(step)
    step = session.run("", "last > 1e9 and last.nosuch")  # no error where last has no value
    assert step is None and "Error" not in repr(session)
    session = fnx.debug.step(fnx.grad(unused))(1.0)
    assert session.run("", "extra > 1") is None and "'extra > 1': NameError" in repr(session)


def unused(x: Any) -> Any:
    extra = jnp.exp(x)
    return jnp.cos(x) if extra.ndim == 0 else extra


def power(a: Any, v: Any) -> Any:
    def body(s: Any) -> Any:
        v, i = s
        return v @ a, i + 1  # its transpose is computed before the loop
    return lax.while_loop(lambda s: (s[1] < 3) & (jnp.sum(s[0] @ a) < 1e9), body, (v, 0))[0]


def test_a_condition_on_an_iteration_holds_in_loops_only() -> None:
    for condition in "step.loops[-1].number == 2", lambda s: s.loops[-1].number == 2:
        session = fnx.debug.step(power)(np.eye(2) * 2, np.ones(2))
        session.break_at("body", condition)
        step = session.run()
        assert step is not None and step.loops[-1].number == 2 and not step.notes
    session = fnx.debug.step(double)(X)
    step = session.run(condition=lambda s: s.values["nosuch"])
    assert step is not None and step.notes == ("condition '<lambda>': KeyError: 'nosuch'",)

    def walk(x: Any) -> Any:
        y = x * 2
        step = y + 1  # not the step of the session
        return step * y
    stopped = fnx.debug.step(walk)(X).run("walk", "step.max() > 0")
    assert stopped is not None and "step" in stopped.values and not stopped.notes
    assert session.run(condition="step.loops[0].number == 1") is None
    session.break_at("", "step.loops[0].number == 1")
    assert "expected a line in a loop, got one in none" in repr(session)


def test_a_condition_with_a_name_that_no_line_knows_is_refused() -> None:
    session = fnx.debug.step(loss)(W, X)
    for at, condition in (("cell", "nosuch > 1"), ("double", "last > 1"),
                          ("cell", "[iteration for c in (1, 2)]")):
        with pytest.raises(fnx.errors.ArgumentError, match="no line there knows the name"):
            session.break_at(at, condition)
    for condition in ("c > 1", "any(v > 1 for v in c)", "step.number > 2", "np.abs(W).max() > 1",
                      "(k := c) > k", "(lambda a: a > 1)(row).any()", "last > 1"):
        session.break_at("", condition)
    assert "no line there knows the name iteration" in prompt("b cell if iteration == 2\n")


def test_derivatives_without_a_value_say_so() -> None:
    out, session = io.StringIO(), fnx.debug.step(fnx.grad(loss))(W, X)
    session.run("cell")
    step_prompt.interact(session, stdin=io.StringIO(
        "p derivative of c\np derivative of row[0]\ntangent of c\np derivative of nosuch\n"
        "p part of the derivative (add)\np return[5]\nnosuch\nu\np derivative of last\n"),
        stdout=out)
    said = out.getvalue()
    for name in ("derivative of c", "derivative of row[0]", "tangent of c", "return[5]",
                 "part of the derivative (add)", "derivative of last"):
        assert f"{name} has no value here: " in said, (name, said)
    assert "nosuch is no variable of this function; vars lists these" in said
    assert "SyntaxError" not in said and "NameError: name 'nosuch'" in said


def test_containers_with_arrays_that_have_no_value_are_short() -> None:
    def f(p: Any) -> Any:
        q = {"a": jnp.sin(p["a"]), "b": jnp.cos(p["b"])}
        return q["a"] * 2
    out, session = io.StringIO(), fnx.debug.step(fnx.grad(f))({"a": 1.0, "b": 2.0})
    session.run("", lambda step: step.kind)
    step_prompt.interact(session, stdin=io.StringIO("v\np q\n"), stdout=out)
    assert "'b': (no value)}" in out.getvalue() and "..." not in out.getvalue()


def newton(a: Any) -> Any:
    def body(r: Any) -> Any:
        return 0.5 * (r + a / r)
    return lax.while_loop(lambda r: jnp.abs(r * r - a) > 1e-3, body, a)


def roots(a: Any) -> Any:
    total = 0.0
    for k in range(3):
        r = newton(a + k)
        total = total + r
    return total


@pytest.mark.parametrize("transform", [fnx.grad, fnx.value_and_grad])
def test_forward_passes_of_loops_come_before_all_derivatives(transform: Any) -> None:
    steps = list(fnx.debug.step(transform(roots))(np.float32(2)))
    kinds = [step.kind for step in steps]
    assert kinds == sorted(kinds) and "derivative" in kinds
    of_a = [step.values["a"] for step in steps if step.function == "newton" and "a" in step.values]
    assert_same(of_a, [np.float32(a) for a in (2, 3, 4)])
    lines = [linecache.getline(step.file, step.line) for step in steps if step.function == "newton"]
    assert ["while_loop" in line for line in lines[:6]] == [False, True] * 3


def test_values_are_printed_by_the_names_that_are_shown() -> None:
    out, session = io.StringIO(), fnx.debug.step(fnx.grad(loss))(W, X)
    session.run("double", lambda step: "derivative of u" in step.values)
    commands = "p derivative of u\nv derivative of u\nderivative of u\n"
    step_prompt.interact(session, stdin=io.StringIO(commands), stdout=out)
    assert out.getvalue().count(str(session.variables["derivative of u"])) == 3
    said = prompt("s\np return\n")
    assert str(X @ W * 2 + 1) in said and "SyntaxError" not in said


def centre(x: Any) -> Any:
    mean = x.mean(axis=0)
    return double(x - mean)


def forward(w: Any, x: Any) -> Any:
    x = centre(x)

    def cell(c: Any, row: Any) -> Any:
        c = double(c * row) + w[0]
        return c, c
    return lax.scan(cell, w[0], x)[1] @ jnp.ones(2)


@pytest.mark.parametrize("f", [forward, fnx.jit(forward)])
def test_callers_have_variables_and_lines(f: Any) -> None:
    session, rows = fnx.debug.step(f)(W, X[:, :2]), X[:, :2]
    step = session.run("double")
    assert step is not None and [c.visit.function for c in step.callers] == ["forward", "centre"]
    (_, outer), (_, middle), (_, inner) = session.frames
    assert_same([outer["w"], outer["x"]], [W, rows])  # before x is assigned
    assert_same([middle["x"], middle["mean"]], [rows, rows.mean(axis=0)])
    assert inner.keys() == {"t", "u"}
    assert len(repr(session.frames)) < 400 and f"x: float32{list(rows.shape)}" in repr(middle)
    assert repr(step.callers[0]).startswith("forward (")
    step = session.run("double", lambda step: bool(step.loops) and step.loops[-1].number == 2)
    assert step is not None and [name for name, _ in session.frames] == [
        "forward", "cell", "double"]
    assert_same([session.frames[1][1]["row"]], [((rows - rows.mean(axis=0)) * 2 + 1)[2]])
    assert "x" in session.frames[0][1]


def test_where_shows_the_calls_and_their_iterations() -> None:
    out, session = io.StringIO(), fnx.debug.step(fnx.grad(lambda w, x: forward(w, x).sum()))(
        W, X[:, :2])
    session.run("double", lambda step: bool(step.loops) and step.loops[-1].number == 2)
    line = forward.__code__.co_firstlineno
    step_prompt.interact(session, stdin=io.StringIO("u\nw\n"), stdout=out)
    assert f"test_step.py:{line + 6} in forward\n> " in out.getvalue()
    assert f"test_step.py:{line + 4} in cell, iteration 2 of 4 of scan" in out.getvalue()
    step = session.run("double", lambda step: bool(step.kind))
    assert step is not None and [c.visit.function for c in step.callers] == [
        "<lambda>", "forward", "cell"]


def test_a_function_that_was_traced_before_has_the_lines_that_call_it_now() -> None:
    inner = fnx.jit(centre)

    def f(x: Any) -> Any:
        y = inner(x)
        y = y + inner(inner(y) * 2)
        return double(inner(y))
    session = fnx.debug.step(f)(X)
    first = f.__code__.co_firstlineno
    lines = [s.callers[0].visit.loc[1] for s in session if s.function == "centre"]
    assert lines == [first + at for at in (1, 1, 2, 2, 2, 2, 3, 3)]


def test_storage_only_types() -> None:
    session = fnx.debug.step(lambda x: double(x) + 1)(jnp.ones(3, jnp.bfloat16))
    step = session.run("double", "u > 1")
    assert step is not None and "u = bfloat16[3]  [2. 2. 2.]" in repr(step)
    assert step.notes == () and session.result.dtype == jnp.bfloat16


def test_piped_input_gives_a_session(monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with open(reader) as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        assert isinstance(fnx.debug.step(double)(1.0), StepSession)
    assert "interactive=True opens one" in capsys.readouterr().err


def test_prompt_about_breakpoints_and_callers() -> None:
    said = prompt("b nosuch\nb 99999\nb cell\nc\nu\np h.shape\nd\np c\ncl cell\ncl\nl\nclaer\nc\n")
    for text in ("got nosuch", "got 99999", "its functions, loss, double, cell",
                 "print and vars now look at loss", "(4, 2)", "look at cell", "removed cell",
                 "removed no breakpoint", "def double(t", "neither a command nor a variable",
                 "loss: returned after"):
        assert text in said, (text, said)


def test_derivatives_in_a_loop_are_those_of_finite_differences() -> None:
    def f(x: Any) -> Any:
        def body(c: Any, t: Any) -> Any:
            z = c * t
            return jnp.sin(z), z
        return lax.scan(body, x, jnp.arange(1.0, 4.0))[0]
    x, h = 0.3, 1e-3
    steps = list(fnx.debug.step(fnx.grad(f))(x))
    inside = [s for s in steps if s.loops and s.kind]
    assert [s.loops[-1].number for s in inside] == sorted(
        [s.loops[-1].number for s in inside], reverse=True)
    assert all(s.loops[-1].is_backward for s in inside)
    of_c = [s.values["derivative of c"] for s in inside if "derivative of c" in s.values]
    assert of_c[-1] == pytest.approx(float(f(x + h) - f(x - h)) / (2 * h), rel=1e-2)


def iterate(a: Any, b: Any) -> Any:
    d = a * 2
    r = (d -
         b)

    def going_on(state: Any) -> Any:
        n, x = state
        return (n < 2) & (x < r).all()

    def again(state: Any) -> Any:
        n, x = state
        return n + 1, x * d + r
    n, x = lax.while_loop(going_on, again, (0, b))
    x = lax.fori_loop(0, 2, lambda i, x: x + d * b, x)
    return lax.cond(x.sum() > 0, lambda: d + r, lambda: r)


def total(a: Any, b: Any) -> Any:
    return iterate(a, b).sum()


@pytest.mark.parametrize("f", [iterate, fnx.jit(iterate), fnx.grad(total)])
def test_lines_before_a_loop_run_once(f: Any) -> None:
    steps = list(fnx.debug.step(f)(np.float32([3, 4]), np.float32([1, 2])))
    first = iterate.__code__.co_firstlineno
    outer = [s for s in steps if s.function == "iterate" and not s.kind]
    assert [s.line - first for s in outer[:2]] == [1, 2] and not any(s.loops for s in outer)
    assert len({s.line for s in outer}) == len(outer)
    before = steps.index(outer[1])
    assert all(s.loops or s.number > before for s in steps if s.function in ("going_on", "again"))
    inside = next(s for s in steps if s.function == "again")
    assert_same([inside.values["d"], inside.values["r"]], [np.float32([6, 8]), np.float32([5, 6])])


def product(p: Any, b: Any) -> Any:
    u = jnp.sin(p["a"])
    v = u * b + p["c"]
    w = (v * p["a"]).sum()
    return w


def test_derivatives_of_arguments_are_named_where_they_are_complete() -> None:
    a, b, c = np.float32([0.1, 0.2]), np.float32([1, 2]), np.float32([3, 4])
    steps = list(fnx.debug.step(fnx.grad(product, (0, 1)))({"a": a, "c": c}, b))
    first = product.__code__.co_firstlineno
    named = {(s.line - first, name): x for s in steps if s.kind for name, x in s.values.items()}
    assert_same([named[2, "derivative of b"], named[2, "derivative of p['c']"]],
                [np.sin(a) * a, a])
    np.testing.assert_allclose(named[1, "derivative of p['a']"],
                               np.cos(a) * a * b + np.sin(a) * b + c, rtol=1e-6)
    assert not any(name.startswith("derivative of p") for line, name in named if line > 2)


def test_derivatives_of_derivatives_have_one_name() -> None:
    def f(x: Any) -> Any:
        y = jnp.sin(x)
        return y * y
    steps = list(fnx.debug.step(fnx.grad(fnx.grad(f)))(0.5))
    names = {name for s in steps for name in s.values}
    assert "derivative of derivative of y" in names and "derivative of x" in names
    assert not any(name.count("derivative of") > 2 for name in names)


def test_arguments_under_vmap_have_names() -> None:
    def one(row: Any, by: Any) -> Any:
        s = row.sum()
        return row / s + by

    def f(x: Any, y: Any) -> Any:
        return fnx.vmap(one, (0, None))(x * 2, y)
    rows = np.float32([[1, 3], [2, 2]])
    step = next(s for s in fnx.debug.step(f)(rows, 1.0) if s.function == "one")
    assert_same([step.values["row"], step.values["s"]], [rows * 2, np.float32([8, 8])])
    assert "by" in step.values
