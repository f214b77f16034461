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

from fnx.core.ir import build, build_calls, build_named_axes, ops
from fnx.core.ir.build_calls import Nodes, build_while
from fnx.core.ir.op_args import Axis
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.transforms.batching.mask_effects import mask_effects
from fnx.transforms.batching.patterns import named_axes
from fnx.transforms.batching.predication import if_any


def collective_axes(functions: Sequence[UOp]) -> list[Axis]:
    """Return the named axes over which FUNCTIONs use collectives, outermost first."""
    if not scope.open_axes():
        return []
    axes = frozenset[Axis]().union(*map(named_axes, functions))
    return sorted(axes, key=lambda axis: axis.depth)


def any_element(condition: UOp, axes: Collection[Axis]) -> UOp:
    """Return whether a bool scalar holds in any batch element along some axes."""
    for axis in axes:
        condition = build.reduce(build_named_axes.all_gather(condition, axis), ops.OR, (0,))
    return condition


def _select(mask: UOp, a: UOp, b: UOp) -> UOp:
    return build.where(build.expand(mask, a.shape), a, b)


def cond(branches: Sequence[UOp], which: UOp, args: Sequence[UOp], token: int | None,
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
    operands, out = list(args), list[UOp]()
    for i, branch in enumerate(branches):
        taken = build_calls.takes_branch(which, i, len(branches))
        if token is None:
            results = list(if_any(any_element(taken, axes), branch, operands, branch.arg.name))
        else:
            results = list(if_any(any_element(taken, axes), mask_effects(branch),
                                  [*operands, taken], branch.arg.name))
            operands[token] = results[0]
        effects = int(token is not None)
        selected = [_select(taken, a, b) for a, b in zip(results[effects:], out[effects:])]
        out = [*results[:effects], *selected] if out else results
    return out


def while_loop(test: UOp, step: UOp, consts: Nodes, carry: Nodes, effects: tuple[bool, bool],
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

    def call(fn: UOp, consts: Nodes, carry: Nodes, mask: UOp | None, has_token: bool) -> list[UOp]:
        """Call fn; return its results, with a token in front if the carry has one."""
        if has_token and mask is not None:
            results = build_calls.call(mask_effects(fn), [*consts, *carry, mask], fn.arg.name)
        else:
            results = build_calls.call(fn, [*consts, *carry])
        return list(results) if has_token else [*carry[:first], *results]

    def steps(consts: Nodes, carry: Nodes) -> Nodes:
        go, *before = carry
        mask = go if axes else None
        after = call(step, consts, before, mask, effects[1])
        if mask is not None:
            after[first:] = [_select(mask, a, b) for a, b in zip(after[first:], before[first:])]
        *token, go_on = call(test, consts, after, mask, effects[0])
        return [go_on, *token, *after[first:]]

    *token, go = call(test, consts, carry, None, effects[0])
    return build_while(lambda consts, carry: any_element(carry[0], axes), steps, consts,
                       [go, *token, *carry[first:]], name=step.arg.name)[1:]
