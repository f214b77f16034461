"""Scalarized values: represent values of a loop body as scalars, one per element of small axes.

    x (1000, 3), axis 0 lanes l          scalars  [[x[l, 0], x[l, 1], x[l, 2]]]
    SHRINK(x, column 1)                           [[x[l, 1]]]
    REDUCE(x * w, axis 1)                         [x[l, 0]*w[0] + x[l, 1]*w[1] + x[l, 2]*w[2]]

An array of scalars has extent 1 along lanes. Movement ops are NumPy's, applied to such arrays;
constants are folded: a comparison of constants, a select by it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import build, dtypes, low_precision, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, clamp
from fnx.core.ir.op import merge_by_axis, other_axes
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, copy_locs
from fnx.core.levels.interp_kernel import eval_node
from fnx.core.support.record import Record
from fnx.lower.analysis.workload import is_ordered_sum
from fnx.lower.loops.axis_classes import AxisClasses, NodeAxis

ScalarArray = np.ndarray[Any, Any]  # of nodes

MAX_SCALARS = 1 << 12   # of all values of a body
MAX_ALTERNATIVES = 1 << 6  # alternatives for a data-dependent index
MAX_AXES = 32         # supported by all versions of NumPy


class NotFusable(Exception):
    """A loop that cannot become one kernel, and why."""


class ScalarBuffer(Record):
    """A buffer that scalars are loaded from: its REF, and the indices of its leading dimensions."""

    ref: UOp
    prefix: tuple[UOp, ...] = ()


class ScalarizedBody:
    """The scalars of the nodes of a body.

    Args:
        axes: the equivalence classes of axes.
        lanes: the RANGE of each class of axes that are lanes.
        inputs: scalars, or memory, of the nodes that are inputs.
    """

    def __init__(self, axes: AxisClasses, lanes: Mapping[NodeAxis, UOp],
                 inputs: Mapping[UOp, ScalarArray | ScalarBuffer]) -> None:
        self.axes, self.lanes = axes, lanes
        self.memory = {n: m for n, m in inputs.items() if isinstance(m, ScalarBuffer)}
        self.scalars = {n: c for n, c in inputs.items() if not isinstance(c, ScalarBuffer)}
        self.count = 0

    def lane(self, node: UOp, axis: int) -> UOp | None:
        """Return the RANGE of an axis that is lanes, else None."""
        return self.lanes.get(self.axes.find((node, axis)))

    def shape(self, node: UOp) -> tuple[int, ...]:
        """Return the shape of its array of scalars."""
        if len(node.shape) > MAX_AXES:
            raise NotFusable(f"more than {MAX_AXES} axes")
        return tuple([1 if n == 1 or self.lane(node, a) is not None else n
                      for a, n in enumerate(node.shape)])

    def compute(self, nodes: Sequence[UOp]) -> None:
        """Compute the scalars of nodes, operands first."""
        self._check_size(nodes)
        for node in nodes:
            if node in self.scalars or node in self.memory:
                continue
            computed_scalars = self._make(node)
            self.count += computed_scalars.size
            if self.count > MAX_SCALARS:
                raise NotFusable(f"more than {MAX_SCALARS} scalars")
            for scalar in computed_scalars.ravel().tolist():
                copy_locs(scalar, node)
            self.scalars[node] = computed_scalars

    def _check_size(self, nodes: Sequence[UOp]) -> None:
        """Refuse a body with too many scalars before any is made, as that takes long."""
        sizes = [math.prod(self.shape(n)) for n in nodes if n not in self.scalars
                 and n not in self.memory and (n.op in _RULES or n.op.kind == "elementwise")
                 and len(n.shape) <= MAX_AXES]
        if self.count + sum(sizes) > MAX_SCALARS:
            raise NotFusable(f"more than {MAX_SCALARS} scalars")

    def scalars_of(self, node: UOp) -> ScalarArray:
        """Return the scalars of a computed node."""
        scalars_of_node = self.scalars.get(node)
        if scalars_of_node is None:
            scalars_of_node = self.scalars[node] = self._loaded(node)
        return scalars_of_node

    def _make(self, node: UOp) -> ScalarArray:
        if node.op in _RULES:
            return _RULES[node.op](self, node)
        if node.op.kind == "elementwise":
            return self._each(node.op, node.dtype, [self.scalars_of(s) for s in node.src], node.arg)
        if node.op.batching == "first":
            return self.scalars_of(node.src[0])
        raise NotFusable(f"{node.op} inside")

    def _each(self, op: Op, dtype: DType, src: Sequence[ScalarArray],
              arg: Any = None) -> ScalarArray:
        full = np.broadcast_arrays(*src)
        out = np.empty(full[0].shape, object)
        for at in np.ndindex(out.shape):
            out[at] = make_scalar(op, dtype, tuple([s.item(at) for s in full]), arg)
        return out

    # ---- memory

    def address(self, node: UOp, memory: ScalarBuffer, position: Sequence[int]) -> UOp:
        """Return the address of the scalar ``position`` of a node that is in memory."""
        axis_lanes = [self.lane(node, a) for a in range(len(position))]
        index = [build.index_const(i) if lane is None else lane
                 for i, lane in zip(position, axis_lanes)]
        return build.index_into(memory.ref, *memory.prefix, *index)

    def _loaded(self, node: UOp) -> ScalarArray:
        memory = self.memory[node]
        out = np.empty(self.shape(node), object)
        self.count += out.size
        if self.count > MAX_SCALARS:
            raise NotFusable(f"more than {MAX_SCALARS} scalars")
        for at in np.ndindex(out.shape):
            out[at] = build.load(self.address(node, memory, at))
        return out

    # ---- sources and movements

    def _const(self, node: UOp) -> ScalarArray:
        return _full_array((), node)

    def _iota(self, node: UOp) -> ScalarArray:
        lane = self.lane(node, 0)
        if lane is not None:
            return _full_array((1,), build.cast(lane, node.dtype))
        return _scalar_array([build.const(i, node.dtype) for i in range(node.arg)])

    def _reshape(self, node: UOp) -> ScalarArray:
        return self.scalars_of(node.src[0]).reshape(self.shape(node))

    def _permute(self, node: UOp) -> ScalarArray:
        return np.transpose(self.scalars_of(node.src[0]), node.arg)

    def _expand(self, node: UOp) -> ScalarArray:
        return np.broadcast_to(self.scalars_of(node.src[0]), self.shape(node))

    def _pad(self, node: UOp) -> ScalarArray:
        out = _full_array(self.shape(node), self.scalars_of(node.src[1]).item(()))
        x = self.scalars_of(node.src[0])
        out[tuple([slice(lo, lo + n) for (lo, _), n in zip(node.arg, x.shape)])] = x
        return out

    def _shrink(self, node: UOp) -> ScalarArray:
        return self.scalars_of(node.src[0])[tuple([
            slice(None) if self.lane(node, a) is not None else slice(lo, hi)
            for a, (lo, hi) in enumerate(node.arg)])]

    def _flip(self, node: UOp) -> ScalarArray:
        return np.flip(self.scalars_of(node.src[0]), node.arg)

    def _concat(self, node: UOp) -> ScalarArray:
        return np.concatenate([self.scalars_of(s) for s in node.src], node.arg)

    # ---- reductions and indexing

    def _reduce(self, node: UOp) -> ScalarArray:
        x, axes, monoid = self.scalars_of(node.src[0]), node.arg.axes, node.arg.monoid
        result_axes = [a for a in range(x.ndim) if a not in axes]
        rows = np.transpose(x, (*result_axes, *axes)).reshape(
            *[x.shape[a] for a in result_axes], -1)
        out = np.empty(rows.shape[:-1], object)
        for at in np.ndindex(out.shape):
            out[at] = reduce_scalars(monoid, list(rows[at]), node.dtype)
        return out

    def _gather(self, node: UOp) -> ScalarArray:
        x, *index = node.src
        indices = np.broadcast_arrays(*[self.scalars_of(i) for i in index])
        if x in self.memory:
            return self._gathered(node, self.memory[x], indices)
        values = np.moveaxis(self.scalars_of(x), node.arg.axes, range(len(index)))
        out = np.empty((*indices[0].shape, *values.shape[len(index):]), object)
        for at in np.ndindex(indices[0].shape):
            selected = values
            for i in indices:
                selected = _select(selected, i.item(at))
            out[at] = selected if selected.ndim else selected[()]
        return out

    def _gathered(self, node: UOp, memory: ScalarBuffer,
                  index: Sequence[ScalarArray]) -> ScalarArray:
        x, axes = node.src[0], node.arg.axes
        windows = other_axes(axes, len(x.shape))
        lanes = [self.lane(x, a) for a in windows]
        tail = [self.shape(x)[a] for a in windows]
        out = np.empty((*index[0].shape, *tail), object)
        for at in np.ndindex(index[0].shape):
            leading = [_clamp_index(i.item(at), x.shape[a]) for a, i in zip(axes, index)]
            for tail_index in np.ndindex(*tail):
                trailing = [build.index_const(i) if lane is None else lane
                            for i, lane in zip(tail_index, lanes)]
                source = build.index_into(memory.ref, *memory.prefix,
                                          *merge_by_axis(axes, leading, trailing))
                out[(*at, *tail_index)] = build.load(source)
        return out

    def _scatter(self, node: UOp) -> ScalarArray:
        x, *index, updates = node.src
        result, update_values = self.scalars_of(x).copy(), self.scalars_of(updates)
        monoid = node.arg.monoid
        out = np.moveaxis(result, node.arg.axes, range(len(index)))
        indices = np.broadcast_arrays(*[self.scalars_of(i) for i in index])
        for at in np.ndindex(indices[0].shape):
            for position in np.ndindex(out.shape[:len(index)]):
                is_target = TRUE
                for i, n in zip(indices, position):
                    is_target = make_scalar(ops.AND, dtypes.bool_, (is_target, make_scalar(
                        ops.CMPEQ, dtypes.bool_, (i.item(at), _index_like(i.item(at), n)))))
                for tail_index in np.ndindex(out.shape[len(index):]):
                    old, value = out[(*position, *tail_index)], update_values[(*at, *tail_index)]
                    if monoid is not None:
                        value = make_scalar(monoid, node.dtype, (old, value))
                    out[(*position, *tail_index)] = make_scalar(
                        ops.WHERE, node.dtype, (is_target, value, old))
        return result


_RULES: dict[Op, Callable[[ScalarizedBody, UOp], ScalarArray]] = {
    ops.CONST: ScalarizedBody._const, ops.IOTA: ScalarizedBody._iota,
    ops.RESHAPE: ScalarizedBody._reshape, ops.PERMUTE: ScalarizedBody._permute,
    ops.EXPAND: ScalarizedBody._expand, ops.PAD: ScalarizedBody._pad,
    ops.SHRINK: ScalarizedBody._shrink, ops.FLIP: ScalarizedBody._flip,
    ops.CONCAT: ScalarizedBody._concat, ops.REDUCE: ScalarizedBody._reduce,
    ops.GATHER: ScalarizedBody._gather, ops.SCATTER: ScalarizedBody._scatter,
}
TRUE = build.const(True, dtypes.bool_)


# ---- one scalar ---------------------------------------------------------------------------------


def make_scalar(op: Op, dtype: DType, src: tuple[UOp, ...], arg: Any = None) -> UOp:
    """Build an elementwise node; fold constants."""
    if op is ops.WHERE and src[0].op is ops.CONST:
        return src[1] if src[0].arg else src[2]
    if dtype is dtypes.bool_ and op in (ops.AND, ops.OR):
        for known, other in (src, src[::-1]):
            if known.op is ops.CONST:
                return other if bool(known.arg) is (op is ops.AND) else known
    if op.exact and all(s.op is ops.CONST for s in src):
        node = UOp(op, dtype, src, arg)
        values = {s: eval_node(s, {}) for s in src}
        with np.errstate(all="ignore"):
            result = np.asarray(eval_node(node, values))
            return build.const(low_precision.decode(result, dtype)[()], dtype)
    return UOp(op, dtype, src, arg)


def reduce_scalars(monoid: Op, scalars: list[UOp], dtype: DType) -> UOp:
    """Reduce scalars: a short float sum in order, others in a tree of neighbors. A float sum takes
    in each product by a MULACC."""
    if not scalars:
        assert monoid.identity is not None
        return build.const(monoid.identity(dtype), dtype)
    if is_ordered_sum(monoid, dtype, len(scalars)):
        return functools.reduce(lambda a, b: _combine(monoid, a, b), scalars)
    while len(scalars) > 1:
        pairs = [_combine(monoid, a, b) for a, b in zip(scalars[::2], scalars[1::2])]
        scalars = [*pairs, *scalars[len(pairs) * 2:]]
    return scalars[0]


def _combine(monoid: Op, a: UOp, b: UOp) -> UOp:
    if monoid is ops.ADD and b.dtype.is_float:
        if b.op is ops.MUL:
            x, y = b.src
            return build.mulacc(x, y, a)
        if b.op is ops.WHERE and b.src[1].op is ops.MUL and b.src[2] is build.const(0, b.dtype):
            x, y = b.src[1].src
            return build.where(b.src[0], build.mulacc(x, y, a), a)
    return make_scalar(monoid, a.dtype, (a, b))


def _full_array(shape: tuple[int, ...], scalar: UOp) -> ScalarArray:
    out = np.empty(shape, object)
    out[...] = scalar
    return out


def _scalar_array(scalars: Sequence[UOp]) -> ScalarArray:
    out = np.empty(len(scalars), object)
    for i, scalar in enumerate(scalars):
        out[i] = scalar
    return out


def _index_like(i: UOp, n: int) -> UOp:
    """Return n as a constant of the index's dtype; 0 if it does not fit."""
    return build.const(n, i.dtype) if n <= i.dtype.limits[1] else build.const(0, i.dtype)


