"""Code generation: a tiled KERNEL -> its KernelCode, by the passes of its target.

    KernelCode(symbol, key, extents, program(), text()) = kernel_code(kernel, driver)

The passes run only if no cache has the object. The cache key needs no lowering: it is a digest of
the tiled kernel (without names and source lines), the target, which includes the compiler's
version, and fnx's own sources. So a cached kernel costs one walk over its nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.kernel_code import KernelCode
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.process import lazy_import
from fnx.core.support.source_digests import source_digest
from fnx.lower.driver import Driver
from fnx.lower.emit import sorting
from fnx.lower.emit.row_emitter import rows_and_length
from fnx.lower.target_lowerings import TARGET_LOWERINGS, TargetLowering

fft = lazy_import("fnx.lower.emit.fft")
linalg = lazy_import("fnx.lower.emit.linalg")
inline_command_loop = lazy_import("fnx.lower.loops.inline_command_loop", "inline_command_loop")
resumable_loop = lazy_import("fnx.lower.loops.resumable_loop", "resumable_loop")
PACKAGES = ("core", "lower", "backends")  # packages that the code of a tiled kernel depends on


def kernel_code(kernel: UOp, driver: Driver) -> KernelCode:
    """Return the code of a tiled KERNEL for the driver's target.

    >>> from fnx.core.ir import build, dtypes
    >>> from fnx.core.rewriting import symbolic
    >>> from fnx.core.support.target import Target
    >>> r = build.range_(8, 0, "PAR")
    >>> o = build.index_into(build.ref(0, dtypes.float32, (8,)), r)
    >>> k = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
    >>> code = kernel_code(k, Driver(Target("cpu")))
    >>> symbolic.bounds(code.extents["parallel"])
    (8, 8)
    >>> code.text().startswith(f"define void @{code.symbol}(")
    True
    """
    code: KernelCode = driver.memoize("code", kernel, lambda: _code(kernel, driver))
    return code


def _code(kernel: UOp, driver: Driver) -> KernelCode:
    target = driver.target
    machine = TARGET_LOWERINGS[target.kind]
    vectors = "VEC" in machine.kinds

    def key() -> bytes:
        content = hashlib.sha256(repr(target).encode())
        content.update(source_digest(PACKAGES))
        content.update(_digest(kernel))
        return content.digest()

    def program() -> UOp:
        result: UOp
        if kernel.op is ops.CMD_LOOP:
            lower_loop = resumable_loop if kernel.arg.strip_length else inline_command_loop
            result = lower_loop(kernel, lambda inner: kernel_code(inner, driver).program())
            return result
        result = driver.run([p for p in machine.code if p.after != "text"], kernel)
        return result

    def text(symbol: str) -> str:
        is_native = kernel.op in (ops.SORT, ops.FFT_STEP, ops.LINALG)
        passes = [p for p in machine.code if p.after == "text" or
                  is_native and p.before == "program"]
        return machine.module(symbol, driver.run(passes, code.program()))

    if kernel.op is ops.SORT:
        code = KernelCode(key, lambda: sorting.program(kernel, vectors), text,
                          sort_extents(kernel, vectors))
    elif kernel.op is ops.FFT_STEP:
        code = KernelCode(key, lambda: fft.program(kernel, target), text,
                          fft.extents(kernel, target))
    elif kernel.op is ops.LINALG:
        code = KernelCode(key, lambda: linalg.program(kernel, target), text,
                          linalg.extents(kernel, target),
                          is_library_call=linalg.is_library_call(kernel.arg))
    elif kernel.op is ops.CMD_LOOP:
        code = KernelCode(key, program, text, loop_extents(kernel, machine))
    else:
        code = KernelCode(key, program, text, machine.extents(kernel))
    return code


def sort_extents(sort: UOp, vectors: bool = True) -> dict[str, UOp]:
    """Return the launch parameters of a SORT: its rows, and scratch bytes per worker."""
    return {"parallel": rows_and_length(sort)[0], "scratch": sorting.scratch(sort, vectors)}


def loop_extents(loop: UOp, machine: TargetLowering) -> dict[str, UOp]:
    """Return the launch parameters of a CMD_LOOP of commands: the largest scratch of its
    kernels."""
    nbytes = [0]
    for run in accessors.all_execs(loop):
        scalars = [build.const_of(s) for s in run.src[1:] if s.op is ops.CONST]
        nbytes.append(evaluate(machine.extents(run.src[0])["scratch"], dict(enumerate(scalars))))
    return {"parallel": build.index_const(1), "scratch": build.index_const(max(nbytes))}


# ---- digests ------------------------------------------------------------------------------------

# The part of each arg that affects the computation; the rest are names.
_ARG_CONTENT: dict[Op, Callable[[Any], Any]] = {
    ops.RANGE: attrgetter("id", "kind"),
    ops.REF: attrgetter("slot", "alignment", "exceeds_cache"),
    ops.VAR: attrgetter("slot", "low", "high"),
    ops.STAGE: attrgetter("id", "space", "double"),
    ops.CARRY: attrgetter("id", "i"),
    ops.LOOP: lambda arg: (arg.id, len(arg.outs)),
    ops.KERNEL: attrgetter("order", "index_fits_int32"),
    ops.EXEC: lambda arg: (), ops.BRANCH: lambda arg: (),
    ops.CMD_LOOP: attrgetter("trips", "strip_length"),
}


def _digest(kernel: UOp) -> bytes:
    """Return a digest of the kernel's content, equal in every process and without names."""
    number: dict[UOp, int] = {}
    lines = []
    for node in toposort([kernel]):
        arg_content = _ARG_CONTENT.get(node.op)
        arg = node.arg if arg_content is None else arg_content(node.arg)
        lines.append(f"{node.op.name} {node.dtype.name} {arg!r} {[number[s] for s in node.src]}")
        number[node] = len(number)
    return hashlib.sha256("\n".join(lines).encode()).digest()
