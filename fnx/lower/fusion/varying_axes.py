"""Which axes of a tensor a value varies along.

    before  x: (4, 1), EXPAND to (4, 8), then SIN
    after   of the SIN: the bits of axis 0 only

What does not vary along an axis is computed once for it; a product of two factors that vary along
axes of their own is a contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fnx.core.ir import ops
from fnx.core.ir.op import other_axes
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp


def varying_axes(nodes: list[UOp]) -> dict[UOp, int]:
    """Return for each node the axes along which its value may change, as a bit set.

    EXPAND is where a value stops varying: that is what makes a product a contraction.
    """
    out: dict[UOp, int] = {}
    for node in nodes:
        if node.op in _VARY_RULES:
            out[node] = _VARY_RULES[node.op](node, out)
        elif node.op.kind in ("elementwise", "pair"):
            bits = 0
            for s in node.src:
                bits |= out[s]
            out[node] = bits
        else:
            out[node] = long_axes(node.shape)
    return out


def long_axes(shape: ops.Shape) -> int:
    """Return the axes of a length other than 1, as a bit set."""
    return sum(1 << i for i, n in enumerate(shape) if n != 1)


def _expand(node: UOp, out: dict[UOp, int]) -> int:
    return out[node.src[0]] & long_axes(node.src[0].shape)


def _permute(node: UOp, out: dict[UOp, int]) -> int:
    return _permute_bits(out[node.src[0]], node.arg)


def _reduce(node: UOp, out: dict[UOp, int]) -> int:
    shape = node.src[0].shape
    return _permute_bits(out[node.src[0]], [a for a in range(len(shape)) if a not in node.arg.axes])


def _permute_bits(bits: int, axes: Iterable[int]) -> int:
    """Return the bits of some axes, renumbered 0, 1, ..."""
    return sum(1 << i for i, a in enumerate(axes) if bits >> a & 1)


def _reshape(node: UOp, out: dict[UOp, int]) -> int:
    """Aligned groups of axes vary together."""
    bits, result = out[node.src[0]], 0
    old, new = node.src[0].shape, node.shape
    i = j = 0
    while i < len(old) and j < len(new):
        first_i, first_j = i, j
        a, b = old[i], new[j]
        i, j = i + 1, j + 1
        while a != b and (i < len(old) or j < len(new)):
            if a < b or j >= len(new):
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        if any(bits >> k & 1 for k in range(first_i, i)):
            result |= sum(1 << k for k in range(first_j, j) if new[k] != 1)
    return result


def _windows(node: UOp, out: dict[UOp, int]) -> int:
    bits, w = out[node.src[0]], node.arg
    either = bits >> w.axis & 1 or bits >> w.offset & 1 or node.op is ops.FOLD
    both = (1 << w.axis | 1 << w.offset) if either else 0
    return (bits | both) & long_axes(node.shape)


def _sliced(node: UOp, out: dict[UOp, int]) -> int:
    return out[node.src[0]] & long_axes(node.shape)


def _gather(node: UOp, out: dict[UOp, int]) -> int:
    """It varies along the axes of its indices as they do, along the others as the array does."""
    x, *index = node.src
    bits = _permute_bits(out[x], other_axes(node.arg.axes, len(x.shape))) << len(index[0].shape)
    for i in index:
        bits |= out[i]
    return bits


def _pad(node: UOp, out: dict[UOp, int]) -> int:
    return out[node.src[0]] | sum(1 << i for i, widths in enumerate(node.arg) if widths != (0, 0))


_VARY_RULES: dict[Op, Callable[[UOp, dict[UOp, int]], int]] = {
    ops.EXPAND: _expand, ops.PERMUTE: _permute, ops.RESHAPE: _reshape,
    ops.SHRINK: _sliced, ops.FLIP: _sliced, ops.PAD: _pad,
    ops.UNFOLD: _windows, ops.FOLD: _windows, ops.REDUCE: _reduce, ops.CONST: lambda node, out: 0,
    ops.BARRIER: lambda node, out: out[node.src[0]], ops.GATHER: _gather,
}
