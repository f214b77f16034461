"""Index algebra: every result is equivalent to its input on all values of its ranges."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.build import index_const
from fnx.core.ir.uop import UOp, live_nodes, toposort
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.algebra import evaluate

BINARY = (build.add, build.sub, build.mul, build.idiv, build.rem, build.minimum, build.maximum)
COMPARISONS = (build.lt, build.le, build.eq, build.ne)
VALUES = (1, 2, 3, 5)


def leaves() -> list[UOp]:
    v = build.var(0, dtypes.index, 1, 5, "v")
    return [build.range_(3, 0), build.range_(4, 1), build.range_(v, 2), v,
            build.var(1, dtypes.index, 0, 3, "w")]


def environments():
    r0, r1, r2, v, w = leaves()
    for value in VALUES:
        for a, b, c, d in itertools.product(range(3), range(4), range(value), range(0, 4, 3)):
            yield {r0: a, r1: b, r2: c, 0: value, 1: d}


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> UOp:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(leaves() + [index_const(n) for n in (-3, -1, 0, 1, 2, 4, 12)]))
    pick = draw(st.integers(0, len(BINARY)))
    a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    if pick == len(BINARY):
        return build.where(draw(conditions(depth - 1)), a, b)
    return BINARY[pick](a, b)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> UOp:
    a, b = draw(expressions(depth)), draw(expressions(depth))
    c = draw(st.sampled_from(COMPARISONS))(a, b)
    if depth and draw(st.booleans()):
        other = draw(conditions(depth - 1))
        return draw(st.sampled_from((build.and_, build.or_)))(c, other)
    return build.logical_not(c) if draw(st.booleans()) else c


def defined(node: UOp, env: dict) -> bool:
    """Return whether no divisor is zero, which the simplifier assumes."""
    return all(evaluate(n.src[1], env) != 0 for n in toposort([node])
               if n.op in (ops.IDIV, ops.REM))


@settings(deadline=None, max_examples=150)
@given(expressions())
def test_simplify_keeps_values_and_bounds_hold(node: UOp) -> None:
    simpler = symbolic.simplify(node)
    low, high = symbolic.bounds(node)
    terms, constant = symbolic.linear_terms(node)
    for env in itertools.islice(environments(), 0, None, 3):
        if not defined(node, env):
            continue
        want = evaluate(node, env)
        assert evaluate(simpler, env) == want
        assert low <= want <= high
        assert constant + sum(c * math.prod(evaluate(a, env) for a in m)
                              for m, c in terms.items()) == want


@settings(deadline=None, max_examples=100)
@given(expressions())
def test_simplify_is_idempotent(node: UOp) -> None:
    simpler = symbolic.simplify(node)
    assert symbolic.simplify(simpler) is simpler


def test_a_remainder_below_its_divisor_is_the_dividend_also_where_that_is_negative() -> None:
    r = leaves()[2]
    x = build.sub(index_const(3), r)
    assert symbolic.simplify(build.rem(x, index_const(12))) is symbolic.simplify(x)


def test_products_and_their_terms_have_one_normal_form() -> None:
    """A product of a sum and the sum of the products simplify to the same node, and it is a
    fixpoint."""
    x, v = build.range_(40, 5), leaves()[3]
    both = build.add(build.idiv(x, v), build.rem(x, v))
    simpler = symbolic.simplify(build.mul(both, build.add(v, index_const(1))))
    assert symbolic.simplify(simpler) is simpler


def test_a_condition_that_is_divided_is_decided() -> None:
    r, v = leaves()[0], leaves()[3]
    small = build.rem(index_const(6), build.minimum(v, r))
    condition = build.le(build.mul(small, build.sub(index_const(4), r)), index_const(4))
    assert symbolic.simplify(condition).op is ops.CONST


@settings(deadline=None, max_examples=100)
@given(conditions(3))
def test_simplify_is_idempotent_on_conditions(condition: UOp) -> None:
    simpler = symbolic.simplify(condition)
    assert symbolic.simplify(simpler) is simpler


@settings(deadline=None, max_examples=40)
@given(conditions(3))
def test_conditions_keep_their_truth(condition: UOp) -> None:
    simpler, known = symbolic.simplify(condition), symbolic.prove(condition)
    for env in itertools.islice(environments(), 0, None, 3):
        if not defined(condition, env):
            continue
        want = bool(evaluate(condition, env))
        assert bool(evaluate(simpler, env)) == want
        assert known in (None, want)


DIMS = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(DIMS, st.randoms())
def test_unravel_is_the_inverse_of_ravel(dims: list[int], random) -> None:
    ranges = [build.range_(n, i) for i, n in enumerate(dims)]
    flat = symbolic.ravel(ranges, dims)
    back = symbolic.unravel(flat, dims)
    for n, r, i in zip(dims, ranges, back, strict=True):
        assert i is (r if n > 1 else index_const(0))
    cut = random.randint(0, len(dims))
    merged = [math.prod(dims[:cut]), math.prod(dims[cut:])]
    for env in itertools.islice(itertools.product(*map(range, dims)), 50):
        values = dict(zip(ranges, env, strict=True))
        got = [evaluate(i, values) for i in symbolic.unravel(flat, merged)]
        assert got == list(divmod(evaluate(flat, values), merged[1]))
    assert all(n.op not in (ops.IDIV, ops.REM)
               for n in toposort(symbolic.unravel(flat, merged)))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4).flatmap(lambda n: st.permutations(range(n))))
def test_run_time_extents_cancel_too(order: list[int]) -> None:
    dims = [build.var(i, dtypes.index, name=f"d{i}") for i in order]
    ranges = [build.range_(d, i) for i, d in enumerate(dims)]
    assert symbolic.unravel(symbolic.ravel(ranges, dims), dims) == tuple(ranges)
    outer = dims[0]
    for d in dims[1:]:
        outer = build.mul(outer, d)
    i, = symbolic.unravel(symbolic.ravel(ranges, dims), [outer])
    assert symbolic.unravel(i, dims) == tuple(ranges)


def test_ravel_undoes_unravel() -> None:
    x = build.range_(60, 0)
    assert symbolic.ravel(symbolic.unravel(x, (3, 4, 5)), (3, 4, 5)) is x
    n = build.var(0, dtypes.index, 1, 100)
    y = build.range_(build.mul(n, index_const(7)), 1)
    assert symbolic.ravel(symbolic.unravel(y, (7, n)), (7, n)) is y


def test_offsets_of_padding_are_unravelled_as_if_inside() -> None:
    r, c = build.range_(9, 0), build.range_(5, 1)
    shifted = build.add(symbolic.ravel((r, c), (9, 5)), index_const(-5))
    row, column = symbolic.unravel(shifted, (7, 5))
    assert row is build.sub(r, index_const(1)) or row is build.add(r, index_const(-1))
    assert column is c


def test_the_tile_of_a_row_that_is_clamped() -> None:
    tile, row = build.range_(342, 0), build.range_(6, 1)
    clamped = build.minimum(build.add(build.mul(tile, index_const(6)), row), index_const(2047))
    assert symbolic.simplify(build.idiv(clamped, index_const(6))) is tile


def test_coefficient() -> None:
    n = build.var(0, dtypes.index)
    r, s = build.range_(8, 0), build.range_(n, 1)
    flat = symbolic.ravel((r, s), (8, n))
    assert symbolic.coefficient(flat, r) is n
    assert symbolic.coefficient(flat, s) == 1
    assert symbolic.coefficient(flat, build.range_(3, 2)) == 0
    assert symbolic.coefficient(build.idiv(r, index_const(3)), r) is None
    assert symbolic.coefficient(build.mul(r, r), r) is None


@given(st.integers(2, 40), st.integers(1, 3))
def test_diagonals_are_not_divided(n: int, rows: int) -> None:
    """Element i of a diagonal over several rows at once, in rows of n: (rows*i, i)."""
    i = build.range_(n, 0)
    flat = build.mul(i, index_const(n * rows + 1))
    assert symbolic.simplify(build.idiv(flat, index_const(n))) is \
        symbolic.simplify(build.mul(i, index_const(rows)))
    assert symbolic.simplify(build.rem(flat, index_const(n))) is i


def test_nested_divisions_are_not_recursive() -> None:
    data = build.cast(build.load(build.index_into(build.ref(0, dtypes.int32, (4,)),
                                                  index_const(0))),
                      dtypes.index)
    node = data
    for _ in range(6_000):
        node = build.idiv(build.sub(node, index_const(4)), index_const(3))
    assert symbolic.bounds(node) == (-2, -1)


def test_memo_holds_no_nodes() -> None:
    def work() -> None:
        r = build.range_(97, 12345)
        x = build.idiv(build.add(build.mul(r, index_const(7)), index_const(1)), index_const(5))
        symbolic.simplify(build.rem(build.maximum(x, r), index_const(11)))
        symbolic.bounds(x)
    work()
    before = live_nodes()
    for _ in range(5):
        work()
    assert live_nodes() <= before


def test_lanes_leave_quotients_and_conditions() -> None:
    outer, vector, lane = build.range_(16, 0), build.range_(3, 1), build.range_(16, 2)
    at = symbolic.ravel((outer, vector, lane), (16, 3, 16))
    for made in (build.idiv(at, index_const(32)), build.lt(at, index_const(256)),
                 build.le(index_const(512), at)):
        assert lane not in symbolic.simplify(made).ranges
    assert symbolic.coefficient(build.rem(at, index_const(32)), lane) == 1
    assert symbolic.coefficient(build.rem(at, index_const(24)), lane) is None


@settings(deadline=None, max_examples=150)
@given(st.lists(st.integers(1, 4), min_size=3, max_size=3),
       st.lists(st.sampled_from((-16, -6, -1, 0, 1, 2, 4, 6, 9, 16, 24)), min_size=3, max_size=3),
       st.integers(-40, 40), st.sampled_from((1, 2, 3, 4, 6, 8, 12, 32)))
def test_sums_cut_at_any_number(dims: list[int], factors: list[int], start: int, n: int) -> None:
    ranges = [build.range_(d, i) for i, d in enumerate(dims)]
    total = index_const(start)
    for r, k in zip(ranges, factors, strict=True):
        total = build.add(total, build.mul(r, index_const(k)))
    made = [f(total, index_const(n)) for f in (build.idiv, build.rem, build.lt, build.le)]
    simple = list(map(symbolic.simplify, made))
    for env in itertools.product(*map(range, dims)):
        values = dict(zip(ranges, env, strict=True))
        assert [evaluate(s, values) for s in simple] == [evaluate(m, values) for m in made]
