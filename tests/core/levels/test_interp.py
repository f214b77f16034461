"""The interpreter: tensor level against NumPy, kernel level against the tensor level."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.uop import UOp, current_loc, toposort
from fnx.core.levels import interp, interp_kernel
from fnx.core.levels.interp import apply, evaluate, run_kernel
from fnx.core.support.errors import ArgumentError, KernelError, OutOfMemoryError
from tests.graphs import Graph, graphs
from tests.helpers import assert_same, same_bits

F, I = dtypes.float32, dtypes.int32  # noqa: E741
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


# ---- tensor level -----------------------------------------------------------------------------


def product(x: UOp, w: UOp) -> UOp:
    (m, k), n = x.shape, w.shape[1]
    return build.mul(build.expand(build.reshape(x, (m, k, 1)), (m, k, n)),
                     build.expand(build.reshape(w, (1, k, n)), (m, k, n)))


def test_a_contraction_needs_no_array_of_its_product() -> None:
    x, w = build.param(0, F, (128, 784)), build.param(1, F, (784, 512))
    out = build.reduce(product(x, w), ops.ADD, (1,))
    a, b = floats(128, 784), floats(784, 512)
    tracemalloc.start()
    (got,) = evaluate([out], {x: a, w: b})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    assert peak < 80 << 20  # the product would be 205 MB


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("monoid", [ops.ADD, ops.MAX, ops.MIN])
def test_folds_in_slices_equal_folds_of_the_whole(axes: tuple[int, ...], monoid: ops.Op,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = build.param(0, F, (7, 9)), build.param(1, F, (9, 5))
    out = build.reduce(build.neg(product(x, w)), monoid, axes)
    env = {x: floats(7, 9), w: floats(9, 5)}
    (want,) = evaluate([out], env)
    monkeypatch.setattr(interp, "LIMIT", 64)
    (got,) = evaluate([out], env)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    if monoid is not ops.ADD:
        assert same_bits(got, want)


@settings(max_examples=150)
@given(graphs())
def test_any_limit_gives_the_same_values(graph: Graph) -> None:
    """Slicing changes only how float sums associate."""
    sums = any(n.op is ops.REDUCE and n.dtype.is_inexact and n.arg.monoid in (ops.ADD, ops.MUL)
               for n in toposort([graph.fn], into_functions=True))
    want = apply(graph.fn, graph.args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interp, "LIMIT", 40)
        got = apply(graph.fn, graph.args)
    if not sums:
        assert_same(got, want)


def test_values_are_dropped_after_their_last_reader() -> None:
    x = build.param(0, F, (1 << 20,))
    node = x
    for _ in range(40):
        node = build.neg(node)
    value = floats(1 << 20)
    tracemalloc.start()
    evaluate([node], {x: value})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * value.nbytes


def test_calls_of_functions_and_kernels() -> None:
    x = build.param(0, F, (4,))
    fn = build.function([build.neg(x), build.exp(x)], 1)
    a, b = build_calls.call(fn, [build.neg(x)])
    i = build.range_(4, 0)
    twice = build.kernel([build.store(
        build.index_into(build.ref(1, F, [4]), i),
        build.mul(build.load(build.index_into(build.ref(0, F, [4]), i)), build.const(2.0, F)))],
                         "k")
    call = UOp(ops.CALL, dtypes.void, (twice, a), op_args.Call("k", (((4,), F),)))
    (c,) = build.results(call)
    v = floats(4)
    assert_same(evaluate([a, c, b], {x: v}), [v, 2 * v, np.exp(-v.astype(float)).astype("f")])


def test_a_buffer_is_read_through_its_handle() -> None:
    class Memory:
        def view(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
            return np.full(shape, 3, dtype)
    node = UOp(ops.BUFFER, I, (), op_args.Buffer(Memory(), (2,)))
    assert_same(evaluate([build.neg(node)], {}), [np.array([-3, -3], np.int32)])
    assert_same(evaluate([build.neg(node)], {node: np.array([1, 2], np.int32)}),
                [np.array([-1, -2], np.int32)])


def test_a_missing_value_is_named() -> None:
    with pytest.raises(ArgumentError, match="a value for <PARAM"):
        evaluate([build.neg(build.param(0, F, ()))], {})


# ---- kernel level -----------------------------------------------------------------------------


def gemm(m: int, n: int, k: int) -> UOp:
    i, j, c = build.range_(m, 0, "PAR"), build.range_(n, 1), build.range_(k, 2)
    a, b, o = build.ref(0, F, (m, k), "a"), build.ref(1, F, (k, n), "b"), build.ref(2, F, (m, n))
    value = build.mul(build.load(build.index_into(a, i, c)), build.load(build.index_into(b, c, j)))
    total = build.reduce_ranges(value, ops.ADD, [c])
    return build.kernel([build.store(build.index_into(o, i, j), total)], "g", (0, 1, 2))


def tiled_gemm(m: int, n: int, k: int, tm: int = 4, tn: int = 8) -> UOp:
    """The same, tiled by tm and tn, with the packed operands in stages."""
    def split(extent: int, by: int, first: int, kind: str) -> tuple[UOp, UOp, UOp, UOp]:
        outer = build.range_(-(-extent // by), first, "PAR" if first == 0 else "SEQ")
        inner = build.range_(by, first + 1, kind)
        at = build.add(build.mul(outer, build.index_const(by)), inner)
        return outer, inner, at, build.lt(at, build.index_const(extent))
    io, i, mi, valid_m = split(m, tm, 0, "UNROLL")
    jo, j, nj, valid_n = split(n, tn, 2, "VEC")
    c = build.range_(k, 4)
    a, b, o = build.ref(0, F, (m, k), "a"), build.ref(1, F, (k, n), "b"), build.ref(2, F, (m, n))
    packed_b = build.stage(build.load(build.index_into(b, c, nj), valid_n), [jo, c, j], 0)
    packed_a = build.stage(build.load(build.index_into(a, mi, c), valid_m), [c, i], 1)
    value = build.mul(build.load(build.index_into(packed_a, c, i)),
                      build.load(build.index_into(packed_b, jo, c, j)))
    store = build.store(build.index_into(o, mi, nj), build.reduce_ranges(value, ops.ADD, [c]),
                        build.and_(valid_m, valid_n))
    return build.kernel([store], "tiled", (0, 2, 4, 1, 3))


@pytest.mark.parametrize("make", [gemm, tiled_gemm])
@pytest.mark.parametrize("limit", [64, 1000, 16 << 20])
@pytest.mark.parametrize("m, n, k", [(8, 16, 5), (7, 9, 11), (1, 1, 1), (5, 3, 0), (0, 4, 2)])
def test_gemm(make: Any, limit: int, m: int, n: int, k: int,
              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interp_kernel, "LIMIT", limit)
    a, b, out = floats(m, k), floats(k, n), np.full((m, n), np.nan, np.float32)
    run_kernel(make(m, n, k), [a, b, out], ())
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)


def softmax(rows: int, n: int) -> UOp:
    r, c = build.range_(rows, 0, "PAR"), [build.range_(n, i) for i in (1, 2, 3)]
    x, o = build.ref(0, F, (rows, n), "x"), build.ref(1, F, (rows, n), "o")
    highest = build.reduce_ranges(build.load(build.index_into(x, r, c[0])), ops.MAX, [c[0]])
    e = build.exp(build.sub(build.load(build.index_into(x, r, c[1])), highest))
    held = build.stage(e, [c[1]], 0)
    value = build.div(build.load(build.index_into(held, c[2])),
                      build.reduce_ranges(e, ops.ADD, [c[1]]))
    return build.kernel([build.store(build.index_into(o, r, c[2]), value)], "softmax", (0, 1, 2, 3))


@pytest.mark.parametrize("limit", [64, 16 << 20])
def test_softmax_with_a_stage(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interp_kernel, "LIMIT", limit)
    x, out = floats(6, 17), np.empty((6, 17), np.float32)
    run_kernel(softmax(6, 17), [x, out], ())
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("limit", [16, 16 << 20])
def test_a_range_may_be_open_in_one_place_and_closed_in_another(
        limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interp_kernel, "LIMIT", limit)
    i = build.range_(9, 0)
    x, o = build.ref(0, F, [9]), build.ref(1, F, [9])
    v = build.load(build.index_into(x, i))
    highest = build.reduce_ranges(v, ops.MAX, [i])
    run = build.kernel([build.store(build.index_into(o, i), build.sub(v, highest))], "k", [0])
    a, out = floats(9), np.empty(9, np.float32)
    run_kernel(run, [a, out], ())
    assert_same([out], [a - a.max()])


def test_stores_run_in_order_and_combine_in_the_order_of_ranges(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A histogram: zeros first, then float additions one after the other."""
    i, j = build.range_(500, 0), build.range_(5, 1)
    index, u, o = build.ref(0, I, [500]), build.ref(1, F, [500]), build.ref(2, F, [5])
    place = build.index_into(o, build.cast(build.load(build.index_into(index, i)), dtypes.index))
    k = build.kernel([build.store(build.index_into(o, j), build.const(0.0, F)),
                      build.store(place, build.load(build.index_into(u, i)), None, ops.ADD)],
                     "hist", [0, 1])
    where, v = RNG.integers(0, 5, 500).astype(np.int32), floats(500) * 1e4
    want = np.zeros(5, np.float32)
    for a, b in zip(where, v):
        want[a] += b
    for limit in (64, 16 << 20):
        monkeypatch.setattr(interp_kernel, "LIMIT", limit)
        out = np.full(5, np.nan, np.float32)
        run_kernel(k, [where, v, out], ())
        assert_same([out], [want])


