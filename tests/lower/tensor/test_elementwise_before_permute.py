"""Elementwise work on a transposed argument is done in the layout of the argument."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
from fnx import numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.lower.tensor.elementwise_before_permute import elementwise_before_permute

F32 = dtypes.float32


def x_t(shape: tuple[int, ...] = (5, 3), order: tuple[int, ...] = (1, 0), slot: int = 0) -> UOp:
    return build.permute(build.param(slot, F32, shape), order)


def row(shape: tuple[int, ...], slot: int = 1) -> UOp:
    """One number for each of the last axis."""
    y = build.param(slot, F32, (*[1] * (len(shape) - 1), shape[-1]))
    return build.expand(y, shape)


def test_before_and_after() -> None:
    before = build.function([build.mul(build.exp(x_t()), row((3, 5)))], 2)
    x = build.param(0, F32, (5, 3))
    column = build.expand(build.permute(build.param(1, F32, (1, 5)), (1, 0)), (5, 3))
    expected = build.function([build.permute(build.mul(build.exp(x), column), (1, 0))], 2)
    assert elementwise_before_permute(before) is expected


@pytest.mark.parametrize("value", [
    lambda: build.add(x_t(), build.param(1, F32, (3, 5))),           # another layout
    lambda: build.exp(x_t((5, 3, 2), (1, 0, 2))),                    # the last axis stays
    lambda: build.add(x_t((4, 4)), x_t((4, 4), (0, 1), 1)),
    lambda: build.exp(build.permute(build.reduce(                    # its layout is free
        build.param(0, F32, (5, 3, 2)), ops.ADD, [2]), (1, 0)))],
    ids=["two layouts", "last axis", "one transposed", "a sum"])
def test_stays(value) -> None:
    fn = build.function([value()], 2)
    assert elementwise_before_permute(fn) is fn


def test_axes_of_length_1_are_added_before_the_transpose() -> None:
    t = build.reshape(build.exp(x_t()), (3, 1, 5))
    out, = elementwise_before_permute(build.function([build.neg(t)], 1)).src
    assert (out.op, out.src[0].op, out.shape) == (ops.PERMUTE, ops.NEG, (3, 1, 5))
    assert [n for n in out.src[0].shape if n > 1] == [5, 3]


@given(st.permutations(range(3)), st.sets(st.integers(0, 2), min_size=1),
       st.sampled_from([ops.ADD, ops.MAX]))
def test_reductions_are_done_before_the_transpose(order, axes, monoid) -> None:
    shape = (2, 3, 4)
    x = build.param(0, F32, shape)
    reduced = build.reduce(build.exp(build.permute(x, order)), monoid, sorted(axes))
    before = build.function([build.neg(reduced)], 1)
    after = elementwise_before_permute(before)
    value = np.random.default_rng(0).normal(size=shape).astype("f")
    one, two = (interp.evaluate(f.src, {x: value})[0] for f in (before, after))
    np.testing.assert_allclose(one, two, rtol=1e-6)
    operand, = [n.src[0] for n in toposort(after.src) if n.op is ops.REDUCE]
    assert (operand.src[0] is x) is (order[-1] != 2 or tuple(order) == (0, 1, 2))


@st.composite
def trees(draw: st.DrawFn) -> UOp:
    """Elementwise work on two arguments, transposed, reshaped and expanded."""
    long = draw(st.sampled_from([(5, 3), (4, 2, 3), (2, 2)]))

    def leaf() -> UOp:
        kind = draw(st.sampled_from(["plain", "transposed", "row", "number"]))
        slot = draw(st.integers(0, 1))
        if kind == "number":
            return build.const(draw(st.sampled_from([0.5, 2.0])), F32, long)
        if kind == "row":
            y = build.reshape(build.shrink(build.reshape(
                build.param(slot, F32, long), (math.prod(long),)), [(0, long[-1])]),
                (*[1] * (len(long) - 1), long[-1]))
            return build.expand(y, long)
        order = tuple(draw(st.permutations(range(len(long))))) if kind == "transposed" \
            else tuple(range(len(long)))
        x = build.permute(build.param(slot, F32, long), order)
        return x if x.shape == long else \
            build.permute(x, [order.index(a) for a in range(len(long))])

    def back(x: UOp) -> UOp:
        order = tuple(draw(st.permutations(range(len(long)))))
        if not draw(st.booleans()) or tuple([long[a] for a in order]) != long:
            return x
        return build.permute(x, order)

    def tree(depth: int) -> UOp:
        if not depth:
            return leaf()
        value = build.elementwise(draw(st.sampled_from([ops.ADD, ops.MUL, ops.MAX])),
                                  tree(depth - 1), tree(depth - 1)) if draw(st.booleans()) else \
            build.neg(tree(depth - 1))
        if draw(st.booleans()):
            at = draw(st.integers(0, len(long)))
            value = build.reshape(build.neg(build.reshape(
                value, (*long[:at], 1, *long[at:]))), long)
        return back(value)
    order = draw(st.permutations(range(len(long))))
    return build.function([build.permute(tree(draw(st.integers(1, 3))), order)], 2)


@given(trees())
def test_means_the_same(fn: UOp) -> None:
    rng = np.random.default_rng(0)
    values = {n: rng.normal(size=n.shape).astype("f")
              for n in toposort(fn.src) if n.op is ops.PARAM}
    after = elementwise_before_permute(fn)
    one, two = (interp.evaluate(f.src, values)[0] for f in (fn, after))
    assert one.tobytes() == two.tobytes()
    assert elementwise_before_permute(after) is after


@given(st.integers(2, 40), st.integers(2, 9))
def test_the_hessian_of_a_linear_model_reads_its_rows(n: int, d: int) -> None:
    rng = np.random.default_rng(n)
    x, y = jnp.array(rng.normal(size=(n, d)), "float32"), jnp.array(rng.normal(size=n), "float32")
    w = jnp.array(rng.normal(size=d), "float32")

    def loss(w):
        z = x @ w
        return jnp.mean(jnp.logaddexp(0.0, z) - y * z)
    z = np.asarray(x, "float64") @ np.asarray(w, "float64")
    s = 1 / (1 + np.exp(-z))
    wanted = np.asarray(x, "float64").T * (s * (1 - s)) @ np.asarray(x, "float64") / n
    np.testing.assert_allclose(fnx.jit(fnx.hessian(loss))(w), wanted, rtol=2e-4, atol=1e-5)
