"""The matrix units of the host: one row each, the intrinsic that multiplies and adds lanes.

>>> ROWS["dpbusd"].format(bits=512)
'llvm.x86.avx512.vpdpbusd.512'
"""

from __future__ import annotations

from fnx.core import dtypes
from fnx.core.errors import KernelError
from fnx.core.units import UNITS
from fnx.core.uop import UOp
from fnx.lower.render.llvm import Printer, type_of

ROWS = {
    "dpbf16ps": "llvm.x86.avx512bf16.dpbf16ps.{bits}",
    "dpbusd": "llvm.x86.avx512.vpdpbusd.{bits}",
}
_WIDTHS = 128, 256, 512


def multiplied(p: Printer, node: UOp) -> None:
    """The line of an MMA: words are vectors of what they hold."""
    unit, lanes = UNITS[node.arg.unit], node.dtype.lanes
    bits = 32 * lanes
    if bits not in _WIDTHS:
        raise KernelError(f"tensorize: {unit.name} works in {', '.join(map(str, _WIDTHS))} bits, "
                          f"got {lanes} lanes", hint="vectorize a range of 4, 8 or 16 columns")
    t = unit.left if unit.left.is_float else dtypes.int8
    held = type_of(t.vec(lanes * unit.in_word))
    a, b = (f"{held} {p.line(f'bitcast {p.typed(s)} to {held}')}" for s in node.src[:2])
    name = ROWS[unit.name].format(bits=bits)
    p.define(node, f"call {type_of(node.dtype)} @{name}({p.typed(node.src[2])}, {a}, {b})")
