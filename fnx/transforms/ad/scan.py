"""Derivatives of SCAN.

    forward mode    carries (c, dc), rows (x, dx), the jvp form of the body
    reverse mode    the SCAN also stacks the residuals of each step, for the backward pass;
                    then a SCAN in the other direction, over these and the cotangents of ys:
                    its carries are the cotangents of carries, and the sums of those of consts;
                    its ys are the cotangents of xs

    c' = tanh(c @ w + x), y = c'    backward: g = ct * (1 - y**2);  dx = g;  dw = dw + c^T g

A residual that all steps share is a const of both loops and not stacked; one that is an x or y
is available already. Of a carry the value after each step is stacked, which the step computes
anyway; the value before a step is read from the same stack, shifted by one. Which carries have
tangents and cotangents are fixpoints (carries.py).

``checkpoint=k`` is a SCAN over segments of k steps, whose body is the SCAN of a segment and saves
only its carries: the backward pass reruns each segment before it reverses it. So n steps save
n/k + k carries instead of n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fnx.core import build, build_calls, op_args
from fnx.core.bodies import Nodes, function_over, params_like, scan_over
from fnx.core.derived import Steps
from fnx.core.record import Record
from fnx.core.uop import UOp, substitute, toposort
from fnx.transforms.ad import carries as fixpoints
from fnx.transforms.ad.carries import CarryPlaces
from fnx.transforms.ad.loop import (
    LoopRule,
    Pulled,
    Read,
    Sources,
    or_zeros,
    pull_back,
    pushed_body,
    recomputed,
    some,
)
from fnx.transforms.ad.rules import added, zeros
from fnx.transforms.ad.structural import TOKEN, Activity, Depends, Linearized, Push, Pushed, Source


class ScanRule(LoopRule):
    """The derivative rule of SCAN."""

    def depends(self, node: UOp) -> Steps[Sequence[frozenset[int]]]:
        found = yield node.src[0], Depends()
        return fixpoints.closed(found, _carries(node.arg), zero_steps=node.arg.length == 0)

    def linearize(self, node: UOp, args: Nodes, takes: Activity) -> Steps[Linearized]:
        body, arg = node.src[0], node.arg
        if arg.checkpoint > 1:
            whole = function_over(lambda ins: segmented(body, arg, ins), args, arg.name)
            form: Linearized = yield whole, takes
            return form
        depends = yield body, Depends()
        carries = _carries(arg)
        active = fixpoints.active(depends, carries, takes.inputs)
        pulled = {c for c in fixpoints.pulled(depends, carries, takes.outputs)
                  if carries.first + c in active}
        inputs = tuple(sorted(i for i in active if i not in carries.params
                              or i - carries.first in pulled))
        outputs = (*sorted(pulled), *[o for o in takes.outputs if o >= carries.n])
        form = yield body, Activity(inputs, outputs)
        if arg.checkpoint:
            form = recomputed(body, form, len(outputs))
        return _ScanReverse(node, args, form, inputs, outputs).linearized(takes)

    def push_values(self, node: UOp, args: Nodes, tangents: Mapping[int, UOp]
                    ) -> Steps[tuple[Nodes, Mapping[int, UOp]]]:
        body, arg, carries = node.src[0], node.arg, _carries(node.arg)
        depends = yield body, Depends()
        inputs = sorted(fixpoints.active(depends, carries, tangents))
        moving = sorted(carries.of(inputs))
        pushed: Pushed = yield body, Push(tuple(inputs), full=tuple(moving))
        first, rows = carries.first, carries.first + carries.n
        groups = [[i for i in inputs if i in group]
                  for group in (range(first), carries.params, range(rows, len(args)))]
        given = [or_zeros(tangents.get(i), args[i]) for i in range(len(args)) if i in inputs]
        at = dict(zip(inputs, given))
        active_ys: list[int] = []

        def step(consts: Nodes, states: Nodes, xs: Nodes) -> tuple[Nodes, Nodes]:
            n, m = first, carries.n
            dots = [*consts[n:], *states[m:], *xs[len(args) - rows:]]
            by_input = dict(zip([i for group in groups for i in group], dots))
            outs, found = pushed_body(
                pushed, [*consts[:n], *states[:m], *xs[:len(args) - rows]],
                [by_input[i] for i in inputs])
            active_ys.extend([o for o in range(m, len(outs)) if o in found])
            return ([*outs[:m], *[found[c] for c in moving]],
                    [*outs[m:], *[found[o] for o in active_ys]])

        states, ys = scan_over(
            step, arg.length, [*args[:first], *[at[i] for i in groups[0]]],
            [*args[first:rows], *[at[i] for i in groups[1]]],
            [*args[rows:], *[at[i] for i in groups[2]]],
            reverse=arg.reverse, checkpoint=arg.checkpoint, name=f"{arg.name}.jvp")
        results = [*states[:carries.n], *ys[:len(arg.outs) - carries.n]]
        found = dict(zip([*moving, *active_ys],
                         [*states[carries.n:], *ys[len(arg.outs) - carries.n:]]))
        return results, found


def _carries(arg: op_args.Scan) -> CarryPlaces:
    return CarryPlaces(arg.n_consts, arg.n_carries)


class _ScanReverse:
    """Both passes of a SCAN, from the derived form of its body.

    ``inputs`` and ``outputs`` are PARAMs and results of the body that have a cotangent.
    """

    def __init__(self, node: UOp, args: Nodes, form: Linearized, inputs: Sequence[int],
                 outputs: Sequence[int]) -> None:
        self.arg, self.args, self.form = node.arg, args, form
        self.inputs, self.outputs = inputs, outputs
        self.body, self.carries = form.forward_of(node.src[0]), _carries(node.arg)
        self.rows = self.carries.params.stop             # PARAMs from here on are xs
        rows = [build.param(0, x.dtype, x.shape[1:]) for x in args[self.rows:]]
        self.params = params_like([*args[:self.rows], *rows])
        self.ys = self.body.src[self.carries.n:len(node.arg.outs)]
        self.varying = set(self.params[self.carries.first:])
        self.varying.update(n for n in toposort(self.body.src)
                            if not self.varying.isdisjoint(n.src))

    def linearized(self, takes: Activity) -> Linearized:
        saved: list[UOp] = []
        places = {source: self._place(source, saved) for source in self.form.sources
                  if source[0] in ("input", "result")}
        sources = Sources()
        for place in places.values():
            sources.want(place.source)
            if place.first is not None:
                sources.want(place.first)
        for k, o in enumerate(takes.outputs):
            if o in self.outputs:
                sources.want(("cotangent", k))
        if self.form.token is not None:
            sources.want(TOKEN)
        forward = function_over(lambda ins: self.forward(ins, saved), self.args, self.arg.name)
        like = {"input": self.args, "result": forward.src, "cotangent":
                [forward.src[o] for o in takes.outputs]}
        return sources.linearized(forward if saved else None, like,
                                  lambda read: self.backward(read, places, takes), self.arg.name)

    def _place(self, source: Source, saved: list[UOp]) -> _Place:
        """Return where the backward pass finds an input or a result of a step."""
        kind, i = source
        node = self.params[i] if kind == "input" else self.body.src[i]
        if kind == "input" and i in self.carries.params:
            after = self.body.src[i - self.carries.first]
            if after in self.varying and after not in self.params:
                return _Place("before", self._found(after, saved), source)
        return _Place("row" if node in self.varying else "const", self._found(node, saved))

    def _found(self, node: UOp, saved: list[UOp]) -> Source:
        """Return a source for a node: an existing operand or result, else a new residual."""
        if node in self.ys and node in self.varying:
            return "result", self.carries.n + self.ys.index(node)
        if node in self.params and (i := self.params.index(node)) not in self.carries.params:
            return "input", i
        if node not in saved:
            saved.append(node)
        return "result", len(self.arg.outs) + saved.index(node)

    # ---- forward

    def forward(self, ins: Nodes, saved: Sequence[UOp]) -> list[UOp]:
        """Return the results and the residuals: stacked, or one value if all steps share it."""
        consts, states, xs = self._split(ins)
        shared = [n for n in saved if n not in self.varying]
        stacked = [n for n in saved if n in self.varying]
        known = dict(zip(self.params, consts))
        values = substitute(shared, known)

        def step(consts: Nodes, states: Nodes, xs: Nodes) -> tuple[Nodes, Nodes]:
            first = self.carries.first
            known = dict(zip(self.params, [*consts[:first], *states, *xs]))
            known.update(zip(shared, consts[first:]))
            outs = substitute([*self.body.src[:len(self.arg.outs)], *stacked], known)
            return outs[:self.carries.n], outs[self.carries.n:]

        last, ys = scan_over(step, self.arg.length, [*consts, *values], states, xs,
                             reverse=self.arg.reverse, checkpoint=self.arg.checkpoint,
                             name=self.arg.name)
        n = len(self.ys)
        found = dict(zip([*shared, *stacked], [*values, *ys[n:]]))
        return [*last, *ys[:n], *[found[node] for node in saved]]

    def _split(self, ins: Nodes) -> tuple[Nodes, Nodes, Nodes]:
        first = self.carries.first
        return ins[:first], ins[first:self.rows], ins[self.rows:]

    # ---- backward

    def backward(self, read: Read, places: Mapping[Source, _Place], takes: Activity) -> Pulled:
        """Return the cotangents of the active operands."""
        carries, n = self.carries, self.carries.n
        shared = [s for s, place in places.items() if place.where == "const"]
        rows = [s for s, place in places.items() if place.where != "const"]
        given = {o: read(("cotangent", k)) for k, o in enumerate(takes.outputs)
                 if o in self.outputs}
        pulled, ys = ([o for o in self.outputs if o < n], [o for o in self.outputs if o >= n])
        places_of = {i: place for i, (place, _) in zip(self.inputs, self.form.given)
                     if place is not None}
        summed = [i for i in places_of if i < carries.first]
        mapped = [i for i in places_of if i >= self.rows]

        def step(consts: Nodes, states: Nodes, xs: Nodes) -> tuple[Nodes, Nodes]:
            at = dict(zip([*shared, *rows], [*consts, *xs[:len(rows)]]))
            cts = dict(zip([*pulled, *ys], [*states[:len(pulled)], *xs[len(rows):]]))
            at.update((("cotangent", k), cts[o]) for k, o in enumerate(self.outputs))
            at.update(zip([TOKEN], states[len(pulled) + len(summed):]))
            by_input, token = pull_back(self.form, at.__getitem__)
            grads = dict(zip(self.inputs, by_input))
            found = {i: g for i, g in grads.items() if g is not None}
            new = [or_zeros(grads[carries.first + c], cts[c]) for c in pulled]
            sums = [added(total, found[i])
                    for total, i in zip(states[len(pulled):], summed)]
            return [*new, *sums, *some(token)], [found[i] for i in mapped]

        last, stacked = scan_over(
            step, self.arg.length, [read(places[s].source) for s in shared],
            [*[given.get(c, zeros(self.params[carries.first + c])) for c in pulled],
             *[zeros(self.params[i]) for i in summed],
             *[read(TOKEN) for _ in some(self.form.token)]],
            [*[self._row(read, places[s]) for s in rows], *[given[o] for o in ys]],
            reverse=not self.arg.reverse, checkpoint=self.arg.checkpoint,
            name=f"{self.arg.name}.backward")
        token = last[-1] if self.form.token is not None else None
        result = dict(zip([*[carries.first + c for c in pulled], *summed, *mapped],
                          [*last[:len(pulled) + len(summed)], *stacked]))
        return [result.get(i) for i in takes.inputs], token

    def _row(self, read: Read, place: _Place) -> UOp:
        """Return what each step reads, stacked."""
        stack = read(place.source)
        return stack if place.first is None else before(
            stack, read(place.first), self.arg.reverse)


class _Place(Record):
    """The location of a value of each step: one "const" of all steps; a "row" of an array; or
    "before", the row of the previous step, with ``first`` for the first step."""

    where: str
    source: Source
    first: Source | None = None


def before(stack: UOp, first: UOp, reverse: bool) -> UOp:
    """Shift the stack of values after each step to those before each step."""
    n = stack.shape[0]
    begin = build.reshape(first, (1, *first.shape))
    rest = [(0, m) for m in first.shape]
    if reverse:
        return build.shrink(build.concat([stack, begin], 0), [(1, n + 1), *rest])
    return build.shrink(build.concat([begin, stack], 0), [(0, n), *rest])


# ---- checkpoints --------------------------------------------------------------------------------


def segmented(body: UOp, arg: op_args.Scan, ins: Nodes) -> list[UOp]:
    """Return the results of a SCAN, as one over segments of ``arg.checkpoint`` steps and one of
    the rest.

    The remaining steps are the last ones that run.
    """
    first, rows = arg.n_consts, arg.n_consts + arg.n_carries
    consts, states, xs = ins[:first], ins[first:rows], ins[rows:]
    k = arg.checkpoint
    n, rest = divmod(arg.length, k)
    low, high = (rest, arg.length) if arg.reverse else (0, n * k)

    def cut(x: UOp, start: int, stop: int) -> UOp:
        return build.shrink(x, [(start, stop), *[(0, m) for m in x.shape[1:]]])

    def plain(consts: Nodes, states: Nodes, xs: Nodes, length: int
              ) -> tuple[Nodes, Nodes]:
        found = build_calls.scan(body, length, consts, states, xs, arg.reverse, arg.name)
        return found[:len(states)], found[len(states):]

    segments = [build.reshape(cut(x, low, high), (n, k, *x.shape[1:])) for x in xs]
    states, stacked = scan_over(lambda consts, states, xs: plain(consts, states, xs, k), n, consts,
                                states, segments, reverse=arg.reverse, checkpoint=1,
                                name=f"{arg.name}.segment")
    ys = [build.reshape(y, (n * k, *y.shape[2:])) for y in stacked]
    if rest:
        left = [cut(x, 0, rest) if arg.reverse else cut(x, n * k, arg.length) for x in xs]
        states, last = plain(consts, states, left, rest)
        ys = [build.concat([b, a] if arg.reverse else [a, b], 0) for a, b in zip(ys, last)]
    return [*states, *ys]
