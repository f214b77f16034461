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

from collections.abc import Mapping, Sequence

from fnx.core import build, build_calls, dtypes, ops
from fnx.core.array.trace import inline
from fnx.core.bodies import Nodes, function_over, params_like, while_over
from fnx.core.derived import Steps
from fnx.core.expr import Expr, minimum, where
from fnx.core.uop import UOp
from fnx.transforms.ad import carries as fixpoints
from fnx.transforms.ad import revolve
from fnx.transforms.ad.carries import CarryPlaces
from fnx.transforms.ad.loop import (
    LoopRule,
    Pulled,
    Read,
    Sources,
    or_zeros,
    pull_back,
    pushed_body,
    some,
)
from fnx.transforms.ad.rules import added, zeros
from fnx.transforms.ad.silent import silent
from fnx.transforms.ad.structural import TOKEN, Activity, Depends, Linearized, Push, Pushed

COUNT = dtypes.float64  # the dtype of step counts: exact beyond the range of int32


class WhileRule(LoopRule):
    """The derivative rule of WHILE, whose src begins with its condition and body."""

    def depends(self, node: UOp) -> Steps[Sequence[frozenset[int]]]:
        found = yield node.src[1], Depends()
        return fixpoints.closed(found, _carries(node), zero_steps=True)

    def push_values(self, node: UOp, args: Nodes, tangents: Mapping[int, UOp]
                    ) -> Steps[tuple[Nodes, Mapping[int, UOp]]]:
        goes_on, body, *_ = node.src
        carries = _carries(node)
        depends = yield body, Depends()
        inputs = sorted(fixpoints.active(depends, carries, tangents))
        moving = sorted(carries.of(inputs))
        pushed: Pushed = yield body, Push(tuple(inputs), full=tuple(moving))
        first, n = carries.first, carries.n
        fixed = [i for i in inputs if i < first]

        def condition(consts: Nodes, states: Nodes) -> UOp:
            return inline(goes_on, [*consts[:first], *states[:n]])[0]

        def step(consts: Nodes, states: Nodes) -> Nodes:
            results, found = pushed_body(pushed, [*consts[:first], *states[:n]],
                                         [*consts[first:], *states[n:]])
            return [*results, *[found[c] for c in moving]]

        last = while_over(
            condition, step, [*args[:first], *[tangents[i] for i in fixed]],
            [*args[first:], *[or_zeros(tangents.get(first + c), args[first + c]) for c in moving]],
            name=f"{node.arg.name}.jvp", most=node.arg.most)
        return last[:n], dict(zip(moving, last[n:]))

    def linearize(self, node: UOp, args: Nodes, takes: Activity) -> Steps[Linearized]:
        body, carries = node.src[1], _carries(node)
        depends = yield body, Depends()
        active = fixpoints.active(depends, carries, takes.inputs)
        pulled = sorted(c for c in fixpoints.pulled(depends, carries, takes.outputs)
                        if carries.first + c in active)
        inputs = [*sorted(i for i in active if i < carries.first),
                  *[carries.first + c for c in pulled]]
        form = yield body, Activity(tuple(inputs), tuple(pulled))
        kind = _ShortReverse if 0 < node.arg.most <= revolve.LEAF else _WhileReverse
        return kind(node, args, form, inputs, pulled).linearized(takes)


def _carries(node: UOp) -> CarryPlaces:
    return CarryPlaces(node.arg.n_consts, len(node.arg.outs))


