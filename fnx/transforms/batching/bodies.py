"""How a batch axis goes through an op with bodies: by batching the bodies.

    CALL f(x, y)    ->    CALL of f, batched as x, y are (a KERNEL: see kernels.py)
    SCAN, WHILE     ->    the same loop over batched carries; xs[t] of the whole batch at once
    COND            ->    one branch for the whole batch, or (batched predicate) see choices.py
    CUSTOM          ->    the function batched, with each of its rules batched

A rule gets the node, its operands in the new graph, and which of them have a batch axis. It
requests batched bodies by yielding (body, Pattern), and returns the results.

A carry has a batch axis if its initial value has one, or the step gives it one: a fixpoint.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core import build, build_calls, dtypes, op_args, ops
from fnx.core.again import operands_of_calls, replaced
from fnx.core.bodies import Nodes, scan_over
from fnx.core.ops import Op
from fnx.core.uop import UOp
from fnx.transforms.batching import choices
from fnx.transforms.batching.guard import guarded, has_effects
from fnx.transforms.batching.host import host
from fnx.transforms.batching.kernels import call_kernel
from fnx.transforms.batching.rules import spread
from fnx.transforms.batching.values import Asking, Batched, Lanes, Lifted

BodyRule = Callable[[UOp, tuple[UOp, ...], tuple[bool, ...], Lanes], Asking[list[Lifted]]]


def _call(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], lanes: Lanes
          ) -> Asking[list[Lifted]]:
    if src[0].op is ops.KERNEL:
        return call_kernel(node, src, batched, lanes.size)
    made = yield lanes.of(src[0], batched[1:])
    outs = build_calls.call(made.function, src[1:], node.arg.name, node.arg.policy)
    return [Lifted(*out) for out in zip(outs, made.outs)]


def _scan(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], lanes: Lanes
          ) -> Asking[list[Lifted]]:
    arg, (body, *args), flags = node.arg, src, batched[1:]
    first = arg.n_consts + arg.n_carries
    consts, xs = flags[:arg.n_consts], flags[first:]
    carries = flags[arg.n_consts:first]
    while True:
        made = yield lanes.of(body, consts + carries + xs)
        grown = tuple([a or b for a, b in zip(carries, made.outs)])
        if grown == carries:
            break
        carries = grown
    made = yield lanes.of(body, consts + carries + xs, carries)
    outs = build_calls.scan(made.function, arg.length, args[:arg.n_consts],
                            [spread(x, b, lanes.size) if c else x for x, b, c in
                             zip(args[arg.n_consts:first], flags[arg.n_consts:], carries)],
                            [_swapped(x) if b else x for x, b in zip(args[first:], xs)],
                            arg.reverse, arg.name, arg.checkpoint)
    return [Lifted(_swapped(x) if b and i >= arg.n_carries else x, b)
            for i, (x, b) in enumerate(zip(outs, made.outs))]


def _swapped(x: UOp) -> UOp:
    """Swap the batch axis and the axis of steps."""
    return build.permute(x, (1, 0, *range(2, len(x.shape))))


def _while(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], lanes: Lanes
           ) -> Asking[list[Lifted]]:
    arg, (condition, body, *args), flags = node.arg, src, batched[2:]
    consts, carries = flags[:arg.n_consts], flags[arg.n_consts:]
    while True:
        test = yield lanes.of(condition, consts + carries)
        if test.outs[0]:  # each element ends at its own step, so all carries differ
            carries = tuple([t != build_calls.TOKEN for t in arg.outs])
            break
        made = yield lanes.of(body, consts + carries)
        grown = tuple([a or b for a, b in zip(carries, made.outs)])
        if grown == carries:
            break
        carries = grown
    test = yield lanes.of(condition, consts + carries)
    if test.outs[0] and has_effects(body):
        made = yield lanes.of(guarded(body), (*consts, *carries, True), carries)
    else:
        made = yield lanes.of(body, consts + carries, carries)
    given = [spread(x, b, lanes.size) if c else x
             for x, b, c in zip(args[arg.n_consts:], flags[arg.n_consts:], carries)]
    fixed = args[:arg.n_consts]
    if test.outs[0]:
        outs = choices.lanes_end(test.function, made.function,
                                 [Lifted(*c) for c in zip(fixed, consts)],
                                 [Lifted(*c) for c in zip(given, carries)], arg.name, arg.most)
    else:
        outs = build_calls.while_(test.function, made.function, fixed, given, arg.name, arg.most)
    return [Lifted(*out) for out in zip(outs, carries)]


def _cond(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], lanes: Lanes
          ) -> Asking[list[Lifted]]:
    n = node.arg.n_branches
    branches, which, args, flags = src[:n], src[n], src[n + 1:], batched[n + 1:]
    made: list[Batched] = []
    if batched[n] and has_effects(branches[0]):
        branches, flags = tuple(map(guarded, branches)), (*flags, True)
    for branch in branches:
        made.append((yield lanes.of(branch, flags)))
    if batched[n]:
        chosen = choices.lanes_choose(made, which, [Lifted(*a) for a in zip(args, flags)],
                                      node.arg.name)
        return [Lifted(x, t != build_calls.TOKEN) for x, t in zip(chosen, node.arg.outs)]
    wanted = tuple([any(flags) for flags in zip(*[m.outs for m in made])])
    if any(m.outs != wanted for m in made):
        made = []
        for branch in branches:
            made.append((yield lanes.of(branch, flags, wanted)))
    outs = build_calls.cond([m.function for m in made], which, args, node.arg.name)
    return [Lifted(*out) for out in zip(outs, wanted)]


def _custom(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], lanes: Lanes
            ) -> Asking[list[Lifted]]:
    """Batch each rule by itself; the cotangent of an unbatched operand is summed over the batch.

    Calls of the function in its own rules get the same batch axes as this call: those of this
    call, and those that a call in its rules adds. (Its captures are the same in both.)
    """
    arg, n = node.arg, 1 + len(node.arg.rules)
    if lanes.rules <= arg.again:
        return (yield from _one_by_one(node, src, batched, lanes))
    args, flags = list(src[n:]), batched[n:]
    every = (False,) * arg.effects + (True,) * (len(arg.outs) - arg.effects)
    while True:
        rules = yield from _rules(node, flags, every, lanes)
        calls = [args, *[call for rule in rules for call in operands_of_calls(rule)]]
        wider = tuple([any(len(call[i].shape) > len(x.shape) for call in calls)
                       for i, x in enumerate(node.src[n:])])
        if wider == flags:
            break
        args = [spread(x, b, lanes.size) if w else x for x, b, w in zip(args, flags, wider)]
        flags = wider
    differ = list(every)  # which results differ between batch elements: a vmap rule may say
    if arg.lanes is None:
        first = (yield lanes.of(src[0], flags, every)).function
    else:
        first, differ[arg.effects:] = arg.lanes.function(lanes.size, flags)
    outs = tuple([((lanes.size, *shape) if b else shape, dtype)
                  for b, (shape, dtype) in zip(every, arg.outs)])
    like = op_args.Custom(arg.name, outs, arg.rules, arg.n_captures, arg.pulled, arg.again,
                      effects=arg.effects, linear=arg.linear)

    def again(operands: tuple[UOp, ...]) -> UOp:
        given = [spread(x, len(x.shape) == len(y.shape), lanes.size)
                 for x, y in zip(operands[1:], args)]
        call = op_args.Custom(arg.name, outs, (), arg.n_captures, again=0, effects=arg.effects)
        return UOp(ops.CUSTOM, dtypes.void, (first, *given), call)
    made = [first, *[replaced(rule, again) for rule in rules]]
    return [Lifted(_first(x), False) if b and not own and lanes.size else Lifted(x, b)
            for x, b, own in zip(build_calls.custom(made, like, args), every, differ)]


def _first(x: UOp) -> UOp:
    """Return the first element of a batch whose elements are all equal."""
    shape = x.shape[1:]
    return build.reshape(build.shrink(x, [(0, 1), *[(0, n) for n in shape]]), shape)


def _rules(node: UOp, flags: tuple[bool, ...], every: tuple[bool, ...], lanes: Lanes
           ) -> Asking[list[UOp]]:
    """Return the rules of a CUSTOM over arguments with these batch axes; all results have one."""
    arg = node.arg
    args = node.src[1 + len(arg.rules):]
    captured, given = flags[:arg.n_captures], flags[arg.n_captures:]
    along = tuple([b for x, b in zip(args[arg.n_captures:], given) if x.dtype.is_float])
    floats = (True,) * sum(dtype.is_float for _, dtype in arg.outs)
    within = lanes.replace(rules=lanes.rules + 1)
    made: list[UOp] = []
    saved: tuple[bool, ...] = ()
    for rule, body in zip(arg.rules, node.src[1:]):
        if rule == "jvp":
            found = yield within.of(body, flags + along, every + floats)
        elif rule == "fwd":
            found = yield within.of(body, flags, every)
            saved = found.outs[len(every):]
        else:
            tokens = (False,) * arg.effects
            wanted = tokens + tuple([b for i, b in sorted(zip(arg.pulled, given)) if i >= 0])
            found = yield within.of(body, captured + tokens + saved + floats, wanted)
            found = _summed(found, wanted)
        made.append(found.function)
    return made


def _one_by_one(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], lanes: Lanes
                ) -> Asking[list[Lifted]]:
    """Batch a function inside its own rule by a loop over the batch, which calls it on one
    element at a time."""
    yield from ()
    arg, n = node.arg, 1 + len(node.arg.rules)
    if not any(batched):
        return [Lifted(x, False) for x in build_calls.custom(src[:n], arg, src[n:])]
    consts = [x for x, b in zip(src[n:], batched[n:]) if not b]
    xs = [x for x, b in zip(src[n:], batched[n:]) if b]
    carries = consts[:0]
    if arg.effects:
        carries = [src[n + arg.n_captures]]
        consts = [x for x in consts if x is not carries[0]]

    def step(given: Nodes, carried: Nodes, rows: Nodes) -> tuple[Nodes, Nodes]:
        left, mine, tokens = iter(given), iter(rows), iter(carried)
        operands = [next(mine) if b else next(tokens) if carried and i == arg.n_captures
                    else next(left) for i, b in enumerate(batched[n:])]
        found = build_calls.custom(src[:n], arg, operands)
        return found[:arg.effects], found[arg.effects:]
    last, ys = scan_over(step, lanes.size, consts, carries, xs, name=arg.name)
    return [*[Lifted(t, False) for t in last], *[Lifted(y, True) for y in ys]]


def _summed(made: Batched, wanted: tuple[bool, ...]) -> Batched:
    """Sum results over the batch if they are wanted without a batch axis."""
    outs = [build.reduce(x, ops.ADD, (0,)) if b and not w else x
            for x, b, w in zip(made.function.src, made.outs, wanted)]
    return Batched(made.function.over(tuple(outs)), wanted)


def _sort(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], lanes: Lanes
          ) -> Asking[list[Lifted]]:
    """Sort all rows of the batch: each element has rows of its own."""
    yield from ()
    wide = [spread(x, b, lanes.size) for x, b in zip(src, batched)]
    found = build_calls.sort(wide, node.arg.n_keys, node.arg.kept, node.arg.name)
    return [Lifted(x, True) for x in found]


BODIES: dict[Op, BodyRule] = {ops.CALL: _call, ops.SCAN: _scan, ops.WHILE: _while, ops.COND: _cond,
                              ops.CUSTOM: _custom, ops.HOST: host, ops.SORT: _sort}
