"""choose: the compiler's schedules are legal, keep the values, and depend on structure only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops, tiling
from fnx.core.ir.accessors import all_execs, bound_ranges, extent
from fnx.core.ir.dtypes import DType
from fnx.core.ir.tiling import Parallel, Split, StageOperand, Vectorize
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import spec
from fnx.core.levels.interp import run_kernel
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import canonicalize
from fnx.lower.analysis.workload import stride
from fnx.lower.emit.emit import emit_program
from fnx.lower.emit.vectorize_stage_fills import vectorize_stage_fills
from fnx.lower.pipeline import lower
from fnx.lower.schedule.heuristics import choose_schedule
from fnx.lower.schedule.register_tiles import choose_register_tile
from fnx.lower.schedule.staging import split_global
from fnx.lower.schedule.tile import tile
from tests.lower.machine import aligned, run
from tests.lower.steps import tiled_kernels

AVX512 = Target("cpu")
AVX2 = Target("cpu", vector_bits=256, vector_registers=16)
F, D = dtypes.float32, dtypes.float64


class Maker:
    """Build kernels over named ranges; each letter of an operand's subscript is a range."""

    def __init__(self, extents: dict[str, int], run_time: bool = False) -> None:
        self.extents = extents
        self.scalars: list[int] = []
        self.range: dict[str, UOp] = {}
        self.refs: list[UOp] = []
        for i, (name, n) in enumerate(extents.items()):
            extent: Any = n
            if run_time:
                extent = build.var(len(self.scalars), dtypes.index, name=name)
                self.scalars.append(n)
            self.range[name] = build.range_(extent, i)

    def place(self, subscript: str, dtype: DType = F) -> UOp:
        ranges = [self.range[x] for x in subscript]
        ref = build.ref(len(self.refs), dtype, [r.src[0] for r in ranges])
        self.refs.append(ref)
        return build.index_into(ref, *ranges)

    def load(self, subscript: str, dtype: DType = F) -> UOp:
        return build.load(self.place(subscript, dtype))

    def fold(self, value: UOp, over: str, monoid: ops.Op = ops.ADD) -> UOp:
        return build.reduce_ranges(value, monoid, [self.range[x] for x in over])

    def kernel(self, *stores: UOp) -> UOp:
        return canonicalize(build.kernel(stores, "k", [r.arg.id for r in self.range.values()]))

    def shape(self, ref: UOp) -> list[int]:
        lengths = {r.src[0]: self.extents[n] for n, r in self.range.items()}
        return [lengths[d] for d in ref.src]


def compare(maker: Maker, kernel: UOp, target: Target = AVX512, exact: bool = False) -> UOp:
    """Compare a kernel untiled and under the chosen schedule; return the tiled one."""
    random = np.random.default_rng(7)
    buffers = [random.standard_normal(maker.shape(r)).astype(r.dtype.np) for r in maker.refs]
    want, got = [b.copy() for b in buffers], [b.copy() for b in buffers]
    run_kernel(kernel, want, maker.scalars)
    tiled = tile(kernel, choose_schedule(kernel, target))
    packs, main, temporaries = split_global(tiled, "PAR")
    scalars = dict(enumerate(maker.scalars))
    got += [np.full([evaluate(d, scalars) for d in t.src], np.nan, t.dtype.np)
            for t in temporaries]
    for part in (*packs, main):
        spec.check([part.kernel], "kernel")
        run_kernel(part.kernel, [got[s] for s in part.refs],
                   [maker.scalars[s] for s in part.scalars])
    for a, b in zip(want, got):
        if exact:
            np.testing.assert_array_equal(b, a)
        else:
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-4)
    return main.kernel


def kinds(kernel: UOp) -> set[str]:
    return {n.arg.kind for n in toposort(kernel.src) if n.op is ops.RANGE}


SUBSCRIPTS = st.tuples(st.permutations("mk"), st.permutations("kn"), st.permutations("mn"))


@settings(deadline=None, max_examples=40)
@given(SUBSCRIPTS, st.sampled_from(((1, 9, 4), (30, 70, 40), (16, 3, 20), (33, 10, 64), (5, 40, 1),
                                    (15, 130, 17), (120, 64, 16))),
       st.sampled_from((AVX512, AVX2)), st.sampled_from((F, D)), st.booleans(), st.booleans())
def test_matrix_products(subscripts: Any, sizes: Any, target: Target, dtype: DType,
                         run_time: bool, scaled: bool) -> None:
    a, b, o = map("".join, subscripts)
    make = Maker(dict(zip("mnk", sizes)), run_time)
    left = make.load(a, dtype)
    if scaled:
        left = build.mul(left, make.load("m", dtype))
    value = make.fold(build.mul(left, make.load(b, dtype)), "k")
    compare(make, make.kernel(build.store(make.place(o, dtype), build.neg(value))), target)


