"""How a batch axis goes through an op with bodies: by batching the bodies.

    CALL f(x, y)    ->    CALL of f, batched as x, y are (a KERNEL: see kernels.py)
    SCAN, WHILE     ->    the same loop over batched carries; xs[t] of the whole batch at once
    COND            ->    one branch for the whole batch, or (batched predicate) see predication.py
    CUSTOM          ->    the function batched, with each of its rules batched

A rule gets the node, its operands in the new graph, and which of them have a batch axis. It
requests batched bodies by yielding (body, Pattern), and returns the results.

A carry has a batch axis if its initial value has one, or the step gives it one: a fixpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.build_calls import Nodes, build_scan
from fnx.core.ir.derivations import run_derivation
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.ops import Op
from fnx.core.ir.recursive_rules import recursive_call_operands, replace_recursive_calls
from fnx.core.ir.uop import UOp
from fnx.transforms.batching import predication
from fnx.transforms.batching.callbacks import batch_callback
from fnx.transforms.batching.kernels import call_kernel
from fnx.transforms.batching.mask_effects import has_effects, mask_effects
from fnx.transforms.batching.patterns import BatchAxis, BatchedFunction, BatchedValue, BatchSteps
from fnx.transforms.batching.rules import broadcast_batch

BodyRule = Callable[[UOp, tuple[UOp, ...], tuple[bool, ...], BatchAxis],
                    BatchSteps[list[BatchedValue]]]


def _bodies(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], batch: BatchAxis
            ) -> BatchSteps[list[BatchedValue]]:
    op = OpBodies(node)
    if not op.bodies:
        return call_kernel(node, src, batched, batch.size)
    first = len(src) - len(op.operands)
    args, flags, is_scan = src[first:], batched[first:], node.op is ops.SCAN
    consts, carries, rest = map(tuple, op.split(flags))
    if any(batched[:first]):
        return (yield from _batched_cond(op, src[first - 1], args, flags, batch))
    while True:
        conditions: list[BatchedFunction] = []
        for condition in op.conditions:
            conditions.append((yield batch.of(condition, consts + carries)))
        if any(test.outs[0] for test in conditions):
            return (yield from _batched_while(op, args, flags, batch))
        steps: list[BatchedFunction] = []
        for step in op.steps:
            steps.append((yield batch.of(step, consts + carries + rest)))
        wanted = tuple([any(outs) for outs in zip(*[step.outs for step in steps])])
        grown = tuple([a or b for a, b in zip(carries, wanted)])
        if grown == carries:
            break
        carries = grown
    wanted = carries + wanted[op.n_carries:]
    for i, step in enumerate(op.steps):
        if steps[i].outs != wanted:
            steps[i] = yield batch.of(step, consts + carries + rest, wanted)
    values = op.split([broadcast_batch(x, b, batch.size) if c else x
                       for x, b, c in zip(args, flags, consts + carries + rest)])
    rows = [_swap_batch_axis(x) if b and is_scan else x for x, b in zip(values[2], rest)]
    result = op.rebuild([form.function for form in (*conditions, *steps)], [*values[:2], rows],
                        selector=src[len(op.bodies):first])
    return [BatchedValue(_swap_batch_axis(x) if b and is_scan and i >= op.n_carries else x, b)
            for i, (x, b) in enumerate(zip(build.results(result), wanted))]


def _swap_batch_axis(x: UOp) -> UOp:
    """Swap the batch axis and the axis of steps."""
    return build.permute(x, (1, 0, *range(2, len(x.shape))))


def _batched_while(op: OpBodies, args: Nodes, flags: tuple[bool, ...], batch: BatchAxis
                   ) -> BatchSteps[list[BatchedValue]]:
    """Batch a WHILE whose elements end at their own steps, so that all carries differ."""
    arg, (condition, body) = op.node.arg, op.bodies
    carries = tuple([t != build_calls.TOKEN for t in arg.outs])
    consts = flags[:op.n_consts]
    test = yield batch.of(condition, consts + carries)
    if has_effects(body):
        new_body = yield batch.of(mask_effects(body), (*consts, *carries, True), carries)
    else:
        new_body = yield batch.of(body, consts + carries, carries)
    init = [BatchedValue(broadcast_batch(x, b, batch.size) if c else x, c)
            for x, b, c in zip(args[op.n_consts:], flags[op.n_consts:], carries)]
    outs = predication.batched_while(test.function, new_body.function,
                                     [BatchedValue(*c) for c in zip(args, consts)], init, arg.name,
                                     arg.max_trips)
    return [BatchedValue(*out) for out in zip(outs, carries)]


def _batched_cond(op: OpBodies, which: UOp, args: Nodes, flags: tuple[bool, ...],
                  batch: BatchAxis) -> BatchSteps[list[BatchedValue]]:
    """Batch a COND whose elements take branches of their own."""
    branches, arg = op.bodies, op.node.arg
    if has_effects(branches[0]):
        branches, flags = tuple(map(mask_effects, branches)), (*flags, True)
    forms: list[BatchedFunction] = []
    for branch in branches:
        forms.append((yield batch.of(branch, flags)))
    results = predication.batched_cond(forms, which, [BatchedValue(*a) for a in zip(args, flags)],
                                       arg.name)
    return [BatchedValue(x, t != build_calls.TOKEN) for x, t in zip(results, arg.outs)]


def _custom(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], batch: BatchAxis
            ) -> BatchSteps[list[BatchedValue]]:
    """Batch each rule by itself; the cotangent of an unbatched operand is summed over the batch.

    Calls of the function in its own rules get the same batch axes as this call: those of this
    call, and those that a call in its rules adds. (Its captures are the same in both.)
    """
    arg, n = node.arg, 1 + len(node.arg.rules)
    maker = arg.rule_maker
    if maker is not None and maker.primitive is not None:
        return _primitive(node, src, batched, batch)
    if batch.rules <= arg.recursion_depth:
        return (yield from _loop_over_batch(node, src, batched, batch))
    args, flags = list(src[n:]), batched[n:]
    has_axis = (False,) * arg.effects + (True,) * (len(arg.outs) - arg.effects)
    while True:
        rules = yield from _batch_rules(node, flags, has_axis, batch)
        calls = [args, *[call for rule in rules for call in recursive_call_operands(rule)]]
        grown = tuple([any(len(call[i].shape) > len(x.shape) for call in calls)
                       for i, x in enumerate(node.src[n:])])
        if grown == flags:
            break
        args = [broadcast_batch(x, b, batch.size) if w else x
                for x, b, w in zip(args, flags, grown)]
        flags = grown
    differ = list(has_axis)  # which results differ between batch elements: a vmap rule may say
    if arg.vmap_rule is None:
        first = (yield batch.of(src[0], flags, has_axis)).function
    else:
        first, differ[arg.effects:] = arg.vmap_rule.function(batch.size, flags)
    outs = tuple([((batch.size, *shape) if b else shape, dtype)
                  for b, (shape, dtype) in zip(has_axis, arg.outs)])
    custom_arg = op_args.Custom(arg.name, outs, arg.rules, arg.n_captures, arg.cotangent_indices,
                                arg.recursion_depth, effects=arg.effects, n_linear=arg.n_linear,
                                rule_maker=maker and BatchedRules(node, flags, batch))

    def again(operands: tuple[UOp, ...]) -> UOp:
        batched_args = [broadcast_batch(x, len(x.shape) == len(y.shape), batch.size)
                        for x, y in zip(operands[1:], args)]
        call = op_args.Custom(arg.name, outs, (), arg.n_captures, recursion_depth=0,
                              effects=arg.effects)
        return UOp(ops.CUSTOM, dtypes.void, (first, *batched_args), call)
    functions = [first, *[replace_recursive_calls(rule, again) for rule in rules]]
    return [BatchedValue(_first_element(x), False) if b and not differs and batch.size
            else BatchedValue(x, b)
            for x, b, differs in zip(build_calls.custom(functions, custom_arg, args), has_axis,
                                     differ)]


class BatchedRules:
    """The rules of a batched call, from those of the call (transforms/custom/lazy_rules.py).

    Args:
        node: the call.
        flags: which operands have a batch axis.
        batch: the batch axis.
    """

    primitive = None
    is_linear = False

    def __init__(self, node: UOp, flags: tuple[bool, ...], batch: BatchAxis) -> None:
        self._flags, self._batch = flags, batch
        self._node = node.replace(src=(node.src[0], *build_calls.params_like(node.src[1:])))
        self._maker = node.arg.rule_maker
        self.is_always_lazy: bool = self._maker.is_always_lazy

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The names of the rules."""
        names: tuple[str, ...] = self._maker.rule_names
        return names

    def with_jvp(self, node: UOp, active: Sequence[bool]) -> UOp:
        """Return the node with its rules, for tangents of these operands."""
        return self._batched(node, self._maker.with_jvp(self._node, active))

    def with_vjp(self, node: UOp, active: Sequence[bool], outs: Sequence[bool]) -> UOp:
        """Return the node with its rules, for cotangents of these results."""
        return self._batched(node, self._maker.with_vjp(self._node, active, outs))

    def marked(self, node: UOp, linear: Sequence[bool]) -> UOp:
        """Return the node for operands of which these depend on tangents."""
        marked: UOp = self._maker.marked(node, linear)
        return marked

    def _batched(self, node: UOp, unbatched: UOp) -> UOp:
        n, args = 1 + len(unbatched.arg.rules), node.src[1:]
        src = (*unbatched.src[:n], *build_calls.params_like(args))
        outs = run_derivation(_custom(unbatched, src, (False,) * n + self._flags, self._batch))
        ruled = next(x.node for x in outs).src[0]
        return ruled.replace(src=(*ruled.src[:n], *args))


