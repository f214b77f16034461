"""Convert a user-written kernel to a FUNCTION of arrays, which can be differentiated.

    for i: for j: o[i] = sum(x[i, j] * w[j], over=j)    ->    reduce(x * expand(w), axis 1)

Each range is an axis of the values that depend on it. Reads are movements or GATHERs
(array_loads.py), reductions are REDUCEs, loops with carried values are SCANs, and stores are
movements or SCATTERs (array_stores.py). The kernel itself still computes the results; only
derivatives of this FUNCTION are run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from fnx.core.ir import accessors, build, build_calls, dtypes, ops
from fnx.core.ir.derivations import derived_forms
from fnx.core.ir.uop import UOp, current_loc, joint_location, substitute, toposort
from fnx.core.support.errors import GradError
from fnx.core.support.line_visits import recording
from fnx.core.support.record import Record
from fnx.transforms.kernel_lang import array_loads, array_stores
from fnx.transforms.kernel_lang.array_loads import RangedArray, expand_to, sort_axes, trip_count

MAX_ELEMENTS = 2**31 - 1
_FIRST_PLACEHOLDER = 1 << 20
_MAX_REPEATS, _SMALL_ROWS = 4, 1 << 16  # bounds on memory for rows loaded ahead of a loop


def kernel_to_function(call: UOp) -> UOp:
    """Convert the CALL of a KERNEL to a FUNCTION of its operands.

    Raises:
        GradError: its arrays would have too many elements.

    >>> i, j = build.range_(2, 0), build.range_(3, 1)
    >>> x = build.load(build.index_into(build.ref(0, dtypes.float32, (2, 3)), i, j))
    >>> place = build.index_into(build.ref(1, dtypes.float32, (2,)), i)
    >>> kernel = build.kernel([build.store(place, build.reduce_ranges(x, ops.ADD, [j]))], "f")
    >>> from fnx.core.ir import op_args
    >>> outs = (((2,), dtypes.float32),)
    >>> p = build.param(0, dtypes.float32, (2, 3))
    >>> kernel_to_function(UOp(ops.CALL, dtypes.void, (kernel, p), op_args.Call("f", outs))).src
    (<REDUCE float32[2] of 1, Reduce(monoid=ADD, axes=(1,), accumulator=None, first=False)>,)
    """
    kernel, *args = call.src
    key = kernel_to_function, len(args), call.arg.outs
    types = [(x.dtype, x.shape) for x in args]

    def make() -> UOp:
        inputs = [build.param(slot, *aval) for slot, aval in enumerate(types)]
        # a derivative asks for it: what it computes is not of a derivative
        old, current_loc.loc = current_loc.loc, joint_location(call)
        try:
            outs = _Converter(kernel, inputs, call.arg.outs).results()
        finally:
            current_loc.loc = old
        return build.function(outs, len(inputs), kernel.arg.name)

    fn: UOp = derived_forms(kernel).get_or_make(key, make)
    return fn


class _Converter:
    """Converter of one kernel to arrays. The outermost ``_Scope`` holds its stores.
    """

    def __init__(self, kernel: UOp, inputs: Sequence[UOp],
                 outs: Sequence[tuple[ops.Shape, dtypes.DType]]) -> None:
        self.kernel, self.inputs = kernel, inputs
        self.written: dict[int, UOp] = {}
        self.outs = outs
        nodes = toposort(kernel.src)
        self.rank = accessors.LoopOrder(kernel.arg.order)
        self.integer = array_loads.index_dtype(nodes)
        self.steps: dict[UOp, list[UOp]] = {}  # LOOP -> the values stored in its body
        self.carries: dict[int, list[UOp]] = {}
        self.inside = accessors.carry_dependences(nodes)
        for n in nodes:
            if n.op is ops.PER_ITERATION:
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
            _set_location(store)
            slot = accessors.buffer(store).arg.slot
            shape, dtype = self.outs[slot - first]
            index_arrays = [scope.value(i) for i in accessors.indices(store)]
            value = scope.value(accessors.value(store))
            condition = accessors.validity(store)
            valid = None if condition is None else scope.value(condition)
            active = scope.ran(store.src)
            if active is not None:
                valid = active if valid is None else scope.both(valid, active)
            check_size(store, store.ranges)
            before = self.written.get(slot)
            base = build.const(0, dtype, shape) if before is None else before
            self.written[slot] = array_stores.apply_store(
                base, before is None, store, index_arrays, value, valid, self.rank, self.integer)
        return [self.written.get(first + i, build.const(0, dtype, shape))
                for i, (shape, dtype) in enumerate(self.outs)]


def _set_location(node: UOp) -> None:
    """Give arrays the line of the kernel that they come from. Steps show the call as a whole."""
    if recording.recorder is None:
        current_loc.set_from(node)


def check_size(node: UOp, ranges: Iterable[UOp]) -> None:
    """Reject an array that is too large to allocate."""
    n = math.prod(map(trip_count, ranges))
    if n > MAX_ELEMENTS:
        raise GradError(f"expected a kernel whose derivative fits in memory, got one that needs an "
                        f"array of {n} elements, one for each iteration that this line is run in",
                        hint="give fnx.call a vjp= (or a jvp=), itself made of kernels",
                        loc=node.loc)


class _Scope:
    """Values at the top of a kernel, or in an iteration of the loop over ``t``.

    Attributes:
        known: node -> array; a range of an enclosing loop -> the iteration number.
        captures: in a loop, captured outer arrays: placeholder -> array in the outer scope.
        rows: in a loop, arrays of which each iteration reads one row: placeholder -> array.
        loop_results: LOOP -> its results.
        own_loops: the ids of the loops whose carried values belong to this scope.
    """

    def __init__(self, arrays: _Converter, outer: _Scope | None, known: dict[UOp, RangedArray],
                 t: UOp | None = None) -> None:
        self.arrays, self.outer, self.t = arrays, outer, t
        self.known = known
        self.own_loops: set[int] = set()
        self.captures: dict[UOp, UOp] = {}
        self.rows: dict[UOp, UOp] = {}
        self.loop_results: dict[UOp, _LoopResults] = {}

    # ---- values ----

    def value(self, root: UOp) -> RangedArray:
        """Return the array of a node."""
        def stops(n: UOp) -> bool:
            return n in self.known or n.op in _WALK_STOPS or self._is_invariant(n)

        loc = current_loc.loc
        for node in toposort([root], stop=stops):
            if node not in self.known and node.op not in _ADDRESS_OPS:
                _set_location(node)
                self.known[node] = self._compute(node)
                current_loc.loc = loc
        result: RangedArray = self.known[root]
        return result

    def _is_invariant(self, node: UOp) -> bool:
        """Whether a node is loop invariant and not merely a number."""
        return self.t is not None and self.t not in node.ranges and node.op not in _NUMBER_OPS \
            and self.own_loops.isdisjoint(self.arrays.inside.get(node, ()))

    def _compute(self, node: UOp) -> RangedArray:
        op = node.op
        if self._is_invariant(node):
            return self._capture_value(node)
        if op is ops.RANGE:
            return self._range(node)
        if op is ops.CONST:
            return RangedArray(build.const(build.const_of(node), self._dtype(node)))
        if op is ops.LOAD:
            return self._load(node)
        if op is ops.REDUCE:
            return self._reduce(node)
        if op is ops.STAGE:
            check_size(node, {*node.ranges, *accessors.bound_ranges(node)})
            return self.value(accessors.value(node))
        if op is ops.GETTUPLE:
            final: RangedArray = self._loop_results(node.src[0]).last[node.arg]
            return final
        if op is ops.PER_ITERATION:
            return self._loop_results(node.src[1]).steps[node.src[0]]
        if op not in ops.ELEMENTWISE:
            raise GradError(f"expected a kernel with a derivative, got one with {op}",
                            hint="give fnx.call a vjp=, itself made of kernels", loc=node.loc)
        src = [self.known[s] for s in node.src]
        axes = self.axes(*src)
        return RangedArray(UOp(op, self._dtype(node), tuple([expand_to(s, axes) for s in src]),
                               node.arg),
                           axes)

    def _dtype(self, node: UOp) -> dtypes.DType:
        return self.arrays.integer if node.dtype is dtypes.index else node.dtype

    def axes(self, *values: RangedArray) -> tuple[UOp, ...]:
        """Return the union of the axes of values."""
        return tuple(sorted({r for v in values for r in v.axes}, key=self.arrays.rank))

    def both(self, a: RangedArray, b: RangedArray) -> RangedArray:
        """Return the conjunction of two conditions."""
        axes = self.axes(a, b)
        return RangedArray(build.and_(expand_to(a, axes), expand_to(b, axes)), axes)

    def _range(self, r: UOp) -> RangedArray:
        if self.outer is not None and not self.outer.is_axis(r):
            return self._capture_value(r)
        if trip_count(r) == 1:
            return RangedArray(build.const(0, self.arrays.integer))
        return RangedArray(build.iota(trip_count(r), self.arrays.integer), (r,))

    def _reduce(self, node: UOp) -> RangedArray:
        x = self.value(accessors.value(node))
        closed = [r for r in accessors.bound_ranges(node) if trip_count(r) != 1]
        axes = tuple(sorted({*x.axes, *closed}, key=self.arrays.rank))
        reduced = build.reduce(expand_to(x, axes), node.arg.monoid,
                               [a for a, r in enumerate(axes) if r in closed])
        return RangedArray(reduced, tuple([r for r in axes if r not in closed]))

    # ---- reads ----

    def is_axis(self, r: UOp) -> bool:
        """Whether a range is an axis here; ranges of enclosing loops are numbers."""
        return r is not self.t and (self.outer is None or self.outer.is_axis(r))

    def _load(self, node: UOp) -> RangedArray:
        buffer, condition = accessors.buffer(node), accessors.validity(node)
        if self.t is not None and self._loads_row(node):
            return self._load_row(node)
        index = list(accessors.indices(node))
        free: tuple[UOp, ...] = ()
        if buffer.op is ops.REF:
            x = self.operand(buffer)
        else:
            x, free, index = self._load_stage(buffer, index)
        if any(array_loads.match_affine(i, self.is_axis) is None for i in index):
            check_size(node, node.ranges)
        loaded = array_loads.load_array(x, free, index, self.arrays.rank, self.value, self.is_axis,
                                        self.arrays.integer)
        if condition is None:
            return loaded
        valid = self.value(condition)
        axes = self.axes(loaded, valid)
        return RangedArray(build.where(expand_to(valid, axes), expand_to(loaded, axes), build.const(
            0, node.dtype, tuple(map(trip_count, axes)))), axes)

    def _load_stage(self, stage: UOp, index: list[UOp]) -> tuple[UOp, tuple[UOp, ...], list[UOp]]:
        """Return the array of a STAGE, its free ranges, and its indices. Free ranges come first."""
        array, stage_ranges = self.value(stage), accessors.bound_ranges(stage)
        dims = [r for r in stage_ranges if trip_count(r) != 1]
        free = tuple([r for r in array.axes if r not in stage_ranges])
        all_axes = self.axes(array, RangedArray(array.node, tuple(dims)))
        order = [all_axes.index(r) for r in (*free, *dims)]
        return (build.permute(expand_to(array, all_axes), order), free,
                [i for i, r in zip(index, stage_ranges) if trip_count(r) != 1])

    def operand(self, ref: UOp) -> UOp:
        """Return the array of an operand of the kernel."""
        if self.outer is None:
            operand: UOp = self.arrays.inputs[ref.arg.slot]
            return operand
        return self._capture(self.outer.operand(ref))

    # ---- loops ----

    def _capture(self, array: UOp) -> UOp:
        """Return the placeholder in this loop of an outer array."""
        for placeholder, captured in self.captures.items():
            if captured is array:
                return placeholder
        new_placeholder = self.arrays.placeholder(array)
        self.captures[new_placeholder] = array
        return new_placeholder

    def _capture_value(self, node: UOp) -> RangedArray:
        assert self.outer is not None
        outer = self.outer.value(node)
        return RangedArray(self._capture(outer.node), outer.axes)

    def _loads_row(self, node: UOp) -> bool:
        """Whether a LOAD reads one row in each iteration, and all rows together are small."""
        assert self.t is not None
        nodes = toposort(node.src)
        if any(n.op is ops.CARRY for n in nodes) or accessors.buffer(node).op is not ops.REF:
            return False
        size: int = math.prod(build.const_of(d) for d in accessors.dims(accessors.buffer(node)))
        rows: int = math.prod(map(trip_count, node.ranges))
        return rows <= max(_MAX_REPEATS * size, _SMALL_ROWS)

    def _load_row(self, node: UOp) -> RangedArray:
        """Load the rows of all iterations outside of the loop; return the row of this iteration."""
        assert self.outer is not None and self.t is not None
        loaded = self.outer.value(node)
        if self.t not in loaded.axes:
            return RangedArray(self._capture(loaded.node), loaded.axes)
        t_axis = loaded.axes.index(self.t)
        other_axes = [a for a in range(len(loaded.axes)) if a != t_axis]
        rows = build.permute(loaded.node, (t_axis, *other_axes))
        placeholder = self.arrays.placeholder(rows, rows.shape[1:])
        self.rows[placeholder] = rows
        return RangedArray(placeholder, tuple([loaded.axes[a] for a in other_axes]))

    def ran(self, roots: Iterable[UOp]) -> RangedArray | None:
        """Return where every loop that has a PER_ITERATION under ``roots`` is active. None if
        everywhere."""
        out: RangedArray | None = None
        for node in toposort(roots, stop=lambda n: n.op is ops.PER_ITERATION):
            if node.op is not ops.PER_ITERATION:
                continue
            value, loop, _ = node.src
            if self.outer is not None and self._is_invariant(node):
                active = self.outer.ran([node])
                active = active and RangedArray(self._capture(active.node), active.axes)
            else:
                active = self._loop_results(loop).ran.get(value)
            if active is not None:
                out = active if out is None else self.both(out, active)
        return out

    def _loop_results(self, loop: UOp) -> _LoopResults:
        if loop not in self.loop_results:
            self.loop_results[loop] = _LoopConverter(self, loop).run()
        return self.loop_results[loop]

    def open_loops(self) -> set[int]:
        """Return the ids of the loops whose carried values are known here."""
        return self.own_loops if self.outer is None else self.own_loops | self.outer.open_loops()


class _LoopResults(Record):
    """The results of a loop: final values, values of its PER_ITERATIONs, and where those are
    active."""

    last: list[RangedArray]
    steps: dict[UOp, RangedArray]
    ran: dict[UOp, RangedArray]


class _LoopConverter:
    """Conversion of a LOOP to a SCAN; a single iteration (a conditional) is inlined."""

    def __init__(self, outer: _Scope, loop: UOp) -> None:
        self.outer, self.loop, self.arrays = outer, loop, outer.arrays
        self.t, = accessors.bound_ranges(loop)
        self.stop = accessors.stop_condition(loop)
        # the other PER_ITERATIONs belong to an enclosing loop
        known = outer.open_loops() | {loop.arg.id}
        self.values = [v for v in self.arrays.steps.get(loop, [])
                       if known.issuperset(self.arrays.inside.get(v, ()))]
        self.carries = accessors.carries(loop, self.arrays.carries.get(loop.arg.id, []))
        stops = frozenset() if self.stop is None else self.stop.ranges
        self.axes = [self._axes(c.ranges | stops) for c in self.carries]
        self.mask_axes = self._axes(stops)
        self.first = [expand_to(outer.value(x), axes)
                      for x, axes in zip(accessors.init_values(loop), self.axes)]

    def _axes(self, ranges: Iterable[UOp]) -> tuple[UOp, ...]:
        return tuple(sorted([r for r in ranges if r is not self.t and trip_count(r) != 1
                             and self.outer.is_axis(r)], key=self.arrays.rank))

    def run(self) -> _LoopResults:
        """Convert the loop."""
        trips = trip_count(self.t)
        return self._scan() if trips > 1 else self._inline() if trips else self._run_empty()

    def _run_empty(self) -> _LoopResults:
        def empty(dtype: dtypes.DType) -> RangedArray:
            return RangedArray(build.const(0, dtype, (0,)), (self.t,))

        return _LoopResults([RangedArray(*x) for x in zip(self.first, self.axes)],
                            {v: empty(v.dtype) for v in self.values},
                            {v: empty(dtypes.bool_) for v in self.values})

    def _inline(self) -> _LoopResults:
        scope = self.outer
        scope.own_loops.add(self.loop.arg.id)
        scope.known[self.t] = RangedArray(build.const(0, self.arrays.integer))
        last, active = self._iteration(scope, self.first, None)
        return _LoopResults([RangedArray(x, axes) for x, axes in zip(last, self.axes)],
                            {v: scope.value(v) for v in self.values},
                            self._step_masks(scope, active))

    def _iteration(self, scope: _Scope, carried: Sequence[UOp], active_before: RangedArray | None
                   ) -> tuple[list[UOp], RangedArray | None]:
        """Return the next values, and where the iteration is active."""
        scope.known.update({c: RangedArray(x, axes)
                            for c, x, axes in zip(self.carries, carried, self.axes)})
        active: RangedArray | None = None
        if self.stop is not None:
            stop = scope.value(self.stop)
            active = RangedArray(build.logical_not(expand_to(stop, self.mask_axes)), self.mask_axes)
            active = active if active_before is None else scope.both(active_before, active)
        nexts = [expand_to(scope.value(x), axes)
                 for x, axes in zip(accessors.next_values(self.loop), self.axes)]
        if active is None:
            return nexts, None
        return [build.where(expand_to(active, axes), after, before)
                for after, before, axes in zip(nexts, carried, self.axes)], active

    def _step_masks(self, scope: _Scope, active: RangedArray | None) -> dict[UOp, RangedArray]:
        """Return where each PER_ITERATION of an iteration is active."""
        out: dict[UOp, RangedArray] = {}
        for v in self.values:
            mask = scope.ran([v])
            if mask is not None and active is not None:
                mask = scope.both(mask, active)
            mask = active if mask is None else mask
            if mask is not None:
                out[v] = mask
        return out

    def _scan(self) -> _LoopResults:
        arrays, trips = self.arrays, trip_count(self.t)
        t = arrays.placeholder(build.const(0, arrays.integer))
        scope = _Scope(arrays, self.outer, {self.t: RangedArray(t)}, self.t)
        scope.own_loops.add(self.loop.arg.id)
        first, active_before = list(self.first), None
        carried = [arrays.placeholder(x) for x in first]
        if self.stop is not None:
            first.append(build.const(True, dtypes.bool_, tuple(map(trip_count, self.mask_axes))))
            active_before = RangedArray(arrays.placeholder(first[-1]), self.mask_axes)
        last, active = self._iteration(scope, carried, active_before)
        steps = {v: scope.value(v) for v in self.values}
        step_masks = self._step_masks(scope, active)
        if active_before is not None and active is not None:
            carried.append(active_before.node)
            last.append(active.node)
        rows = {t: build.iota(trips, arrays.integer), **scope.rows}
        params = [*scope.captures, *carried, *rows]
        to = dict(zip(params, build_calls.params_like(params)))
        outs = [*last, *[x.node for x in steps.values()], *[x.node for x in step_masks.values()]]
        name = self.t.arg.name or "loop"
        body = build.function(substitute(outs, to), len(params), f"{arrays.kernel.arg.name}.{name}")
        results = iter(build_calls.scan(body, trips, list(scope.captures.values()), first,
                                        list(rows.values())))
        finals = [RangedArray(next(results), axes) for axes in self.axes]
        if active_before is not None:
            next(results)

        def stacked(values: Mapping[UOp, RangedArray]) -> dict[UOp, RangedArray]:
            return {v: sort_axes(next(results), (self.t, *x.axes), arrays.rank)
                    for v, x in values.items()}

        return _LoopResults(finals, stacked(steps), stacked(step_masks))


# operands are not visited
_WALK_STOPS = frozenset({ops.GETTUPLE, ops.PER_ITERATION, ops.RANGE, ops.CARRY})
_ADDRESS_OPS = frozenset({ops.REF, ops.INDEX})
_NUMBER_OPS = frozenset({ops.CONST, ops.RANGE})
