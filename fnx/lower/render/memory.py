"""Loads and stores of the host, of all lanes of a vector or under a mask.

    v = load(p, mask)               a masked load: all lanes are in cache lines of the buffer
    v = load(p, splat(c))           load(c ? p : zeros)
    v = load(p, mask, last)         vector within a line: a masked load of p <= last ? p : buffer,
                                    since past ``last`` no lane is active; otherwise
                                    p <= last: load all lanes, then select by the mask
                                    else: load the active lanes one by one
    v = load(p, mask, last, first)  first <= p, too

So no load touches lanes outside a buffer (program/masked.py). Loading one by one is for the
last vectors of a buffer: a gather, or for small elements a loop, which is little code.

LLVM (22, x86) turns a masked store with a constant one-lane mask into a scalar store, and ignores
that it also truncates: of 16 sums of 32 bits that are stored as 16 bits, it writes 4 bytes, two of
them past the array. So a store of one lane is emitted as a scalar store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core import ops
from fnx.core.dtypes import DType
from fnx.core.ops import Op
from fnx.core.uop import UOp
from fnx.lower.program.lane_masks import held
from fnx.lower.render.llvm import Printer, in_memory, suffix_of, type_of, zero_of

_GATHERED = 4  # bytes of the smallest elements that processors can gather


def _load(p: Printer, node: UOp) -> None:
    place, t = node.src[0], in_memory(node.dtype)
    at, memory = p.operand(place), type_of(t)
    if place.src[1].dtype.lanes > 1:
        name = p.line(f"call {memory} @llvm.masked.gather.{suffix_of(t)}.v{t.lanes}p0("
                      f"<{t.lanes} x ptr> align {t.itemsize} {at}, {_mask(p, node, 1)}, "
                      f"{memory} zeroinitializer)")
    elif len(node.src) == 1:
        name = p.line(f"load {memory}, ptr {at}, align {place.arg}")
    elif t.lanes == 1:  # if not valid, read from a safe address
        valid = p.typed(node.src[1])
        safe = p.line(f"select {valid}, ptr {at}, ptr %buffers")
        read = p.line(f"load {memory}, ptr {safe}, align {t.itemsize}")
        name = p.line(f"select {valid}, {memory} {read}, {memory} {zero_of(t)}")
    elif node.src[1].op is ops.SPLAT:
        valid = p.typed(node.src[1].src[0])
        safe = p.line(f"select {valid}, ptr {at}, ptr {_vector(p, memory, 'zeros')}")
        name = p.line(f"load {memory}, ptr {safe}, align {t.itemsize}")
    elif len(node.src) == 2:
        name = _masked_load(p, node, at)
    else:
        name = _guarded_load(p, node)
    if node.dtype.is_bool:
        name = p.line(f"icmp ne {memory} {name}, {zero_of(node.dtype)}")
    p.names[node] = name


def _masked_load(p: Printer, node: UOp, at: str) -> str:
    t = in_memory(node.dtype)
    return p.line(f"call {type_of(t)} @llvm.masked.load.{suffix_of(t)}.p0(ptr align "
                  f"{node.src[0].arg} {at}, {_mask(p, node, 1)}, {type_of(t)} zeroinitializer)")


def _guarded_load(p: Printer, node: UOp) -> str:
    place, mask, *ends = node.src
    t = in_memory(node.dtype)
    memory, at, chosen = type_of(t), p.operand(place), p.typed(mask)
    inside = _inside(p, at, ends)
    if _is_in_a_line(place):
        return _masked_load(p, node, p.line(
            f"select i1 {inside}, ptr {at}, ptr {p.operand(_buffer(place))}"))
    n = _branch(p, inside)
    read = p.line(f"load {memory}, ptr {at}, align {place.arg}")
    whole = p.line(f"select {chosen}, {memory} {read}, {memory} zeroinitializer")
    _else(p, n)
    if t.itemsize >= _GATHERED:
        rest = p.line(f"call {memory} @llvm.masked.gather.{suffix_of(t)}.v{t.lanes}p0("
                      f"{_each(p, t, at)}, {chosen}, {memory} zeroinitializer)")
        last = f"B{n}"
    else:
        copy = _vector(p, memory, "copy")
        p.out.append(f"  store {memory} zeroinitializer, ptr {copy}, align 64")
        _one_by_one(p, n, type_of(t.scalar), chosen, at, copy)
        rest, last = p.line(f"load {memory}, ptr {copy}, align 64"), f"E{n}"
    p.out.append(f"  br label %D{n}")
    p.label(f"D{n}")
    return p.line(f"phi {memory} [ {whole}, %A{n} ], [ {rest}, %{last} ]")


def _store(p: Printer, node: UOp) -> None:
    place, value = node.src[:2]
    t = in_memory(value.dtype)
    at, memory, name = p.operand(place), type_of(t), p.operand(value)
    if value.dtype.is_bool:
        name = p.line(f"zext {type_of(value.dtype)} {name} to {memory}")
    if place.src[1].dtype.lanes > 1:
        text = (f"call void @llvm.masked.scatter.{suffix_of(t)}.v{t.lanes}p0({memory} {name}, "
                f"<{t.lanes} x ptr> align {t.itemsize} {at}, {_mask(p, node, 2)})")
    elif len(node.src) == 2:
        text = f"store {memory} {name}, ptr {at}, align {place.arg}"
    elif t.lanes > 1 and len(lanes := held(node.src[2]) or ()) == 1:
        element = type_of(t.scalar)
        one = p.line(f"extractelement {memory} {name}, i64 {lanes[0]}")
        to = p.line(f"getelementptr {element}, ptr {at}, i64 {lanes[0]}")
        text = f"store {element} {one}, ptr {to}, align {t.itemsize}"
    else:
        text = (f"call void @llvm.masked.store.{suffix_of(t)}.p0({memory} {name}, "
                f"ptr align {place.arg} {at}, {_mask(p, node, 2)})")
    p.out.append(f"  {text}")


# ---- lanes that may be out of bounds ------------------------------------------------------------


def _mask(p: Printer, node: UOp, position: int) -> str:
    if len(node.src) > position:
        return p.typed(node.src[position])
    lanes = node.src[0].dtype.lanes
    return f"<{lanes} x i1> splat (i1 true)"


def _is_in_a_line(place: UOp) -> bool:
    """Return whether a vector is aligned to its size, so that it lies within a cache line."""
    return bool(place.arg >= place.dtype.itemsize * place.dtype.lanes)


def _vector(p: Printer, memory: str, what: str) -> str:
    """Return a zero-initialized alloca for a vector type."""
    name = f"%{what}.{''.join(filter(str.isalnum, memory))}"
    made = f"  {name} = alloca {memory}, align 64"
    if made not in p.entry:
        p.entry += [made, f"  store {memory} zeroinitializer, ptr {name}, align 64"]
    return name


def _inside(p: Printer, at: str, ends: Sequence[UOp]) -> str:
    """Emit whether an address is <= the first of ``ends``, and >= the second if given."""
    inside = p.line(f"icmp ule ptr {at}, {p.operand(ends[0])}")
    for first in ends[1:]:
        above = p.line(f"icmp uge ptr {at}, {p.operand(first)}")
        inside = p.line(f"and i1 {inside}, {above}")
    return inside


def _buffer(place: UOp) -> UOp:
    """Return the base pointer of an ADDRESS."""
    while place.op is ops.ADDRESS:
        place = place.src[0]
    return place


def _each(p: Printer, t: DType, at: str) -> str:
    """Return the operand of a gather: one address per lane."""
    lanes = ", ".join([f"i64 {i}" for i in range(t.lanes)])
    each = p.line(f"getelementptr {type_of(t.scalar)}, ptr {at}, <{t.lanes} x i64> <{lanes}>")
    return f"<{t.lanes} x ptr> align {t.itemsize} {each}"


def _branch(p: Printer, inside: str) -> int:
    """Open a branch on a condition, and return its number."""
    p.count += 1
    p.out.append(f"  br i1 {inside}, label %A{p.count}, label %B{p.count}")
    p.label(f"A{p.count}")
    return p.count


def _else(p: Printer, n: int) -> None:
    p.out.append(f"  br label %D{n}")
    p.label(f"B{n}")


def _one_by_one(p: Printer, n: int, element: str, chosen: str, source: str, to: str) -> None:
    """Copy the elements of active lanes in a loop."""
    lanes = chosen[1:].split()[0]
    p.out += [f"  %b{n} = bitcast {chosen} to i{lanes}",
              f"  %e{n} = icmp eq i{lanes} %b{n}, 0",
              f"  br i1 %e{n}, label %E{n}, label %C{n}"]
    p.label(f"C{n}")
    p.out += [f"  %m{n} = phi i{lanes} [ %b{n}, %B{n} ], [ %r{n}, %C{n} ]",
              f"  %z{n} = call i{lanes} @llvm.cttz.i{lanes}(i{lanes} %m{n}, i1 true)",
              f"  %o{n} = {_index(lanes, n)}",
              f"  %f{n} = getelementptr {element}, ptr {source}, i64 %o{n}",
              f"  %x{n} = load {element}, ptr %f{n}, align 1",
              f"  %t{n} = getelementptr {element}, ptr {to}, i64 %o{n}",
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


LINES: dict[Op, Callable[[Printer, UOp], None]] = {ops.LOAD: _load, ops.STORE: _store}
