"""check_index: add results to a FUNCTION that report which of its indices were out of bounds.

    before  FUNCTION(GATHER(x, i))
    after   FUNCTION(GATHER(x, i), REDUCE(WHERE(i inside, NO_FAULT, i), MAX))

Runs only under ``config.check_index``, before all other passes. It covers every read and write at
indices that are data, also those of calls and gradients; user-written kernels report their own. A
loop carries the first fault of each index, with its iteration.

>>> from fnx.core.ir import build, dtypes
>>> x, i = build.param(0, dtypes.float32, (5,)), build.param(1, dtypes.int32, (3,))
>>> fn, checks = add_bounds_checks(build.function([build.gather(x, i)], 2))
>>> len(fn.src), checks[0].length
(2, 5)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.bounds_checks import NO_FAULT, BoundsCheck, access_faults, parse_check
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, copy_locs, rebuild, substitute
from fnx.lower.tensor.inline import inline

# [the fault, then the iteration of each enclosing loop, innermost first]
Fault = tuple[UOp, BoundsCheck]


def add_bounds_checks(fn: UOp) -> tuple[UOp, tuple[BoundsCheck, ...]]:
    """Return the FUNCTION with a fault as an extra result for each index, and a Check for each."""
    fn = inline(fn)
    outs, faults = _BoundsChecker(fn).check()
    checked = build.function([*outs, *(value for value, _ in faults)], fn.arg.n_params, fn.arg.name)
    return checked, tuple(c for _, c in faults)


class _BoundsChecker:
    """The results of a FUNCTION and the faults of the nodes in it; in a loop, faults are
    carries."""

    def __init__(self, fn: UOp) -> None:
        self.fn = fn
        self.faults: list[Fault] = []
        self.rebuilt: dict[UOp, dict[int, UOp]] = {}  # results of rebuilt nodes

    def check(self) -> tuple[tuple[UOp, ...], list[Fault]]:
        return tuple(rebuild(self.fn.src, self._visit)), self.faults

    def _visit(self, node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.GETTUPLE and node.src[0] in self.rebuilt:
            return self.rebuilt[node.src[0]][node.arg]
        check_body = _BODY_CHECKERS.get(node.op)
        if check_body is not None and src[0].op is ops.FUNCTION:
            bodies = [_BoundsChecker(body).check() for body in accessors.bodies(node)]
            if any(faults for _, faults in bodies):
                results, faults = check_body(node.with_operands(src), bodies)
                self.rebuilt[node] = {i: inherit_location(r, node) for i, r in results.items()}
                self.faults += faults
        elif node.op in _FAULT_RULES:
            current = node if src == node.src else copy_locs(node.with_operands(src), node)
            for value, check in _FAULT_RULES[node.op](current):
                origin = None if check.node is None else node  # the node learns its caller
                self.faults.append((build.reshape(value, (1,)), check.replace(node=origin)))
        return None


CheckedBody = tuple[tuple[UOp, ...], list[Fault]]
CheckedResults = tuple[dict[int, UOp], list[Fault]]


def inherit_location(result: UOp, node: UOp) -> UOp:
    """Return a result whose node takes over the source location of another one."""
    copy_locs(result.src[0], node)
    return result


def _check_loop(node: UOp, bodies: Sequence[CheckedBody]) -> CheckedResults:
    """Add the faults of the body as carries. Indices in a condition are not checked."""
    op, (step,), (outs, faults) = OpBodies(node), OpBodies(node).steps, bodies[-1]
    n, first = op.n_carries, op.n_consts + op.n_carries
    n_added = 1 + len(faults)  # new carries, before the xs
    shifted_params = {p: build.param(slot + n_added, p.dtype, p.shape)
                      for slot, p in build.params(step).items() if slot >= first}
    values = substitute([*outs, *[value for value, _ in faults]], shifted_params)
    added = _FaultCarries([(v, c) for v, (_, c) in zip(values[len(outs):], faults)], first,
                          accessors.loop_body_name(node))
    n_params = len(op.operands) + n_added
    checked = [build.function(c.src, n_params, c.arg.name) for c in op.conditions]
    checked.append(build.function([*values[:n], *added.next_values, *values[n:len(outs)]],
                                  n_params, step.arg.name))
    consts, carries, rest = op.split(op.operands)
    results = build.results(op.rebuild(checked, [consts, [*carries, *added.initial_values], rest]))
    return (dict(enumerate([*results[:n], *results[n + n_added:]])),
            added.faults(results[n:n + n_added]))


def _check_branches(node: UOp, bodies: Sequence[CheckedBody]) -> CheckedResults:
    """Return the faults of the branch taken, and none for the others."""
    op, faults = OpBodies(node), [fault for _, body_faults in bodies for fault in body_faults]
    branches = []
    offset = 0
    for (outs, branch_faults), branch in zip(bodies, op.steps):
        values = [build.const(NO_FAULT, dtypes.int32, value.shape) for value, _ in faults]
        values[offset:offset + len(branch_faults)] = [value for value, _ in branch_faults]
        offset += len(branch_faults)
        branches.append(build.function([*outs, *values], branch.arg.n_params, branch.arg.name))
    results = build.results(op.rebuild(branches, op.split(op.operands)))
    n = len(node.arg.outs)
    return dict(enumerate(results[:n])), [(v, c) for v, (_, c) in zip(results[n:], faults)]


_BODY_CHECKERS: dict[ops.Op, Callable[[UOp, Sequence[CheckedBody]], CheckedResults]] = {
    ops.SCAN: _check_loop, ops.WHILE: _check_loop, ops.COND: _check_branches,
    ops.CALL: _check_branches}


class _FaultCarries:
    """Extra carries of a loop: the number of iterations so far, and the first occurrence of each
    fault.

    Args:
        faults: the faults of an iteration.
        slot: the first free PARAM slot.
        name: the name of the loop.
    """

    def __init__(self, faults: Sequence[Fault], slot: int, name: str) -> None:
        self.count = 1 + len(faults)
        self.checks = [c.replace(loops=(*c.loops, name)) for _, c in faults]
        step = build.param(slot, dtypes.int32, ())
        self.initial_values = [build.const(0, dtypes.int32, ())]
        self.next_values = [build.add(step, build.const_like(step, 1))]
        for i, (value, _) in enumerate(faults):
            shape = (value.shape[0] + 1,)
            previous = build.param(slot + 1 + i, dtypes.int32, shape)
            current = build.concat([value, build.reshape(step, (1,))], 0)
            is_set = build.expand(build.shrink(previous, [(0, 1)]), shape)
            none_value = build.const_like(is_set, NO_FAULT)
            self.initial_values.append(build.const(NO_FAULT, dtypes.int32, shape))
            self.next_values.append(build.where(build.eq(is_set, none_value), current, previous))

    def faults(self, results: Sequence[UOp]) -> list[Fault]:
        """Return the faults of the loop, given the loop's results for these carries."""
        return list(zip(results[1:], self.checks))


def _call_faults(node: UOp) -> Iterator[Fault]:
    """Yield the faults that a user-written kernel writes into buffers named after checks."""
    kernel = node.src[0]
    if kernel.op is not ops.KERNEL:
        return
    for store in kernel.src:
        ref = store.src[0].src[0]
        check = parse_check(ref.arg.name, store.loc)
        if check is not None and store.arg is ops.MAX:
            value = UOp(ops.GETTUPLE, dtypes.int32, (node,), ref.arg.slot - len(node.src) + 1)
            yield build.reduce(value, ops.MAX, range(len(value.shape))), check


_FAULT_RULES = {ops.GATHER: access_faults, ops.SCATTER: access_faults, ops.CALL: _call_faults}
