"""Which nodes share a kernel, and that the kernels compute the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.core.ir import build as b
from fnx.core.ir import dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp import apply
from fnx.core.support.target import Target
from fnx.lower.fusion import group, varying_axes
from fnx.lower.fusion.kernelize import Fusion
from fnx.lower.tensor.inline import inline
from fnx.lower.tensor.simplify import simplify
from fnx.lower.tensor.split_reduction import split_reduction
from tests.lower.steps import run_steps, steps_of

f32, i32 = dtypes.float32, dtypes.int32


def p(slot: int, *shape: int, dtype: dtypes.DType = f32) -> UOp:
    return b.param(slot, dtype, shape)


def matmul(x: UOp, w: UOp) -> UOp:
    m, k, n = *x.shape, w.shape[1]
    left = b.expand(b.reshape(x, (m, k, 1)), (m, k, n))
    right = b.expand(b.reshape(w, (1, k, n)), (m, k, n))
    return b.reduce(b.mul(left, right), ops.ADD, [1])


def keep(x: UOp, shape: ops.Shape) -> UOp:
    return b.expand(b.reshape(x, (*x.shape, 1)), shape)


def softmax(z: UOp) -> UOp:
    e = b.exp(b.sub(z, keep(b.reduce(z, ops.MAX, [1]), z.shape)))
    return b.div(e, keep(b.reduce(e, ops.ADD, [1]), z.shape))


def relu(x: UOp) -> UOp:
    return b.where(b.le(x, b.const_like(x, 0)), b.const_like(x, 0), x)


def mean(x: UOp) -> UOp:
    total = b.reduce(x, ops.ADD, [1])
    return keep(b.mul(total, b.const_like(total, 1 / x.shape[1])), x.shape)


def layer_norm(x: UOp) -> UOp:
    d = b.sub(x, mean(x))
    return b.div(d, b.sqrt(b.add(mean(b.mul(d, d)), b.const_like(d, 1e-5))))


def fn(*outs: UOp, n: int = 5) -> UOp:
    return b.function(outs, n)


X, W, B = p(0, 5, 7), p(1, 7, 6), p(2, 6)
Z = b.add(matmul(X, W), b.expand(B, (5, 6)))
W2 = p(3, 6, 4)

# graph -> number of kernels
CASES: dict[str, tuple[UOp, int]] = {
    "elementwise": (fn(b.mul(b.exp(X), X)), 1),
    "matmul with epilogue": (fn(relu(Z)), 1),
    "softmax of a matmul": (fn(softmax(Z)), 2),
    "two layers": (fn(matmul(relu(Z), W2)), 2),
    "softmax": (fn(softmax(X)), 1),
    "layer norm": (fn(layer_norm(X)), 1),
    "several outputs of one nest": (fn(b.add(X, X), b.mul(b.add(X, X), X)), 1),
    "optimizer on a gradient": (fn(b.sub(W2, matmul(b.permute(Z, (1, 0)), p(4, 5, 4))),
                                   b.mul(matmul(b.permute(Z, (1, 0)), p(4, 5, 4)), W2)), 2),
    "row and column sums": (fn(b.reduce(X, ops.ADD, [0]), b.reduce(X, ops.ADD, [1])), 2),
    "cheap value read twice": (fn(b.reduce(b.add(X, X), ops.ADD, [0]),
                                  b.reduce(b.add(X, X), ops.ADD, [1])), 2),
    "sum of a softmax": (fn(b.reduce(softmax(X), ops.ADD, [0, 1])), 2),
    "a product with folds of rows, summed over rows": (fn(b.reduce(b.mul(X, keep(b.exp(
        b.reduce(b.mul(X, X), ops.ADD, [1])), (5, 7))), ops.ADD, [0])), 2),
    "transposed": (fn(b.permute(b.exp(X), (1, 0))), 1),
    "flipped, shrunk, padded": (fn(b.pad(b.shrink(b.flip(b.exp(X), [1]), [(1, 4), (0, 5)]),
                                         [(1, 0), (2, 3)], 1.5)), 1),
    "concatenated": (fn(b.concat([X, b.neg(X), p(1, 7, 7)], 0)), 1),
    "merged axes": (fn(b.add(b.reshape(b.exp(X), (35,)), p(1, 35))), 2),
    "reshaped counter": (fn(b.add(X, b.expand(b.reshape(b.cast(b.iota(5), f32), (5, 1)),
                                              (5, 7)))), 1),
    "constant": (fn(b.const(3.0, f32, (2, 3)), b.iota(4)), 2),
}


def data(function: UOp, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {0: (5, 7), 1: (7, 6), 2: (6,), 3: (6, 4), 4: (5, 4)}
    for node in toposort(function.src):
        if node.op is ops.PARAM:
            shapes[node.arg.slot] = node.shape
    return [rng.standard_normal(shapes[i]).astype("float32") for i in range(5)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fixed_lengths", [None, frozenset(), frozenset({4, 8})])
def test_kernels_compute_the_graph(name: str, fixed_lengths: frozenset[int] | None) -> None:
    function, _ = CASES[name]
    args = data(function)
    for got, want in zip(run_steps(function, args, fixed_lengths=fixed_lengths),
                         apply(function, args)):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_number_of_kernels(name: str) -> None:
    function, count = CASES[name]
    assert len(steps_of(function)) == count


def test_rows_of_columns_have_their_loops_outside_of_the_others() -> None:
    """before: softmax over axis 1, of 6 nodes; after: i, j around the reductions over k."""
    x = p(0, 3, 4, 5)
    e = b.exp(b.sub(x, b.expand(b.reshape(b.reduce(x, ops.MAX, [1]), (3, 1, 5)), x.shape)))
    step, = steps_of(fn(b.div(e, b.expand(b.reshape(b.reduce(e, ops.ADD, [1]), (3, 1, 5)),
                                          x.shape)), n=1))

    i, k, j, largest, total = map(b.range_, (3, 4, 5, 4, 4), range(5))
    read, write = (b.ref(slot, f32, (3, 4, 5)) for slot in (0, 1))
    most = b.reduce_ranges(b.load(b.index_into(read, i, largest, j)), ops.MAX, [largest])
    power = b.exp(b.sub(b.load(b.index_into(read, i, total, j)), most))
    row = b.load(b.index_into(b.stage(power, [total], 0), k))
    value = b.div(row, b.reduce_ranges(power, ops.ADD, [total]))
    kernel, = step.graphs
    assert kernel is b.kernel([b.store(b.index_into(write, i, k, j), value)], "rows_div_exp_sub",
                              (0, 2, 1, 3, 4))


def test_differences_from_a_statistic_are_computed_again_and_not_kept() -> None:
    """x - max is read twice, but cheap; a STAGE would be for its exponential."""
    def stages(function: UOp) -> int:
        kernel, = [k for step in steps_of(function) for k in step.graphs]
        return sum(n.op is ops.STAGE for n in toposort(kernel.src))

    d = b.sub(X, keep(b.reduce(X, ops.MAX, [1]), X.shape))
    total = b.reduce(b.exp(d), ops.ADD, [1])
    assert stages(fn(b.sub(d, keep(b.log(total), X.shape)))) == 0
    assert stages(fn(softmax(X))) == 1


def test_equal_layers_are_one_kernel() -> None:
    x = p(0, 8, 16)
    for _ in range(10):
        x = b.exp(b.neg(layer_norm(x)))
        x = b.barrier(x)
        x = b.flip(x, [0])  # not read at its own index: a buffer between layers
    kernels = {s.kernel for s in steps_of(fn(x))}
    assert len(kernels) <= 3


def test_scatter_combines_in_index_order() -> None:
    index, updates = p(0, 9, dtype=i32), p(1, 9, 3)
    rng = np.random.default_rng(1)
    args = [rng.integers(-1, 6, 9).astype("int32"), rng.standard_normal((9, 3)).astype("f4")]
    for monoid in (None, ops.ADD, ops.MUL, ops.MIN, ops.MAX):
        function = fn(b.scatter(b.const(0.5, f32, (4, 3)), [index], updates, monoid), n=2)
        got, = run_steps(function, args)
        np.testing.assert_allclose(got, apply(function, args)[0], rtol=1e-6)


def test_scatter_of_constants_runs_every_iteration() -> None:
    """Nothing in the store depends on the loop, which must still run seven times."""
    index, updates = b.const(2, i32, (7,)), b.const(3, i32, (7,))
    function = fn(b.scatter(p(0, 4, dtype=i32), [index], updates, ops.MUL), n=1)
    args = [np.array([1, 1, 1, 1], "int32")]
    np.testing.assert_array_equal(run_steps(function, args)[0], apply(function, args)[0])


def test_gather_reads_a_buffer_through_data() -> None:
    x, i = p(0, 6, 4), p(1, 2, 3, dtype=i32)
    function = fn(b.mul(b.gather(b.exp(x), i), b.gather(b.exp(x), i)), n=2)
    args = [np.ones((6, 4), "f4"), np.array([[0, 5, -3], [9, 2, 2]], "i4")]
    np.testing.assert_allclose(run_steps(function, args)[0], apply(function, args)[0])


def test_a_cycle_between_groups_is_never_made() -> None:
    """y, s(y) and y + s(y): the sum must run between two kernels with the same iteration space."""
    y = b.exp(X)
    total = b.reduce(y, ops.ADD, [0])
    z = b.div(y, b.expand(total, y.shape))
    function = fn(z, b.reduce(z, ops.MAX, [0]), b.add(y, z))
    args = data(function)
    for got, want in zip(run_steps(function, args), apply(function, args)):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_long_chains_across_rows_are_cut() -> None:
    """Sums of columns over many rows run in chunks, so that rounding errors do not accumulate."""
    x = p(0, 20_000, 70)
    cut = split_reduction(fn(b.reduce(x, ops.ADD, [0]), n=1), Target("cpu"))
    assert [s.writes[0].shape for s in steps_of(cut)] == [(50, 70), (70,)]
    rows = p(0, 70, 20_000)
    assert split_reduction(fn(b.reduce(rows, ops.ADD, [1]), n=1),
                           Target("cpu")).src[0].src[0] is rows


def mixed(values: list[UOp], rounds: int) -> list[UOp]:
    """The given number of rounds of arithmetic, in each of which every value needs its neighbor."""
    for _ in range(rounds):
        values = [b.maximum(b.mul(x, b.add(x, y)), b.const_like(x, -1))
                  for x, y in zip(values, [*values[1:], values[0]])]
    return values


def between(function: UOp) -> tuple[Fusion, list[UOp]]:
    """Return the groups of a FUNCTION, and the values that pass between them."""
    fusion = Fusion(function).run()
    return fusion, [n for g in fusion.groups for n, _ in g.roots if n not in function.src]


@settings(max_examples=15)
@given(st.integers(2, 30), st.integers(1, 40))
def test_large_formulas_are_cut_where_that_takes_a_tenth_of_their_time_at_most(
        width: int, rounds: int) -> None:
    x = b.param(0, f32, (50,))
    start = [b.exp(b.mul(x, b.const_like(x, i))) for i in range(width)]
    fusion, crossing = between(fn(functools.reduce(b.maximum, mixed(start, rounds)), n=1))
    work = sum(g.work for g in fusion.groups)
    # duplicated cheap values
    assert max(g.work for g in fusion.groups) <= group.WORK_LIMIT + 24 * width
    assert len(crossing) * group.WORK_PER_VALUE <= work or work > group.WORK_LIMIT


def test_derivatives_of_a_large_formula_are_few_kernels_of_few_intermediates() -> None:
    """A kernel at its size limit must not store all masks of erfc for the next one to read."""
    def price(s: Array, k: Array, t: Array, vol: Array) -> Array:
        d1 = (jnp.log(s / k) + 0.5 * vol ** 2 * t) / (vol * jnp.sqrt(t))
        cdf = fnx.scipy.stats.norm.cdf
        return s * cdf(d1) - k * cdf(d1 - vol * jnp.sqrt(t))
    each = fnx.vmap(fnx.value_and_grad(price, (0, 2, 3)))
    gamma = fnx.vmap(fnx.grad(fnx.grad(price)))
    x = fnx.ShapeDtypeStruct((1000,), "float32")
    stages = fnx.jit(lambda *a: (each(*a), gamma(*a))).lower(x, x, x, x)
    assert len(stages.kernels) <= 2 and stages.arena <= 3 * 4 * 1000


_SAME_PLACE: dict[str, Callable[[Array], Array]] = {
    "one value": lambda k: jnp.broadcast_to(k[0], (4,)),
    "a place of a constant": lambda k: k[jnp.zeros(4, "int32")],
    "a place of a place": lambda k: k[k[jnp.zeros(4, "int32")] - 3],
    "taken": lambda k: jnp.take(k, jnp.zeros(4, "int32") + (k[1] - 4)),
    "a condition that holds": lambda k: k[jnp.where(jnp.arange(4) < 100, k[0] - 3, k[1])],
    "a quotient": lambda k: k[jnp.arange(4) // 10],
    "joined": lambda k: jnp.concatenate([k[:1]] * 4),
    "searched": lambda k: jnp.searchsorted(k, jnp.zeros(4, "int32") + k[1]),
}


@pytest.mark.cases(20)
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "everything varies"])
@pytest.mark.parametrize("combine", ["add", "multiply", "max"])
@pytest.mark.parametrize("form", _SAME_PLACE)
def test_updates_that_all_go_to_one_place_are_all_combined(
        form: str, combine: str, exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing depends on the range over the updates, yet each update counts."""
    # rated as varying, though uniform: the kernel must not rely on it
    if not exact:
        monkeypatch.delitem(varying_axes._VARY_RULES, ops.GATHER)
    index, k = _SAME_PLACE[form], np.array([3, 4], np.int32)
    base = 3 if exact else 5  # another program, so that no cache hits
    want = np.full(12, base, np.int32)
    ufunc = {"add": np.add, "multiply": np.multiply, "max": np.maximum}[combine]
    ufunc.at(want, np.asarray(index(jnp.asarray(k))), 2)

    def counted(k: Array) -> Array:
        return getattr(jnp.full(12, base, "int32").at[index(k)], combine)(2)

    np.testing.assert_array_equal(np.asarray(fnx.jit(counted)(k)), want)


