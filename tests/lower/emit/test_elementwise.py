"""Compiled elementwise kernels equal the interpreter bit for bit, at every tail length."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.op import max_value
from tests.graphs import COMPUTED
from tests.helpers import same_bits
from tests.lower.machine import both, kernel_over, split

KIND = {t.name: {"float": "f", "bool": "b"}.get(t.kind, "i") for t in COMPUTED}
SPECIAL = {
    "f": [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-40, 1.5, -2.5, 3e9, -3e9, 0.5],
    "i": [0, 1, 2, 3, 7, 31, 2**31 - 1],
    "b": [False, True],
}
BINARY = {
    "f": [ops.ADD, ops.SUB, ops.MUL, ops.DIV, ops.MAX, ops.MIN],
    "i": [ops.ADD, ops.SUB, ops.MUL, ops.MAX, ops.MIN, ops.AND, ops.OR, ops.XOR, ops.SHL,
          ops.SHR, ops.IDIV, ops.REM],
    "b": [ops.AND, ops.OR, ops.XOR],
}
UNARY = {
    "f": [ops.NEG, ops.ABS, ops.FLOOR, ops.CEIL, ops.TRUNC, ops.ROUND, ops.SQRT],
    "i": [ops.NEG, ops.ABS, ops.NOT],
    "b": [ops.NOT],
}


@st.composite
def expressions(draw, leaves):
    """A random value over the leaves, which covers every kind of op that is printed."""
    pool = list(leaves)
    for _ in range(draw(st.integers(1, 6))):
        x = draw(st.sampled_from(pool))
        kind = KIND[x.dtype.name]
        same = [v for v in pool if v.dtype is x.dtype]
        y = draw(st.sampled_from(same))
        how = draw(st.sampled_from(["unary", "binary", "cast", "compare", "where"]))
        if how == "unary":
            new = build.elementwise(draw(st.sampled_from(UNARY[kind])), x)
        elif how == "binary":
            new = build.elementwise(draw(st.sampled_from(BINARY[kind])), x, y)
        elif how == "cast":
            new = build.cast(x, draw(st.sampled_from(COMPUTED)))
        elif how == "compare":
            new = build.elementwise(draw(st.sampled_from(sorted(
                ops.COMPARISONS, key=lambda o: o.name))), x, y)
        else:
            conditions = [v for v in pool if v.dtype is dtypes.bool_] or [build.lt(x, y)]
            new = build.where(draw(st.sampled_from(conditions)), x, y)
        pool.append(new)
    return pool[-1]


def data(rng, n, dtype):
    kind = KIND[dtype.name]
    special = [min(v, max_value(dtype)) for v in SPECIAL["i"]] if kind == "i" else SPECIAL[kind]
    out = rng.choice(np.array(special, dtype.np), n)
    random = (rng.normal(size=n) * 100).astype(np.float64)
    if kind == "f":
        return np.where(rng.random(n) < 0.6, random.astype(dtype.np), out)
    if kind == "i":
        return np.where(rng.random(n) < 0.6, random.astype(np.int64).astype(dtype.np), out)
    return out


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_elementwise_bits(data_):
    draw = data_.draw
    n = draw(st.integers(0, 70))
    lanes = draw(st.sampled_from([1, 4, 8, 16]))
    factors = [(draw(st.sampled_from([1, 2, 3])), "UNROLL"), (lanes, "VEC")]
    extent = n
    scalars = []
    if draw(st.booleans()):
        extent = build.var(0, dtypes.index, 0, 1000)
        scalars = [n]
    i, inside, _ = split(extent, *factors, outer=draw(st.sampled_from(["SEQ", "PAR"])))
    kinds = draw(st.lists(st.sampled_from(COMPUTED), min_size=2, max_size=3))
    leaves = [build.load(build.index_into(build.ref(s, t, (extent,)), i), inside)
              for s, t in enumerate(kinds)]
    value = draw(expressions(leaves))
    out = build.index_into(build.ref(len(kinds), value.dtype, (extent,)), i)
    kernel = kernel_over([build.store(out, value, inside)], "k", range(3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    buffers = [data(rng, n, t) for t in kinds] + [np.zeros(n, value.dtype.np)]
    mine, theirs = both(kernel, buffers, scalars, draw(st.sampled_from([[], [0.5]])))
    assert same_bits(mine[-1], theirs[-1]), (mine[-1], theirs[-1])


@pytest.mark.parametrize("target", [dtypes.int32, dtypes.uint32], ids=str)
@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64], ids=str)
def test_float_to_integer_saturates(source, target):
    x = np.array([np.nan, np.inf, -np.inf, 2.0**31, -2.0**31, 2.0**32, -1.5, 1.9, 2.0**31 - 200],
                 source.np)
    i, inside, _ = split(len(x), (4, "VEC"))
    value = build.cast(build.load(build.index_into(build.ref(0, source, (len(x),)), i), inside),
                       target)
    o = build.index_into(build.ref(1, target, (len(x),)), i)
    mine, theirs = both(kernel_over([build.store(o, value, inside)], "k", range(2)),
                        [x, np.zeros(len(x), target.np)])
    assert np.array_equal(mine[1], theirs[1])
    assert mine[1][0] == 0 and mine[1][1] == np.iinfo(target.np).max


def test_lanes_are_converted_together():
    """On x86, LLVM's saturating intrinsic is scalarized."""
    x = fnx.numpy.ones(64)
    text = fnx.jit(lambda x: x.astype("int32")).lower(x).llvm()
    assert "fptosi <16 x float>" in text or "fptosi <8 x float>" in text
    assert "sat.v" not in text


