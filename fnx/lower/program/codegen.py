"""A tiled KERNEL -> its code: block_fills, decompose, linearize, print, under a digest.

    KernelCode(symbol, key, program, text, parallel, scratch) = kernel_code(kernel, target)

The key needs no lowering: it digests the tiled kernel (without names and lines), the target,
which names the compiler's version, and fnx's own sources, so a kernel that is in a cache costs
a walk over its nodes.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from typing import Any

from fnx.core import build, ops
from fnx.core.ops import Op
from fnx.core.program import LOADED, KernelCode
from fnx.core.target import Target
from fnx.core.uop import UOp, toposort
from fnx.lower.program import scratch
from fnx.lower.program.decompose import decompose
from fnx.lower.program.fills import block_fills
from fnx.lower.program.linearize import linearize
from fnx.lower.render.llvm import render


def kernel_code(kernel: UOp, target: Target) -> KernelCode:
    """The code of a tiled KERNEL for a target.

    >>> from fnx.core import dtypes
    >>> from fnx.core.rewriting import symbolic
    >>> r = build.range_(8, 0, "PAR")
    >>> o = build.at(build.ref(0, dtypes.float32, (8,)), r)
    >>> k = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
    >>> code = kernel_code(k, Target("cpu"))
    >>> symbolic.bounds(code.parallel), code.text().startswith(f"define void @{code.symbol}(")
    ((8, 8), True)
    """
    content = hashlib.sha256(repr(target).encode())
    content.update(versions())
    content.update(_digest(kernel))
    key = content.digest()
    symbol = f"fnx_{key.hex()[:24]}"

    blocked = block_fills(kernel, target)

    def program() -> UOp:
        return linearize(decompose(blocked, target), target)

    def text() -> str:
        return render(program(), symbol, target)

    return KernelCode(symbol, key, program, text, _parallel(kernel), scratch.nbytes(blocked))


def _parallel(kernel: UOp) -> UOp:
    for r in kernel.src[0].ranges:
        if r.arg.kind == "PAR":
            return r.src[0]
    return build.index_const(1)


# ---- digests ----------------------------------------------------------------------------------

# What of an arg says what is computed; the rest are names.
_CONTENT: dict[Op, Callable[[Any], Any]] = {
    ops.RANGE: lambda arg: (arg.id, arg.kind),
    ops.REF: lambda arg: arg.slot,
    ops.VAR: lambda arg: (arg.slot, arg.low, arg.high),
    ops.STAGE: lambda arg: (arg.id, arg.space),
    ops.KERNEL: lambda arg: arg.order,
}


def _digest(kernel: UOp) -> bytes:
    """A digest of the kernel's content: equal in every process, and without names."""
    number: dict[UOp, int] = {}
    lines = []
    for node in toposort([kernel]):
        row = _CONTENT.get(node.op)
        arg = node.arg if row is None else row(node.arg)
        lines.append(f"{node.op.name} {node.dtype.name} {arg!r} {[number[s] for s in node.src]}")
        number[node] = len(number)
    return hashlib.sha256("\n".join(lines).encode()).digest()


@functools.cache
def versions() -> bytes:
    """A digest of fnx's own sources."""
    package = os.path.abspath(__file__).rpartition(os.path.join("", "lower", ""))[0]
    return digest_of_sources(package, LOADED)


def digest_of_sources(package: str, loaded: float) -> bytes:
    """A digest of the Python files of a package that was imported at a time.

    What was edited since is not what runs: then the digest is this process's own, so that the
    code it makes is not taken for that of the new sources.
    """
    content = hashlib.sha256()
    for folder, folders, files in os.walk(package):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as f:
                    content.update(f.read())
                    if os.fstat(f.fileno()).st_mtime > loaded:
                        content.update(os.urandom(16))
    return content.digest()
