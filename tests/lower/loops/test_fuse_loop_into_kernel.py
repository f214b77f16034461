"""Loops with a small body as one kernel: their values, which qualify, and the kernels'
structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
from fnx.backends.device.base import get_device
from fnx.core.formulas.cumulative import cumulative
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp, show
from fnx.core.support.config import override
from fnx.lower.loops import fold_transposes
from fnx.lower.loops.fuse_loop_into_kernel import NotFusable, fuse_loop_into_kernel, kernel_results
from fnx.lower.loops.scalarize import make_scalar
from fnx.transforms.link import link
from tests.helpers import assert_same
from tests.scans import EXACT, loop_of

F32, I32 = dtypes.float32, dtypes.int32
INTEGERS = (I32, dtypes.uint32, dtypes.bool_)


def run(fn: UOp, args: Sequence[Any], device: str) -> list[Any]:
    target = get_device(device)
    with override(check_spec=True):
        outs = link(fn, target).run([target.upload(np.asarray(a)) for a in args])
        return [out.view(o.dtype.np, o.shape) for out, o in zip(outs, fn.src)]


def is_one_kernel(fn: UOp) -> bool:
    """Whether SCANs are kernels, and the steps of WHILEs are (strip-mined)."""
    left = [n for n in toposort(fuse_loop_into_kernel(fn).src) if n.op in (ops.SCAN, ops.WHILE)]
    return all(n.op is ops.WHILE and _kernels(n.src[1].src) for n in left)


def kernels(fn: UOp) -> list[UOp]:
    return _kernels(fuse_loop_into_kernel(fn).src)


def _kernels(outs: Sequence[UOp]) -> list[UOp]:
    return [n for n in toposort(outs) if n.op is ops.KERNEL]


def assert_same_bits(fn: UOp, args: Sequence[Any]) -> list[Any]:
    """Compare both devices with the interpreter of tensors; return its results."""
    want = interp.apply(fn, [np.asarray(a) for a in args])
    for device in ("interp", "cpu"):
        assert_same(run(fn, args, device), want)
    return want


def agree(fn: UOp, args: Sequence[Any]) -> list[Any]:
    """Return the interpreter's results; the kernel has the same bits on both devices."""
    assert is_one_kernel(fn)
    return assert_same_bits(fn, args)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


# ---- random bodies -----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 14), st.sampled_from((0, 0, 20, 70)))
def test_a_random_scan_gives_the_same_bits(seed: int, steps: int, lanes: int) -> None:
    loop = loop_of(seed, steps, lanes)
    assert_same_bits(loop.fn, loop.args)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 14))
def test_folds_of_integers_are_exact(seed: int, steps: int) -> None:
    loop = loop_of(seed, steps, 0, INTEGERS, EXACT | {ops.REDUCE})
    assert_same_bits(loop.fn, loop.args)


def test_most_random_scans_are_one_kernel() -> None:
    """So the comparisons above are of kernels."""
    fused = [is_one_kernel(loop_of(seed, 1 + seed % 14, (0, 0, 20, 70)[seed % 4]).fn)
             for seed in range(60)]
    assert sum(fused) > 30


# ---- examples ----------------------------------------------------------------------------------


def element(s: UOp, i: int) -> Expr:
    return Expr(build.reshape(build.shrink(s, [(i, i + 1), *[(0, n) for n in s.shape[1:]]]),
                              s.shape[1:]))


def stacked(parts: Sequence[Expr]) -> Expr:
    return Expr(build.concat([build.reshape(e.node, (1, *e.shape)) for e in parts], 0))


def lorenz(s: UOp) -> UOp:
    x, y, z = (element(s, i) for i in range(3))
    d = stacked([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])
    return (Expr(s) + 0.001 * d).node


@pytest.mark.parametrize("lanes", [(), (1,), (5,), (16,), (1000,)], ids=repr)
def test_an_ode_and_many_side_by_side(lanes: tuple[int, ...]) -> None:
    p = build.param(0, F32, (3, *lanes))
    body = build.function([lorenz(p), p], 1, "lorenz")
    fn = build.function(build_calls.scan(body, 50, [], [p], []), 1)
    last, path = agree(fn, [normal(3, *lanes)])
    assert path.shape == (50, 3, *lanes) and np.isfinite(last).all()


