"""Kernel-level interpreter: every RANGE is an axis of NumPy arrays.

The STOREs of a KERNEL run one after the other. In a STORE each RANGE has an axis (in the kernel's
loop order), and a value has extent 1 along the axes of ranges that it does not depend on. So one
NumPy expression computes the whole iteration space of an expression:

    STORE(o[m], REDUCE(x[m, k] * w[k], k))    x[m, k]: (M, K)   w[k]: (1, K)   sum: (M, 1)

A LOOP runs its loop in Python; each of its values is an array over the other ranges. GETTUPLE is
the final value, and PER_ITERATION(value) stacks the values of all iterations along an ordinary
axis.

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
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import accessors, dtypes, low_precision, matrix_units, numpy_semantics, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.numpy_semantics import arg_reduce, combine, reduce_array, reduce_at
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp_loop import LoopState, group_by_loops
from fnx.core.levels.iteration_windows import WindowBounds, iter_windows
from fnx.core.support.errors import KernelError

NodeValues = dict[UOp, Any]  # arrays; the Iteration of a LOOP
Watch = Callable[[UOp, UOp, NodeValues], None]  # takes a STORE, a node in it, values of it and more

LIMIT = 16 << 20  # bytes per array; an expression holds a few arrays: about 64 MB


def run_kernel(kernel: UOp, buffers: Sequence[NDArray], scalars: Sequence[Any],
               watch: Watch | None = None) -> None:
    """Run a KERNEL, tiled or not, on NumPy arrays that are written in place.

    Args:
        kernel: a KERNEL node.
        buffers: the array of each REF slot (C-contiguous; any shape of enough elements).
        scalars: the value of each VAR slot.
        watch: is called with each value that is computed.

    Raises:
        KernelError: names the buffer, the index and the extent, with the user's line.
    """
    loops: NodeValues = {}
    with np.errstate(all="ignore"):
        for store, group in zip(kernel.src, group_by_loops(kernel)):
            _StoreRun(store, group, kernel, buffers, scalars, loops, watch).run()


def extent(node: UOp, scalars: Sequence[Any]) -> int:
    """Evaluate an index expression over VARs and constants."""
    if node.ranges:
        raise KernelError(f"expected an extent that depends on no range, got {node}",
                          loc=node.loc)
    values: dict[UOp, Any] = {}
    for n in toposort([node]):
        values[n] = np.asarray(scalars[n.arg.slot], n.dtype.np) if n.op is ops.VAR else \
            eval_node(n, values)
    return int(values[node])


def eval_node(node: UOp, values: Mapping[UOp, Any]) -> Any:
    """Compute the value of a node that has a NumPy meaning, from the values of its operands."""
    return numpy_semantics.eval_node(node, *[values[s] for s in node.src])


class _StoreRun:
    """One STORE of a running kernel."""

    def __init__(self, store: UOp, group: list[UOp], kernel: UOp, buffers: Sequence[NDArray],
                 scalars: Sequence[Any], loops: NodeValues, watch: Watch | None = None) -> None:
        self.store, self.buffers, self.scalars, self.loops = store, buffers, scalars, loops
        self.watch = watch
        nodes = toposort([store])
        shared = nodes if len(group) == 1 else toposort(group)  # these STOREs share LOOPs and axes
        self.steps: dict[UOp, list[UOp]] = {n: [] for n in shared if n.op is ops.LOOP}
        self.carries = [n for n in shared if n.op is ops.CARRY]
        self.open = accessors.carry_dependences(shared) if self.carries else {}
        for n in shared:
            if n.op is ops.PER_ITERATION and n.src[1] in self.steps:
                self.steps[n.src[1]].append(n.src[0])
        ranges = sorted((n for n in shared if n.op is ops.RANGE),
                        key=accessors.LoopOrder(kernel.arg.order))
        self.axis = {r: i for i, r in enumerate(ranges)}
        self.extent = {r: extent(accessors.extent(r), scalars) for r in ranges}
        self.nodes = nodes
        self.written: NDArray | None = None
        self.reduce_windows: dict[Any, dict[UOp, int]] = {}
        self.unsplit = self._unsplit_ranges()
        self._check_aliasing()

    # ---- the loop over windows ----

    def run(self) -> None:
        free = sorted(self.store.ranges, key=self.axis.__getitem__)
        sizes = self._window_sizes(free)
        base: NodeValues = dict(self.loops)
        for windows in iter_windows(sizes, self.extent):
            self._write(windows, base)
        self.loops.update((n, v) for n, v in base.items() if n.op is ops.LOOP)

    def _unsplit_ranges(self) -> set[UOp]:
        """Return the ranges that are never split: those of LOOPs, those that their PER_ITERATIONs
        also depend on, and those of threads that exchange values."""
        out = {r for loop in self.steps for r in accessors.bound_ranges(loop)}
        out |= {n.src[1] for n in self.nodes if n.op is ops.SHUFFLE_XOR}
        for loop, values in self.steps.items():
            out |= {r for v in values for r in v.ranges if r not in loop.ranges}
        return out

    def _window_sizes(self, free: list[UOp]) -> dict[UOp, int]:
        """Return the window size of each range to split, so that arrays fit LIMIT if possible."""
        sizes: dict[UOp, int] = {}
        for r in free:
            if r in self.unsplit:
                continue
            peak = max((self._bytes(n, sizes) for n in self.nodes), default=0)
            if peak <= LIMIT:
                break
            if self.store.arg is None and all(r not in n.ranges for n in self.nodes
                                              if self._bytes(n, sizes) > LIMIT):
                continue
            sizes[r] = max(1, self.extent[r] * LIMIT // peak)
        return sizes

    def _bytes(self, node: UOp, sizes: Mapping[UOp, int]) -> int:
        return 8 * math.prod(sizes.get(r, self.extent[r]) for r in node.ranges
                             if r not in self.unsplit)

    def _write(self, windows: WindowBounds, base: NodeValues) -> None:
        """Evaluate and write one window; ``base`` caches values that no window changes."""
        values = dict(base)
        store, access = self.store, accessors.index_node(self.store)
        for root in (*store.src[1:], *accessors.indices(store)):
            self._evaluate(root, windows, values)
        for n, v in values.items():
            if not any(r in windows for r in n.ranges):
                base[n] = v
        shape = [1] * len(self.axis)
        for r in store.ranges:
            lo, hi = windows.get(r, (0, self.extent[r]))
            shape[self.axis[r]] = hi - lo
        condition = accessors.validity(store)
        valid = np.broadcast_to(True if condition is None else values[condition], shape)
        active = self._active_mask(store.src, values)
        valid = valid if active is None else valid & active
        offsets = np.broadcast_to(self._linear_index(access, values, valid), shape)[valid]
        value = np.broadcast_to(values[accessors.value(store)], shape)[valid]
        target = self._flat(accessors.buffer(access))
        if store.arg is ops.STORE:  # in loop order: the last write wins
            target[offsets] = value
            return
        if store.arg not in (None, ops.SCATTER):
            if accessors.value(store).dtype.storage is not None:
                raise KernelError(f"{_name(accessors.buffer(access))}: expected a type that is "
                                  f"computed in, to combine with, got "
                                  f"{accessors.value(store).dtype}", loc=store.loc,
                                  hint="combine in a float32 buffer")
            reduce_at(store.arg.ufunc, target, (offsets,), value)
            return
        self._check_written_once(target, offsets, access)
        target[offsets] = value

    # ---- values ----

    def _evaluate(self, root: UOp, windows: WindowBounds, values: NodeValues) -> NDArray:
        """Fill ``values`` for everything below ``root`` that belongs to this scope."""
        def closed_apart(n: UOp) -> bool:
            return n in values or n.op is ops.REF or self._needs_scope(n, windows)

        for node in toposort([root], stop=closed_apart):
            if node in values or node.op is ops.REF:
                continue
            if node.op is ops.INDEX:
                continue  # its LOAD or STORE reads the operands
            self._eval_node(node, windows, values)
        value: NDArray = values[root]
        return value

    def _eval_node(self, node: UOp, windows: WindowBounds, values: NodeValues) -> None:
        """Add the value of a node to those of its operands."""
        compute = self._eval_scoped if self._needs_scope(node, windows) else self._compute
        values[node] = compute(node, windows, values)
        if self.watch is not None:
            self.watch(self.store, node, values)

    def _compute(self, node: UOp, windows: WindowBounds, values: NodeValues) -> NDArray:
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
            return self._reduce(node, values[accessors.value(node)], windows)
        if op is ops.MMA:
            return self._mma(node, values)
        if op is ops.STAGE:
            return np.asarray(values[accessors.value(node)])
        if op is ops.SHUFFLE_XOR:
            return self._shuffle_xor(node, values)
        if op is ops.GETTUPLE:
            return np.asarray(values[node.src[0]].last[node.arg])
        if op not in _PURE_OPS:
            raise KernelError(f"expected a node of the kernel level, got {node}",
                              loc=node.loc)
        out = np.asarray(eval_node(node, values))
        return out.reshape(ones) if out.ndim == 0 else out

    def _needs_scope(self, node: UOp, windows: WindowBounds) -> bool:
        """Return whether a node that binds ranges cannot share the values of this scope."""
        if node.op is ops.LOOP or node.op is ops.PER_ITERATION:
            return True
        if node.op not in (ops.REDUCE, ops.STAGE, ops.MMA):
            return False
        return any(r in windows for r in accessors.bound_ranges(node)) or \
            (node.op is ops.REDUCE and bool(self._reduce_window(node, windows)))

    def _eval_scoped(self, node: UOp, windows: WindowBounds, values: NodeValues) -> Any:
        if node.op is ops.LOOP:
            return self._run_loop(node, windows, values)
        if node.op is ops.PER_ITERATION:
            step, iteration, _ = node.src
            self._evaluate(iteration, windows, values)
            if step not in values[iteration].steps:  # also a step of an outer loop
                extra_steps = {*values[iteration].steps, step}
                values[iteration] = self._run_loop(iteration, windows, values, extra_steps)
            loop: LoopState = values[iteration]
            return loop.steps[step]
        closed = accessors.bound_ranges(node)
        inner: WindowBounds = {r: w for r, w in windows.items() if r not in closed}
        sizes = self._reduce_window(node, inner) if node.op is ops.REDUCE else {}
        out: NDArray | None = None
        for window in iter_windows(sizes, self.extent):
            scope = {**inner, **window}
            changed = [r for r in {*closed, *sizes} if r in window or r in windows]
            scope_values = {n: v for n, v in values.items()
                            if not any(r in n.ranges for r in changed)}
            value = self._evaluate(accessors.value(node), scope, scope_values)
            if node.op is ops.MMA:
                self._evaluate(node.src[1], scope, scope_values)
            values.update((n, v) for n, v in scope_values.items()
                          if not any(r in n.ranges for r in changed))
            if node.op is ops.STAGE:
                return value
            if node.op is ops.MMA:
                return self._mma(node, scope_values)
            partial = self._reduce(node, value, scope)
            out = partial if out is None else combine(node, out, partial)
        if out is None:  # one of the split ranges has extent 0
            raise AssertionError("an empty range is never cut")
        return out

    def _run_loop(self, node: UOp, windows: WindowBounds, values: NodeValues,
                  extra_steps: Container[UOp] = ()
                  ) -> LoopState:
        """Run all iterations of a LOOP; loop invariants are computed once.

        Records the PER_ITERATIONs of this loop only, and those in ``extra_steps``, which outer
        loops read too.
        """
        t, = accessors.bound_ranges(node)
        for init in accessors.init_values(node):
            self._evaluate(init, windows, values)
        stop = accessors.stop_condition(node)
        conditions = self._variant_nodes(node, [] if stop is None else [stop], windows, values)
        open_ids = {node.arg.id, *[c.arg.id for c in self.carries if c in values]}
        later_axes = {accessors.bound_ranges(n)[0] for n in self.steps}.difference(windows, (t,))
        steps = [v for v in self.steps[node] if v in extra_steps or later_axes.isdisjoint(v.ranges)
                 and open_ids.issuperset(self.open.get(v, ()))]
        varying = self._variant_nodes(node, [*accessors.next_values(node), *steps], windows, values)
        loop = LoopState(node, steps, self.axis[t],
                         [values[init] for init in accessors.init_values(node)])
        for i in range(self.extent[t]):
            iteration, window = dict(values), {**windows, t: (i, i + 1)}
            iteration.update((c, loop.last[c.arg.i])
                             for c in self.carries if c.arg.id == node.arg.id)
            for n in conditions:
                if n not in iteration:
                    self._eval_node(n, window, iteration)
            if stop is not None and not loop.update_active(iteration[stop]):
                break
            for n in varying:
                if n not in iteration:
                    self._eval_node(n, window, iteration)
            inner = {v: self._active_mask([v], iteration) for v in steps}
            loop.record(iteration, {v: ran for v, ran in inner.items() if ran is not None})
        loop.finish(self.extent[t])
        return loop

    def _active_mask(self, roots: Sequence[UOp], values: NodeValues) -> NDArray | None:
        """Return where all loops are active whose PER_ITERATIONs the roots read; None:
        everywhere."""
        if not self.steps:
            return None
        out: NDArray | None = None
        for step in toposort(roots, stop=lambda n: n.op is ops.PER_ITERATION):
            if step.op is ops.PER_ITERATION:
                value, loop, t = step.src
                active = values[loop].ran(value, self.extent[t])
                if active is not None:
                    out = active if out is None else out & active
        return out

    def _variant_nodes(self, node: UOp, roots: list[UOp], windows: WindowBounds,
                       values: NodeValues) -> list[UOp]:
        """Return the nodes that vary with the iterations of a LOOP, operands first, and evaluate
        the invariant ones."""
        t, = accessors.bound_ranges(node)
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

    def _reduce_window(self, node: UOp, windows: WindowBounds) -> dict[UOp, int]:
        """Return window sizes for the ranges of a REDUCE whose operand is too large."""
        key = node, tuple((r, hi - lo) for r, (lo, hi) in windows.items())
        if key not in self.reduce_windows:
            self.reduce_windows[key] = self._find_reduce_window(node, windows)
        return self.reduce_windows[key]

    def _find_reduce_window(self, node: UOp, windows: WindowBounds) -> dict[UOp, int]:
        if accessors.value(node).op is ops.ARG_PAIR:
            return {}  # a partial result would lose its key
        sizes: dict[UOp, int] = {r: hi - lo for r, (lo, hi) in windows.items()}
        for r in accessors.bound_ranges(node):
            sizes.pop(r, None)
        windows_: dict[UOp, int] = {}
        local = toposort([accessors.value(node)], stop=lambda n: n.op in (ops.REDUCE, ops.STAGE))
        for r in sorted(accessors.bound_ranges(node), key=self.axis.__getitem__):
            peak = max(self._bytes(n, {**sizes, **windows_}) for n in local)
            if peak <= LIMIT:
                break
            windows_[r] = max(1, self.extent[r] * LIMIT // peak)
        return windows_

    def _reduce(self, node: UOp, value: NDArray, windows: WindowBounds) -> NDArray:
        shape, axes = list(value.shape), []
        for r in accessors.bound_ranges(node):
            lo, hi = windows.get(r, (0, self.extent[r]))
            shape[self.axis[r]] = hi - lo
            axes.append(self.axis[r])
        t, monoid = node.arg.accumulator or node.dtype, node.arg.monoid
        if value.dtype.names:
            full = np.broadcast_to(value, shape)
            return np.expand_dims(arg_reduce(monoid.ufunc, full, tuple(axes)), tuple(axes))
        if t.storage is not None:
            t, value = t.compute, low_precision.decode(value, t)
        full = np.broadcast_to(value, shape).astype(t.np, copy=False)
        folded = reduce_array(monoid.ufunc, full, tuple(axes), monoid.identity(t))
        return np.expand_dims(low_precision.encode(folded, node.dtype), tuple(axes))

    def _mma(self, node: UOp, values: NodeValues) -> NDArray:
        closed = accessors.bound_ranges(node)
        a, b = [np.broadcast_to(values[s], self._full_shape(values[s], closed))
                for s in node.src[:2]]
        return matrix_units.contract(matrix_units.UNITS[node.arg.unit], a, b,
                                     [self.axis[r] for r in closed])

    def _shuffle_xor(self, node: UOp, values: NodeValues) -> NDArray:
        value, r = node.src
        full = np.broadcast_to(values[value], self._full_shape(values[value], [r]))
        out: NDArray = np.take(full, np.arange(self.extent[r]) ^ node.arg, self.axis[r])
        return out

    def _full_shape(self, x: NDArray, ranges: Sequence[UOp]) -> list[int]:
        """Return the shape of a value, broadcast to the full extents of some ranges."""
        shape = list(x.shape)
        for r in ranges:
            shape[self.axis[r]] = self.extent[r]
        return shape

    def _load(self, node: UOp, values: NodeValues) -> NDArray:
        access, buffer = accessors.index_node(node), accessors.buffer(node)
        condition = accessors.validity(node)
        valid = np.ones((), bool) if condition is None else values[condition]
        if buffer.op is ops.STAGE:
            read = self._load_stage(access, values, valid)
        else:
            flat = self._flat(buffer)
            offsets = self._linear_index(access, values, valid)
            read = flat[offsets] if flat.size else np.zeros(offsets.shape, flat.dtype)
        return read if condition is None else np.where(valid, read, np.zeros((), read.dtype))

    # ---- indices ----

    def _check_indices(self, access: UOp, values: NodeValues, valid: NDArray,
                       extents: Sequence[int]) -> list[NDArray]:
        """Return the index of each dimension, bounds-checked; 0 where not valid."""
        out = []
        for dim, (index, n) in enumerate(zip(accessors.indices(access), extents)):
            position = values[index]
            out_of_bounds = ((position < 0) | (position >= n)) & valid
            if out_of_bounds.any():
                example = int(np.broadcast_to(position, out_of_bounds.shape)[out_of_bounds][0])
                raise KernelError(
                    f"{_name(accessors.buffer(access))}: expected 0 <= index < {n} in dimension "
                    f"{dim}, got {example}", loc=access.loc,
                    hint="give the LOAD or STORE a valid condition, or correct the index")
            out.append(position if valid.ndim == 0 and valid else np.where(valid, position, 0))
        return out

    def _linear_index(self, access: UOp, values: NodeValues, valid: NDArray) -> NDArray:
        extents = self._dims(accessors.buffer(access))
        offsets: NDArray = np.zeros((1,) * len(self.axis), np.int64)
        for index, n in zip(self._check_indices(access, values, valid, extents), extents):
            offsets = offsets * n + index
        return offsets

    def _load_stage(self, access: UOp, values: NodeValues, valid: NDArray) -> NDArray:
        stage = accessors.buffer(access)
        dims = accessors.bound_ranges(stage)
        index = self._check_indices(access, values, valid, [self.extent[r] for r in dims])
        shape = self._full_shape(values[stage], dims)
        full = np.broadcast_to(values[stage], shape)
        if full.size == 0:
            return np.zeros(np.broadcast_shapes(*(i.shape for i in index)), full.dtype)
        position = list(np.ogrid[tuple(map(slice, shape))])
        for r, i in zip(dims, index):
            position[self.axis[r]] = i
        return np.asarray(full[tuple(position)])

    def _dims(self, ref: UOp) -> list[int]:
        return [extent(d, self.scalars) for d in accessors.dims(ref)]

    def _flat(self, ref: UOp) -> NDArray:
        if ref.op is not ops.REF:
            raise KernelError(f"expected a STORE into a REF, got {ref}", loc=ref.loc)
        buffer = self.buffers[ref.arg.slot]
        need = math.prod(self._dims(ref))
        if ref.dtype is dtypes.uint32 and buffer.itemsize < 4:
            buffer = matrix_units.as_words(buffer)
        if buffer.dtype != ref.dtype.np or buffer.size < need:
            raise KernelError(f"{_name(ref)}: expected {need} elements of {ref.dtype}, got "
                              f"{buffer.size} of {buffer.dtype}", loc=ref.loc)
        flat: NDArray = buffer.reshape(-1)
        if need and not np.may_share_memory(flat, buffer):
            raise KernelError(f"{_name(ref)}: expected a C-contiguous array")
        return flat

    # ---- checks ----

    def _check_aliasing(self) -> None:
        access, written = accessors.index_node(self.store), accessors.buffer(self.store)
        for n in self.nodes:
            if n.op is ops.INDEX and n is not access and accessors.buffer(n).op is ops.REF \
                    and accessors.buffer(n).arg.slot == written.arg.slot:
                raise KernelError(
                    f"{_name(written)}: a store reads another element of the buffer that it "
                    "writes", loc=n.loc, hint="write to another buffer")

    def _check_written_once(self, target: NDArray, offsets: NDArray, access: UOp) -> None:
        if self.written is None:
            self.written = np.zeros(target.size, bool)
        count_before = np.count_nonzero(self.written)
        duplicates = offsets[self.written[offsets]]
        self.written[offsets] = True
        if np.count_nonzero(self.written) - count_before == offsets.size:
            return
        if not duplicates.size:
            unique, times = np.unique(offsets, return_counts=True)
            duplicates = unique[times > 1]
        dims = self._dims(accessors.buffer(access))
        where = tuple(int(i) for i in np.unravel_index(int(duplicates[0]), dims)) if dims else ()
        raise KernelError(f"{_name(accessors.buffer(access))}: two iterations write the element "
                          f"{where}", loc=self.store.loc,
                          hint="combine them with a monoid, or reduce over the range that the "
                               "index does not use")


def _name(ref: UOp) -> str:
    arg = ref.arg
    return arg.name or (f"buffer {arg.slot}" if ref.op is ops.REF else f"stage {arg.id}")


_PURE_OPS = ops.ELEMENTWISE | {ops.CONST, ops.ARG_PAIR}
