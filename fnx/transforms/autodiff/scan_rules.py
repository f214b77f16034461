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
tangents and cotangents are fixpoints (carry_fixpoints.py).

``checkpoint=k`` is a SCAN over segments of k steps, whose body is the SCAN of a segment and saves
only its carries: the backward pass reruns each segment before it reverses it. So n steps save
n/k + k carries instead of n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fnx.core.ir import build, build_calls, op_args
from fnx.core.ir.build_calls import Nodes, build_function, build_scan
from fnx.core.ir.derivations import Derivation
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.record import Record
from fnx.core.tracing.trace import inline_nodes
from fnx.transforms.autodiff.higher_order import (
    TOKEN,
    Activity,
    Linearized,
    Source,
)
from fnx.transforms.autodiff.loop_rules import (
    LoopRule,
    Reader,
    Sources,
    VjpOuts,
    carries_of,
    inline_backward,
    optional_list,
    or_zeros,
    recompute_form,
    reverse_activity,
    step_deps,
)
from fnx.transforms.autodiff.rules import add, zeros_like


class ScanRule(LoopRule):
    """The derivative rule of SCAN."""

    def linearize_uncached(self, node: UOp, args: Nodes,
                           activity: Activity) -> Derivation[Linearized]:
        body, arg = node.src[0], node.arg
        if arg.checkpoint > 1:
            segments = build_function(lambda ins: scan_segments(body, arg, ins), args, arg.name)
            form: Linearized = yield segments, activity
            return form
        op = OpBodies(node)
        inputs, outputs = reverse_activity(op, (yield from step_deps(op)), activity)
        form = yield body, Activity(inputs, outputs)
        if arg.checkpoint:
            form = recompute_form(body, form, len(outputs))
        return _ScanReverse(node, args, form, inputs, outputs).build(activity)


class _ScanReverse:
    """Both passes of a SCAN, from the derived form of its body.

    ``inputs`` and ``outputs`` are PARAMs and results of the body that have a cotangent.
    """

    def __init__(self, node: UOp, args: Nodes, form: Linearized, inputs: Sequence[int],
                 outputs: Sequence[int]) -> None:
        self.arg, self.args, self.form = node.arg, args, form
        self.inputs, self.outputs = inputs, outputs
        self.op = op = OpBodies(node)
        self.body, self.carries = form.forward_of(node.src[0]), carries_of(op)
        self.rows = self.carries.params.stop             # PARAMs from here on are xs
        self.params = op.params(op.split(args))
        self.ys = self.body.src[self.carries.n:len(node.arg.outs)]
        self.varying = set(self.params[self.carries.first:])
        self.varying.update(n for n in toposort(self.body.src)
                            if not self.varying.isdisjoint(n.src))
        # Results of a step that the backward pass reads anyway. The carries of the next step are
        # rows of these; other carries are saved as each step reads them.
        self.read_results = {self.body.src[i] for kind, i in form.sources if kind == "result"}

    def build(self, activity: Activity) -> Linearized:
        saved: list[UOp] = []
        src_of = {source: self._map_source(source, saved) for source in self.form.sources
                  if source[0] in ("input", "result")}
        sources = Sources()
        for src in src_of.values():
            sources.add(src.source)
            if src.first is not None:
                sources.add(src.first)
        for k, o in enumerate(activity.outputs):
            if o in self.outputs:
                sources.add(("cotangent", k))
        if self.form.token is not None:
            sources.add(TOKEN)
        forward = build_function(lambda ins: self.forward(ins, saved), self.args, self.arg.name)
        like = {"input": self.args, "result": forward.src, "cotangent":
                [forward.src[o] for o in activity.outputs]}
        return sources.build(forward if saved else None, like,
                             lambda read: self.backward(read, src_of, activity), self.arg.name)

    def _map_source(self, source: Source, saved: list[UOp]) -> _StepSrc:
        """Return where the backward pass finds an input or a result of a step."""
        kind, i = source
        node = self.params[i] if kind == "input" else self.body.src[i]
        if kind == "input" and i in self.carries.params:
            after = self.body.src[i - self.carries.first]
            if after in self.varying and after not in self.params and \
                    (after in self.ys or after in self.read_results):
                return _StepSrc("before", self._source_of(after, saved), source)
        return _StepSrc("row" if node in self.varying else "const", self._source_of(node, saved))

    def _source_of(self, node: UOp, saved: list[UOp]) -> Source:
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
        consts, states, xs = self.op.split(ins)
        shared = [n for n in saved if n not in self.varying]
        stacked = [n for n in saved if n in self.varying]
        known = dict(zip(self.params, consts))
        values = substitute(shared, known)

        def step(consts: Nodes, states: Nodes, xs: Nodes) -> tuple[Nodes, Nodes]:
            first = self.carries.first
            known = dict(zip(self.params, [*consts[:first], *states, *xs]))
            known.update(zip(shared, consts[first:]))
            outs = inline_nodes(self.body, [*self.body.src[:len(self.arg.outs)], *stacked], known)
            return outs[:self.carries.n], outs[self.carries.n:]

        last, ys = build_scan(step, self.arg.length, [*consts, *values], states, xs,
                              reverse=self.arg.reverse, checkpoint=self.arg.checkpoint,
                              name=self.arg.name)
        n = len(self.ys)
        by_node = dict(zip([*shared, *stacked], [*values, *ys[n:]]))
        return [*last, *ys[:n], *[by_node[node] for node in saved]]

    # ---- backward

    def backward(self, read: Reader, src_of: Mapping[Source, _StepSrc],
                 activity: Activity) -> VjpOuts:
        """Return the cotangents of the active operands."""
        carries, n = self.carries, self.carries.n
        shared = [s for s, src in src_of.items() if src.where == "const"]
        rows = [s for s, src in src_of.items() if src.where != "const"]
        out_cts = {o: read(("cotangent", k)) for k, o in enumerate(activity.outputs)
                   if o in self.outputs}
        with_ct, ys = ([o for o in self.outputs if o < n], [o for o in self.outputs if o >= n])
        result_index_of = {i: index for i, (index, _) in zip(self.inputs, self.form.result_indices)
                           if index is not None}
        summed_inputs = [i for i in result_index_of if i < carries.first]
        mapped_inputs = [i for i in result_index_of if i >= self.rows]

        def step(consts: Nodes, states: Nodes, xs: Nodes) -> tuple[Nodes, Nodes]:
            values = dict(zip([*shared, *rows], [*consts, *xs[:len(rows)]]))
            cts = dict(zip([*with_ct, *ys], [*states[:len(with_ct)], *xs[len(rows):]]))
            values.update((("cotangent", k), cts[o]) for k, o in enumerate(self.outputs))
            values.update(zip([TOKEN], states[len(with_ct) + len(summed_inputs):]))
            by_input, token = inline_backward(self.form, values.__getitem__)
            grads = dict(zip(self.inputs, by_input))
            ct_of = {i: g for i, g in grads.items() if g is not None}
            new = [or_zeros(grads[carries.first + c], cts[c]) for c in with_ct]
            sums = [add(total, ct_of[i])
                    for total, i in zip(states[len(with_ct):], summed_inputs)]
            return [*new, *sums, *optional_list(token)], [ct_of[i] for i in mapped_inputs]

        last, stacked = build_scan(
            step, self.arg.length, [read(src_of[s].source) for s in shared],
            [*[out_cts.get(c, zeros_like(self.params[carries.first + c])) for c in with_ct],
             *[zeros_like(self.params[i]) for i in summed_inputs],
             *[read(TOKEN) for _ in optional_list(self.form.token)]],
            [*[self._row(read, src_of[s]) for s in rows], *[out_cts[o] for o in ys]],
            reverse=not self.arg.reverse, checkpoint=self.arg.checkpoint,
            name=f"{self.arg.name}.backward")
        token = last[-1] if self.form.token is not None else None
        result = dict(zip([*[carries.first + c for c in with_ct], *summed_inputs, *mapped_inputs],
                          [*last[:len(with_ct) + len(summed_inputs)], *stacked]))
        return [result.get(i) for i in activity.inputs], token

    def _row(self, read: Reader, src: _StepSrc) -> UOp:
        """Return what each step reads, stacked."""
        stack = read(src.source)
        return stack if src.first is None else shift_to_before(
            stack, read(src.first), self.arg.reverse)