@settings(deadline=None, max_examples=15)
@given(st.permutations("bmk"), st.permutations("bkn"), st.sampled_from(((3, 5, 4, 6),
       (2, 20, 34, 18), (6, 1, 30, 5))), st.booleans())
def test_batched_matrix_products(a: Any, b: Any, sizes: Any, run_time: bool) -> None:
    make = Maker(dict(zip("bmnk", sizes)), run_time)
    value = make.fold(build.mul(make.load("".join(a)), make.load("".join(b))), "k")
    compare(make, make.kernel(build.store(make.place("bmn"), value)))


@settings(deadline=None, max_examples=40)
@given(st.data(), st.booleans(), st.sampled_from((F, D)))
def test_folds_along_any_axes(data: st.DataObject, run_time: bool, dtype: DType) -> None:
    names = data.draw(st.permutations("abc"), label="layout")
    over = data.draw(st.sets(st.sampled_from("abc"), min_size=1, max_size=3), label="over")
    sizes = data.draw(st.sampled_from(((3, 5, 70), (40, 1, 9), (17, 33, 4))), label="sizes")
    monoid = data.draw(st.sampled_from((ops.ADD, ops.MAX, ops.MIN)))
    make = Maker(dict(zip("abc", sizes)), run_time)
    x = make.load("".join(names), dtype)
    kept = "".join(n for n in "abc" if n not in over)
    value = build.add(make.fold(build.mul(x, x), "".join(sorted(over)), monoid),
                      build.const_like(x, 1))
    compare(make, make.kernel(build.store(make.place(kept, dtype), value)))


@settings(deadline=None, max_examples=30)
@given(st.permutations("abc"), st.permutations("abc"),
       st.sampled_from(((3, 5, 7), (20, 33, 40), (1, 64, 3), (200, 18, 19))), st.booleans(),
       st.sampled_from((AVX512, AVX2)))
def test_maps_are_exact(x: Any, y: Any, sizes: Any, run_time: bool, target: Target) -> None:
    make = Maker(dict(zip("abc", sizes)), run_time)
    value = build.add(build.mul(make.load("".join(x)), make.load("c")), make.load("".join(y)))
    first = build.store(make.place("abc"), value)
    second = build.store(make.place("".join(y)), build.neg(value))
    compare(make, make.kernel(first, second), target, exact=True)


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 6), st.sampled_from((1, 3, 16, 65, 200)), st.booleans())
def test_rows_with_stages(rows: int, columns: int, run_time: bool) -> None:
    make = Maker({"r": rows, "x": columns, "y": columns, "z": columns}, run_time)
    if run_time:  # one length, three loops over it
        r = make.range
        for i, name in enumerate("yz", 2):
            r[name] = build.range_(r["x"].src[0], i)
        make.scalars = [rows, columns]
    source = build.ref(0, F, [make.range["r"].src[0], make.range["x"].src[0]])
    make.refs.append(source)
    row, x, y, z = (make.range[n] for n in "rxyz")
    largest = make.fold(build.load(build.index_into(source, row, x)), "x", ops.MAX)
    e = build.exp(build.sub(build.load(build.index_into(source, row, y)), largest))
    kept, total = build.stage(e, [y], 0), make.fold(e, "y")
    value = build.div(build.load(build.index_into(kept, z)), total)
    tiled = compare(make, make.kernel(build.store(make.place("rz"), value),
                                      build.store(make.place("r"), total)))
    assert columns == 1 or "VEC" in kinds(tiled)


def test_scatters_keep_their_order() -> None:
    make = Maker({"i": 50, "c": 40})
    i, c = make.range["i"], make.range["c"]
    index = build.ref(1, dtypes.int32, (50,))
    target = build.ref(2, F, (9, 40))
    update = make.load("ic")
    place = build.index_into(target,
                             build.cast(build.load(build.index_into(index, i)), dtypes.index), c)
    kernel = make.kernel(build.store(place, update, None, ops.ADD))
    tiled = tile(kernel, choose_schedule(kernel, AVX512))
    lanes, = (n for n in toposort(tiled.src) if n.op is ops.RANGE and n.arg.kind == "VEC")
    assert lanes.arg.name.startswith("r1")
    u = np.random.default_rng(1).standard_normal((50, 40)).astype(np.float32)
    where = np.random.default_rng(2).integers(0, 9, 50).astype(np.int32)
    want, got = np.zeros((9, 40), np.float32), np.zeros((9, 40), np.float32)
    np.add.at(want, where, u)
    run_kernel(tiled, [u, where, got], [])
    np.testing.assert_array_equal(got, want)


