"""In-place updates: find which results of a kernel may overwrite an operand.

    o[i] = x[i] + y[i]                 over x, or over y
    o[i, j] = max(j: x[i, j]) + ...    over neither: a row is read again after its first element
    o[n, j] = x[clamped n, j] * 2      over x: one row is written, element by element

An element that one iteration writes may only be read by that iteration, before the write:

  - the read index equals the write index; or the dimensions in which both indices are the same
    identify the iteration of the STORE uniquely;
  - the STORE needs the value; another STORE does only if all share one loop and one LOAD.

Indices are those of the untiled kernel. A schedule may read earlier than that, never later.

>>> from fnx.core.ir import dtypes
>>> r = build.range_(8, 0)
>>> x, o = (build.index_into(build.ref(i, dtypes.float32, (8,)), r) for i in (0, 1))
>>> aliasable_slots(build.kernel([build.store(o, build.neg(build.load(x)))], "negate", (0,)))
((1, 0),)
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.symbolic import simplify
from fnx.lower.analysis.index_injectivity import determined_ranges


def aliasable_slots(kernel: UOp) -> tuple[tuple[int, int], ...]:
    """Return (written slot, read-only slot) pairs that may share one buffer."""
    nodes = toposort([kernel])
    loads: dict[int, list[UOp]] = {}
    for node in nodes:
        if node.op is ops.LOAD and accessors.buffer(node).op is ops.REF:
            loads.setdefault(accessors.buffer(node).arg.slot, []).append(node)
    stores: dict[int, list[UOp]] = {}
    for store in kernel.src:
        stores.setdefault(accessors.buffer(store).arg.slot, []).append(store)
    one_loop = _is_one_loop(kernel, nodes)
    ancestors_of = {store: set(toposort([store])) for store in kernel.src} \
        if len(kernel.src) > 1 else {}
    readers = {slot: {store for store in ancestors_of if not ancestors_of[store].isdisjoint(reads)}
               for slot, reads in loads.items() if slot not in stores}

    def safe(store: UOp, slot: int) -> bool:
        reads = loads[slot]
        if not readers[slot] <= {store} and not (one_loop and len(reads) == 1):
            return False
        return all(_is_read_before_write(store, load) and
                   (not ancestors_of or load in ancestors_of[store])
                   for load in reads)

    return tuple([(w, r) for w, writes in stores.items() for r in readers
                  if len(writes) == 1 and safe(writes[0], r)])


def copied_slots(kernel: UOp) -> tuple[int, int] | None:
    """Return (written slot, read slot) of a kernel that copies a whole buffer, else None."""
    if len(kernel.src) != 1:
        return None
    store, = kernel.src
    value = accessors.value(store)
    if store.arg is not None or value.op is not ops.LOAD or len(value.src) + len(store.src) != 3:
        return None
    to, source = accessors.buffer(store), accessors.buffer(value)
    index = accessors.indices(store)
    whole = source.op is ops.REF and source.src == to.src and \
        index == accessors.indices(value) and \
        all(_covers_dim(i, n) for i, n in zip(index, to.src))
    return (to.arg.slot, source.arg.slot) if whole else None


def _covers_dim(index: UOp, length: UOp) -> bool:
    """Whether an index takes all values below a length, independently of the others."""
    return index.op is ops.RANGE and accessors.extent(index) is length or \
        length.op is ops.CONST and length.arg == 1


def _is_one_loop(kernel: UOp, nodes: Sequence[UOp]) -> bool:
    """Whether all stores are computed element by element in the same loops."""
    return all(s.ranges == kernel.src[0].ranges for s in kernel.src) and not any(
        n.op in (ops.REDUCE, ops.STAGE) or n.op in (ops.CMPLT, ops.CMPLE)
        and n.src[0].dtype.kind == "index" for n in nodes)


def _is_read_before_write(store: UOp, load: UOp) -> bool:
    """Whether each element is loaded no later than the iteration that overwrites it."""
    target, source = accessors.buffer(store), accessors.buffer(load)
    if target.src != source.src or target.dtype.itemsize != source.dtype.itemsize:
        return False
    pairs = list(zip(map(simplify, accessors.indices(store)),
                     map(simplify, accessors.indices(load))))
    if store.arg is None and all(a is b for a, b in pairs):
        return True
    determined = determined_ranges([a for a, b in pairs if a is b])
    loops = {r for r in store.ranges if build.const_of(accessors.extent(r)) != 1} \
        if all(accessors.extent(r).op is ops.CONST for r in store.ranges) else store.ranges
    return loops <= determined and load.ranges <= store.ranges