@settings(deadline=None, max_examples=20)
@given(n=st.integers(0, 40), m=st.integers(1, 5), stride=st.sampled_from([-1, 1, 2, 3]),
       before=st.integers(0, 20), after=st.integers(0, 20), lanes=st.sampled_from([1, 4, 16]))
def test_padded_and_strided_views(n, m, stride, before, after, lanes):
    """o[r, j] = x[r, stride * (j - before)] in bounds, 0 elsewhere."""
    total = before + n + after
    j, inside, ranges = split(total, (lanes, "VEC"), ids=1)
    r = build.range_(m, 0, "PAR")
    width = max(1, abs(stride) * n)
    C = build.index_const
    k = build.mul(build.sub(j, C(before)), C(stride))
    if stride < 0:
        k = build.add(k, C(max(n - 1, 0)))
    low = build.le(C(before), j)
    high = build.lt(j, C(before + n))
    valid = build.and_(low, high)
    x = build.load(build.index_into(build.ref(0, dtypes.float32, (m, width)), r, k), valid)
    o = build.index_into(build.ref(1, dtypes.float32, (m, total)), r, j)
    kernel = kernel_over([build.store(o, x, inside)], "pad", range(4))
    rng = np.random.default_rng(n)
    mine, theirs = both(kernel, [rng.normal(size=(m, width)).astype("f"),
                                 np.full((m, total), 7, "f")])
    assert same_bits(mine[1], theirs[1])


@settings(deadline=None, max_examples=15)
@given(n=st.integers(0, 50), lanes=st.sampled_from([1, 4, 16]))
def test_range_values(n, lanes):
    """A range used as a value, as a 32-bit integer and as a float."""
    i, inside, _ = split(n, (2, "UNROLL"), (lanes, "VEC"))
    stores = []
    for s, t in enumerate((dtypes.int32, dtypes.uint32, dtypes.float32)):
        v = build.cast(build.sub(build.mul(i, build.index_const(3)), build.index_const(5)), t)
        stores.append(build.store(build.index_into(build.ref(s, t, (n,)), i), v, inside))
    kernel = kernel_over(stores, "iota", range(3))
    mine, theirs = both(kernel, [np.zeros(n, t) for t in ("i4", "u4", "f4")])
    for a, b in zip(mine, theirs):
        assert same_bits(a, b)


@settings(deadline=None, max_examples=15)
@given(n=st.integers(0, 50), size=st.integers(1, 30), lanes=st.sampled_from([1, 4, 16]),
       seed=st.integers(0, 9))
def test_gather(n, size, lanes, seed):
    """The index is data; where the load is invalid, it is out of bounds."""
    rng = np.random.default_rng(seed)
    index = rng.integers(-3, size + 3, n).astype("i4")
    i, inside, _ = split(n, (lanes, "VEC"))
    at = build.cast(build.load(build.index_into(build.ref(1, dtypes.int32, (n,)), i), inside),
                    dtypes.index)
    C = build.index_const
    valid = build.and_(build.le(C(0), at), build.lt(at, C(size)))
    x = build.load(build.index_into(build.ref(0, dtypes.float32, (size, 2)), at, C(1)), valid)
    kernel = kernel_over([build.store(build.index_into(build.ref(2, dtypes.float32, (n,)), i), x,
                                      inside)], "gather", range(2))
    mine, theirs = both(kernel, [rng.normal(size=(size, 2)).astype("f"), index,
                                 np.zeros(n, "f")])
    assert same_bits(mine[2], theirs[2])