def matmul(m: int, n: int, k: int, a: str = "mk", b: str = "kn") -> UOp:
    make = Maker({"m": m, "n": n, "k": k})
    value = make.fold(build.mul(make.load(a), make.load(b)), "k")
    return make.kernel(build.store(make.place("mn"), value))


def test_how_the_product_is_spelled_does_not_matter() -> None:
    make = Maker({"m": 64, "n": 128, "k": 32})
    a, b = make.load("mk"), make.load("kn")
    swapped = make.kernel(build.store(make.place("mn"), make.fold(build.mul(b, a), "k")))
    assert choose_schedule(swapped, AVX512) == choose_schedule(matmul(64, 128, 32), AVX512)


def test_the_register_tile_fits_the_registers() -> None:
    for target in (AVX512, AVX2):
        for m, n in ((1, 1), (7, 10), (64, 10), (1000, 1000), (128, 48)):
            for size in (4, 8):
                t = choose_register_tile(m, n, size, target)
                assert t.rows * t.vectors + t.vectors + 1 <= target.vector_registers
                assert t.lanes == target.vector_lanes(size)
    assert tuple(choose_register_tile(4096, 4096, 4, AVX512))[:2] == (4, 4)
    assert tuple(choose_register_tile(4096, 4096, 4, AVX2))[:2] == (6, 2)


@pytest.mark.parametrize("n,parallel", [(100, False), (1 << 20, True)])
def test_little_work_stays_with_the_caller(n: int, parallel: bool) -> None:
    make = Maker({"i": n})
    kernel = make.kernel(build.store(make.place("i"), build.exp(make.load("i"))))
    steps = choose_schedule(kernel, AVX512)
    assert any(isinstance(s, Parallel) for s in steps) == parallel
    assert any(isinstance(s, Vectorize) for s in steps)


@pytest.mark.parametrize("m,n,k,right,shared", [
    (512, 64, 64, None, "r0_io"), (512, 512, 512, "PRIV", "r1_jr"),
    (128, 1024, 784, "PRIV", "r1_jr"), (8, 1024, 784, None, "r0_io"),
    (1024, 1024, 1024, "PRIV", "r1_jr"), (4096, 4096, 4096, "GLOBAL", "r0_io"),
    (1024, 128, 4096, "GLOBAL", "r0_io"), (1024, 320, 1024, "GLOBAL", "r0_io")],
    ids=["small", "it fills the cache", "its rows share places of the cache", "few rows", "large",
         "no cache holds a piece", "two pieces", "pieces are uneven"])
def test_where_the_right_factor_is_packed(m: int, n: int, k: int, right: str | None, shared: str
                                          ) -> None:
    """By the worker that reads a panel of it, once for all, or not at all; the left factor, whose
    rows are contiguous, is never packed."""
    steps = choose_schedule(matmul(m, n, k), AVX512)
    assert {s.operand: s.space for s in steps if isinstance(s, StageOperand)} == (
        {} if right is None else {1: right})
    assert [s.range for s in steps if isinstance(s, Parallel)] == [shared]


def test_strided_lanes_are_packed() -> None:
    """x @ w.T: by the worker that reads a panel, or, if there are few panels, once for all."""
    for n, space in ((512, "PRIV"), (128, "GLOBAL")):
        steps = choose_schedule(matmul(512, n, 512, b="nk"), AVX512)
        assert [(s.operand, s.space) for s in steps if isinstance(s, StageOperand)] == [(1, space)]


def test_rows_that_lie_across_are_packed_where_caches_lose_them() -> None:
    for n, operands in ((64, []), (512, [0, 1]), (2048, [0, 1])):
        steps = choose_schedule(matmul(n, n, n, a="km"), AVX512)
        assert [s.operand for s in steps if isinstance(s, StageOperand)] == operands


def test_what_is_computed_of_a_factor_is_computed_once() -> None:
    """exp(x) @ w: computed once, not for each panel of columns."""
    make = Maker({"m": 512, "n": 512, "k": 512})
    value = make.fold(build.mul(build.exp(make.load("mk")), make.load("kn")), "k")
    steps = choose_schedule(make.kernel(build.store(make.place("mn"), value)), AVX512)
    assert [(s.operand, s.space) for s in steps if isinstance(s, StageOperand)] == [
        (0, "GLOBAL"), (1, "PRIV")]