NARROW = ["bfloat16", "float16", "float8_e4m3fn", "int8"]
BETWEEN: dict[str, Callable[[Array], Array]] = {
    "nothing": lambda h: h, "elementwise": lambda h: jnp.where(h <= 0, h - h, h + h),
    "transposed": lambda h: h.swapaxes(-1, -2), "reshaped": lambda h: h[..., None, :].reshape(
        h.shape), "padded": lambda h: jnp.pad(h, ((0, 0),) * (h.ndim - 1) + ((1, 2),))[..., 2:-1],
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("dtype", NARROW)
def test_what_crosses_memory_is_narrow(dtype: str, batch: tuple[int, ...], between: str) -> None:
    """Kernels are cut before widening conversions: the second product reads the rounded values."""
    wide = "int32" if dtype == "int8" else "float32"

    def dot(a: Array, b: Array) -> Array:
        return jnp.matmul(a, b, preferred_element_type=wide)

    def two(x: Array, a: Array, b: Array) -> Array:
        return dot(BETWEEN[between](dot(x, a).astype(dtype)), b)
    struct = fnx.ShapeDtypeStruct((*batch, 8, 8), dtype)
    groups, values = boundaries(two, [struct] * 3)
    assert groups == len(values) + 1 and {v.dtype.name for v in values} == {dtype}


def test_what_several_kernels_read_is_rounded_before() -> None:
    def f(x: Array, a: Array, b: Array) -> tuple[Array, Array]:
        h = x @ a
        return h @ b, h.astype("float32").sum(0)
    struct = fnx.ShapeDtypeStruct((8, 8), "bfloat16")
    _, values = boundaries(f, [struct] * 3)
    assert [v.dtype for v in values] == [dtypes.bfloat16]


def boundaries(f: Callable[..., object], args: list[fnx.ShapeDtypeStruct]) -> tuple[int, list[UOp]]:
    """Return the number of kernels of a function, and the intermediates that they write."""
    graph = simplify(inline(fnx.make_jaxpr(f)(*args).function))
    groups = Fusion(graph).run().groups
    return len(groups), [n for g in groups for n, _ in g.roots if n not in graph.src]


def test_all_equal_rows_of_a_result_are_written() -> None:
    """A sum that is equal along an axis is computed once, and written for all of the axis."""
    def f(u: Array, v: Array) -> tuple[Array, Array]:
        sums = (v[None] * jnp.ones((4, 1, 1))).sum(2)
        return sums.T @ u, sums
    u, v = np.arange(8.0).reshape(4, 2), np.arange(4.0).reshape(2, 2)
    product, sums = fnx.jit(f)(u, v)
    np.testing.assert_array_equal(sums, np.tile(v.sum(1), (4, 1)))
    np.testing.assert_array_equal(product, np.asarray(sums).T @ u)


def test_a_small_reduction_does_not_make_a_kernel_run_along_columns() -> None:
    """The sum of few rows, added to many: it has a kernel of its own, the others go by rows."""
    lowering = fnx.jit(lambda x, w: x + jnp.sin(w).sum(0)).lower(
        jnp.ones((500, 64)), jnp.ones((30, 64)))
    assert len(list(lowering.kernels)) == 2


def test_a_reduction_of_rows_is_no_part_of_a_kernel_that_reads_them_transposed() -> None:
    """Its lanes go along what it sums, those of the kernel along its results."""
    x = jnp.ones((512, 64))
    lowering = fnx.jit(lambda x: (x.T - x.T.mean(0)) * 2).lower(x)
    assert len(list(lowering.kernels)) == 2


def test_what_is_written_into_zeros_has_one_condition() -> None:
    kernel, = fnx.jit(lambda x: jnp.zeros((9, 8)).at[1:].add(x)).lower(jnp.ones((8, 8))).kernels
    assert sum(n.op is ops.WHERE for n in toposort([kernel.node])) == 1


def test_positions_are_compared_where_that_is_read() -> None:
    """A comparison of counters takes no longer than to read it from memory."""
    def f(x: fnx.Array) -> fnx.Array:
        i = jnp.arange(300)
        return jnp.where(i < i[:, None], x[:, None], 0).max(-1)
    assert len(fnx.jit(f).lower(jnp.ones((200, 300))).kernels) == 1
