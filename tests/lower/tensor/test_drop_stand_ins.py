"""Operands are not replaced under the condition of a selection: where it holds, and where not."""

from __future__ import annotations

import random

import numpy as np
import pytest

import fnx
import fnx.lax
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp import evaluate
from fnx.core.support.config import override
from fnx.lower.tensor.drop_stand_ins import drop_stand_ins

F, B = dtypes.float32, dtypes.bool_
X, Y = build.param(0, F, (4, 4)), build.param(1, F, (4, 4))
M, N = build.param(2, B, (4,)), build.param(3, B, (4, 4))


def rows(mask: UOp) -> UOp:
    return build.expand(build.reshape(mask, (4, 1)), (4, 4))


def dropped(*outs: UOp) -> tuple[UOp, ...]:
    return drop_stand_ins(build.function(outs, 4)).src


def expensive(x: UOp) -> UOp:
    return build.exp(build.elementwise(ops.SIN, x))


@pytest.mark.parametrize("mask", [N, rows(M)], ids=["elements", "rows"])
def test_dropped(mask: UOp) -> None:
    other = build.neg(Y)
    safe = build.where(mask, X, other)
    assert dropped(build.where(mask, expensive(safe), Y)) == (build.where(mask, expensive(X), Y),)
    # where the condition does not hold
    assert dropped(build.where(mask, Y, expensive(safe))) == \
        (build.where(mask, Y, expensive(other)),)
    no = build.logical_not(mask)
    assert dropped(build.where(no, Y, expensive(safe))) == (build.where(no, Y, expensive(X)),)
    # under a conjunction
    positive = build.lt(build.const_like(X, 0), safe)
    assert dropped(build.and_(mask, positive)) == \
        (build.and_(mask, build.lt(build.const_like(X, 0), X)),)


def test_rows_pass_what_keeps_them() -> None:
    mask, safe = rows(M), build.where(rows(M), X, build.neg(Y))
    half = build.concat([build.shrink(safe, [(0, 4), (2, 4)]),
                         build.flip(build.shrink(safe, [(0, 4), (0, 2)]), (1,))], 1)
    assert safe not in toposort(dropped(build.where(mask, half, Y)))
    total = build.reduce(safe, ops.ADD, [1])
    y = build.reduce(Y, ops.MAX, [1])
    assert dropped(build.where(M, total, y)) == (build.where(M, build.reduce(X, ops.ADD, [1]), y),)


def test_rows_pass_a_gather_that_reads_its_own_row() -> None:
    safe, other = build.where(rows(M), X, build.neg(Y)), build.reduce(Y, ops.MAX, [1])
    index = build.cast(other, dtypes.int32)
    read = build.gather(safe, build.stop_gradient(build.iota(4)), index)
    assert dropped(build.where(M, read, other)) == \
        (build.where(M, build.gather(X, build.stop_gradient(build.iota(4)), index), other),)
    for row in (index, build.flip(build.iota(4), (0,))):
        read = build.gather(safe, row, index)
        assert safe in toposort(dropped(build.where(M, read, other)))


@pytest.mark.parametrize("move", [
    lambda x: build.permute(x, (1, 0)), lambda x: build.flip(x, (0,)),
    lambda x: build.concat([build.shrink(x, [(1, 4), (0, 4)]), build.shrink(x, [(0, 1), (0, 4)])],
                           0),
    lambda x: build.expand(build.reshape(build.reduce(x, ops.ADD, [0]), (1, 4)), (4, 4))])
def test_rows_that_move_keep_theirs(move: object) -> None:
    safe = build.where(rows(M), X, build.neg(Y))
    out = build.where(rows(M), move(safe), Y)  # type: ignore[operator]
    assert dropped(out) == (out,)


def test_what_is_needed_besides_stays_as_it_is() -> None:
    safe = build.where(N, X, build.neg(Y))
    out = build.where(N, expensive(safe), Y)
    assert dropped(out, expensive(safe)) == (out, expensive(safe))  # else it is computed twice


def test_a_presence_holds_where_the_mask_does() -> None:
    found = build.expand(build.reshape(build.reduce(N, ops.OR, [0, 1]), (1, 1)), (4, 4))
    out = build.where(N, build.where(found, X, Y), build.neg(X))
    assert dropped(out) == dropped(build.where(N, X, build.neg(X)))


def drawn(rng: random.Random, size: int) -> UOp:
    """Return a graph of selections with a few masks, among ops that keep or move rows."""
    masks = [N, rows(M), build.logical_not(N), build.and_(N, rows(M)), build.or_(N, rows(M)),
             rows(build.logical_not(M)), build.permute(N, (1, 0))]
    values = [X, Y]
    for _ in range(size):
        a, b = (rng.choice(values[-4:]) for _ in range(2))
        kind = rng.randrange(8)
        if kind < 4:
            mask = rng.choice(masks)
            if kind == 3:
                mask = build.and_(mask, build.lt(a, b))
                masks.append(mask)
            values.append(build.where(mask, a, b))
        elif kind == 4:
            values.append(rng.choice([build.add, build.mul, build.sub])(a, b))
        elif kind == 5:
            values.append(build.elementwise(rng.choice([ops.NEG, ops.ABS]), a))
        elif kind == 6:
            values.append(rng.choice([lambda x: build.permute(x, (1, 0)),
                                      lambda x: build.flip(x, (0,)),
                                      lambda x: build.flip(x, (1,))])(a))
        else:
            axis = rng.randrange(2)
            total = build.reduce(a, ops.MAX, [axis])
            shape = (1, 4) if axis == 0 else (4, 1)
            values.append(build.expand(build.reshape(total, shape), (4, 4)))
    return build.function(values[-2:], 4)


def test_rows_of_nested_batches_pass_a_gather() -> None:
    """Lanes of two vmaps each read their own row at an index of their own."""
    def walk(table: fnx.Array, at: fnx.Array) -> fnx.Array:
        return fnx.lax.while_loop(lambda i: table[i] > 0, lambda i: table[i], at)
    below = np.random.default_rng(0).random((2, 3, 50)) * np.arange(50)  # so walks end
    table, at = jnp.asarray(below.astype(np.int32)), jnp.asarray([[9, 20, 30], [45, 48, 49]])
    f = fnx.jit(fnx.vmap(fnx.vmap(walk)))
    text = f.lower(table, at).text("simplified")
    assert "where" not in "".join(line for line in text.splitlines() if "[2, 3, 50]" in line
                                  and "function" not in line)
    with override(device="interp"):
        want = f(table, at)
    np.testing.assert_array_equal(f(table, at), want)


@pytest.mark.parametrize("seed", range(200))
def test_drawn_graphs_have_the_same_values(seed: int) -> None:
    fn = drawn(random.Random(seed), 14)
    numbers = np.random.default_rng(seed)
    known: dict[UOp, np.ndarray] = {  # type: ignore[type-arg]
        X: numbers.standard_normal((4, 4)).astype("float32"),
        Y: numbers.standard_normal((4, 4)).astype("float32"),
        M: numbers.random(4) > 0.5, N: numbers.random((4, 4)) > 0.5}
    for got, want in zip(evaluate(drop_stand_ins(fn).src, known), evaluate(fn.src, known)):
        np.testing.assert_array_equal(got, want)
