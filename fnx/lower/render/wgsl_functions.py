"""Helper functions of WGSL kernels.

They compare and select floats by their bits, access words of memory, and shift uint64 values, which
are pairs of 32-bit words, the low one first.
"""

from __future__ import annotations

from fnx.core.ir.dtypes import DType, uint64
from fnx.core.support.errors import KernelError
from fnx.lower.render.llvm import KIND_LETTERS

_TYPE = {"f": "f32", "s": "i32", "u": "u32", "b": "bool", "w": "vec2<u32>"}
HELPERS = """fn nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn ord(x: f32) -> i32 {
  let b = bitcast<i32>(x);
  return select(b, -(b & 0x7fffffff), b < 0);
}
fn lt(a: f32, b: f32) -> bool { return !nan(a) & !nan(b) & (ord(a) < ord(b)); }
fn le(a: f32, b: f32) -> bool { return !nan(a) & !nan(b) & (ord(a) <= ord(b)); }
fn eq(a: f32, b: f32) -> bool { return !nan(a) & !nan(b) & (ord(a) == ord(b)); }
fn bits(b: u32) -> f32 { return bitcast<f32>(b | u32(P.w[0][0])); }
fn larger(a: f32, b: f32) -> f32 {
  let same = bits(bitcast<u32>(a) & bitcast<u32>(b));
  let most = select(select(b, a, ord(a) > ord(b)), same, ord(a) == ord(b));
  return select(most, bits(0x7fc00000u), nan(a) | nan(b));
}
fn smaller(a: f32, b: f32) -> f32 {
  let same = bits(bitcast<u32>(a) | bitcast<u32>(b));
  let least = select(select(b, a, ord(a) < ord(b)), same, ord(a) == ord(b));
  return select(least, bits(0x7fc00000u), nan(a) | nan(b));
}
fn to_i32(x: f32) -> i32 {
  let b = bitcast<u32>(x);
  let end = select(select(0x7fffffff, -0x7fffffff - 1, b >= 0x80000000u), 0, nan(x));
  let inside = (b & 0x7fffffffu) < 0x4f000000u;
  return select(end, i32(bitcast<f32>(select(0u, b, inside))), inside);
}
fn to_u32(x: f32) -> u32 {
  let b = bitcast<u32>(x);
  let inside = b < 0x4f800000u;
  let end = select(0xffffffffu, 0u, nan(x) | (b >= 0x80000000u));
  return select(end, u32(bitcast<f32>(select(0u, b, inside))), inside);
}
"""

UINT64_HELPERS = """fn shifted_up(v: vec2<u32>, by: vec2<u32>) -> vec2<u32> {
  let above = select(v.x >> ((32u - by.x) & 31u), 0u, (by.x & 31u) == 0u);
  let low = v.x << (by.x & 31u);
  let made = select(vec2<u32>(low, (v.y << (by.x & 31u)) | above), vec2<u32>(0u, low),
                    by.x >= 32u);
  return select(made, vec2<u32>(0u, 0u), (by.y != 0u) | (by.x >= 64u));
}
fn shifted_down(v: vec2<u32>, by: vec2<u32>) -> vec2<u32> {
  let below = select(v.y << ((32u - by.x) & 31u), 0u, (by.x & 31u) == 0u);
  let high = v.y >> (by.x & 31u);
  let made = select(vec2<u32>((v.x >> (by.x & 31u)) | below, high), vec2<u32>(high, 0u),
                    by.x >= 32u);
  return select(made, vec2<u32>(0u, 0u), (by.y != 0u) | (by.x >= 64u));
}
"""


def memory_accessors(name: str, mem: str, atomic: bool) -> list[str]:
    """Return the functions that load and store words of a memory, and store parts of a word."""
    if atomic:
        return [f"fn l{mem}(i: i32) -> u32 {{ return atomicLoad(&{name}[i]); }}",
                f"fn s{mem}(i: i32, v: u32) {{ atomicStore(&{name}[i], v); }}",
                f"fn n{mem}(i: i32, at: u32, mask: u32, v: u32) {{",
                f"  atomicAnd(&{name}[i], ~(mask << at)); atomicOr(&{name}[i], v << at);", "}"]
    return [f"fn l{mem}(i: i32) -> u32 {{ return {name}[i]; }}",
            f"fn s{mem}(i: i32, v: u32) {{ {name}[i] = v; }}",
            f"fn n{mem}(i: i32, at: u32, mask: u32, v: u32) {{",
            f"  {name}[i] = ({name}[i] & ~(mask << at)) | (v << at);", "}"]


def letter_of(t: DType) -> str:
    """Return the letter of a type in the templates."""
    letter = "w" if t is uint64 else KIND_LETTERS.get(t.kind)
    if letter == "w":
        return letter
    if letter is None or t.lanes > 1 or t.bits > 32 and t.kind != "index" or \
            letter == "f" and t.bits != 32:
        raise KernelError(f"WGSL: expected a type of at most 32 bits that is computed in, got {t}")
    return letter


def type_of(t: DType) -> str:
    """Return the WGSL type of a value."""
    return _TYPE[letter_of(t)]
