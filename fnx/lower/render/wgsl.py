"""WGSL of a PROGRAM: one renderer, with a table of one function per op.

    FOR i = 0 .. s0                  for (var v1: i32 = 0; v1 < s0; v1++) {
      p = ADDRESS(x, i)                let v2 = b0 + v1;
      STORE p, 1.0                     s1(v2, bitcast<u32>(0x1p+0f));
    ENDFOR                           }

Memory consists of 32-bit words; ``l0`` and ``s0`` load and store those of buffer 0, ``n0`` a part
of one: bytes and halves are stored by two atomic operations, as their neighbors belong to other
threads. Pointers are element offsets. Integers have 32 bits; narrower ones are truncated after each
operation. ``P`` has a zero that is opaque to the compiler, the number of groups, the byte offset of
each buffer in its binding, and the scalars. 64-bit values, which random keys are, are pairs of
words: they can be moved, selected, compared for equality, shifted and combined.

WGSL guarantees neither NaN nor infinity. So tests for NaN, comparisons, minima and maxima work on
bits, and NaN and infinity constants are made of bits that are known only at run time.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import base_pointer
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import KernelError
from fnx.core.support.kernel_interface import MAX_GROUPS_PER_AXIS
from fnx.lower.render.c_like import LOOPS, CLikePrinter
from fnx.lower.render.wgsl_functions import (
    HELPERS,
    UINT64_HELPERS,
    letter_of,
    memory_accessors,
    type_of,
)

ZERO, GROUPS, FIRST_OFFSET = 0, 1, 2  # indices of words of P

def render(program: UOp) -> str:
    """Render declarations, then a kernel function from its parameters on."""
    group = program.arg
    printer = WgslPrinter()
    for node in program.src:
        _ROWS[node.op](printer, node)
    thread_index = _SUBGROUP_INDEX if printer.subgroups else _THREAD_INDEX
    word_count = -(-(FIRST_OFFSET + group.buffers + group.scalars) // 4)
    out = [f"struct Params {{ w: array<vec4<i32>, {word_count}> }}",
           f"@group(0) @binding({group.buffers}) var<uniform> P: Params;", HELPERS.rstrip()]
    if any(node.dtype is dtypes.uint64 for node in program.src):
        out.append(UINT64_HELPERS.rstrip())
    any_subword = not {"SHARED", "PRIV"}.issuperset(printer.narrow)
    for i in range(group.buffers):
        kind = "atomic<u32>" if any_subword else "u32"
        out += [f"@group(0) @binding({i}) var<storage, read_write> g{i}: array<{kind}>;",
                *memory_accessors(f"g{i}", str(i), any_subword)]
    for space, size in (("SHARED", group.shared), ("PRIV", group.private)):
        if size:
            atomic = space == "SHARED" and space in printer.narrow
            kind = "atomic<u32>" if atomic else "u32"
            where = {"SHARED": "workgroup", "PRIV": "private"}[space]
            out += [f"var<{where}> g{space}: array<{kind}, {size // 4}>;",
                    *memory_accessors(f"g{space}", space, atomic)]
    return "\n".join([*out, f"@compute @workgroup_size({group.threads})", "fn SYMBOL("
                      "@builtin(workgroup_id) group_at: vec3<u32>, "
                      f"{thread_index[0]}) {{",
                      f"  let group = i32(group_at.x + group_at.y * {MAX_GROUPS_PER_AXIS}u);",
                      f"  let thread = i32({thread_index[1]});", f"  if (group >= {_word(GROUPS)}) "
                      "{ return; }", "  let zero = P.w[0][0];",
                      *[f"  let W{i} = {_word(FIRST_OFFSET + group.buffers + i)};"
                        for i in range(group.scalars)],
                      *printer.first, *printer.out, "}", ""])


# The index of a thread in its group. With subgroups it is computed from the index in the subgroup,
# since WGSL does not guarantee that local_invocation_id is consecutive within a subgroup.
_THREAD_INDEX = "@builtin(local_invocation_id) thread_at: vec3<u32>", "thread_at.x"
_SUBGROUP_INDEX = ("@builtin(subgroup_id) subgroup_at: u32, @builtin(subgroup_size) subgroup: u32, "
                   "@builtin(subgroup_invocation_id) thread_at: u32",
                   "subgroup_at * subgroup + thread_at")


def module(symbol: str, function: str) -> str:
    """Return the text that defines ``symbol`` as a kernel."""
    return function.replace("fn SYMBOL(", f"fn {symbol}(")


def _word(i: int) -> str:
    return f"P.w[{i // 4}][{i % 4}]"


def _width(t: DType) -> int:
    """Return the bits in which an integer is computed."""
    return 32 if t.kind == "index" else t.bits


def _wrap(t: DType, text: str) -> str:
    """Truncate a 32-bit integer to the width of its dtype."""
    drop = 32 - _width(t)
    if drop <= 0 or not t.is_integer:
        return text
    return f"({text}) & {(1 << t.bits) - 1}u" if t.kind == "uint" else \
        f"(({text}) << {drop}u) >> {drop}u"


def constant(node: UOp) -> str:
    """Return a CONST; NaN, infinity and subnormal numbers as opaque run-time bits."""
    t, value = node.dtype, build.const_of(node)
    letter = letter_of(t)
    if letter == "b":
        return "true" if node.arg else "false"
    if letter == "f":
        if value == 0 and node.arg == 0 or 2.0 ** -126 <= abs(value) < float("inf"):
            mantissa, exponent = float(value).hex().split("p")
            short = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
            text = f"{short}p{exponent}f"
            return f"({text})" if text.startswith("-") else text
        return f"bits(0x{node.arg:08x}u)"
    if letter == "u":
        return f"{value}u"
    if letter == "w":
        return f"vec2<u32>({node.arg & 0xffffffff}u, {node.arg >> 32}u)"
    low = -1 << 31
    return "(-2147483647 - 1)" if value == low else f"({value})" if value < 0 else str(value)


_OPAQUE = {"f": "bits(bitcast<u32>({0}))", "s": "({0} | zero)", "u": "({0} | u32(zero))",
           "b": "({0} & (zero == 0))", "w": "({0} | vec2<u32>(u32(zero)))"}


class WgslPrinter(CLikePrinter):
    """Emits lines of WGSL."""

    value, variable = "let {name}: {t} = {x};", "var {name}: {t} = {x};"
    counter, sync = "var {name}: {t} = {x}", "workgroupBarrier();"

    def __init__(self) -> None:
        super().__init__(_INLINE)
        self.memory: dict[UOp, str] = {}  # pointer -> name suffix of its accessors
        self.narrow: set[str] = set()     # memory with stores of less than a word
        self.subgroups = False            # whether threads shuffle values

    def type_of(self, t: DType) -> str:
        return type_of(t)


# ---- inline operands ----------------------------------------------------------------------------


def _ref(p: WgslPrinter, node: UOp) -> str:
    slot = node.arg.slot
    shift = node.dtype.itemsize.bit_length() - 1
    name = f"b{slot}_{node.dtype.itemsize}"
    line = f"  let {name} = {_word(FIRST_OFFSET + slot)} >> {shift}u;"
    if line not in p.first:
        p.first.append(line)
    p.memory[node] = str(slot)
    return name


def _var(p: WgslPrinter, node: UOp) -> str:
    word, letter = f"W{node.arg.slot}", letter_of(node.dtype)
    if letter not in "fsub":
        raise KernelError(f"expected arguments of at most 32 bits, got {node.dtype}")
    return {"f": f"bitcast<f32>({word})", "s": word, "u": f"bitcast<u32>({word})",
            "b": f"({word} != 0)"}[letter]


_IDS = {"GRID": "group", "THREAD": "thread"}
_INLINE: dict[Op, Callable[[WgslPrinter, UOp], str]] = {
    ops.CONST: lambda p, n: constant(n), ops.REF: _ref, ops.VAR: _var,
    ops.ID: lambda p, n: _IDS[n.arg],
}


# ---- elementwise ------------------------------------------------------------------------------

_TEMPLATES: dict[Op, dict[str, str]] = {
    ops.NEG: {"f": "bitcast<f32>(bitcast<u32>({0}) ^ 0x80000000u)", "s": "-{0}", "u": "0u - {0}"},
    ops.ABS: {"f": "bitcast<f32>(bitcast<u32>({0}) & 0x7fffffffu)", "s": "abs({0})", "u": "{0}"},
    ops.NOT: {"suw": "~{0}", "b": "!{0}"},
    ops.SQRT: {"f": "sqrt({0})"}, ops.FLOOR: {"f": "floor({0})"}, ops.CEIL: {"f": "ceil({0})"},
    ops.TRUNC: {"f": "trunc({0})"}, ops.ROUND: {"f": "round({0})"},
    ops.ADD: {"fsu": "{0} + {1}"}, ops.SUB: {"fsu": "{0} - {1}"}, ops.MUL: {"fsu": "{0} * {1}"},
    ops.DIV: {"f": "{0} / {1}"}, ops.IDIV: {"su": "{0} / {1}"}, ops.REM: {"su": "{0} % {1}"},
    ops.MAX: {"f": "larger({0}, {1})", "su": "max({0}, {1})", "b": "{0} | {1}"},
    ops.MIN: {"f": "smaller({0}, {1})", "su": "min({0}, {1})", "b": "{0} & {1}"},
    ops.CMPLT: {"f": "lt({0}, {1})", "su": "{0} < {1}", "b": "!{0} & {1}"},
    ops.CMPLE: {"f": "le({0}, {1})", "su": "{0} <= {1}", "b": "!{0} | {1}"},
    ops.CMPEQ: {"f": "eq({0}, {1})", "sub": "{0} == {1}", "w": "all({0} == {1})"},
    ops.CMPNE: {"f": "!eq({0}, {1})", "sub": "{0} != {1}", "w": "any({0} != {1})"},
    ops.AND: {"suw": "{0} & {1}", "b": "{0} & {1}"},
    ops.OR: {"suw": "{0} | {1}", "b": "{0} | {1}"},
    ops.XOR: {"suw": "{0} ^ {1}", "b": "{0} != {1}"},
    ops.SHL: {"s": "select(0, {0} << (u32({1}) & 31u), u32({1}) < {bits}u)",
              "u": "select(0u, {0} << (u32({1}) & 31u), u32({1}) < {bits}u)",
              "w": "shifted_up({0}, {1})"},
    ops.SHR: {"u": "select(0u, {0} >> (u32({1}) & 31u), u32({1}) < {bits}u)",
              "s": "{0} >> min(u32({1}), {bits}u - 1u)", "w": "shifted_down({0}, {1})"},
}


def _elementwise(op: Op) -> Callable[[WgslPrinter, UOp], None]:
    rows = {letter: text for letters, text in _TEMPLATES[op].items() for letter in letters}

    def row(p: WgslPrinter, node: UOp) -> None:
        t = node.src[0].dtype
        text = rows.get(letter_of(t))
        if text is None:
            raise KernelError(f"{op} of {t.scalar} has no operation; decompose rewrites it")
        names = [p.operand(s) for s in node.src]
        if all(s.op is ops.CONST for s in node.src):  # constants that overflow are errors
            names[0] = _OPAQUE[letter_of(t)].format(names[0])
        divisor = node.src[-1]
        if divisor.op is ops.CONST and (op in (ops.IDIV, ops.REM) or
                                        op in (ops.SHL, ops.SHR) and build.const_of(divisor) < 0):
            names[1] = _OPAQUE[letter_of(t)].format(names[1])
        if t.is_float:
            for i in _foldable_operands(node):
                names[i] = _OPAQUE["f"].format(names[i])
        if t.is_float and op in _SUM_OPS:
            for i, (a, b) in enumerate((node.src, node.src[::-1])):
                if a.op in _SUM_OPS and not {b, *b.src}.isdisjoint(a.src):
                    names[i] = _OPAQUE["f"].format(names[i])
        p.define(node, _wrap(node.dtype, text.format(*names, bits=_width(t))))
    return row


def _foldable_operands(node: UOp) -> list[int]:
    """Return the operands to make opaque, against value-changing simplifications of compilers.

    They fold 0 * x and x - x to 0, and (x * a) * b to x * (a * b), even if those are infinite or
    subnormal.
    """
    if node.op in (ops.SUB, ops.DIV) and node.src[0] is node.src[1]:
        return [1]
    if node.op not in (ops.MUL, ops.DIV):
        return []
    return [i for i, (s, other) in enumerate(zip(node.src, node.src[::-1]))
            if s.op is ops.CONST and _leaves_normal_range(build.const_of(s), other)]


def _leaves_normal_range(value: float, other: UOp) -> bool:
    """Return whether a factor or divisor is 0, or leaves the normal range when combined."""
    factors = [build.const_of(c) for c in other.src if c.op is ops.CONST] \
        if other.op in (ops.MUL, ops.DIV) else []
    return value == 0 or any(not 2.0 ** -126 < abs(combined) < 2.0 ** 126
                             for f in factors if f for combined in (value * f, value / f))


_SUM_OPS = (ops.ADD, ops.SUB)  # compilers simplify (a + b) - b to a, which loses rounding errors


def _where(p: WgslPrinter, node: UOp) -> None:
    condition, a, b = map(p.operand, node.src)
    p.define(node, f"select({b}, {a}, {condition})")


def _cast(p: WgslPrinter, node: UOp) -> None:
    a, b, x = letter_of(node.src[0].dtype), letter_of(node.dtype), p.operand(node.src[0])
    if node.src[0].op is ops.CONST:
        x = _OPAQUE[a].format(x)
    if "w" in (a, b):
        p.define(node, _cast_uint64(x, a, b, node.dtype))
    elif a == "f":
        text = {"b": f"(bitcast<u32>({x}) & 0x7fffffffu) != 0u", "s": f"to_i32({x})",
                "u": f"to_u32({x})", "f": x}[b]
        if b in "su" and _width(node.dtype) < 32:  # saturate at the limits of the dtype
            low, high = node.dtype.limits
            suffix = "u" if b == "u" else ""
            text = f"clamp({text}, {low}{suffix}, {high}{suffix})"
        p.define(node, text)
    elif a == "b":
        suffix = {"u": "u", "f": "f"}.get(b, "")
        p.define(node, x if b == "b" else f"select(0{suffix}, 1{suffix}, {x})")
    elif b == "b":
        p.define(node, f"{x} != 0{'u' if a == 'u' else ''}")
    elif b == "f":
        p.define(node, f"f32({x})")
    else:
        if a == "u" and node.dtype is dtypes.index:  # no index exceeds 31 bits
            x = f"min({x}, 0x7fffffffu)"
        p.define(node, _wrap(node.dtype, x if a == b else f"bitcast<{type_of(node.dtype)}>({x})"))


def _cast_uint64(x: str, a: str, b: str, t: DType) -> str:
    """Return a cast to or from uint64; ``a`` and ``b`` are the letters of the types."""
    if b == "w":
        high = f"bitcast<u32>({x} >> 31u)" if a == "s" else "0u"
        low = {"s": f"bitcast<u32>({x})", "u": x, "b": f"select(0u, 1u, {x})"}.get(a)
        if a != "w" and low is None:
            raise KernelError(f"expected a whole number, got one of {t}")
        return x if a == "w" else f"vec2<u32>({low}, {high})"
    return _wrap(t,
                 {"u": f"{x}.x", "s": f"bitcast<i32>({x}.x)", "b": f"any({x} != vec2<u32>())"}[b])


def _bitcast(p: WgslPrinter, node: UOp) -> None:
    x = p.operand(node.src[0])
    if node.src[0].op is ops.CONST:
        x = _OPAQUE[letter_of(node.src[0].dtype)].format(x)
    p.define(node, _wrap(node.dtype, f"bitcast<{type_of(node.dtype)}>({x})"))


def _shuffle_xor(p: WgslPrinter, node: UOp) -> None:
    """Shuffle bits, so that no value changes."""
    p.subgroups = True
    letter, x = letter_of(node.dtype), p.operand(node.src[0])
    word = f"select(0u, 1u, {x})" if letter == "b" else f"bitcast<u32>({x})"
    shuffled = f"subgroupShuffleXor({word}, {node.arg}u)"
    p.define(node, f"{shuffled} != 0u" if letter == "b" else
             f"bitcast<{type_of(node.dtype)}>({shuffled})")


# ---- memory -----------------------------------------------------------------------------------


def _scratch(p: WgslPrinter, node: UOp) -> None:
    p.memory[node] = node.arg.space
    shift = node.dtype.itemsize.bit_length() - 1
    p.line(f"let {p.name(node)}: i32 = {p.operand(node.src[0])} >> {shift}u;")


def _address(p: WgslPrinter, node: UOp) -> None:
    pointer, offset = node.src
    base = p.operand(pointer)
    p.memory[node] = p.memory[pointer]
    if offset.op is ops.CONST and offset.arg == 0:
        p.names[node] = base
        return
    offset_name = p.operand(offset)
    p.line(f"let {p.name(node)}: i32 = {base} + {offset_name};")


def _load(p: WgslPrinter, node: UOp) -> None:
    address, t = node.src[0], node.dtype
    i, mem = p.operand(address), p.memory[address]
    mask = p.operand(node.src[1]) if len(node.src) > 1 else ""
    if mask:  # otherwise the first element is read, and not used
        i = f"select({p.operand(base_pointer(address))}, {i}, {mask})"
    letter, bits = letter_of(t), 8 if t.is_bool else _width(t)
    if letter == "w":
        text = f"vec2<u32>(l{mem}(2 * ({i})), l{mem}(2 * ({i}) + 1))"
    elif bits == 32:
        read = {"f": "bitcast<f32>({0})", "s": "bitcast<i32>({0})", "u": "{0}"}[letter]
        text = read.format(f"l{mem}({i})")
    else:
        each = 32 // bits
        word = f"l{mem}(({i}) >> {each.bit_length() - 1}u) >> (u32(({i}) & {each - 1}) * {bits}u)"
        text = {"b": f"(({word}) & 255u) != 0u", "u": f"({word}) & {(1 << bits) - 1}u",
                "s": f"bitcast<i32>(({word}) << {32 - bits}u) >> {32 - bits}u"}[letter]
    zero = {"f": "0f", "s": "0", "u": "0u", "b": "false", "w": "vec2<u32>()"}[letter]
    p.define(node, f"select({zero}, {text}, {mask})" if mask else text)


def _store(p: WgslPrinter, node: UOp) -> None:
    index, value, *mask = map(p.operand, node.src)
    t, mem = node.src[1].dtype, p.memory[node.src[0]]
    letter, bits = letter_of(t), 8 if t.is_bool else _width(t)
    word = f"select(0u, 1u, {value})" if letter == "b" else \
        value if letter in "uw" else f"bitcast<u32>({value})"
    if letter == "w":
        text = f"s{mem}(2 * ({index}), {word}.x); s{mem}(2 * ({index}) + 1, {word}.y);"
    elif bits == 32:
        text = f"s{mem}({index}, {word});"
    else:
        p.narrow.add(mem)
        each, ones = 32 // bits, (1 << bits) - 1
        text = (f"n{mem}({index} >> {each.bit_length() - 1}u, u32({index} & {each - 1}) * {bits}u, "
                f"{ones}u, {word} & {ones}u);")
    p.line(f"if ({mask[0]}) {{ {text} }}" if mask else text)


# ---- the table ----------------------------------------------------------------------------------

_ROWS: dict[Op, Callable[[WgslPrinter, UOp], None]] = {
    **{op: _elementwise(op) for op in _TEMPLATES}, ops.WHERE: _where, ops.CAST: _cast,
    ops.BITCAST: _bitcast, ops.SHUFFLE_XOR: _shuffle_xor,
    ops.SCRATCH: _scratch, ops.ADDRESS: _address, ops.LOAD: _load,
    ops.STORE: _store, **LOOPS,
}
