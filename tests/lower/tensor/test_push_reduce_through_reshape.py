"""Reductions over joined axes are over the axes that were joined, with the same values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build as b
from fnx.core.ir import dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp import evaluate
from fnx.lower.tensor.push_reduce_through_reshape import push_reduce_through_reshape

COMPILED = True


@settings(deadline=None)
@given(st.data())
def test_values_stay(data: st.DataObject) -> None:
    """Of any permuted array, reshaped in any way, with elementwise work and any reduced axes; the
    values are integers, so sums are exact in any order."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    x = b.permute(b.param(0, dtypes.float32, shape),
                  tuple(data.draw(st.permutations(range(len(shape))))))
    total, joined = math.prod(shape), list[int]()
    while total > 1:
        joined.append(data.draw(st.sampled_from([d for d in range(1, total + 1)
                                                 if total % d == 0])))
        total //= joined[-1]
    y = b.reshape(x, tuple(joined))
    y = data.draw(st.sampled_from([y, b.mul(y, y), b.add(b.neg(y), b.const_like(y, 2.0))]))
    axes = data.draw(st.sets(st.integers(0, len(joined) - 1))) if joined else set()
    node = b.reduce(y, data.draw(st.sampled_from([ops.ADD, ops.MAX])), sorted(axes))
    fn = b.function([node], 1)
    values = np.arange(math.prod(shape), dtype="f").reshape(shape)
    given_ = {n: values for n in toposort(fn.src) if n.op is ops.PARAM}
    before, after = (evaluate(f.src, given_)[0] for f in (fn, push_reduce_through_reshape(fn)))
    np.testing.assert_array_equal(before, after)


def squares(x: UOp, shape: ops.Shape) -> UOp:
    joined = b.reshape(x, shape)
    return b.reduce(b.mul(joined, joined), ops.ADD, [1])


def test_what_is_left_alone() -> None:
    x = b.param(0, dtypes.float32, (6, 4, 5))
    transposed = b.permute(x, (0, 2, 1))
    stays = [squares(x, (6, 20)),                          # as it lies in memory
             squares(transposed, (15, 8)),                     # splits an axis, too
             b.reduce(b.exp(b.reshape(transposed, (6, 20))), ops.ADD, [1]),  # others may need it
             b.reduce(b.reshape(transposed, (6, 20)), ops.ADD, [0])]         # of single axes
    for node in stays:
        assert push_reduce_through_reshape(b.function([node], 1)).src[0] is node
    moved, = push_reduce_through_reshape(b.function([squares(transposed, (6, 20))], 1)).src
    assert moved.src[0].src[0] is transposed


@pytest.mark.parametrize("n", [65, 100])
def test_norms_of_the_gradients_of_a_batch_take_no_division(n: int) -> None:
    def norms(a: jnp.ndarray, d: jnp.ndarray) -> jnp.ndarray:
        gradients = (a[:, :, None] * d[:, None]).transpose(0, 2, 1)
        return (gradients.reshape(n, -1) ** 2).sum(-1)
    a, d = (np.random.default_rng(i).standard_normal((n, 7)).astype("f") for i in range(2))
    lowered = fnx.jit(norms).lower(a, d)
    assert "//" not in lowered.text("groups") and "%" not in lowered.text("groups")
    wanted = ((a[:, :, None] * d[:, None]) ** 2).sum((1, 2))
    np.testing.assert_allclose(fnx.jit(norms)(a, d), wanted, rtol=1e-5)


def test_constants_keep_their_values() -> None:
    x = np.arange(48, dtype="f").reshape(2, 4, 6)
    f = fnx.jit(lambda x: (x.transpose(0, 2, 1).reshape(2, -1) * 2.5 - 1.5).sum(1))
    np.testing.assert_allclose(f(x), (x * 2.5 - 1.5).sum((1, 2)), rtol=1e-6)