def _primitive(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], batch: BatchAxis
               ) -> list[BatchedValue]:
    """Apply the batching rule of a primitive of the user's."""
    first = 1 + node.arg.n_captures
    if not any(batched[first:]):
        return [BatchedValue(x, False) for x in build.results(node.with_operands(src))]
    function, flags = node.arg.rule_maker.batched(node, batch, batched[first:])
    return [BatchedValue(x, b) for x, b in zip(build_calls.call(function, src[first:]), flags)]


def _first_element(x: UOp) -> UOp:
    """Return the first element of a batch whose elements are all equal."""
    shape = x.shape[1:]
    return build.reshape(build.shrink(x, [(0, 1), *[(0, n) for n in shape]]), shape)


def _batch_rules(node: UOp, flags: tuple[bool, ...], has_axis: tuple[bool, ...], batch: BatchAxis
                 ) -> BatchSteps[list[UOp]]:
    """Return the rules of a CUSTOM over arguments with these batch axes; all results have one."""
    arg = node.arg
    args = node.src[1 + len(arg.rules):]
    captured, arg_flags = flags[:arg.n_captures], flags[arg.n_captures:]
    tangent_flags = tuple([b for x, b in zip(args[arg.n_captures:], arg_flags)
                           if x.dtype.is_inexact])
    floats = (True,) * sum(dtype.is_inexact for _, dtype in arg.outs)
    inner_axis = batch.replace(rules=batch.rules + 1)
    functions: list[UOp] = []
    saved: tuple[bool, ...] = ()
    for rule, body in zip(arg.rules, node.src[1:]):
        if rule == "jvp":
            batched_rule = yield inner_axis.of(body, flags + tangent_flags, has_axis + floats)
        elif rule == "fwd":
            batched_rule = yield inner_axis.of(body, flags, has_axis)
            saved = batched_rule.outs[len(has_axis):]
        else:
            tokens = (False,) * arg.effects
            wanted = tokens + tuple([
                b for i, b in sorted(zip(arg.cotangent_indices, arg_flags)) if i >= 0])
            batched_rule = yield inner_axis.of(body, captured + tokens + saved + floats, wanted)
            batched_rule = _sum_unbatched(batched_rule, wanted)
        functions.append(batched_rule.function)
    return functions


