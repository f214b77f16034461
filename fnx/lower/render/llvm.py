"""LLVM IR text of a PROGRAM: one renderer, with a table of one function per op.

    FOR i = 0 .. s0                  L1:
      p = ADDRESS(x, i)                %i1 = phi i64 [ 0, %B0 ], [ %n1, %L1 ]
      STORE p, 1.0                     %z1 = add i64 %i1, 0
    ENDFOR                             %v1 = freeze i64 %z1
                                       %v2 = getelementptr float, ptr %b0, i64 %v1
                                       store float 0x3FF0000000000000, ptr %v2, align 4
                                       %n1 = add nuw nsw i64 %i1, 1
                                       %c1 = icmp slt i64 %n1, %s0
                                       br i1 %c1, label %L1, label %X1
                                     X1:

Loops test at the end, and before the first iteration unless their bounds are constants. A counter
goes through a `freeze`. This stops LLVM's search for the best way to step its addresses (loop
strength reduction), which took a fifth of its time and changed the run time of whole programs by
half a percent. It is the freeze of a sum, as LLVM moves that of a counter out of the loop. There
are no fast-math flags except nsz in reductions, and no intrinsics that become library calls: an op
without a row here must be expanded by decompose. The calling convention is a ``Convention``:
render/host.py has the host's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.matrix_units import TILE_LANES
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import KernelError
from fnx.core.support.record import Record
from fnx.lower.render.llvm_workarounds import Fences, quotient

_FLOATS = {"float16": "half", "bfloat16": "bfloat", "float32": "float", "float64": "double"}
_MIN_MAX = ops.MAX, ops.MIN
KIND_LETTERS = {"float": "f", "int": "s", "index": "s", "uint": "u", "bool": "b"}


class Convention(Record):
    """A calling convention: how a function accesses its arguments.

    Attributes:
        enter: emits the prologue, which names REFs and VARs.
        operands: op -> the operand text of a node without a line of its own.
        lines: op -> emits the line of a node.
    """

    enter: Callable[[Printer, UOp], None]
    operands: Mapping[Op, Callable[[Printer, UOp], str]]
    lines: Mapping[Op, Callable[[Printer, UOp], None]]


def body(program: UOp, convention: Convention) -> list[str]:
    """Render the lines of the body of a function for a PROGRAM."""
    printer = Printer(convention)
    if any(_tests_first(n) for n in program.src if n.op in _MIN_MAX):
        printer.readiness = _rank_readiness(program.src)
    convention.enter(printer, program)
    rows = {**ROWS, **convention.lines}
    for node in program.src:
        rows[node.op](printer, node)
    return ["B0:", *printer.entry, *printer.out, "  ret void"]


def type_of(t: DType) -> str:
    """Return LLVM's name of the type of a value."""
    scalar = _FLOATS[t.scalar.name] if t.is_float else f"i{t.bits}"
    return "x86_amx" if t.lanes == TILE_LANES else scalar if t.lanes == 1 \
        else f"<{t.lanes} x {scalar}>"


def memory_dtype(t: DType) -> DType:
    """Return the dtype in memory: a bool is a byte."""
    return dtypes.int8.vec(t.lanes) if t.is_bool else t


def suffix_of(t: DType) -> str:
    scalar = f"{'f' if t.is_float else 'i'}{t.bits}"
    return scalar if t.lanes == 1 else f"v{t.lanes}{scalar}"


class _OpenFor:
    """The state of an open FOR.

    ``before``, ``latch``: the blocks before the loop and at its end; ``guarded``: a test precedes
    it; ``at``: the line of its counter; ``left``: the block that ends with a BREAK; ``phis``: its
    PHIs, with their lines to fill in at the end.
    """

    def __init__(self, before: str, guarded: bool, at: int) -> None:
        self.before, self.guarded, self.at = before, guarded, at
        self.latch = self.left = ""
        self.phis: list[tuple[UOp, int]] = []


