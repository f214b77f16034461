"""Closing: captured values of a function become operands and are never confused."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp, spec
from fnx.core.scope import scope
from fnx.core.support.errors import LeakedTracerError, SpecError
from fnx.core.tracing.trace import close, inline_function, trace, with_gc_disabled

I4 = dtypes.int32
SHAPE = (2,)


class Memory:
    """A handle of a BUFFER."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value, np.int32)

    def view(self, dtype: Any, shape: Any) -> Any:
        return self.value


def buffer(*value: int) -> UOp:
    return UOp(ops.BUFFER, I4, (), op_args.Buffer(Memory(value), SHAPE))


def closed(fn: UOp) -> bool:
    inside = toposort(fn.src, into_functions=True)
    return not any(n.op in (ops.LEAF, ops.BUFFER) for n in inside)


def test_captures_follow_the_parameters_in_first_use_order() -> None:
    a, b = buffer(1, 2), buffer(3, 4)
    with scope.Scope("jit") as outer:
        foreign = outer.leaf(I4, SHAPE)
        with scope.Scope("jit") as inner:
            x, unread = inner.leaf(I4, SHAPE), inner.leaf(I4, SHAPE)
            out = build.sub(build.sub(b, x), build.sub(foreign, build.sub(a, b)))
            fn, captures = close([out], [x, unread], "f")
    assert captures == [b, foreign, a]
    assert fn.arg == op_args.Function("f", 5) and closed(fn)
    spec.check([fn], "tensor")


def test_graphs_under_the_operands_of_a_call_are_closed_too() -> None:
    a = buffer(1, 2)
    body = build.function([build.neg(build.param(0, I4, SHAPE))], 1, "g")
    fn, captures = close([build_calls.call(body, [build.add(a, a)])[0]], [])
    assert captures == [a] and closed(fn)
    assert body in toposort(fn.src)


def test_a_param_of_another_scope_is_refused() -> None:
    with pytest.raises(SpecError):
        close([build.param(0, I4, SHAPE)], [])


def test_a_leaf_of_a_closed_trace_is_refused() -> None:
    with scope.Scope("grad") as opened:
        x = opened.leaf(I4, SHAPE)
    with pytest.raises(LeakedTracerError):
        close([build.neg(x)], [])


def test_equal_functions_of_different_captures_are_one_body() -> None:
    def scaled(by: UOp) -> tuple[UOp, list[UOp]]:
        with scope.Scope("jit") as opened:
            x = opened.leaf(I4, SHAPE)
            return close([build.mul(x, by)], [x])

    a, b = buffer(1, 2), buffer(1, 2)
    (f, fs), (g, gs) = scaled(a), scaled(b)
    assert f is g and fs == [a] and gs == [b]


# ---- random nested functions that capture arrays of one shape ------------------------------------

Body = tuple[list[Any], list[int]]  # lines; indices of the results


@st.composite
def bodies(draw: st.DrawFn, depth: int = 3, values: int = 4) -> Body:
    """Draw lines over all values in scope: a sum of two, or a call of a nested body on two."""
    lines: list[Any] = []
    for _ in range(draw(st.integers(1, 4))):
        pick = st.integers(0, values - 1)
        call = depth > 0 and draw(st.booleans())
        inner = draw(bodies(depth - 1, values + 2)) if call else None
        lines.append((draw(pick), draw(pick), inner))
        values += 1
    return lines, draw(st.lists(st.integers(0, values - 1), min_size=1, max_size=2))


Call = Callable[[Callable[..., list[Any]], list[Any]], list[Any]]


def run(body: Body, values: list[Any], call: Call, mix: Callable[[Any, Any], Any]) -> list[Any]:
    """Run a body whose scope is ``values``: those of the enclosing functions first, then
    arguments."""
    lines, results = body
    values = list(values)
    for i, j, inner in lines:
        if inner is None:
            values.append(mix(values[i], values[j]))
        else:
            def nested(*args: Any, inner: Body = inner, env: list[Any] = values) -> list[Any]:
                return run(inner, [*env, *args], call, mix)
            values.append(call(nested, [values[i], values[j]])[0])
    return [values[i] for i in results]


