"""Data-dependent indices: expose an integer value to index arithmetic.

    before  CAST(min(max(s, 0), 768) + int32(r0))         s: int32, r0 < 256
    after   CAST(min(max(s, 0), 768)) + r0, between 0 and 1023

So a window at a data-dependent offset is read and written along its ranges, without conditions
if it is in bounds. A value that may overflow in its own type remains opaque.

>>> from fnx.core.ir.expr import Expr, maximum, minimum
>>> r = build.range_(256, 0)
>>> s = Expr(build.load(build.index_into(build.ref(0, dtypes.int32, (1,)), build.index_const(0))))
>>> start = minimum(maximum(s, 0), 768)
>>> at, bounds = data_index((start + Expr(build.cast(r, dtypes.int32))).node)
>>> at is build.add(build.cast(start.node, dtypes.index), r), bounds
(True, (0, 1023))
"""

from __future__ import annotations

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.algebra import Bounds

_ARITHMETIC = frozenset({ops.ADD, ops.SUB, ops.NEG, ops.MUL, ops.MIN, ops.MAX, ops.CAST})


def data_index(value: UOp) -> tuple[UOp, Bounds]:
    """Return an integer value as an index, and its bounds."""
    exact: dict[UOp, UOp] = {}  # in index arithmetic, where that is equal
    exposed: dict[UOp, UOp] = {}  # only with ranges in it: else its vectors are wider
    for node in toposort([value], stop=lambda n: not _is_arithmetic(n)):
        if node.dtype is dtypes.index:
            exact[node] = exposed[node] = node
        elif node.dtype.is_integer:
            _convert(node, exact, exposed)
    return exposed[value], symbolic.bounds(exact[value])


def _is_arithmetic(node: UOp) -> bool:
    return node.op in _ARITHMETIC and node.dtype is not dtypes.index and \
        all(s.dtype.is_integer or s.dtype is dtypes.index for s in node.src)


def _convert(node: UOp, exact: dict[UOp, UOp], exposed: dict[UOp, UOp]) -> None:
    exact[node] = exposed[node] = build.cast(node, dtypes.index)
    low, high = node.dtype.limits
    if node.op is ops.CONST:
        exact[node] = build.index_const(int(build.const_of(node)))
    elif _is_arithmetic(node):
        index_expr = _with_operands(node, exact)
        min_value, max_value = symbolic.bounds(index_expr)
        if low <= min_value and max_value <= high:
            exact[node] = index_expr
            if node.ranges and any(exposed[s].op is not ops.CAST for s in node.src):
                exposed[node] = _with_operands(node,
                                               {s: exact[s] if s.op is ops.CONST else exposed[s]
                                                for s in node.src})


def _with_operands(node: UOp, operand_map: dict[UOp, UOp]) -> UOp:
    src = [operand_map[s] for s in node.src]
    return src[0] if node.op is ops.CAST else build.elementwise(node.op, *src)
