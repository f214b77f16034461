"""Open traces: values of leaves, leaks, threads."""

from __future__ import annotations

import threading

import pytest

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp
from fnx.core.scope import scope
from fnx.core.support.errors import LeakedTracerError, TracedValueError

F = dtypes.float32


def number(x: float) -> UOp:
    return build.const(x, F)


def value(node: UOp) -> float:
    return float(interp.evaluate([scope.resolve_leaves(node)], {})[0])


def test_leaves_are_fresh() -> None:
    with scope.Scope("grad") as opened:
        assert opened.leaf(F, (2,)) is not opened.leaf(F, (2,))


def test_a_graph_without_leaves_is_known_as_it_is() -> None:
    x = build.add(number(1), number(2))
    assert scope.resolve_leaves(x) is x and not scope.is_open()


def test_values_go_through_nested_traces() -> None:
    with scope.Scope("outer") as outer:
        x = outer.leaf(F, (), number(2.0))
        with scope.Scope("inner") as inner:
            y = inner.leaf(F, (), build.mul(x, x))
            assert value(build.add(x, y)) == 6.0
            assert scope.is_open()
        assert value(build.mul(x, x)) == 4.0


def test_no_value_names_the_transform_and_the_cure() -> None:
    with scope.Scope("jit of step") as opened:
        x = opened.leaf(F, (2, 3))
        with pytest.raises(TracedValueError, match=r"float32\[2, 3\].*jit of step") as e:
            scope.resolve_leaves(build.exp(x))
        assert "static_argnums" in str(e.value) and "fnx.numpy" in str(e.value)


def test_a_value_that_holds_an_unknown_leaf_is_unknown() -> None:
    with scope.Scope("jit") as jit, scope.Scope("grad") as grad:
        x = grad.leaf(F, (), build.exp(jit.leaf(F, ())))
        with pytest.raises(TracedValueError, match="jit"):
            scope.resolve_leaves(x)


def test_a_leaf_that_outlived_its_trace() -> None:
    with scope.Scope("grad") as opened:
        x = opened.leaf(F, (), number(1.0))
    with pytest.raises(LeakedTracerError, match="outlived"):
        scope.resolve_leaves(build.exp(x))
    with pytest.raises(LeakedTracerError):
        scope.check_leaf_open(x)


def test_closing_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), scope.Scope("grad") as opened:
        opened.leaf(F, (), number(1.0))
        raise ZeroDivisionError
    assert not scope.is_open()


def test_remembered_values_are_not_computed_again() -> None:
    with scope.Scope("grad") as opened:
        x = opened.leaf(F, (), number(1.0))
        y = build.exp(x)
        scope.cache_value(y, number(5.0))
        assert scope.resolve_leaves(build.add(y, y)) is build.add(number(5.0), number(5.0))
    with pytest.raises(LeakedTracerError):
        scope.resolve_leaves(y)


def test_a_value_is_its_own_value() -> None:
    with scope.Scope("grad"):
        x = number(2)
        scope.cache_value(x, x)
        assert scope.resolve_leaves(x) is x


def test_a_loop_that_asks_at_each_step_stays_linear() -> None:
    with scope.Scope("grad") as opened:
        y = opened.leaf(F, (), number(1.0))
        for _ in range(200):
            y = build.elementwise(ops.SIN, y)
            known = scope.resolve_leaves(y)
            assert known.src[0].op is ops.CONST
            scope.cache_value(y, number(float(interp.evaluate([known], {})[0])))


def test_each_thread_has_its_own_traces() -> None:
    seen: list[object] = []

    def other(x: UOp) -> None:
        seen.append(scope.is_open())
        try:
            scope.resolve_leaves(x)
        except LeakedTracerError as e:
            seen.append(e)

    with scope.Scope("grad") as opened:
        thread = threading.Thread(target=other, args=(opened.leaf(F, (), number(1.0)),))
        thread.start()
        thread.join()
    assert seen[0] is False and isinstance(seen[1], LeakedTracerError)
