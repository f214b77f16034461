"""Kernel-level interpreter: every RANGE is an axis of NumPy arrays.

The STOREs of a KERNEL run one after the other. In a STORE each RANGE has an axis (in the kernel's
loop order), and a value has extent 1 along the axes of ranges that it does not depend on. So one
NumPy expression computes the whole iteration space of an expression:

    STORE(o[m], REDUCE(x[m, k] * w[k], k))    x[m, k]: (M, K)   w[k]: (1, K)   sum: (M, 1)

An ITER runs its loop in Python; each of its values is an array over the other ranges. GET is the
final value, and STEP(value) stacks the values of all iterations along an ordinary axis.

No array exceeds 16 MB, unless one element needs that. First the STORE's own ranges are split into
windows, outermost first (so combining stores keep their order), then the ranges of a REDUCE, whose
partial results are combined in order. A window of a range applies only where that range is free:
REDUCE and STAGE see all iterations of the ranges that they bind.

What hardware would do silently raises KernelError here: an index out of bounds, two iterations
that write one element without a combine, a read of another element of a buffer that the same
STORE writes.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes, narrow, numpy_semantics, ops, parts, units
from fnx.core.dtypes import NDArray
from fnx.core.errors import KernelError
from fnx.core.levels.interp_iter import Iteration
from fnx.core.levels.windows import Cuts, windows_of
from fnx.core.numpy_semantics import combined, fold, fold_at, least_place
from fnx.core.uop import UOp, toposort

ValueOf = dict[UOp, Any]  # arrays; the Iteration of an ITER

LIMIT = 16 << 20  # bytes per array; an expression holds a few arrays: about 64 MB


def run_kernel(kernel: UOp, buffers: Sequence[NDArray], scalars: Sequence[Any]) -> None:
    """Run a KERNEL, tiled or not, on NumPy arrays that are written in place.

    Args:
        kernel: a KERNEL node.
        buffers: the array of each REF slot (C-contiguous; any shape of enough elements).
        scalars: the value of each VAR slot.

    Raises:
        KernelError: names the buffer, the index and the extent, with the user's line.
    """
    loops: ValueOf = {}
    with np.errstate(all="ignore"):
        for store in kernel.src:
            _StoreRun(store, kernel, buffers, scalars, loops).run()


def extent(node: UOp, scalars: Sequence[Any]) -> int:
    """Evaluate an index expression over VARs and constants."""
    if node.ranges:
        raise KernelError(f"expected an extent that depends on no range, got {node}",
                          site=node.site)
    values: dict[UOp, Any] = {}
    for n in toposort([node]):
        if n.op is ops.VAR:
            values[n] = np.asarray(scalars[n.arg.slot], n.dtype.np)
        else:
            values[n] = computed(n, values)
    return int(values[node])


def computed(node: UOp, values: Mapping[UOp, Any]) -> Any:
    """Compute the value of a node that has a NumPy meaning, from the values of its operands."""
    return numpy_semantics.computed(node, *[values[s] for s in node.src])


class _StoreRun:
    """One STORE of a running kernel."""

    def __init__(self, store: UOp, kernel: UOp, buffers: Sequence[NDArray],
                 scalars: Sequence[Any], loops: ValueOf) -> None:
        self.store, self.buffers, self.scalars, self.loops = store, buffers, scalars, loops
        nodes = toposort([store])
        shared = toposort(_with_its_loops(store, kernel))  # these STOREs share ITERs and axes
        self.steps: dict[UOp, list[UOp]] = {n: [] for n in shared if n.op is ops.ITER}
        self.carries = [n for n in shared if n.op is ops.CARRY]
        self.open = parts.open_loops(shared)
        for n in shared:
            if n.op is ops.STEP and n.src[1] in self.steps:
                self.steps[n.src[1]].append(n.src[0])
        ranges = sorted((n for n in shared if n.op is ops.RANGE),
                        key=parts.LoopOrder(kernel.arg.order))
        self.axis = {r: i for i, r in enumerate(ranges)}
        self.extent = {r: extent(parts.extent(r), scalars) for r in ranges}
        self.nodes = nodes
        self.written: NDArray | None = None
        self.reduce_cuts: dict[Any, dict[UOp, int]] = {}
        self.whole = self._whole()
        self._check_own_reads()

    # ---- the loop over windows ----

    def run(self) -> None:
        free = sorted(self.store.ranges, key=self.axis.__getitem__)
        cuts = self._cuts(free)
        base: ValueOf = dict(self.loops)
        for windows in windows_of(cuts, self.extent):
            self._write(windows, base)
        self.loops.update((n, v) for n, v in base.items() if n.op is ops.ITER)

    def _whole(self) -> set[UOp]:
        """Return the ranges that are never split: those of ITERs, those that their STEPs also
        depend on, and those of threads that exchange values."""
        out = {r for loop in self.steps for r in parts.closed(loop)}
        out |= {n.src[1] for n in self.nodes if n.op is ops.SHUFFLE_XOR}
        for loop, values in self.steps.items():
            out |= {r for v in values for r in v.ranges if r not in loop.ranges}
        return out

    def _cuts(self, free: list[UOp]) -> dict[UOp, int]:
        """Return the window size of each range to split, so that arrays fit LIMIT if possible."""
        cuts: dict[UOp, int] = {}
        for r in free:
            if r in self.whole:
                continue
            peak = max((self._bytes(n, cuts) for n in self.nodes), default=0)
            if peak <= LIMIT:
                break
            if self.store.arg is None and all(r not in n.ranges for n in self.nodes
                                              if self._bytes(n, cuts) > LIMIT):
                continue
            cuts[r] = max(1, self.extent[r] * LIMIT // peak)
        return cuts

    def _bytes(self, node: UOp, cuts: Mapping[UOp, int]) -> int:
        return 8 * math.prod(cuts.get(r, self.extent[r]) for r in node.ranges
                             if r not in self.whole)

    def _write(self, windows: Cuts, base: ValueOf) -> None:
        """Evaluate and write one window; ``base`` caches values that no window changes."""
        values = dict(base)
        store, place = self.store, parts.place(self.store)
        for root in (*store.src[1:], *parts.indices(store)):
            self._evaluate(root, windows, values)
        for n, v in values.items():
            if not any(r in windows for r in n.ranges):
                base[n] = v
        shape = [1] * len(self.axis)
        for r in store.ranges:
            lo, hi = windows.get(r, (0, self.extent[r]))
            shape[self.axis[r]] = hi - lo
        condition = parts.validity(store)
        valid = np.broadcast_to(True if condition is None else values[condition], shape)
        ran = self._ran(store.src, values)
        valid = valid if ran is None else valid & ran
        at = np.broadcast_to(self._linear(place, values, valid), shape)[valid]
        value = np.broadcast_to(values[parts.value(store)], shape)[valid]
        target = self._flat(parts.buffer(place))
        if store.arg is ops.STORE:  # in loop order: the last write wins
            target[at] = value
            return
        if store.arg is not None:
            if parts.value(store).dtype.storage is not None:
                raise KernelError(f"{_name(parts.buffer(place))}: expected a type that is "
                                  f"computed in, to combine with, got "
                                  f"{parts.value(store).dtype}", site=store.site,
                                  hint="combine in a float32 buffer")
            fold_at(store.arg.ufunc, target, (at,), value)
            return
        self._check_written_once(target, at, place)
        target[at] = value

    # ---- values ----

    def _evaluate(self, root: UOp, windows: Cuts, values: ValueOf) -> NDArray:
        """Fill ``values`` for everything below ``root`` that belongs to this scope."""
        def closed_apart(n: UOp) -> bool:
            return n in values or n.op is ops.REF or self._needs_scope(n, windows)

        for node in toposort([root], stop=closed_apart):
            if node in values or node.op is ops.REF:
                continue
            if node.op is ops.INDEX:
                continue  # its LOAD or STORE reads the operands
            self._enter(node, windows, values)
        value: NDArray = values[root]
        return value

    def _enter(self, node: UOp, windows: Cuts, values: ValueOf) -> None:
        """Add the value of a node to those of its operands."""
        if self._needs_scope(node, windows):
            values[node] = self._scoped(node, windows, values)
        else:
            values[node] = self._compute(node, windows, values)

    def _compute(self, node: UOp, windows: Cuts, values: ValueOf) -> NDArray:
        op, ones = node.op, (1,) * len(self.axis)
        if op is ops.RANGE:
            lo, hi = windows.get(node, (0, self.extent[node]))
            axis = self.axis[node]
            return np.arange(lo, hi, dtype=np.int64).reshape(*ones[:axis], -1,
                                                             *ones[axis + 1:])
        if op is ops.VAR:
            return np.asarray(self.scalars[node.arg.slot], node.dtype.np).reshape(ones)
        if op is ops.LOAD:
            return self._load(node, values)
        if op is ops.REDUCE:
            return self._fold(node, values[parts.value(node)], windows)
        if op is ops.MMA:
            return self._multiplied(node, values)
        if op is ops.STAGE:
            return np.asarray(values[parts.value(node)])
        if op is ops.SHUFFLE_XOR:
            return self._shuffled(node, values)
        if op is ops.GET:
            return np.asarray(values[node.src[0]].last[node.arg])
        if op not in _PURE:
            raise KernelError(f"expected a node of the kernel level, got {node}",
                              site=node.site)
        out = np.asarray(computed(node, values))
        return out.reshape(ones) if out.ndim == 0 else out

    def _needs_scope(self, node: UOp, windows: Cuts) -> bool:
        """Return whether a node that binds ranges cannot share the values of this scope."""
        if node.op is ops.ITER or node.op is ops.STEP:
            return True
        if node.op not in (ops.REDUCE, ops.STAGE, ops.MMA):
            return False
        return any(r in windows for r in parts.closed(node)) or \
            (node.op is ops.REDUCE and bool(self._reduce_cut(node, windows)))

    def _scoped(self, node: UOp, windows: Cuts, values: ValueOf) -> Any:
        if node.op is ops.ITER:
            return self._iterated(node, windows, values)
        if node.op is ops.STEP:
            step, iteration, _ = node.src
            self._evaluate(iteration, windows, values)
            if step not in values[iteration].steps:  # also a step of an outer loop
                asked = {*values[iteration].steps, step}
                values[iteration] = self._iterated(iteration, windows, values, asked)
            loop: Iteration = values[iteration]
            return loop.steps[step]
        closed = parts.closed(node)
        inner: Cuts = {r: w for r, w in windows.items() if r not in closed}
        cut = self._reduce_cut(node, inner) if node.op is ops.REDUCE else {}
        out: NDArray | None = None
        for window in windows_of(cut, self.extent):
            scope = {**inner, **window}
            changed = [r for r in {*closed, *cut} if r in window or r in windows]
            kept = {n: v for n, v in values.items() if not any(r in n.ranges for r in changed)}
            value = self._evaluate(parts.value(node), scope, kept)
            if node.op is ops.MMA:
                self._evaluate(node.src[1], scope, kept)
            values.update((n, v) for n, v in kept.items()
                          if not any(r in n.ranges for r in changed))
            if node.op is ops.STAGE:
                return value
            if node.op is ops.MMA:
                return self._multiplied(node, kept)
            part = self._fold(node, value, scope)
            out = part if out is None else combined(node, out, part)
        if out is None:  # one of the split ranges has extent 0
            raise AssertionError("an empty range is never cut")
        return out

    def _iterated(self, node: UOp, windows: Cuts, values: ValueOf, asked: Container[UOp] = ()
                  ) -> Iteration:
        """Run all iterations of an ITER; loop invariants are computed once.

        Records the STEPs of this loop only, and those in ``asked``, which outer loops read too.
        """
        t, = parts.closed(node)
        for init in parts.inits(node):
            self._evaluate(init, windows, values)
        stop = parts.stop(node)
        conditions = self._inside(node, [] if stop is None else [stop], windows, values)
        known = {node.arg.id, *[c.arg.id for c in self.carries if c in values]}
        later = {parts.closed(n)[0] for n in self.steps}.difference(windows, (t,))
        steps = [v for v in self.steps[node] if v in asked or later.isdisjoint(v.ranges)
                 and known.issuperset(self.open.get(v, ()))]
        rest = self._inside(node, [*parts.nexts(node), *steps], windows, values)
        loop = Iteration(node, steps, self.axis[t],
                         [values[init] for init in parts.inits(node)])
        for i in range(self.extent[t]):
            here, window = dict(values), {**windows, t: (i, i + 1)}
            here.update((c, loop.last[c.arg.i]) for c in self.carries if c.arg.id == node.arg.id)
            for n in conditions:
                if n not in here:
                    self._enter(n, window, here)
            if stop is not None and not loop.goes_on(here[stop]):
                break
            for n in rest:
                if n not in here:
                    self._enter(n, window, here)
            inner = {v: self._ran([v], here) for v in steps}
            loop.take(here, {v: ran for v, ran in inner.items() if ran is not None})
        loop.finish(self.extent[t])
        return loop

    def _ran(self, roots: Sequence[UOp], values: ValueOf) -> NDArray | None:
        """Return where all loops are active whose STEPs the roots read; None: everywhere."""
        out: NDArray | None = None
        for step in toposort(roots, stop=lambda n: n.op is ops.STEP):
            if step.op is ops.STEP:
                value, loop, t = step.src
                ran = values[loop].ran(value, self.extent[t])
                if ran is not None:
                    out = ran if out is None else out & ran
        return out

    def _inside(self, node: UOp, roots: list[UOp], windows: Cuts, values: ValueOf) -> list[UOp]:
        """Return the nodes that vary with the iterations of an ITER, operands first, and evaluate
        the invariant ones."""
        t, = parts.closed(node)
        out = []
        for n in toposort(roots, stop=lambda n: n in values or n.op in (ops.REF, ops.CARRY)
                          or self._needs_scope(n, windows)):
            if n.op is ops.REF or n.op is ops.INDEX or n in values:
                continue
            if t in n.ranges:
                out.append(n)
            else:
                self._evaluate(n, windows, values)
        return out

    def _reduce_cut(self, node: UOp, windows: Cuts) -> dict[UOp, int]:
        """Return window sizes for the ranges of a REDUCE whose operand is too large."""
        key = node, tuple((r, hi - lo) for r, (lo, hi) in windows.items())
        if key not in self.reduce_cuts:
            self.reduce_cuts[key] = self._find_reduce_cut(node, windows)
        return self.reduce_cuts[key]

    def _find_reduce_cut(self, node: UOp, windows: Cuts) -> dict[UOp, int]:
        if parts.value(node).op is ops.PAIR:
            return {}  # a partial result would lose its key
        sizes: dict[UOp, int] = {r: hi - lo for r, (lo, hi) in windows.items()}
        for r in parts.closed(node):
            sizes.pop(r, None)
        cuts: dict[UOp, int] = {}
        local = toposort([parts.value(node)], stop=lambda n: n.op in (ops.REDUCE, ops.STAGE))
        for r in sorted(parts.closed(node), key=self.axis.__getitem__):
            peak = max(self._bytes(n, {**sizes, **cuts}) for n in local)
            if peak <= LIMIT:
                break
            cuts[r] = max(1, self.extent[r] * LIMIT // peak)
        return cuts

    def _fold(self, node: UOp, value: NDArray, windows: Cuts) -> NDArray:
        shape, axes = list(value.shape), []
        for r in parts.closed(node):
            lo, hi = windows.get(r, (0, self.extent[r]))
            axis = self.axis[r]
            shape[axis] = hi - lo
            axes.append(axis)
        t, monoid = node.arg.accumulator or node.dtype, node.arg.monoid
        if value.dtype.names:
            full = np.broadcast_to(value, shape)
            return np.expand_dims(least_place(monoid.ufunc, full, tuple(axes)), tuple(axes))
        if t.storage is not None:
            t, value = t.compute, narrow.decoded(value, t)
        full = np.broadcast_to(value, shape).astype(t.np, copy=False)
        folded = fold(monoid.ufunc, full, tuple(axes), monoid.identity(t))
        return np.expand_dims(narrow.encoded(folded, node.dtype), tuple(axes))

    def _multiplied(self, node: UOp, values: ValueOf) -> NDArray:
        closed = parts.closed(node)
        a, b = [np.broadcast_to(values[s], self._whole_along(values[s], closed))
                for s in node.src[:2]]
        return units.summed(units.UNITS[node.arg.unit], a, b, [self.axis[r] for r in closed])

    def _shuffled(self, node: UOp, values: ValueOf) -> NDArray:
        value, r = node.src
        whole = np.broadcast_to(values[value], self._whole_along(values[value], [r]))
        out: NDArray = np.take(whole, np.arange(self.extent[r]) ^ node.arg, self.axis[r])
        return out

    def _whole_along(self, x: NDArray, ranges: Sequence[UOp]) -> list[int]:
        """Return the shape of a value, broadcast to the full extents of some ranges."""
        shape = list(x.shape)
        for r in ranges:
            shape[self.axis[r]] = self.extent[r]
        return shape

    def _load(self, node: UOp, values: ValueOf) -> NDArray:
        place, buffer, condition = parts.place(node), parts.buffer(node), parts.validity(node)
        valid = np.ones((), bool) if condition is None else values[condition]
        if buffer.op is ops.STAGE:
            read = self._from_stage(place, values, valid)
        else:
            flat = self._flat(buffer)
            at = self._linear(place, values, valid)
            read = flat[at] if flat.size else np.zeros(at.shape, flat.dtype)
        return read if condition is None else np.where(valid, read, np.zeros((), read.dtype))

    # ---- indices ----

    def _checked(self, place: UOp, values: ValueOf, valid: NDArray,
                extents: Sequence[int]) -> list[NDArray]:
        """Return the index of each dimension, bounds-checked; 0 where not valid."""
        out = []
        for dim, (index, n) in enumerate(zip(parts.indices(place), extents)):
            at = values[index]
            outside = ((at < 0) | (at >= n)) & valid
            if outside.any():
                shown = int(np.broadcast_to(at, outside.shape)[outside][0])
                raise KernelError(
                    f"{_name(parts.buffer(place))}: expected 0 <= index < {n} in dimension {dim}, "
                    f"got {shown}", site=place.site,
                    hint="give the LOAD or STORE a valid condition, or mend the index")
            out.append(at if valid.ndim == 0 and valid else np.where(valid, at, 0))
        return out

    def _linear(self, place: UOp, values: ValueOf, valid: NDArray) -> NDArray:
        extents = self._dims(parts.buffer(place))
        at: NDArray = np.zeros((1,) * len(self.axis), np.int64)
        for index, n in zip(self._checked(place, values, valid, extents), extents):
            at = at * n + index
        return at

    def _from_stage(self, place: UOp, values: ValueOf, valid: NDArray) -> NDArray:
        stage = parts.buffer(place)
        dims = parts.closed(stage)
        extents = [self.extent[r] for r in dims]
        index = self._checked(place, values, valid, extents)
        shape = self._whole_along(values[stage], dims)
        held = np.broadcast_to(values[stage], shape)
        if held.size == 0:
            return np.zeros(np.broadcast_shapes(*(i.shape for i in index)), held.dtype)
        at = list(np.ogrid[tuple(map(slice, shape))])
        for r, i in zip(dims, index):
            at[self.axis[r]] = i
        return np.asarray(held[tuple(at)])

    def _dims(self, ref: UOp) -> list[int]:
        return [extent(d, self.scalars) for d in parts.dims(ref)]

    def _flat(self, ref: UOp) -> NDArray:
        if ref.op is not ops.REF:
            raise KernelError(f"expected a STORE into a REF, got {ref}", site=ref.site)
        buffer = self.buffers[ref.arg.slot]
        need = math.prod(self._dims(ref))
        if ref.dtype is dtypes.uint32 and buffer.itemsize < 4:
            buffer = units.in_words(buffer)
        if buffer.dtype != ref.dtype.np or buffer.size < need:
            raise KernelError(f"{_name(ref)}: expected {need} elements of {ref.dtype}, got "
                              f"{buffer.size} of {buffer.dtype}", site=ref.site)
        flat: NDArray = buffer.reshape(-1)
        if need and not np.may_share_memory(flat, buffer):
            raise KernelError(f"{_name(ref)}: expected a C-contiguous array")
        return flat

    # ---- checks ----

    def _check_own_reads(self) -> None:
        place, written = parts.place(self.store), parts.buffer(self.store)
        for n in self.nodes:
            if n.op is ops.INDEX and n is not place and parts.buffer(n).op is ops.REF \
                    and parts.buffer(n).arg.slot == written.arg.slot:
                raise KernelError(
                    f"{_name(written)}: a store reads another place of the buffer that it "
                    "writes", site=n.site, hint="write to another buffer")

    def _check_written_once(self, target: NDArray, at: NDArray, place: UOp) -> None:
        if self.written is None:
            self.written = np.zeros(target.size, bool)
        before = np.count_nonzero(self.written)
        again = at[self.written[at]]
        self.written[at] = True
        if np.count_nonzero(self.written) - before == at.size:
            return
        if not again.size:
            found, times = np.unique(at, return_counts=True)
            again = found[times > 1]
        dims = self._dims(parts.buffer(place))
        where = tuple(int(i) for i in np.unravel_index(int(again[0]), dims)) if dims else ()
        raise KernelError(f"{_name(parts.buffer(place))}: two iterations write the place {where}",
                          site=self.store.site, hint="combine them with a monoid, or fold the "
                          "range that the index does not use")


def _with_its_loops(store: UOp, kernel: UOp) -> list[UOp]:
    """Return a STORE and those that share an ITER with it, directly or transitively."""
    loops = {s: {n for n in toposort([s]) if n.op is ops.ITER} for s in kernel.src}
    found, open_ = [store], set(loops[store])
    while more := [s for s in kernel.src if s not in found and not open_.isdisjoint(loops[s])]:
        found += more
        open_.update(*[loops[s] for s in more])
    return [s for s in kernel.src if s in found]


def _name(ref: UOp) -> str:
    arg = ref.arg
    return arg.name or (f"buffer {arg.slot}" if ref.op is ops.REF else f"stage {arg.id}")


_PURE = ops.ELEMENTWISE | {ops.CONST, ops.PAIR}
