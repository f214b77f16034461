"""Compare manually tiled kernels with the machine's limits, to measure code generation alone.

    python -m benchmarks.kernels

Each row is the median of 7 rounds on one core: saxpy and softmax in GB/s, GEMM in percent of the
register-tile limit (the same tile on panels in the L1 cache, same run).
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.backends.llvm import binding as llvm
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.lower.emit.emit import emit_program
from fnx.lower.emit.vectorize_stage_fills import vectorize_stage_fills
from fnx.lower.legalize.decompose import decompose
from fnx.lower.render.host import module, render

Array = np.ndarray[Any, Any]
F32 = dtypes.float32
C = build.index_const


class Compiled:
    """A kernel function, called with NumPy arrays; its memory is 64-byte aligned."""

    def __init__(self, kernel: UOp) -> None:
        target = llvm.host_target()
        start = time.perf_counter()
        self.program = emit_program(decompose(vectorize_stage_fills(kernel, target), target),
                                    target)
        self.text = module("kernel", render(self.program))
        self.python_ms = (time.perf_counter() - start) * 1e3
        start = time.perf_counter()
        code = llvm.compile_ir(self.text, target)
        self.llvm_ms = (time.perf_counter() - start) * 1e3
        self.library = llvm.link([(code, ["kernel"])])
        self.call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2,
                                     ctypes.c_void_p)(self.library.addresses["kernel"])

    def cost(self) -> str:
        return f"lowered in {self.python_ms:.1f} ms, compiled in {self.llvm_ms:.1f} ms"

    def prepare(self, buffers: list[Array], scalars: list[int], hi: int,
                scratch: Array) -> Callable[[], None]:
        pointers = (ctypes.c_void_p * len(buffers))(*[b.ctypes.data for b in buffers])
        values = (ctypes.c_int64 * max(1, len(scalars)))(*scalars)
        args = (ctypes.addressof(pointers), ctypes.addressof(values), 0, hi, scratch.ctypes.data)
        keep = (pointers, values, buffers, scratch)
        return lambda: self.call(*args) if keep else None


def aligned(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Zeros at a multiple of 64 bytes."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    out: Array = raw[start:start + nbytes].view(dtype).reshape(shape)
    return out


def index_sum(*terms: tuple[UOp, int]) -> UOp:
    total = None
    for node, factor in terms:
        term = node if factor == 1 else build.mul(node, C(factor))
        total = term if total is None else build.add(total, term)
    assert total is not None
    return total


# ---- kernels ----------------------------------------------------------------------------------


def saxpy(lanes: int = 16, unroll: int = 4) -> UOp:
    """o = a * x + y over a run-time extent; the PAR range counts blocks."""
    n = build.var(0, dtypes.index, name="n")
    block = lanes * unroll
    blocks = build.idiv(build.add(n, C(block - 1)), C(block))
    i = build.range_(blocks, 0, "PAR")
    u = build.range_(unroll, 1, "UNROLL")
    lane = build.range_(lanes, 2, "VEC")
    at = index_sum((i, block), (u, lanes), (lane, 1))
    inside = build.lt(at, n)
    a = build.load(build.index_into(build.ref(0, F32, ())))
    x, y = (build.load(build.index_into(build.ref(s, F32, (n,)), at), inside) for s in (1, 2))
    value = build.add(build.mul(a, x), y)
    return build.kernel([build.store(build.index_into(build.ref(3, F32, (n,)), at), value, inside)],
                        "saxpy", (0, 1, 2))


def softmax(columns: int, exp: Callable[[UOp], UOp], lanes: int = 16, unroll: int = 4) -> UOp:
    """Softmax of rows that stay in cache: max, then exp and its sum, then the division."""
    rows = build.var(0, dtypes.index, name="rows")
    row = build.range_(rows, 0, "PAR")
    step = lanes * unroll
    column, valid = [], []
    ranges = []
    for i in range(3):
        r = (build.range_(-(-columns // step), 1 + 3 * i), build.range_(unroll, 2 + 3 * i,
             "UNROLL"), build.range_(lanes, 3 + 3 * i, "VEC"))
        ranges.append(r)
        column.append(index_sum((r[0], step), (r[1], lanes), (r[2], 1)))
        valid.append(None if columns % step == 0 else build.lt(column[-1], C(columns)))
    x, o = (build.ref(s, F32, (rows, columns)) for s in (0, 1))

    def masked(value: UOp, i: int, identity: float) -> UOp:
        inside = valid[i]
        return value if inside is None else build.where(inside, value, build.const(identity, F32))

    read = build.load(build.index_into(x, row, column[0]), valid[0])
    largest = build.reduce_ranges(masked(read, 0, -np.inf), ops.MAX, ranges[0])
    e = exp(build.sub(build.load(build.index_into(x, row, column[1]), valid[1]), largest))
    kept = build.stage(e, ranges[1], id=0)
    total = build.reduce_ranges(masked(e, 1, 0.0), ops.ADD, ranges[1])
    scale = build.div(build.const(1, F32), total)
    value = build.mul(build.load(build.index_into(kept, *ranges[2])), scale)
    return build.kernel([build.store(build.index_into(o, row, column[2]), value, valid[2])],
                        "softmax", tuple(range(10)))


def gemm(m: int, n: int, k: int, rows: int = 14, vectors: int = 2, lanes: int = 16,
         block: int = 8) -> UOp:
    """o = a @ b. A worker packs ``block`` row tiles of a at a time; b is packed once a call."""
    tiles_m, tiles_n = -(-m // rows), -(-n // (vectors * lanes))
    io = build.range_(-(-tiles_m // block), 0, "PAR")
    jr = build.range_(tiles_n, 1)
    ir = build.range_(block, 2)
    kk = build.range_(k, 3)
    i = build.range_(rows, 4, "UNROLL")
    j = build.range_(vectors, 5, "UNROLL")
    lane = build.range_(lanes, 6, "VEC")
    row = index_sum((io, rows * block), (ir, rows), (i, 1))
    column = index_sum((jr, vectors * lanes), (j, lanes), (lane, 1))
    row_ok = None if tiles_m % block == 0 and m % rows == 0 else build.lt(row, C(m))
    column_ok = None if n % (vectors * lanes) == 0 else build.lt(column, C(n))
    a, b, o = build.ref(0, F32, (m, k)), build.ref(1, F32, (k, n)), build.ref(2, F32, (m, n))
    packed_a = build.stage(build.load(build.index_into(a, row, kk), row_ok), (ir, kk, i), id=0)
    packed_b = build.stage(build.load(build.index_into(b, kk, column), column_ok),
                           (jr, kk, j, lane), id=1)
    product = build.mul(build.load(build.index_into(packed_a, ir, kk, i)),
                        build.load(build.index_into(packed_b, jr, kk, j, lane)))
    total = build.reduce_ranges(product, ops.ADD, (kk,))
    conditions = [c for c in (row_ok, column_ok) if c is not None]
    valid = conditions[0] if len(conditions) == 1 else build.and_(*conditions) \
        if conditions else None
    return build.kernel([build.store(build.index_into(o, row, column), total, valid)], "gemm",
                        (0, 1, 2, 3, 4, 5, 6))


def tile_limit(k: int = 256, rows: int = 14, vectors: int = 2, lanes: int = 16,
               repeats: int = 1000) -> UOp:
    """The register tile alone, on panels that stay in L1.

    The panel index is data (always 0), so that the tile is computed again each time.
    """
    again = build.range_(repeats, 0)
    kk = build.range_(k, 1)
    i, j = build.range_(rows, 2, "UNROLL"), build.range_(vectors, 3, "UNROLL")
    lane = build.range_(lanes, 4, "VEC")
    a, b = build.ref(0, F32, (1, k, rows)), build.ref(1, F32, (k, vectors, lanes))
    o = build.ref(2, F32, (1, rows, vectors, lanes))
    which = build.cast(build.load(build.index_into(build.ref(3, dtypes.int32, (repeats,)), again)),
                       dtypes.index)
    product = build.mul(build.load(build.index_into(a, which, kk, i)),
                        build.load(build.index_into(b, kk, j, lane)))
    total = build.reduce_ranges(product, ops.ADD, (kk,))
    return build.kernel([build.store(build.index_into(o, which, i, j, lane), total)], "tile",
                        (0, 1, 2, 3, 4))


# ---- measuring --------------------------------------------------------------------------------


def median_seconds(f: Callable[[], None], rounds: int = 7) -> float:
    f()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def saxpy_row() -> str:
    n = 1 << 22
    kernel = Compiled(saxpy())
    a, x, y, o = aligned(()), aligned((n,)), aligned((n,)), aligned((n,))
    seconds = median_seconds(kernel.prepare([a, x, y, o], [n], n // 64, aligned((1,))))
    return f"saxpy {n}: {12 * n / seconds / 1e9:.1f} GB/s; {kernel.cost()}"


def softmax_row(n: int = 4096) -> str:
    kernel = Compiled(softmax(n, build.exp))
    x, o = aligned((n, n)), aligned((n, n))
    x[:] = np.random.default_rng(0).normal(size=x.shape)
    seconds = median_seconds(kernel.prepare([x, o], [n], n, aligned((n,))))
    return f"softmax {n}x{n}: {seconds * 1e3:.2f} ms; {kernel.cost()}"


def gemm_row(n: int) -> str:
    block = max(1, (256 << 10) // (14 * 4 * n))  # the packed rows of a: a quarter of the L2 cache
    kernel, limit = Compiled(gemm(n, n, n, block=block)), Compiled(tile_limit())
    a, b, o = (aligned((n, n)) for _ in range(3))
    panels = [aligned((256, 14)), aligned((256, 32)), aligned((14, 32)),
              aligned((1000,), np.int32)]
    # Space for both packed operands, rounded up to whole tiles.
    run = kernel.prepare([a, b, o], [], -(-n // (14 * block)), aligned((2 * (n + 64) * (n + 64),)))
    tile = limit.prepare(panels, [], 1, aligned((1,)))
    best = 2 * 1000 * 256 * 14 * 32 / median_seconds(tile) / 1e9
    reached = 2 * n**3 / median_seconds(run) / 1e9
    return (f"gemm {n}: {reached:.0f} GFLOP/s, {100 * reached / best:.0f} % of the tile's "
            f"{best:.0f}; {kernel.cost()}")


if __name__ == "__main__":
    print(saxpy_row())
    print(softmax_row())
    for size in (1000, 1024, 2048):
        print(gemm_row(size))
