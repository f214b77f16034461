"""Printing: source rebuilds the identical node at every level; text and drawings are complete."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core import build, dtypes, ops
from fnx.core.errors import ArgumentError
from fnx.core.levels.show import dot, from_python, pretty, to_python
from fnx.core.uop import UOp, current_site, toposort
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
    place = build.at(build.ref(0, F, [4]), build.range_(4, 0))
    store = build.store(place, build.load(place), None, ops.MAX)
    lanes = UOp(ops.CONST, F.vec(8), (), 0)
    for node in (store, lanes, build.const(-0.0, F), build.const(float("nan"), F)):
        assert from_python(to_python(node)) is node


def test_memory_has_no_source() -> None:
    with pytest.raises(ArgumentError, match="without BUFFERs"):
        to_python(UOp(ops.BUFFER, F, (), ops.Buffer(object(), (3,))))


@settings(max_examples=60)
@given(graphs(), st.integers(0, 1000))
def test_text_and_drawings_have_every_node(graph: Graph, seed: int) -> None:
    for root in (graph.fn, kernel_of(seed), commands_of(seed)):
        nodes = toposort([root], into_functions=True)
        drawn = dot(root)
        assert drawn.count("[label=") == len(nodes) + sum(len(n.src) for n in nodes)
        text = pretty(root)
        for op in {n.op for n in nodes if n.op.kind in ("elementwise", "movement", "reduce")}:
            assert f"# {op} " in text


def test_text_of_a_kernel() -> None:
    i, k = build.range_(3, 0, "PAR", "m"), build.range_(4, 1)
    x, o = build.ref(0, F, (3, 4), "x"), build.ref(1, F, (3,), "o")
    node = build.kernel([build.store(build.at(o, i), build.reduce_ranges(
        build.load(build.at(x, i, k)), ops.ADD, [k]))], "rows", (0, 1))
    text = pretty(node)
    assert text.startswith("kernel rows order=(0, 1)")
    assert "REDUCE(v" in text and "m0:PAR<3" in text and "r1:SEQ<4" in text


def test_a_shared_function_is_printed_once_and_names_stay_apart() -> None:
    x = build.param(0, F, (3,))
    f, g = (build.function([op(x)], 1, "f") for op in (build.exp, build.neg))
    calls = [build.call(fn, [x])[0] for fn in (f, f, g)]
    text = pretty(build.function([build.add(build.add(calls[0], calls[1]), calls[2])], 1, "main"))
    assert text.count("function f(") == 1 and text.count("function f_2(") == 1
    assert "CALL(f_2" in text and text.index("function main") > text.index("function f_2")


def test_text_with_lines_of_the_user() -> None:
    x = build.param(0, F, (19,))
    try:
        current_site.site = ("user.py", 5)
        node = build.exp(x)
    finally:
        current_site.site = None
    assert "at user.py:5" in pretty(node, sites=True)
    assert "user.py" not in pretty(node)


def test_deep_graphs_print() -> None:
    node = build.param(0, F, ())
    for _ in range(20_000):
        node = build.neg(node)
    assert pretty(node).count("\n") == 19_999
    assert from_python(to_python(node)) is node
