"""CONSTs in LLVM IR.

>>> from fnx.core.ir import build, dtypes
>>> constant(build.const(1.5, dtypes.float32)), constant(build.const(True, dtypes.bool_))
('0x3FF8000000000000', 'true')
"""

from __future__ import annotations

import struct

from fnx.core.ir import build
from fnx.core.ir.uop import UOp


def constant(node: UOp) -> str:
    """Return the LLVM IR text of a CONST; floats as the bits of a double."""
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
