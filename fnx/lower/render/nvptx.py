"""NVPTX's calling convention: LLVM IR of kernels for NVIDIA GPUs.

    define ptx_kernel void @SYMBOL(ptr addrspace(1) %words)

``words`` are the addresses of the buffers, then the scalars, 64 bits each: to launch a recorded
kernel with new arguments, they are written to the same words. If there are unbounded loops
(legalize/unbounded_loops.py), the address of the host word that cancels them follows. Everything
else is the host's text (render/llvm.py): pointers are generic, and LLVM infers their address
spaces. Products and sums are not fused, divisions and square roots are rounded correctly and
subnormal numbers are kept, since LLVM's PTX has ``.rn`` and no ``.ftz``. The size of a group is
metadata, and barriers are those of LLVM 20: 22 takes both, but not the reverse.

>>> from fnx.core.ir import dtypes, kernel_args
>>> sync = UOp(ops.SYNC, dtypes.void)
>>> p = UOp(ops.PROGRAM, dtypes.void, (sync,), kernel_args.ThreadGroup(0, 0, 64, 0, 0))
>>> text = module("f", render(p)).splitlines()
>>> print(text[0], *[line for line in text if line.startswith("!3")], sep="\\n")
define ptx_kernel void @f(ptr addrspace(1) %words) {
!3 = !{ptr @f, !"minctasm", i32 8, !"reqntidx", i32 64}
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.ir import ops
from fnx.core.ir.accessors import base_pointer
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.kernel_interface import ABORT_REGISTER
from fnx.lower.legalize.unbounded_loops import POLL_INTERVAL, unbounded_loops
from fnx.lower.render.host import from_bits, used_arguments
from fnx.lower.render.llvm import (
    ROWS,
    Convention,
    Printer,
    body,
    memory_dtype,
    type_of,
    zero_of,
)

REGISTERS = 1 << 16  # of a multiprocessor, on every chip since sm_70
_REGS_PER_THREAD, _REGS_PER_MMA_THREAD = 128, 168  # with barriers; with warp-level MMA
_IDS = {"GRID": "%group", "THREAD": "%thread"}  # 32-bit values; the 64-bit ones have the suffix 64
_DECLARATIONS = """declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier0()
"""
_METADATA = """!0 = !{}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.unroll.disable"}
!nvvm.annotations = !{!3}
"""


def render(program: UOp) -> str:
    """Render a kernel, from its parameters on, and its SHARED memory."""
    group = program.arg
    polled = unbounded_loops(program.src)
    convention = _NVPTX.replace(lines={**_NVPTX.lines,
                                       **_cancellation(polled)}) if polled else _NVPTX
    shared = [f"@SHARED = internal addrspace(3) global [{group.shared} x i8] undef, align 64"] \
        if group.shared else []
    return "\n".join([
        "(ptr addrspace(1) %words) {", *body(program, convention), "}", *shared,
        f'!3 = !{{ptr @KERNEL, {_occupancy_hint(program)}!"reqntidx", i32 {group.threads}}}', ""])


def _occupancy_hint(program: UOp) -> str:
    """Return the annotation for the minimum groups per multiprocessor of a kernel with barriers.

    Without it, ptxas spills registers rather than giving up a group.
    """
    used_ops = {n.op for n in program.src}
    regs_per_thread = _REGS_PER_MMA_THREAD if ops.MMA in used_ops else _REGS_PER_THREAD
    groups = max(1, REGISTERS // (program.arg.threads * regs_per_thread))
    return f'!"minctasm", i32 {groups}, ' if ops.SYNC in used_ops else ""


def module(symbol: str, function: str) -> str:
    """Return the module that defines ``symbol`` as a kernel."""
    function = function.replace("@SHARED", f"@{symbol}_shared").replace("@KERNEL", f"@{symbol}")
    return f"define ptx_kernel void @{symbol}{function}{_DECLARATIONS}{_METADATA}"


def _enter(p: Printer, program: UOp) -> None:
    """Load the indices of group and thread, and the argument words that the program uses."""
    group = program.arg
    for name, register in (("%group", "ctaid"), ("%thread", "tid")):
        p.out += [f"  {name} = call i32 @llvm.nvvm.read.ptx.sreg.{register}.x()",
                  f"  {name}64 = zext i32 {name} to i64"]
    if group.private:
        p.out.append(f"  %private = alloca [{group.private} x i8], align 64")
    if group.shared:
        p.out.append("  %shared = addrspacecast ptr addrspace(3) @SHARED to ptr")
    for node in used_arguments(program):
        word = _argument_word(p, node.arg.slot + (group.buffers if node.op is ops.VAR else 0))
        if node.op is ops.VAR:
            p.names[node] = from_bits(p, word, node.dtype)
        else:
            pointer = p.line(f"inttoptr i64 {word} to ptr addrspace(1)")
            p.define(node, f"addrspacecast ptr addrspace(1) {pointer} to ptr")
    if unbounded_loops(program.src):
        word = _argument_word(p, group.buffers + group.scalars)
        p.out.append(f"  {ABORT_REGISTER} = inttoptr i64 {word} to ptr addrspace(1)")


def _argument_word(p: Printer, slot: int) -> str:
    at = p.line(f"getelementptr i64, ptr addrspace(1) %words, i64 {slot}")
    return p.line(f"load i64, ptr addrspace(1) {at}, align 8, !invariant.load !0")


def _cancellation(polled: frozenset[UOp]) -> dict[Op, Callable[[Printer, UOp], None]]:
    """Return rows for loops that poll for cancellation: at their BREAK, or else at their end."""
    handled: set[UOp] = set()

    def leave(p: Printer, loop: UOp, condition: str) -> None:
        n, t, before = loop.arg, type_of(loop.dtype), p.block
        counter = p.line(f"and {t} {p.names[loop]}, {POLL_INTERVAL - 1}")
        p.out.append(f"  br i1 {p.line(f'icmp eq {t} {counter}, 0')}, label %Q{n}, label %R{n}")
        p.label(f"Q{n}")
        word = p.line(f"load volatile i32, ptr addrspace(1) {ABORT_REGISTER}, align 4")
        abort = p.line(f"icmp ne i32 {word}, 0")
        p.out.append(f"  br label %R{n}")
        p.label(f"R{n}")
        abort = p.line(f"phi i1 [ false, %{before} ], [ {abort}, %Q{n} ]")
        p.loops[loop].left = p.block
        p.out.append(f"  br i1 {p.line(f'or i1 {abort}, {condition}')}, label %X{n}, label %K{n}")
        p.label(f"K{n}")

    def at_break(p: Printer, node: UOp) -> None:
        loop, condition = node.src
        if loop not in polled:
            ROWS[ops.BREAK](p, node)
            return
        handled.add(loop)
        leave(p, loop, p.operand(condition))

    def at_end(p: Printer, node: UOp) -> None:
        if node.src[0] in polled - handled:
            leave(p, node.src[0], "false")
        ROWS[ops.ENDFOR](p, node)

    return {ops.BREAK: at_break, ops.ENDFOR: at_end}


def _scratch(p: Printer, node: UOp) -> None:
    memory = {"SHARED": "%shared", "PRIV": "%private"}[node.arg.space]
    p.define(node, f"getelementptr i8, ptr {memory}, {p.typed(node.src[0])}")


def _load(p: Printer, node: UOp) -> None:
    """Emit a LOAD; if not valid, the first element of the same memory is read, and not used."""
    address = node.src[0]
    pointer, t = p.operand(address), type_of(memory_dtype(node.dtype))
    alignment = address.arg if node.dtype.lanes > 1 else node.dtype.itemsize
    masks = [m.src[0] if m.op is ops.SPLAT else m for m in node.src[1:]]
    valid = p.typed(masks[0]) if masks else ""
    if valid:
        pointer = p.line(f"select {valid}, ptr {pointer}, ptr {p.operand(base_pointer(address))}")
    name = p.line(f"load {t}, ptr {pointer}, align {alignment}")
    if valid:
        name = p.line(f"select {valid}, {t} {name}, {t} {zero_of(node.dtype)}")
    p.names[node] = p.line(f"icmp ne i8 {name}, 0") if node.dtype.is_bool else name


_BARRIER = "  call void @llvm.nvvm.barrier0()"


def _sync(p: Printer, node: UOp) -> None:
    p.out.append(_BARRIER)


def _endfor(p: Printer, node: UOp) -> None:
    """Emit the end of a loop; do not unroll a loop with a barrier.

    Nothing moves across the barrier, so unrolling by ptxas only costs registers (126, not 52).
    """
    start = p.loops[node.src[0]].at
    ROWS[ops.ENDFOR](p, node)
    if _BARRIER in p.out[start:]:
        p.out[-2] += ", !llvm.loop !1"


def _shuffle_xor(p: Printer, node: UOp) -> None:
    """Emit a butterfly shuffle of 32-bit words over the whole warp."""
    x, t, bits = p.operand(node.src[0]), type_of(node.dtype), max(32, node.dtype.bits)
    if node.dtype.is_bool:
        word = p.line(f"zext i1 {x} to i32")
    else:
        word = p.line(f"bitcast {t} {x} to i{bits}")
    words = [word] if bits == 32 else [
        p.line(f"trunc i64 {word} to i32"),
        p.line(f"trunc i64 {p.line(f'lshr i64 {word}, 32')} to i32")]
    low, *high = [p.line(f"call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 {w}, "
                         f"i32 {node.arg}, i32 31)") for w in words]
    if high:
        wide = [p.line(f"zext i32 {w} to i64") for w in (low, *high)]
        low = p.line(f"or i64 {wide[0]}, {p.line(f'shl i64 {wide[1]}, 32')}")
    p.define(node, f"icmp ne i32 {low}, 0" if node.dtype.is_bool else
             f"bitcast i{bits} {low} to {t}")


def _async_copy(p: Printer, node: UOp) -> None:
    """Emit an asynchronous copy of 4, 8 or 16 bytes; if the mask is false, zeros are written."""
    destination, source, *mask = node.src
    size = destination.dtype.lanes * destination.dtype.scalar.itemsize
    dst = p.line(f"addrspacecast ptr {p.operand(destination)} to ptr addrspace(3)")
    size_arg = f", i32 {p.line(f'select {p.typed(mask[0])}, i32 {size}, i32 0')}" if mask else ""
    src = p.line(f"addrspacecast ptr {p.operand(source)} to ptr addrspace(1)")
    size_suffix = f"ca.shared.global.{size}" if size < 16 else "cg.shared.global.16"
    p.out.append(f"  call void @llvm.nvvm.cp.async.{size_suffix}{'.s' if mask else ''}("
                 f"ptr addrspace(3) {dst}, ptr addrspace(1) {src}{size_arg})")


def _async_wait(p: Printer, node: UOp) -> None:
    p.out += ["  call void @llvm.nvvm.cp.async.commit.group()",
              "  call void @llvm.nvvm.cp.async.wait.group(i32 0)"]


def _store(p: Printer, node: UOp) -> None:
    """Emit a STORE; a mask is an ``IF`` around it, so there is none here."""
    address, value = node.src[:2]
    name, t = p.operand(value), type_of(value.dtype)
    if value.dtype.is_bool:
        name, t = p.line(f"zext i1 {name} to i8"), "i8"
    alignment = address.arg if value.dtype.lanes > 1 else value.dtype.itemsize
    p.out.append(f"  store {t} {name}, ptr {p.operand(address)}, align {alignment}")


_UNITS = {"mma_bf16": "llvm.nvvm.mma.m16n8k16.row.col.bf16",
          "mma_f16": "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
          "mma_tf32": "llvm.nvvm.mma.m16n8k8.row.col.tf32"}


def _mma(p: Printer, node: UOp) -> None:
    """Emit a warp-level MMA of the fragment registers of both factors and of the sums."""
    is_half = node.arg.unit == "mma_f16"  # registers are vectors there
    registers = [p.line(f"bitcast {p.typed(s)} to <2 x half>") if is_half else p.operand(s)
                 for s in node.src[:6]]
    t = "<2 x half>" if is_half else "i32"
    operands = ", ".join([*[f"{t} {w}" for w in registers], *map(p.typed, node.src[6:])])
    result = p.line(f"call {{float, float, float, float}} @{_UNITS[node.arg.unit]}({operands})")
    name = "poison"
    for i in range(4):
        element = p.line(f"extractvalue {{float, float, float, float}} {result}, {i}")
        name = p.line(f"insertelement <4 x float> {name}, float {element}, i32 {i}")
    p.names[node] = name


def _vector(p: Printer, node: UOp) -> None:
    """Insert the lanes one by one into a poison vector."""
    vector, t = "poison", type_of(node.dtype)
    for i, s in enumerate(node.src):
        vector = p.line(f"insertelement {t} {vector}, {p.typed(s)}, i64 {i}")
    p.names[node] = vector


_NVPTX = Convention(_enter, {ops.ID: lambda p, n: _IDS[n.arg] + "64" * (n.dtype.bits == 64)},
                    {ops.SCRATCH: _scratch, ops.LOAD: _load, ops.STORE: _store, ops.SYNC: _sync,
                     ops.MMA: _mma, ops.VECTOR: _vector, ops.SHUFFLE_XOR: _shuffle_xor,
                     ops.ASYNC_COPY: _async_copy, ops.ASYNC_WAIT: _async_wait, ops.ENDFOR: _endfor})