def by_call(f: Callable[..., list[Any]], args: list[UOp]) -> list[UOp]:
    """Call a nested function as a FUNCTION with captures."""
    with scope.Scope("jit") as opened:
        leaves = [opened.leaf(I4, SHAPE) for _ in args]
        fn, captures = close(f(*leaves), leaves)
    assert closed(fn)
    return list(build_calls.call(fn, [*args, *captures]))


@settings(max_examples=100)
@given(bodies())
def test_captures_of_equal_shape_are_never_mixed_up(body: Body) -> None:
    arrays = [np.array([3 ** i, -(7 ** i)], np.int32) for i in range(4)]
    with np.errstate(over="ignore"):
        expected = run(body, arrays, lambda f, args: f(*args), lambda a, b: 2 * a - 3 * b)

    def mix(a: UOp, b: UOp) -> UOp:
        return build.sub(build.mul(build.const_like(a, 2), a), build.mul(build.const_like(b, 3), b))

    buffers = [UOp(ops.BUFFER, I4, (), op_args.Buffer(Memory(a), SHAPE)) for a in arrays]
    nodes = by_call(lambda *xs: run(body, [*buffers[:2], *xs], by_call, mix), buffers[2:])
    spec.check(nodes, "tensor")
    for got, want in zip(interp.evaluate(nodes, {}), expected):
        np.testing.assert_array_equal(got, want)


# ---- trace ---------------------------------------------------------------------------------------


def test_trace_gives_function_captures_and_structure() -> None:
    outside = Array(buffer(5, 6))

    def f(x: Any, *, scale: Any) -> Any:
        return {"y": Array(build.mul(x["a"]._node, scale._node)),
                "z": (Array(build.add(x["a"]._node, outside._node), weak=True), 3)}

    a = Aval(SHAPE, I4)
    _, in_tree = tree.flatten((({"a": 0},), {"scale": 0}))
    traced = trace(f, [a, a], in_tree, transform="jit", name="f").close()
    assert traced.function.arg == op_args.Function("f", 3)
    assert traced.captures == [outside._node]
    assert str(traced.out_tree) == "PyTreeDef({'y': *, 'z': (*, *)})"
    assert traced.outs == (a, Aval(SHAPE, I4, True), Aval((), I4, True))
    got = interp.apply(traced.function, [np.int32([1, 2]), np.int32([3, 4]), np.int32([5, 6])])
    np.testing.assert_array_equal(got[0], [3, 8])
    np.testing.assert_array_equal(got[1], [6, 8])


def test_values_of_leaves_are_known_while_tracing() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append(interp.evaluate([scope.resolve_leaves(x._node)], {})[0].tolist())
        return x

    _, in_tree = tree.flatten(((0,), {}))
    trace(f, [Aval(SHAPE, I4)], in_tree, values=[buffer(8, 9)], transform="grad", name="f")
    assert seen == [[8, 9]]


def test_inline_is_the_call() -> None:
    x, y = build.param(0, I4, SHAPE), build.param(1, I4, SHAPE)
    fn = build.function([build.sub(x, y), build.neg(x)], 2)
    a, b = buffer(1, 2), buffer(5, 7)
    assert inline_function(fn, [b, a]) == [build.sub(b, a), build.neg(b)]


def test_the_collector_is_on_again_afterwards() -> None:
    assert gc.isenabled()
    assert with_gc_disabled(lambda: (with_gc_disabled(gc.isenabled), gc.isenabled())) == (False,
                                                                                          False)
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        with_gc_disabled(lambda: 1 / 0)
    assert gc.isenabled()
    gc.disable()
    try:
        with_gc_disabled(list)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_is_no_aval_is_passed_on_and_aux_may_be_anything() -> None:
    def f(x: Any, word: str) -> Any:
        return {"y": x}, [word, x, 3]

    _, in_tree = tree.flatten(((0, "word"), {}))
    traced = trace(f, [Aval(SHAPE, I4), "word"], in_tree, transform="vjp", name="f", has_aux=True)
    a, b = buffer(1, 2), buffer(3, 4)
    out, aux = traced.substitute_results([a, b])
    assert out["y"]._node is a and aux[0] == "word" and aux[1]._node is b and aux[2] == 3
    assert len(traced.close().function.src) == 2 and traced.close().captures == []
