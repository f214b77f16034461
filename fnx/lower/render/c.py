"""C11 of a PROGRAM: the OpenCL C text, preceded by definitions that make it valid C11.

    static void SYMBOL(uchar* g0, ulong at0, ..., long s0, ..., long part0, long part1, uchar* priv)

Buffers and scalars are as in render/opencl.py; part0..part1 is this worker's part of the parallel
range, ``priv`` its own scratch memory. ``HEADER`` precedes all functions of a file.
"""

from __future__ import annotations

from fnx.core.ir import accessors, ops
from fnx.core.ir.uop import UOp
from fnx.lower.render.opencl import INLINE, ROWS, OpenClPrinter

_INTEGERS = {"char": 8, "short": 16, "int": 32, "long": 64}


def _saturating_casts() -> list[str]:
    """Return functions that convert floats to integers: toward 0, saturating at the limits."""
    out = []
    for name, bits in _INTEGERS.items():
        high, low = 2.0 ** (bits - 1), -2.0 ** (bits - 1)
        for t, least, most in ((name, low, high), (f"u{name}", 0.0, 2 * high)):
            top = f"({t})~({t})0" if t != name else f"({t})~((u{name})1 << {bits - 1})"
            bottom = "0" if t != name else f"({t})((u{name})1 << {bits - 1})"
            comparison = "<=" if t == name else "<"
            out.append(f"static inline {t} convert_{t}_sat_rtz(double x) {{ return x >= {most!r} ? "
                       f"{top} : x {comparison} {least!r} ? {bottom} : ({t})x; }}")
    return out


HEADER = """#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <tgmath.h>

#define __global
#define __private
typedef signed char fnx_char;
typedef int64_t fnx_long;
typedef uint8_t uchar;
typedef uint16_t ushort;
typedef uint32_t uint;
typedef uint64_t ulong;
#define char fnx_char
#define long fnx_long
""".splitlines() + [
    f"static inline {t} fnx_{f}_of_{u}({u} x) {{ {t} y; memcpy(&y, &x, sizeof y); return y; }}\n"
    f"static inline {u} fnx_{u}_of_{t}({t} x) {{ {u} y; memcpy(&y, &x, sizeof y); return y; }}"
    for t, u, f in (("float", "uint", "float"), ("double", "ulong", "double"))] + [
    f"static inline {t} fnx_{name}_{t}({t} a, {t} b) {{\n"
    f"  return a {sign} b ? a : b {sign} a ? b : a == b ?\n"
    f"    fnx_{t}_of_{u}(fnx_{u}_of_{t}(a) {bits} fnx_{u}_of_{t}(b)) : a + b;\n}}"
    for t, u in (("float", "uint"), ("double", "ulong"))
    for name, sign, bits in (("max", ">", "&"), ("min", "<", "|"))] + [
    "#define fnx_rint(a) rint(a)"] + [
    f"#define fnx_{name}(a, b) _Generic((a), float: fnx_{name}_float, "
    f"double: fnx_{name}_double)(a, b)" for name in ("max", "min")] + """
#define as_float(x) fnx_float_of_uint((uint)(x))
#define as_double(x) fnx_double_of_ulong((ulong)(x))
static inline uint fnx_same_uint(uint x) { return x; }
static inline ulong fnx_same_ulong(ulong x) { return x; }
#define as_uint(x) _Generic((x), float: fnx_uint_of_float, default: fnx_same_uint)(x)
#define as_ulong(x) _Generic((x), double: fnx_ulong_of_double, default: fnx_same_ulong)(x)
#define as_int(x) ((int)as_uint(x))
#define as_long(x) ((long)as_ulong(x))
#define as_char(x) ((char)(x))
#define as_uchar(x) ((uchar)(x))
#define as_short(x) ((short)(x))
#define as_ushort(x) ((ushort)(x))""".splitlines() + _saturating_casts()


def render(program: UOp) -> str:
    """Render a function, from its parameters on."""
    printer = OpenClPrinter({**INLINE, ops.PARALLEL_RANGE: lambda p, n: f"part{n.arg}"})
    for node in program.src:
        ROWS[node.op](printer, node)
    used = {s for node in program.src for s in node.src if s.op in (ops.REF, ops.VAR)}
    buffers = [f"uchar* g{i}, ulong at{i}" for i in range(accessors.count_slots(used, ops.REF))]
    scalars = [f"long s{i}" for i in range(accessors.count_slots(used, ops.VAR))]
    parameters = ", ".join([*buffers, *scalars, "long part0", "long part1", "uchar* priv"])
    return "\n".join([f"({parameters}) {{", *printer.first, *printer.out, "}", ""])


def module(symbol: str, function: str) -> str:
    """Return the text that defines ``symbol`` as a function of its file."""
    return "\n".join([*HEADER, f"static void {symbol}{function}"])