def test_combining_extrema_order_zeros_and_keep_nan() -> None:
    i = build.range_(4, 0)
    x, o = build.ref(0, F, [4]), build.ref(1, F, [1])
    k = build.kernel([build.store(build.index_into(o, build.index_const(0)),
                                  build.load(build.index_into(x, i)), None, ops.MAX)], "k", [0])
    for values, want in [([-0.0, 0.0, -0.0, -1.0], 0.0), ([1, np.nan, 2, 3], np.nan),
                         ([-0.0, -1, -2, -3], -0.0)]:
        out = np.full(1, -np.inf, np.float32)
        run_kernel(k, [np.array(values, np.float32), out], ())
        assert_same([out], [np.array([want], np.float32)])


def test_scalars_give_extents_and_constants() -> None:
    n, c = build.var(0, dtypes.index, 0, 10), build.var(1, F)
    i = build.range_(n, 0)
    x, o = build.ref(0, F, [n]), build.ref(1, F, [n])
    k = build.kernel([build.store(build.index_into(o, i),
                                  build.mul(build.load(build.index_into(x, i)), c))], "k")
    for length in (0, 1, 7):
        v, out = floats(length), np.empty(length, np.float32)
        run_kernel(k, [v, out], (length, 2.5))
        assert_same([out], [v * np.float32(2.5)])


