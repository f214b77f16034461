"""Matrix units: their table entries are what the machine computes; products keep their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.kernel as loops
import fnx.numpy as jnp
from fnx.backends.llvm import binding as llvm
from fnx.core.ir import accessors, build, dtypes, ops, tiling
from fnx.core.ir.accessors import bound_ranges
from fnx.core.ir.expr import Expr
from fnx.core.ir.matrix_units import UNITS, accumulate
from fnx.core.ir.tiling import StageOperand
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.rewriting.peak_rates import count_flops
from fnx.core.support.config import override
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower.schedule import contraction
from fnx.lower.schedule.heuristics import choose_schedule
from fnx.lower.schedule.tile import tile
from fnx.lower.target_lowerings import ScheduleInput, apply_schedule
from tests.helpers import as_float64, same_bits
from tests.lower import machine

COMPILED = True
HOST = llvm.host_target()
BF16, BYTES = "dpbf16ps", "dpbusd"
AVX512 = Target("cpu", unit_names=(BF16, BYTES))
FORCED = {"SSE2": (128, 16), "AVX2": (256, 16), "AVX-512": (512, 32)}
RANDOM = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


def has(unit: str) -> Any:
    return pytest.mark.skipif(unit not in HOST.unit_names, reason=f"this machine has no {unit}")


def matmul(m: int, k: int, n: int, of: dtypes.DType, to: dtypes.DType, transposed: str = "",
           right: dtypes.DType | None = None) -> UOp:
    """o[i, j] = sum of x[i, c] * w[c, j]; the operands named in ``turned`` are transposed."""
    i, j, c = build.range_(m, 0, name="i"), build.range_(n, 1, name="j"), build.range_(k, 2,
                                                                                       name="c")

    def read(slot: int, t: dtypes.DType, at: tuple[UOp, UOp], shape: tuple[int, int],
             name: str) -> UOp:
        if name in transposed:
            at, shape = at[::-1], shape[::-1]
        return build.cast(build.load(build.index_into(build.ref(slot, t, shape, name), *at)), to)

    x, w = read(0, of, (i, c), (m, k), "x"), read(1, right or of, (c, j), (k, n), "w")
    total = build.reduce_ranges(build.mul(x, w), ops.ADD, [c])
    o = build.index_into(build.ref(2, to, (m, n), "o"), i, j)
    return build.kernel([build.store(o, total)], "product", (0, 1, 2))


def units_in(kernel: UOp) -> set[str]:
    return {n.arg.unit for n in toposort([kernel]) if n.op is ops.MMA}


def bf16(x: Array) -> Array:
    """Round these values to bfloat16, towards zero."""
    return (np.asarray(x, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def stored(x: Array) -> Array:
    return (x.view(np.uint32) >> 16).astype(np.uint16)


# ---- table entries and the machine --------------------------------------------------------------

SPECIAL = np.array([0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F, 0x7F80,
                    0xFF80, 0x7FC0, 0x3F81, 0x0480], np.uint16)


def chain(unit: str, x: Array, w: Array) -> Array:
    """The sum of products of fragment registers [i, c] and [c, j] by the unit's table entry, in
    order."""
    total = np.zeros((x.shape[0], w.shape[1]), UNITS[unit].result.np)
    for c in range(x.shape[1]):
        total = accumulate(UNITS[unit], x[:, c, None], w[None, c], total)
    return total


@has(BF16)
@pytest.mark.parametrize("kind", ["normal", "special", "any"])
def test_the_row_of_bfloat16_has_the_bits_of_the_machine(kind: str) -> None:
    m, k, n = 4, 64, 16
    draw = {"normal": lambda s: stored(bf16(RANDOM.standard_normal(s))),
            "special": lambda s: RANDOM.choice(SPECIAL, s),
            "any": lambda s: RANDOM.integers(0, 1 << 16, s).astype(np.uint16)}[kind]
    kernel = tile(matmul(m, k, n, dtypes.bfloat16, dtypes.float32), [
        tiling.split("c", 2, "cw", "ce"), tiling.tensorize("ce", BF16),
        tiling.order("i", "cw", "j", "ce"), tiling.vectorize("j")])
    assert units_in(kernel) == {BF16}
    for _ in range(20):
        x, w = draw((m, k)), draw((k, n))
        held = [a.view(dtypes.bfloat16.np) for a in (x, w)]
        out = machine.aligned(np.zeros((m, n), np.float32))
        machine.run(kernel, [*map(machine.aligned, held), out])
        words = np.ascontiguousarray(x).view(np.uint32), w[0::2] | w[1::2].astype(np.uint32) << 16
        with np.errstate(all="ignore"):
            assert same_bits(out, chain(BF16, *words))


@has(BYTES)
@pytest.mark.parametrize("left", [dtypes.uint8, dtypes.int8])
def test_bytes_are_exact(left: dtypes.DType) -> None:
    for m, k, n in [(4, 64, 16), (5, 63, 33), (1, 4, 1)]:
        kernel = tile(matmul(m, k, n, left, dtypes.int32, right=dtypes.int8), [
            tiling.split("c", 4, "cw", "ce"), tiling.tensorize("ce", BYTES),
            tiling.split("j", 16, "jo", "jl"), tiling.order("i", "jo", "cw", "jl", "ce"),
            tiling.vectorize("jl")])
        x = RANDOM.integers(*np.array(left.limits) + (0, 1), (m, k)).astype(left.np)
        w = RANDOM.integers(-128, 128, (k, n)).astype(np.int8)
        mine, theirs = machine.both(kernel, [x, w, np.zeros((m, n), np.int32)])
        wanted = x.astype(np.int32) @ w.astype(np.int32)
        assert np.array_equal(mine[2], wanted) and np.array_equal(theirs[2], wanted)


def test_sums_of_integers_wrap() -> None:
    words = np.full((1, 1 << 12), 0xFFFFFFFF, np.uint32)
    total = chain(BYTES, words, words.T)  # 255 * -1, 4 times
    assert total[0, 0] == np.int32(-255 * 4 * (1 << 12))
    most = accumulate(UNITS[BYTES], np.uint32([0xFFFFFFFF]), np.uint32([0x7F7F7F7F]),
                      np.int32([2**31 - 1]))
    assert most[0] == np.int64(2**31 - 1 + 4 * 255 * 127) - 2**32


def test_a_sum_is_rounded_once() -> None:
    """1 + 2**-24 + a little more is above half an ulp; in float64 it is exactly the half."""
    word = np.uint32(0x3F80 << 16), np.uint32(0x3F80 << 16)  # 0 * 0 + 1 * 1, the high term first
    tiny = np.float32([2.0**-24 * (1 + 2.0**-23)])
    assert accumulate(UNITS[BF16], *map(np.atleast_1d, word), tiny)[0] == np.float32(1 + 2**-23)


# ---- products by matrix units -------------------------------------------------------------------


def bound(x: Array, w: Array) -> Array:
    """The error bound of a float32 sum of products; flushing a denormal costs less than the
    smallest normal number times the other factor."""
    wide = np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64))
    tiny = float(np.finfo(np.float32).tiny)
    terms = x.shape[-1]
    lost = tiny * (np.minimum(wide[0], 1e300) @ np.ones_like(wide[1]) +
                   np.ones_like(wide[0]) @ wide[1]) + 4 * terms * tiny
    return 2.0**-22 * np.log2(terms + 4) * (wide[0] @ wide[1]) + lost


SHAPES = st.tuples(*[st.integers(1, 70)] * 3)


@settings(max_examples=12, deadline=None)
@given(SHAPES, st.sampled_from(["", "x", "w", "xw"]), st.sampled_from([AVX512, *[
    Target("cpu", vector_bits=bits, vector_registers=count) for bits, count in FORCED.values()]]))
def test_products_of_any_shape_on_any_target(shape: tuple[int, int, int], transposed: str,
                                             target: Target) -> None:
    m, k, n = shape
    untiled = matmul(m, k, n, dtypes.bfloat16, dtypes.float32, transposed)
    kernel = tile(untiled, [step.replace(space="PRIV") if isinstance(step, StageOperand) else step
                            for step in choose_schedule(untiled, target)])
    assert units_in(kernel) <= set(target.unit_names)
    x, w = bf16(RANDOM.standard_normal((m, k))), bf16(RANDOM.standard_normal((k, n)))
    held = [stored(a.T.copy() if name in transposed else a).view(dtypes.bfloat16.np)
            for a, name in ((x, "x"), (w, "w"))]
    buffers = [*held, np.zeros((m, n), np.float32)]
    if set(target.unit_names) <= set(HOST.unit_names):
        mine, theirs = machine.both(kernel, buffers)
        assert np.all(np.abs(mine[2] - x.astype(np.float64) @ w) <= bound(x, w))
    else:
        theirs = [np.array(b) for b in buffers]
        run_kernel(kernel, theirs, [])
    assert np.all(np.abs(theirs[2] - x.astype(np.float64) @ w) <= bound(x, w))


def test_large_enough_products_take_the_unit() -> None:
    for of, to, unit in ((dtypes.bfloat16, dtypes.float32, BF16),
                         (dtypes.int8, dtypes.int32, BYTES)):
        for transposed in ("", "x", "w", "xw"):
            untiled = matmul(64, 64, 64, of, to, transposed)
            assert units_in(tile(untiled, choose_schedule(untiled, AVX512))) == {unit}


@pytest.mark.parametrize("of,to", [
    (dtypes.float32, dtypes.float32), (dtypes.float16, dtypes.float32),
    (dtypes.bfloat16, dtypes.float64), (dtypes.int16, dtypes.int32), (dtypes.int8, dtypes.int64)])
def test_what_no_unit_is_made_for_is_left_alone(of: dtypes.DType, to: dtypes.DType) -> None:
    untiled = matmul(64, 64, 64, of, to)
    assert units_in(tile(untiled, choose_schedule(untiled, AVX512))) == set()


def test_words_that_lie_in_memory_are_one_load() -> None:
    untiled = matmul(64, 64, 64, dtypes.bfloat16, dtypes.float32)
    nodes = toposort([tile(untiled, choose_schedule(untiled, AVX512))])
    read = {n.arg.name: n.dtype for n in nodes if n.op is ops.REF}
    assert read["x"] is dtypes.uint32 and read["w"] is dtypes.bfloat16
    stages = {n.arg.name: n for n in nodes if n.op is ops.STAGE}
    assert {n.dtype for n in stages.values()} == {dtypes.uint32}
    assert [r.arg.kind for r in bound_ranges(stages["w"])][-1] == "VEC"


def test_an_odd_number_of_terms_reads_nothing_beyond() -> None:
    untiled = matmul(16, 33, 32, dtypes.bfloat16, dtypes.float32)
    kernel = tile(untiled, choose_schedule(untiled, AVX512))
    ones = np.full((33, 33), 0x3F80, np.uint16)
    held = [ones[:16].copy(), ones[:, :32].copy()]
    buffers = [*[a.view(dtypes.bfloat16.np) for a in held], np.zeros((16, 32), np.float32)]
    run_kernel(kernel, buffers, [])  # the interpreter checks every index
    assert np.all(buffers[2] == 33)


@pytest.mark.parametrize("begin", [0, 1])
def test_terms_that_do_not_begin_a_word_are_no_words(begin: int) -> None:
    """A window of a row starts at any element: lanes would gather halves of registers."""
    i, j, k, c = (build.range_(n, at, name=name) for at, (n, name) in enumerate((
        (64, "i"), (64, "j"), (3, "k"), (64, "c"))))
    x = build.load(build.index_into(build.ref(0, dtypes.bfloat16, (64, 68), "x"), i,
                                    (Expr(c) + (Expr(k) if begin else 2 * Expr(k))).node))
    w = build.load(build.index_into(build.ref(1, dtypes.bfloat16, (64, 64), "w"), j, c))
    terms = [build.cast(v, dtypes.float32) for v in (x, w)]
    o = build.index_into(build.ref(2, dtypes.float32, (64, 64, 3), "o"), i, j, k)
    kernel = build.kernel([build.store(o, build.reduce_ranges(
        build.mul(*terms), ops.ADD, [c]))], "product", (0, 1, 2, 3))
    found = contraction.match_contraction(kernel)
    assert found is not None
    loads = [n for n in toposort([kernel]) if n.op is ops.LOAD]
    assert [contraction.is_word_aligned(n, c, UNITS[BF16]) for n in sorted(
        loads, key=lambda n: accessors.buffer(n).arg.slot)] == [not begin, True]


def test_what_cannot_be_tensorized_is_refused() -> None:
    kernel = matmul(16, 16, 16, dtypes.float32, dtypes.float32)
    with pytest.raises(KernelError, match="sum of products of bfloat16 and bfloat16"):
        tile(kernel, [tiling.split("c", 2, "cw", "ce"), tiling.tensorize("ce", BF16)])
    kernel = matmul(16, 16, 16, dtypes.bfloat16, dtypes.float32)
    with pytest.raises(KernelError, match="the 2 terms of a word"):
        tile(kernel, [tiling.split("c", 4, "cw", "ce"), tiling.tensorize("ce", BF16)])
    with pytest.raises(KernelError, match="expected a unit of"):
        tiling.tensorize("ce", "fma")


# ---- functions ----------------------------------------------------------------------------------


def arrays(*shapes: tuple[int, ...]) -> Iterator[Any]:
    for shape in shapes:
        yield jnp.asarray(bf16(RANDOM.standard_normal(shape))).astype("bfloat16")


SPELLINGS = {
    "x @ w": lambda x, w: x @ w,
    "einsum": lambda x, w: jnp.einsum("mk,kn->mn", x, w),
    "dot_general": lambda x, w: fnx.lax.dot_general(
        x, w, (((1,), (0,)), ((), ())), preferred_element_type="float32"),
    "transposed": lambda x, w: (w.T @ x.T).T,
    "relu": lambda x, w: jnp.maximum(x, 0) @ w,
    "epilogue": lambda x, w: fnx.nn.relu((x @ w).astype("float32") + 1),
    "sum": lambda x, w: (x.astype("float32")[:, :, None] * w.astype("float32")).sum(1),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling(spelling: str) -> None:
    f = SPELLINGS[spelling]
    for m, k, n in [(64, 64, 64), (37, 51, 45)]:
        x, w = arrays((m, k), (k, n))
        a, b = as_float64(x), as_float64(w)
        if spelling == "relu":
            a = np.maximum(a, 0)
        wanted = a @ b
        if spelling == "epilogue":
            wanted = np.maximum(wanted + 1, 0)
        close = bound(a, b) + 2.0**-8 * np.abs(a @ b) + 2.0**-8
        out = fnx.jit(f)(x, w)
        assert np.all(np.abs(as_float64(out) - wanted) <= close)


def test_batches_gradients_and_maps() -> None:
    x, w, v = arrays((3, 33, 40), (3, 40, 50), (40, 50))
    products = as_float64(fnx.jit(jnp.matmul)(x, w))
    assert np.all(np.abs(products - as_float64(x) @ as_float64(w)) <= 0.2)
    mapped = fnx.jit(fnx.vmap(jnp.matmul, (0, None)))(x, v)
    assert np.all(np.abs(as_float64(mapped) - as_float64(x) @ as_float64(v)) <= 0.2)

    def loss(a: Any, b: Any) -> Any:
        return (jnp.tanh(a @ b).astype("float32") ** 2).sum()

    of = [x[0], v]
    for order in (fnx.grad, lambda f: fnx.grad(lambda a, b: fnx.grad(f)(a, b).astype(
            "float32").sum())):
        one, wide_one = fnx.jit(order(loss))(*of), fnx.jit(order(loss))(
            *[a.astype("float32") for a in of])
        assert np.all(np.isfinite(as_float64(one)))
        scale = np.abs(as_float64(wide_one)).max()
        assert np.abs(as_float64(one) - as_float64(wide_one)).max() <= 0.1 * scale


def test_what_is_no_number_stays_none() -> None:
    x, w = np.ones((32, 32), np.float32), np.ones((32, 32), np.float32)
    x[3, 5], x[7, 31], w[9, 2] = np.nan, np.inf, -np.inf
    out = np.asarray(fnx.jit(SPELLINGS["dot_general"])(*[
        jnp.asarray(a).astype("bfloat16") for a in (x, w)]))
    with np.errstate(all="ignore"):
        wanted = x @ w
    assert np.array_equal(out, wanted, equal_nan=True)


def test_workers_do_not_change_a_bit() -> None:
    x, w = arrays((301, 257), (257, 190))
    found = []
    for workers in (1, 2, 3):
        with override(workers=workers):
            found.append(np.asarray(fnx.jit(SPELLINGS["dot_general"])(x, w)))
    assert all(np.array_equal(found[0], f) for f in found)


@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"),
                                   ("uint8", "uint8")])
def test_products_of_bytes(types: tuple[str, str]) -> None:
    for m, k, n in [(64, 64, 64), (37, 61, 45), (1, 7, 9), (300, 19, 1), (8, 0, 8)]:
        a, b = (RANDOM.integers(0, 256, s).astype(np.uint8).view(t)
                for s, t in zip([(m, k), (k, n)], types))
        out = fnx.jit(lambda x, w: fnx.lax.dot_general(
            x, w, (((1,), (0,)), ((), ())), preferred_element_type="int32"))(a, b)
        assert np.array_equal(np.asarray(out), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.cases(1)
@pytest.mark.parametrize("side,stride,dilation,groups", [
    (1, 1, 1, 1), (3, 1, 1, 1), (3, 2, 1, 1), (5, 1, 2, 1), (2, 3, 1, 1), (3, 1, 1, 2),
    (7, 2, 1, 1)])
def test_convolutions_and_their_gradients(side: int, stride: int, dilation: int, groups: int
                                          ) -> None:
    for channels in (16, 6):
        x, w = arrays((2, channels, 17, 20), (8, channels // groups, side, side))

        def convolved(x: Any, w: Any) -> Any:
            return fnx.lax.conv_general_dilated(
                x, w, (stride, stride), "SAME", rhs_dilation=(dilation, dilation),
                feature_group_count=groups)

        def total(x: Any, w: Any) -> Any:
            return (convolved(x, w).astype("float32") ** 2).sum()

        for f in (convolved, fnx.grad(total), fnx.grad(total, argnums=1)):
            one = as_float64(fnx.jit(f)(x, w))
            other = as_float64(fnx.jit(f)(x.astype("float32"), w.astype("float32")))
            assert np.abs(one - other).max() <= 0.03 * np.abs(other).max()


def test_terms_fill_their_words() -> None:
    """With 64 channels and 3 offsets, the terms are channels: pairs of 3 would be half empty."""
    i, j, c, q = (build.range_(n, id, name=name) for id, (n, name) in enumerate(
        [(64, "i"), (64, "j"), (64, "c"), (3, "q")]))
    x = build.load(build.index_into(build.ref(0, dtypes.bfloat16, (64, 64, 3)), i, c, q))
    w = build.load(build.index_into(build.ref(1, dtypes.bfloat16, (64, 3, 64)), c, q, j))
    terms = build.mul(*[build.cast(s, dtypes.float32) for s in (x, w)])
    total = build.reduce_ranges(terms, ops.ADD, [c, q])
    o = build.index_into(build.ref(2, dtypes.float32, (64, 64)), i, j)
    kernel = build.kernel([build.store(o, total)], "product", (0, 1, 2, 3))
    assert tiling.split("c", 2, "c_w", "c_e") in choose_schedule(kernel, AVX512)


# ---- user-written kernels -----------------------------------------------------------------------


def product_kernel(x: Any, w: Any, o: Any) -> None:
    m, n, c = (loops.range(size, name) for size, name in (
        (o.shape[0], "m"), (o.shape[1], "n"), (x.shape[1], "c")))
    o[m, n] = loops.sum(loops.cast(x[m, c], "float32") * loops.cast(w[c, n], "float32"), over=c)


def hand_written(*schedule: Any) -> Any:
    return fnx.jit(fnx.call(product_kernel, schedule=schedule, out=lambda x, w:
                            fnx.ShapeDtypeStruct((x.shape[0], w.shape[1]), "float32")))


BY_UNIT = (loops.split("c", 2, "cw", "ce"), loops.tensorize("ce", BF16),
           loops.split("n", 16, "no", "nl"),
           loops.order("m", "no", "cw", "nl", "ce"), loops.vectorize("nl"))


@has(BF16)
@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_a_hand_written_kernel_names_a_unit(device: str) -> None:
    x, w = arrays((19, 33), (33, 40))
    with override(device=device):
        out = as_float64(hand_written(*BY_UNIT)(x, w))
    x, w = as_float64(x), as_float64(w)
    assert np.all(np.abs(out - x @ w) <= bound(x, w))


def test_a_unit_of_another_machine_is_refused() -> None:
    kernel = matmul(16, 16, 16, dtypes.bfloat16, dtypes.float32)
    steps = (tiling.split("c", 2, "cw", "ce"), tiling.tensorize("ce", BF16))
    for target, said in ((Target("old"), "it has none"),
                         (Target("new", unit_names=("dpbusd",)), "dpbusd")):
        with pytest.raises(KernelError, match=rf"{target.name}: .*{said}.*got {BF16}"):
            apply_schedule(ScheduleInput(kernel, steps), target)
    assert units_in(apply_schedule(ScheduleInput(kernel, steps),
                                   Target("interp", kind="kernels"))) == {BF16}


@has(BF16)
def test_lanes_that_no_instruction_has_are_refused() -> None:
    x, w = arrays((16, 32), (32, 32))
    with pytest.raises(KernelError, match="got 32 lanes"):
        hand_written(*[loops.split("n", 32, "no", "nl") if getattr(step, "range", "") == "n"
                       else step for step in BY_UNIT])(x, w)


def test_arithmetic_is_counted_as_without_a_unit() -> None:
    untiled = matmul(56, 64, 64, dtypes.bfloat16, dtypes.float32)
    kernel = tile(untiled, choose_schedule(untiled, AVX512))
    assert units_in(kernel) == {BF16}
    assert count_flops(kernel, []) == 2 * 56 * 64 * 64