@pytest.mark.parametrize("columns", [64, 128, 192, 256, 512])
def test_with_few_rows_there_is_work_for_several_workers(columns: int) -> None:
    """If the columns are few panels, rows are shared among workers."""
    kernel = matmul(128, columns, 784)
    tiled = split_global(tile(kernel, choose_schedule(kernel, AVX512)), "PAR")[1].kernel
    shared, = [n for n in toposort(tiled.src) if n.op is ops.RANGE and n.arg.kind == "PAR"]
    assert build.const_of(shared.src[0]) >= 4


def test_a_loop_ends_with_the_terms_of_a_packed_factor() -> None:
    """Past the last of 521 terms the packed factor is 0, so the loop checks no bounds."""
    kernel = matmul(512, 512, 521, b="nk")
    lines = emit_program(tile(kernel, choose_schedule(kernel, AVX512)), AVX512).src
    reads = [line for line in lines if line.op is ops.LOAD and line.dtype.lanes == 1
             and any(user.op is ops.MULACC for user in lines if line in toposort(user.src))]
    assert reads and all(len(line.src) == 1 for line in reads)


@pytest.mark.parametrize("k,packed", [(256, [1]), (255, [0, 1])])
def test_words_that_lie_in_memory_are_not_packed(k: int, packed: list[int]) -> None:
    """In an odd row, the last register would hold half of the next row's first."""
    make = Maker({"m": 256, "n": 512, "k": k})
    x, w = (build.cast(make.load(names, dtypes.bfloat16), F) for names in ("mk", "kn"))
    kernel = make.kernel(build.store(make.place("mn"), make.fold(build.mul(x, w), "k")))
    steps = choose_schedule(kernel, AVX512.replace(unit_names=("dpbf16ps",)))
    assert [s.operand for s in steps if isinstance(s, StageOperand)] == packed


def test_few_tall_tiles_are_shared_evenly() -> None:
    """64 rows by 16 columns: five tiles of 13 would give one of two workers three of them."""
    steps = choose_schedule(matmul(64, 16, 4037), AVX512)
    kernel = tile(matmul(64, 16, 4037), steps)
    shared, = [n for n in toposort(kernel.src) if n.op is ops.RANGE and n.arg.kind == "PAR"]
    assert build.const_of(shared.src[0]) % 2 == 0


@pytest.mark.parametrize("m,n,k,rows", [(4096, 71, 1024, 8), (4096, 71, 1000, 14),
                                        (4096, 10, 1000, 8), (36, 16, 1000, 9)],
                         ids=["pages apart", "lines apart", "read once", "few"])
def test_rows_that_a_tile_reads_at_once(m: int, n: int, k: int, rows: int) -> None:
    steps = choose_schedule(matmul(m, n, k), AVX512)
    assert next(s.factor for s in steps if isinstance(s, Split) and s.inner == "r0_i") == rows


def test_the_schedule_does_not_depend_on_the_workers() -> None:
    kernel = matmul(300, 200, 100)
    assert choose_schedule(kernel, Target("cpu", cores=1)) == \
        choose_schedule(kernel, Target("cpu", cores=64))


@settings(deadline=None, max_examples=10)
@given(st.lists(st.integers(1, 4000), min_size=2, max_size=4, unique=True))
def test_run_time_lengths_are_one_kernel(lengths: list[int]) -> None:
    def tiled(length: int) -> UOp:
        make = Maker({"i": length}, run_time=True)
        kernel = make.kernel(build.store(make.place("i"), build.neg(make.load("i"))))
        return compare(make, kernel, exact=True)
    first, *others = [tiled(length) for length in lengths]
    assert all(kernel is first for kernel in others)


def test_few_long_rows_are_shared_as_rows():
    """Otherwise each worker would reduce the whole row for the part of it that it writes."""
    for rows in (1, 2):
        i, j, k = (build.range_(n, at, name=name) for at, (n, name) in
                   enumerate(((rows, "i"), (60_000, "j"), (60_000, "k"))))
        x = build.ref(0, F, (rows, 60_000))
        total = build.reduce_ranges(build.load(build.index_into(x, i, k)), ops.ADD, (k,))
        value = build.add(build.load(build.index_into(x, i, j)), total)
        store = build.store(build.index_into(build.ref(1, F, (rows, 60_000)), i, j), value)
        steps = choose_schedule(build.kernel([store], "rows", (0, 2, 1)), AVX512)
        assert [s.range for s in steps if isinstance(s, Parallel)] == ["i"]


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=["16", "8"])
@pytest.mark.parametrize("shape", [(64, 64), (57, 100)])
def test_a_transposition_is_made_of_blocks_in_registers(target, shape):
    """No lane is loaded or stored by itself."""
    m, n = shape
    i, j = build.range_(n, 0, name="i"), build.range_(m, 1, name="j")
    x = build.load(build.index_into(build.ref(0, F, (m, n)), j, i))
    store = build.store(build.index_into(build.ref(1, F, (n, m)), i, j), build.add(x, x))
    kernel = build.kernel([store], "turn", (0, 1))
    tiled = tile(kernel, choose_schedule(kernel, target))
    moves = [line for line in emit_program(tiled, target).src if line.op in (ops.LOAD, ops.STORE)]
    assert len(moves) >= 2 * target.vector_lanes(4)
    assert all(line.src[0].src[1].dtype.lanes == 1 for line in moves)
    values = np.arange(m * n, dtype="f4").reshape(m, n)
    out = np.zeros((n, m), "f4")
    run_kernel(tiled, [values, out], [])
    assert np.array_equal(out, 2 * values.T)


