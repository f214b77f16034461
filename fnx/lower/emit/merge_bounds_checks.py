"""Test the bounds of a data-dependent index by one unsigned comparison.

    before  STORE(o[i], v, valid = 0 < i + 1 and i < 9)                        i = CAST(p), p: int32
    after   STORE(o[i], v, valid = uint32(p) < 9)

A negative index is a large unsigned number. Each update of a scatter does this test.

>>> from fnx.core.ir import dtypes
>>> p = build.load(build.index_into(build.ref(0, dtypes.int32, (1,)), build.index_const(0)))
>>> i = build.cast(p, dtypes.index)
>>> valid = build.and_(build.le(build.index_const(0), i), build.lt(i, build.index_const(9)))
>>> o = build.index_into(build.ref(1, dtypes.int32, (9,)), i)
>>> after = merge_bounds_checks(build.kernel([build.store(o, p, valid, ops.ADD)], "scatter", ()))
>>> after.src[0].src[2].src[0].dtype
uint32
"""

from __future__ import annotations

from functools import reduce

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import conjuncts
from fnx.core.ir.uop import UOp, rebuild
from fnx.lower.analysis.conditions import INEQUALITIES, as_positive


def merge_bounds_checks(kernel: UOp) -> UOp:
    """Return the KERNEL whose STOREs test data-dependent indices by one comparison."""
    if all(len(s.src) < 3 for s in kernel.src):
        return kernel

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.STORE or len(src) < 3:
            return None
        tests = conjuncts(src[2])
        merged = _merge_conditions(tests)
        return None if len(merged) == len(tests) else \
            node.with_operands((*src[:2], reduce(build.and_, merged)))

    return kernel.with_operands(tuple(rebuild(kernel.src, visit)))


def _merge_conditions(conditions: list[UOp]) -> list[UOp]:
    """Merge the tests of both ends of an axis into one."""
    ends: dict[UOp, dict[int, tuple[UOp, int]]] = {}  # integer -> sign -> (condition, constant)
    for c in conditions:
        data, sign, constant = _match_bound(c)
        if data is not None and (sign < 0 or constant == 1):
            ends.setdefault(data, {})[sign] = c, constant
    out = conditions
    for data, bounds in ends.items():
        if len(bounds) == 2 and 0 <= bounds[-1][1] <= data.dtype.limits[1]:
            replaced = [c for c, _ in bounds.values()]
            bound = build.const(bounds[-1][1], dtypes.uint32)
            out = [*[c for c in out if c not in replaced],
                   build.lt(build.cast(data, dtypes.uint32), bound)]
    return out


def _match_bound(condition: UOp) -> tuple[UOp | None, int, int]:
    """Return (p, 1, c) for a condition p + c > 0, (p, -1, c) for c - p > 0, with p int32."""
    if condition.op in INEQUALITIES and condition.src[0].dtype is dtypes.index:
        terms, constant = as_positive(condition)
        for (*others, i), factor in terms.items():
            if len(terms) == 1 and not others and abs(factor) == 1 and i.op is ops.CAST \
                    and i.src[0].dtype is dtypes.int32:
                return i.src[0], factor, constant
    return None, 0, 0
