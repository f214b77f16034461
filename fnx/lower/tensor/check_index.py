"""check_index: add results to a FUNCTION that report which of its indices were out of bounds.

    before  FUNCTION(GATHER(x, i))
    after   FUNCTION(GATHER(x, i), REDUCE(WHERE(i inside, NONE, i), MAX))

Runs only under ``config.check_index``, before all other passes. It covers every read and write at
indices that are data, also those of calls and gradients; user-written kernels report their own. A
loop carries the first fault of each index, with its iteration.

>>> from fnx.core import build, dtypes
>>> x, i = build.param(0, dtypes.float32, (5,)), build.param(1, dtypes.int32, (3,))
>>> fn, checks = check_index(build.function([build.gather(x, i)], 2))
>>> len(fn.src), checks[0].length
(2, 5)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from fnx.core import build, build_calls, dtypes, ops, parts
from fnx.core.index_faults import NONE, Check, fault, named
from fnx.core.uop import UOp, inherit, rebuild, substitute
from fnx.lower.tensor.inline import inline

Fault = tuple[UOp, Check]  # [the fault, then the iteration of each enclosing loop, innermost first]


def check_index(fn: UOp) -> tuple[UOp, tuple[Check, ...]]:
    """Return the FUNCTION with a fault as an extra result for each index, and a Check for each."""
    fn = inline(fn)
    outs, faults = _Checked(fn).found()
    made = build.function([*outs, *(value for value, _ in faults)], fn.arg.n_params, fn.arg.name)
    return made, tuple(c for _, c in faults)


class _Checked:
    """The results of a FUNCTION and the faults of the nodes in it; in a loop, faults are
    carries."""

    def __init__(self, fn: UOp) -> None:
        self.fn = fn
        self.faults: list[Fault] = []
        self.made: dict[UOp, dict[int, UOp]] = {}  # results of rebuilt nodes

    def found(self) -> tuple[tuple[UOp, ...], list[Fault]]:
        return tuple(rebuild(self.fn.src, self._visit)), self.faults

    def _visit(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.GET and node.src[0] in self.made:
            return self.made[node.src[0]][node.arg]
        with_body = _BODIES.get(node.op)
        if with_body is not None and src[0].op is ops.FUNCTION:
            bodies = [_Checked(body).found() for body in parts.bodies(node)]
            if any(faults for _, faults in bodies):
                results, faults = with_body(node.over(src), bodies)
                self.made[node] = {i: inherit_site(r, node) for i, r in results.items()}
                self.faults += faults
        elif node.op in _FAULTS:
            now = node if src == node.src else inherit(node.over(src), node)
            for value, check in _FAULTS[node.op](now):
                of = None if check.node is None else node  # the node learns its caller
                self.faults.append((build.reshape(value, (1,)), check.replace(node=of)))
        return None


CheckedBody = tuple[tuple[UOp, ...], list[Fault]]
Again = tuple[dict[int, UOp], list[Fault]]


def inherit_site(result: UOp, node: UOp) -> UOp:
    """Return a result whose node takes over the source location of another one."""
    inherit(result.src[0], node)
    return result


def _in_scan(node: UOp, bodies: Sequence[CheckedBody]) -> Again:
    (outs, faults), arg = bodies[0], node.arg
    first = arg.n_consts + arg.n_carries
    more = 1 + len(faults)  # new carries, before the xs
    moved = {p: build.param(slot + more, p.dtype, p.shape)
             for slot, p in build.params(node.src[0]).items() if slot >= first}
    values = substitute([*outs, *[value for value, _ in faults]], moved)
    carried = _Carried([(v, c) for v, (_, c) in zip(values[len(outs):], faults)], first, arg.name)
    body = build.function([*values[:arg.n_carries], *carried.nexts,
                           *values[arg.n_carries:len(outs)]],
                          node.src[0].arg.n_params + more, node.src[0].arg.name)
    operands = parts.operands(node)
    made = build_calls.scan(body, arg.length, operands[:arg.n_consts],
                            [*operands[arg.n_consts:first], *carried.inits], operands[first:],
                            arg.reverse, arg.name, arg.checkpoint)
    ends = arg.n_carries, arg.n_carries + more
    kept = [*made[:ends[0]], *made[ends[1]:]]
    return dict(enumerate(kept)), carried.faults(made[ends[0]:ends[1]])


def _in_while(node: UOp, bodies: Sequence[CheckedBody]) -> Again:
    """Add the faults of the body as carries. Indices in the condition are not checked."""
    (outs, faults), arg = bodies[1], node.arg
    operands = parts.operands(node)
    carried = _Carried(faults, len(operands), arg.name)
    test, step = parts.bodies(node)
    more = len(operands) + carried.count
    made = build_calls.while_(build.function(test.src, more, test.arg.name),
                              build.function([*outs, *carried.nexts], more, step.arg.name),
                              operands[:arg.n_consts],
                              [*operands[arg.n_consts:], *carried.inits], arg.name)
    return dict(enumerate(made[:len(outs)])), carried.faults(made[len(outs):])


def _in_cond(node: UOp, bodies: Sequence[CheckedBody]) -> Again:
    """Return the faults of the branch taken, and none for the others."""
    faults = [fault for _, found in bodies for fault in found]
    branches = []
    before = 0
    for (outs, found), branch in zip(bodies, parts.bodies(node)):
        values = [build.const(NONE, dtypes.int32, value.shape) for value, _ in faults]
        values[before:before + len(found)] = [value for value, _ in found]
        before += len(found)
        branches.append(build.function([*outs, *values], branch.arg.n_params, branch.arg.name))
    which, *operands = node.src[len(branches):]
    made = build_calls.cond(branches, which, operands, node.arg.name)
    n = len(made) - len(faults)
    return dict(enumerate(made[:n])), [(v, c) for v, (_, c) in zip(made[n:], faults)]


def _in_call(node: UOp, bodies: Sequence[CheckedBody]) -> Again:
    (outs, faults), fn = bodies[0], node.src[0]
    body = build.function([*outs, *[value for value, _ in faults]], fn.arg.n_params, fn.arg.name)
    made = build_calls.call(body, node.src[1:], node.arg.name, node.arg.policy)
    return dict(enumerate(made[:len(outs)])), [
        (v, c) for v, (_, c) in zip(made[len(outs):], faults)]


_BODIES: dict[ops.Op, Callable[[UOp, Sequence[CheckedBody]], Again]] = {
    ops.SCAN: _in_scan, ops.WHILE: _in_while, ops.COND: _in_cond, ops.CALL: _in_call}


class _Carried:
    """Extra carries of a loop: the number of iterations so far, and the first occurrence of each
    fault.

    Args:
        found: the faults of an iteration.
        slot: the first free PARAM slot.
        name: the name of the loop.
    """

    def __init__(self, found: Sequence[Fault], slot: int, name: str) -> None:
        self.count = 1 + len(found)
        self.checks = [c.replace(loops=(*c.loops, name)) for _, c in found]
        step = build.param(slot, dtypes.int32, ())
        self.inits = [build.const(0, dtypes.int32, ())]
        self.nexts = [build.add(step, build.like(step, 1))]
        for k, (value, _) in enumerate(found):
            shape = (value.shape[0] + 1,)
            before = build.param(slot + 1 + k, dtypes.int32, shape)
            now = build.concat([value, build.reshape(step, (1,))], 0)
            was = build.expand(build.shrink(before, [(0, 1)]), shape)
            none = build.like(was, NONE)
            self.inits.append(build.const(NONE, dtypes.int32, shape))
            self.nexts.append(build.where(build.eq(was, none), now, before))

    def faults(self, results: Sequence[UOp]) -> list[Fault]:
        """Return the faults of the loop, given the loop's results for these carries."""
        return list(zip(results[1:], self.checks))


