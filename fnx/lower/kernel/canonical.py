"""Canonical numbers: equal kernels become the identical node.

    before  STORE(o[r7], x[r7])    r7: Range(7)         order ()
    after   STORE(o[r0], x[r0])    r0: Range(0)         order (0,)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fnx.core import build, ops
from fnx.core.uop import UOp, inherit, rebuild, toposort
from fnx.lower.schedule.loops import ranges_of


def canonical(kernel: UOp) -> UOp:
    """The KERNEL with ranges and stages renumbered: ranges by ``order``, stages as they are met.

    Equal kernels become the identical node.

    >>> from fnx.core import dtypes
    >>> def ones(id):
    ...     o = build.at(build.ref(0, dtypes.float32, (8,)), build.range_(8, id))
    ...     return build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones")
    >>> canonical(ones(5)) is canonical(ones(7))
    True
    """
    number = {r: i for i, r in enumerate(ranges_of(kernel))}
    ranges = {r: ops.Range(i, r.arg.kind, r.arg.name) for r, i in number.items()
              if r.arg.id != i}
    stores = _renamed(kernel.src, ranges)
    # Commutative operands are sorted by their ranges' numbers: stages are met after that.
    met = [n for n in toposort(stores) if n.op is ops.STAGE]
    stages = {n: ops.Stage(i, n.arg.space, n.arg.name) for i, n in enumerate(met)
              if n.arg.id != i}
    stores = _renamed(stores, stages)
    order = tuple(range(len(number)))
    if tuple(stores) == kernel.src and order == kernel.arg.order:
        return kernel
    return inherit(build.kernel(stores, kernel.arg.name, order), kernel)


def over_stores(kernel: UOp, stores: Sequence[UOp], order: Iterable[int]) -> UOp:
    """The KERNEL with other stores; of ``order`` what they still run over."""
    live = {n.arg.id for n in toposort(stores) if n.op is ops.RANGE}
    return inherit(build.kernel(stores, kernel.arg.name, [i for i in order if i in live]), kernel)


def _renamed(roots: Sequence[UOp], args: dict[UOp, Any]) -> list[UOp]:
    """The roots with other args on some nodes."""

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return UOp(node.op, node.dtype, src, args[node]) if node in args else None

    return rebuild(roots, visit) if args else list(roots)
