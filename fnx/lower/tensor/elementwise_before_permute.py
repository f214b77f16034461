"""Compute elementwise work on a transposed argument before the transpose, in the order of memory.

    before  exp(PERMUTE(x)) * EXPAND(y)                        x: an argument, float32[4096, 64]
    after   PERMUTE(exp(x) * EXPAND(PERMUTE(y)))

The layout of an argument is given; that of what is made of it is not. If it has a buffer, that is
written in the order in which x is read. A covariance, and the Hessian of a linear model, then read
both factors along their rows. All operands must be transposed alike, or be equal along axes. A
RESHAPE that adds or drops axes of length 1 commutes with the PERMUTE. A REDUCE of such work is done
before the PERMUTE, too; the layout of its result is free again.

>>> from fnx.core.ir import dtypes
>>> x = build.permute(build.param(0, dtypes.float32, (8, 3)), (1, 0))
>>> out, = elementwise_before_permute(build.function([build.exp(build.neg(x))], 1)).src
>>> out.op.name, out.src[0].op.name, out.src[0].shape
('PERMUTE', 'EXP', (8, 3))
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import long_lengths
from fnx.core.ir.uop import UOp, copy_locs, rebuild_results


def elementwise_before_permute(fn: UOp) -> UOp:
    """Return a FUNCTION whose elementwise work follows the layout of its arguments."""
    return rebuild_results(fn, _Layouts().visit)


class _Layouts:
    """Which values are in the layout of an argument (``plain``), and which are transposes of these:
    ``orders`` maps them to one of those and the order of its axes."""

    def __init__(self) -> None:
        self.orders: dict[UOp, tuple[UOp, tuple[int, ...]]] = {}
        self.plain: set[UOp] = set()

    def visit(self, node: UOp, src: Sequence[UOp]) -> UOp | None:
        if node.op is ops.PARAM:
            self.plain.add(node)
        elif node.op is ops.PERMUTE or node.op is ops.RESHAPE:
            return self._move(node, src[0])
        elif node.op in ops.ELEMENTWISE:
            return self._compute(node, src)
        elif node.op is ops.REDUCE and src[0] in self.orders:
            return self._reduce(node, *self.orders[src[0]])
        return None

    def _move(self, node: UOp, x: UOp) -> UOp | None:
        """Record a PERMUTE, or a RESHAPE that only adds and drops axes of length 1."""
        if node.op is ops.PERMUTE:
            source, order = self.orders.get(x, (x, tuple(range(len(x.shape)))))
            if x not in self.plain and source is x:
                return None
            return self._record(source, tuple([order[a] for a in node.arg]))
        if x not in self.orders:
            if x in self.plain and long_lengths(x) == long_lengths(node):
                self.plain.add(node.with_operands((x,)))
            return None
        source, order = self.orders[x]
        if long_lengths(x) != long_lengths(node):
            return None
        long = [a for a, n in enumerate(node.shape) if n != 1]
        axes = [a for a in order if source.shape[a] != 1]
        first = [a for a, n in enumerate(node.shape) if n == 1] + \
            [a for _, a in sorted(zip(axes, long))]
        return self._record(build.reshape(source, tuple([node.shape[a] for a in first])),
                            tuple([first.index(a) for a in range(len(first))]))

    def _record(self, source: UOp, order: tuple[int, ...]) -> UOp:
        """Record a source in the layout of an argument, and return its transpose."""
        self.plain.add(source)
        moved = build.permute(source, order)
        if moved is not source:
            self.orders[moved] = source, order
        return moved

    def _compute(self, node: UOp, src: Sequence[UOp]) -> UOp | None:
        """Compute before the PERMUTE that all operands share."""
        orders = {self.orders[s][1] for s in src if s in self.orders}
        if len(orders) != 1 or any(s not in self.orders and s.op is not ops.EXPAND for s in src):
            if any(s in self.plain for s in src) and \
                    all(s in self.plain or s.op is ops.EXPAND for s in src):
                self.plain.add(node.with_operands(tuple(src)))
            return None
        order, = orders
        if order[-1] == len(order) - 1:
            return None
        inverse = [order.index(a) for a in range(len(order))]
        shape = tuple([node.shape[a] for a in inverse])
        operands = [self.orders[s][0] if s in self.orders else
                    build.expand(build.permute(s.src[0], inverse), shape) for s in src]
        return self._record(copy_locs(UOp(node.op, node.dtype, tuple(operands), node.arg), node),
                            order)

    def _reduce(self, node: UOp, source: UOp, order: Sequence[int]) -> UOp | None:
        """Reduce before the PERMUTE; the layout of the result is free."""
        axes = [order[a] for a in node.arg.axes]
        if order[-1] == len(order) - 1:
            return None
        reduced = copy_locs(node.replace(
            src=(source,), arg=node.arg.replace(axes=tuple(sorted(axes)))), node)
        left = [a for a in order if a not in axes]
        return build.permute(reduced, [sorted(left).index(a) for a in left])
