"""Ops with bodies, seen in one way: which operands a body takes, what carries, what comes out.

    op       selector   consts      carries      rest                 steps           conditions
    CALL                operands                                      the function
    COND     index      operands                                      the branches
    SCAN                n_consts    n_carries    xs, row by row       the body
    WHILE               n_consts    the others                        the body        one
    CUSTOM              captures                 the arguments        the function

A body takes consts, carries and rest, in this order. A step returns the next carries, then other
results, which a SCAN stacks. So a pass says once what it does with bodies:

>>> from fnx.core.ir import build_calls
>>> c, x = (build.param(i, dtypes.float32, ()) for i in (0, 1))
>>> step = build.function([build.add(c, x), build.mul(c, x)], 2, "step")
>>> xs = build.param(1, dtypes.float32, (8,))
>>> last, ys = build_calls.scan(step, 8, [], [c], [xs])
>>> scan = OpBodies(last.src[0])
>>> scan.steps == (step,), scan.split(scan.operands) == ((), (c,), (xs,))
(True, True)
>>> scan.rebuild([step], [[], [build.neg(c)], [xs]]).arg == last.src[0].arg
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.uop import UOp, rebuild, toposort

T = TypeVar("T")

# The fields of the arg that count the consts and the carries.
_COUNTS = {ops.SCAN: ("n_consts", "n_carries"), ops.WHILE: ("n_consts",),
           ops.CUSTOM: ("n_captures",)}


class OpBodies:
    """The view of one op with bodies (ops.HIGHER_ORDER).

    Attributes:
        bodies: all its FUNCTIONs; none if it calls a KERNEL.
        steps: the bodies that compute its results; several: one of them is selected.
        conditions: the bodies that decide whether there is another step.
        selector: the index of the step, if there are several.
        operands: the operands that the bodies take.
        n_consts: the number of operands that each step takes as they are.
        n_carries: the number of operands that each step replaces, after the consts.
    """

    def __init__(self, node: UOp) -> None:
        op, arg = node.op, node.arg
        self.node, self.bodies = node, accessors.bodies(node)
        n_conditions, n_selectors = int(op is ops.WHILE), int(op is ops.COND)
        self.conditions = self.bodies[:n_conditions]
        self.steps = self.bodies[:1] if op is ops.CUSTOM else self.bodies[n_conditions:]
        operands = accessors.operands(node)
        self.selector, self.operands = operands[:n_selectors], operands[n_selectors:]
        counts = [getattr(arg, field) for field in _COUNTS.get(op, ())]
        self.n_consts: int = counts[0] if counts else len(self.operands)
        self.n_carries: int = len(arg.outs) if op is ops.WHILE else sum(counts[1:])

    def split(self, values: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
        """Split a value for each of the operands into those of consts, carries and rest."""
        end = self.n_consts + self.n_carries
        return values[:self.n_consts], values[self.n_consts:end], values[end:]

    def params(self, groups: Sequence[Sequence[UOp]]) -> list[UOp]:
        """Return PARAM 0, 1, ... of a body that takes these consts, carries and rest."""
        rows_from = len(groups[0]) + len(groups[1]) if self.node.op is ops.SCAN else 1 << 60
        return [build.param(i, x.dtype, x.shape[1:] if i >= rows_from else x.shape)
                for i, x in enumerate([x for group in groups for x in group])]

    def live_results(self, read: Iterable[int]) -> list[int]:
        """Return the results of a loop that are read, and the carries that they or a condition
        depend on after any number of steps."""
        step, = self.steps
        live = set(read)
        waiting = [*[out for condition in self.conditions for out in condition.src],
                   *[step.src[o] for o in live]]
        while waiting:
            slots = {n.arg.slot - self.n_consts for n in toposort([waiting.pop()])
                     if n.op is ops.PARAM}
            carries = slots.intersection(range(self.n_carries)) - live
            live |= carries
            waiting += [step.src[o] for o in carries]
        return sorted(live)

    def rebuild(self, bodies: Sequence[UOp], groups: Sequence[Sequence[UOp]], name: str = "",
                selector: Sequence[UOp] | None = None) -> UOp:
        """Return the op with other bodies, on other consts, carries and rest."""
        op, arg = self.node.op, self.node.arg
        outs = [(o.shape, o.dtype) for o in bodies[len(self.conditions)].src]
        if op is ops.SCAN:
            n = len(groups[1])
            outs[n:] = [((arg.length, *shape), dtype) for shape, dtype in outs[n:]]
        counts = dict(zip(_COUNTS.get(op, ()), map(len, groups)))
        src = (*bodies, *(self.selector if selector is None else selector),
               *[x for group in groups for x in group])
        return UOp(op, dtypes.void, src,
                   arg.replace(name=name or arg.name, outs=tuple(outs), **counts))


Results = Sequence[UOp] | Mapping[int, UOp]  # those of an op, by their numbers


def replace_results(outs: Sequence[UOp], replace: Callable[[UOp, tuple[UOp, ...]], Results | None]
                    ) -> list[UOp]:
    """Replace the results of some ops with several results in the graph of ``outs``.

    ``replace`` takes such an op and its operands in the new graph; it returns the results to read
    instead, or None to keep the op.
    """
    replaced: dict[UOp, Results] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.GETTUPLE and node.src[0] in replaced:
            return replaced[node.src[0]][node.arg]
        results = replace(node, src) if node.op in ops.MULTI_RESULT else None
        if results is None:
            return None
        replaced[node] = results
        return node  # dead: its results are replaced
    return rebuild(outs, visit)