def test_a_kernel_prints_as_a_loop() -> None:
    x, u = build.param(0, F32, ()), build.param(1, F32, ())
    body = build.function([(Expr(x) * 0.5 + Expr(u)).node, x], 2, "decay")
    p, q = build.param(0, F32, ()), build.param(1, F32, (9,))
    kernel, = kernels(build.function(build_calls.scan(body, 9, [], [p], [q], reverse=True), 2))
    lines = [line.partition("#")[0].rstrip() for line in show.pretty(kernel).splitlines()]
    assert lines == [
        "kernel scan_decay(x0: float32[9], x1: float32[], o2: float32[], o3: float32[9])",
        "  x = x1[()]",
        "  for t in seq(9):",
        "    p0 = 8 - t",
        "    o3[p0] = x",
        "    x = x0[p0] + x * 0.5",
        "  o2[()] = x"]


def test_results_that_nothing_reads_are_not_made() -> None:
    """They are computed only if requested, and then by a kernel of their own."""
    i, x = build.param(0, I32, ()), build.param(1, F32, (100,))
    step = (Expr(x) + Expr(build.expand(build.cast(i, F32), (100,)))).node
    body = build.function([(Expr(i) + 1).node, step], 2, "count")
    p = build.param(0, F32, (100,))
    found = build_calls.scan(body, 10, [], [build.const(3, I32), p], [])
    alone, both = build.function(found[1:], 1), build.function(found, 1)
    assert len(kernels(alone)) == 1 and len(kernels(both)) == 2
    agree(alone, [normal(100)])
    assert agree(both, [normal(100)])[0] == 13


def test_a_scan_without_carries_is_a_map() -> None:
    x = build.param(0, F32, (3,))
    body = build.function([(Expr(x) * 2 + 1).node], 1, "twice")
    fn = build.function(build_calls.scan(body, 40, [], [], [build.param(0, F32, (40, 3))]), 1)
    agree(fn, [normal(40, 3)])
    assert all(n.op is not ops.LOOP for n in toposort(kernels(fn)))


def test_data_picks_from_scalars_and_from_memory() -> None:
    """An index that is data selects from a carry by WHERE, and from a constant at a clamped
    address."""
    s, table, i = build.param(1, F32, (4,)), build.param(0, F32, (1000,)), build.param(2, I32, (2,))
    at = build.reshape(build.shrink(i, [(0, 1)]), ())
    value = build.add(build.gather(s, at), build.gather(table, build.reshape(
        build.shrink(i, [(1, 2)]), ())))
    new = build.scatter(s, [build.shrink(i, [(0, 1)])], build.reshape(value, (1,)))
    body = build.function([new, value], 3, "lookup")
    given = [build.param(0, F32, (1000,)), build.param(1, F32, (4,)), build.param(2, I32, (30, 2))]
    fn = build.function(build_calls.scan(body, 30, given[:1], given[1:2], given[2:]), 3)
    index = np.random.default_rng(0).integers(-3, 1200, (30, 2)).astype("int32")
    index[::2, 0] %= 4
    agree(fn, [normal(1000), normal(4), index])


@pytest.mark.parametrize("lanes, fused", [(8, True), (20_000, False)])
def test_data_picks_from_scalars_of_few_lanes_only(lanes: int, fused: bool) -> None:
    """In memory, a step writes one of 16 rows; in registers it selects each of them anew."""
    x, i = build.param(0, F32, (16, lanes)), build.param(1, I32, (1,))
    row = (Expr(build.gather(x, i)) * 0.5 + 1).node
    body = build.function([build.scatter(x, [i], row)], 2, "ring")
    given = [build.param(0, F32, (16, lanes)), build.param(1, I32, (5, 1))]
    fn = build.function(build_calls.scan(body, 5, [], given[:1], given[1:]), 2)
    assert is_one_kernel(fn) is fused
    assert_same_bits(fn, [normal(16, lanes), np.array([[3], [0], [15], [3], [7]], "int32")])


