"""NVPTX's calling convention: LLVM IR of kernels for NVIDIA GPUs.

    define ptx_kernel void @SYMBOL(ptr addrspace(1) %words)

``words`` are the addresses of the buffers, then the scalars, 64 bits each: to launch a recorded
kernel with new arguments, they are written to the same words. If there are unbounded loops
(program/endless.py), the address of the host word that cancels them follows. Everything else
is the host's text (render/llvm.py): pointers are generic, and LLVM infers their address spaces.
Products and sums are not fused, divisions and square roots are rounded correctly and subnormal
numbers are kept, since LLVM's PTX has ``.rn`` and no ``.ftz``.

>>> from fnx.core import build, op_args
>>> sync = UOp(ops.SYNC, dtypes.void)
>>> p = UOp(ops.PROGRAM, dtypes.void, (sync,), op_args.ThreadGroup(0, 0, 64, 0, 0))
>>> print(module("f", render(p)).splitlines()[0])
define ptx_kernel void @f(ptr addrspace(1) %words) "nvvm.minctasm"="8" "nvvm.reqntid"="64" {
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core import dtypes, ops
from fnx.core.bindings import ABORTED_REGISTER
from fnx.core.ops import Op
from fnx.core.uop import UOp
from fnx.lower.program.endless import EVERY, endless
from fnx.lower.render.host import from_bits
from fnx.lower.render.llvm import ROWS, Convention, Printer, body, type_of

REGISTERS = 1 << 16  # of a multiprocessor, on every chip since sm_70
_EACH, _EACH_OF_WARP = 128, 168  # with barriers; with warp-level MMA
_IDS = {"GRID": "%group", "THREAD": "%thread"}  # 32-bit values; the 64-bit ones have the suffix 64
_DECLARED = """declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
"""
_METADATA = """!0 = !{}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.unroll.disable"}
"""


def render(program: UOp) -> str:
    """Render a kernel, from its parameters on, and its SHARED memory."""
    group = program.arg
    ended = endless(program.src)
    convention = _NVPTX.replace(lines={**_NVPTX.lines, **_ending(ended)}) if ended else _NVPTX
    shared = [f"@SHARED = internal addrspace(3) global [{group.shared} x i8] undef, align 64"] \
        if group.shared else []
    return "\n".join([f'(ptr addrspace(1) %words) {_budget(program)}'
                      f'"nvvm.reqntid"="{group.threads}" {{',
                      *body(program, convention), "}", *shared, ""])


def _budget(program: UOp) -> str:
    """Return the attribute for the minimum groups per multiprocessor of a kernel with barriers.

    Without it, ptxas spills registers rather than giving up a group.
    """
    found = {n.op for n in program.src}
    each = _EACH_OF_WARP if ops.MMA in found else _EACH
    groups = max(1, REGISTERS // (program.arg.threads * each))
    return f'"nvvm.minctasm"="{groups}" ' if ops.SYNC in found else ""


def module(symbol: str, function: str) -> str:
    """Return the module that defines ``symbol`` as a kernel."""
    function = function.replace("@SHARED", f"@{symbol}_shared")
    return f"define ptx_kernel void @{symbol}{function}{_DECLARED}{_METADATA}"


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
    used = {s for node in program.src for s in node.src if s.op in (ops.REF, ops.VAR)}
    for node in sorted(used, key=lambda n: (n.op.name, n.arg.slot, n.dtype.name)):
        slot = node.arg.slot + (group.buffers if node.op is ops.VAR else 0)
        at = p.line(f"getelementptr i64, ptr addrspace(1) %words, i64 {slot}")
        word = p.line(f"load i64, ptr addrspace(1) {at}, align 8, !invariant.load !0")
        if node.op is ops.VAR:
            p.names[node] = from_bits(p, word, node.dtype)
        else:
            pointer = p.line(f"inttoptr i64 {word} to ptr addrspace(1)")
            p.define(node, f"addrspacecast ptr addrspace(1) {pointer} to ptr")


    if endless(program.src):
        slot = group.buffers + group.scalars
        at = p.line(f"getelementptr i64, ptr addrspace(1) %words, i64 {slot}")
        word = p.line(f"load i64, ptr addrspace(1) {at}, align 8, !invariant.load !0")
        p.out.append(f"  {ABORTED_REGISTER} = inttoptr i64 {word} to ptr addrspace(1)")


def _ending(ended: frozenset[UOp]) -> dict[Op, Callable[[Printer, UOp], None]]:
    """Return rows for loops that poll for cancellation: at their BREAK, or else at their end."""
    broken: set[UOp] = set()

    def leave(p: Printer, loop: UOp, condition: str) -> None:
        n, t, before = loop.arg, type_of(loop.dtype), p.block
        low = p.line(f"and {t} {p.names[loop]}, {EVERY - 1}")
        p.out.append(f"  br i1 {p.line(f'icmp eq {t} {low}, 0')}, label %Q{n}, label %R{n}")
        p.label(f"Q{n}")
        word = p.line(f"load volatile i32, ptr addrspace(1) {ABORTED_REGISTER}, align 4")
        told = p.line(f"icmp ne i32 {word}, 0")
        p.out.append(f"  br label %R{n}")
        p.label(f"R{n}")
        told = p.line(f"phi i1 [ false, %{before} ], [ {told}, %Q{n} ]")
        p.loops[loop].left = p.block
        p.out.append(f"  br i1 {p.line(f'or i1 {told}, {condition}')}, label %X{n}, label %K{n}")
        p.label(f"K{n}")

    def at_break(p: Printer, node: UOp) -> None:
        loop, condition = node.src
        if loop not in ended:
            ROWS[ops.BREAK](p, node)
            return
        broken.add(loop)
        leave(p, loop, p.operand(condition))

    def at_end(p: Printer, node: UOp) -> None:
        if node.src[0] in ended - broken:
            leave(p, node.src[0], "false")
        ROWS[ops.ENDFOR](p, node)

    return {ops.BREAK: at_break, ops.ENDFOR: at_end}


def _scratch(p: Printer, node: UOp) -> None:
    memory = {"SHARED": "%shared", "PRIV": "%private"}[node.arg.space]
    p.define(node, f"getelementptr i8, ptr {memory}, {p.typed(node.src[0])}")


def _load(p: Printer, node: UOp) -> None:
    """Emit a LOAD; if not valid, the first element of the same memory is read, and not used."""
    place = node.src[0]
    at, t = p.operand(place), type_of(dtypes.int8 if node.dtype.is_bool else node.dtype)
    aligned = place.arg if node.dtype.lanes > 1 else node.dtype.itemsize
    masks = [m.src[0] if m.op is ops.SPLAT else m for m in node.src[1:]]
    valid = p.typed(masks[0]) if masks else ""
    if valid:
        base = place
        while base.op is ops.ADDRESS:
            base = base.src[0]
        at = p.line(f"select {valid}, ptr {at}, ptr {p.operand(base)}")
    name = p.line(f"load {t}, ptr {at}, align {aligned}")
    if valid:
        zero = "zeroinitializer" if node.dtype.lanes > 1 else "0.0" if node.dtype.is_float else "0"
        name = p.line(f"select {valid}, {t} {name}, {t} {zero}")
    p.names[node] = p.line(f"icmp ne i8 {name}, 0") if node.dtype.is_bool else name


_WAIT = "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"


def _sync(p: Printer, node: UOp) -> None:
    p.out.append(_WAIT)


def _endfor(p: Printer, node: UOp) -> None:
    """Emit the end of a loop; do not unroll a loop with a barrier.

    Nothing moves across the barrier, so unrolling by ptxas only costs registers (126, not 52).
    """
    start = p.loops[node.src[0]].at
    ROWS[ops.ENDFOR](p, node)
    if _WAIT in p.out[start:]:
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


def _fetch(p: Printer, node: UOp) -> None:
    """Emit an asynchronous copy of 4, 8 or 16 bytes; if the mask is false, zeros are written."""
    place, source, *mask = node.src
    size = place.dtype.lanes * place.dtype.scalar.itemsize
    to = p.line(f"addrspacecast ptr {p.operand(place)} to ptr addrspace(3)")
    some = f", i32 {p.line(f'select {p.typed(mask[0])}, i32 {size}, i32 0')}" if mask else ""
    given = p.line(f"addrspacecast ptr {p.operand(source)} to ptr addrspace(1)")
    how = f"ca.shared.global.{size}" if size < 16 else "cg.shared.global.16"
    p.out.append(f"  call void @llvm.nvvm.cp.async.{how}{'.s' if mask else ''}("
                 f"ptr addrspace(3) {to}, ptr addrspace(1) {given}{some})")


def _await(p: Printer, node: UOp) -> None:
    p.out += ["  call void @llvm.nvvm.cp.async.commit.group()",
              "  call void @llvm.nvvm.cp.async.wait.group(i32 0)"]


def _store(p: Printer, node: UOp) -> None:
    """Emit a STORE; a mask is an ``IF`` around it, so there is none here."""
    place, value = node.src[:2]
    name, t = p.operand(value), type_of(value.dtype)
    if value.dtype.is_bool:
        name, t = p.line(f"zext i1 {name} to i8"), "i8"
    aligned = place.arg if value.dtype.lanes > 1 else value.dtype.itemsize
    p.out.append(f"  store {t} {name}, ptr {p.operand(place)}, align {aligned}")


_UNITS = {"mma_bf16": "llvm.nvvm.mma.m16n8k16.row.col.bf16",
          "mma_f16": "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
          "mma_tf32": "llvm.nvvm.mma.m16n8k8.row.col.tf32"}


def _mma(p: Printer, node: UOp) -> None:
    """Emit a warp-level MMA of the fragment registers of both factors and of the sums."""
    of_pairs = node.arg.unit == "mma_f16"  # registers are vectors there
    words = [p.line(f"bitcast {p.typed(s)} to <2 x half>") if of_pairs else p.operand(s)
             for s in node.src[:6]]
    t = "<2 x half>" if of_pairs else "i32"
    given = ", ".join([*[f"{t} {w}" for w in words], *map(p.typed, node.src[6:])])
    made = p.line(f"call {{float, float, float, float}} @{_UNITS[node.arg.unit]}({given})")
    name = "poison"
    for i in range(4):
        part = p.line(f"extractvalue {{float, float, float, float}} {made}, {i}")
        name = p.line(f"insertelement <4 x float> {name}, float {part}, i32 {i}")
    p.names[node] = name


def _vector_of(p: Printer, node: UOp) -> None:
    """Insert the lanes one by one into a poison vector."""
    made, t = "poison", type_of(node.dtype)
    for i, s in enumerate(node.src):
        made = p.line(f"insertelement {t} {made}, {p.typed(s)}, i64 {i}")
    p.names[node] = made


_NVPTX = Convention(_enter, {ops.ID: lambda p, n: _IDS[n.arg] + "64" * (n.dtype.bits == 64)},
                    {ops.SCRATCH: _scratch, ops.LOAD: _load, ops.STORE: _store, ops.SYNC: _sync,
                     ops.MMA: _mma, ops.VECTOR: _vector_of, ops.SHUFFLE_XOR: _shuffle_xor,
                     ops.FETCH: _fetch, ops.AWAIT: _await, ops.ENDFOR: _endfor})