class _StepSrc(Record):
    """The location of a value of each step: one "const" of all steps; a "row" of an array; or
    "before", the row of the previous step, with ``first`` for the first step."""

    where: str
    source: Source
    first: Source | None = None


def shift_to_before(stack: UOp, first: UOp, reverse: bool) -> UOp:
    """Shift the stack of values after each step to those before each step."""
    n = stack.shape[0]
    begin = build.reshape(first, (1, *first.shape))
    full_ranges = [(0, m) for m in first.shape]
    if reverse:
        return build.shrink(build.concat([stack, begin], 0), [(1, n + 1), *full_ranges])
    return build.shrink(build.concat([begin, stack], 0), [(0, n), *full_ranges])


# ---- checkpoints --------------------------------------------------------------------------------


def scan_segments(body: UOp, arg: op_args.Scan, ins: Nodes) -> list[UOp]:
    """Return the results of a SCAN, as one over segments of ``arg.checkpoint`` steps and one of
    the rest.

    The remaining steps are the last ones that run.
    """
    first, rows = arg.n_consts, arg.n_consts + arg.n_carries
    consts, states, xs = ins[:first], ins[first:rows], ins[rows:]
    k = arg.checkpoint
    n, n_tail = divmod(arg.length, k)
    low, high = (n_tail, arg.length) if arg.reverse else (0, n * k)

    def cut(x: UOp, start: int, stop: int) -> UOp:
        return build.shrink(x, [(start, stop), *[(0, m) for m in x.shape[1:]]])

    def plain(consts: Nodes, states: Nodes, xs: Nodes, length: int
              ) -> tuple[Nodes, Nodes]:
        outs = build_calls.scan(body, length, consts, states, xs, arg.reverse, arg.name)
        return outs[:len(states)], outs[len(states):]

    segments = [build.reshape(cut(x, low, high), (n, k, *x.shape[1:])) for x in xs]
    states, stacked = build_scan(lambda consts, states, xs: plain(consts, states, xs, k), n, consts,
                                 states, segments, reverse=arg.reverse, checkpoint=1,
                                 name=f"{arg.name}.segment")
    ys = [build.reshape(y, (n * k, *y.shape[2:])) for y in stacked]
    if n_tail:
        tail = [cut(x, 0, n_tail) if arg.reverse else cut(x, n * k, arg.length) for x in xs]
        states, last = plain(consts, states, tail, n_tail)
        ys = [build.concat([b, a] if arg.reverse else [a, b], 0) for a, b in zip(ys, last)]
    return [*states, *ys]
