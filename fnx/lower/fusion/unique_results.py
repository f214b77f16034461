"""Results: each result of a FUNCTION becomes one buffer, or is an argument passed through.

    before  FUNCTION(RESHAPE(a), a, p1)          with a = ADD(p0, p0)
    after   FUNCTION(a); results (out 0, out 0, in 1)

A RESHAPE shares its operand's memory, and arrays are immutable, so results may share buffers.

>>> from fnx.core.ir import dtypes
>>> p, q = (build.param(i, dtypes.float32, (4,)) for i in (0, 1))
>>> a = build.add(p, p)
>>> fn = build.function([build.reshape(a, (2, 2)), a, q], 2)
>>> unique_results(fn).src == (a,), results_of(fn)
(True, (('out', 0), ('out', 0), ('in', 1)))
"""

from __future__ import annotations

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp
from fnx.lower.fusion.group import memory_of

Result = tuple[str, int]  # ("in", argument) or ("out", buffer)


def unique_results(fn: UOp) -> UOp:
    """Return the FUNCTION with each computed buffer once."""
    return build.function(_result_buffers(fn), fn.arg.n_params, fn.arg.name)


def results_of(fn: UOp) -> tuple[Result, ...]:
    """Return for each result of a FUNCTION which argument or unique result holds it."""
    buffer_number = _result_buffers(fn)
    return tuple([("in", p.arg.slot) if p.op is ops.PARAM else ("out", buffer_number[p])
                  for p in map(memory_of, fn.src)])


def _result_buffers(fn: UOp) -> dict[UOp, int]:
    """Return the nodes whose buffers hold results, numbered."""
    numbered: dict[UOp, int] = {}
    for out in fn.src:
        node = memory_of(out)
        if node.op is not ops.PARAM:
            numbered.setdefault(node, len(numbered))
    return numbered
