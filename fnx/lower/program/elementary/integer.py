"""Integer division, whose corner cases the machine leaves undefined, and Threefry.

Division by zero gives -1 (all ones) and leaves the dividend as remainder; INT_MIN / -1 is
INT_MIN. 32-bit quotients are computed in float64, which vectorizes and is exact: where the
quotient is no integer, it is further from the next one than float64 rounds.
"""

from __future__ import annotations

from fnx.core import build, dtypes, ops
from fnx.core.uop import UOp
from fnx.lower.program.elementary.values import FORMATS, Value, where


def _divides_safely(divisor: UOp) -> bool:
    """Whether it is a constant other than 0 and -1: then the machine's division is defined."""
    if divisor.op is not ops.CONST:
        return False
    return build.const_of(divisor) not in (0, -1)


def _quotient(a: Value, b: Value) -> Value:
    """a / b rounded to zero; any value where b = 0."""
    if a.dtype.bits == 32:
        ratio = (a.cast(dtypes.float64) / b.cast(dtypes.float64)).trunc()
        return (ratio + FORMATS[dtypes.float64].rounder).bits().cast(a.dtype)
    minus = b.equals(-1)
    return where(minus, -a, a // where(minus | b.equals(0), 1, b))


def divide(node: UOp) -> UOp:
    """IDIV"""
    if _divides_safely(node.src[1]):
        return node
    a, b = map(Value, node.src)
    ones = (1 << 32) - 1 if a.dtype.kind == "uint" else -1
    return where(b.equals(0), ones, _quotient(a, b)).node


def remainder(node: UOp) -> UOp:
    """REM of integers: the sign of the dividend."""
    if _divides_safely(node.src[1]):
        return node
    a, b = map(Value, node.src)
    return where(b.equals(0), a, a - _quotient(a, b) * b).node


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(node: UOp) -> UOp:
    """Threefry-2x32 with 20 rounds (Salmon et al., SC 2011); ``arg`` is the word returned.

    The two words of one block are two nodes; the rounds below them are the same nodes.
    """
    k0, k1, c0, c1 = map(Value, node.src)
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x, y = c0 + keys[0], c1 + keys[1]
    for block in range(5):
        for r in _ROTATIONS[block % 2]:
            x = x + y
            y = ((y << r) | (y >> 32 - r)) ^ x
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + (block + 1)
    return (x, y)[node.arg].node
