"""Legality rules of the kernel level: expressions over ranges, loops that bind their CARRYs.

Tuples of (ops, expectation, predicate), for core/levels/spec.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from fnx.core.ir import accessors, dtypes, ops
from fnx.core.ir.matrix_units import UNITS
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.range_kinds import PARALLEL_KINDS, RANGE_KINDS, SPACES


def accepts_monoid(monoid: Op, dtype: dtypes.DType) -> bool:
    """Return whether an op is a monoid that accepts a dtype."""
    return monoid in ops.MONOIDS and monoid.accepts_dtype(dtype)


def is_arg_pair(node: UOp) -> bool:
    """Return whether the operands of an ARG_PAIR are a key and its index."""
    key, index = node.src
    return ops.MAX.accepts_dtype(key.dtype) and key.dtype.storage is None \
        and index.dtype.is_integer and node.dtype is index.dtype and key.shape == index.shape


def is_arg_reduce(node: UOp) -> bool:
    """Return whether a REDUCE of ARG_PAIRs, if it is one, is a MAX or MIN."""
    return node.src[0].op is not ops.ARG_PAIR or node.arg.monoid in (ops.MAX, ops.MIN)


_NON_VALUES = (ops.REF, ops.STAGE, ops.INDEX, ops.STORE, ops.KERNEL, ops.LOOP)


def _are_values(nodes: Iterable[UOp], dtype: dtypes.DType | None = None) -> bool:
    return all(n.op not in _NON_VALUES and dtype in (None, n.dtype) for n in nodes)


def _index(node: UOp) -> bool:
    buffer = node.src[0] if node.src else node
    dims = len(buffer.src) - (buffer.op is ops.STAGE)
    return buffer.op in (ops.REF, ops.STAGE) and len(node.src) == 1 + dims and \
        _are_values(node.src[1:], dtypes.index)


def _load(node: UOp) -> bool:
    return 1 <= len(node.src) <= 2 and node.src[0].op is ops.INDEX and \
        _are_values(node.src[1:], dtypes.bool_)


def _store(node: UOp) -> bool:
    if not 2 <= len(node.src) <= 3 or node.src[0].op is not ops.INDEX:
        return False
    access, value = node.src[:2]
    return access.src[0].op is ops.REF and value.dtype is access.dtype and \
        _are_values((value,)) and _are_values(node.src[2:], dtypes.bool_)


def _is_extent(node: UOp) -> bool:
    return node.dtype is dtypes.index and not node.ranges


def _binds_ranges(node: UOp) -> bool:
    ranges = accessors.bound_ranges(node)
    return bool(node.src) and _are_values(node.src[:1]) and len(set(ranges)) == len(ranges) and \
        all(r.op is ops.RANGE and r.arg.kind not in PARALLEL_KINDS for r in ranges)


def _reduce(node: UOp) -> bool:
    accumulator = node.arg.accumulator
    return len(node.src) > 1 and node.arg.axes == () and accumulator is not None and \
        accepts_monoid(node.arg.monoid, accumulator)


def _mma(node: UOp) -> bool:
    unit, words, thread_operands = UNITS.get(node.arg.unit), accessors.bound_ranges(node), \
        node.src[2 + node.arg.n_words:]
    factors = (*node.src[:2], *thread_operands[:2])
    return unit is not None and len(node.src) > 1 and node.dtype is unit.result and \
        all(s.dtype is dtypes.uint32 for s in factors) and len(set(words)) == len(words) \
        and all(r.op is ops.RANGE and r.arg.kind not in PARALLEL_KINDS for r in words) and \
        (not thread_operands or len(thread_operands) == 4 and
         thread_operands[2].dtype is dtypes.index and thread_operands[3].op is ops.RANGE)


def _shuffled(node: UOp) -> bool:
    if len(node.src) != 2 or node.src[1].op is not ops.RANGE:
        return False
    r = node.src[1]
    n = accessors.extent(r)
    return r.arg.kind == "THREAD" and n.op is ops.CONST and node.dtype is node.src[0].dtype and \
        node.arg > 0 and node.arg & (node.arg - 1) == 0 and n.arg % (2 * node.arg) == 0


def _carry(node: UOp) -> bool:
    return bool(node.src) and node.src[0].op is ops.RANGE and \
        _are_values(node.src, dtypes.index) and node.arg.i >= 0


def _iter(node: UOp) -> bool:
    n, t = len(node.arg.outs), node.src[0]
    values, inits = node.src[1:1 + 2 * n], accessors.init_values(node)
    types = [dtype for _, dtype in node.arg.outs]
    return n > 0 and len(node.src) in (1 + 2 * n, 2 + 2 * n) and t.op is ops.RANGE and \
        t.arg.kind == "SEQ" and _are_values(values) and [v.dtype for v in values] == types * 2 \
        and not any(t in v.ranges for v in inits) and _are_values(node.src[1 + 2 * n:],
                                                                  dtypes.bool_)


def _step(node: UOp) -> bool:
    value, loop, t = node.src
    return _are_values((value,)) and loop.op is ops.LOOP and loop.src[0] is t


def _get(node: UOp) -> bool:
    loop = node.src[0]
    return loop.op is ops.LOOP and 0 <= node.arg < len(loop.arg.outs) and \
        node.dtype is loop.arg.outs[node.arg][1]


def _carries_bound(kernel: UOp) -> bool:
    """Return whether each CARRY is inside its LOOP, or a PER_ITERATION of it, and is one of its
    values."""
    free: dict[UOp, frozenset[UOp]] = {}
    for n in toposort([kernel]):
        free_carries = frozenset().union(*[free[s] for s in n.src])
        if n.op is ops.CARRY:
            free_carries |= {n}
        elif n.op is ops.LOOP:
            init_carries = frozenset().union(*[free[s] for s in accessors.init_values(n)])
            own_carries = {c for c in free_carries if c.arg.id == n.arg.id}
            if own_carries & init_carries or not all(_carried_by(n, c) for c in own_carries):
                return False
            free_carries -= own_carries
        elif n.op is ops.PER_ITERATION:
            free_carries -= {c for c in free_carries if _carried_by(n.src[1], c)}
        free[n] = free_carries
    return not free[kernel]


def _carried_by(loop: UOp, carry: UOp) -> bool:
    """Return whether a CARRY is a value of a LOOP, over all ranges that the value depends on."""
    i: int = carry.arg.i
    stop = accessors.stop_condition(loop)
    if carry.arg.id != loop.arg.id or carry.src[0] is not loop.src[0] or \
            i >= len(loop.arg.outs) or carry.dtype is not loop.arg.outs[i][1]:
        return False
    needed = accessors.init_values(loop)[i].ranges | accessors.next_values(loop)[i].ranges
    if stop is not None:
        needed |= stop.ranges
    return carry.ranges.issuperset(needed)


_OPS_WITH_ID = (ops.RANGE, ops.STAGE, ops.LOOP)


def _can_alias(a: dtypes.DType, b: dtypes.DType) -> bool:
    narrow, wide = sorted((a, b), key=lambda t: t.itemsize)
    return a is b or wide is dtypes.uint32 and narrow.itemsize < 4


def _unique_ids(kernel: UOp) -> bool:
    """Return whether ids (RANGE, STAGE, LOOP) and VAR slots are unique.

    REFs of a slot may be several views, of one dtype, or of the 32-bit words that hold it.
    """
    seen: dict[tuple[Op, int], UOp] = {}
    for n in toposort([kernel]):
        if n.op in (*_OPS_WITH_ID, ops.REF, ops.VAR):
            id = n.arg.id if n.op in _OPS_WITH_ID else n.arg.slot
            first = seen.setdefault((n.op, id), n)
            if id < 0 or (not _can_alias(first.dtype, n.dtype) if n.op is ops.REF
                          else first is not n):
                return False
    return True


def _order(kernel: UOp) -> bool:
    order = kernel.arg.order
    ids = {n.arg.id for n in toposort([kernel]) if n.op is ops.RANGE}
    return not order or (len(order) == len(ids) and set(order) == ids)


def _parallel(kernel: UOp) -> bool:
    parallel_ids = {n.arg.id: n.arg.kind for n in toposort([kernel])
                    if n.op is ops.RANGE and n.arg.kind in PARALLEL_KINDS}
    order = kernel.arg.order
    return all(n <= (RANGE_KINDS[kind].max_ranges or n)
               for kind, n in Counter(parallel_ids.values()).items()) \
        and (not order or set(order[:len(parallel_ids)]) == parallel_ids.keys())


_VALUE_OPS = tuple(ops.ops_at_level("k") - {ops.INDEX, ops.LOAD, ops.STORE, ops.KERNEL,
                                            ops.GETTUPLE, ops.PER_ITERATION, ops.LOOP})

RULES: tuple[tuple[Collection[Op], str, Callable[[UOp], bool]], ...] = (
    (tuple(ops.ops_at_level("k")), "scalars", lambda n: n.shape == ()),
    (_VALUE_OPS, "values as operands; places are read by LOAD",
     lambda n: _are_values(n.src)),
    ((ops.RANGE,), "an extent of dtype index that depends on no range",
     lambda n: _is_extent(accessors.extent(n))),
    ((ops.RANGE,), f"one of the kinds {', '.join(RANGE_KINDS)}",
     lambda n: n.arg.kind in RANGE_KINDS),
    ((ops.REF,), "extents of dtype index that depend on no range",
     lambda n: all(map(_is_extent, n.src))),
    ((ops.INDEX,), "a REF or STAGE and one index of dtype index per dimension", _index),
    ((ops.LOAD,), "a place and perhaps a bool", _load),
    ((ops.STORE,), "a place in a REF, a value of its dtype, and perhaps a bool", _store),
    ((ops.STORE,), "no combine, STORE (the last wins), SCATTER (each element at most once), or a "
     "monoid that takes the value",
     lambda n: n.arg in (None, ops.STORE, ops.SCATTER)
     or accepts_monoid(n.arg, accessors.value(n).dtype)),
    ((ops.REDUCE, ops.STAGE), "a value and distinct ranges, none of them parallel", _binds_ranges),
    ((ops.REDUCE,), "ranges, a monoid that takes the accumulator's dtype, no axes", _reduce),
    ((ops.MMA,), "words of both factors, distinct ranges, and a unit whose sums have its dtype",
     _mma),
    ((ops.SHUFFLE_XOR,), "a value, a THREAD range, and a power of two that divides half of its "
     "extent", _shuffled),
    ((ops.CARRY,), "the RANGE of its loop, and index expressions", _carry),
    ((ops.LOOP,), "a SEQ range, first values that it does not change, next values of their "
         "types, and perhaps a bool", _iter),
    ((ops.PER_ITERATION,), "a value, a LOOP and its range", _step),
    ((ops.GETTUPLE,), "a value that a LOOP carries, with its dtype", _get),
    ((ops.STAGE,), f"one of the spaces {', '.join(SPACES)}",
     lambda n: n.arg.space in SPACES and (n.arg.space == "SHARED" or not n.arg.double)),
    ((ops.KERNEL,), "STOREs", lambda n: bool(n.src) and all(
        s.op is ops.STORE for s in n.src)),
    ((ops.KERNEL,), "CARRYs inside the LOOP that carries them", _carries_bound),
    ((ops.KERNEL,), "one RANGE, STAGE or LOOP an id, one VAR and one dtype of REFs a slot",
         _unique_ids),
    ((ops.KERNEL,), "an order with each range of the kernel once", _order),
    ((ops.KERNEL,), "outermost what is given out, at most one PAR range", _parallel),
)