def _loop_over_batch(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], batch: BatchAxis
                     ) -> BatchSteps[list[BatchedValue]]:
    """Batch a function inside its own rule by a loop over the batch, which calls it on one
    element at a time."""
    yield from ()
    arg, n = node.arg, 1 + len(node.arg.rules)
    if not any(batched):
        return [BatchedValue(x, False) for x in build_calls.custom(src[:n], arg, src[n:])]
    consts = [x for x, b in zip(src[n:], batched[n:]) if not b]
    xs = [x for x, b in zip(src[n:], batched[n:]) if b]
    carries = consts[:0]
    if arg.effects:
        carries = [src[n + arg.n_captures]]
        consts = [x for x in consts if x is not carries[0]]

    def step(const_args: Nodes, carried: Nodes, rows: Nodes) -> tuple[Nodes, Nodes]:
        const_iter, row_iter, token_iter = iter(const_args), iter(rows), iter(carried)
        operands = [next(row_iter) if b else next(token_iter) if carried and i == arg.n_captures
                    else next(const_iter) for i, b in enumerate(batched[n:])]
        outs = build_calls.custom(src[:n], arg, operands)
        return outs[:arg.effects], outs[arg.effects:]
    last, ys = build_scan(step, batch.size, consts, carries, xs, name=arg.name)
    return [*[BatchedValue(t, False) for t in last], *[BatchedValue(y, True) for y in ys]]


def _sum_unbatched(batched_fn: BatchedFunction, wanted: tuple[bool, ...]) -> BatchedFunction:
    """Sum results over the batch if they are wanted without a batch axis."""
    outs = [build.reduce(x, ops.ADD, (0,)) if b and not w else x
            for x, b, w in zip(batched_fn.function.src, batched_fn.outs, wanted)]
    return BatchedFunction(batched_fn.function.with_operands(tuple(outs)), wanted)


def _sort(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], batch: BatchAxis
          ) -> BatchSteps[list[BatchedValue]]:
    """Sort all rows of the batch: each element has rows of its own."""
    yield from ()
    rows = [broadcast_batch(x, b, batch.size) for x, b in zip(src, batched)]
    outs = build_calls.sort(rows, node.arg.n_keys, node.arg.outputs, node.arg.name)
    return [BatchedValue(x, True) for x in outs]


def _linalg(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], batch: BatchAxis
            ) -> BatchSteps[list[BatchedValue]]:
    """Add a batch axis to those of the operands."""
    yield from ()
    operands = [broadcast_batch(x, b, batch.size) for x, b in zip(src, batched)]
    outs = build_calls.linalg(node.arg.routine, operands, node.arg.options)
    return [BatchedValue(x, True) for x in outs]


BODY_RULES: dict[Op, BodyRule] = {ops.CALL: _bodies, ops.SCAN: _bodies, ops.WHILE: _bodies,
                                  ops.COND: _bodies, ops.CUSTOM: _custom,
                                  ops.CALLBACK: batch_callback, ops.SORT: _sort,
                                  ops.LINALG: _linalg}
