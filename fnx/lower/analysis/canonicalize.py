"""Canonical numbering: equal kernels become the identical node.

    before  STORE(o[r7], x[r7])    r7: Range(7)         order ()
    after   STORE(o[r0], x[r0])    r0: Range(0)         order (0,)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fnx.core.ir import build, kernel_args, ops
from fnx.core.ir.accessors import ops_and_dtypes
from fnx.core.ir.uop import UOp, copy_locs, rebuild, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.record import values
from fnx.lower.analysis.loops import ranges_of


def canonicalize(kernel: UOp) -> UOp:
    """Renumber the ranges, stages and LOOPs of a KERNEL: ranges by ``order``, the others by first
    use.

    Equal kernels become the identical node.

    >>> from fnx.core.ir import dtypes
    >>> def ones(id):
    ...     o = build.index_into(build.ref(0, dtypes.float32, (8,)), build.range_(8, id))
    ...     return build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones")
    >>> canonicalize(ones(5)) is canonicalize(ones(7))
    True
    """
    ranges = ranges_of(kernel)
    stores = _renumber(kernel.src, ranges)
    present = ops_and_dtypes(kernel.src)
    # Commutative operands are sorted by the numbers of their ranges: number stages after that.
    for op in (ops.STAGE, ops.LOOP):
        if op in present:
            stores = _renumber(stores, [n for n in toposort(stores) if n.op is op])
    order = tuple(range(len(ranges)))
    if tuple(stores) == kernel.src and order == kernel.arg.order:
        return kernel
    arg = kernel.arg
    return copy_locs(build.kernel(stores, arg.name, order, arg.stores_disjoint,
                                  arg.index_fits_int32), kernel)


def with_stores(kernel: UOp, stores: Sequence[UOp], order: Iterable[int]) -> UOp:
    """Replace the stores of a KERNEL; drop loops from ``order`` that they no longer use."""
    live = {n.arg.id for n in toposort(stores) if n.op is ops.RANGE}
    order = [i for i in order if i in live]
    arg = kernel.arg
    return copy_locs(build.kernel(stores, arg.name, order, arg.stores_disjoint,
                                  arg.index_fits_int32), kernel)


def simplify_indices(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """Simplify the indices of an INDEX: a visitor for ``rebuild``."""
    return build.index_into(src[0], *map(symbolic.simplify, src[1:])) \
        if node.op is ops.INDEX else None


def _renumber(roots: Sequence[UOp], nodes: Sequence[UOp]) -> list[UOp]:
    """Set the ids (the first field of an arg) of these nodes to 0, 1, ...; CARRYs follow their
    LOOP."""
    args = {n: type(n.arg)(i, *values(n.arg)[1:]) for i, n in enumerate(nodes) if n.arg.id != i}
    if not args:
        return list(roots)
    loops = {n.arg.id: args[n].id for n in args if n.op is ops.LOOP}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.CARRY and node.arg.id in loops:
            return UOp(node.op, node.dtype, src, kernel_args.Carry(loops[node.arg.id], node.arg.i))
        return UOp(node.op, node.dtype, src, args[node]) if node in args else None

    return rebuild(roots, visit)
