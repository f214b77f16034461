"""hoist: what a step of a SCAN does not need its carries for is done for all steps at once.

    before  SCAN  c' = tanh(x_t @ w + c @ u)                    a product for each step
    after   z = xs @ w;  SCAN  c' = tanh(z_t + c @ u)           one product for all

    before  SCAN  dw' = dw + x_t^T g_t;  g' = f(g, x_t)         a sum that nobody else reads
    after   SCAN  gs_t = g_t, g' = f(g, x_t);  dw + sum over t of x_t^T g_t      one product

What moves has to pay: contractions and other reductions, and elementwise work that is dear, of
more than MIN_WORK a step; and what it keeps for all steps has to fit ``config.hoist_bytes``.
What is the same in all steps is computed once. Nothing moves out of WHILE or COND, no effect
moves, and out of a loop with checkpoints, whose memory is bounded, nothing does: it moves out of
the loop of each segment. Results and carries that nobody reads are left out.

>>> from fnx.core import dtypes
>>> c, x, w = (build.param(i, dtypes.float32, (64, 64)) for i in (1, 2, 0))
>>> product = build.reduce(build.mul(*[build.expand(build.reshape(a, s), (64, 64, 64)) for a, s in
...                        ((x, (64, 64, 1)), (w, (1, 64, 64)))]), ops.ADD, (1,))
>>> step = build.function([build.elementwise(ops.TANH, build.add(product, c))], 3, "step")
>>> last, = build.scan(step, 8, [w], [c], [build.param(3, dtypes.float32, (8, 64, 64))])
>>> moved, = hoist(build.function([last], 4)).src
>>> scan = moved.src[0]
>>> sorted(n.op.name for n in toposort(scan.src[0].src)), scan.src[-1].shape
(['ADD', 'PARAM', 'PARAM', 'TANH'], (8, 64, 64))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from fnx.core import build, ops
from fnx.core.array.trace import inline
from fnx.core.bodies import params_like
from fnx.core.config import config
from fnx.core.uop import UOp, consumers, rebuild, substitute, toposort
from fnx.transforms.batching.batch import batch
from fnx.transforms.loops.unread import without_unread

MIN_WORK = 8192  # of a node in a step: elements that are folded, or the cost of those computed
DEAR = 5         # cost of an elementwise op that is worth a place in memory

_BATCHED = frozenset({"elementwise", "movement", "reduce", "gather"})
_KEPT_APART = frozenset({ops.BARRIER})
_MOVES = frozenset({ops.RESHAPE, ops.PERMUTE, ops.EXPAND})
# No bigger than what it is computed from: it goes where that goes.
_JOINS = ops.ELEMENTWISE | {ops.RESHAPE, ops.PERMUTE, ops.REDUCE}


def hoist(fn: UOp) -> UOp:
    """A FUNCTION whose SCANs, those in bodies too, do in a step what depends on their carries."""
    inside = toposort([fn], into_functions=True)
    if not any(n.op is ops.SCAN for n in inside):
        return fn
    done: dict[UOp, UOp] = {}
    for body in inside:
        if body.op is ops.FUNCTION:
            outs = substitute(body.src, done)
            done[body] = body.over(tuple(_rewritten(outs)))
    return done[fn]


def _rewritten(outs: Sequence[UOp]) -> list[UOp]:
    """Outs with all SCANs among their nodes (not those of bodies) rewritten."""
    outs = without_unread(outs)
    results: dict[UOp, list[UOp]] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        made = None
        if node.op is ops.SCAN and node.arg.length > 1 and not node.arg.checkpoint:
            results[node] = _Scan(node.over(src)).results()
            made = node
        elif node.op is ops.GET and node.src[0] in results:
            made = results[node.src[0]][node.arg]
        return made
    return rebuild(outs, visit)


class _Scan:
    """A SCAN that is being taken apart; ``args`` are its operands by PARAM of the body."""

    def __init__(self, node: UOp) -> None:
        self.arg, self.args = node.arg, list(node.src[1:])
        self.outs = _without_calls(node.src[0].src)
        rows = node.arg.n_consts + node.arg.n_carries
        self.params = params_like([*self.args[:rows], *[_row(x) for x in self.args[rows:]]])
        self.consts = dict(zip(self.params, self.args[:node.arg.n_consts]))
        self.carries = self.params[node.arg.n_consts:rows]
        self.inits = self.args[node.arg.n_consts:rows]
        self.xs = dict(zip(self.params[rows:], self.args[rows:]))
        self.left = config.hoist_bytes

    def results(self) -> list[UOp]:
        """What the GETs of the node read."""
        self._before()
        return self._after()

    def fits(self, nodes: Iterable[UOp]) -> bool:
        """Whether these can be kept for all steps; then they are counted."""
        size = sum(math.prod(n.shape) * n.dtype.itemsize for n in nodes) * self.arg.length
        if size > self.left:
            return False
        self.left -= size
        return True

    def add(self, node: UOp, value: UOp, per_step: bool) -> UOp:
        """A PARAM more, in the place of a node."""
        param = build.param(len(self.params), node.dtype, node.shape)
        self.params.append(param)
        (self.xs if per_step else self.consts)[param] = value
        return param

    # ---- before the loop

    def _before(self) -> None:
        moved = _movable(self.outs, self._free())
        fixed = [n for n, per_step in moved.items() if not per_step]
        stepped = [n for n, per_step in moved.items() if per_step and self.fits([n])]
        new = dict(zip(fixed, substitute(fixed, self.consts)))
        new.update(zip(stepped, self._all_steps(stepped, {})))
        known = {n: self.add(n, value, moved[n]) for n, value in new.items()}
        self.outs = substitute(self.outs, known)

    def _free(self) -> dict[UOp, bool]:
        """Nodes that depend on no carry and may move: whether they depend on the step."""
        found: dict[UOp, bool] = {}
        for n in toposort(self.outs):
            if n.src and n.op.batching in _BATCHED and n.op not in _KEPT_APART:
                if all(s in found for s in n.src):
                    found[n] = any(found[s] for s in n.src)
            elif n.op in (ops.CONST, ops.IOTA) or n in self.consts or n in self.xs:
                found[n] = n in self.xs
        return found

    def _all_steps(self, nodes: Sequence[UOp], stacked: dict[UOp, UOp]) -> list[UOp]:
        """The values of nodes for all steps, in front; ``stacked`` are such values."""
        if not nodes:
            return []
        sources = [*self.consts, *self.xs, *stacked]
        slots = {n: build.param(i, n.dtype, n.shape) for i, n in enumerate(sources)}
        body = build.function(substitute(nodes, slots), len(sources), self.arg.name)
        wide = [False] * len(self.consts) + [True] * (len(self.xs) + len(stacked))
        made = batch(body, self.arg.length, wide)
        values = inline(made.function, [*self.consts.values(), *self.xs.values(),
                                        *stacked.values()])
        return [v if b else build.expand(v, (self.arg.length, *v.shape))
                for v, b in zip(values, made.outs)]

    # ---- behind the loop

    def _after(self) -> list[UOp]:
        """The loop without the sums that can be made behind it; and these."""
        n = len(self.carries)
        terms = _terms(self.outs, self.carries)
        moved, bases = self._moved(terms)
        kept = [i for i in range(n) if i not in moved or len(moved[i]) < len(terms[i])]
        states = [self.outs[i] if i not in moved else _total(
            [self.carries[i], *[t for t in terms[i] if t not in moved[i]]]) for i in kept]
        found = self._loop(kept, [*states, *self.outs[n:], *bases])
        ys = found[len(kept):]
        stacked = dict(zip(bases, ys[len(self.outs) - n:]))
        last = dict(zip(kept, found))
        out = [last.get(i, init) for i, init in enumerate(self.inits)]
        for i, some in moved.items():
            out[i] = _total([out[i], *[self._summed(term, stacked) for term in some]])
        return [*out, *ys[:len(self.outs) - n]]

    def _moved(self, terms: Mapping[int, Sequence[UOp]]
               ) -> tuple[dict[int, list[UOp]], list[UOp]]:
        """Terms of carries that are summed behind the loop, and what is kept of all steps for it.

        Those that pay, and then those for which nothing more has to be kept.
        """
        free = self._free()
        moved: dict[int, list[UOp]] = {}
        bases: dict[UOp, None] = {}
        for pays in (True, False):
            for i, term in [(i, term) for i, some in terms.items() for term in some]:
                found = _bases(term, bases)
                if found is None or term in moved.get(i, ()) or pays and not _pays(term):
                    continue
                missing = [b for b in found if b not in free and b not in bases]
                if not missing or pays and self.fits(missing):
                    bases.update(dict.fromkeys(missing))
                    moved.setdefault(i, []).append(term)
        return moved, list(bases)

    def _loop(self, kept: Sequence[int], outs: Sequence[UOp]) -> Sequence[UOp]:
        """The results of a SCAN with some of the carries, and of what else its steps read."""
        read = set(toposort(outs))
        consts = [p for p in self.consts if p in read]
        xs = [p for p in self.xs if p in read]
        order = [*consts, *[self.carries[i] for i in kept], *xs]
        slots = {p: build.param(k, p.dtype, p.shape) for k, p in enumerate(order)}
        body = build.function(substitute(outs, slots), len(order), self.arg.name)
        return build.scan(body, self.arg.length, [self.consts[p] for p in consts],
                          [self.inits[i] for i in kept], [self.xs[p] for p in xs],
                          self.arg.reverse, self.arg.name)

    def _summed(self, term: UOp, stacked: dict[UOp, UOp]) -> UOp:
        """A term summed over all steps, together with what it sums itself."""
        fold = _fold(term)
        product, = self._all_steps([fold.src[0]], stacked)
        total = build.reduce(product, ops.ADD, [0, *[a + 1 for a in fold.arg.axes]])
        return substitute([term], {fold: total})[0]


def _row(x: UOp) -> UOp:
    return build.param(0, x.dtype, x.shape[1:])


def _without_calls(outs: Sequence[UOp]) -> list[UOp]:
    """Nodes with calls of FUNCTIONs replaced by what these compute."""
    results: dict[UOp, list[UOp]] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        made = None
        if node.op is ops.CALL and node.src[0].op is ops.FUNCTION:
            results[node] = inline(src[0].over(tuple(_without_calls(src[0].src))), src[1:])
            made = node
        elif node.op is ops.GET and node.src[0] in results:
            made = results[node.src[0]][node.arg]
        return made
    return rebuild(outs, visit)


# ---- what can move in front of the loop ---------------------------------------------------------


def _movable(outs: Sequence[UOp], free: Mapping[UOp, bool]) -> dict[UOp, bool]:
    """Of the free nodes those that pay, as few as possible: whether they depend on the step."""
    order = toposort(outs)
    good: set[UOp] = set()
    for n in order:
        if n in free and n.src and (_is_dear(n) or n.op in _JOINS
                                    and any(s in good for s in n.src)):
            good.add(n)
    readers, roots = consumers(order), set(outs)
    return {n: free[n] for n in order
            if n in good and (n in roots or any(r not in good for r in readers[n]))}


def _is_dear(n: UOp) -> bool:
    size = math.prod(n.shape)
    if n.op is ops.REDUCE:
        return math.prod(n.src[0].shape) >= MIN_WORK
    return n.op in ops.ELEMENTWISE and n.op.cost >= DEAR and n.op.cost * size >= MIN_WORK


# ---- what can move behind it --------------------------------------------------------------------


def _terms(outs: Sequence[UOp], carries: Sequence[UOp]) -> dict[int, list[UOp]]:
    """Of carries that are only added to, and that nobody else reads: the terms of a step."""
    readers = consumers(toposort(outs))
    times = Counter(outs)
    found: dict[int, list[UOp]] = {}
    for i, node in enumerate(carries):
        terms: list[UOp] = []
        while node not in times and len(readers.get(node, ())) == 1:
            above, = readers[node]
            if above.op is not ops.ADD:
                break
            terms.append(above.src[1] if above.src[0] is node else above.src[0])
            node = above
        if terms and node is outs[i] and times[node] == 1 and not readers[node]:
            found[i] = terms
    return found


def _fold(term: UOp) -> UOp:
    """What is below the reshapes of a term."""
    while term.op in (ops.RESHAPE, ops.PERMUTE):
        term = term.src[0]
    return term


def _bases(term: UOp, kept: Container[UOp]) -> list[UOp] | None:
    """What a sum of products is computed from: what is kept anyhow, or what is below the
    movements that spread it."""
    fold = _fold(term)
    if fold.op is not ops.REDUCE or fold.arg.monoid is not ops.ADD:
        return None
    found: dict[UOp, None] = {}
    stack = [fold.src[0]]
    while stack:
        n = stack.pop()
        if n not in kept and (n.op in _MOVES or n.op is ops.MUL and n is fold.src[0]):
            stack += reversed(n.src)
        else:
            found[n] = None
    return list(found)


def _pays(term: UOp) -> bool:
    return math.prod(_fold(term).src[0].shape) >= MIN_WORK


def _total(terms: Sequence[UOp]) -> UOp:
    total, *rest = terms
    for term in rest:
        total = build.add(total, term)
    return total
