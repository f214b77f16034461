"""Products of few rows are split along k, into a sum over chunks (tensor/split_reduction.py)."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build as b
from fnx.core.ir import dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels.interp import evaluate
from fnx.core.support.target import Target
from fnx.lower.analysis.workload import two_factors
from fnx.lower.pipeline import lower
from fnx.lower.tensor.split_k import split_k
from fnx.lower.tensor.split_reduction import split_reduction

COMPILED = True
SMALL = Target("interp", kind="kernels", l2=256)


def product(m: int, n: int, k: int, flip: tuple[bool, bool], dtype: object = dtypes.float32
            ) -> UOp:
    """x @ w of parameters, each either as it is or transposed."""
    x = b.param(0, dtype, (k, m) if flip[0] else (m, k))
    w = b.param(1, dtype, (n, k) if flip[1] else (k, n))
    x, w = b.permute(x, (1, 0)) if flip[0] else x, w if flip[1] else b.permute(w, (1, 0))
    sides = b.reshape(x, (m, 1, k)), b.reshape(w, (1, n, k))
    return b.reduce(b.mul(*[b.expand(s, (m, n, k)) for s in sides]), ops.ADD, [2])


def split(node: UOp, target: Target = SMALL) -> UOp | None:
    return split_k(node, node.src[0], target)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 300),
       st.tuples(st.booleans(), st.booleans()))
def test_split_products_are_the_products(m: int, n: int, k: int, flip: tuple[bool, bool]) -> None:
    """The values are integers, so sums are exact in any order."""
    node = product(m, n, k, flip)
    whole = b.function([node], 2)
    cut = split_reduction(whole, SMALL)
    draw = np.random.default_rng(0)
    given_ = [draw.integers(-9, 9, p.shape).astype("float32")
              for _, p in sorted(b.params(whole).items())]
    env = dict(zip([p for _, p in sorted(b.params(whole).items())], given_))
    before, after = (evaluate(fn.src, env)[0] for fn in (whole, cut))
    np.testing.assert_array_equal(before, after)


def test_chunks_are_the_first_axis_and_products_as_before() -> None:
    """So partial sums are stored in their layout, by one kernel that is a contraction."""
    found = split(product(4, 300, 512, (False, False)))
    assert found is not None
    chunks = found.src[0]
    assert chunks.shape == (8, 4, 300) and found.arg.axes == (0,)
    assert chunks.src[0].op is ops.MUL
    block = lower(b.function([found], 2), SMALL).block
    kernels = [command.src[0] for command in block.commands.src]
    assert [k.arg.name for k in kernels] == ["contract_mul", "reduce"]
    inner = next(n for n in kernels[0].src[0].src if n.op is ops.REDUCE)
    assert two_factors(inner, lambda n: n.ranges, frozenset(inner.src[1:])) is not None


def test_what_is_left_of_a_length_that_divides_nothing_is_added() -> None:
    found = split(product(1, 300, 521, (False, False)))
    assert found is not None and found.op is ops.ADD
    assert sorted(s.src[0].shape[-1] for s in found.src) == [9, 300]


def test_what_is_read_as_it_lies_stays() -> None:
    stays = [product(4, 300, 512, (False, True)),   # the sum is along rows
             product(4, 1, 512, (False, False)), product(200, 300, 5120, (False, False)),
             product(4, 300, 60, (False, False)),
             product(4, 300, 512, (False, False), dtypes.int32)]
    assert [split(node) for node in stays] == [None] * len(stays)
    within = SMALL.replace(l2=1 << 20)
    of_groups = SMALL.replace(threads=256)
    for target in (within, of_groups):
        assert split(product(4, 300, 512, (False, False)), target) is None


def test_long_sums_across_the_rows_of_both_factors_are_split() -> None:
    """A weight gradient over steps and a batch is: of each chunk both factors stay in the cache."""
    target = Target("interp", kind="kernels", l1=1 << 12, l2=1 << 18)
    x, g = (b.param(i, dtypes.float32, (12, 300, n)) for i, n in enumerate((32, 48)))
    sides = [b.expand(b.reshape(b.permute(side, (2, 0, 1)), shape), (32, 48, 12, 300))
             for side, shape in ((x, (32, 1, 12, 300)), (g, (1, 48, 12, 300)))]
    node = b.reduce(b.mul(*sides), ops.ADD, [2, 3])
    cut = split(node, target)
    assert cut is not None
    chunks = cut.src[0]
    assert chunks.shape[1:] == (32, 48) and chunks.src[0].op is ops.MUL
    draw = np.random.default_rng(0)
    values = [draw.integers(-9, 9, p.shape).astype("float32") for p in (x, g)]
    before, after = (evaluate([n], dict(zip((x, g), values)))[0] for n in (node, cut))
    np.testing.assert_array_equal(before, after)
    assert split(product(128, 128, 1000, (True, False)), Target("cpu")) is None
    assert split(product(128, 128, 5000, (False, False)), Target("cpu")) is None


def test_derivatives_of_split_products() -> None:
    """On a machine whose second-level cache is smaller than the operands."""
    draw = np.random.default_rng(1)
    x, w = (draw.integers(-1, 2, s).astype("float32") for s in ((3, 700), (700, 500)))
    y = x @ w
    for f in (fnx.grad(lambda x, w: ((x @ w) ** 2).sum(), (0, 1)),
              fnx.jit(fnx.grad(lambda x, w: ((x @ w) ** 2).sum(), (0, 1)))):
        dx, dw = f(jnp.asarray(x), jnp.asarray(w))
        np.testing.assert_array_equal(dx, 2 * y @ w.T)
        np.testing.assert_array_equal(dw, x.T @ (2 * y))


def test_chunks_of_whole_rows_need_no_division() -> None:
    """A long sum of a value that is computed of rows reads these by row and column."""
    x = np.ones((2000, 16), np.float32)
    lowered = fnx.jit(lambda x: jnp.concatenate([x, jnp.tanh(x)], -1).sum()).lower(x)
    assert "//" not in lowered.text("kernels") and "%" not in lowered.text("kernels")
    np.testing.assert_allclose(lowered.compile()(x), 2000 * 16 * (1 + np.tanh(1)), rtol=1e-5)


def test_chunks_of_a_long_sum_of_products_are_products() -> None:
    """So that fusion sees a contraction: what its factors are made of is computed once."""
    node = product(16, 4, 2000, (True, True))
    cut, = split_reduction(b.function([node], 2), Target("cpu")).src
    chunks = cut.src[0]
    assert chunks.shape == (16, 4, 25) and chunks.src[0].op is ops.MUL

    def f(p: jnp.ndarray, x: jnp.ndarray) -> jnp.ndarray:
        return jnp.tanh(p + p.std(0)).T @ x
    made = lower(fnx.jit(f).lower(jnp.ones((2000, 16)), jnp.ones((2000, 4))).graph, Target("cpu"))
    names = [command.src[0].arg.name for command in made.block.commands.src]
    assert any(name.startswith("contract") for name in names)
