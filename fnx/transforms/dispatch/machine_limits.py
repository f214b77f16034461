"""Measured limits of this machine: peak arithmetic of each type, and read bandwidth of each level.

Each limit is measured by a microbenchmark kernel on all workers at once: a register tile of
products of operands in the L1 cache; sums over memory of half the size of a cache level. This takes
half a second, once: the results are cached in the process and on disk.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core.ir import build, dtypes, op_args, ops, tiling
from fnx.core.ir.dtypes import DType
from fnx.core.ir.matrix_units import UNITS
from fnx.core.ir.tiling import Schedule
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.peak_rates import PeakRates
from fnx.core.support.config import config, override
from fnx.core.support.source_digests import PACKAGES, source_digest
from fnx.core.support.target import Target
from fnx.transforms.dispatch.program_cache import ByteCache
from fnx.transforms.dispatch.schedule_trials import CompileFn, measurements

_ROUNDS = 7
_CACHE_READ_BYTES = 1 << 26    # bytes a kernel reads from a cache level
_MEMORY_BYTES = 1 << 26   # bytes for each worker in main memory
_TERMS = 64       # of each sum of a tile
_TILE_REPEATS = 1 << 14   # repetitions of a tile
_VECTORS = 2       # in each row of a tile

_remeasured: set[bytes] = set()  # keys that were measured a second time


def find_limits(device: Any, compile_fn: CompileFn, disk: ByteCache,
                exceeded: bool = False) -> PeakRates:
    """Return the limits of a device, and measure them if they are not cached.

    Args:
        device: a device whose kernels have loops and vectors.
        compile_fn: compiles a FUNCTION to a program.
        disk: the disk cache of the results.
        exceeded: whether a kernel exceeded the cached limits, so that other work must have slowed
            down their measurement: they are then measured once more in this process.
    """
    target: Target = device.target
    workers = config.workers or target.cores
    content = source_digest(PACKAGES) + repr(("limits 1", target, workers)).encode()
    key = hashlib.sha256(content).digest()
    result: PeakRates | None = measurements.get(key) or _decode(disk.get(key))
    known = result
    if result is None or exceeded and key not in _remeasured:
        if exceeded:
            _remeasured.add(key)
        with override(check="", check_index=False):
            result = _measure(target, workers, device.shared_cache,
                              lambda *work: _best_ns(device, compile_fn, *work))
        if known is not None:
            result = _maximum(result, known)
            measurements.remove(key)
        disk.put(key, json.dumps([result.flops, result.memory_levels]).encode(),
                 "limits of this machine")
    limits: PeakRates = measurements.put(key, result)
    return limits


def _maximum(a: PeakRates, b: PeakRates) -> PeakRates:
    """Return the maximum of two measurements."""
    return PeakRates(
        tuple([(name, max(rate, other)) for (name, rate), (_, other) in zip(a.flops, b.flops)]),
        tuple([(name, size, max(rate, other))
               for (name, size, rate), (_, _, other) in zip(a.memory_levels, b.memory_levels)]))


def _measure(target: Target, workers: int, l3_bytes: int,
             best_ns: Callable[[UOp, Schedule, DType], float]) -> PeakRates:
    flops = {}
    for dtype in (dtypes.float32, dtypes.float64):
        kernel, schedule, work = _products_kernel(target, dtype, workers)
        flops[dtype.name] = work / best_ns(kernel, schedule, dtype)
    for unit in target.unit_names:
        words = UNITS[unit].terms_per_word
        flops[unit] = words * flops["float32"]  # each SIMD lane multiplies and adds so many terms
    levels = []
    for name, size in _memory_levels(target, workers, l3_bytes):
        kernel, schedule, work = _sums_kernel(target, size // 2 if size else _MEMORY_BYTES, workers)
        levels.append((name, size * workers, work / best_ns(kernel, schedule, dtypes.float32)))
    return PeakRates(tuple(flops.items()), tuple(levels))


def _memory_levels(target: Target, workers: int, l3_bytes: int) -> list[tuple[str, int]]:
    """Return (level of memory, bytes of a worker's share); 0 bytes for main memory."""
    last = [("L3", l3_bytes // workers)] if l3_bytes > target.l2 * workers else []
    return [("L1", target.l1), ("L2", target.l2), *last, ("memory", 0)]


def _products_kernel(target: Target, dtype: DType, workers: int) -> tuple[UOp, Schedule, int]:
    """Build the kernel o[p, i, j] = sum over t, k of a[p, k, i] * b[p, k, j], with a and b in x."""
    lanes = target.vector_lanes(dtype.itemsize)
    rows = max(1, min(14, (target.vector_registers - 2 - _VECTORS) // _VECTORS))
    columns = _VECTORS * lanes
    width = columns + -(-rows // lanes) * lanes  # vectors are aligned
    p, t, k, i, j = (build.range_(n, id, name=name) for id, (name, n) in enumerate((
        ("p", workers), ("t", _TILE_REPEATS), ("k", _TERMS), ("i", rows), ("j", columns))))
    x = build.ref(0, dtype, (workers, 2, _TERMS, width))
    o = build.ref(1, dtype, (workers, rows, columns))
    a_index = build.add(i, build.index_const(columns))
    a, b = (build.load(build.index_into(x, p, _flip_half(t), k, position))
            for position in (a_index, j))
    store = build.store(build.index_into(o, p, i, j), build.reduce_ranges(
        build.mul(a, b), ops.ADD, (t, k)))
    schedule = (tiling.split("j", lanes, "jo", "jl"), tiling.order("p", "t", "k", "i", "jo", "jl"),
                tiling.parallel("p"), tiling.unroll("i"), tiling.unroll("jo"),
                tiling.vectorize("jl"))
    return (build.kernel([store], "limit_products", (0, 1, 2, 3, 4)), schedule,
            2 * workers * _TILE_REPEATS * _TERMS * rows * columns)


def _flip_half(t: UOp) -> UOp:
    """Return the half of the data to read next, which alternates with t.

    Reads that depend on t count fully in the estimate by which the kernel is split among workers.
    """
    return build.elementwise(ops.REM, t, build.index_const(2))


def _sums_kernel(target: Target, nbytes: int, workers: int) -> tuple[UOp, Schedule, int]:
    """Build the kernel o[p] = sum over t and i of x[p, i], where x[p] has ``nbytes``."""
    lanes = target.vector_lanes(4)
    step = 8 * lanes
    n = max(1, nbytes // 8 // step) * step  # of each half
    times = max(2, _CACHE_READ_BYTES // (4 * n))
    p, t, i = (build.range_(n, id, name=name) for id, (name, n) in enumerate((
        ("p", workers), ("t", times), ("i", n))))
    x, o = build.ref(0, dtypes.float32, (workers, 2, n)), build.ref(1, dtypes.float32, (workers,))
    total = build.reduce_ranges(build.load(build.index_into(x, p, _flip_half(t), i)), ops.ADD,
                                (t, i))
    schedule = (tiling.split("i", step, "io", "iv"), tiling.split("iv", lanes, "iu", "il"),
                tiling.order("p", "t", "io", "iu", "il"), tiling.parallel("p"),
                tiling.unroll("iu"), tiling.vectorize("il"))
    return (build.kernel([build.store(build.index_into(o, p), total)], "limit_sums", (0, 1, 2)),
            schedule, 4 * n * times * workers)


def _best_ns(device: Any, compile_fn: CompileFn, kernel: UOp, schedule: Schedule,
             dtype: DType) -> float:
    """Return the nanoseconds of a kernel, the minimum of several runs."""
    refs = {n.arg.slot: n for n in toposort([kernel]) if n.op is ops.REF}
    shapes = [tuple([int(build.const_of(d)) for d in refs[slot].src]) for slot in (0, 1)]
    x = build.param(0, dtype, shapes[0])
    arg = op_args.Call(kernel.arg.name, ((shapes[1], dtype),), schedule)
    call = UOp(ops.CALL, dtypes.void, (kernel, x), arg)
    program = compile_fn(build.function(build.results(call), 1, kernel.arg.name), 0)()
    ins = [device.upload(np.zeros(shapes[0], dtype.np))]
    nanoseconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        for storage in program.run(ins):
            storage.wait()
        nanoseconds.append(time.perf_counter_ns() - start)
    return float(min(nanoseconds))


def _decode(data: bytes | None) -> PeakRates | None:
    """Decode cached limits; None if they cannot be read."""
    try:
        flops, levels = json.loads(data or b"")
        limits = PeakRates(tuple([(str(name), float(rate)) for name, rate in flops]),
                           tuple([(str(name), int(size), float(rate))
                                  for name, size, rate in levels]))
        limits.min_time(1, 1 << 60)
        return limits
    except (ValueError, TypeError, LookupError, ArithmeticError, StopIteration,
            RecursionError):  # of another version
        return None