def _of_indices(node: UOp) -> Iterator[Fault]:
    x, *indices = node.src
    what = "read"
    if node.op is ops.SCATTER:
        what = "write"
        del indices[-1]
    lanes = sum(i.op is ops.STOP for i in indices)  # batch axes that batching put in front
    for axis, i in zip(node.arg.axes, indices):
        if not math.prod(i.shape) or i.op is ops.STOP:
            continue
        n = x.shape[axis]
        i = _before_clamping(i, n)
        shown = _before_wrapping(i)
        value = fault(i, n, shown)
        check = Check(what, axis - lanes, n, None, shown is not None, node)
        yield build.reduce(value, ops.MAX, range(len(value.shape))), check


def _before_clamping(i: UOp, n: int) -> UOp:
    """Return e of ``min(max(e, 0), n - 1)``: a read of one element clamps its index."""
    moved = []
    inner = i
    while inner.op in (ops.EXPAND, ops.RESHAPE):
        moved.append(inner)
        inner = inner.src[0]
    for op, bound in ((ops.MIN, n - 1), (ops.MAX, 0)):
        if inner.op is not op or build.like(inner, bound) not in inner.src:
            return i
        inner = next(s for s in inner.src if s is not build.like(inner, bound))
    for m in reversed(moved):
        inner = m.replace(src=(inner, *m.src[1:]))
    return inner


def _before_wrapping(i: UOp) -> UOp | None:
    """Return e of ``where(e < 0, e + n, e)``: the index as the user wrote it."""
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
    """Yield the faults that a user-written kernel writes into buffers named after checks."""
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
