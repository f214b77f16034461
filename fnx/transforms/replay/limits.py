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

from fnx.core import build, dtypes, op_args, ops, tiling
from fnx.core.cache import Cache
from fnx.core.config import config, override
from fnx.core.dtypes import DType
from fnx.core.limits import Limits
from fnx.core.sources import ROOMS, versions
from fnx.core.target import Target
from fnx.core.tiling import Schedule
from fnx.core.units import UNITS
from fnx.core.uop import UOp, toposort
from fnx.transforms.replay.stored import Disk
from fnx.transforms.replay.trials import Begin

_ROUNDS = 7
_READ = 1 << 26    # bytes a kernel reads from a cache level
_LARGE = 1 << 26   # bytes for each worker in main memory
_TERMS = 64       # of each sum of a tile
_TIMES = 1 << 14   # repetitions of a tile
_VECTORS = 2       # in each row of a tile

_found: Cache[bytes, Limits] = Cache("limits of machines", 8)
_again: set[bytes] = set()  # keys that were measured a second time


def limits(device: Any, begin: Begin, disk: Disk, beyond: bool = False) -> Limits:
    """Return the limits of a device, and measure them if they are not cached.

    Args:
        device: a device whose kernels have loops and vectors.
        begin: compiles a FUNCTION to a program.
        disk: the disk cache of the results.
        beyond: whether a kernel exceeded the cached limits, so that other work must have slowed
            down their measurement: they are then measured once more in this process.
    """
    target: Target = device.target
    workers = config.workers or target.cores
    key = hashlib.sha256(versions(ROOMS) + repr(("limits 1", target, workers)).encode()).digest()
    found = _found.get(key) or _read(disk.get(key))
    known = found
    if found is None or beyond and key not in _again:
        if beyond:
            _again.add(key)
        with override(check="", check_index=False):
            found = _measured(target, workers, device.shared_cache,
                              lambda *work: _best(device, begin, *work))
        if known is not None:
            found = _faster(found, known)
            _found.drop(key)
        disk.put(key, json.dumps([found.flops, found.levels]).encode(), "limits of this machine")
    return _found.keep(key, found)


def _faster(a: Limits, b: Limits) -> Limits:
    """Return the maximum of two measurements."""
    return Limits(
        tuple([(name, max(rate, other)) for (name, rate), (_, other) in zip(a.flops, b.flops)]),
        tuple([(name, size, max(rate, other))
               for (name, size, rate), (_, _, other) in zip(a.levels, b.levels)]))