@settings(deadline=None, max_examples=25)
@given(st.permutations("abc"), st.permutations("abc"), st.permutations("abc"),
       st.sampled_from(((128, 128, 1), (100, 3, 70), (530, 33, 2), (17, 40, 30), (1, 600, 40))),
       st.sampled_from((AVX512, AVX2)), st.sampled_from((F, D, dtypes.int32)),
       st.none() | st.permutations("abc"))
def test_maps_of_transposed_operands_are_exact(
        x: Any, y: Any, z: Any, sizes: Any, target: Target, dtype: DType, second: Any) -> None:
    make = Maker(dict(zip("abc", sizes)))
    first = make.load("".join(x), dtype)
    value = build.add(build.mul(first, make.load("".join(y), dtype)), build.neg(first))
    stores = [build.store(make.place("".join(z), dtype), value)]
    if second is not None:
        stores.append(build.store(make.place("".join(second), dtype), build.add(first, first)))
    random = np.random.default_rng(3)
    values = [random.integers(-9, 9, make.shape(r)).astype(r.dtype.np) for r in make.refs]
    want, got = [v.copy() for v in values], [aligned(v) for v in values]
    kernel = make.kernel(*stores)
    run_kernel(kernel, want, [])
    tiled = tile(kernel, choose_schedule(kernel, target))
    spec.check([tiled], "kernel")
    run(tiled, got)
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=["16", "8"])
@pytest.mark.parametrize("shape", [(128, 128), (133, 530)])
@pytest.mark.parametrize("results", [1, 2])
@pytest.mark.parametrize("backwards", [False, True])
def test_what_a_map_reads_across_is_transposed_in_blocks(target, shape, results, backwards):
    """No lane is loaded by itself, in x.T + y or rot90(x) + y, nor for several results that read
    one block."""
    m, n = shape
    i, j = build.range_(m, 0, name="i"), build.range_(n, 1, name="j")
    row = build.sub(build.index_const(m - 1), i) if backwards else i
    x = build.load(build.index_into(build.ref(0, F, (n, m)), j, row))
    y = build.load(build.index_into(build.ref(1, F, (m, n)), i, j))
    stores = [build.store(build.index_into(build.ref(2 + r, F, (m, n)), i, j),
                          (build.add, build.mul)[r](x, y)) for r in range(results)]
    kernel = build.kernel(stores, "turn", (0, 1))
    schedule = choose_schedule(kernel, target)
    assert [s.operand for s in schedule if isinstance(s, StageOperand)] == [0]
    tiled = vectorize_stage_fills(tile(kernel, schedule), target)
    moves = [line for line in emit_program(tiled, target).src if line.op in (ops.LOAD, ops.STORE)]
    assert all(line.src[0].src[1].dtype.lanes == 1 for line in moves)


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=["16", "8"])
def test_a_rotated_array_is_stored_in_transposed_blocks(target):
    """Of rot90(x), lanes are contiguous, backwards, and blocks are transposed in registers."""
    i, j = build.range_(160, 0, name="i"), build.range_(320, 1, name="j")
    x = build.load(build.index_into(build.ref(0, F, (320, 160)), j,
                                    build.sub(build.index_const(159), i)))
    store = build.store(build.index_into(build.ref(1, F, (160, 320)), i, j), build.add(x, x))
    kernel = build.kernel([store], "turn", (0, 1))
    program = emit_program(tile(kernel, choose_schedule(kernel, target)), target)
    moves = [line for line in program.src if line.op in (ops.LOAD, ops.STORE)]
    assert all(line.src[0].dtype.lanes > 1 and line.src[0].src[1].dtype.lanes == 1
               for line in moves)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 3), st.booleans())
