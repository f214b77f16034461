"""In-place updates: find which results of a kernel may overwrite an operand.

    o[i] = x[i] + y[i]                 over x, or over y
    o[i, j] = max(j: x[i, j]) + ...    over neither: a row is read again for each element, maybe
    o[n, j] = x[clamped n, j] * 2      over x: one row is written, element by element

Of a tiled kernel more is known (``aliasable_rows``): the order of its loops.

    for i:  m = max(k: x[i, k])                        over x: the row was read when its first
            for j:  o[i, j] = exp(x[i, j] - m)         element is written

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

**Donation**: which results may reuse the memory of donated parameters.

    before  step(p, x) -> p - x, sum(p)       p is donated
    after   out 0 may be written over p

These pairs are candidates only: lower/memory/buffer_sharing.py proves that nothing is read after it
was overwritten. A result that is a partial update of a parameter, or carried by a loop from it, is
tried with that parameter first; then results and parameters of one type are paired in order.

**Partial updates**: a select over a donated or carried parameter becomes a SCATTER of the written
block.

    before  out 0 = WHERE(PAD(True), PAD(v), x)        x is carried by a loop, or donated
    after   out 0 = SCATTER(x, 3 + IOTA(1), v)         x.at[:, 3].set(v): a column is written

If x is computed, the select is fused into that; if x stays live, all of it is copied anyway.
The cost is counted in cache lines: those of the block and of the values written there, compared
with those of the whole array.

>>> x, v = build.param(0, dtypes.float32, (64, 64)), build.param(1, dtypes.float32, (1, 64))
>>> mask = build.const(True, dtypes.bool_, (1, 64))
>>> there, values = (build.pad(n, [(3, 60), (0, 0)]) for n in (mask, v))
>>> fn = build.function([build.where(there, values, x)], 2)
>>> scatter_updates(fn, fn.src, [(0, 0)]).src[0].op
SCATTER
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr
from fnx.core.ir.index_arrays import broadcast_indices, index_range
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, rebuild_results, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.rewrite import underlying_const
from fnx.core.rewriting.symbolic import simplify
from fnx.core.support.range_kinds import ID_KINDS, PARALLEL_KINDS
from fnx.lower.analysis.workload import determined_ranges
from fnx.lower.fusion.group import memory_of


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


def aliasable_rows(kernel: UOp) -> tuple[tuple[int, int], ...]:
    """Return (written slot, read-only slot) pairs of a tiled kernel that may share one buffer, as
    reductions and STAGEs read each row of it before the STORE writes there."""
    nodes = toposort([kernel])
    if len(kernel.src) != 1 or any(n.op in (ops.LOOP, ops.MMA) or n.op is ops.RANGE
                                   and n.arg.kind in ID_KINDS for n in nodes):
        return ()
    store, = kernel.src
    early, late = _rows_read_first(store, {id: i for i, id in enumerate(kernel.arg.order)})
    target = accessors.buffer(store)
    others = dict.fromkeys([accessors.buffer(n) for n in nodes if n.op is ops.LOAD])
    return tuple([(target.arg.slot, ref.arg.slot) for ref in others if ref is not target
                  and early and store.arg is None and ref.op is ops.REF
                  and ref.src == target.src and ref.dtype.itemsize == target.dtype.itemsize
                  and all(_same_dims(store, n) == [*range(len(ref.src))]
                          for n in late if accessors.buffer(n) is ref)
                  and all(_is_row(store, n, loops) for n, loops in early
                          if accessors.buffer(n) is ref)])


_Loads = list[UOp]


def _rows_read_first(store: UOp, position: Mapping[int, int]
                     ) -> tuple[list[tuple[UOp, frozenset[UOp]]], _Loads]:
    """Return the LOADs that are complete, in an iteration of some loops, before the STORE is run in
    it, with these loops; and the other LOADs."""
    early: list[tuple[UOp, frozenset[UOp]]] = []
    late: _Loads = []
    stack, seen = [store], {store}
    while stack:
        node = stack.pop()
        if node.op in (ops.REDUCE, ops.STAGE) and _is_complete_before(node, store, position):
            early += [(n, _loops(node)) for n in toposort([node]) if n.op is ops.LOAD]
            continue
        if node.op is ops.LOAD:
            late.append(node)
        stack += [s for s in node.src if s not in seen]
        seen.update(node.src)
    return early, late


def _is_complete_before(node: UOp, store: UOp, position: Mapping[int, int]) -> bool:
    """Whether the inner loops of a STORE come after a REDUCE or STAGE, which is in its outer
    ones."""
    outer = _loops(node)
    last = max([position[r.arg.id] for r in outer], default=-1)
    return outer <= store.ranges and not any(
        r.arg.kind in PARALLEL_KINDS or position[r.arg.id] < last
        for r in _loops(store) - outer)


def _loops(node: UOp) -> frozenset[UOp]:
    return frozenset([r for r in node.ranges if build.const_of(accessors.extent(r)) != 1]) \
        if all(accessors.extent(r).op is ops.CONST for r in node.ranges) else node.ranges


def _same_dims(store: UOp, load: UOp) -> list[int]:
    """Return the dimensions in which both have the same index."""
    return [i for i, (a, b) in enumerate(zip(accessors.indices(store), accessors.indices(load)))
            if simplify(a) is simplify(b)]


def _is_row(store: UOp, load: UOp, loops: frozenset[UOp]) -> bool:
    """Whether other iterations of some loops write elsewhere than a LOAD reads in one."""
    blocks = [_block(a, loops) for a, b in zip(accessors.indices(store), accessors.indices(load))
              if _block(a, loops) is _block(b, loops)]
    return loops <= determined_ranges(blocks)


def _block(index: UOp, loops: frozenset[UOp]) -> UOp:
    """Return the first index that inner loops make in an iteration of some loops, if they stay
    below that of the next: 16*i of 16*i + r for r < 16. Else the index itself."""
    inner = index.ranges - loops
    first, = substitute([index], dict.fromkeys(inner, build.index_const(0)))
    lowest, last = symbolic.bounds(symbolic.simplify((Expr(index) - Expr(first)).node))
    steps = [symbolic.coefficient(first, r) for r in index.ranges & loops]
    is_block = inner and steps and lowest == 0 and all(
        isinstance(n, int) and n > last for n in steps)
    return simplify(first if is_block else index)


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
    return _loops(store) <= determined and load.ranges <= store.ranges


# ---- donation -----------------------------------------------------------------------------------


ResultParamPairs = tuple[tuple[int, int], ...]  # (result, parameter)
_MAX_TRIES = 4  # number of same-typed parameters tried for a result


def donated_pairs(fn: UOp, results: Sequence[UOp], donated: Collection[int]) -> ResultParamPairs:
    """Return (result number, parameter slot) pairs that may share memory.

    Args:
        fn: a FUNCTION.
        results: its distinct results (``unique_results``).
        donated: slots of the donated parameters.

    >>> from fnx.core.ir import dtypes
    >>> p, q = (build.param(i, dtypes.float32, (3,)) for i in range(2))
    >>> fn = build.function([build.neg(q), build.neg(p)], 2)
    >>> donated_pairs(fn, fn.src, (0,))
    ((0, 0), (1, 0))
    """
    if not donated:
        return ()
    returned_slots = {memory_of(out).arg.slot for out in fn.src if memory_of(out).op is ops.PARAM}
    params = {s: p for s, p in build.params(fn).items() if s in donated and s not in returned_slots}
    return tuple(dict.fromkeys([*_update_pairs(results, params),
                                *_same_type_pairs(results, params)]))


def _update_pairs(results: Sequence[UOp], params: dict[int, UOp]) -> Iterator[tuple[int, int]]:
    for i, result in enumerate(results):
        base = updated_parameter(result)
        if base in params and _type_of(params[base]) == _type_of(result):
            yield i, base


def _same_type_pairs(results: Sequence[UOp], params: dict[int, UOp]) -> Iterator[tuple[int, int]]:
    of_type: dict[tuple[DType, int], list[int]] = {}
    for slot, p in sorted(params.items()):
        of_type.setdefault(_type_of(p), []).append(slot)
    counts: dict[tuple[DType, int], int] = {}
    for i, result in enumerate(results):
        kind = _type_of(result)
        slots = of_type.get(kind, [])
        position = counts[kind] = counts.get(kind, -1) + 1
        rotated = [*slots[position % len(slots):], *slots[:position % len(slots)]] if slots else []
        for slot in rotated[:_MAX_TRIES]:
            yield i, slot


def _type_of(node: UOp) -> tuple[DType, int]:
    """Return dtype and number of elements: equal byte counts alone do not suffice."""
    return node.dtype, math.prod(node.shape)


def updated_parameter(node: UOp) -> int | None:
    """Return the slot of the parameter that a node updates, looking through loop carries."""
    below, _ = update_base(node)
    if below.op is not ops.PARAM:
        return None
    slot: int = below.arg.slot
    return slot


# ---- partial updates ----------------------------------------------------------------------------


_LINE_BYTES = 64  # bytes of a cache line


def scatter_updates(fn: UOp, results: Sequence[UOp], carried: Iterable[tuple[int, int]]) -> UOp:
    """Rewrite the results that may overwrite a parameter to write only the changed blocks.

    Args:
        fn: a FUNCTION.
        results: its distinct results.
        carried: (result number, parameter slot) pairs.
    """
    selects: dict[UOp, UOp] = {}
    for result, slot in carried:
        base, writes = update_base(results[result])
        if base.op is ops.PARAM and base.arg.slot == slot:
            selects.update((node, node)
                           for node in writes if node.op is ops.WHERE and _is_profitable(node))
    if not selects:
        return fn

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _to_scatter(node, src) if node in selects else None

    return rebuild_results(fn, visit)


def update_base(node: UOp) -> tuple[UOp, list[UOp]]:
    """Return the base that a node updates, looking through loop carries, and the updates."""
    writes: list[UOp] = []
    while True:
        if node.op is ops.GETTUPLE and node.src[0].op in ops.HIGHER_ORDER:
            op = OpBodies(node.src[0])
            if node.arg >= op.n_carries:
                return node, writes
            node = op.operands[op.n_consts + node.arg]
        elif node.op in (ops.STOP_GRADIENT, ops.RESHAPE):
            node = node.src[0]
        elif node.op is ops.SCATTER or written_block(node) is not None:
            writes.append(node)
            node = node.src[0 if node.op is ops.SCATTER else 2]
        else:
            return node, writes


def written_block(node: UOp) -> tuple[tuple[int, int], ...] | None:
    """Return the (begin, end) of the block that a WHERE writes, per axis; None for other nodes."""
    if node.op is not ops.WHERE or node.src[0].op is not ops.PAD:
        return None
    mask, outside = node.src[0].src
    inside = underlying_const(mask)
    if inside is None or not inside.arg or outside.arg:
        return None
    return tuple([(low, low + n) for (low, _), n in zip(node.src[0].arg, mask.shape)])


def _is_profitable(node: UOp) -> bool:
    block = written_block(node)
    assert block is not None
    shape, size = tuple([high - low for low, high in block]), node.dtype.itemsize
    lines = math.prod(shape) // _contiguous_elements(shape, node.shape) * \
        _line_count(_contiguous_elements(shape, node.shape) * size)
    return lines + _line_count(math.prod(shape) * size) < _line_count(math.prod(node.shape) * size)


def _contiguous_elements(block: Shape, shape: Shape) -> int:
    """Return how many elements of a block are contiguous in memory."""
    run = 1
    for n, whole in zip(reversed(block), reversed(shape)):
        run *= n
        if n < whole:
            break
    return run


def _line_count(size: int) -> int:
    return -(-size // _LINE_BYTES)


def _to_scatter(node: UOp, src: Sequence[UOp]) -> UOp:
    block = written_block(node)
    assert block is not None
    _, values, x = src
    full_axes = [a for a, bounds in enumerate(block) if bounds == (0, x.shape[a])]
    first, *cut_axes = [a for a in range(len(block)) if a not in full_axes]
    indices_by_axis = {a: index_range(block[a][0], 1, block[a][1] - block[a][0], x.shape[a])
                       for a in (first, *cut_axes)}
    index = broadcast_indices({first: indices_by_axis.pop(first)}, indices_by_axis)
    if values.op is ops.PAD and values.arg == node.src[0].arg:
        values = values.src[0]
    else:
        values = build.shrink(values, block)
    values = build.permute(values, (first, *cut_axes, *full_axes))
    return build.scatter(x, [*index.values()], values, None, [*index])