def _measured(target: Target, workers: int, shared: int,
              best: Callable[[UOp, Schedule, DType], float]) -> Limits:
    flops = {}
    for dtype in (dtypes.float32, dtypes.float64):
        kernel, schedule, work = _products(target, dtype, workers)
        flops[dtype.name] = work / best(kernel, schedule, dtype)
    for unit in target.units:
        words = UNITS[unit].in_word
        flops[unit] = words * flops["float32"]  # each SIMD lane multiplies and adds so many terms
    levels = []
    for name, size in _sizes(target, workers, shared):
        kernel, schedule, work = _sums(target, size // 2 if size else _LARGE, workers)
        levels.append((name, size * workers, work / best(kernel, schedule, dtypes.float32)))
    return Limits(tuple(flops.items()), tuple(levels))


def _sizes(target: Target, workers: int, shared: int) -> list[tuple[str, int]]:
    """Return (level of memory, bytes of a worker's share); 0 bytes for main memory."""
    last = [("L3", shared // workers)] if shared > target.l2 * workers else []
    return [("L1", target.l1), ("L2", target.l2), *last, ("memory", 0)]


def _products(target: Target, dtype: DType, workers: int) -> tuple[UOp, Schedule, int]:
    """Build the kernel o[p, i, j] = sum over t, k of a[p, k, i] * b[p, k, j], with a and b in x."""
    lanes = target.lanes(dtype.itemsize)
    rows = max(1, min(14, (target.vector_registers - 2 - _VECTORS) // _VECTORS))
    columns = _VECTORS * lanes
    width = columns + -(-rows // lanes) * lanes  # vectors are aligned
    p, t, k, i, j = (build.range_(n, id, name=name) for id, (name, n) in enumerate((
        ("p", workers), ("t", _TIMES), ("k", _TERMS), ("i", rows), ("j", columns))))
    x = build.ref(0, dtype, (workers, 2, _TERMS, width))
    o = build.ref(1, dtype, (workers, rows, columns))
    after = build.add(i, build.index_const(columns))
    a, b = (build.load(build.at(x, p, _half(t), k, place)) for place in (after, j))
    store = build.store(build.at(o, p, i, j), build.reduce_ranges(
        build.mul(a, b), ops.ADD, (t, k)))
    schedule = (tiling.split("j", lanes, "jo", "jl"), tiling.order("p", "t", "k", "i", "jo", "jl"),
                tiling.parallel("p"), tiling.unroll("i"), tiling.unroll("jo"),
                tiling.vectorize("jl"))
    return (build.kernel([store], "limit_products", (0, 1, 2, 3, 4)), schedule,
            2 * workers * _TIMES * _TERMS * rows * columns)


def _half(t: UOp) -> UOp:
    """Return the half of the data to read next, which alternates with t.

    Reads that depend on t count fully in the estimate by which the kernel is split among workers.
    """
    return build.elementwise(ops.REM, t, build.index_const(2))


def _sums(target: Target, nbytes: int, workers: int) -> tuple[UOp, Schedule, int]:
    """Build the kernel o[p] = sum over t and i of x[p, i], where x[p] has ``nbytes``."""
    lanes = target.lanes(4)
    step = 8 * lanes
    n = max(1, nbytes // 8 // step) * step  # of each half
    times = max(2, _READ // (4 * n))
    p, t, i = (build.range_(n, id, name=name) for id, (name, n) in enumerate((
        ("p", workers), ("t", times), ("i", n))))
    x, o = build.ref(0, dtypes.float32, (workers, 2, n)), build.ref(1, dtypes.float32, (workers,))
    total = build.reduce_ranges(build.load(build.at(x, p, _half(t), i)), ops.ADD, (t, i))
    schedule = (tiling.split("i", step, "io", "iv"), tiling.split("iv", lanes, "iu", "il"),
                tiling.order("p", "t", "io", "iu", "il"), tiling.parallel("p"),
                tiling.unroll("iu"), tiling.vectorize("il"))
    return (build.kernel([build.store(build.at(o, p), total)], "limit_sums", (0, 1, 2)), schedule,
            4 * n * times * workers)


def _best(device: Any, begin: Begin, kernel: UOp, schedule: Schedule, dtype: DType) -> float:
    """Return the nanoseconds of a kernel, the minimum of several runs."""
    refs = {n.arg.slot: n for n in toposort([kernel]) if n.op is ops.REF}
    shapes = [tuple([int(build.const_of(d)) for d in refs[slot].src]) for slot in (0, 1)]
    x = build.param(0, dtype, shapes[0])
    arg = op_args.Call(kernel.arg.name, ((shapes[1], dtype),), schedule)
    call = UOp(ops.CALL, dtypes.void, (kernel, x), arg)
    made = begin(build.function(build.results(call), 1, kernel.arg.name), 0)()
    ins = [device.upload(np.zeros(shapes[0], dtype.np))]
    spent = []
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        for storage in made.run(ins):
            storage.wait()
        spent.append(time.perf_counter_ns() - start)
    return float(min(spent))


def _read(data: bytes | None) -> Limits | None:
    """Decode cached limits; None if they cannot be read."""
    try:
        flops, levels = json.loads(data or b"")
        found = Limits(tuple([(str(name), float(rate)) for name, rate in flops]),
                       tuple([(str(name), int(size), float(rate)) for name, size, rate in levels]))
        found.least(1, 1 << 60)
        return found
    except (ValueError, TypeError, LookupError, ArithmeticError, StopIteration,
            RecursionError):  # of another version
        return None
