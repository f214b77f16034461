"""Access checks of user-written kernels: in bounds, written once, fully covered.

    x[i - 1]                     refused: -1 is outside          x.load(i - 1, valid=i > 0)
    x[y[i]]                      data: the index is clamped, unless bounds prove it inside
    o[i] = x[i, k]               refused: each k writes o[i]     o[i] = k.sum(x[i, k], over=k)
    o.store(i, valid=x[i] > 0)   o[i] = where(x[i] > 0, value, 0): the other places are 0

Bounds and strides are tried first; otherwise index expressions that do not depend on data are
evaluated for all iterations, as the interpreter does. So a kernel that passes means the same on
every device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import buffer, dims, extent, index_node, indices, validity
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp_kernel import eval_node
from fnx.core.rewriting import symbolic

_DATA_OPS = frozenset({ops.LOAD, ops.REDUCE, ops.VAR, ops.CARRY, ops.GETTUPLE})
MAX_ENUMERATED = 1 << 22  # iterations to enumerate at most
Offsets = np.ndarray[Any, Any]


def is_data(node: UOp) -> bool:
    """Whether a value depends on data, so that it is known only at run time."""
    return any(n.op in _DATA_OPS for n in toposort([node]))


def may_be_outside(i: UOp, n: int, valid: UOp | None) -> tuple[bool, bool]:
    """Whether an index may be below 0, and whether it may be n or more, where ``valid`` holds."""
    facts = [] if valid is None else _nonnegative_facts(valid)
    low = not _is_implied(i, facts)
    high = not _is_implied(build.sub(build.index_const(n - 1), i), facts)
    if (low or high) and not is_data(i):
        enumerated = _enumerate_values([i], valid)
        if enumerated is not None:
            values = enumerated[0]
            return bool((values < 0).any()), bool((values >= n).any())
    return low, high


def overflow_bounds(node: UOp) -> tuple[int, int] | None:
    """Return the bounds of index arithmetic that may overflow 64 bits; None if it cannot.

    Also None for data without bounds of its own, of which nothing is proved in any case.
    """
    low, high = symbolic.bounds(node)
    min_index, max_index = dtypes.index.limits
    is_unbounded = low <= min_index // 2 and high >= max_index // 2
    return None if min_index <= low and high <= max_index or is_unbounded else (low, high)


def has_empty_range(nodes: Iterable[UOp]) -> bool:
    """Whether one of the ranges of these nodes is empty."""
    return any(_extent(r) == 0 for node in nodes for r in node.ranges)


def free_ranges(store: UOp) -> list[UOp]:
    """Return the ranges of a STORE that have more than one iteration."""
    return sorted((r for r in store.ranges if _extent(r) > 1), key=lambda r: r.arg.id)


def is_written_once(store: UOp) -> bool:
    """Whether no two iterations of a STORE write one element."""
    if is_mixed_radix(store, free_ranges(store)):
        return True
    flat = _written_offsets(store)
    return flat is not None and len(np.unique(flat)) == len(flat)


def may_share_loops(a: UOp, b: UOp) -> bool:
    """Whether two STOREs to one buffer may share loops.

    They may if they write disjoint elements, or the same element in each iteration.
    """
    if not set(free_ranges(a)) & set(free_ranges(b)) or (
            index_node(a) is index_node(b) and is_written_once(a) and is_written_once(b)):
        return True
    one, other = _written_offsets(a), _written_offsets(b)
    return one is not None and other is not None and not np.intersect1d(one, other).size


def covers_buffer(stores: Sequence[UOp], size: int) -> bool:
    """Whether the STOREs provably write all ``size`` elements of their buffer."""
    written = np.zeros(size, bool) if size <= MAX_ENUMERATED else None
    for store in stores:
        valid = validity(store)
        if valid is None and is_mixed_radix(store, free_ranges(store)) \
                and math.prod(map(_extent, free_ranges(store))) == size:
            return True
        masked = valid is not None and is_data(valid)
        flat = None if masked or written is None else _written_offsets(store)
        if written is not None and flat is not None:
            written[flat] = True
    return written is not None and bool(written.all())


def _extent(r: UOp) -> int:
    return symbolic.bounds(extent(r))[1]


# ---- proofs ---------------------------------------------------------------------------------


def _is_implied(value: UOp, facts: Sequence[UOp]) -> bool:
    """Whether value >= 0 follows from the facts, each of which is >= 0."""
    return symbolic.bounds(symbolic.simplify(value))[0] >= 0 or any(
        symbolic.bounds(symbolic.simplify(build.sub(value, f)))[0] >= 0 for f in facts)


def _nonnegative_facts(condition: UOp) -> list[UOp]:
    """Return index expressions that are >= 0 where a condition holds."""
    out: list[UOp] = []
    for c in _conjuncts(condition):
        negated = c.op is ops.NOT
        compared = c.src[0] if negated else c
        if compared.op not in ops.COMPARISONS or not compared.src[0].dtype.is_integer:
            continue
        a, b = map(_as_index, compared.src)
        up, down = build.sub(b, a), build.sub(a, b)
        one = build.index_const(1)
        if compared.op is ops.CMPLT:
            out.append(down if negated else build.sub(up, one))
        elif compared.op is ops.CMPLE:
            out.append(build.sub(down, one) if negated else up)
        elif (compared.op is ops.CMPEQ) is not negated:
            out += [up, down]
    return out


def _as_index(x: UOp) -> UOp:
    return build.index_const(build.const_of(x)) if x.op is ops.CONST else \
        build.cast(x, dtypes.index)


def _conjuncts(condition: UOp) -> list[UOp]:
    out, stack = [], [condition]
    while stack:
        c = stack.pop()
        if c.op is ops.AND:
            stack += c.src
        elif c.op is ops.NOT and c.src[0].op is ops.OR:
            stack += map(build.logical_not, c.src[0].src)
        else:
            out.append(c)
    return out


def is_mixed_radix(store: UOp, ranges: Sequence[UOp]) -> bool:
    """Whether the ranges are the digits of the stored offset (a mixed-radix number)."""
    if buffer(store).op is not ops.REF:
        return False
    terms, _ = symbolic.linear_terms(symbolic.element_offset(store))
    steps = {m[0]: abs(c) for m, c in terms.items() if len(m) == 1 and m[0] in ranges}
    if len(steps) != len(ranges) or any(m[0] not in ranges and (
            len(m) > 1 or m[0].op is not ops.RANGE or _extent(m[0]) > 1) for m in terms):
        return False
    reach = 0
    for r, step in sorted(steps.items(), key=lambda t: t[1]):
        if step <= reach:
            return False
        reach += step * (_extent(r) - 1)
    return True


# ---- enumeration ----------------------------------------------------------------------------


def _written_offsets(store: UOp) -> Offsets | None:
    """Return the offset a STORE writes in each iteration. None if data-dependent or too many."""
    index = indices(store)
    if any(map(is_data, index)):
        return None
    index_values = _enumerate_values(index, validity(store), free_ranges(store))
    if index_values is None:
        return None
    flat: Offsets = np.zeros(index_values[0].shape if index_values else 1, np.int64)
    for values, n in zip(index_values, map(build.const_of, dims(buffer(store)))):
        flat = flat * n + values
    if not index:  # 0-d buffer: offset 0 in every iteration
        flat = np.zeros(math.prod(map(_extent, free_ranges(store))), np.int64)
    return flat


def _enumerate_values(nodes: Sequence[UOp], valid: UOp | None, ranges: Iterable[UOp] = ()
                      ) -> list[Offsets] | None:
    """Evaluate data-independent expressions in the iterations where ``valid`` may hold."""
    conditions = [] if valid is None else [c for c in _conjuncts(valid) if not is_data(c)]
    roots = [*nodes, *conditions]
    axes = sorted({r for n in roots for r in n.ranges}.union(ranges), key=lambda r: r.arg.id)
    shape = tuple(map(_extent, axes))
    if math.prod(shape) > MAX_ENUMERATED:
        return None
    known: dict[UOp, Any] = {}
    with np.errstate(all="ignore"):
        for n in toposort(roots, stop=lambda n: n.op is ops.RANGE):
            if n.op is ops.RANGE:
                axis = axes.index(n)
                known[n] = np.arange(shape[axis]).reshape([-1 if a == axis else 1
                                                           for a in range(len(axes))])
            else:
                known[n] = eval_node(n, known)
    holds = np.ones(shape, bool)
    for c in conditions:
        holds &= known[c]
    return [np.broadcast_to(known[n], shape)[holds].astype(np.int64) for n in nodes]
