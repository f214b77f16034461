"""Run a tiled KERNEL on this machine's processor and on the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.backends.llvm import binding as llvm
from fnx.backends.llvm import object_files
from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import spec
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.target import Target
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver
from fnx.lower.emit.vectorize_stage_fills import vectorize_stage_fills

Array = np.ndarray[Any, Any]


def aligned(values: Any, dtype: Any = None) -> Array:
    """Copy to a 64-byte boundary, followed by guard bytes that must not change."""
    values = np.asarray(values, dtype)
    raw = np.full(values.nbytes + 192, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64
    out = raw[start:start + values.nbytes].view(values.dtype).reshape(values.shape)
    out[...] = values
    return out


def bits(value: Any) -> int:
    """Return the bit pattern of a scalar argument."""
    if isinstance(value, (float, np.floating)):
        array = np.asarray(value, np.float32 if not isinstance(value, np.float64) else None)
        return int(array.view(f"i{array.itemsize}"))
    return int(value)


def run(kernel: UOp, buffers: Sequence[Array], scalars: Sequence[int] = (),
        cuts: Sequence[float] = (), made_for: Target | None = None,
        text: Callable[[str], str] = str) -> None:
    """Run compiled code on aligned arrays; ``cuts`` divide the PAR range into parts. A kernel that
    is ``made_for`` another target may use instructions that this machine lacks: ``text`` replaces
    them."""
    target = llvm.host_target()
    code = kernel_code(vectorize_stage_fills(kernel, target), Driver(made_for or target))
    spec.check([code.program()], "program")
    data = llvm.compile_ir(text(code.text()), target)
    assert object_files.undefined_symbols(data) <= object_files.ALLOWED
    library = llvm.link([(data, [code.symbol])])
    env: dict[Any, int] = dict(enumerate(scalars))
    scratch = aligned(np.zeros(evaluate(code.extents["scratch"], env), np.uint8))
    pointers = (ctypes.c_void_p * max(1, len(buffers)))(*[b.ctypes.data for b in buffers])
    values = (ctypes.c_int64 * max(1, len(scalars)))(*[bits(s) for s in scalars])
    f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                         ctypes.c_void_p)(library.addresses[code.symbol])
    n = evaluate(code.extents["parallel"], env)
    edges = [0, *sorted(int(c * n) for c in cuts), n]
    guards = [np.frombuffer((ctypes.c_uint8 * 64).from_address(a.ctypes.data + a.nbytes), np.uint8)
              for a in (*buffers, scratch)]
    before = [g.copy() for g in guards]
    for lo, hi in zip(edges, edges[1:]):
        f(ctypes.addressof(pointers), ctypes.addressof(values), lo, hi, scratch.ctypes.data)
    for guard, old in zip(guards, before):
        assert np.array_equal(guard, old), "something was written behind a buffer"


def both(kernel: UOp, buffers: Sequence[Array], scalars: Sequence[Any] = (),
         cuts: Sequence[float] = ()) -> tuple[list[Array], list[Array]]:
    """Return the buffers after the machine and after the interpreter ran the kernel."""
    mine = [aligned(b) for b in buffers]
    theirs = [np.array(b) for b in buffers]
    run(kernel, mine, scalars, cuts)
    run_kernel(kernel, theirs, scalars)
    return mine, theirs


def kernel_over(stores: Sequence[UOp], name: str, order: Sequence[int]) -> UOp:
    """Build a KERNEL whose order is ``order`` restricted to the ranges that it has."""
    live = {r.arg.id for r in toposort(stores) if r.op is ops.RANGE}
    return build.kernel(stores, name, [i for i in order if i in live])


def split(extent: UOp | int, *factors: tuple[int, str], ids: int = 0,
          outer: str = "SEQ") -> tuple[UOp, UOp | None, tuple[UOp, ...]]:
    """Split a range as outer * inner...; return the index, its condition and the ranges."""
    whole = build.index_const(extent) if isinstance(extent, int) else extent
    block = int(np.prod([n for n, _ in factors]))
    step = build.index_const(block)
    count = symbolic.simplify(build.idiv(build.add(whole, build.index_const(block - 1)), step))
    ranges = [build.range_(count, ids, outer)]
    index = build.mul(ranges[0], step)
    for i, (n, kind) in enumerate(factors):
        block //= n
        ranges.append(build.range_(n, ids + 1 + i, kind))
        index = build.add(index, build.mul(ranges[-1], build.index_const(block)))
    inside = symbolic.simplify(build.lt(index, whole))
    return index, None if symbolic.prove(inside) else inside, tuple(ranges)
