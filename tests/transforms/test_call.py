"""call: user-written kernels agree with NumPy on every device and under every schedule."""

from __future__ import annotations

import inspect
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import (
    ArgumentError,
    DTypeError,
    KernelError,
    MutationError,
    OutOfBoundsError,
)

TILES = {
    "own choice": [],
    "plain": [k.split("m", 3, "io", "i"), k.unroll("i")],
    "8x32": [k.split("m", 8, "io", "i"), k.split("n", 32, "jr", "t"), k.split("t", 16, "j", "l"),
             k.order("io", "jr", "k", "i", "j", "l"), k.parallel("io"), k.unroll("i"),
             k.unroll("j"), k.vectorize("l"), k.stage("x", at="io"),
             k.stage("w", space="GLOBAL")],
}


def matmul_with(schedule: Any) -> Any:
    @fnx.call(out=lambda x, w: fnx.ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype),
              schedule=schedule)
    def matmul(x: Any, w: Any, o: Any) -> None:
        m, n, kk = k.range(o.shape[0], "m"), k.range(o.shape[1], "n"), k.range(x.shape[1], "k")
        o[m, n] = k.sum(x[m, kk] * w[kk, n], over=kk)
    return matmul


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("schedule", TILES.values(), ids=TILES)
@pytest.mark.parametrize("sizes", [(7, 33, 5), (16, 64, 20)], ids=str)
def test_matmul(device: str, schedule: Any, sizes: tuple[int, int, int]) -> None:
    x, w = data(sizes[0], sizes[2]), data(sizes[2], sizes[1], seed=1)
    matmul = matmul_with(schedule)
    np.testing.assert_allclose(matmul(x, w), x @ w, rtol=1e-4, atol=1e-5)
    doubled = fnx.jit(lambda x, w: matmul(x * 2, w) + 1)
    np.testing.assert_allclose(doubled(x, w), x * 2 @ w + 1, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=8)
@given(st.integers(1, 70), st.sampled_from((np.float32, np.float64, np.int32)))
def test_saxpy_of_every_length(n: int, dtype: Any) -> None:
    @fnx.call(out=lambda a, x, y: x)
    def saxpy(a: Any, x: Any, y: Any, o: Any) -> None:
        i = k.range(o.shape[0], "i")
        o[i] = a[()] * x[i] + y[i]
    x, y, a = np.arange(n).astype(dtype), np.ones(n, dtype), np.asarray(3, dtype)
    x, y, a = (jnp.asarray(v, dtype=dtype) for v in (x, y, a))
    for name in ("interp", "cpu"):
        with override(device=name):
            got = np.asarray(saxpy(a, x, y))
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.arange(n) * 3 + 1)