def test_rotated_arrays_are_numpy_s(m, n, turns, flips):
    x = np.random.default_rng(m).integers(-9, 9, (m, n)).astype("f")
    y = np.random.default_rng(n).integers(-9, 9, np.rot90(x, turns).shape).astype("f")

    def f(m, x, y):
        rotated = m.rot90(m.flip(x, 0) if flips else x, turns)
        return rotated * 2, rotated + y, m.exp(rotated) * y
    for a, b in zip(fnx.jit(lambda x, y: f(jnp, x, y))(x, y), f(np, x, y)):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_folds_of_a_few_rows_are_written_out():
    """Then the loop over columns contains no other and is peeled: only its last iteration is
    masked."""
    i, k = build.range_(50_000, 0, name="i"), build.range_(3, 1, name="k")
    x = build.load(build.index_into(build.ref(0, F, (3, 50_000)), k, i))
    store = build.store(build.index_into(build.ref(1, F, (50_000,)), i),
                        build.reduce_ranges(x, ops.MIN, (k,)))
    kernel = build.kernel([store], "few", (0, 1))
    program = emit_program(tile(kernel, choose_schedule(kernel, AVX512)), AVX512)
    loads = [line for line in program.src if line.op is ops.LOAD]
    assert len([line for line in loads if len(line.src) == 1]) == 3


def small_inner(m, n, monoid=ops.MAX, dtype=F):
    i, k = build.range_(m, 0, name="i"), build.range_(n, 1, name="k")
    x = build.load(build.index_into(build.ref(0, dtype, (m, n)), i, k))
    pairs = build.arg_pair(x, build.cast(k, dtypes.int32))
    store = build.store(build.index_into(build.ref(1, dtypes.int32, (m,)), i),
                        build.reduce_ranges(pairs, monoid, (k,)))
    return build.kernel([store], "places", (0, 1))


@settings(deadline=None, max_examples=25)
@given(m=st.integers(1, 90), n=st.integers(2, 70), low=st.booleans(),
       target=st.sampled_from([AVX512, AVX2]))
def test_positions_in_a_small_inner_dimension(m, n, low, target):
    kernel = small_inner(m, n, ops.MIN if low else ops.MAX)
    x = np.random.default_rng(m * n).integers(-2, 3, (m, n)).astype("f")
    x[::7] = np.nan
    tiled = vectorize_stage_fills(tile(kernel, choose_schedule(kernel, target)), target)
    out = np.zeros(m, "i4")
    run_kernel(tiled, [x, out], [])
    np.testing.assert_array_equal(out, x.argmin(1) if low else x.argmax(1))


@pytest.mark.parametrize("n,staged", [(8, False), (9, True), (15, True), (64, True), (65, False)])
def test_short_rows_are_transposed_before_they_are_folded(n, staged):
    """No lane is loaded by itself."""
    kernel = small_inner(4096, n)
    schedule = choose_schedule(kernel, AVX512)
    assert any(isinstance(s, StageOperand) for s in schedule) is staged
    program = emit_program(vectorize_stage_fills(tile(kernel, schedule), AVX512), AVX512)
    moves = [line for line in program.src if line.op in (ops.LOAD, ops.STORE)]
    assert all(line.src[0].src[1].dtype.lanes == 1 for line in moves) or n > 64


def windows(channels, width, depth, taps):
    """o[c, x] = sum over k and t of w[c, k, t] * a[k, x + t]"""
    c, x, k, t = (build.range_(n, i, name=name) for i, (n, name) in enumerate(
        ((channels, "c"), (width, "x"), (depth, "k"), (taps, "t"))))
    w = build.load(build.index_into(build.ref(0, F, (channels, depth, taps)), c, k, t))
    a = build.load(build.index_into(build.ref(1, F, (depth, width + taps - 1)), k, build.add(x, t)))
    store = build.store(build.index_into(build.ref(2, F, (channels, width)), c, x),
                        build.reduce_ranges(build.mul(w, a), ops.ADD, (k, t)))
    return build.kernel([store], "windows", (0, 1, 2, 3))


@pytest.mark.parametrize("channels,width,depth,lanes", [
    (14, 8, 64, "c"), (14, 16, 64, "x"), (6, 8, 64, "x"), (14, 8, 2, "x")])
def test_windows_that_fill_few_lanes_are_read_one_by_one(channels, width, depth, lanes):
    """Lanes go along the axis that fills more of them, if the sum is longer than scattering the
    store."""
    kernel = windows(channels, width, depth, 7)
    schedule = choose_schedule(kernel, AVX512)
    vector, = [s.range for s in schedule if isinstance(s, Vectorize)]
    assert vector[0] == lanes
    draw = np.random.default_rng(0)
    w, a = (draw.integers(-3, 4, s).astype("f")
            for s in ((channels, depth, 7), (depth, width + 6)))
    out = np.zeros((channels, width), "f")
    packs, main, temporaries = split_global(tile(kernel, schedule), "PAR")
    buffers = [w, a, out, *[np.zeros([build.const_of(d) for d in t.src], "f") for t in temporaries]]
    for part in (*packs, main):
        run_kernel(part.kernel, [buffers[i] for i in part.refs], [])
    near = np.stack([a[:, i:i + width] for i in range(7)], 1)
    np.testing.assert_array_equal(out, np.einsum("ckt,ktx->cx", w, near))