def test_what_is_not_valid_is_not_read_and_loads_zero() -> None:
    i = build.range_(6, 0)
    x, o = build.ref(0, F, [4], "x"), build.ref(1, F, [6])
    shifted = build.sub(i, build.index_const(1))
    valid = build.and_(build.le(build.index_const(0), shifted),
                       build.lt(shifted, build.index_const(4)))
    k = build.kernel([build.store(build.index_into(o, i),
                                  build.load(build.index_into(x, shifted), valid))], "k")
    out = np.empty(6, np.float32)
    run_kernel(k, [np.arange(1, 5, dtype=np.float32), out], ())
    assert_same([out], [np.array([0, 1, 2, 3, 4, 0], np.float32)])


def located(f: Any) -> UOp:
    try:
        current_loc.loc = ("user.py", 7)
        return f()  # type: ignore[no-any-return]
    finally:
        current_loc.loc = None


def copy_kernel(extent: int, shift: int, name: str = "o") -> UOp:
    i = build.range_(extent, 0)
    x, o = build.ref(0, F, [5], "x"), build.ref(1, F, [5], name)
    return build.kernel([build.store(build.index_into(o, i), build.load(
        build.index_into(x, build.add(i, build.index_const(shift)))))], "k")


@pytest.mark.parametrize("extent, shift, message", [
    (5, 1, r"user.py:7: x: expected 0 <= index < 5 in dimension 0, got 5"),
    (5, -1, r"x: expected 0 <= index < 5 in dimension 0, got -1"),
    (6, -1, r"o?x?: expected 0 <= index < 5"),
])
def test_an_index_out_of_bounds_names_buffer_extent_and_line(extent: int, shift: int,
                                                             message: str) -> None:
    kernel = located(lambda: copy_kernel(extent, shift, f"o{shift}"))
    with pytest.raises(KernelError, match=message):
        run_kernel(kernel, [floats(5), floats(5)], ())


