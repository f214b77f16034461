"""Integer division with defined corner cases, and Threefry.

Division by zero gives -1 (all ones), and its remainder is the dividend; INT_MIN / -1 is INT_MIN.
32-bit quotients are computed in float64, which vectorizes and is exact: a quotient that is not an
integer is further from the next integer than the rounding error of float64.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr, trunc, where
from fnx.core.ir.uop import UOp
from fnx.lower.legalize.elementary.floats import as_integer


def divides_safely(divisor: Expr) -> bool:
    """Return whether the divisor is a constant other than 0 and -1, so division is defined."""
    node = divisor.node
    return node.op is ops.CONST and build.const_of(node) not in (0, -1)


def native_quotient(a: Expr, b: Expr) -> Expr:
    """Return a / b rounded toward zero by the machine's division; any value if b = 0."""
    if a.dtype.kind == "uint":
        return a // where(b.eq(0), 1, b)
    is_minus_one = b.eq(-1)
    return where(is_minus_one, -a, a // where(is_minus_one | b.eq(0), 1, b))


def _quotient(a: Expr, b: Expr) -> Expr:
    """Return a / b rounded toward zero; of 32 bits in float64."""
    if a.dtype.bits != 32:
        return native_quotient(a, b)
    ratio = trunc(a.cast(dtypes.float64) / b.cast(dtypes.float64))
    return as_integer(ratio).cast(a.dtype)


def divide(a: Expr, b: Expr, quotient: Callable[[Expr, Expr], Expr] = _quotient) -> Expr:
    """IDIV, from a quotient that may have any value if b = 0."""
    if divides_safely(b):
        return a // b
    ones = (1 << a.dtype.bits) - 1 if a.dtype.kind == "uint" else -1
    return where(b.eq(0), ones, quotient(a, b))


def remainder(a: Expr, b: Expr, quotient: Callable[[Expr, Expr], Expr] = _quotient) -> Expr:
    """REM of integers, with the sign of the dividend."""
    if divides_safely(b):
        return a % b
    return where(b.eq(0), a, a - quotient(a, b) * b)


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(node: UOp) -> UOp:
    """Threefry-2x32 with 20 rounds (Salmon et al., SC 2011); ``arg`` is the index of the result.

    The two results of a block are two nodes that share the nodes of the rounds.
    """
    k0, k1, c0, c1 = map(Expr, node.src)
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x, y = c0 + keys[0], c1 + keys[1]
    for block in range(5):
        for r in _ROTATIONS[block % 2]:
            x = x + y
            y = ((y << r) | (y >> 32 - r)) ^ x
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + (block + 1)
    return (x, y)[node.arg].node