def test_a_stage_holds_no_folds_of_what_it_stages() -> None:
    """before: STAGE(x[i, p] - sum(k: x[i, k]), i, p), a sum for each element; after: STAGE(x)."""
    i, k, p = (build.range_(n, id, name=name) for id, (n, name) in
               enumerate([(40, "i"), (9, "k"), (9, "p")]))
    x, o = (build.ref(slot, dtypes.float32, shape) for slot, shape in enumerate([(40, 9), (40,)]))
    total = build.reduce_ranges(build.load(build.index_into(x, i, k)), ops.ADD, [k])
    off = build.sub(build.load(build.index_into(x, i, p)), total)
    store = build.store(build.index_into(o, i),
                        build.reduce_ranges(build.mul(off, off), ops.ADD, [p]))
    kernel = build.kernel([store], "squares", (0, 1, 2))
    tiled = tile(kernel, [tiling.split("i", 16, "io", "il"), tiling.vectorize("il"),
                          tiling.stage(0, at="io")])
    nodes = toposort(tiled.src)
    assert sum(n.op is ops.REDUCE for n in nodes) == 2
    assert all(n.src[0].op is ops.LOAD for n in nodes if n.op is ops.STAGE)
    data = np.random.default_rng(0).standard_normal((40, 9)).astype(np.float32)
    out = np.zeros(40, np.float32)
    run_kernel(tiled, [data, out], [])
    np.testing.assert_allclose(out, ((data - data.sum(1, keepdims=True)) ** 2).sum(1), rtol=1e-5)


@pytest.mark.parametrize(("columns", "strip"), [
    (4096, 512), (2048, 256), (1024, 128), (512, 64), (1600, 64), (3000, 64), (300, 16)])
def test_long_runs_of_rows_that_are_transposed_are_read_at_once(columns: int, strip: int) -> None:
    """x.T + y: as long as strips are even, with four of them for each of two workers."""
    make = Maker({"i": columns, "j": 600})
    value = build.add(make.load("ji"), make.load("ij"))
    kernel = make.kernel(build.store(make.place("ij"), value))
    assert choose_schedule(kernel, Target("cpu", cores=2))[0].factor == strip
    if columns <= 512:
        compare(make, kernel, exact=True)


def test_a_transposed_map_of_few_columns_reads_blocks() -> None:
    """Lanes go along the rows, and blocks are transposed in registers, not gathered."""
    def f(x: Any) -> Any:
        return jnp.where(x > 0, x, x * 0.1).T
    x = np.random.default_rng(0).standard_normal((2000, 16)).astype("f4")
    text = fnx.jit(f).lower(x).text("llvm")
    assert "masked.scatter" not in text and "masked.gather" not in text
    np.testing.assert_array_equal(fnx.jit(f)(x), np.where(x > 0, x, x * np.float32(0.1)).T)


def test_gaps_of_some_results_are_filled() -> None:
    """A row's norm and its four elements are written by one kernel: no scatter of elements."""
    def f(x: Any) -> Any:
        norm = jnp.sqrt((x * x).sum(-1, keepdims=True))
        return jnp.exp(x / norm), jnp.sin(x / norm), norm
    text = fnx.jit(f).lower(jnp.ones((2000, 4))).text("llvm")
    assert "masked.scatter" not in text


@given(st.integers(1, 3000))
@settings(max_examples=8, deadline=None)
def test_a_row_of_run_time_length_is_not_padded(n: int) -> None:
    """exp(x - max) / sum: the row is filled in the loop of its sum, in whole blocks of vectors."""
    graph = fnx.jit(lambda x: jnp.exp(x) / jnp.exp(x).sum(1, keepdims=True)).lower(
        jnp.zeros((3, n))).graph
    made = lower(graph, Target("cpu", cores=2), frozenset())
    for launch in all_execs(made.block.commands):
        numbers = dict(enumerate([build.const_of(s) for s in launch.src[1:]
                                  if s.op is ops.CONST]))
        for stage in (s for s in toposort([launch.src[0]]) if s.op is ops.STAGE):
            elements = math.prod([evaluate(extent(r), numbers) for r in bound_ranges(stage)])
            assert n <= elements < n + 64