def test_a_store_out_of_bounds() -> None:
    i = build.range_(6, 0)
    k = build.kernel([build.store(build.index_into(build.ref(0, F, [5], "out"), i),
                                  build.const(0, F))],
                     "k")
    with pytest.raises(KernelError, match="out: expected 0 <= index < 5 in dimension 0, got 5"):
        run_kernel(k, [floats(5)], ())


@pytest.mark.parametrize("limit", [8, 16 << 20])
def test_two_iterations_that_write_one_place(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interp_kernel, "LIMIT", limit)
    i, j = build.range_(3, 0), build.range_(4, 1)
    x, o = build.ref(0, F, [3, 4]), build.ref(1, F, [3, 2], "o")
    half = build.idiv(j, build.index_const(2))
    k = build.kernel([build.store(build.index_into(o, i, half),
                                  build.load(build.index_into(x, i, j)))], "k")
    with pytest.raises(KernelError, match=r"o: two iterations write the element \(0, 0\)"):
        run_kernel(k, [floats(3, 4), floats(3, 2)], ())


def test_a_store_that_reads_another_place_of_its_buffer() -> None:
    i = build.range_(3, 0)
    o = build.ref(0, F, [4], "o")
    k = build.kernel([build.store(build.index_into(o, i), build.load(
        build.index_into(o, build.add(i, build.index_const(1)))))], "k")
    with pytest.raises(KernelError, match="o: a store reads another element"):
        run_kernel(k, [floats(4)], ())
    same = build.kernel([build.store(build.index_into(o, i),
                                     build.neg(build.load(build.index_into(o, i))))], "k")
    v = floats(4)
    out = v.copy()
    run_kernel(same, [out], ())
    assert_same([out], [np.array([*-v[:3], v[3]])])


def test_buffers_of_the_wrong_type_or_size_are_refused() -> None:
    k = copy_kernel(5, 0)
    for bad in (np.zeros(5), np.zeros(4, np.float32)):
        with pytest.raises(KernelError, match="x: expected 5 elements of float32"):
            run_kernel(k, [bad, floats(5)], ())
    with pytest.raises(KernelError, match="C-contiguous"):
        run_kernel(k, [floats(5), floats(2, 5).T], ())


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([48, 300, 5000]))
def test_generated_kernels_give_the_same_in_windows(seed: int, limit: int) -> None:
    from tests.kernels import kernel_of, sizes
    kernel = kernel_of(seed)
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(n).astype(np.float32) for n in sizes(kernel)]
    outs = []
    for bytes_held in (limit, 16 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(interp_kernel, "LIMIT", bytes_held)
            out = np.zeros_like(inputs[-1])
            try:
                run_kernel(kernel, [*inputs[:-1], out], ())
            except KernelError:  # a generated load may be out of bounds
                out = None
            outs.append(out)
    assert (outs[0] is None) == (outs[1] is None)
    if outs[0] is not None:
        np.testing.assert_allclose(outs[0], outs[1], rtol=1e-4, atol=1e-4)


def test_a_value_of_more_bytes_than_there_are_addresses_is_named() -> None:
    for shape, small in (((1 << 62,), (1,)), ((0, 1 << 40, 1 << 40), (0, 1, 1))):
        x = build.param(0, dtypes.float32, small)
        with pytest.raises(OutOfMemoryError, match=rf"expand float32\[{shape[0]}"):
            interp.evaluate([build.expand(x, shape)], {x: np.zeros(small, np.float32)})


def test_a_value_that_has_no_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(node: UOp, values: Any) -> Any:
        raise MemoryError("Unable to allocate 2.46 GiB")

    x = build.param(0, dtypes.float32, (3, 4))
    monkeypatch.setattr(interp, "eval_node", full)
    with pytest.raises(OutOfMemoryError, match=r"exp float32\[3, 4\]"):
        interp.evaluate([build.exp(x)], {x: np.zeros((3, 4), np.float32)})