def _select(values: ScalarArray, i: UOp) -> ScalarArray:
    """Select the values at an index of the first axis, clamped."""
    n = values.shape[0]
    if i.op is ops.CONST:
        return _row_array(values, min(max(int(build.const_of(i)), 0), n - 1))
    if n > MAX_ALTERNATIVES:
        raise NotFusable(f"an index that is data, into {n} scalars")
    out = _row_array(values, n - 1).copy()
    for k in range(n - 2, -1, -1):
        below = make_scalar(ops.CMPLE, dtypes.bool_, (i, _index_like(i, k)))
        rows = _row_array(values, k)
        for at in np.ndindex(out.shape):
            current: UOp = out.item(at)
            out[at] = make_scalar(ops.WHERE, current.dtype, (below, rows.item(at), current))
    return out


def _row_array(values: ScalarArray, i: int) -> ScalarArray:
    """Return a row as an array, even if it is one scalar."""
    return values[i:i + 1].reshape(values.shape[1:])


def _clamp_index(i: UOp, n: int) -> UOp:
    at = build.cast(i, dtypes.index)
    if at.op is ops.CAST and i.op is ops.CONST:
        return build.index_const(min(max(int(build.const_of(i)), 0), n - 1))
    return clamp(Expr(at), 0, n - 1).node


