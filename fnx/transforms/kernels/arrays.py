"""Convert a user-written kernel to a FUNCTION of arrays, which can be differentiated.

    for i: for j: o[i] = sum(x[i, j] * w[j], over=j)    ->    reduce(x * expand(w), axis 1)

Each range is an axis of the values that depend on it. Reads are movements or GATHERs
(reading.py), reductions are REDUCEs, loops with carried values are SCANs, and stores are
movements or SCATTERs (writing.py). The kernel itself still computes the results; only
derivatives of this FUNCTION are run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from fnx.core import build, build_calls, dtypes, ops, parts
from fnx.core.cache import CacheOf
from fnx.core.errors import GradError
from fnx.core.record import Record
from fnx.core.uop import UOp, inherit, substitute, toposort
from fnx.transforms.kernels import reading, writing
from fnx.transforms.kernels.reading import Over, length, ordered, spread

MAX_FORMS = 8  # cached for each kernel
MAX_ELEMENTS = 2**31 - 1
_FIRST_PLACEHOLDER = 1 << 20
_REPEATS, _SMALL = 4, 1 << 16  # bounds on memory for rows loaded ahead of a loop

_made: CacheOf[UOp, tuple[int, tuple[tuple[ops.Shape, dtypes.DType], ...]], UOp] = CacheOf(
    "kernels as functions", MAX_FORMS)


def function_of(call: UOp) -> UOp:
    """Convert the CALL of a KERNEL to a FUNCTION of its operands.

    Raises:
        GradError: its arrays would have too many elements.

    >>> i, j = build.range_(2, 0), build.range_(3, 1)
    >>> x = build.load(build.at(build.ref(0, dtypes.float32, (2, 3)), i, j))
    >>> place = build.at(build.ref(1, dtypes.float32, (2,)), i)
    >>> kernel = build.kernel([build.store(place, build.reduce_ranges(x, ops.ADD, [j]))], "f")
    >>> from fnx.core import op_args
    >>> outs = (((2,), dtypes.float32),)
    >>> p = build.param(0, dtypes.float32, (2, 3))
    >>> function_of(UOp(ops.CALL, dtypes.void, (kernel, p), op_args.Call("f", outs))).src
    (<REDUCE float32[2] of 1, Reduce(monoid=ADD, axes=(1,), accumulator=None, first=False)>,)
    """
    kernel, *args = call.src
    key = len(args), call.arg.outs
    types = [(x.dtype, x.shape) for x in args]

    def make() -> UOp:
        inputs = [build.param(slot, *given) for slot, given in enumerate(types)]
        outs = _Arrays(kernel, inputs, call.arg.outs).results()
        return build.function(outs, len(inputs), kernel.arg.name)

    return _made.of(kernel).find(key, make)


class _Arrays:
    """Converter of one kernel to arrays. The outermost ``_Scope`` holds its stores.
    """

    def __init__(self, kernel: UOp, inputs: Sequence[UOp],
                 outs: Sequence[tuple[ops.Shape, dtypes.DType]]) -> None:
        self.kernel, self.inputs = kernel, inputs
        self.written: dict[int, UOp] = {}
        self.outs = outs
        nodes = toposort(kernel.src)
        self.rank = parts.LoopOrder(kernel.arg.order)
        self.integer = reading.index_dtype(nodes)
        self.steps: dict[UOp, list[UOp]] = {}  # ITER -> the values stored in its body
        self.carries: dict[int, list[UOp]] = {}
        self.inside = parts.open_loops(nodes)
        for n in nodes:
            if n.op is ops.STEP:
                self.steps.setdefault(n.src[1], []).append(n.src[0])
            elif n.op is ops.CARRY:
                self.carries.setdefault(n.arg.id, []).append(n)
        self._numbers = itertools.count(_FIRST_PLACEHOLDER)

    def placeholder(self, like: UOp, shape: ops.Shape | None = None) -> UOp:
        """Return a PARAM of a body; its final slot is assigned when the body is complete."""
        return build.param(next(self._numbers), like.dtype, like.shape if shape is None else shape)

    def results(self) -> list[UOp]:
        """Return the arrays that the STOREs write."""
        scope = _Scope(self, None, {})
        first = len(self.inputs)
        for store in self.kernel.src:
            slot = parts.buffer(store).arg.slot
            shape, dtype = self.outs[slot - first]
            place = [scope.value(i) for i in parts.indices(store)]
            value = scope.value(parts.value(store))
            condition = parts.validity(store)
            valid = None if condition is None else scope.value(condition)
            ran = scope.ran(store.src)
            if ran is not None:
                valid = ran if valid is None else scope.both(valid, ran)
            check_size(store, store.ranges)
            before = self.written.get(slot)
            base = build.const(0, dtype, shape) if before is None else before
            self.written[slot] = writing.written(
                base, before is None, store, place, value, valid, self.rank, self.integer)
        return [self.written.get(first + i, build.const(0, dtype, shape))
                for i, (shape, dtype) in enumerate(self.outs)]


def check_size(node: UOp, ranges: Iterable[UOp]) -> None:
    """Reject an array that is too large to allocate."""
    n = math.prod(map(length, ranges))
    if n > MAX_ELEMENTS:
        raise GradError(f"expected a kernel whose derivative fits memory, got one that needs an "
                        f"array of {n} elements, one for each iteration that this line is run in",
                        hint="give fnx.call a vjp= (or a jvp=), itself made of kernels",
                        site=node.site)


class _Scope:
    """Values at the top of a kernel, or in an iteration of the loop over ``t``.

    Attributes:
        known: node -> array; a range of an enclosing loop -> the iteration number.
        passed: in a loop, captured outer arrays: placeholder -> array in the outer scope.
        rows: in a loop, arrays of which each iteration reads one row: placeholder -> array.
        ends: ITER -> its results.
        own: the ids of the loops whose carried values belong to this scope.
    """

    def __init__(self, arrays: _Arrays, outer: _Scope | None, known: dict[UOp, Over],
                 t: UOp | None = None) -> None:
        self.arrays, self.outer, self.t = arrays, outer, t
        self.known = known
        self.own: set[int] = set()
        self.passed: dict[UOp, UOp] = {}
        self.rows: dict[UOp, UOp] = {}
        self.ends: dict[UOp, _End] = {}

    # ---- values ----

    def value(self, root: UOp) -> Over:
        """Return the array of a node."""
        def stops(n: UOp) -> bool:
            return n in self.known or n.op in _APART or self._is_outside(n)

        for node in toposort([root], stop=stops):
            if node not in self.known and node.op not in _PLACES:
                made = self._compute(node)
                inherit(made.node, node)
                self.known[node] = made
        found: Over = self.known[root]
        return found

    def _is_outside(self, node: UOp) -> bool:
        """Whether a node is loop invariant and not merely a number."""
        return self.t is not None and self.t not in node.ranges and node.op not in _NUMBERS \
            and self.own.isdisjoint(self.arrays.inside.get(node, ()))

    def _compute(self, node: UOp) -> Over:
        op = node.op
        if self._is_outside(node):
            return self._from_outside(node)
        if op is ops.RANGE:
            return self._range(node)
        if op is ops.CONST:
            return Over(build.const(build.const_of(node), self._dtype(node)))
        if op is ops.LOAD:
            return self._load(node)
        if op is ops.REDUCE:
            return self._fold(node)
        if op is ops.STAGE:
            check_size(node, {*node.ranges, *parts.closed(node)})
            return self.value(parts.value(node))
        if op is ops.GET:
            ended: Over = self._end(node.src[0]).last[node.arg]
            return ended
        if op is ops.STEP:
            return self._end(node.src[1]).steps[node.src[0]]
        if op not in ops.ELEMENTWISE:
            raise GradError(f"expected a kernel with a derivative, got one with {op}",
                            hint="give fnx.call a vjp=, itself made of kernels", site=node.site)
        src = [self.known[s] for s in node.src]
        axes = self.axes(*src)
        return Over(UOp(op, self._dtype(node), tuple([spread(s, axes) for s in src]), node.arg),
                    axes)

    def _dtype(self, node: UOp) -> dtypes.DType:
        return self.arrays.integer if node.dtype is dtypes.index else node.dtype

    def axes(self, *values: Over) -> tuple[UOp, ...]:
        """Return the union of the axes of values."""
        return tuple(sorted({r for v in values for r in v.axes}, key=self.arrays.rank))

    def both(self, a: Over, b: Over) -> Over:
        """Return the conjunction of two conditions."""
        axes = self.axes(a, b)
        return Over(build.and_(spread(a, axes), spread(b, axes)), axes)

    def _range(self, r: UOp) -> Over:
        if self.outer is not None and not self.outer.is_axis(r):
            return self._from_outside(r)
        if length(r) == 1:
            return Over(build.const(0, self.arrays.integer))
        return Over(build.iota(length(r), self.arrays.integer), (r,))

    def _fold(self, node: UOp) -> Over:
        x = self.value(parts.value(node))
        closed = [r for r in parts.closed(node) if length(r) != 1]
        axes = tuple(sorted({*x.axes, *closed}, key=self.arrays.rank))
        folded = build.reduce(spread(x, axes), node.arg.monoid,
                              [a for a, r in enumerate(axes) if r in closed])
        return Over(folded, tuple([r for r in axes if r not in closed]))

    # ---- reads ----

    def is_axis(self, r: UOp) -> bool:
        """Whether a range is an axis here; ranges of enclosing loops are numbers."""
        return r is not self.t and (self.outer is None or self.outer.is_axis(r))

    def _load(self, node: UOp) -> Over:
        buffer, condition = parts.buffer(node), parts.validity(node)
        if self.t is not None and self._is_row(node):
            return self._row(node)
        index = list(parts.indices(node))
        free: tuple[UOp, ...] = ()
        if buffer.op is ops.REF:
            x = self.operand(buffer)
        else:
            x, free, index = self._staged(buffer, index)
        if any(reading.affine(i, self.is_axis) is None for i in index):
            check_size(node, node.ranges)
        found = reading.read(x, free, index, self.arrays.rank, self.value, self.is_axis,
                             self.arrays.integer)
        if condition is None:
            return found
        valid = self.value(condition)
        axes = self.axes(found, valid)
        return Over(build.where(spread(valid, axes), spread(found, axes), build.const(
            0, node.dtype, tuple(map(length, axes)))), axes)

    def _staged(self, stage: UOp, index: list[UOp]) -> tuple[UOp, tuple[UOp, ...], list[UOp]]:
        """Return the array of a STAGE, its free ranges, and its indices. Free ranges come first."""
        held, over = self.value(stage), parts.closed(stage)
        dims = [r for r in over if length(r) != 1]
        free = tuple([r for r in held.axes if r not in over])
        whole = self.axes(held, Over(held.node, tuple(dims)))
        order = [whole.index(r) for r in (*free, *dims)]
        return (build.permute(spread(held, whole), order), free,
                [i for i, r in zip(index, over) if length(r) != 1])

    def operand(self, ref: UOp) -> UOp:
        """Return the array of an operand of the kernel."""
        if self.outer is None:
            given: UOp = self.arrays.inputs[ref.arg.slot]
            return given
        return self._pass(self.outer.operand(ref))

    # ---- loops ----

    def _pass(self, array: UOp) -> UOp:
        """Return the placeholder in this loop of an outer array."""
        for placeholder, given in self.passed.items():
            if given is array:
                return placeholder
        made = self.arrays.placeholder(array)
        self.passed[made] = array
        return made

    def _from_outside(self, node: UOp) -> Over:
        assert self.outer is not None
        found = self.outer.value(node)
        return Over(self._pass(found.node), found.axes)

    def _is_row(self, node: UOp) -> bool:
        """Whether a LOAD reads one row in each iteration, and all rows together are small."""
        assert self.t is not None
        nodes = toposort(node.src)
        if any(n.op is ops.CARRY for n in nodes) or parts.buffer(node).op is not ops.REF:
            return False
        size: int = math.prod(build.const_of(d) for d in parts.dims(parts.buffer(node)))
        rows: int = math.prod(map(length, node.ranges))
        return rows <= max(_REPEATS * size, _SMALL)

    def _row(self, node: UOp) -> Over:
        """Load the rows of all iterations outside of the loop; return the row of this iteration."""
        assert self.outer is not None and self.t is not None
        found = self.outer.value(node)
        if self.t not in found.axes:
            return Over(self._pass(found.node), found.axes)
        at = found.axes.index(self.t)
        rest = [a for a in range(len(found.axes)) if a != at]
        rows = build.permute(found.node, (at, *rest))
        made = self.arrays.placeholder(rows, rows.shape[1:])
        self.rows[made] = rows
        return Over(made, tuple([found.axes[a] for a in rest]))

    def ran(self, roots: Iterable[UOp]) -> Over | None:
        """Return where every loop that has a STEP under ``roots`` is active. None if everywhere."""
        out: Over | None = None
        for node in toposort(roots, stop=lambda n: n.op is ops.STEP):
            if node.op is not ops.STEP:
                continue
            value, loop, _ = node.src
            if self.outer is not None and self._is_outside(node):
                ran = self.outer.ran([node])
                ran = ran and Over(self._pass(ran.node), ran.axes)
            else:
                ran = self._end(loop).ran.get(value)
            if ran is not None:
                out = ran if out is None else self.both(out, ran)
        return out

    def _end(self, loop: UOp) -> _End:
        if loop not in self.ends:
            self.ends[loop] = _Loop(self, loop).run()
        return self.ends[loop]

    def open(self) -> set[int]:
        """Return the ids of the loops whose carried values are known here."""
        return self.own if self.outer is None else self.own | self.outer.open()


class _End(Record):
    """The results of a loop: final values, values of its STEPs, and where those are active."""

    last: list[Over]
    steps: dict[UOp, Over]
    ran: dict[UOp, Over]


class _Loop:
    """Conversion of an ITER to a SCAN; a single iteration (a conditional) is inlined."""

    def __init__(self, outer: _Scope, loop: UOp) -> None:
        self.outer, self.loop, self.arrays = outer, loop, outer.arrays
        self.t, = parts.closed(loop)
        self.stop = parts.stop(loop)
        known = outer.open() | {loop.arg.id}  # the other STEPs belong to an enclosing loop
        self.values = [v for v in self.arrays.steps.get(loop, [])
                       if known.issuperset(self.arrays.inside.get(v, ()))]
        self.carries = parts.carries(loop, self.arrays.carries.get(loop.arg.id, []))
        stops = frozenset() if self.stop is None else self.stop.ranges
        self.axes = [self._axes(c.ranges | stops) for c in self.carries]
        self.running = self._axes(stops)
        self.first = [spread(outer.value(x), axes)
                      for x, axes in zip(parts.inits(loop), self.axes)]

    def _axes(self, ranges: Iterable[UOp]) -> tuple[UOp, ...]:
        return tuple(sorted([r for r in ranges if r is not self.t and length(r) != 1
                             and self.outer.is_axis(r)], key=self.arrays.rank))

    def run(self) -> _End:
        """Convert the loop."""
        trips = length(self.t)
        return self._scan() if trips > 1 else self._once() if trips else self._never()

    def _never(self) -> _End:
        def none(dtype: dtypes.DType) -> Over:
            return Over(build.const(0, dtype, (0,)), (self.t,))

        return _End([Over(*x) for x in zip(self.first, self.axes)],
                    {v: none(v.dtype) for v in self.values},
                    {v: none(dtypes.bool_) for v in self.values})

    def _once(self) -> _End:
        scope = self.outer
        scope.own.add(self.loop.arg.id)
        scope.known[self.t] = Over(build.const(0, self.arrays.integer))
        last, goes = self._iteration(scope, self.first, None)
        return _End([Over(x, axes) for x, axes in zip(last, self.axes)],
                    {v: scope.value(v) for v in self.values}, self._ran(scope, goes))

    def _iteration(self, scope: _Scope, now: Sequence[UOp], running: Over | None
                   ) -> tuple[list[UOp], Over | None]:
        """Return the next values, and where the iteration is active."""
        scope.known.update({c: Over(x, axes)
                            for c, x, axes in zip(self.carries, now, self.axes)})
        goes: Over | None = None
        if self.stop is not None:
            stop = scope.value(self.stop)
            goes = Over(build.logical_not(spread(stop, self.running)), self.running)
            goes = goes if running is None else scope.both(running, goes)
        nexts = [spread(scope.value(x), axes) for x, axes in zip(parts.nexts(self.loop), self.axes)]
        if goes is None:
            return nexts, None
        return [build.where(spread(goes, axes), after, before)
                for after, before, axes in zip(nexts, now, self.axes)], goes

    def _ran(self, scope: _Scope, goes: Over | None) -> dict[UOp, Over]:
        """Return where each STEP of an iteration is active."""
        out: dict[UOp, Over] = {}
        for v in self.values:
            ran = scope.ran([v])
            if ran is not None and goes is not None:
                ran = scope.both(ran, goes)
            ran = goes if ran is None else ran
            if ran is not None:
                out[v] = ran
        return out

    def _scan(self) -> _End:
        arrays, trips = self.arrays, length(self.t)
        t = arrays.placeholder(build.const(0, arrays.integer))
        scope = _Scope(arrays, self.outer, {self.t: Over(t)}, self.t)
        scope.own.add(self.loop.arg.id)
        first, running = list(self.first), None
        now = [arrays.placeholder(x) for x in first]
        if self.stop is not None:
            first.append(build.const(True, dtypes.bool_, tuple(map(length, self.running))))
            running = Over(arrays.placeholder(first[-1]), self.running)
        last, goes = self._iteration(scope, now, running)
        steps = {v: scope.value(v) for v in self.values}
        ran = self._ran(scope, goes)
        if running is not None and goes is not None:
            now.append(running.node)
            last.append(goes.node)
        rows = {t: build.iota(trips, arrays.integer), **scope.rows}
        places = [*scope.passed, *now, *rows]
        to = {x: build.param(slot, x.dtype, x.shape) for slot, x in enumerate(places)}
        outs = [*last, *[x.node for x in steps.values()], *[x.node for x in ran.values()]]
        name = self.t.arg.name or "loop"
        body = build.function(substitute(outs, to), len(places), f"{arrays.kernel.arg.name}.{name}")
        found = iter(build_calls.scan(body, trips, list(scope.passed.values()), first,
                                      list(rows.values())))
        ended = [Over(next(found), axes) for axes in self.axes]
        if running is not None:
            next(found)

        def rows_of(values: Mapping[UOp, Over]) -> dict[UOp, Over]:
            return {v: ordered(next(found), (self.t, *x.axes), arrays.rank)
                    for v, x in values.items()}

        return _End(ended, rows_of(steps), rows_of(ran))


_APART = frozenset({ops.GET, ops.STEP, ops.RANGE, ops.CARRY})  # operands are not visited
_PLACES = frozenset({ops.REF, ops.INDEX})
_NUMBERS = frozenset({ops.CONST, ops.RANGE})
