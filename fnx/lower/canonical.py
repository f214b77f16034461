"""Canonical numbers: equal kernels become the identical node.

    before  STORE(o[r7], x[r7])    r7: Range(7)         order ()
    after   STORE(o[r0], x[r0])    r0: Range(0)         order (0,)
"""

from __future__ import annotations

from fnx.core import build, ops
from fnx.core.uop import UOp, inherit, toposort
from fnx.lower.loops import ranges_of


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
    stages = 0
    new: dict[UOp, UOp] = {}
    for node in toposort(kernel.src):
        src = tuple([new[s] for s in node.src])
        arg = node.arg
        if node.op is ops.RANGE:
            if arg.id != number[node]:
                arg = ops.Range(number[node], arg.kind, arg.name)
        elif node.op is ops.STAGE:
            if arg.id != stages:
                arg = ops.Stage(stages, arg.space, arg.name)
            stages += 1
        same = src == node.src and arg is node.arg
        new[node] = node if same else inherit(UOp(node.op, node.dtype, src, arg), node)
    stores = tuple(new[s] for s in kernel.src)
    order = tuple(range(len(number)))
    if stores == kernel.src and order == kernel.arg.order:
        return kernel
    return inherit(build.kernel(stores, kernel.arg.name, order), kernel)
