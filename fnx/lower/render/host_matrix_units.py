"""The matrix units of the host: one entry each, the LLVM intrinsic for multiply-accumulate.

>>> ROWS["dpbusd"].format(bits=512)
'llvm.x86.avx512.vpdpbusd.512'
"""

from __future__ import annotations

from fnx.core.ir import dtypes, ops
from fnx.core.ir.matrix_units import TILE_LANES, UNITS
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import KernelError
from fnx.lower.render.host_memory import LINES as LINES_OF_MEMORY
from fnx.lower.render.llvm import ROWS as ROWS_OF_LLVM
from fnx.lower.render.llvm import Printer, type_of

ROWS = {
    "dpbf16ps": "llvm.x86.avx512bf16.dpbf16ps.{bits}",
    "dpbusd": "llvm.x86.avx512.vpdpbusd.{bits}",
}
TILES = {
    "tdpbf16ps": "llvm.x86.tdpbf16ps.internal",
    "tdpbssd": "llvm.x86.tdpbssd.internal",
}
_WIDTHS = 128, 256, 512


def _mma(p: Printer, node: UOp) -> None:
    """Emit an MMA: the factors are vectors of packed elements, or tiles."""
    unit, lanes = UNITS[node.arg.unit], node.dtype.lanes
    if unit.layout == "tiles":
        a, b, total = map(p.typed, node.src)
        p.define(node, f"call x86_amx @{TILES[unit.name]}(i16 16, i16 64, i16 64, "
                       f"{total}, {a}, {b})")
        return
    bits = 32 * lanes
    if bits not in _WIDTHS:
        raise KernelError(f"tensorize: {unit.name} works in {', '.join(map(str, _WIDTHS))} bits, "
                          f"got {lanes} lanes", hint="vectorize a range of 4, 8 or 16 columns")
    t = unit.left if unit.left.is_float else dtypes.int8
    vec = type_of(t.vec(lanes * unit.terms_per_word))
    a, b = (f"{vec} {p.line(f'bitcast {p.typed(s)} to {vec}')}" for s in node.src[:2])
    name = ROWS[unit.name].format(bits=bits)
    p.define(node, f"call {type_of(node.dtype)} @{name}({p.typed(node.src[2])}, {a}, {b})")


def _load(p: Printer, node: UOp) -> None:
    if node.dtype.lanes != TILE_LANES:
        LINES_OF_MEMORY[ops.LOAD](p, node)
        return
    p.define(node, "call x86_amx @llvm.x86.tileloadd64.internal(i16 16, i16 64, "
                   f"ptr {p.operand(node.src[0])}, i64 64)")


def _splat(p: Printer, node: UOp) -> None:
    """Emit a SPLAT; of tiles, only zero is supported."""
    if node.dtype.lanes != TILE_LANES:
        ROWS_OF_LLVM[ops.SPLAT](p, node)
        return
    p.define(node, "call x86_amx @llvm.x86.tilezero.internal(i16 16, i16 64)")


def _shuffle(p: Printer, node: UOp) -> None:
    """Extract lanes of a tile through memory, copied once, after the loop that computes it."""
    if node.src[0].dtype.lanes != TILE_LANES:
        ROWS_OF_LLVM[ops.SHUFFLE](p, node)
        return
    vector = p.whole.get(node.src[0])
    if vector is None:
        vector = p.whole[node.src[0]] = p.line(
            f"call <256 x i32> @llvm.x86.cast.tile.to.vector.v256i32({p.typed(node.src[0])})")
    lanes = ", ".join(f"i32 {i}" for i in node.arg)
    row = p.line(f"shufflevector <256 x i32> {vector}, <256 x i32> poison, "
                 f"<{len(node.arg)} x i32> <{lanes}>")
    p.define(node, f"bitcast <{len(node.arg)} x i32> {row} to {type_of(node.dtype)}")


LINES = {ops.MMA: _mma, ops.LOAD: _load, ops.SPLAT: _splat, ops.SHUFFLE: _shuffle}
