"""Branches and loops that ask for other lanes: where one lane takes part, all do.

    cond(p, f, g, x)    f asks for the lanes of an axis
      ->  where(p, y, z)    y = COND(any lane's p, f(x), 0),  z = COND(any lane's not p, g(x), 0)
    while_loop(c, f, x)    ->    WHILE(any lane's own, own ? f(x) : x, c of that),  own = c(x)

So psum in f is the sum over all lanes of what f computes of their x, also of lanes that do not
take f: they hand on something else, and have no effects. Whether f is run is the same for all
lanes, however they are batched; and the derivative, which is that of a choice between values,
reaches all whose x took part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fnx.core import build, build_calls, ops
from fnx.core.array import scope
from fnx.core.bodies import Nodes, while_over
from fnx.core.expr import Expr, clamped
from fnx.core.op_args import Axis
from fnx.core.uop import UOp
from fnx.transforms.batching.choices import if_any
from fnx.transforms.batching.guard import guarded
from fnx.transforms.batching.values import named_axes


def asked(functions: Sequence[UOp]) -> list[Axis]:
    """The named axes whose lanes FUNCTIONs ask for, the outermost first."""
    if not scope.axes():
        return []
    found = frozenset[Axis]().union(*map(named_axes, functions))
    return sorted(found, key=lambda axis: axis.depth)


def anywhere(holds: UOp, axes: Collection[Axis]) -> UOp:
    """Whether a bool scalar holds in any lane of some axes."""
    for axis in axes:
        holds = build.reduce(build.all_gather(holds, axis), ops.OR, (0,))
    return holds


def _select(own: UOp, a: UOp, b: UOp) -> UOp:
    return build.where(build.expand(own, a.shape), a, b)


def choose(branches: Sequence[UOp], which: UOp, args: Sequence[UOp], token: int | None,
           axes: Collection[Axis]) -> list[UOp]:
    """The results of the branch that a lane takes, of those that any lane takes.

    Args:
        branches: FUNCTIONs of the operands, at least one of which asks for other lanes.
        which: int32, the number of the lane's own, which is clamped.
        args: the operands.
        token: which operand is the token, and then the first result; None without effects.
        axes: that are asked for.
    """
    last = len(branches) - 1
    number = clamped(Expr(which), 0, last)
    given, out = list(args), list[UOp]()
    for i, branch in enumerate(branches):
        own = number.eq(i).node
        if token is None:
            found = list(if_any(anywhere(own, axes), branch, given, branch.arg.name))
        else:
            found = list(if_any(anywhere(own, axes), guarded(branch), [*given, own],
                                branch.arg.name))
            given[token] = found[0]
        effects = int(token is not None)
        chosen = [_select(own, a, b) for a, b in zip(found[effects:], out[effects:])]
        out = [*found[:effects], *chosen] if out else found
    return out


def loop(test: UOp, step: UOp, consts: Nodes, carry: Nodes, effects: tuple[bool, bool],
         axes: Collection[Axis] = ()) -> tuple[UOp, ...]:
    """The last carry of a loop whose condition is a part of each step.

        WHILE(go, (c(f(x)), f(x)), (c(x), x))

    A lane that has ended keeps what it has, and goes on where its condition holds again, which
    another lane may bring about.

    Args:
        test: a FUNCTION (consts, carry) -> bool; with effects also, in front, the token.
        step: a FUNCTION (consts, carry) -> carry.
        consts: what is the same in all steps.
        carry: before the first step; the token is the first of it, where one has effects.
        effects: whether test has any, and whether step does.
        axes: whose lanes are asked for: the loop goes on as long as any of them does.
    """
    first = int(any(effects))  # what is no token

    def called(fn: UOp, consts: Nodes, carry: Nodes, own: UOp | None, loud: bool) -> list[UOp]:
        """The results, with a token in front if the carry has one."""
        if loud and own is not None:
            found = build_calls.call(guarded(fn), [*consts, *carry, own], fn.arg.name)
        else:
            found = build_calls.call(fn, [*consts, *carry])
        return list(found) if loud else [*carry[:first], *found]

    def steps(consts: Nodes, carry: Nodes) -> Nodes:
        go, *before = carry
        own = go if axes else None
        after = called(step, consts, before, own, effects[1])
        if own is not None:
            after[first:] = [_select(own, a, b) for a, b in zip(after[first:], before[first:])]
        *token, still = called(test, consts, after, own, effects[0])
        return [still, *token, *after[first:]]

    *token, go = called(test, consts, carry, None, effects[0])
    return while_over(lambda consts, carry: anywhere(carry[0], axes), steps, consts,
                      [go, *token, *carry[first:]], name=step.arg.name)[1:]
