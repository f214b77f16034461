"""OpenCL C of a PROGRAM: one renderer, with a table of one function per op.

    FOR i = 0 .. s0                  for (long v1 = 0L; v1 < s0; v1++) {
      p = ADDRESS(x, i)                __global float* const v2 = b0 + v1;
      STORE p, 1.0                     *v2 = 0x1.0p+0f;
    ENDFOR                           }

    __kernel void SYMBOL(__global uchar* g0, ulong at0, ..., long s0, ...)

A buffer is a memory object and its byte offset in it; scalars are 64-bit patterns. OpenCL rounds
every operation used correctly, and does not fuse products and sums (FP_CONTRACT OFF). Signed
integers are added and multiplied as unsigned ones, so they wrap; shifts past the width give 0 or
the sign. A program is ``HEADER`` and any number of kernels.

A kernel with a loop that a condition ends, or that is very long, has one more parameter: a word
that the host sets to cancel such loops (``ABORT_FLAG``).
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.ir import build, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import KernelError
from fnx.core.support.kernel_interface import ABORT_FLAG
from fnx.lower.legalize.unbounded_loops import POLL_INTERVAL, unbounded_loops
from fnx.lower.render.c_like import LOOPS, CLikePrinter, Inline
from fnx.lower.render.llvm import KIND_LETTERS

_TYPES = {"bool": "bool", "int8": "char", "int16": "short", "int32": "int", "int64": "long",
          "uint8": "uchar", "uint16": "ushort", "uint32": "uint", "uint64": "ulong",
          "index": "long", "float32": "float", "float64": "double"}
_SPACES = {"PRIV": "__private", "SHARED": "__local"}

# Precedes the kernels of a program. Maximum and minimum of floats are NaN if an operand is, and
# -0 < +0. Rounding is written out: if LLVM 14 proves that its operand is NaN, it takes PoCL's
# ``rint`` as undefined, and the thread's stores as unreachable.
HEADER = """#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
""" + "".join([f"""static inline __attribute__((overloadable)) {t} fnx_{name}({t} a, {t} b) {{
  return a {sign} b ? a : b {sign} a ? b : a == b ? as_{t}(as_{u}(a) {bits} as_{u}(b)) : a + b;
}}
""" for t, u in (("float", "uint"), ("double", "ulong"))
               for name, sign, bits in (("max", ">", "&"), ("min", "<", "|"))] + [
    f"""static inline __attribute__((overloadable)) {t} fnx_rint({t} a) {{
  const {t} whole = copysign({least}, a);
  return fabs(a) < {least} ? copysign((a + whole) - whole, a) : a;
}}
""" for t, least in (("float", "0x1p23f"), ("double", "0x1p52"))])


def render(program: UOp) -> str:
    """Render a kernel function, from its parameters on."""
    group = program.arg
    printer = OpenClPrinter(ended=unbounded_loops(program.src))
    for node in program.src:
        ROWS[node.op](printer, node)
    buffers = [f"__global uchar* g{i}, ulong at{i}" for i in range(group.buffers)]
    scalars = [f"long s{i}" for i in range(group.scalars)]
    scalars += [ABORT_FLAG] if printer.ended else []
    memory = [f"  {_SPACES[space]} uchar {space.lower()}[{size}] __attribute__((aligned(64)));"
              for space, size in (("SHARED", group.shared), ("PRIV", group.private)) if size]
    return "\n".join([f"({', '.join([*buffers, *scalars])}) {{", *memory, *printer.first,
                      *printer.out, "}", ""])


def module(symbol: str, function: str) -> str:
    """Return the text that defines ``symbol`` as a kernel."""
    return f"{HEADER}__kernel void {symbol}{function}"


def type_of(t: DType) -> str:
    """Return the OpenCL C type of a value."""
    name = _TYPES.get(t.scalar.name)
    if name is None or t.lanes > 1:
        raise KernelError(f"OpenCL C: expected a type of {', '.join(_TYPES)}, got {t}")
    return name


def _in_memory(t: DType) -> str:
    """Return the type in memory: a bool is a byte."""
    return "uchar" if t.is_bool else type_of(t)


def constant(node: UOp) -> str:
    """Return the OpenCL C text of a CONST."""
    t, value = node.dtype, build.const_of(node)
    if t.is_bool:
        return "true" if node.arg else "false"
    if t.is_float:
        is_double = t.bits == 64
        if value == value and abs(value) != float("inf"):
            text = f"{float(value).hex()}{'' if is_double else 'f'}"
            return f"({text})" if text.startswith("-") else text
        return f"as_double(0x{node.arg:016X}UL)" if is_double else f"as_float(0x{node.arg:08X}U)"
    if t.kind == "uint":
        return f"({type_of(t)}){value}{'UL' if t.bits == 64 else 'U'}"
    suffix = "L" if t.bits == 64 else ""
    low = -1 << t.bits - 1
    text = f"({low + 1}{suffix} - 1)" if value == low else f"{value}{suffix}"
    return text if t.bits >= 32 and value >= 0 else f"({type_of(t)})({text})"


class OpenClPrinter(CLikePrinter):
    """Emits lines of OpenCL C."""

    value, variable = "const {t} {name} = {x};", "{t} {name} = {x};"
    counter, sync = "{t} {name} = {x}", "barrier(CLK_LOCAL_MEM_FENCE);"

    def __init__(self, inline: Inline | None = None, ended: frozenset[UOp] = frozenset()) -> None:
        super().__init__(inline or INLINE)
        self.ended = ended
        self.space: dict[UOp, str] = {}  # pointer -> address space

    def type_of(self, t: DType) -> str:
        return type_of(t)


# ---- inline operands ----------------------------------------------------------------------------


def _ref(p: OpenClPrinter, node: UOp) -> str:
    slot, t = node.arg.slot, _in_memory(node.dtype)
    p.first.append(f"  __global {t}* const b{slot} = (__global {t}*)(g{slot} + at{slot});")
    p.space[node] = "__global"
    return f"b{slot}"


def _var(p: OpenClPrinter, node: UOp) -> str:
    t = node.dtype
    if not t.is_float:
        return f"(({type_of(t)})s{node.arg.slot})"
    return f"as_double(s{node.arg.slot})" if t.bits == 64 else f"as_float((int)s{node.arg.slot})"


_IDS = {"GRID": "get_group_id(0)", "THREAD": "get_local_id(0)"}
INLINE: Inline = {
    ops.CONST: lambda p, n: constant(n), ops.REF: _ref, ops.VAR: _var,
    ops.ID: lambda p, n: f"(({type_of(n.dtype)}){_IDS[n.arg]})",
}


# ---- elementwise ------------------------------------------------------------------------------

# {t}: type of the operands, {u}: the unsigned type of this size, {bits}: its width
_TEMPLATES: dict[Op, dict[str, str]] = {
    ops.NEG: {"f": "-({0})", "su": "({t})(({u})0 - ({u}){0})"},
    ops.ABS: {"f": "fabs({0})", "u": "{0}", "s": "{0} < 0 ? ({t})(({u})0 - ({u}){0}) : {0}"},
    ops.NOT: {"su": "({t})~{0}", "b": "!{0}"},
    ops.SQRT: {"f": "sqrt({0})"}, ops.FLOOR: {"f": "floor({0})"}, ops.CEIL: {"f": "ceil({0})"},
    ops.TRUNC: {"f": "trunc({0})"}, ops.ROUND: {"f": "fnx_rint({0})"},
    ops.ADD: {"f": "{0} + {1}", "su": "({t})(({u}){0} + ({u}){1})"},
    ops.SUB: {"f": "{0} - {1}", "su": "({t})(({u}){0} - ({u}){1})"},
    ops.MUL: {"f": "{0} * {1}", "su": "({t})(({u}){0} * ({u}){1})"},
    ops.DIV: {"f": "{0} / {1}"},
    ops.IDIV: {"su": "({t})({0} / {1})"}, ops.REM: {"su": "({t})({0} % {1})"},
    ops.MAX: {"f": "fnx_max({0}, {1})", "su": "{0} > {1} ? {0} : {1}", "b": "{0} || {1}"},
    ops.MIN: {"f": "fnx_min({0}, {1})", "su": "{0} < {1} ? {0} : {1}", "b": "{0} && {1}"},
    ops.CMPLT: {"fsub": "{0} < {1}"}, ops.CMPLE: {"fsub": "{0} <= {1}"},
    ops.CMPEQ: {"fsub": "{0} == {1}"}, ops.CMPNE: {"fsub": "{0} != {1}"},
    ops.AND: {"su": "({t})({0} & {1})", "b": "{0} && {1}"},
    ops.OR: {"su": "({t})({0} | {1})", "b": "{0} || {1}"},
    ops.XOR: {"su": "({t})({0} ^ {1})", "b": "{0} != {1}"},
    ops.MULACC: {"f": "fma({0}, {1}, {2})"},
    ops.SHL: {"su": "({u}){1} < {bits} ? ({t})(({u}){0} << ({u}){1}) : ({t})0"},
    ops.SHR: {"u": "({u}){1} < {bits} ? ({t})({0} >> {1}) : ({t})0",
              "s": "({t})({0} >> (({u}){1} < {bits} ? ({u}){1} : ({u}){bits} - 1))"},
}

def _unsigned(t: DType) -> str:
    return f"u{_TYPES[f'int{t.bits}']}" if t.kind != "bool" else "uchar"


def _elementwise(op: Op) -> Callable[[OpenClPrinter, UOp], None]:
    rows = {letter: text for letters, text in _TEMPLATES[op].items() for letter in letters}

    def row(p: OpenClPrinter, node: UOp) -> None:
        t = node.src[0].dtype
        text = rows.get(KIND_LETTERS[t.kind])
        if text is None:
            raise KernelError(f"{op} of {t.scalar} has no operation; decompose rewrites it")
        p.define(node, text.format(*[p.operand(s) for s in node.src], t=type_of(t),
                                   u=_unsigned(t), bits=t.bits))
    return row


def _where(p: OpenClPrinter, node: UOp) -> None:
    condition, a, b = map(p.operand, node.src)
    p.define(node, f"{condition} ? {a} : {b}")


def _cast(p: OpenClPrinter, node: UOp) -> None:
    a, b, x = node.src[0].dtype, node.dtype, p.operand(node.src[0])
    if b.is_bool:
        p.define(node, f"{x} != 0")
    elif a.is_float and not b.is_float:
        p.define(node, f"{x} == {x} ? convert_{type_of(b)}_sat_rtz({x}) : ({type_of(b)})0")
    else:
        p.define(node, f"({type_of(b)}){x}")


def _bitcast(p: OpenClPrinter, node: UOp) -> None:
    p.define(node, f"as_{type_of(node.dtype)}({p.operand(node.src[0])})")


# ---- memory -----------------------------------------------------------------------------------


def _scratch(p: OpenClPrinter, node: UOp) -> None:
    space = node.arg.space
    p.space[node] = _SPACES[space]
    offset = p.operand(node.src[0])
    pointer = f"{_SPACES[space]} {_in_memory(node.dtype)}*"
    p.line(f"{pointer} const {p.name(node)} = ({pointer})({space.lower()} + {offset});")


def _address(p: OpenClPrinter, node: UOp) -> None:
    pointer, offset = node.src
    base = p.operand(pointer)
    p.space[node] = p.space[pointer]
    if offset.op is ops.CONST and offset.arg == 0:
        p.names[node] = base
        return
    offset_name = p.operand(offset)
    t = _in_memory(node.dtype.scalar)
    p.line(f"{p.space[node]} {t}* const {p.name(node)} = {base} + {offset_name};")


def _vector_type(t: DType) -> str:
    return type_of(t) if t.lanes == 1 else f"{type_of(t.scalar)}{t.lanes}"


def _lvalue(p: OpenClPrinter, address: UOp) -> str:
    """Return the lvalue at an address; a vector has the alignment of its type."""
    pointer = p.operand(address)
    if address.dtype.lanes == 1:
        return f"*{pointer}"
    return f"*({p.space[address]} {_vector_type(address.dtype)}*){pointer}"


def _load(p: OpenClPrinter, node: UOp) -> None:
    if node.dtype.lanes > 1:
        read, vector_type = _lvalue(p, node.src[0]), _vector_type(node.dtype)
        if len(node.src) > 1:
            read = f"{p.operand(node.src[1])} ? {read} : ({vector_type})(0)"
        p.line(f"const {vector_type} {p.name(node)} = {read};")
        return
    pointer, t = p.operand(node.src[0]), type_of(node.dtype)
    read = f"*{pointer} != 0" if node.dtype.is_bool else f"*{pointer}"
    p.define(node, read if len(node.src) == 1 else
             f"{p.operand(node.src[1])} ? {read} : ({t})0")


def _store(p: OpenClPrinter, node: UOp) -> None:
    value, *mask = map(p.operand, node.src[1:])
    p.line(f"{f'if ({mask[0]}) ' if mask else ''}{_lvalue(p, node.src[0])} = {value};")


def _vector_literal(p: OpenClPrinter, node: UOp) -> None:
    p.names[node] = f"({_vector_type(node.dtype)})({', '.join(map(p.operand, node.src))})"


def _splat(p: OpenClPrinter, node: UOp) -> None:
    """Name a SPLAT like its scalar: it is only used as a mask, which is one condition."""
    p.names[node] = p.operand(node.src[0])


def _extract(p: OpenClPrinter, node: UOp) -> None:
    p.define(node, f"{p.operand(node.src[0])}.s{node.arg:x}")


def _for(p: OpenClPrinter, node: UOp) -> None:
    LOOPS[ops.FOR](p, node)
    if node in p.ended:
        p.line(f"if (({p.names[node]} & {POLL_INTERVAL - 1}) == 0 && *aborted) {{ break; }}")


# ---- the table ----------------------------------------------------------------------------------

ROWS: dict[Op, Callable[[OpenClPrinter, UOp], None]] = {
    **{op: _elementwise(op) for op in _TEMPLATES}, ops.WHERE: _where, ops.CAST: _cast,
    ops.BITCAST: _bitcast, ops.SCRATCH: _scratch, ops.ADDRESS: _address, ops.LOAD: _load,
    ops.STORE: _store, ops.VECTOR: _vector_literal, ops.EXTRACT: _extract,
    ops.SPLAT: _splat, **LOOPS, ops.FOR: _for,
}
