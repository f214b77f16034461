"""check_index: a FUNCTION that says which of its indices were outside, beside its results.

    before  FUNCTION(GATHER(x, i))
    after   FUNCTION(GATHER(x, i), REDUCE(WHERE(i inside, NONE, i), MAX))

Only under ``config.check_index``, before all other passes. It takes in every read and write at
indices that are data, also those of calls and gradients; hand-written kernels bring theirs.

>>> from fnx.core import build, dtypes
>>> x, i = build.param(0, dtypes.float32, (5,)), build.param(1, dtypes.int32, (3,))
>>> fn, checks = check_index(build.function([build.gather(x, i)], 2))
>>> len(fn.src), checks[0].length
(2, 5)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fnx.core import build, dtypes, ops
from fnx.core.index_faults import Check, fault, named
from fnx.core.uop import UOp, toposort
from fnx.lower.tensor.inline import inline

Fault = tuple[UOp, Check]


def check_index(fn: UOp) -> tuple[UOp, tuple[Check, ...]]:
    """The FUNCTION with a fault as a further result for each index, and what they are of."""
    fn = inline(fn)
    faults = [f for node in toposort(fn.src) if node.op in _FAULTS for f in _FAULTS[node.op](node)]
    outs = [*fn.src, *(value for value, _ in faults)]
    return build.function(outs, fn.arg.n_params, fn.arg.name), tuple(c for _, c in faults)


def _of_indices(node: UOp) -> Iterator[Fault]:
    x, *indices = node.src
    what = "read"
    if node.op is ops.SCATTER:
        what = "write"
        del indices[-1]
    for axis, (i, n) in enumerate(zip(indices, x.shape)):
        if not math.prod(i.shape):
            continue
        shown = _before_wrapping(i)
        value = fault(i, n, shown)
        check = Check(what, axis, n, None, shown is not None, node)
        yield build.reduce(value, ops.MAX, range(len(value.shape))), check


def _before_wrapping(i: UOp) -> UOp | None:
    """e of ``where(e < 0, e + n, e)``: what the user wrote."""
    moved = []
    while i.op in (ops.EXPAND, ops.RESHAPE):
        moved.append(i)
        i = i.src[0]
    if i.op is not ops.WHERE or i.src[1].op is not ops.ADD or i.src[2] not in i.src[1].src:
        return None
    written = i.src[2]
    for m in reversed(moved):
        written = m.replace(src=(written, *m.src[1:]))
    return written


def _of_call(node: UOp) -> Iterator[Fault]:
    """A hand-written kernel writes a fault into each buffer with the name of a check."""
    kernel = node.src[0]
    if kernel.op is not ops.KERNEL:
        return
    for store in kernel.src:
        ref = store.src[0].src[0]
        check = named(ref.arg.name, store.site)
        if check is not None and store.arg is ops.MAX:
            value = UOp(ops.GET, dtypes.int32, (node,), ref.arg.slot - len(node.src) + 1)
            yield build.reduce(value, ops.MAX, range(len(value.shape))), check


_FAULTS = {ops.GATHER: _of_indices, ops.SCATTER: _of_indices, ops.CALL: _of_call}
