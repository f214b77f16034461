"""Uniform control flow: branches and loops whose bodies use collectives.

    cond(p, f, g, x)    f uses a collective over a batch axis
      ->  where(p, y, z)    y = COND(any p, f(x), 0),  z = COND(any not p, g(x), 0)
    while_loop(c, f, x)    ->    WHILE(any own, own ? f(x) : x, c of that),  own = c(x)

If any batch element takes a branch, all elements run it. So a psum in f sums over all batch
elements, including those that do not take f: they select another result, and their effects are
masked. Whether f runs is the same for all elements, however they are batched. The derivative is
that of a select, so it reaches every element whose x contributed.
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
    """Return the named axes over which FUNCTIONs use collectives, outermost first."""
    if not scope.axes():
        return []
    found = frozenset[Axis]().union(*map(named_axes, functions))
    return sorted(found, key=lambda axis: axis.depth)


def anywhere(holds: UOp, axes: Collection[Axis]) -> UOp:
    """Return whether a bool scalar holds in any batch element along some axes."""
    for axis in axes:
        holds = build.reduce(build.all_gather(holds, axis), ops.OR, (0,))
    return holds


def _select(own: UOp, a: UOp, b: UOp) -> UOp:
    return build.where(build.expand(own, a.shape), a, b)


def choose(branches: Sequence[UOp], which: UOp, args: Sequence[UOp], token: int | None,
           axes: Collection[Axis]) -> list[UOp]:
    """Run each branch that any batch element takes, and select each element's own results.

    Args:
        branches: FUNCTIONs of the operands, at least one of which uses a collective.
        which: the element's branch index, an int32 scalar that is clamped.
        args: the operands.
        token: the position of the token among the operands; it is also the first result. None
            without effects.
        axes: the axes of the collectives.
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
    """Return the final carry of a loop that evaluates its condition within each step.

        WHILE(go, (c(f(x)), f(x)), (c(x), x))

    An inactive batch element keeps its carry. It becomes active again if its condition holds
    again, which a collective in the condition can bring about.

    Args:
        test: a FUNCTION (consts, carry) -> bool; with effects, a token comes before the bool.
        step: a FUNCTION (consts, carry) -> carry.
        consts: the loop-invariant operands.
        carry: the initial carry; it starts with the token if test or step has effects.
        effects: whether test has effects, and whether step has.
        axes: the axes of the collectives: the loop runs while any element along them is active.
    """
    first = int(any(effects))  # number of tokens

    def called(fn: UOp, consts: Nodes, carry: Nodes, own: UOp | None, loud: bool) -> list[UOp]:
        """Call fn; return its results, with a token in front if the carry has one."""
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
