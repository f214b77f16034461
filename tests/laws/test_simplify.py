"""Properties of simplify: bitwise equal results, idempotence, and no new node if nothing
changed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp, current_loc, substitute, toposort
from fnx.core.levels import interp
from fnx.core.levels.spec import check
from fnx.core.rewriting.rewrite import RewriteRule, RuleSet, UPat, graph_rewrite, underlying_const
from fnx.core.support.errors import FnxError
from fnx.lower.tensor.simplify import RULES, simplify
from tests.graphs import REAL, STEPS, Builder, Graph, graphs, values
from tests.helpers import assert_same


@settings(max_examples=600)
@given(graphs(REAL))
def test_every_bit_is_kept(graph: Graph) -> None:
    check([graph.fn], "tensor")
    simple = simplify(graph.fn)
    check([simple], "tensor")
    assert_same(interp.apply(simple, graph.args), interp.apply(graph.fn, graph.args))


@settings(max_examples=200)
@given(graphs(REAL))
def test_idempotent_and_an_unchanged_graph_is_the_same_object(graph: Graph) -> None:
    simple = simplify(graph.fn)
    assert simplify(simple) is simple


@settings(max_examples=400)
@given(graphs(REAL, calls=0))
def test_what_has_no_elements_is_a_parameter_or_a_constant(graph: Graph) -> None:
    for node in toposort(simplify(graph.fn).src):
        assert 0 not in node.shape or node.op is ops.PARAM or underlying_const(node) is not None


def test_no_booleans_are_in_order() -> None:
    """Empty bool arrays have the type of a token, but a sort of them has no effects."""
    x = build.param(0, dtypes.bool_, (0,))
    fn = build.function(build_calls.sort([x], 1), 1, "f")
    assert all(n.op is not ops.SORT for n in toposort(simplify(fn).src))


@settings(max_examples=200)
@given(graphs(REAL, calls=0), st.randoms(use_true_random=True))
def test_the_order_of_rules_means_nothing(graph: Graph, rng: random.Random) -> None:
    rules = list(RULES.rules)
    rng.shuffle(rules)
    outs = graph_rewrite(graph.fn.src, RuleSet(rules))
    got = interp.apply(graph.fn.replace(src=tuple(outs)), graph.args)
    assert_same(got, interp.apply(graph.fn, graph.args))


# ---- each rule on its own, on graphs made from its pattern ------------------------------------


class Instance:
    """A random node that matches a pattern; equal names become one node."""

    def __init__(self, rng: random.Random, operands: frozenset[ops.Op] = frozenset()) -> None:
        self.operands = operands  # of a GATHER whose pattern names no operands
        self.b = Builder(rng, REAL, STEPS.keys(), 0)
        self.found: dict[str, UOp] = {}
        self.shape = self.b.one(((), (3,), (1, 4), (3, 1), (2, 3), (3, 3), (2, 0)))
        self.like: dict[str, Any] = {}

    def make(self, p: UPat, dtype: dtypes.DType) -> UOp:
        if p.name in self.found:
            known = self.found[p.name]
            return build.expand(known, self.shape) if p.constant else known
        node = self.fresh(p, dtype)
        if p.name:
            self.found[p.name] = node
        return build.expand(node, self.shape) if p.constant else node

    def fresh(self, p: UPat, dtype: dtypes.DType) -> UOp:
        b = self.b
        if p.constant:
            return b.constant(dtype, ()) if p.value is None else build.const(p.value, dtype)
        if p.ops is None:
            return b.param(dtype, self.shape)
        op = b.one(sorted(p.ops, key=lambda op: op.name))
        if op.kind == "elementwise":
            return self.elementwise(op, p, dtype)
        if op is ops.EXPAND and p.src is not None and p.src[0].ops is None and self.shape:
            repeated = b.param(dtype, (1, *self.shape[1:]))
            self.found.setdefault(p.src[0].name, repeated)
            return build.expand(repeated, self.shape)
        if op is ops.PAD and p.src is not None and p.src[1].name:
            self.found.setdefault(p.src[1].name, b.operand(dtype, ()))
        if op is ops.GATHER and self.operands:
            p = UPat(op, (UPat(self.operands),))
            self.operands = frozenset()
        x = self.make(p.src[0], dtype) if p.src else b.operand(dtype, b.shape(60))
        if op is ops.GETTUPLE:
            return build_calls.call(build.function([x], len(b.params)), b.params)[0]
        fenced = build.barrier(x)  # so that constructors do not merge the two movements
        fill = list(self.found.values())[:1] if op is ops.PAD and p.src else []
        return substitute([self.movement(op, fenced, fill)], {fenced: x})[0]

    def movement(self, op: ops.Op, x: UOp, fill: list[UOp]) -> UOp:
        b = self.b
        if fill:
            return build.pad(x, [(b.number(0, 2), b.number(0, 2)) for _ in x.shape], fill[0])
        accepted, make = STEPS[op]
        if not accepted(x):
            raise FnxError("not for this op")
        return make(b, op, x)

    def elementwise(self, op: ops.Op, p: UPat, dtype: dtypes.DType) -> UOp:
        b = self.b
        operand = b.one(REAL) if op.result == "bool" or op in (ops.CAST, ops.BITCAST) \
            else dtype
        assert op.arity is not None
        kinds = [dtypes.bool_ if op is ops.WHERE and i == 0 else operand
                 for i in range(op.arity)]
        src = [b.operand(t, self.shape) for t in kinds] if p.src is None else \
            [self.make(s, t) for s, t in zip(p.src, kinds)]
        if op is ops.CAST:
            return build.cast(src[0], dtype)
        if op is ops.BITCAST:
            return build.bitcast(src[0], dtype)
        return build.elementwise(op, *src, arg=b.number(0, 1) if op is ops.THREEFRY else None)


@pytest.mark.cases(17)
@pytest.mark.parametrize("rule", RULES.rules, ids=lambda rule: rule.name)
def test_each_rule_keeps_every_bit(rule: RewriteRule, monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise none of these graphs has enough parts.
    monkeypatch.setattr("fnx.lower.tensor.movement_rules.MAX_CONCAT_PARTS", 1)
    applied = 0
    for seed in range(6000):
        rng = random.Random(seed)
        instance = Instance(rng, rule.required_ops or frozenset())
        try:
            node = instance.make(rule.pattern, rng.choice(REAL))
        except FnxError:  # dtypes or shapes do not fit: try another seed
            continue
        new = rule.apply(node)
        if new is None:
            continue
        applied += 1
        nprng = np.random.default_rng(seed)
        env = {p: values(nprng, p.dtype, p.shape) for p in instance.b.params}
        assert_same(interp.evaluate([new], env), interp.evaluate([node], env))
        if applied == 25:
            return
    assert applied > 0, f"{rule} never applied"


# ---- what must not be simplified, and what must -----------------------------------------------

X = build.param(0, dtypes.float32, (2, 3))
I = build.param(1, dtypes.int32, (2, 3))  # noqa: E741


def simple(node: UOp) -> UOp:
    return simplify(build.function([node], 2)).src[0]


@pytest.mark.parametrize("node", [
    build.mul(X, build.const_like(X, 0.0)), build.add(X, build.const_like(X, 0.0)), build.sub(X, X),
    build.div(X, X), build.add(build.add(X, build.const_like(X, 1.0)), build.const_like(X, 2.0)),
    build.mul(build.mul(X, build.const_like(X, 3.0)), build.const_like(X, 5.0)), build.eq(X, X),
    build.div(X, build.const_like(X, 3.0)), build.barrier(X),
    build.cast(build.cast(I, dtypes.float32), dtypes.int32),
    build.reduce(build.reduce(X, ops.ADD, (0,)), ops.ADD, (0,)),
    build.neg(build.sub(X, build.exp(X))),
], ids=lambda n: n.op.name)
def test_what_would_change_bits_stays(node: UOp) -> None:
    assert simple(node) is node


def test_examples() -> None:
    zero, minus_zero = build.const_like(X, 0.0), build.const_like(X, -0.0)
    assert simple(build.add(X, minus_zero)) is X
    assert simple(build.sub(X, zero)) is X
    assert simple(build.mul(I, build.const_like(I, 0))) is build.const_like(I, 0)
    assert simple(build.div(X, build.const_like(X, 4.0))) is build.mul(X, build.const_like(X, 0.25))
    assert simple(build.sqrt(build.const_like(X, 4.0))) is build.const_like(X, 2.0)
    padded = build.pad(X, [(1, 0), (0, 2)])
    assert simple(build.shrink(padded, [(1, 3), (0, 3)])) is X
    row = build.param(0, dtypes.float32, (1, 3))
    assert simple(build.exp(build.expand(row, (9, 3)))) is build.expand(build.exp(row), (9, 3))


def test_an_elementary_function_of_a_constant_stays_for_the_machine() -> None:
    node = build.exp(build.const_like(X, 2.0))
    assert ops.EXP in {n.op for n in toposort([simple(node)])}


def test_bodies_of_calls_are_simplified_once_and_params_stay() -> None:
    y = build.param(0, dtypes.float32, (2, 3))
    unused = build.param(1, dtypes.float32, (2, 3))
    body = build.function([build.add(y, build.mul(unused, build.const_like(y, 1.0)))], 2, "body")
    dead = build.function([build.where(build.const(True, dtypes.bool_, (2, 3)), y, unused)], 2)
    outs = [build_calls.call(fn, [X, X])[0] for fn in (body, body, dead)]
    RULES.counts.clear()
    fn = simplify(build.function([build.add(build.add(outs[0], outs[1]), outs[2])], 1))
    assert RULES.counts["MUL with its identity"] == 1
    calls = [n for n in toposort([fn], into_functions=True) if n.op is ops.CALL]
    assert [c.src[0].arg.n_params for c in calls] == [2, 2]
    assert {len([n for n in toposort(c.src[0].src) if n.op is ops.PARAM]) for c in calls} == {1, 2}


def test_sites_survive() -> None:
    try:
        current_loc.loc = ("user.py", 7)
        node = build.div(build.exp(X), build.const_like(X, 8.0))
    finally:
        current_loc.loc = None
    assert simple(node).locs == (("user.py", 7),)
