"""Equal graphs are the same nodes, and have the lines of all functions that made them: a program
names those of its own function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fnx
import fnx.numpy as jnp
from fnx.backends.disk import background_writer
from fnx.core.ir import accessors, build, dtypes
from fnx.core.ir.uop import toposort
from fnx.core.support.config import override
from fnx.core.support.errors import NotFiniteError, own_locations
from fnx.transforms.dispatch.executable import Executable
from fnx.transforms.page.page_data import PageData

SOURCE = """
def helper(w, x):
    return jnp.sort(jnp.cos(x) @ w)

def first(w, x):
    y = jnp.sort(jnp.tanh(x) @ w)
    return (y ** 2).sum()

def second(w, x):
    y = jnp.sort(jnp.tanh(x) @ w)
    return (y ** 3).sum()

third = lambda w, x: (jnp.sort(jnp.tanh(x) @ w) ** 4).sum()

def fourth(w, x):
    return (helper(w, x) ** 5).sum()

def fifth(w, x):
    return (helper(w, x) ** 6).sum()

def sixth(w, x):
    return jnp.log(jnp.tanh(x) @ w - 99.0)

def seventh(w, x):
    return jnp.log(jnp.tanh(x) @ w - 99.0) * 2

def eighth(w, x):
    def step(h, row):
        return jnp.sort(jnp.tanh(h) @ w) + row, h.max()
    return lax.scan(step, x[0], x)

def ninth(w, x):
    def step(h, row):
        return jnp.sort(jnp.tanh(h) @ w) + row, h.max() * 2
    return lax.scan(step, x[0], x)
"""
OWN = {"first": {6, 7}, "second": {10, 11}, "third": {13}, "fourth": {3, 16}, "fifth": {3, 19},
       "eighth": {29, 30}, "ninth": {34, 35}}
AT, ELSEWHERE = ("m.py", 4), ("other.py", 8)
W, X = jnp.ones((13, 13)), jnp.ones((7, 13))


def define(file: str, source: str = SOURCE) -> dict[str, Any]:
    """Run a file, or a cell of a notebook."""
    names = {"jnp": jnp, "lax": fnx.lax}
    exec(compile(source, file, "exec"), names)
    return names


def lines(program: Any) -> set[tuple[str, int]]:
    """Return the lines of all commands of a program, without those of this file."""
    return {loc for run in accessors.all_execs(program) for loc in run.arg.locs
            if loc[0] != __file__}


def batched(f: Any) -> Any:
    return lambda w, x: fnx.vmap(f, (None, 0))(w, x[None])


@pytest.mark.cases(4)
@pytest.mark.parametrize("transform", [lambda f: f, fnx.grad, batched, fnx.jit, fnx.checkpoint],
                         ids=["plain", "grad", "vmap", "jit", "checkpoint"])
def test_a_program_has_the_lines_of_its_function(transform: Any) -> None:
    cells = [(file, define(file)) for file in ("/x/m.py", "<ipython-input-3-x>")]
    for name in ("first", "second", "third", "fourth", "fifth"):
        for file, cell in cells:
            f = fnx.jit(transform(cell[name]))
            found = lines(f.lower(W, X).commands)
            assert found and found <= {(file, line) for line in OWN[name]}


def test_bodies_of_loops_have_the_lines_of_their_function() -> None:
    for file in ("/x/m.py", "<ipython-input-4-x>"):
        names = define(file)
        names["tenth"] = fnx.grad(lambda w, x, f=names["ninth"]: (f(w, x)[0] ** 2).sum())
        for name in ("eighth", "ninth", "tenth"):
            found = lines(fnx.jit(names[name]).lower(W, X).commands)
            assert found and found <= {(file, line) for line in OWN.get(name, OWN["ninth"])}


def test_profiles_and_errors_name_the_same_line() -> None:
    names = define("/x/m.py")
    for name, line in (("first", 6), ("second", 10)):
        f = fnx.jit(names[name])
        seen = fnx.profile(f)(W, X)
        assert {row.line for row in seen.kernels} <= {f"m.py:{line}", f"m.py:{line + 1}"}
        assert f"m.py:{line}" in str(f.memory(W, X))
        lowering = f.lower(W, X)
        assert lowering.lines == {("/x/m.py", line), ("/x/m.py", line + 1)}
        rows = [row for file in PageData(name, lowering).source for row in file["lines"]]
        assert {row["number"] for row in rows if row["nodes"]} == {line, line + 1}
    with override(check="nan"):
        for name, line in (("sixth", 22), ("seventh", 25)):
            with pytest.raises(NotFiniteError, match=f"/x/m.py:{line}: {name}: "):
                fnx.jit(names[name])(W, X)


def test_a_stored_program_has_the_lines_of_the_function_that_runs(tmp_path: Path) -> None:
    def program(f: Any) -> Executable:
        jitted = fnx.jit(f)
        jitted(W, X)
        background_writer.wait()
        entry, = jitted._traces.values()
        assert entry.value.executable is not None
        return entry.value.executable
    moved = SOURCE.replace("\ndef second", "\n\n\ndef second")
    with override(cache_dir=str(tmp_path), check_spec=False):
        for name in ("first", "second", "ninth"):
            made = program(define("/x/m.py")[name])
            for file, source, by in (("/x/moved.py", moved, 2 * (name != "first")),
                                     ("<ipython-input-5-x>", SOURCE, 0)):
                again = program(define(file, source)[name])
                assert type(made.block) is not type(again.block), "it is from disk"
                assert lines(again.block.commands) == {
                    (file, line + by) for _, line in lines(made.block.commands)}


def test_lines_that_are_not_known_are_all_shown() -> None:
    locs = [("m.py", 4), ("m.py", 8)]
    assert own_locations(locs, {("m.py", 8)}) == (("m.py", 8),)
    assert own_locations(locs, ()) == own_locations(locs, {("m.py", 5)}) == tuple(locs)


def test_a_node_of_another_program_has_a_line_of_those_around_it() -> None:
    x = build.param(0, dtypes.float32, (3,))
    own = build.neg(x)
    foreign = build.mul(own, own)
    last = build.add(foreign, foreign)
    own.locs, foreign.locs, last.locs = ((AT,), (ELSEWHERE,), (ELSEWHERE,))
    nodes = toposort([last])
    assert accessors.lines_of_nodes(nodes, {AT}) == dict.fromkeys(nodes, (AT,))
    own.locs, last.locs = (ELSEWHERE,), (AT, ELSEWHERE)
    assert accessors.lines_of_nodes(nodes, {AT}) == dict.fromkeys(nodes, (AT,))
    assert accessors.lines_of_nodes(nodes, {("m.py", 5)}) == dict.fromkeys(nodes, ())


def dense(x, w, b):
    h = x @ w
    return jnp.tanh(h + b) * 2


def distances(x):
    total = jnp.sum((x[:, None] - x[None]) ** 2, -1)
    half = total / 2
    return half + 1


def elementwise(x):
    y = x + 1
    return y * 2


@pytest.mark.parametrize("f, args, lines", [
    (dense, (jnp.ones((16, 64)), jnp.ones((64, 32)), jnp.ones(32)), (1, 2)),
    (distances, (jnp.ones((30, 20)),), (1, 3)),
    (elementwise, (jnp.ones(100),), (2,))])
def test_a_fused_kernel_has_its_heaviest_line_first(f: Any, args: Any, lines: Any) -> None:
    commands = fnx.jit(f).lower(*args).commands
    execs = accessors.all_execs(commands)
    assert [line - f.__code__.co_firstlineno for _, line, *_ in execs[-1].arg.locs] == list(lines)