class Printer:
    """The text of the lines so far, and the names of the values they define."""

    def __init__(self, convention: Convention) -> None:
        self.inline = {**_INLINE, **convention.operands}
        self.out: list[str] = []
        self.names: dict[UOp, str] = {}
        self.instructions: dict[tuple[Op, DType, bool], str] = {}
        self.entry: list[str] = []  # allocas
        self.whole: dict[UOp, str] = {}  # tile registers that were copied to vectors
        self.loops: dict[UOp, _OpenFor] = {}
        self.fences = Fences()
        self.readiness: dict[UOp, int] = {}
        self.block = "B0"
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> str:
        """Emit a line that defines a new name, and return the name."""
        name = self.fresh()
        self.out.append(f"  {name} = {text}")
        return name

    def define(self, node: UOp, text: str) -> None:
        self.names[node] = self.line(text)

    def label(self, name: str) -> None:
        self.out.append(f"{name}:")
        self.block = name
        self.fences.leave_block()

    def operand(self, node: UOp) -> str:
        """Return the operand text of a node."""
        name = self.names.get(node)
        if name is None:
            row = self.inline.get(node.op)
            if row is None:
                raise KernelError(f"a line uses {node}, which no line before it defines")
            name = self.names[node] = row(self, node)
        return name

    def typed(self, node: UOp) -> str:
        return f"{type_of(node.dtype)} {self.operand(node)}"


# ---- inline operands ----------------------------------------------------------------------------


