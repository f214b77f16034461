"""Patterns, rewrite rules and the walk that applies them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.uop import UOp, current_loc, toposort
from fnx.core.rewriting.rewrite import (
    RewriteRule,
    RuleSet,
    UPat,
    build_from,
    const,
    graph_rewrite,
    match,
    underlying_const,
    var,
)
from fnx.core.support.errors import SpecError
from tests.graphs import Graph, graphs

F, I = dtypes.float32, dtypes.int32  # noqa: E741
x, y, z = (build.param(i, F, (2, 3)) for i in range(3))
i, j = (build.param(k, I, (2, 3)) for k in (3, 4))
a, b = var("a"), var("b")


# ---- patterns ---------------------------------------------------------------------------------


@given(st.permutations([x, y, z]))
def test_commutative_operands_match_in_either_order(nodes: list[UOp]) -> None:
    p, q, r = nodes
    node = build.add(build.mul(p, q), r)
    found = match(a * b + var("c"), node)
    assert found is not None and found["c"] is r and {found["a"], found["b"]} == {p, q}
    swapped = match(var("c") + b * a, node)
    assert swapped is not None and swapped["c"] is r


def test_a_second_order_is_tried_when_names_repeat() -> None:
    found = match(a * b + a * var("c"), build.add(build.mul(x, y), build.mul(z, y)))
    assert found is not None and found["a"] is y and {found["b"], found["c"]} == {x, z}
    assert match(a - a, build.sub(x, y)) is None
    assert match(a - b, build.sub(x, y)) == {"a": x, "b": y}
    assert match(b - a, build.sub(x, y)) == {"b": x, "a": y}


def test_numbers_match_bits_and_see_through_expand() -> None:
    for shape in ((), (2, 3)):
        zero, minus = build.const(0.0, F, shape), build.const(-0.0, F, shape)
        p = build.param(0, F, shape)
        assert match(a + 0.0, build.add(p, zero)) == {"a": p}
        assert match(a + 0.0, build.add(p, minus)) is None
        assert match(a + -0.0, build.add(p, minus)) == {"a": p}
    assert match(a + 1, build.add(i, build.const_like(i, 1))) == {"a": i}
    assert match(a + 0.5, build.add(i, build.const_like(i, 0))) is None
    assert match(a & True, build.and_(build.lt(x, y), build.const(True, dtypes.bool_, (2, 3))))
    assert match(a & 1, build.and_(build.lt(x, y), build.const(True, dtypes.bool_, (2, 3)))) is None
    assert match(a + 2**40, build.add(i, build.const_like(i, 1))) is None


def test_kinds_args_sets_of_ops_and_names_of_inner_patterns() -> None:
    assert match(var("a", "i"), x) is None and match(var("a", "i"), i) == {"a": i}
    assert match(var("a", "b"), build.lt(x, y)) is not None
    total = build.reduce(x, ops.ADD, (1,))
    p = UPat(ops.REDUCE, (a,), arg=op_args.Reduce(ops.ADD, (1,)))
    assert match(p, total) == {"a": x}
    assert match(p, build.reduce(x, ops.ADD, (0,))) is None
    either = UPat(frozenset({ops.ADD, ops.SUB}), None, "n")
    assert match(either, build.sub(x, y)) is not None and match(either, build.mul(x, y)) is None
    inner = match(UPat(ops.NEG, ((a * b).named("product"),)), build.neg(build.mul(x, y)))
    assert inner is not None and inner["product"] is build.mul(x, y)
    assert match(UPat(ops.ADD, (a,)), build.add(x, y)) is None  # another number of operands


def test_constants_are_captured_as_the_const() -> None:
    node = build.mul(x, build.const_like(x, 3.0))
    assert match(a * const("c"), node) == {"a": x, "c": build.const(3.0, F)}
    assert underlying_const(node.src[1]) is build.const(3.0, F) and underlying_const(x) is None


@settings(max_examples=100)
@given(graphs(allowed=[op for op in ops.ELEMENTWISE if op.result == "same" and op.arity == 2
                       and op.exact], types=(F, I)))
def test_a_pattern_builds_the_node_that_it_matched(graph: Graph) -> None:
    for node in toposort(graph.fn.src):
        if node.op.kind == "elementwise":
            p = UPat(node.op, (a, b))
            found = match(p, node)
            assert found is not None and build_from(p, found, node) is node


# ---- rules and the walk -----------------------------------------------------------------------

RULES = RuleSet([
    RewriteRule(-UPat(ops.NEG, (a,)), a, name="double negation"),
    RewriteRule(a + 0, a, name="add zero"),
    RewriteRule(a * 2, a + a, name="twice"),
])


def test_rules_run_to_a_fixed_point_bottom_up() -> None:
    node = build.neg(build.mul(build.neg(build.add(i, build.const_like(i, 0))),
                               build.const_like(i, 2)))
    (got,) = graph_rewrite([node], RULES)
    assert got is build.neg(build.add(build.neg(i), build.neg(i)))
    assert graph_rewrite([got], RULES) == [got]


def test_what_a_rule_returns_is_rewritten_too() -> None:
    twice = RewriteRule(UPat(ops.EXP, (a,)), lambda a: build.neg(build.neg(a)))
    wrap = RuleSet([*RULES.rules, twice])
    assert graph_rewrite([build.exp(x)], wrap) == [x]


@settings(max_examples=100)
@given(graphs())
def test_an_unchanged_graph_is_the_same_object(graph: Graph) -> None:
    never = RuleSet([RewriteRule(UPat(op, None, "n"), lambda n: None) for op in ops.OPS.values()])
    roots = list(graph.fn.src)
    assert all(got is root for got, root in zip(graph_rewrite(roots, never), roots))
    assert all(got is root for got, root in zip(graph_rewrite(roots, RuleSet([])), roots))


def test_functions_are_not_entered_but_calls_follow_known_ones() -> None:
    fn = build.function([build.neg(build.neg(x))], 1)
    simple = build.function([x], 1)
    (out,) = build_calls.call(fn, [build.neg(build.neg(y))])
    assert graph_rewrite([out], RULES) == list(build_calls.call(fn, [y]))
    assert graph_rewrite([out], RULES, known={fn: simple}) == list(build_calls.call(simple, [y]))


def test_guards_counts_and_where_a_rule_stands() -> None:
    rule = RewriteRule(a + b, a, lambda a, b: b.op is ops.EXP, "drop exp")
    rules = RuleSet([rule])
    assert graph_rewrite([build.add(x, build.exp(y)), build.add(x, y)], rules) == [
        x, build.add(x, y)]
    assert rules.counts == {"drop exp": 1}
    assert "test_rewrite.py:" in repr(rule)


def test_new_nodes_have_the_sites_of_what_they_stand_for() -> None:
    p = build.param(9, I, (5,))
    try:
        current_loc.loc = ("user.py", 3)
        node = build.mul(p, build.const_like(p, 2))
    finally:
        current_loc.loc = None
    (got,) = graph_rewrite([node], RULES)
    assert got.op is ops.ADD and got.locs == (("user.py", 3),)


def test_wrong_rules_are_named() -> None:
    wrong_dtype = RuleSet([RewriteRule(UPat(ops.NEG, (a,)), lambda a: i, name="wrong")])
    with pytest.raises(SpecError, match="wrong.*expected float32"):
        graph_rewrite([build.neg(x)], wrong_dtype)
    circle = RuleSet([RewriteRule(a - b, lambda a, b: build.sub(b, a), name="swap")])
    with pytest.raises(SpecError, match="circle.*swap"):
        graph_rewrite([build.sub(x, y)], circle)
    grows = RuleSet([RewriteRule(UPat(ops.EXP, (a,), "n"), lambda a, n: build.neg(n), name="grow")])
    with pytest.raises(SpecError, match="grow.*below itself"):
        graph_rewrite([build.exp(x)], grows)


def test_rule_sets_add_up() -> None:
    both = RuleSet(RULES.rules[:1]) + RuleSet(RULES.rules[1:])
    assert both.rules == RULES.rules
