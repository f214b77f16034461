"""The host's calling convention for kernel functions.

    void SYMBOL(ptr buffers, ptr scalars, i64 lo, i64 hi, ptr scratch)

buffers[slot] and scalars[slot] are read at the start (floats are bit patterns); lo..hi is this
worker's part of the PAR range (0, 1 without one); scratch is the worker's own memory. Buffers may
alias (an output may be a donated input), so they have no alias attributes. The stack is aligned to
cache lines for spilled vectors.

>>> from fnx.core.ir import build
>>> i = UOp(ops.FOR, dtypes.index, (build.index_const(0), build.index_const(4)), 1)
>>> p = UOp(ops.PROGRAM, dtypes.void, (i, UOp(ops.ENDFOR, dtypes.void, (i,))))
>>> print(module("f", render(p)).splitlines()[0])
define void @f(ptr noalias readonly %buffers, ptr noalias readonly %scalars, i64 %lo, i64 %hi,
ptr noalias align 64 %scratch) nounwind alignstack(64) {
"""

from __future__ import annotations

from fnx.core.ir import dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.lower.render import host_matrix_units, host_memory
from fnx.lower.render.llvm import Convention, Printer, body, type_of

_STREAM = ", !nontemporal !0"
_PARAMETERS = "ptr noalias readonly %buffers, ptr noalias readonly %scalars, i64 %lo, i64 %hi, " \
    "ptr noalias align 64 %scratch"


def render(program: UOp) -> str:
    """Render a kernel function, from its parameters on."""
    lines = body(program, _HOST)
    if any(n.op is ops.STORE and n.arg for n in program.src):
        lines.insert(-1, "  call void @llvm.x86.sse.sfence()")
    return "\n".join([f"({_PARAMETERS}) nounwind alignstack(64) {{", *lines, "}", ""])


def module(symbol: str, function: str) -> str:
    """Return the module that defines ``symbol`` as a kernel function."""
    metadata = "\n!0 = !{i32 1}\n" if _STREAM in function else ""
    return f"define void @{symbol}{function}{metadata}"


def _enter(p: Printer, program: UOp) -> None:
    """Load the pointers and scalars that the program uses, in slot order."""
    used = {s for node in program.src for s in node.src if s.op in (ops.REF, ops.VAR)}
    for node in sorted(used, key=lambda n: (n.op.name, n.arg.slot, n.dtype.name)):
        if node.op is ops.REF:
            at = p.line(f"getelementptr ptr, ptr %buffers, i64 {node.arg.slot}")
            p.define(node, f"load ptr, ptr {at}, align 8")
        else:
            at = p.line(f"getelementptr i64, ptr %scalars, i64 {node.arg.slot}")
            p.names[node] = from_bits(p, p.line(f"load i64, ptr {at}, align 8"), node.dtype)


def from_bits(p: Printer, name: str, t: DType) -> str:
    """Convert a 64-bit scalar argument to its dtype, by its low bits."""
    if t is dtypes.index:
        return name
    if t.bits < 64:
        name = p.line(f"trunc i64 {name} to i{t.bits}")
    return p.line(f"bitcast i{t.bits} {name} to {type_of(t)}") if t.is_float else name


def _store(p: Printer, node: UOp) -> None:
    host_memory.LINES[ops.STORE](p, node)
    if node.arg:
        p.out[-1] += _STREAM


def _scratch(p: Printer, node: UOp) -> None:
    p.define(node, f"getelementptr i8, ptr %scratch, i64 {p.operand(node.src[0])}")


_HOST = Convention(_enter, {ops.PARALLEL_RANGE: lambda p, n: ("%lo", "%hi")[n.arg]}, {
    **host_memory.LINES, ops.SCRATCH: _scratch, ops.STORE: _store, **host_matrix_units.LINES})