def unrolled_stores(graph: UOp, target: Target) -> list[dict[int, str]]:
    """Return, for each tiled kernel of reductions, the names of the unrolled ranges that its
    results depend on, by their extents."""
    kernels = [k for k in tiled_kernels(graph, target) if any(n.op is ops.REDUCE
                                                              for n in toposort([k]))]
    return [{build.const_of(extent(r)): r.arg.name for s in k.src for r in s.ranges
             if r.arg.kind == "UNROLL"} for k in kernels]


def test_gaps_of_a_result_are_filled_beside_a_long_reduction() -> None:
    """Lanes of the result are four elements apart: four vectors are interleaved and stored."""
    def f(x: Any, y: Any, p: Any) -> Any:
        return (x * (x * y).sum(1, keepdims=True) + y)[:, :, None] * (p[:, None] - p[None])
    args = jnp.ones((300, 300)), jnp.ones((300, 300)), jnp.ones((300, 4))
    unrolled, = unrolled_stores(fnx.jit(f).lower(*args).graph, AVX512)
    assert 4 in unrolled
    text = fnx.jit(f).lower(*args).text("llvm")
    assert "masked.scatter" not in text


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=["512", "256"])
def test_rows_of_distances_share_what_they_read(target: Target) -> None:
    def f(a: Any, b: Any) -> Any:
        return ((a[:, None] - b[None]) ** 2).sum(-1)
    graph = fnx.jit(f).lower(jnp.ones((300, 4)), jnp.ones((300, 4))).graph
    unrolled, = unrolled_stores(graph, target)
    assert list(unrolled.values()) == ["r0_u"]


@pytest.mark.parametrize("width,rows", [(8, 4), (32, 2), (64, 1)])
def test_a_few_lanes_of_results_are_several_chains(width: int, rows: int) -> None:
    """Each sum waits for the one before: rows are summed together until the adders are busy."""
    graph = fnx.jit(lambda x: x.sum(1)).lower(jnp.ones((300, 400, width))).graph
    unrolled, = unrolled_stores(graph, AVX512)
    assert (rows if rows > 1 else 4) in unrolled


def test_lanes_do_not_cross_rows_that_share_their_places_in_a_cache() -> None:
    """Rows of 4 KB: a line that one lane reads is gone before its next element is read."""
    def f(g: Any, b: Any) -> Any:
        terms = g[:, :, None] * (b[:, None] - b[None])
        return terms.sum(1) - terms.sum(0)
    graph = fnx.jit(f).lower(jnp.ones((1024, 1024)), jnp.ones((1024, 4))).graph
    strides = {stride(load, r) for k in tiled_kernels(graph, AVX512) for load in toposort([k])
               if load.op is ops.LOAD for r in load.ranges if r.arg.kind == "VEC"}
    assert 1024 not in strides


def test_lanes_go_along_the_labels_of_a_transposed_one_hot() -> None:
    """Whether a label is this row's is compared for a vector of rows, not for each of them."""
    graph = fnx.jit(lambda i, x: fnx.nn.one_hot(i, 100).T @ x).lower(
        jnp.arange(2000), jnp.ones((2000, 2))).graph
    kernel, = [k for k in tiled_kernels(graph, AVX512) if k.arg.name.startswith("contract")]
    assert any(n.op is ops.CMPEQ and any(r.arg.kind == "VEC" for r in n.ranges)
               for n in toposort([kernel]))


def test_strided_stores_are_of_no_more_lanes_than_a_cache_has_places() -> None:
    graph = fnx.jit(lambda x: (x - x.mean(0)).T).lower(jnp.ones((512, 256))).graph
    stores = [s for k in tiled_kernels(graph, AVX512) for s in k.src
              if any(stride(s, r) == 512 for r in s.ranges)]
    assert stores
    for s in stores:
        rows = [build.const_of(extent(r)) for r in s.ranges
                if stride(s, r) % 512 == 0 and r.arg.kind in ("VEC", "UNROLL")]
        assert math.prod(rows) <= 16


@pytest.mark.parametrize("rows,terms", [(256, 256), (1000, 40)])
def test_lanes_of_gathered_terms_go_along_their_indices(rows: int, terms: int) -> None:
    """What the indices of a gather are read from is read, too: along its lines, not across."""
    x, w = jnp.ones(rows), jnp.ones(terms)
    at = jnp.zeros((rows, terms), jnp.int32)
    kernel, = tiled_kernels(fnx.jit(lambda x, i, w: (x[i] * w).sum(1)).lower(x, at, w).simplified,
                            AVX512)
    index = next(n for n in toposort(kernel.src) if n.op is ops.LOAD and n.dtype is dtypes.int32)
    lane, = (r for r in index.ranges if r.arg.kind == "VEC")
    assert stride(index, lane) == 1
