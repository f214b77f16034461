"""``debug.step``: lines of generated programs give the values of the interpreter."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.levels import interp
from fnx.transforms.abstract_eval import trace_closed
from tests.helpers import assert_same
from tests.transforms.inspect.step_programs import source

ARGS = (np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3),
        np.linspace(2, 0.5, 9, dtype=np.float32).reshape(3, 3))


def interpret(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return the results of a function, computed as one graph by the interpreter."""
    closed, _, _ = trace_closed(f, args, "test")
    outs = interp.apply(closed.function, [*map(np.asarray, tree.leaves(args)),
                                          *interp.evaluate(closed.captures, {})])
    return closed.out_tree.unflatten(outs)


def load(text: str, path: Path) -> dict[str, Any]:
    path.write_text(text)
    linecache.checkcache(str(path))
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)
    return names


PROGRAMS = 200


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_lines_give_the_values_of_the_interpreter(seed: int, tmp_path: Path) -> None:
    text, variables = source(seed)
    program = load(text, tmp_path / "program.py")
    f, want = program["f"], interpret(program["all_values"], ARGS)
    for transformed in (f, fnx.jit(f), fnx.value_and_grad(f)):
        session = fnx.debug.step(transformed)(*ARGS)
        steps = [step for step in session if step.function == "f" and not step.kind]
        seen = {name: value for step in steps for name, value in step.values.items()}
        for name in variables:
            assert_same([seen[name]], [want[name]])
        assert_same([np.asarray(tree.leaves(session.result)[0])], [interpret(f, ARGS)])
        lines = [step.line for step in steps]
        assert lines == sorted(lines) and not any(step.loops for step in steps)
        once = [n for n in lines if " * i + 1" not in text.splitlines()[n - 1]]
        assert len(set(once)) == len(once)
    rows = np.stack([ARGS[0]] * 2), np.stack([ARGS[1]] * 2)
    for step in fnx.debug.step(fnx.vmap(f))(*rows):
        for name, value in step.values.items() if step.function == "f" else ():
            if name in want:
                each = np.broadcast_to(value, (2, 3, 3))  # the same in both, if it needs no input
                np.testing.assert_allclose(each[0], want[name], rtol=1e-5, atol=1e-5)


@pytest.mark.cases(4)
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_derivatives_of_lines_are_those_of_the_interpreter(seed: int, tmp_path: Path) -> None:
    text, variables = source(seed)
    program = load(text, tmp_path / "program.py")
    nodes = trace_closed(program["all_values"], ARGS, "test")[0].function.src
    alone = {name for name, node in zip(variables, nodes) if nodes.count(node) == 1}
    zeros = {name: jnp.zeros((3, 3)) for name in variables}
    of_x, of_y, want = interpret(fnx.grad(program["shifted"], (0, 1, 2)), (*ARGS, zeros))
    want |= {"x": of_x, "y": of_y}
    seen: dict[str, Any] = {}
    named: list[Any] = []
    for step in fnx.debug.step(fnx.grad(program["f"], (0, 1)))(*ARGS):
        derivatives = {name.removeprefix("derivative of "): value
                       for name, value in step.values.items() if name.startswith("derivative of ")}
        named += derivatives.values()
        if step.function == "f" and step.kind:
            seen |= derivatives
    assert seen.keys() <= want.keys()
    for name in seen.keys() & {"x", "y", *alone}:
        scale = np.abs(want[name]).max()
        np.testing.assert_allclose(seen[name], want[name], rtol=1e-5, atol=1e-5 * scale)
    for name in ("x", "y"):  # in f, or in a function that it calls
        assert len(np.unique(want[name])) == 1 or any(
            np.shape(value) == (3, 3) and np.allclose(value, want[name], 1e-5, 1e-5)
            for value in named), name


def test_programs_differ_and_have_all_kinds_of_lines() -> None:
    texts = {source(seed)[0] for seed in range(PROGRAMS)}
    assert len(texts) == PROGRAMS
    for words in ("lax.scan", "lax.fori_loop", "lax.while_loop", "lax.cond", "fnx.grad", "fnx.jvp",
                  "fnx.vmap", "helper(", "jitted("):
        assert sum(words in text.split("def f(")[1] for text in texts) >= 20, words