def constant(node: UOp) -> str:
    """Return the LLVM IR text of a CONST; floats as the bits of a double.

    >>> constant(build.const(1.5, dtypes.float32)), constant(build.const(True, dtypes.bool_))
    ('0x3FF8000000000000', 'true')
    """
    if node.dtype.is_bool:
        return "true" if node.arg else "false"
    if not node.dtype.is_float:
        return str(build.const_of(node))
    bits = node.arg
    if node.dtype.bits == 32:
        if bits >> 23 & 255 == 255:  # infinities, and NaNs with their payload
            bits = (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
        else:
            value, = struct.unpack("<f", struct.pack("<I", bits))
            bits, = struct.unpack("<Q", struct.pack("<d", value))
    return f"0x{bits:016X}"


def _vector(t: str, values: Iterable[int]) -> str:
    """Return a vector constant with one value per lane."""
    return f"<{', '.join([f'{t} {v}' for v in values])}>"


def _uniform(t: DType, value: str) -> str:
    """Return a constant broadcast to all lanes."""
    return value if t.lanes == 1 else f"splat ({type_of(t.scalar)} {value})"


def zero_of(t: DType) -> str:
    return "zeroinitializer" if t.lanes > 1 else "0.0" if t.is_float else "0"


_INLINE: dict[Op, Callable[[Printer, UOp], str]] = {
    ops.CONST: lambda p, n: constant(n),
    ops.LANES: lambda p, n: _vector(type_of(n.dtype.scalar), range(n.dtype.lanes)),
}


# ---- elementwise ------------------------------------------------------------------------------

# {t}: type of the operands, {s}: its suffix in intrinsic names, {zero} {ones}: constants,
# {zeros}: the flag nsz, if either of +0 and -0 may be returned
_TEMPLATES: dict[Op, dict[str, str]] = {
    ops.NEG: {"f": "fneg {t} {0}", "su": "sub {t} {zero}, {0}"},
    ops.ABS: {"f": "call {t} @llvm.fabs.{s}({t} {0})", "u": "or {t} {0}, {0}",
              "s": "call {t} @llvm.abs.{s}({t} {0}, i1 false)"},
    ops.NOT: {"sub": "xor {t} {0}, {ones}"},
    ops.SQRT: {"f": "call {t} @llvm.sqrt.{s}({t} {0})"},
    ops.FLOOR: {"f": "call {t} @llvm.floor.{s}({t} {0})"},
    ops.CEIL: {"f": "call {t} @llvm.ceil.{s}({t} {0})"},
    ops.TRUNC: {"f": "call {t} @llvm.trunc.{s}({t} {0})"},
    ops.ROUND: {"f": "call {t} @llvm.roundeven.{s}({t} {0})"},
    ops.ADD: {"f": "fadd {t} {0}, {1}", "su": "add {t} {0}, {1}"},
    ops.SUB: {"f": "fsub {t} {0}, {1}", "su": "sub {t} {0}, {1}"},
    ops.MUL: {"f": "fmul {t} {0}, {1}", "su": "mul {t} {0}, {1}"},
    ops.IDIV: {"s": "sdiv {t} {0}, {1}", "u": "udiv {t} {0}, {1}"},
    ops.REM: {"s": "srem {t} {0}, {1}", "u": "urem {t} {0}, {1}"},
    ops.MAX: {"f": "call {zeros}{t} @llvm.maximum.{s}({t} {0}, {t} {1})",
              "s": "call {t} @llvm.smax.{s}({t} {0}, {t} {1})",
              "u": "call {t} @llvm.umax.{s}({t} {0}, {t} {1})", "b": "or {t} {0}, {1}"},
    ops.MIN: {"f": "call {zeros}{t} @llvm.minimum.{s}({t} {0}, {t} {1})",
              "s": "call {t} @llvm.smin.{s}({t} {0}, {t} {1})",
              "u": "call {t} @llvm.umin.{s}({t} {0}, {t} {1})", "b": "and {t} {0}, {1}"},
    ops.CMPLT: {"f": "fcmp olt {t} {0}, {1}", "s": "icmp slt {t} {0}, {1}",
                "ub": "icmp ult {t} {0}, {1}"},
    ops.CMPLE: {"f": "fcmp ole {t} {0}, {1}", "s": "icmp sle {t} {0}, {1}",
                "ub": "icmp ule {t} {0}, {1}"},
    ops.CMPEQ: {"f": "fcmp oeq {t} {0}, {1}", "sub": "icmp eq {t} {0}, {1}"},
    ops.CMPNE: {"f": "fcmp une {t} {0}, {1}", "sub": "icmp ne {t} {0}, {1}"},
    ops.AND: {"sub": "and {t} {0}, {1}"},
    ops.OR: {"sub": "or {t} {0}, {1}"},
    ops.XOR: {"sub": "xor {t} {0}, {1}"},
    ops.MULACC: {"f": "call {t} @llvm.fma.{s}({t} {0}, {t} {1}, {t} {2})"},
}


def _tests_first(node: UOp) -> bool:
    """Return whether LLVM (x86) expands a MAX or MIN with a test of its first operand: of its sign,
    or, if any zero will do, whether it is NaN."""
    return node.op in _MIN_MAX and node.dtype.is_float and \
        all((s.src[0] if s.op is ops.SPLAT else s).op is not ops.CONST for s in node.src)


def _rank_readiness(lines: Sequence[UOp]) -> dict[UOp, int]:
    """Rank values by when they are available: by line, but all that depend on a PHI come last."""
    readiness: dict[UOp, int] = {}
    for i, node in enumerate(lines):
        is_late = node.op is ops.PHI or any(readiness.get(s, 0) > len(lines) for s in node.src)
        readiness[node] = i + is_late * (len(lines) + 1)
    return readiness


def _instruction(op: Op, t: DType, any_zero: bool) -> str:
    """Return the instruction of an op on a dtype, with {0}, {1}, {2} for the operands."""
    text = next((text for letters, text in _TEMPLATES[op].items()
                 if KIND_LETTERS[t.kind] in letters), None)
    if text is None:
        raise KernelError(f"{op} of {t.scalar} has no instruction; decompose rewrites it")
    return text.format("{0}", "{1}", "{2}", t=type_of(t), s=suffix_of(t), zero=zero_of(t),
                       ones=_uniform(t, "-1"), zeros="nsz " if any_zero else "")


def _elementwise(p: Printer, node: UOp) -> None:
    key = node.op, node.src[0].dtype, node.arg is not None
    text = p.instructions.get(key) or p.instructions.setdefault(key, _instruction(*key))
    operands: Sequence[UOp] = node.src
    if node.op in _MIN_MAX and _tests_first(node):  # the operand that is ready earlier
        operands = sorted(operands, key=lambda s: p.readiness.get(s, -1))
    p.define(node, text.format(*map(p.operand, operands)))


def _divide(p: Printer, node: UOp) -> None:
    a, b = map(p.operand, node.src)
    p.define(node, quotient(node, type_of(node.dtype), suffix_of(node.dtype), a, b))


def _shift(p: Printer, node: UOp) -> None:
    """Emit a shift. Past the width, where LLVM's is undefined, it gives 0 or all sign bits."""
    x, amount = node.src
    t, last = type_of(x.dtype), x.dtype.bits - 1
    signed = node.op is ops.SHR and x.dtype.kind != "uint"
    mnemonic = "shl" if node.op is ops.SHL else "ashr" if signed else "lshr"
    count = amount.src[0] if amount.op is ops.SPLAT else amount
    if count.op is ops.CONST and 0 <= build.const_of(count) <= last:
        p.define(node, f"{mnemonic} {t} {p.operand(x)}, {p.operand(amount)}")
    elif signed:
        low = p.line(f"call {t} @llvm.umin.{suffix_of(amount.dtype)}({p.typed(amount)}, "
                     f"{t} {_uniform(amount.dtype, str(last))})")
        p.define(node, f"ashr {t} {p.operand(x)}, {low}")
    else:
        in_range = p.line(f"icmp ule {p.typed(amount)}, {_uniform(amount.dtype, str(last))}")
        shifted = p.line(f"{mnemonic} {t} {p.operand(x)}, {p.operand(amount)}")
        mask = type_of(dtypes.bool_.vec(x.dtype.lanes))
        p.define(node, f"select {mask} {in_range}, {t} {shifted}, {t} {zero_of(x.dtype)}")


def _where(p: Printer, node: UOp) -> None:
    p.define(node, f"select {', '.join(p.typed(s) for s in node.src)}")


def _cast(p: Printer, node: UOp) -> None:
    a, b = node.src[0].dtype, node.dtype
    x, to = p.typed(node.src[0]), type_of(b)
    if b.is_bool:
        p.define(node, f"{'fcmp une' if a.is_float else 'icmp ne'} {x}, {zero_of(a)}")
    elif a.is_float and not b.is_float:
        sign = "u" if b.kind == "uint" else "s"
        if a.lanes > 1:
            _saturating_cast(p, node, sign)
            return
        p.define(node, f"call {to} @llvm.fpto{sign}i.sat.{suffix_of(b)}.{suffix_of(a)}({x})")
    else:
        mnemonic = _conversion(a, b)
        if mnemonic:
            p.define(node, f"{mnemonic} {x} to {to}")
        else:
            p.names[node] = p.operand(node.src[0])


def _saturating_cast(p: Printer, node: UOp, sign: str) -> None:
    """Emit a saturating vector float -> integer cast, as LLVM scalarizes its own intrinsic."""
    a, b = node.src[0].dtype, node.dtype
    x, ta, tb = p.operand(node.src[0]), type_of(a), type_of(b)
    mask = type_of(dtypes.bool_.vec(a.lanes))
    low, high = b.scalar.limits
    bits = max(0, high.bit_length() - a.scalar.mantissa - 1)
    exact_limit = high >> bits << bits  # the largest limit that is exact in the float type

    def both(limit: int) -> str:
        return _uniform(a, constant(build.const(limit, a.scalar)))

    below = p.line(f"fcmp olt {ta} {x}, {both(exact_limit)}")
    clamped = p.line(f"select {mask} {below}, {ta} {x}, {ta} {both(exact_limit)}")
    above = p.line(f"fcmp ogt {ta} {clamped}, {both(low)}")
    clamped = p.line(f"select {mask} {above}, {ta} {clamped}, {ta} {both(low)}")
    whole = p.line(f"fpto{sign}i {ta} {clamped} to {tb}")
    if exact_limit != high:
        is_above = p.line(f"fcmp oge {ta} {x}, {both(high + 1)}")
        whole = p.line(f"select {mask} {is_above}, {tb} {_uniform(b, str(high))}, {tb} {whole}")
    is_number = p.line(f"fcmp ord {ta} {x}, {x}")
    p.define(node, f"select {mask} {is_number}, {tb} {whole}, {tb} {zero_of(b)}")


def _conversion(a: DType, b: DType) -> str:
    """Return the conversion instruction, except float -> integer; empty if none is needed."""
    unsigned = a.kind in ("uint", "bool")
    if a.is_float:
        return "fpext" if b.bits > a.bits else "fptrunc" if b.bits < a.bits else ""
    if b.is_float:
        return "uitofp" if unsigned else "sitofp"
    if b.bits == a.bits:
        return ""
    return "trunc" if b.bits < a.bits else "zext" if unsigned else "sext"


def _bitcast(p: Printer, node: UOp) -> None:
    a, b = type_of(node.src[0].dtype), type_of(node.dtype)
    if a == b:
        p.names[node] = p.operand(node.src[0])
    else:
        p.define(node, f"bitcast {p.typed(node.src[0])} to {b}")


# ---- memory -----------------------------------------------------------------------------------


def _address(p: Printer, node: UOp) -> None:
    pointer, offset = node.src
    if offset.op is ops.CONST and offset.arg == 0:
        p.names[node] = p.operand(pointer)
        return
    element = type_of(memory_dtype(node.dtype.scalar))
    p.define(node, f"getelementptr {element}, ptr {p.operand(pointer)}, {p.typed(offset)}")


# ---- vectors ----------------------------------------------------------------------------------


def _splat(p: Printer, node: UOp) -> None:
    x, t = node.src[0], node.dtype
    p.names[node] = _uniform(t, constant(x)) if x.op is ops.CONST else \
        _broadcast(p, p.typed(x), type_of(t), t.lanes)


def _broadcast(p: Printer, x: str, vector: str, lanes: int) -> str:
    """Broadcast a typed scalar to a vector."""
    first = p.line(f"insertelement {vector} poison, {x}, i64 0")
    return p.line(f"shufflevector {vector} {first}, {vector} poison, "
                  f"<{lanes} x i32> zeroinitializer")


def _lanes_below(p: Printer, node: UOp) -> None:
    """Emit the mask of lanes below a count, compared in 32 bits."""
    w, count = node.dtype.lanes, p.operand(node.src[0])
    if node.src[0].op is ops.CONST:
        constant_count = build.const_of(node.src[0])
        p.names[node] = _vector("i1", [int(i < constant_count) for i in range(w)])
        return
    low = p.line(f"call i64 @llvm.smax.i64(i64 {count}, i64 0)")
    high = p.line(f"call i64 @llvm.umin.i64(i64 {low}, i64 {w})")
    broadcast_count = _broadcast(p, f"i32 {p.line(f'trunc i64 {high} to i32')}", f"<{w} x i32>", w)
    p.define(node, f"icmp ult <{w} x i32> {_vector('i32', range(w))}, {broadcast_count}")


def _shuffle(p: Printer, node: UOp) -> None:
    t = type_of(node.src[0].dtype)
    fence = f"call {t} @llvm.arithmetic.fence.{suffix_of(node.src[0].dtype)}({t}"
    a, b = p.fences.operands(node, p.operand, lambda x: p.line(f"{fence} {x})"))
    lanes = f"<{len(node.arg)} x i32> {_vector('i32', node.arg)}"
    p.define(node, f"shufflevector {t} {a}, {t} {b}, {lanes}")


def _extract(p: Printer, node: UOp) -> None:
    p.define(node, f"extractelement {p.typed(node.src[0])}, i64 {node.arg}")


def _all_lanes(p: Printer, node: UOp) -> None:
    name = f"llvm.vector.reduce.and.{suffix_of(node.src[0].dtype)}"
    p.define(node, f"call i1 @{name}({p.typed(node.src[0])})")


# ---- loops and branches -------------------------------------------------------------------------


def _for(p: Printer, node: UOp) -> None:
    start, stop = node.src
    runs_once = start.op is ops.CONST and stop.op is ops.CONST \
        and build.const_of(start) < build.const_of(stop)
    n = node.arg
    first_value = p.operand(start)
    entry_block = p.block
    if runs_once:
        p.out.append(f"  br label %L{n}")
    else:
        guard = p.line(f"icmp slt {type_of(node.dtype)} {first_value}, {p.operand(stop)}")
        p.out.append(f"  br i1 {guard}, label %L{n}, label %X{n}")
    p.label(f"L{n}")
    p.names[node] = p.fresh()
    p.loops[node] = _OpenFor(entry_block, not runs_once, len(p.out))
    p.out.append("")


def _phi(p: Printer, node: UOp) -> None:
    p.names[node] = p.fresh()
    p.loops[node.src[0]].phis.append((node, len(p.out)))
    p.out.append("")


def _endfor(p: Printer, node: UOp) -> None:
    loop = node.src[0]
    n, state = loop.arg, p.loops[loop]
    state.latch = p.block
    counter, (start, stop), t = p.names[loop], loop.src, type_of(loop.dtype)
    p.out[state.at] = (f"  %i{n} = phi {t} [ {p.operand(start)}, %{state.before} ], "
                       f"[ %n{n}, %{p.block} ]")
    for (phi, at), next_ in zip(state.phis, node.src[1:]):
        p.out[at] = (f"  {p.names[phi]} = phi {type_of(phi.dtype)} "
                     f"[ {p.operand(phi.src[1])}, %{state.before} ], "
                     f"[ {p.operand(next_)}, %{p.block} ]")
    p.out[state.phis[-1][1] if state.phis else state.at] += (
        f"\n  %z{n} = add {t} %i{n}, 0\n  {counter} = freeze {t} %z{n}")
    p.out += [f"  %n{n} = add nuw nsw {t} %i{n}, 1",
              f"  %c{n} = icmp slt {t} %n{n}, {p.operand(stop)}",
              f"  br i1 %c{n}, label %L{n}, label %X{n}"]
    p.label(f"X{n}")


def _last(p: Printer, node: UOp) -> None:
    end = node.src[0]
    state = p.loops[end.src[0]]
    phi, next_ = state.phis[node.arg][0], end.src[1 + node.arg]
    if not state.guarded and not state.left:
        p.names[node] = p.operand(next_)
        return
    incoming = [(next_, state.latch)]
    if state.left:
        incoming.insert(0, (phi, state.left))
    if state.guarded:
        incoming.insert(0, (phi.src[1], state.before))
    p.define(node, f"phi {type_of(node.dtype)} "
             + ", ".join([f"[ {p.operand(value)}, %{block} ]" for value, block in incoming]))


def _break(p: Printer, node: UOp) -> None:
    loop, condition = node.src
    p.loops[loop].left = p.block
    p.out.append(f"  br {p.typed(condition)}, label %X{loop.arg}, label %K{loop.arg}")
    p.label(f"K{loop.arg}")


def _if(p: Printer, node: UOp) -> None:
    p.out.append(f"  br {p.typed(node.src[0])}, label %T{node.arg}, label %F{node.arg}")
    p.label(f"T{node.arg}")


def _endif(p: Printer, node: UOp) -> None:
    n = node.src[0].arg
    p.out.append(f"  br label %F{n}")
    p.label(f"F{n}")


ROWS: dict[Op, Callable[[Printer, UOp], None]] = {
    **dict.fromkeys(_TEMPLATES, _elementwise), ops.DIV: _divide,
    ops.SHL: _shift, ops.SHR: _shift, ops.WHERE: _where, ops.CAST: _cast,
    ops.BITCAST: _bitcast, ops.ADDRESS: _address, ops.SPLAT: _splat, ops.LANE_MASK: _lanes_below,
    ops.SHUFFLE: _shuffle, ops.EXTRACT: _extract, ops.FOR: _for, ops.PHI: _phi,
    ops.ENDFOR: _endfor, ops.BREAK: _break, ops.LOOP_RESULT: _last, ops.IF: _if, ops.ENDIF: _endif,
    ops.ALL_LANES: _all_lanes,
}