def test_what_a_barrier_keeps_apart_is_in_registers() -> None:
    x, u = build.param(0, F32, (3,)), build.param(1, F32, ())
    body = build.function([(Expr(build.barrier(x, u)) * 0.5 + 1).node, x], 2, "kept")
    given = [build.param(0, F32, (3,)), build.param(1, F32, (7,))]
    agree(build.function(build_calls.scan(body, 7, [], given[:1], given[1:]), 2),
          [normal(3), normal(7)])


@pytest.mark.parametrize("length", [0, 1])
def test_a_loop_that_runs_once_or_never_is_none(length: int) -> None:
    p, u = build.param(0, F32, (3,)), build.param(1, F32, (3,))
    body = build.function([build.mul(p, u), build.add(p, u)], 2, "once")
    rows = build.param(1, F32, (length, 3))
    fn = build.function(build_calls.scan(body, length, [], [p], [rows]), 2)
    assert not kernels(fn)
    agree(fn, [normal(3), normal(length, 3)])


# ---- while -------------------------------------------------------------------------------------


def newton(shape: tuple[int, ...] = ()) -> UOp:
    """Newton's square root, until a step changes little: (a, x, change)."""
    a, x, change = (build.param(i, F32, shape) for i in range(3))
    new = 0.5 * (Expr(x) + Expr(a) / Expr(x))
    body = build.function([new.node, abs(new - Expr(x)).node], 3, "newton")
    small = build.reduce(change, ops.MAX, range(len(shape)))
    condition = build.function([build.lt(build.const(1e-3, F32), small)], 3, "goes_on")
    p = build.param(0, F32, shape)
    one = build.const(1, F32, shape)
    return build.function(build_calls.while_(condition, body, [p], [one, one])[:1], 1)


def test_newton() -> None:
    for a in (2.0, 100.0, 0.25):
        root, = agree(newton(), [np.float32(a)])
        np.testing.assert_allclose(root, np.sqrt(a), rtol=1e-2)


def test_a_condition_over_all_elements() -> None:
    agree(newton((3,)), [np.array([2, 100, 0.25], "f4")])


def test_zero_trips() -> None:
    x = build.param(0, I32, ())
    body = build.function([(Expr(x) * 2).node], 1, "double")
    condition = build.function([build.lt(x, build.const(100, I32))], 1, "small")
    fn = build.function(build_calls.while_(condition, body, [], [x]), 1)
    for first, last in ((1, 128), (100, 100), (500, 500), (-1, None)):
        if last is not None:
            assert agree(fn, [np.int32(first)])[0] == last


def test_a_count_with_lanes() -> None:
    """A fori_loop with a data-dependent bound: all lanes end together."""
    n, i, x = build.param(0, I32, ()), build.param(1, I32, ()), build.param(2, F32, (50,))
    body = build.function([(Expr(i) + 1).node, (Expr(x) * 1.5).node], 3, "grow")
    condition = build.function([build.lt(i, n)], 3, "below")
    p, q = build.param(0, I32, ()), build.param(1, F32, (50,))
    fn = build.function(build_calls.while_(condition, body, [p], [build.const(0, I32), q])[1:], 2)
    for n_ in (0, 1, 7):
        agree(fn, [np.int32(n_), normal(50)])


# ---- loops that do not qualify -----------------------------------------------------------------


def scan_of(body: UOp, *shapes: tuple[int, ...]) -> UOp:
    p = [build.param(i, F32, s) for i, s in enumerate(shapes)]
    return build.function(build_calls.scan(body, 10, p[1:], p[:1], []), len(p))


def refused(fn: UOp) -> str:
    assert not is_one_kernel(fn)
    with pytest.raises(NotFusable) as e:
        kernel_results(fn.src[0].src[0], [0])
    return str(e.value)


