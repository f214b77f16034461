"""The host's calling convention for kernel functions.

    void SYMBOL(ptr buffers, ptr scalars, i64 lo, i64 hi, ptr scratch)

buffers[slot] and scalars[slot] are read at the start (floats are bit patterns); lo..hi is this
worker's part of the PAR range (0, 1 without one); scratch is the worker's own memory. Buffers may
alias (an output may be a donated input), so they have no alias attributes. The stack is aligned to
cache lines for spilled vectors.

Loads and stores are of all lanes of a vector or under a mask.

    v = load(p, mask)               a masked load: all lanes are in cache lines of the buffer
    v = load(p, splat(c))           load(c ? p : zeros)
    v = load(p, mask, last)         vector within a line, or the active lanes are the first: a
                                    masked load of p <= last ? p : buffer, since past ``last`` no
                                    lane is active; otherwise
                                    p <= last: load all lanes, then select by the mask
                                    else: load the active lanes one by one
    v = load(p, mask, last, first)  first <= p, too

So loads touch lanes outside a buffer in its last vector only (emit/masked_loads.py). Loading one by
one is for the last vectors of a buffer: a gather, or for small elements a loop, which is little
code.

LLVM (22, x86) turns a masked store with a constant one-lane mask into a scalar store, and ignores
that it also truncates: of 16 sums of 32 bits that are stored as 16 bits, it writes 4 bytes, two of
them past the array. So a store of one lane is emitted as a scalar store.

>>> from fnx.core.ir import build
>>> i = UOp(ops.FOR, dtypes.index, (build.index_const(0), build.index_const(4)), 1)
>>> p = UOp(ops.PROGRAM, dtypes.void, (i, UOp(ops.ENDFOR, dtypes.void, (i,))))
>>> print(module("f", render(p)).splitlines()[0])
define void @f(ptr noalias readonly %buffers, ptr noalias readonly %scalars, i64 %lo, i64 %hi,
ptr noalias align 64 %scratch) nounwind alignstack(64) {
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fnx.core.ir import dtypes, ops
from fnx.core.ir.accessors import base_pointer
from fnx.core.ir.dtypes import DType
from fnx.core.ir.matrix_units import TILE_LANES, UNITS
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import KernelError
from fnx.lower.analysis.active_lanes import active_lanes, may_end_out_of_bounds
from fnx.lower.render.llvm import (
    ROWS,
    Convention,
    Printer,
    body,
    memory_dtype,
    suffix_of,
    type_of,
    zero_of,
)

_MIN_GATHER_BYTES = 4  # bytes of the smallest elements that processors can gather
_VECTOR_UNITS = {
    "dpbf16ps": "llvm.x86.avx512bf16.dpbf16ps.{bits}",
    "dpbusd": "llvm.x86.avx512.vpdpbusd.{bits}",
}
_TILE_UNITS = {
    "tdpbf16ps": "llvm.x86.tdpbf16ps.internal",
    "tdpbssd": "llvm.x86.tdpbssd.internal",
}
_UNIT_BITS = 128, 256, 512
_STREAM = ", !nontemporal !0"
EXTERN_NAMES = "(?:lapack|blas)_[a-z0-9]+"  # of SciPy: backends/llvm/object_files.py
_PARAMETERS = "ptr noalias readonly %buffers, ptr noalias readonly %scalars, i64 %lo, i64 %hi, " \
    "ptr noalias align 64 %scratch"


def render(program: UOp) -> str:
    """Render a kernel function, from its parameters on."""
    lines = body(program, _HOST)
    if any(n.arg for n in program.src if n.op is ops.STORE):
        lines.insert(-1, "  call void @llvm.x86.sse.sfence()")
    return "\n".join([f"({_PARAMETERS}) nounwind alignstack(64) {{", *lines, "}", ""])


def module(symbol: str, function: str) -> str:
    """Return the module that defines ``symbol`` as a kernel function."""
    metadata = "\n!0 = !{i32 1}\n" if _STREAM in function else ""
    return f"define void @{symbol}{function}{metadata}{_declarations(function)}"


def _declarations(function: str) -> str:
    """Return the declarations of the functions that are called with addresses only, and of
    VPDPBUSD: LLVM 22 infers those of other intrinsics only.
    """
    products = [f"declare <{int(bits) // 32} x i32> @{_VECTOR_UNITS['dpbusd'].format(bits=bits)}("
                f"{', '.join([f'<{int(bits) // 32} x i32>'] * 3)})\n" for bits in
                sorted(set(re.findall(r"@llvm\.x86\.avx512\.vpdpbusd\.(\d+)", function)))]
    calls = re.findall(rf"@({EXTERN_NAMES})\(([^)]*)\)", function)
    return "".join(products + [
        f"declare void @{name}({', '.join(['ptr'] * count)})\n" for name, count in
        sorted({(name, arguments.count("ptr")) for name, arguments in calls})])


def _enter(p: Printer, program: UOp) -> None:
    """Load the pointers and scalars that the program uses, in slot order."""
    for node in used_arguments(program):
        if node.op is ops.REF:
            at = p.line(f"getelementptr ptr, ptr %buffers, i64 {node.arg.slot}")
            p.define(node, f"load ptr, ptr {at}, align 8")
        else:
            at = p.line(f"getelementptr i64, ptr %scalars, i64 {node.arg.slot}")
            p.names[node] = from_bits(p, p.line(f"load i64, ptr {at}, align 8"), node.dtype)


def used_arguments(program: UOp) -> list[UOp]:
    """Return the REFs and VARs that a program uses, in slot order."""
    used = {s for node in program.src for s in node.src if s.op in (ops.REF, ops.VAR)}
    return sorted(used, key=lambda n: (n.op.name, n.arg.slot, n.dtype.name))


def from_bits(p: Printer, name: str, t: DType) -> str:
    """Convert a 64-bit scalar argument to its dtype, by its low bits."""
    if t is dtypes.index:
        return name
    if t.bits < 64:
        name = p.line(f"trunc i64 {name} to i{t.bits}")
    return p.line(f"bitcast i{t.bits} {name} to {type_of(t)}") if t.is_float else name


def _scratch(p: Printer, node: UOp) -> None:
    p.define(node, f"getelementptr i8, ptr %scratch, i64 {p.operand(node.src[0])}")


def _extern_call(p: Printer, node: UOp) -> None:
    arguments = ", ".join(f"ptr {p.operand(s)}" for s in node.src)
    p.out.append(f"  call void @{node.arg}({arguments})")


# ---- memory -------------------------------------------------------------------------------------


def _load(p: Printer, node: UOp) -> None:
    address, t = node.src[0], memory_dtype(node.dtype)
    pointer, memory = p.operand(address), type_of(t)
    if t.lanes == TILE_LANES:
        name = p.line("call x86_amx @llvm.x86.tileloadd64.internal(i16 16, i16 64, "
                      f"ptr {pointer}, i64 64)")
    elif address.src[1].dtype.lanes > 1:
        name = p.line(f"call {memory} @llvm.masked.gather.{suffix_of(t)}.v{t.lanes}p0("
                      f"<{t.lanes} x ptr> {pointer}, i32 {t.itemsize}, {_mask(p, node, 1)}, "
                      f"{memory} zeroinitializer)")
    elif len(node.src) == 1:
        name = p.line(f"load {memory}, ptr {pointer}, align {address.arg}")
    elif t.lanes == 1:  # if not valid, read from a safe address
        valid = p.typed(node.src[1])
        safe = p.line(f"select {valid}, ptr {pointer}, ptr %buffers")
        read = p.line(f"load {memory}, ptr {safe}, align {t.itemsize}")
        name = p.line(f"select {valid}, {memory} {read}, {memory} {zero_of(t)}")
    elif node.src[1].op is ops.SPLAT:
        valid = p.typed(node.src[1].src[0])
        safe = p.line(f"select {valid}, ptr {pointer}, ptr {_zeroed_alloca(p, memory, 'zeros')}")
        name = p.line(f"load {memory}, ptr {safe}, align {t.itemsize}")
    elif len(node.src) == 2:
        name = _masked_load(p, node, pointer)
    else:
        name = _guarded_load(p, node)
    if node.dtype.is_bool:
        name = p.line(f"icmp ne {memory} {name}, {zero_of(node.dtype)}")
    p.names[node] = name


def _masked_load(p: Printer, node: UOp, at: str) -> str:
    t = memory_dtype(node.dtype)
    return p.line(f"call {type_of(t)} @llvm.masked.load.{suffix_of(t)}.p0(ptr {at}, "
                  f"i32 {node.src[0].arg}, {_mask(p, node, 1)}, {type_of(t)} zeroinitializer)")


def _guarded_load(p: Printer, node: UOp) -> str:
    address, mask, *guards = node.src
    t = memory_dtype(node.dtype)
    memory, pointer, active = type_of(t), p.operand(address), p.typed(mask)
    in_bounds = _is_in_bounds(p, pointer, guards)
    if may_end_out_of_bounds(address, mask):
        return _masked_load(p, node, p.line(
            f"select i1 {in_bounds}, ptr {pointer}, ptr {p.operand(base_pointer(address))}"))
    n = _open_branch(p, in_bounds)
    if active_lanes(mask) is not None:  # LLVM makes a slow VEXPAND of a SELECT of constant lanes
        selected = _masked_load(p, node, pointer)
    else:
        read = p.line(f"load {memory}, ptr {pointer}, align {address.arg}")
        selected = p.line(f"select {active}, {memory} {read}, {memory} zeroinitializer")
    _close_then(p, n)
    if t.itemsize >= _MIN_GATHER_BYTES:
        lanes_loaded = p.line(f"call {memory} @llvm.masked.gather.{suffix_of(t)}.v{t.lanes}p0("
                              f"{_lane_ptrs(p, t, pointer)}, {active}, {memory} zeroinitializer)")
        last = f"B{n}"
    else:
        copy = _zeroed_alloca(p, memory, "copy")
        p.out.append(f"  store {memory} zeroinitializer, ptr {copy}, align 64")
        _copy_active(p, n, type_of(t.scalar), active, pointer, copy)
        lanes_loaded, last = p.line(f"load {memory}, ptr {copy}, align 64"), f"E{n}"
    p.out.append(f"  br label %D{n}")
    p.label(f"D{n}")
    return p.line(f"phi {memory} [ {selected}, %A{n} ], [ {lanes_loaded}, %{last} ]")


def _store(p: Printer, node: UOp) -> None:
    address, value = node.src[:2]
    t = memory_dtype(value.dtype)
    pointer, memory, name = p.operand(address), type_of(t), p.operand(value)
    if value.dtype.is_bool:
        name = p.line(f"zext {type_of(value.dtype)} {name} to {memory}")
    if address.src[1].dtype.lanes > 1:
        text = (f"call void @llvm.masked.scatter.{suffix_of(t)}.v{t.lanes}p0({memory} {name}, "
                f"<{t.lanes} x ptr> {pointer}, i32 {t.itemsize}, {_mask(p, node, 2)})")
    elif len(node.src) == 2:
        text = f"store {memory} {name}, ptr {pointer}, align {address.arg}"
    elif t.lanes > 1 and len(lanes := active_lanes(node.src[2]) or ()) == 1:
        element = type_of(t.scalar)
        element_value = p.line(f"extractelement {memory} {name}, i64 {lanes[0]}")
        element_pointer = p.line(f"getelementptr {element}, ptr {pointer}, i64 {lanes[0]}")
        text = f"store {element} {element_value}, ptr {element_pointer}, align {t.itemsize}"
    else:
        text = (f"call void @llvm.masked.store.{suffix_of(t)}.p0({memory} {name}, "
                f"ptr {pointer}, i32 {address.arg}, {_mask(p, node, 2)})")
    p.out.append(f"  {text}{_STREAM if node.arg else ''}")


# ---- lanes that may be out of bounds ------------------------------------------------------------


def _mask(p: Printer, node: UOp, position: int) -> str:
    if len(node.src) > position:
        return p.typed(node.src[position])
    lanes = node.src[0].dtype.lanes
    return f"<{lanes} x i1> splat (i1 true)"


def _zeroed_alloca(p: Printer, memory: str, name_prefix: str) -> str:
    """Return a zero-initialized alloca for a vector type."""
    name = f"%{name_prefix}.{''.join(filter(str.isalnum, memory))}"
    alloca = f"  {name} = alloca {memory}, align 64"
    if alloca not in p.entry:
        p.entry += [alloca, f"  store {memory} zeroinitializer, ptr {name}, align 64"]
    return name


def _is_in_bounds(p: Printer, pointer: str, guards: Sequence[UOp]) -> str:
    """Emit whether an address is <= the first of ``guards``, and >= the second if given."""
    in_bounds = p.line(f"icmp ule ptr {pointer}, {p.operand(guards[0])}")
    for first in guards[1:]:
        is_above = p.line(f"icmp uge ptr {pointer}, {p.operand(first)}")
        in_bounds = p.line(f"and i1 {in_bounds}, {is_above}")
    return in_bounds


def _lane_ptrs(p: Printer, t: DType, at: str) -> str:
    """Return the operands of a gather: one address per lane, and their alignment."""
    lanes = ", ".join([f"i64 {i}" for i in range(t.lanes)])
    addresses = p.line(f"getelementptr {type_of(t.scalar)}, ptr {at}, <{t.lanes} x i64> <{lanes}>")
    return f"<{t.lanes} x ptr> {addresses}, i32 {t.itemsize}"


def _open_branch(p: Printer, in_bounds: str) -> int:
    """Open a branch on a condition, and return its number."""
    p.count += 1
    p.out.append(f"  br i1 {in_bounds}, label %A{p.count}, label %B{p.count}")
    p.label(f"A{p.count}")
    return p.count


def _close_then(p: Printer, n: int) -> None:
    p.out.append(f"  br label %D{n}")
    p.label(f"B{n}")


def _copy_active(p: Printer, n: int, element: str, active: str, source: str, dest: str) -> None:
    """Copy the elements of active lanes in a loop."""
    lanes = active[1:].split()[0]
    p.out += [f"  %b{n} = bitcast {active} to i{lanes}",
              f"  %e{n} = icmp eq i{lanes} %b{n}, 0",
              f"  br i1 %e{n}, label %E{n}, label %C{n}"]
    p.label(f"C{n}")
    p.out += [f"  %m{n} = phi i{lanes} [ %b{n}, %B{n} ], [ %r{n}, %C{n} ]",
              f"  %z{n} = call i{lanes} @llvm.cttz.i{lanes}(i{lanes} %m{n}, i1 true)",
              f"  %o{n} = {_index(lanes, n)}",
              f"  %f{n} = getelementptr {element}, ptr {source}, i64 %o{n}",
              f"  %x{n} = load {element}, ptr %f{n}, align 1",
              f"  %t{n} = getelementptr {element}, ptr {dest}, i64 %o{n}",
              f"  store {element} %x{n}, ptr %t{n}, align 1",
              f"  %d{n} = add i{lanes} %m{n}, -1",
              f"  %r{n} = and i{lanes} %m{n}, %d{n}",
              f"  %l{n} = icmp eq i{lanes} %r{n}, 0",
              f"  br i1 %l{n}, label %E{n}, label %C{n}"]
    p.label(f"E{n}")


def _index(lanes: str, n: int) -> str:
    """Return the conversion of an integer of ``lanes`` bits to an index."""
    bits = int(lanes)
    kind = "zext" if bits < 64 else "trunc" if bits > 64 else "add"
    return f"add i64 %z{n}, 0" if kind == "add" else f"{kind} i{bits} %z{n} to i64"


MEMORY: dict[Op, Callable[[Printer, UOp], None]] = {ops.LOAD: _load, ops.STORE: _store}


# ---- matrix units -------------------------------------------------------------------------------


def _mma(p: Printer, node: UOp) -> None:
    """Emit an MMA: the factors are vectors of packed elements, or tiles."""
    unit, lanes = UNITS[node.arg.unit], node.dtype.lanes
    if unit.layout == "tiles":
        a, b, total = map(p.typed, node.src)
        p.define(node, f"call x86_amx @{_TILE_UNITS[unit.name]}(i16 16, i16 64, i16 64, "
                       f"{total}, {a}, {b})")
        return
    bits = 32 * lanes
    if bits not in _UNIT_BITS:
        raise KernelError(f"tensorize: {unit.name} works in {', '.join(map(str, _UNIT_BITS))} "
                          f"bits, got {lanes} lanes",
                          hint="vectorize a range of 4, 8 or 16 columns")
    vec = type_of(unit.left.vec(lanes * unit.terms_per_word) if unit.left.is_float
                  else dtypes.int32.vec(lanes))
    a, b = (f"{vec} {p.line(f'bitcast {p.typed(s)} to {vec}')}" for s in node.src[:2])
    name = _VECTOR_UNITS[unit.name].format(bits=bits)
    p.define(node, f"call {type_of(node.dtype)} @{name}({p.typed(node.src[2])}, {a}, {b})")


def _splat(p: Printer, node: UOp) -> None:
    """Emit a SPLAT; of tiles, only zero is supported."""
    if node.dtype.lanes != TILE_LANES:
        ROWS[ops.SPLAT](p, node)
        return
    p.define(node, "call x86_amx @llvm.x86.tilezero.internal(i16 16, i16 64)")


def _shuffle(p: Printer, node: UOp) -> None:
    """Extract lanes of a tile through memory, copied once, after the loop that computes it."""
    if node.src[0].dtype.lanes != TILE_LANES:
        ROWS[ops.SHUFFLE](p, node)
        return
    vector = p.whole.get(node.src[0])
    if vector is None:
        vector = p.whole[node.src[0]] = p.line(
            f"call <256 x i32> @llvm.x86.cast.tile.to.vector.v256i32({p.typed(node.src[0])})")
    lanes = ", ".join(f"i32 {i}" for i in node.arg)
    row = p.line(f"shufflevector <256 x i32> {vector}, <256 x i32> poison, "
                 f"<{len(node.arg)} x i32> <{lanes}>")
    p.define(node, f"bitcast <{len(node.arg)} x i32> {row} to {type_of(node.dtype)}")


_HOST = Convention(_enter, {ops.PARALLEL_RANGE: lambda p, n: ("%lo", "%hi")[n.arg]}, {
    **MEMORY, ops.SCRATCH: _scratch, ops.MMA: _mma, ops.SPLAT: _splat, ops.SHUFFLE: _shuffle,
    ops.EXTERN_CALL: _extern_call})
