"""Updates of a scatter, run by run: those of one element that follow each other, by one store.

    before  FOR i                           after   FOR _, i = start               a run
              p = index[i]                            BREAK stop <= i
              o[p] = o[p] + x[i]                      p, y = index[i], o[p] + x[i]
            ENDFOR                                    FOR j = i + 1 .. stop, sum = y
                                                        BREAK index[j] != p
                                                        next sum = sum + x[j]
                                                      ENDFOR
                                                      o[p] = sum
                                                    ENDFOR next i = j

A load of the element that was just stored waits for the store, which takes longer than the addition
in between. Indices in ascending order, as those of a sparse matrix by rows, repeat many times in a
row. Where they do not, the end of each run would be a branch that the processor predicts wrongly,
so samples decide each time: whether indices close to each other are equal. The order of additions
is the same either way.
"""

from __future__ import annotations

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.accessors import buffer, index_node, indices
from fnx.core.ir.uop import UOp, toposort
from fnx.lower.emit.builder import ProgramBuilder
from fnx.lower.emit.expansion import SINGLE_INSTANCE
from fnx.lower.emit.loop_nest import LoopNest, Statement
from fnx.lower.emit.stores import Write, expand_store
from fnx.lower.emit.values import Values

_SAMPLES, _DISTANCE = 4, 2


def find_update(inner: LoopNest, values: Values) -> UOp | None:
    """Return the STORE that is all that a loop does, if it combines with one element at a time, at
    an index that is loaded."""
    item = inner.body[0]
    if len(inner.body) > 1 or not isinstance(item, Statement) or item.node.op is not ops.STORE:
        return None
    store, memory = item.node, buffer(item.node)
    unrolled, lane, _ = values.expansions[store.ranges]
    if store.arg in (None, ops.STORE, ops.SCATTER) or memory.op is not ops.REF or unrolled \
            or lane is not None or not all(n.op is ops.CONST and build.const_of(n) > 0
                                           for n in accessors.dims(memory)):
        return None
    is_loaded = any(n.op is ops.LOAD and inner.range in n.ranges
                    for n in toposort([index_node(store)]))
    reads_result = any(n.op is ops.LOAD and buffer(n).arg == memory.arg
                       for n in toposort(store.src))
    return store if is_loaded and not reads_result else None


def sample(values: Values, store: UOp, r: UOp, start: UOp, stop: UOp) -> UOp | None:
    """Emit whether updates are likely to be of the same element as the one before; None: they are
    too few to tell."""
    lines, result = values.lines, None
    if not start.op is stop.op is ops.CONST:
        return None
    first, last = build.const_of(start), build.const_of(stop) - 1 - _DISTANCE
    if last - first < _SAMPLES * _DISTANCE:
        return None
    for k in range(_SAMPLES):
        at = first + k * (last - first) // (_SAMPLES - 1)
        for index in indices(store):
            a, b = [values.at(r, i, index) for i in (at, at + _DISTANCE)]
            result = lines.both(result, lines.add(ops.CMPEQ, dtypes.bool_, (a, b)))
    return result


def emit_runs(values: Values, store: UOp, r: UOp, start: UOp, stop: UOp) -> None:
    """Emit the updates of the iterations from ``start`` to ``stop`` of a range."""
    lines = values.lines
    counter = lines.open(start, stop)
    i = lines.phi(start)
    lines.put(ops.BREAK, dtypes.void, (counter, lines.add(ops.CMPLE, dtypes.bool_, (stop, i))))
    first = _write(values, store, r, i)
    pointer, offset = _offset(lines, first.address)
    t, end, safe = first.value.dtype, stop, offset
    following = lines.plus(i, 1)
    if first.condition is not None:  # an update out of bounds is a run of its own
        end, safe = [lines.add(ops.WHERE, dtypes.index, (first.condition, x, other))
                     for x, other in ((stop, following), (offset, build.index_const(0)))]
    old = lines.put(ops.LOAD, t, (lines.add(ops.ADDRESS, t, (pointer, safe), t.itemsize),))
    combine = store.arg
    loop = lines.open(following, end)
    after, total = [lines.phi(x) for x in (
        following, lines.apply_monoid(combine, old, first.value))]
    write = _write(values, store, r, loop)
    other = lines.add(ops.CMPNE, dtypes.bool_, (_offset(lines, write.address)[1], offset))
    if write.condition is not None:
        is_outside = lines.add(ops.NOT, dtypes.bool_, (write.condition,))
        other = lines.add(ops.OR, dtypes.bool_, (other, is_outside))
    lines.put(ops.BREAK, dtypes.void, (loop, other))
    after, total = lines.close([lines.plus(loop, 1),
                                lines.apply_monoid(combine, total, write.value, pinned=True)])
    branch = None if first.condition is None else lines.branch(first.condition)
    lines.put(ops.STORE, dtypes.void, (first.address, total))
    if branch is not None:
        lines.end_branch(branch)
    lines.close([after])


def _write(values: Values, store: UOp, r: UOp, counter: UOp) -> Write:
    """Compute the update of one iteration."""
    values.enter(r, counter)
    write, = expand_store(values, store, SINGLE_INSTANCE, None)
    values.leave(r)
    return write


def _offset(lines: ProgramBuilder, address: UOp) -> tuple[UOp, UOp]:
    """Return the pointer of an ADDRESS, and the offset from it in elements."""
    offset = build.index_const(0)
    while address.op is ops.ADDRESS:
        offset, address = lines.plus(offset, address.src[1]), address.src[0]
    return address, offset