def test_a_matrix_that_is_multiplied_stays_a_loop() -> None:
    w, h = build.param(0, F32, (64, 64)), build.param(1, F32, (64,))
    product = build.reduce(build.mul(w, build.expand(build.reshape(h, (1, 64)), (64, 64))),
                           ops.ADD, [1])
    body = build.function([product], 2, "matvec")
    p = [build.param(0, F32, (64, 64)), build.param(1, F32, (64,))]
    fn = build.function(build_calls.scan(body, 10, p[:1], p[1:], []), 2)
    assert refused(fn) == "a carry of more than 16 scalars"


def test_more_axes_than_numpy_has_stay_a_loop() -> None:
    """NumPy arrays cannot have 74 axes; kernels can."""
    start = fnx.numpy.full((1,) * 74, 2.0)
    _, last = fnx.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, start))
    assert last.shape == (1,) * 74 and float(fnx.numpy.sum(last)) == 16.0


def test_a_long_body_stays_a_loop() -> None:
    x = build.param(0, F32, ())
    y = Expr(x)
    for i in range(1100):
        y = y * (1 + i / 7) + Expr(x)
    fn = scan_of(build.function([y.node], 1, "long"), ())
    assert refused(fn) == "a kernel of more than 1024 nodes"


# ---- one axis read as two ----------------------------------------------------------------------


def pairs_of(x: UOp) -> tuple[UOp, UOp]:
    """Broadcast x along the first and along the second of two axes."""
    n, = x.shape
    return (build.expand(build.reshape(x, (n, 1)), (n, n)),
            build.expand(build.reshape(x, (1, n)), (n, n)))


def differences(x: UOp, state: UOp) -> UOp:
    along, across = pairs_of(x)
    return build.add(state, build.sub(across, along))


def transposed(x: UOp, state: UOp) -> UOp:
    return build.add(build.permute(state, (1, 0)), pairs_of(x)[0])


def transposed_back(x: UOp, state: UOp) -> UOp:
    """Each of the two transpositions undoes the other."""
    return build.sub(build.permute(build.neg(build.permute(state, (1, 0))), (1, 0)), pairs_of(x)[1])


@pytest.mark.parametrize("step", [differences, transposed, transposed_back])
@pytest.mark.parametrize("n", [2, 4, 20])
def test_an_axis_that_is_read_along_two_is_not_its_diagonal(n: int, step: Any) -> None:
    x, state = build.param(0, F32, (n,)), build.param(1, F32, (n, n))
    body = build.function([step(x, state)], 2)
    fn = build.function(build_calls.scan(body, 3, [x], [state], []), 2)
    assert_same_bits(fn, [normal(n), normal(n, n)])


@pytest.mark.parametrize("dtype", dtypes.USER, ids=str)
def test_operations_on_numbers_are_numbers_of_every_type(dtype: dtypes.DType) -> None:
    """Also for types whose arrays hold bit patterns."""
    for value in (0, 1):
        node = make_scalar(ops.CAST, dtype, (build.const(value, I32),))
        assert node is build.const(value, dtype)


@pytest.mark.parametrize("shape, axis", [((9, 20, 32), 1), ((3, 5, 20, 8, 4), 2)])
def test_a_fold_along_a_middle_axis_reads_rows_where_they_lie(shape, axis):
    x = build.param(0, dtypes.float32, shape)
    scan = build.function([cumulative(x, axis, ops.ADD)], 1)
    fn = fold_transposes.fold_transposes(fuse_loop_into_kernel(scan))
    assert not any(n.op is ops.PERMUTE and n.arg != tuple(sorted(n.arg))
                   for n in toposort(fn.src))


def test_a_carry_that_every_step_sets_to_a_number() -> None:
    state = build.param(0, dtypes.float32, (17,))
    body = build.function([build.const(1.0, dtypes.float32, (17,)), state], 1)
    zeros = build.const(0.0, dtypes.float32, (17,))
    fn = build.function(build_calls.scan(body, 3, [], [zeros], []), 0)
    assert_same_bits(fn, [])