class _WhileReverse:
    """Both passes of a WHILE, from the derived form of its body.

    ``inputs`` are its PARAMs that have a cotangent, ``pulled`` the carries.
    """

    def __init__(self, node: UOp, args: Nodes, form: Linearized, inputs: Sequence[int],
                 pulled: Sequence[int]) -> None:
        self.goes_on, self.body, *_ = node.src
        forward = form.forward_of(self.body)
        self.step = forward.over(forward.src[:len(node.arg.outs)])  # of a custom_vjp: its fwd
        self.again = silent(self.step)
        self.arg, self.args, self.form = node.arg, args, form
        self.inputs, self.pulled = inputs, pulled
        self.first = node.arg.n_consts
        self.n = len(node.arg.outs)
        self.like = params_like(args)
        self.saved = [c for c in range(self.n)
                      if not build_calls.is_token(self.like[self.first + c])]
        self.given = {i: place for i, (place, _) in zip(inputs, form.given) if place is not None}

    def linearized(self, takes: Activity) -> Linearized:
        forward = function_over(self.forward, self.args, self.arg.name)
        sources = Sources()
        for i in range(self.first):
            sources.want(("input", i))
        for o in range(self.n, len(forward.src)):
            sources.want(("result", o))
        for k, o in enumerate(takes.outputs):
            if o in self.pulled:
                sources.want(("cotangent", k))
        if self.form.token is not None:
            sources.want(TOKEN)
        like = {"input": self.args, "result": forward.src, "cotangent":
                [forward.src[o] for o in takes.outputs]}
        return sources.linearized(forward, like, lambda read: self.backward(read, takes),
                                  self.arg.name)

    def step_again(self, consts: Nodes, states: Nodes) -> list[UOp]:
        """Rerun a step, without its effects."""
        return inline(self.again, [*consts, *states])

    # ---- forward

    def forward(self, ins: Nodes) -> Sequence[UOp]:
        """Return the last carries; the numbers of steps and of saved states, the stride; and the
        saved states."""
        n, first = self.n, self.first

        def goes_on(consts: Nodes, states: Nodes) -> UOp:
            return inline(self.goes_on, [*consts, *states[:n]])[0]

        def chunk(consts: Nodes, states: Nodes) -> list[UOp]:
            carries, (steps, kept, stride), places = states[:n], states[n:n + 3], states[n + 3:]
            full = Expr(kept).eq(revolve.FIRST)
            kept = where(full, revolve.FIRST // 2, Expr(kept)).node
            stride = where(full, 2 * Expr(stride), Expr(stride)).node
            places = build_calls.cond([function_over(lambda p: p, places, "keep all"),
                                       function_over(_every_second, places, "keep every second")],
                                build.cast(full.node, dtypes.int32), places)
            places = [put(p, number(kept), c) for p, c in zip(places, self._saved(carries))]
            end = (Expr(steps) + Expr(stride)).node

            def in_chunk(consts: Nodes, states: Nodes) -> UOp:
                return build.and_(build.lt(states[n], consts[-1]),
                                  inline(self.goes_on, [*consts[:-1], *states[:n]])[0])

            *carries, steps = while_over(
                in_chunk, lambda consts, states: [
                    *inline(self.step, [*consts[:-1], *states[:n]]), (Expr(states[n]) + 1).node],
                [*consts, end], [*carries, steps], name=self.arg.name)
            return [*carries, steps, (Expr(kept) + 1).node, stride, *places]

        return while_over(goes_on, chunk, ins[:first],
                          [*ins[first:], count(0), count(0), count(revolve.LEAF),
                           *self._places(revolve.FIRST)], name=f"{self.arg.name}.chunk")

    def _places(self, n: int) -> list[UOp]:
        return [build.const(0, x.dtype, (n, *x.shape))
                for x in self._saved(self.like[self.first:])]

    def _saved(self, carries: Nodes) -> list[UOp]:
        """Return what is saved of a state: all but tokens, because effects do not happen again."""
        return [carries[c] for c in self.saved]

    def _state(self, saved: Nodes) -> list[UOp]:
        """Return the carries of a saved state."""
        found = dict(zip(self.saved, saved))
        return [found.get(c, build_calls.first_token()) for c in range(self.n)]

    # ---- backward

    def backward(self, read: Read, takes: Activity) -> Pulled:
        """Return the cotangents of the active operands."""
        consts = [read(("input", i)) for i in range(self.first)]
        steps, kept, stride, *places = [read(("result", self.n + i))
                                        for i in range(len(self.saved) + 3)]
        free = revolve.PLACES - revolve.FIRST
        places = [build.pad(p, [(0, free), *[(0, 0)] * (len(p.shape) - 1)]) for p in places]
        cts, summed, tokens = self._cotangents(read, takes)
        blocks = build.elementwise(ops.CEIL, (Expr(steps) / revolve.LEAF).node)
        strides = build.expand((Expr(stride) / revolve.LEAF).node, (revolve.PLACES,))
        begins = build.mul(build.iota(revolve.PLACES, COUNT), strides)
        state = [blocks, (Expr(kept) - 1).node, begins, *places, *self._places(revolve.LEAF), *cts,
                 *tokens]
        last = while_over(lambda consts, states: (Expr(states[0]) > 0).node,
                          lambda consts, states: self._some_blocks(consts, states, summed),
                          [*consts, steps], state, name=f"{self.arg.name}.backward")
        result = dict(zip([*[self.first + c for c in self.pulled], *summed],
                          last[3 + 2 * len(self.saved):]))
        return [result.get(i) for i in takes.inputs], last[-1] if tokens else None

    def _cotangents(self, read: Read, takes: Activity
                    ) -> tuple[list[UOp], list[int], list[UOp]]:
        """Return the initial values of a backward pass: cotangents of carries, then zeros for
        sums over all steps; the operands that have these sums; the token, if there is one."""
        given = {o: read(("cotangent", k)) for k, o in enumerate(takes.outputs)
                 if o in self.pulled}
        cts = [given.get(c, zeros(self.like[self.first + c])) for c in self.pulled]
        summed = [i for i in self.given if i < self.first]
        return [*cts, *[zeros(self.like[i]) for i in summed]], summed, \
            [read(TOKEN) for _ in some(self.form.token)]

    def _some_blocks(self, consts: Nodes, states: Nodes, summed: Sequence[int]) -> list[UOp]:
        """Go ahead from the last saved state; at the last block, reverse it."""
        *consts, steps = consts
        n = len(self.saved)
        blocks, top, begins = map(Expr, states[:3])
        places, leaf, cts = states[3:3 + n], states[3 + n:3 + 2 * n], states[3 + 2 * n:]
        at = number(top.node)
        begin = Expr(get(begins.node, at))
        free = (revolve.PLACES - 1) - top
        move = revolve.advance(blocks - begin, free)
        carries = self._repeat(consts, self._state([get(p, at) for p in places]),
                               move * revolve.LEAF)
        begin = begin + move
        at = number(where(move > 0, top + 1, top).node)  # no free slot: dropped
        places = [put(p, at, c) for p, c in zip(places, self._saved(carries))]
        begins = Expr(put(begins.node, at, begin.node))
        last = begin.eq(blocks - 1)
        pushed = (move > 0) & (free > 0)
        length = where(last, minimum(Expr(steps) - begin * revolve.LEAF, revolve.LEAF), 0)
        leaf = self._record(consts, carries, length, leaf)
        cts = self._back_through(consts, length, leaf, cts, summed)
        popped = where(last & (pushed | move.eq(0)), top.like(1), 0)
        top = top + where(pushed, top.like(1), 0) - popped
        return [(blocks - where(last, blocks.like(1), 0)).node, top.node, begins.node, *places,
                *leaf, *cts]

    def _repeat(self, consts: Nodes, carries: Nodes, times: Expr) -> Nodes:
        """Run the body ``times`` times."""
        *found, _ = while_over(
            lambda consts, states: build.lt(states[-1], consts[-1]),
            lambda consts, states: [*self.step_again(consts[:-1], states[:-1]),
                                    (Expr(states[-1]) + 1).node],
            [*consts, times.node], [*carries, count(0)], name=self.arg.name)
        return found

    def _record(self, consts: Nodes, carries: Nodes, times: Expr, leaf: Nodes) -> Nodes:
        """Run the body ``times`` times, and store the state before each step."""
        n = self.n

        def step(consts: Nodes, states: Nodes) -> list[UOp]:
            carries, i, leaf = states[:n], states[n], states[n + 1:]
            leaf = [put(p, number(i), c) for p, c in zip(leaf, self._saved(carries))]
            return [*self.step_again(consts[:-1], carries), (Expr(i) + 1).node, *leaf]

        found = while_over(lambda consts, states: build.lt(states[n], consts[-1]), step,
                           [*consts, times.node], [*carries, count(0), *leaf], name=self.arg.name,
                           most=revolve.LEAF)
        return found[n + 1:]

    def _back_through(self, consts: Nodes, times: Expr, leaf: Nodes, cts: Nodes,
                      summed: Sequence[int]) -> Nodes:
        """Apply the pullback of each step, the last one first."""
        first, m = self.first, len(self.pulled)
        forward = silent(self.form.forward_of(self.body))

        def step(consts: Nodes, states: Nodes) -> list[UOp]:
            i, cts = (Expr(states[0]) - 1).node, states[1:]
            at_i = [get(p, number(i)) for p in consts[first:]]
            inputs = [*consts[:first], *self._state(at_i)]
            at = {"input": inputs, "result": inline(forward, inputs), "cotangent": cts,
                  "token": cts[-1:]}
            by_input, token = pull_back(self.form, lambda s: at[s[0]][s[1]])
            grads = dict(zip(self.inputs, by_input))
            found = {i: g for i, g in grads.items() if g is not None}
            new = [or_zeros(grads[first + c], ct) for c, ct in zip(self.pulled, cts)]
            return [i, *new, *[added(total, found[i]) for total, i in zip(cts[m:], summed)],
                    *some(token)]

        _, *found = while_over(lambda consts, states: (Expr(states[0]) > 0).node, step,
                               [*consts, *leaf], [times.node, *cts],
                               name=f"{self.arg.name}.pullback", most=revolve.LEAF)
        return found


class _ShortReverse(_WhileReverse):
    """A WHILE that ends within a block: the forward pass saves each state. This includes the
    loops over a block in the passes above, so that their derivatives stay small."""

    def forward(self, ins: Nodes) -> Sequence[UOp]:
        """Return the last carries, the number of steps, and the states before them."""
        n, first = self.n, self.first

        def goes_on(consts: Nodes, states: Nodes) -> UOp:
            return inline(self.goes_on, [*consts, *states[:n]])[0]

        def step(consts: Nodes, states: Nodes) -> list[UOp]:
            carries, i, leaf = states[:n], states[n], states[n + 1:]
            leaf = [put(p, number(i), c) for p, c in zip(leaf, self._saved(carries))]
            return [*inline(self.step, [*consts, *carries]), (Expr(i) + 1).node, *leaf]

        return while_over(goes_on, step, ins[:first],
                          [*ins[first:], count(0), *self._places(revolve.LEAF)],
                          name=self.arg.name, most=revolve.LEAF)

    def backward(self, read: Read, takes: Activity) -> Pulled:
        consts = [read(("input", i)) for i in range(self.first)]
        steps, *leaf = [read(("result", self.n + i)) for i in range(len(self.saved) + 1)]
        cts, summed, tokens = self._cotangents(read, takes)
        last = self._back_through(consts, Expr(steps), leaf, [*cts, *tokens], summed)
        result = dict(zip([*[self.first + c for c in self.pulled], *summed], last))
        return [result.get(i) for i in takes.inputs], last[-1] if tokens else None


# ---- slots --------------------------------------------------------------------------------------


def count(n: int) -> UOp:
    return build.const(n, COUNT)


def number(n: UOp) -> UOp:
    """Convert a count to an index."""
    return build.cast(n, dtypes.int32)


def get(places: UOp, i: UOp) -> UOp:
    """Return the state in slot i."""
    return build.gather(places, i)


def put(places: UOp, i: UOp, value: UOp) -> UOp:
    """Store a value in a slot; out of bounds it is dropped."""
    return build.scatter(places, [i], value)


def _every_second(places: Nodes) -> list[UOp]:
    """Move every second state to the front; what follows does not matter."""
    i = minimum(2 * Expr(build.iota(revolve.FIRST)), revolve.FIRST - 1).node
    return [build.gather(p, i) for p in places]