def test_softmax_rows(device: str) -> None:
    @fnx.call(out=lambda x: (x, fnx.ShapeDtypeStruct(x.shape[:1], x.dtype)))
    def softmax(x: Any, o: Any, total: Any) -> None:
        row = k.range(x.shape[0], "row")
        c0, c1, c2 = (k.range(x.shape[1], f"c{i}") for i in range(3))
        e = k.exp(x[row, c1] - k.max(x[row, c0], over=c0))
        kept, s = k.local(e, over=c1), k.sum(e, over=c1)
        o[row, c2] = kept[c2] / s
        total[row] = s
    x = data(5, 37)
    e = np.exp(x - x.max(1, keepdims=True))
    o, total = softmax(x)
    np.testing.assert_allclose(o, e / e.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(total, e.sum(1), rtol=1e-5)


def test_neighbours_conditions_and_casts(device: str) -> None:
    @fnx.call(out=lambda x: fnx.ShapeDtypeStruct(x.shape, "float32"))
    def smooth(x: Any, o: Any) -> None:
        n = x.shape[0]
        i = k.range(n, "i")
        left, right = x.load(i - 1, valid=i > 0), x.load(i + 1, valid=i < n - 1)
        middle = k.where(i % 2 == 0, x[i], -x[i])
        o[i] = left + right + middle + k.cast(i // 3, "float32")
    x = data(21)
    padded, i = np.pad(x, 1), np.arange(21)
    want = padded[:-2] + padded[2:] + np.where(i % 2 == 0, x, -x) + (i // 3)
    np.testing.assert_allclose(smooth(x), want.astype(np.float32), rtol=1e-6, atol=1e-6)


def test_histogram(device: str) -> None:
    @fnx.call(out=lambda x: fnx.ShapeDtypeStruct((4,), "int32"))
    def histogram(x: Any, o: Any) -> None:
        b, i = k.range(4, "b"), k.range(x.shape[0], "i")
        o[b] = 0
        o.combine("add", x[i], 1)
    x = np.array([0, 3, 3, 1, 0, 3], np.int32)
    np.testing.assert_array_equal(histogram(x), [2, 1, 0, 3])


def test_trees_of_operands(device: str) -> None:
    @fnx.call(out=lambda p: {"y": p["w"]})
    def scale(p: Any, o: Any) -> None:
        i = k.range(p["w"].shape[0])
        o["y"][i] = p["w"][i] * p["s"][()]
    got = scale({"w": data(5), "s": 2.0})
    np.testing.assert_array_equal(got["y"], data(5) * np.float32(2))


def test_a_kernel_sees_what_its_globals_are_now() -> None:
    factor = 2.0

    @fnx.call(out=lambda x: x)
    def scale(x: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o[i] = x[i] * factor
    assert scale(jnp.ones(2)).tolist() == [2, 2]
    factor = 3.0
    assert scale(jnp.ones(2)).tolist() == [3, 3]


def test_a_boundary_is_one_call_with_its_name() -> None:
    traces = []

    @fnx.call(name="square")
    def f(x: Any) -> Any:
        traces.append(1)
        return {"y": x * x}
    outer = jnp.asarray([3.0, 4.0])
    g = fnx.jit(lambda x: f(x)["y"] + f(x + 1)["y"])
    np.testing.assert_allclose(g(outer), [25, 41])
    assert len(traces) == 1
    np.testing.assert_allclose(f(outer)["y"], [9, 16])
    np.testing.assert_allclose(fnx.grad(lambda x: jnp.sum(f(x)["y"]))(outer), [6, 8])


def test_boundaries_do_not_mix_up_captures() -> None:
    def run(w: Any) -> Any:
        return fnx.call(lambda x: x * w)(jnp.ones(2))
    g = fnx.jit(lambda a, b: run(a) + 10 * run(b))
    np.testing.assert_array_equal(g(jnp.ones(2), 2 * jnp.ones(2)), [21, 21])


def broken(body: Any, out: Any = lambda x: x, schedule: Any = None) -> Any:
    return fnx.call(body, out=out, schedule=schedule)(jnp.ones((4,)))


def no_store(x: Any, o: Any) -> None:
    k.range(4)


def returns(x: Any, o: Any) -> Any:
    o[k.range(4)] = 1.0
    return 3


def stores_input(x: Any, o: Any) -> None:
    x[k.range(4)] = 1.0


def rank(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = x[i, i]


def outside(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = x[i + 1]


def branch(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = 1.0 if x[i] > 0 else 0.0


def bits_of_a_float(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = x[i] & i


def wrong_dtype(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = k.cast(x[i], "int32")


def whole(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = x + 1.0


def same_name(x: Any, o: Any) -> None:
    k.range(4, "i"), k.range(4, "i")


def float_index(x: Any, o: Any) -> None:
    o[x[0]] = 1.0


def over_number(x: Any, o: Any) -> None:
    o[k.range(4)] = k.sum(x[0], over=3)


def ragged(x: Any, o: Any) -> None:
    i = k.range(4, "i")
    j = k.range(i + 1, "j")
    o[i] = k.sum(x[j], over=j)


def counted(x: Any, o: Any) -> None:
    for _ in range(k.range(4)):
        o[0] = x[0]


def looked_up(x: Any, o: Any) -> None:
    i = k.range(4)
    o[i] = [1.0, 2.0, 3.0, 4.0][i]


def length_of_data(x: Any, o: Any) -> None:
    k.range(k.cast(x[0], "int32"))


def updates(x: Any, o: Any) -> None:
    i = k.range(4, "i")
    o[i] += x[i]


def recurrence(x: Any, o: Any) -> None:
    i = k.range(3, "i")
    o[0] = x[0]
    o[i + 1] = o[i] + x[i + 1]


def forgotten_over(x: Any, o: Any) -> None:
    i, j = k.range(4, "i"), k.range(4, "j")
    o[i] = x[i] * x[j]


def halves(x: Any, o: Any) -> None:
    i = k.range(4, "i")
    o[i // 2] = x[i]


def scattered(x: Any, o: Any) -> None:
    i = k.range(4, "i")
    o[k.cast(x[i], "int32")] = x[i]


def meeting(x: Any, o: Any) -> None:
    i = k.range(4, "i")
    o[i] = 0.0
    o[3 - i] = x[i]


def masked_outside(x: Any, o: Any) -> None:
    i = k.range(4, "i")
    o[i] = x.load(i - 2, valid=i > 0)


def mode_of_combine(x: Any, o: Any) -> None:
    o.combine("subtract", k.range(4), 1.0)


BROKEN = [(no_store, KernelError, "a store to 'o'"), (returns, KernelError, "no return value"),
          (stores_input, MutationError, "'x'"), (rank, OutOfBoundsError, "1 indices, got 2"),
          (outside, OutOfBoundsError, "got 1 to 4"), (branch, KernelError, "a concrete Python"),
          (counted, KernelError, "a concrete Python"),
          (looked_up, KernelError, "a concrete Python"),
          (bits_of_a_float, DTypeError, "expected integers or bools, got float32"),
          (wrong_dtype, DTypeError, "expected float32, got int32"),
          (whole, KernelError, "the whole array 'x'"), (same_name, KernelError, "'i' again"),
          (float_index, KernelError, "expected an index"),
          (over_number, KernelError, "expected ranges in over="),
          (ragged, KernelError, "depends on range 'i'"),
          (length_of_data, KernelError, "depends on data"),
          (updates, KernelError, "a read of an input"), (recurrence, KernelError, "output 'o'"),
          (forgotten_over, KernelError, "each iteration of range 'j'"),
          (halves, KernelError, "two iterations may share"),
          (scattered, KernelError, "two iterations may share"),
          (meeting, KernelError, "elements that overlap"),
          (masked_outside, OutOfBoundsError, "got -2 to 1"),
          (mode_of_combine, KernelError, "one of add, multiply, min, max, and, or, xor, set")]


@pytest.mark.parametrize("body,error,message", BROKEN, ids=[b[0].__name__ for b in BROKEN])
def test_errors_name_the_line(body: Any, error: type[fnx.FnxError], message: str) -> None:
    with pytest.raises(error) as e:
        broken(body)
    assert message in e.value.message
    path, line = e.value.loc
    lines, first = inspect.getsourcelines(body)
    if body not in (no_store, returns):  # those are detected at the end of the kernel
        assert path == __file__ and first <= line < first + len(lines)


def test_errors_outside_of_kernels() -> None:
    with pytest.raises(KernelError, match="called in a kernel"):
        k.range(3)
    with pytest.raises(KernelError, match="something with shape and dtype"):
        broken(whole, out=lambda x: 3)
    with pytest.raises(KernelError, match="expected transforms"):
        broken(whole, schedule=["split"])
    with pytest.raises(ArgumentError, match="only with out="):
        fnx.call(lambda x: x, schedule=[k.unroll("i")])
    with pytest.raises(KernelError, match="one of the ranges 'm', 'n', 'k'"):
        matmul_with([k.split("q", 3)])(data(2, 2), data(2, 2))


@pytest.mark.parametrize("f", [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
def test_numbers_of_numpy_with_values(device: str, f: Any) -> None:
    @fnx.call(out=lambda x: (x, x))
    def both(x: Any, left: Any, right: Any) -> None:
        i = k.range(x.shape[0])
        left[i] = k.cast(f(np.float32(2.5), x[i]), "float32")
        right[i] = k.cast(f(x[i], np.float32(2.5)), "float32")

    x = np.asarray([0.5, 2.5, 3.0], np.float32)
    left, right = both(x)
    np.testing.assert_allclose(left, np.float32(f(np.float32(2.5), x)), rtol=1e-6)
    np.testing.assert_allclose(right, np.float32(f(x, np.float32(2.5))), rtol=1e-6)


def test_zero_sizes(device: str) -> None:
    assert matmul_with([])(data(0, 4), data(4, 3)).shape == (0, 3)
    np.testing.assert_array_equal(matmul_with([])(data(2, 0), data(0, 3)), np.zeros((2, 3)))


def test_a_boundary_is_traced_anew_under_another_configuration() -> None:
    f = fnx.call(lambda x: x * jnp.arange(3.0))
    x = jnp.ones(3)
    assert f(x).dtype == np.float32
    with override(x64=True):
        assert f(x).dtype == np.float64
    assert f(x).dtype == np.float32


# ---- indices ------------------------------------------------------------------------------------


def test_messages_are_as_they_were(golden: Any) -> None:
    lines = []
    for body, error, _ in BROKEN:
        with pytest.raises(error) as e:
            broken(body)
        lines.append(f"{body.__name__}: {e.value.message}\n    {e.value.hint}")
    golden("messages/kernels.txt", "\n".join(lines) + "\n")


def test_a_second_shape_is_traced_anew(device: str) -> None:
    @fnx.call(out=lambda x: x)
    def running(x: Any, o: Any) -> None:
        i, j = k.range(x.shape[0]), k.range(x.shape[0])
        o[i] = k.sum(k.where(j <= i, x[j], 0.0), over=j)
    for n in (3, 7, 1):
        np.testing.assert_allclose(running(data(n)), np.cumsum(data(n)), rtol=1e-5)


def test_an_index_that_is_data_stays_inside(device: str) -> None:
    at = np.array([0, 10**6, -10**6, 3], np.int32)

    @fnx.call(out=lambda x, at: (fnx.ShapeDtypeStruct(at.shape, x.dtype), x))
    def move(x: Any, at: Any, o: Any, total: Any) -> None:
        i, p = k.range(at.shape[0]), k.range(x.shape[0])
        o[i] = x[at[i]]
        total[p] = 0.0
        total.combine("add", at[i], 1.0)
    x = data(4)
    o, total = move(x, at)
    np.testing.assert_array_equal(o, x[[0, 3, 0, 3]])  # reads are clamped
    np.testing.assert_array_equal(total, [1, 0, 0, 1])  # out-of-bounds writes are dropped


def test_an_index_that_is_known_to_be_inside_is_not_clamped() -> None:
    def loads(read: Any) -> str:
        def body(x: Any, at: Any, o: Any) -> None:
            i = k.range(3)
            o[i] = read(x, at[i])
        out = lambda x, at: fnx.ShapeDtypeStruct((3,), x.dtype)
        arrays = jnp.zeros(8), jnp.zeros(3, "int32")
        return fnx.jit(fnx.call(body, out=out)).lower(*arrays).text("graph")
    assert "min(" in loads(lambda x, i: x[i])
    for proved in (lambda x, i: x.load(i, checked=False),
                   lambda x, i: x.load(i, valid=(i >= 0) & (i < 8)),
                   lambda x, i: x.load(i, valid=~((i < 0) | (i > 7)))):
        assert "min(" not in loads(proved) and "max(" not in loads(proved)


def test_what_no_store_writes_is_zero(device: str) -> None:
    def part(x: Any, o: Any) -> None:
        i = k.range(2)
        o[i] = x[i]

    def masked(x: Any, o: Any) -> None:
        i = k.range(4)
        o.store(i, value=x[i], valid=x[i] > 0)

    def largest(x: Any, o: Any) -> None:
        i = k.range(4)
        o.combine("max", i // 2, x[i])
    x = np.array([1, -2, -3, -4], np.float32)
    for body, want in ((part, [1, -2, 0, 0]), (masked, [1, 0, 0, 0]),
                       (largest, [1, -3, -np.inf, -np.inf])):
        for _ in range(3):
            jnp.full(4, 7.0).block_until_ready()  # leaves old values in the memory
            got = fnx.call(body, out=lambda x: x)(x)
            np.testing.assert_array_equal(got, want)


def test_the_last_write_wins_where_that_is_said(device: str) -> None:
    @fnx.call(out=lambda x, at: fnx.ShapeDtypeStruct((3,), x.dtype))
    def scatter(x: Any, at: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o.combine("set", at[i], x[i])
    got = scatter(np.arange(1, 6, dtype="f4"), np.array([0, 2, 0, 9, 2], np.int32))
    np.testing.assert_array_equal(got, [3, 0, 5])


@pytest.mark.cases(1)
def test_two_stores_may_share_a_loop_if_their_indices_are_disjoint(device: str) -> None:
    @fnx.call(out=lambda x: fnx.ShapeDtypeStruct((2 * x.shape[0],), x.dtype))
    def spread(x: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o[2 * i] = x[i]
        o[2 * i + 1] = -x[i]
    for n in (5, 200_000):
        x = data(n)
        np.testing.assert_array_equal(spread(x), np.stack([x, -x], 1).reshape(-1))


@pytest.mark.parametrize(("how", "fold"), [
    ("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)])
def test_bits_are_combined(device: str, how: str, fold: np.ufunc) -> None:
    @fnx.call(out=lambda x: fnx.ShapeDtypeStruct((4,), x.dtype))
    def folded(x: Any, o: Any) -> None:
        i = k.range(x.shape[0])
        o.combine(how, i % 4, x[i])
    x = np.random.default_rng(0).integers(-2**31, 2**31, 24).astype(np.int32)
    np.testing.assert_array_equal(folded(x), fold.reduce(x.reshape(6, 4)))
    np.testing.assert_array_equal(folded(x > 0), fold.reduce((x > 0).reshape(6, 4)))
