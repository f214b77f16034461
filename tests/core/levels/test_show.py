"""Printing: source rebuilds the identical node at every level; text and drawings are complete."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.uop import UOp, current_loc, toposort
from fnx.core.levels.show import dot, from_python, pretty, to_python
from fnx.core.support.errors import ArgumentError
from tests.graphs import Graph, graphs
from tests.kernels import commands_of, kernel_of, scaled

F = dtypes.float32


@settings(max_examples=150)
@given(graphs())
def test_source_rebuilds_tensor_graphs(graph: Graph) -> None:
    assert from_python(to_python(graph.fn)) is graph.fn


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_source_rebuilds_kernels_and_commands(seed: int) -> None:
    for node in (kernel_of(seed), commands_of(seed), scaled()):
        assert from_python(to_python(node)) is node


def test_source_of_a_schedule_vectors_and_combines() -> None:
    place = build.index_into(build.ref(0, F, [4]), build.range_(4, 0))
    store = build.store(place, build.load(place), None, ops.MAX)
    lanes = UOp(ops.CONST, F.vec(8), (), 0)
    for node in (store, lanes, build.const(-0.0, F), build.const(float("nan"), F)):
        assert from_python(to_python(node)) is node


def test_memory_has_no_source() -> None:
    with pytest.raises(ArgumentError, match="without BUFFERs"):
        to_python(UOp(ops.BUFFER, F, (), op_args.Buffer(object(), (3,))))


@settings(max_examples=60)
@given(graphs(), st.integers(0, 1000))
def test_text_and_drawings_are_complete(graph: Graph, seed: int) -> None:
    for root in (graph.fn, kernel_of(seed), commands_of(seed)):
        nodes = toposort([root], into_functions=True)
        drawn = dot(root)
        assert drawn.count("[label=") == len(nodes) + sum(len(n.src) for n in nodes)
        text = pretty(root)
        for scope in (n for n in nodes if n.op in (ops.FUNCTION, ops.KERNEL)):
            kind = "function" if scope.op is ops.FUNCTION else "kernel"
            assert f"{kind} {scope.arg.name}" in text
            assert text.count("return") == sum(n.op is ops.FUNCTION for n in nodes)


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_names_are_defined_before_they_are_used(seed: int) -> None:
    """Each name of a kernel is defined in a loop that encloses its uses."""
    known: list[tuple[int, str]] = []
    for line in pretty(kernel_of(seed)).splitlines()[1:]:
        if line.startswith("    ") and ":" in line and "=" not in line:
            continue  # a buffer in the header
        depth = len(line) - len(line.lstrip())
        known = [(d, name) for d, name in known if d <= depth]
        target, _, value = line.partition(" = ")
        used = re.findall(r"\b(?:[tps]\d+|local\d+)\b", value or line)
        assert set(used) <= {name for _, name in known}, line
        if value:
            known.append((depth, target.strip().partition("[")[0]))


def rows(kind: str = "SEQ") -> UOp:
    """o[m] = sum(k < 4: x[m, k])"""
    i, k = build.range_(3, 0, kind, "m"), build.range_(4, 1)
    x, o = build.ref(0, F, (3, 4), "x"), build.ref(1, F, (3,), "o")
    return build.kernel([build.store(build.index_into(o, i), build.reduce_ranges(
        build.load(build.index_into(x, i, k)), ops.ADD, [k]))], "rows", (0, 1))


def test_text_of_a_kernel() -> None:
    assert pretty(rows("PAR")) == """\
kernel rows(x: float32[3, 4], o: float32[3])
  for m in par(3):
    o[m] = sum(k < 4: x[m, k])"""


def test_a_fold_with_names_inside_is_a_loop() -> None:
    i, k = build.range_(3, 0, name="i"), build.range_(4, 1, name="k")
    x, o = build.ref(0, F, (3, 4), "x"), build.ref(1, F, (3,), "o")
    e = build.exp(build.load(build.index_into(x, i, k)))
    total = build.reduce_ranges(build.mul(e, e), ops.MAX, [k])
    inside = build.lt(i, build.index_const(2))
    node = build.kernel([build.store(build.index_into(o, i), total, inside, ops.MIN)], "f", (0, 1))
    assert pretty(node) == """\
kernel f(x: float32[3, 4], o: float32[3])
  for i in seq(3):
    s0 = -inf
    for k in seq(4):
      t0 = exp(x[i, k])
      s0 = max(s0, t0 * t0)
    if i < 2: o[i] = min(o[i], s0)"""


def test_movements_are_in_the_index() -> None:
    x = build.param(0, F, (4, 6))
    y = build.flip(build.permute(build.reshape(x, (4, 2, 3)), (2, 0, 1)), (1,))
    y = build.pad(build.shrink(y, ((1, 3), (0, 4), (0, 2))), ((0, 0), (1, 0), (0, 0)), 7)
    assert pretty(build.function([y], 1, "f"), locs=False).splitlines()[1].split("  #")[0] \
        .strip() == "t0[i, j, k] = x0[4 - j, 3*k + i + 1] if 1 <= j < 5 else 7"


def test_inputs_may_be_named() -> None:
    x, y = (build.param(i, F, (3,)) for i in range(2))
    text = pretty(build.function([build.add(x, y)], 2, "f"), inputs=["w", "b"])
    assert text.splitlines()[0] == "function f(w: float32[3], b: float32[3])"
    assert "t0[i] = w[i] + b[i]" in text


def test_a_shared_function_is_printed_once_and_names_stay_apart() -> None:
    x = build.param(0, F, (3,))
    f, g = (build.function([op(x)], 1, "f") for op in (build.exp, build.neg))
    calls = [build_calls.call(fn, [x])[0] for fn in (f, f, g)]
    text = pretty(build.function([build.add(build.add(calls[0], calls[1]), calls[2])], 1, "main"))
    assert text.count("function f(") == 1 and text.count("function f_2(") == 1
    assert "= f_2(x0)" in text and text.index("function main") > text.index("function f_2")


def test_text_with_lines_of_the_user() -> None:
    x = build.param(0, F, (19,))
    try:
        current_loc.loc = ("/home/a/user.py", 5)
        node = build.exp(x)
    finally:
        current_loc.loc = None
    assert pretty(node).endswith("float32[19]  user.py:5")
    assert "user.py" in pretty(node, locs={("/home/a/user.py", 5)})
    assert "user.py" not in pretty(node, locs=False)
    assert "user.py" not in pretty(node, locs={("other.py", 5)})