@settings(deadline=None, max_examples=10)
@given(n=st.integers(0, 50), size=st.integers(1, 8), seed=st.integers(0, 9))
def test_scatter_add_in_order(n, size, seed):
    """A zeroing store is followed by combining stores, in the order of their range."""
    rng = np.random.default_rng(seed)
    index = rng.integers(0, size, n).astype("i4")
    x = (rng.normal(size=n) * 10.0 ** rng.integers(-6, 6, n)).astype("f")
    C = build.index_const
    place = build.ref(2, dtypes.float32, (size,))
    z, fill, _ = split(size, (4, "VEC"), ids=10)
    zero = build.store(build.index_into(place, z), build.const(0, dtypes.float32), fill)
    r = build.range_(n, 0)
    at = build.cast(build.load(build.index_into(build.ref(0, dtypes.int32, (n,)), r)), dtypes.index)
    value = build.load(build.index_into(build.ref(1, dtypes.float32, (n,)), r))
    add = build.store(build.index_into(place, at), value, build.lt(C(0), at), ops.ADD)
    mine, theirs = both(kernel_over([zero, add], "scatter", (10, 11, 0)),
                        [index, x, np.full(size, 9, "f")])
    assert same_bits(mine[2], theirs[2])


@settings(deadline=None, max_examples=12)
@given(n=st.integers(1, 40), columns=st.integers(2, 5), lanes=st.sampled_from([2, 4, 16]),
       monoid=st.sampled_from([ops.ADD, ops.MAX]), seed=st.integers(0, 9))
def test_lanes_of_a_combining_store_may_be_strided(n, columns, lanes, monoid, seed):
    """o[at, i, c] is combined with x[c, i], with lanes along i: the store has strided lanes."""
    rng = np.random.default_rng(seed)
    i, inside, _ = split(n, (lanes, "VEC"))
    c = build.range_(columns, 10)
    at = build.cast(build.load(build.index_into(build.ref(0, dtypes.int32, (1,)),
                                                build.index_const(0))),
                    dtypes.index)
    value = build.load(build.index_into(build.ref(1, dtypes.float32, (columns, n)), c, i), inside)
    add = build.store(build.index_into(build.ref(2, dtypes.float32, (3, n, columns)), at, i, c),
                      value, inside, monoid)
    arrays = [np.array([1], "i4"), rng.normal(size=(columns, n)).astype("f"),
              rng.normal(size=(3, n, columns)).astype("f")]
    mine, theirs = both(kernel_over([add], "scatter", (0, 10, 1)), arrays)
    assert same_bits(mine[2], theirs[2])


def test_in_place_update_of_two_buffers():
    """Both stores read what the other one overwrites, at the same index."""
    n = 37
    i, inside, _ = split(n, (2, "UNROLL"), (4, "VEC"))
    x, y = (build.load(build.index_into(build.ref(s, dtypes.float32, (n,)), i), inside)
            for s in (0, 1))
    out = [build.index_into(build.ref(s, dtypes.float32, (n,)), i) for s in (2, 3)]
    kernel = kernel_over([build.store(out[0], build.add(x, y), inside),
                          build.store(out[1], build.sub(x, y), inside)], "swap", range(3))
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=n).astype("f") for _ in range(2))
    from tests.lower.machine import aligned, run
    p, q = aligned(a), aligned(b)
    run(kernel, [p, q, p, q])
    assert same_bits(p, a + b) and same_bits(q, a - b)


def test_choice_between_constants_that_is_known_only_to_llvm():
    angles, opposite = np.array([[3], [98]], np.uint32), np.arange(-3, 4, dtype=np.int32)
    program = fnx.jit(fnx.numpy.arctan2)  # the sign of unsigned selects pi or -pi
    expected = np.arctan2(angles.astype(np.float32), opposite.astype(np.float32))
    np.testing.assert_allclose(program(angles, opposite), expected, rtol=1e-6)


def test_lanes_are_divided_in_32_bits_where_they_fit():
    """No vector instruction gives the high half of a product of 64 bits. A diagonal's derivative is
    at each 33rd element of a matrix."""
    f = fnx.jit(fnx.grad(lambda x: fnx.numpy.sin(fnx.numpy.einsum("bii->b", x)).sum()))
    x = np.random.default_rng(0).random((10, 32, 32), np.float32)
    text = f.lower(x).text("llvm")
    assert re.search(r"urem <\d+ x i32>", text) and not re.search(r"rem <\d+ x i64>", text)
    want = np.cos(np.trace(x, axis1=1, axis2=2))[:, None, None] * np.eye(32, dtype=np.float32)
    np.testing.assert_allclose(f(x), want, rtol=1e-5, atol=1e-6)
