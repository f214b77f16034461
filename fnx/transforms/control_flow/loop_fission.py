"""Loop fission of SCANs: compute work that no carry needs for all steps at once.

    before  SCAN  c' = tanh(x_t @ w + c @ u)                    a product for each step
    after   z = xs @ w;  SCAN  c' = tanh(z_t + c @ u)           one product for all

    before  SCAN  dw' = dw + x_t^T g_t;  g' = f(g, x_t)         a sum with no other reader
    after   SCAN  gs_t = g_t, g' = f(g, x_t);  dw + sum over t of x_t^T g_t      one product

    before  SCAN  h' = f(h, x_t);  y_t = h @ v                  a product that no carry reads
    after   SCAN  hs_t = h, h' = f(h, x_t);  hs @ v             one product

Moving a node must pay (fission_analysis.py), and the values stored for all steps, intermediates
included, must fit ``config.hoist_bytes``. Where they do not fit a cache, the loop runs by strips
of steps, and they are stored for one strip (strip_mining.py); a product with many rows in each
step stays there, where it is as fast. Loop-invariant values are computed
once. Nothing moves out of a WHILE or COND, effects do not move, and nothing moves out of a
checkpointed loop, whose memory is bounded; it moves out of the loop of each segment instead. Dead
results and carries are dropped.

>>> from fnx.core.ir import dtypes
>>> c, x, w = (build.param(i, dtypes.float32, (64, 64)) for i in (1, 2, 0))
>>> product = build.reduce(build.mul(*[build.expand(build.reshape(a, s), (64, 64, 64)) for a, s in
...                        ((x, (64, 64, 1)), (w, (1, 64, 64)))]), ops.ADD, (1,))
>>> step = build.function([build.elementwise(ops.TANH, build.add(product, c))], 3, "step")
>>> last, = build_calls.scan(step, 8, [w], [c], [build.param(3, dtypes.float32, (8, 64, 64))])
>>> moved, = split_scans(build.function([last], 4)).src
>>> scan = moved.src[0]
>>> sorted(n.op.name for n in toposort(scan.src[0].src)), scan.src[-1].shape
(['ADD', 'PARAM', 'PARAM', 'TANH'], (8, 64, 64))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.op_bodies import OpBodies, replace_results
from fnx.core.ir.uop import UOp, copy_locs, substitute, toposort
from fnx.core.support.config import config
from fnx.core.tracing.trace import inline_function
from fnx.transforms.batching.batch import batch
from fnx.transforms.control_flow.dead_carry_elimination import eliminate_dead_carries
from fnx.transforms.control_flow.fission_analysis import (
    accumulated_terms,
    carry_free_nodes,
    gains_from_all_steps,
    is_expensive,
    is_profitable,
    select_hoisted,
    strip_reshapes,
    tail_inputs,
    term_inputs,
)
from fnx.transforms.control_flow.strip_mining import fits_strip, steps_per_strip, strip_mine
from fnx.transforms.control_flow.transpose_invariants import strided_operands


def split_scans(fn: UOp, strip_bytes: int | None = None) -> UOp:
    """Apply loop fission to all SCANs of a FUNCTION, including those in bodies.

    Args:
        fn: a FUNCTION.
        strip_bytes: the size of the values stored for steps above which a SCAN runs by strips
            (strip_mining.py); None: none does.
    """
    bodies = toposort([fn], into_functions=True)
    steps = [n.src[0] for n in bodies if n.op is ops.SCAN]
    if not steps:
        return fn
    in_steps = set(toposort(steps, into_functions=True))
    rewritten: dict[UOp, UOp] = {}
    for body in bodies:  # inner bodies come first
        if body.op is ops.FUNCTION:
            outs = substitute(body.src, rewritten)
            if body in in_steps:
                outs = _inline_calls(outs)
            rewritten[body] = body.with_operands(tuple(_rewrite_scans(outs, strip_bytes)))
    return rewritten[fn]


def _rewrite_scans(outs: Sequence[UOp], strip_bytes: int | None) -> list[UOp]:
    """Rewrite the SCANs under ``outs``, except those in bodies."""
    def split(node: UOp, src: tuple[UOp, ...]) -> list[UOp] | None:
        if node.op is not ops.SCAN or node.arg.length < 2 or node.arg.checkpoint:
            return None
        scan = node.with_operands(src)
        fission = _ScanFission(scan, config.hoist_bytes, strip_bytes)
        results = fission.results()
        steps = strip_bytes is not None and steps_per_strip(
            node.arg.length, fission.stored_bytes, strip_bytes)
        if not steps:
            return results
        return strip_mine(
            scan, steps, lambda strip: _ScanFission(strip, config.hoist_bytes, strip_bytes)
            .results(), lambda strips: _ScanFission(strips, 0, None).results())  # invariants only
    return replace_results(eliminate_dead_carries(outs), split)


class _ScanFission:
    """Fission of one SCAN, which stores at most ``max_bytes`` for its steps. ``consts`` and ``xs``
    map PARAMs of the body to its operands."""

    def __init__(self, node: UOp, max_bytes: int, strip_bytes: int | None) -> None:
        op = OpBodies(node)
        consts, self.inits, xs = op.split(op.operands)
        self.node, self.arg, self.outs = node, node.arg, op.steps[0].src
        self.params = op.params([consts, self.inits, xs])
        const_params, self.carries, rows = op.split(self.params)
        self.consts, self.xs = dict(zip(const_params, consts)), dict(zip(rows, xs))
        self.bytes_left, self.strip_bytes = max_bytes, strip_bytes
        self.charged: set[UOp] = set()

    def results(self) -> list[UOp]:
        """Return the results of the node, computed by a smaller loop and by work outside of it."""
        n = len(self.carries)
        terms = accumulated_terms(self.outs, self.carries)
        moved, tails, bases = self._plan_after_loop(terms)
        remaining = [i for i in range(n) if i not in moved or len(moved[i]) < len(terms[i])]
        states = [self.outs[i] if i not in moved else _add_all(
            [self.carries[i], *[t for t in terms[i] if t not in moved[i]]]) for i in remaining]
        ys = [o for o in range(n, len(self.outs)) if o not in tails]
        hoisted = self._hoist_free([*states, *[self.outs[o] for o in ys], *bases])
        loop_results = self._loop(remaining, self._transpose_invariants(hoisted))
        stacked = dict(zip(bases, loop_results[len(remaining) + len(ys):]))
        out = dict(zip([*remaining, *ys], loop_results))
        out.update(zip(tails, self._batch_over_steps([self.outs[o] for o in tails], stacked)))
        for i, moved_terms in moved.items():
            out[i] = _add_all([out.get(i, self.inits[i]),
                               *[self._sum_over_steps(term, stacked) for term in moved_terms]])
        return [out[o] for o in range(len(self.outs))]

    @property
    def stored_bytes(self) -> int:
        """The bytes a step that are stored only as work moves out of the loop."""
        return sum(math.prod(n.shape) * n.dtype.itemsize for n in self.charged.difference(
            self.outs[len(self.carries):]))

    def fits(self, nodes: Iterable[UOp]) -> bool:
        """Whether nodes can be stored for all steps; if so, charge them to the budget."""
        uncharged = set(nodes) - self.charged
        size = sum(math.prod(n.shape) * n.dtype.itemsize for n in uncharged) * self.arg.length
        if size > self.bytes_left:
            return False
        self.bytes_left -= size
        self.charged.update(uncharged)
        return True

    def add(self, node: UOp, value: UOp, per_step: bool) -> UOp:
        """Add a PARAM that replaces a node, bound to ``value``."""
        param = build.param(len(self.params), node.dtype, node.shape)
        self.params.append(param)
        (self.xs if per_step else self.consts)[param] = value
        return param

    # ---- ahead of the loop

    def _hoist_free(self, outs: Sequence[UOp]) -> list[UOp]:
        """Hoist free nodes ahead of the loop; return the results of the step that read them."""
        free = carry_free_nodes(outs, self.consts, self.xs)
        moved = select_hoisted(outs, free)
        fixed = [n for n, per_step in moved.items() if not per_step]
        stepped, step_bytes = [], 0
        for n in [n for n, per_step in moved.items() if per_step]:
            costly = [below for below in toposort([n]) if free[below] and is_expensive(below)]
            size = step_bytes + math.prod(n.shape) * n.dtype.itemsize
            reductions = [below for below in costly if below.op is ops.REDUCE]
            if self._may_store(size, reductions, free) and self.fits([n, *costly]):
                stepped.append(n)
                step_bytes = size
        new = dict(zip(fixed, substitute(fixed, self.consts)))
        new.update(zip(stepped, self._batch_over_steps(stepped, {})))
        return substitute(outs, {n: self.add(n, value, moved[n]) for n, value in new.items()})

    def _may_store(self, size: int, reductions: list[UOp], free: Mapping[UOp, bool]) -> bool:
        """Whether to store so many bytes for each step, computed by reductions of all steps."""
        if self.strip_bytes is None or any(gains_from_all_steps(n, free) for n in reductions):
            return True
        return size * self.arg.length <= self.strip_bytes or \
            not reductions and fits_strip(self.arg.length, size, self.strip_bytes)

    def _transpose_invariants(self, outs: Sequence[UOp]) -> list[UOp]:
        """Transpose strided loop-invariant operands once; return the results that read those."""
        transposed: dict[tuple[UOp, tuple[int, ...]], UOp] = {}
        subst: dict[UOp, UOp] = {}
        for strided in strided_operands(outs, self.consts):
            param = transposed.get((strided.param, strided.order))
            if param is None:
                value = build.permute(self.consts[strided.param], strided.order)
                like = build.param(0, value.dtype, value.shape)
                param = transposed[strided.param, strided.order] = self.add(like, value, False)
            subst[strided.operand], = substitute([strided.operand],
                                                 {strided.param: strided.over(param)})
        return substitute(outs, subst)

    def _batch_over_steps(self, nodes: Sequence[UOp], stacked: dict[UOp, UOp]) -> list[UOp]:
        """Compute nodes for all steps, stacked on a leading axis, from ``stacked`` inputs."""
        if not nodes:
            return []
        sources = [*self.consts, *self.xs, *stacked]
        slots = dict(zip(sources, build_calls.params_like(sources)))
        body = build.function(substitute(nodes, slots), len(sources), self.arg.name)
        batched = [False] * len(self.consts) + [True] * (len(self.xs) + len(stacked))
        batched_body = batch(body, self.arg.length, batched)
        values = inline_function(batched_body.function, [*self.consts.values(), *self.xs.values(),
                                                         *stacked.values()])
        return [v if b else build.expand(v, (self.arg.length, *v.shape))
                for v, b in zip(values, batched_body.outs)]

    # ---- after the loop

    def _plan_after_loop(self, terms: Mapping[int, Sequence[UOp]]
                ) -> tuple[dict[int, list[UOp]], list[int], list[UOp]]:
        """Choose the terms of carries and the results to compute after the loop.

        First those that pay, then also terms that need no further stored inputs.

        Returns:
            Carry number -> terms, the numbers of the results, and the inputs to store.
        """
        free = carry_free_nodes(self.outs, self.consts, self.xs)
        moved: dict[int, list[UOp]] = {}
        tails: list[int] = []
        bases: dict[UOp, None] = {}

        def move_terms(must_pay: bool) -> None:
            for i, term in [(i, term) for i, node_terms in terms.items() for term in node_terms]:
                inputs = term_inputs(term, bases)
                if inputs is None or term in moved.get(i, ()):
                    continue
                missing = [b for b in inputs if b not in free and b not in bases]
                if not missing or must_pay and is_profitable(term, missing) and self.fits(missing):
                    bases.update(dict.fromkeys(missing))
                    moved.setdefault(i, []).append(term)

        move_terms(True)
        moved_terms = {t for some in moved.values() for t in some}
        n = len(self.carries)
        needed = set(toposort(self.outs[:n], stop=moved_terms.__contains__))
        for o in range(n, len(self.outs)):
            inputs = tail_inputs(self.outs[o], needed, free, {*self.outs[n:], *bases})
            if inputs is not None and self.fits([*inputs, *[
                    b for b in toposort([self.outs[o]]) if b not in needed and is_expensive(b)]]):
                bases.update(dict.fromkeys(inputs))
                tails.append(o)
        move_terms(False)
        return moved, tails, list(bases)

    def _loop(self, remaining: Sequence[int], outs: Sequence[UOp]) -> Sequence[UOp]:
        """Return the results of a SCAN with the carries ``remaining``, without unread operands."""
        read = set(toposort(outs))
        consts = [p for p in self.consts if p in read]
        xs = [p for p in self.xs if p in read]
        order = [*consts, *[self.carries[i] for i in remaining], *xs]
        slots = dict(zip(order, build_calls.params_like(order)))
        body = build.function(substitute(outs, slots), len(order), self.arg.name)
        results = build_calls.scan(body, self.arg.length, [self.consts[p] for p in consts],
                                   [self.inits[i] for i in remaining], [self.xs[p] for p in xs],
                                   self.arg.reverse, self.arg.name)
        for result in results[:1]:
            copy_locs(result.src[0], self.node)
        return results

    def _sum_over_steps(self, term: UOp, stacked: dict[UOp, UOp]) -> UOp:
        """Sum a term over all steps along with its own reduction."""
        reduction = strip_reshapes(term)
        product, = self._batch_over_steps([reduction.src[0]], stacked)
        total = build.reduce(product, ops.ADD, [0, *[a + 1 for a in reduction.arg.axes]])
        return substitute([term], {reduction: total})[0]


def _inline_calls(outs: Sequence[UOp]) -> list[UOp]:
    """Inline calls of FUNCTIONs that contain no calls themselves."""
    def inline(node: UOp, src: tuple[UOp, ...]) -> list[UOp] | None:
        is_call = node.op is ops.CALL and src[0].op is ops.FUNCTION
        return inline_function(src[0], src[1:]) if is_call else None
    return replace_results(outs, inline)


def _add_all(terms: Sequence[UOp]) -> UOp:
    total, *rest = terms
    for term in rest:
        total = build.add(total, term)
    return total
