"""Predication: batched conditions of WHILE and COND, which differ between batch elements.

    while_(c, f, x)   batch of B  ->  as long as any element is active: x = where(active, f(x'), x)
    cond(p, f, g, x)  batch of B  ->  where(p, f(x') if any(p), g(x'') if any(not p))

An inactive element (its loop has ended, or it does not take the branch) gets the operands of *one
active element*, so it computes only values that an active element computes too. No spurious NaN
arises, no inner loop hangs, and partials are finite if those of the active elements are. Results
of inactive elements are not selected; their substituted operands are STOPped, so no derivative
reaches the active element through another. A branch that no element takes is not run, unless
lowering selects it (lower/tensor/select_branches.py); it also drops the substituted operands where
only a selection reads what is computed of them (lower/tensor/drop_stand_ins.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.tracing.trace import inline_function
from fnx.transforms.batching.patterns import BatchedFunction, BatchedValue
from fnx.transforms.batching.rules import broadcast_batch


def _broadcast_mask(mask: UOp, like: UOp) -> UOp:
    """Broadcast a bool per batch element to the shape of an array with a batch axis."""
    ones = (1,) * (len(like.shape) - 1)
    return build.expand(build.reshape(mask, (*mask.shape, *ones)), like.shape)


def _select(mask: UOp, a: UOp, b: UOp) -> UOp:
    return build.where(_broadcast_mask(mask, a), a, b)


def _fill_inactive(active: UOp, xs: Sequence[UOp]) -> list[UOp]:
    """Replace inactive elements of batched arrays by the first active element."""
    size, = active.shape
    if not size:
        return list(xs)
    index = build.iota(size)
    first = build.reduce(build.where(active, index, build.const_like(index, size - 1)), ops.MIN,
                         (0,))
    return [_select(active, x,
                    broadcast_batch(build.stop_gradient(build.gather(x, first)), False, size))
            for x in xs]


def batched_while(condition: UOp, body: UOp, consts: Sequence[BatchedValue],
                  carries: Sequence[BatchedValue], name: str, most: int) -> tuple[UOp, ...]:
    """Build a WHILE that runs until all batch elements have ended.

    Args:
        condition: (consts, carries) -> bool[B].
        body: (consts, carries) -> carries, all of which have a batch axis, except tokens. A body
            with effects also takes the mask of active elements.
        consts: the constants, with or without a batch axis.
        carries: the initial carries, with a batch axis.
        name: the name of the loop, for display.
        most: a bound on the number of steps of each element (0: unknown).

    Returns:
        The last carries of each element.
    """
    n, fixed, first = len(consts), [c.node for c in consts], [c.node for c in carries]
    active_init = inline_function(condition, [*fixed, *first])[0]
    all_args = [*fixed, *first, active_init]
    params = build_calls.params_like(all_args)
    active, old = params[-1], params[n:-1]
    goes_on = build.function([build.reduce(active, ops.OR, (0,))], len(params), condition.arg.name)

    batched_params = [p for p, c in zip(params, (*consts, *carries)) if c.batched]
    filled = dict(zip(batched_params, _fill_inactive(active, batched_params)))
    args = [filled.get(p, p) for p in params[:-1]]

    def one_step() -> list[UOp]:
        stepped = inline_function(body, [*args, active])
        still_active = build.and_(active, inline_function(condition, [*args[:n], *stepped])[0])
        return [*[_select(active, a, b) if c.batched else a
                  for a, b, c in zip(stepped, old, carries)], still_active]
    step = build_calls.body_function(one_step, len(params), body.arg.name)
    return build_calls.while_(goes_on, step, fixed, [*first, active_init], name, most)[:-1]


def batched_cond(branches: Sequence[BatchedFunction], which: UOp, args: Sequence[BatchedValue],
                 name: str
                 ) -> list[UOp]:
    """Return the results, for each batch element, of the branch that it takes.

    Args:
        branches: FUNCTIONs of the operands; with effects, also of the mask of elements that
            take the branch.
        which: int32[B], the branch numbers, which are clamped.
        args: the operands.
        name: the name of the COND, for display.

    Returns:
        The results, all with a batch axis, except a token: the branches run in order.
    """
    n, (size,) = len(branches), which.shape
    out: list[UOp] = []
    for i, (branch, flags) in enumerate(branches):
        taken = build_calls.takes_branch(which, i, n)
        batched_args = [a.node for a in args if a.batched]
        filled = iter(_fill_inactive(taken, batched_args))
        branch_args = [next(filled) if b else x for x, b in args]
        if branch.arg.n_params > len(branch_args):
            branch_args.append(taken)
        results = if_any(build.reduce(taken, ops.OR, (0,)), branch, branch_args, name)
        tokens = [x for x, b in zip(results, flags) if _is_token(x, b)]
        if tokens:  # effects of the next branch follow it
            args = [BatchedValue(tokens[0], False) if _is_token(*a) else a for a in args]
        wide = [x if _is_token(x, b) else broadcast_batch(x, b, size)
                for x, b in zip(results, flags)]
        out = [a if _is_token(a, c) else _select(taken, a, b)
               for a, b, c in zip(wide, out, flags)] if out else wide
    return out


def _is_token(x: UOp, batched: bool) -> bool:
    """Whether x is a token, which has no batch axis; a batched empty array of bools is not."""
    return not batched and build_calls.is_token(x)


def if_any(taken: UOp, branch: UOp, args: Sequence[UOp], name: str) -> tuple[UOp, ...]:
    """Return the results of a branch if ``taken`` (a bool scalar: any element takes it) holds,
    else zeros."""
    token = next((build.param(i, x.dtype, x.shape) for i, x in enumerate(args)
                  if build_calls.is_token(x)), None)
    skipped = build.function(
        [build.const_like(x, 0) if token is None or not build_calls.is_token(x) else token
         for x in branch.src], len(args), "skipped")
    return build_calls.cond([skipped, branch], build.cast(taken, dtypes.int32), args, name)
