"""Derivatives of WHILE.

    forward mode    carries (c, dc), the jvp form of the body, the condition on c alone
    reverse mode    the trip count is known only after the loop, so not every step is saved:
                    states are saved at a stride that doubles whenever the snapshots are full;
                    then the steps are reversed from these (revolve.py)

    forward     n = 0; while condition(c):   save c; run up to ``stride`` steps of the body, n += 1

    backward    while blocks are left:       c = last saved state; go some blocks ahead; save c
                  at the last block:         run its steps, save each state;
                                             for each, in reverse:  ct = pullback of the body (ct)

Both passes consist of WHILEs, so they can be differentiated again, to any order.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.build_calls import (
    Nodes,
    build_function,
    build_while,
    derived_function,
    params_like,
)
from fnx.core.ir.derivations import Derivation
from fnx.core.ir.expr import Expr, minimum, where
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp
from fnx.core.support.config import config
from fnx.core.support.errors import GradError
from fnx.core.tracing.trace import inline_function
from fnx.transforms.autodiff import revolve
from fnx.transforms.autodiff.drop_effects import drop_effects
from fnx.transforms.autodiff.higher_order import (
    TOKEN,
    Activity,
    Linearized,
)
from fnx.transforms.autodiff.loop_rules import (
    LoopRule,
    Reader,
    Sources,
    VjpOuts,
    inline_backward,
    optional_list,
    or_zeros,
    reverse_activity,
    step_deps,
)
from fnx.transforms.autodiff.rules import Cotangent, add, zeros_like

COUNT_DTYPE = dtypes.float64  # the dtype of step counts: exact beyond the range of int32


class WhileRule(LoopRule):
    """The derivative rule of WHILE, whose src begins with its condition and body."""

    def vjp_forms(self, node: UOp, out_cts: Mapping[int, Cotangent], active: Container[UOp],
                  needs_mask: Container[UOp], nonfinite: Container[UOp]) -> Derivation[Linearized]:
        arg, step = node.arg, OpBodies(node).steps[0]
        if config.derivatives == "jax" and not arg.max_trips and any(
                step.src[o].op is not ops.PARAM or step.src[o].arg.slot != arg.n_consts + o
                for o in out_cts):
            raise GradError(f"expected a loop of known length in reverse mode, got a while_loop, "
                            f"{arg.name}", hint="use lax.scan, or lax.fori_loop with ints as "
                            'bounds; fnx.config.derivatives = "all" computes it', loc=node.loc)
        return (yield from super().vjp_forms(node, out_cts, active, needs_mask, nonfinite))

    def linearize_uncached(self, node: UOp, args: Nodes,
                           activity: Activity) -> Derivation[Linearized]:
        op = OpBodies(node)
        inputs, ct_indices = reverse_activity(op, (yield from step_deps(op)), activity)
        form = yield op.steps[0], Activity(inputs, ct_indices)
        kind = _ShortWhileReverse if 0 < node.arg.max_trips <= revolve.BLOCK else _WhileReverse
        return kind(node, args, form, inputs, ct_indices).build(activity)


class _WhileReverse:
    """Both passes of a WHILE, from the derived form of its body.

    ``inputs`` are its PARAMs that have a cotangent, ``ct_indices`` the carries.
    """

    def __init__(self, node: UOp, args: Nodes, form: Linearized, inputs: Sequence[int],
                 ct_indices: Sequence[int]) -> None:
        self.condition, self.body, *_ = node.src
        forward = form.forward_of(self.body)
        # of a custom_vjp: its fwd
        self.step = derived_function(forward.with_operands(forward.src[:len(node.arg.outs)]),
                                     forward)
        self.recompute_form = derived_function(drop_effects(self.step), self.step)
        self.arg, self.args, self.form = node.arg, args, form
        self.inputs, self.ct_indices = inputs, ct_indices
        self.first = node.arg.n_consts
        self.n = len(node.arg.outs)
        self.like = params_like(args)
        self.saved = [c for c in range(self.n)
                      if not build_calls.is_token(self.like[self.first + c])]
        self.result_indices = {
            i: index for i, (index, _) in zip(inputs, form.result_indices) if index is not None}

    def build(self, activity: Activity) -> Linearized:
        forward = build_function(self.forward, self.args, self.arg.name)
        sources = Sources()
        for i in range(self.first):
            sources.add(("input", i))
        for o in range(self.n, len(forward.src)):
            sources.add(("result", o))
        for k, o in enumerate(activity.outputs):
            if o in self.ct_indices:
                sources.add(("cotangent", k))
        if self.form.token is not None:
            sources.add(TOKEN)
        like = {"input": self.args, "result": forward.src, "cotangent":
                [forward.src[o] for o in activity.outputs]}
        return sources.build(forward, like, lambda read: self.backward(read, activity),
                             self.arg.name)

    def rerun_step(self, consts: Nodes, states: Nodes) -> list[UOp]:
        """Rerun a step, without its effects."""
        return inline_function(self.recompute_form, [*consts, *states])

    # ---- forward

    def _goes_on(self, consts: Nodes, states: Nodes) -> UOp:
        return inline_function(self.condition, [*consts, *states[:self.n]])[0]

    def forward(self, ins: Nodes) -> Sequence[UOp]:
        """Return the last carries; the numbers of steps and of saved states, the stride; and the
        saved states."""
        n, first = self.n, self.first

        def chunk(consts: Nodes, states: Nodes) -> list[UOp]:
            carries, (steps, saved, stride), slots = states[:n], states[n:n + 3], states[n + 3:]
            is_full = Expr(saved).eq(revolve.FORWARD_SNAPSHOTS)
            saved = where(is_full, revolve.FORWARD_SNAPSHOTS // 2, Expr(saved)).node
            stride = where(is_full, 2 * Expr(stride), Expr(stride)).node
            slots = build_calls.cond([build_function(lambda p: p, slots, "keep all"),
                                      build_function(_take_even, slots, "keep every second")],
                                     build.cast(is_full.node, dtypes.int32), slots)
            slots = [write_slot(p, as_index(saved), c)
                     for p, c in zip(slots, self._savable(carries))]
            end = (Expr(steps) + Expr(stride)).node

            def in_chunk(consts: Nodes, states: Nodes) -> UOp:
                return build.and_(build.lt(states[n], consts[-1]),
                                  self._goes_on(consts[:-1], states))

            *carries, steps = build_while(
                in_chunk, lambda consts, states: [
                    *inline_function(self.step, [*consts[:-1], *states[:n]]),
                    (Expr(states[n]) + 1).node],
                [*consts, end], [*carries, steps], name=self.arg.name)
            return [*carries, steps, (Expr(saved) + 1).node, stride, *slots]

        return build_while(self._goes_on, chunk, ins[:first],
                           [*ins[first:], as_count(0), as_count(0), as_count(revolve.BLOCK),
                            *self._empty_slots(revolve.FORWARD_SNAPSHOTS)],
                           name=f"{self.arg.name}.chunk")

    def _empty_slots(self, n: int) -> list[UOp]:
        return [build.const(0, x.dtype, (n, *x.shape))
                for x in self._savable(self.like[self.first:])]

    def _savable(self, carries: Nodes) -> list[UOp]:
        """Return what is saved of a state: all but tokens, because effects do not happen again."""
        return [carries[c] for c in self.saved]

    def _save(self, states: Nodes) -> list[UOp]:
        """Save the state before a step; return the next step, and the saved states."""
        i, saved = states[self.n], states[self.n + 1:]
        return [(Expr(i) + 1).node, *[write_slot(p, as_index(i), c)
                                      for p, c in zip(saved, self._savable(states))]]

    def _restore_state(self, saved: Nodes) -> list[UOp]:
        """Return the carries of a saved state."""
        by_carry = dict(zip(self.saved, saved))
        return [by_carry.get(c, build_calls.initial_token()) for c in range(self.n)]

    # ---- backward

    def backward(self, read: Reader, activity: Activity) -> VjpOuts:
        """Return the cotangents of the active operands."""
        consts = [read(("input", i)) for i in range(self.first)]
        steps, saved, stride, *slots = [read(("result", self.n + i))
                                        for i in range(len(self.saved) + 3)]
        free = revolve.MAX_SNAPSHOTS - revolve.FORWARD_SNAPSHOTS
        slots = [build.pad(p, [(0, free), *[(0, 0)] * (len(p.shape) - 1)]) for p in slots]
        cts, summed, tokens = self._initial_cts(read, activity)
        blocks = build.elementwise(ops.CEIL, (Expr(steps) / revolve.BLOCK).node)
        strides = build.expand((Expr(stride) / revolve.BLOCK).node, (revolve.MAX_SNAPSHOTS,))
        begins = build.mul(build.iota(revolve.MAX_SNAPSHOTS, COUNT_DTYPE), strides)
        state = [blocks, (Expr(saved) - 1).node, begins, *slots, *self._empty_slots(revolve.BLOCK),
                 *cts, *tokens]
        last = build_while(lambda consts, states: (Expr(states[0]) > 0).node,
                           lambda consts, states: self._reverse_blocks(consts, states, summed),
                           [*consts, steps], state, name=f"{self.arg.name}.backward")
        result = dict(zip([*[self.first + c for c in self.ct_indices], *summed],
                          last[3 + 2 * len(self.saved):]))
        return [result.get(i) for i in activity.inputs], last[-1] if tokens else None

    def _initial_cts(self, read: Reader, activity: Activity
                     ) -> tuple[list[UOp], list[int], list[UOp]]:
        """Return the initial values of a backward pass: cotangents of carries, then zeros for
        sums over all steps; the operands that have these sums; the token, if there is one."""
        out_cts = {o: read(("cotangent", k)) for k, o in enumerate(activity.outputs)
                   if o in self.ct_indices}
        cts = [out_cts.get(c, zeros_like(self.like[self.first + c])) for c in self.ct_indices]
        summed_inputs = [i for i in self.result_indices if i < self.first]
        return [*cts, *[zeros_like(self.like[i]) for i in summed_inputs]], summed_inputs, \
            [read(TOKEN) for _ in optional_list(self.form.token)]

    def _reverse_blocks(self, consts: Nodes, states: Nodes, summed: Sequence[int]) -> list[UOp]:
        """Go ahead from the last saved state; at the last block, reverse it."""
        *consts, steps = consts
        n = len(self.saved)
        blocks, top, begins = map(Expr, states[:3])
        slots, leaf, cts = states[3:3 + n], states[3 + n:3 + 2 * n], states[3 + 2 * n:]
        slot = as_index(top.node)
        begin = Expr(read_slot(begins.node, slot))
        free = (revolve.MAX_SNAPSHOTS - 1) - top
        n_ahead = revolve.advance(blocks - begin, free)
        carries = self._run_steps(consts, self._restore_state([read_slot(p, slot) for p in slots]),
                                  n_ahead * revolve.BLOCK)
        begin = begin + n_ahead
        slot = as_index(where(n_ahead > 0, top + 1, top).node)  # no free slot: dropped
        slots = [write_slot(p, slot, c) for p, c in zip(slots, self._savable(carries))]
        begins = Expr(write_slot(begins.node, slot, begin.node))
        last = begin.eq(blocks - 1)
        is_push = (n_ahead > 0) & (free > 0)
        length = where(last, minimum(Expr(steps) - begin * revolve.BLOCK, revolve.BLOCK), 0)
        leaf = self._run_and_save(consts, carries, length, leaf)
        cts = self._reverse_steps(consts, length, leaf, cts, summed)
        popped = where(last & (is_push | n_ahead.eq(0)), top.like(1), 0)
        top = top + where(is_push, top.like(1), 0) - popped
        return [(blocks - where(last, blocks.like(1), 0)).node, top.node, begins.node, *slots,
                *leaf, *cts]

    def _run_steps(self, consts: Nodes, carries: Nodes, times: Expr) -> Nodes:
        """Run the body ``times`` times."""
        *carries_out, _ = build_while(
            lambda consts, states: build.lt(states[-1], consts[-1]),
            lambda consts, states: [*self.rerun_step(consts[:-1], states[:-1]),
                                    (Expr(states[-1]) + 1).node],
            [*consts, times.node], [*carries, as_count(0)], name=self.arg.name)
        return carries_out

    def _run_and_save(self, consts: Nodes, carries: Nodes, times: Expr, leaf: Nodes) -> Nodes:
        """Run the body ``times`` times, and store the state before each step."""
        n = self.n

        def step(consts: Nodes, states: Nodes) -> list[UOp]:
            return [*self.rerun_step(consts[:-1], states[:n]), *self._save(states)]

        last = build_while(lambda consts, states: build.lt(states[n], consts[-1]), step,
                           [*consts, times.node], [*carries, as_count(0), *leaf],
                           name=self.arg.name, max_trips=revolve.BLOCK)
        return last[n + 1:]

    def _reverse_steps(self, consts: Nodes, times: Expr, leaf: Nodes, cts: Nodes,
                       summed: Sequence[int]) -> Nodes:
        """Apply the pullback of each step, the last one first."""
        first, m = self.first, len(self.ct_indices)
        forward = drop_effects(self.form.forward_of(self.body))

        def step(consts: Nodes, states: Nodes) -> list[UOp]:
            i, cts = (Expr(states[0]) - 1).node, states[1:]
            saved_state = [read_slot(p, as_index(i)) for p in consts[first:]]
            inputs = [*consts[:first], *self._restore_state(saved_state)]
            by_kind = {"input": inputs, "result": inline_function(forward, inputs),
                       "cotangent": cts, "token": cts[-1:]}
            by_input, token = inline_backward(self.form, lambda s: by_kind[s[0]][s[1]])
            grads = dict(zip(self.inputs, by_input))
            ct_of = {i: g for i, g in grads.items() if g is not None}
            new = [or_zeros(grads[first + c], ct) for c, ct in zip(self.ct_indices, cts)]
            return [i, *new, *[add(total, ct_of[i]) for total, i in zip(cts[m:], summed)],
                    *optional_list(token)]

        _, *cts_before = build_while(lambda consts, states: (Expr(states[0]) > 0).node, step,
                                     [*consts, *leaf], [times.node, *cts],
                                     name=f"{self.arg.name}.pullback", max_trips=revolve.BLOCK)
        return cts_before


class _ShortWhileReverse(_WhileReverse):
    """A WHILE that ends within a block: the forward pass saves each state. This includes the
    loops over a block in the passes above, so that their derivatives stay small."""

    def forward(self, ins: Nodes) -> Sequence[UOp]:
        """Return the last carries, the number of steps, and the states before them."""
        n, first = self.n, self.first

        def step(consts: Nodes, states: Nodes) -> list[UOp]:
            return [*inline_function(self.step, [*consts, *states[:n]]), *self._save(states)]

        return build_while(self._goes_on, step, ins[:first],
                           [*ins[first:], as_count(0), *self._empty_slots(revolve.BLOCK)],
                           name=self.arg.name, max_trips=revolve.BLOCK)

    def backward(self, read: Reader, activity: Activity) -> VjpOuts:
        consts = [read(("input", i)) for i in range(self.first)]
        steps, *leaf = [read(("result", self.n + i)) for i in range(len(self.saved) + 1)]
        cts, summed, tokens = self._initial_cts(read, activity)
        last = self._reverse_steps(consts, Expr(steps), leaf, [*cts, *tokens], summed)
        result = dict(zip([*[self.first + c for c in self.ct_indices], *summed], last))
        return [result.get(i) for i in activity.inputs], last[-1] if tokens else None


# ---- slots --------------------------------------------------------------------------------------


def as_count(n: int) -> UOp:
    return build.const(n, COUNT_DTYPE)


def as_index(n: UOp) -> UOp:
    """Convert a count to an index."""
    return build.cast(n, dtypes.int32)


def read_slot(slots: UOp, i: UOp) -> UOp:
    """Return the state in slot i."""
    return build.gather(slots, i)


def write_slot(slots: UOp, i: UOp, value: UOp) -> UOp:
    """Store a value in a slot; out of bounds it is dropped."""
    return build.scatter(slots, [i], value)


def _take_even(slots: Nodes) -> list[UOp]:
    """Move every second state to the front; what follows does not matter."""
    i = minimum(2 * Expr(build.iota(revolve.FORWARD_SNAPSHOTS)), revolve.FORWARD_SNAPSHOTS - 1).node
    return [build.gather(p, i) for p in slots]


