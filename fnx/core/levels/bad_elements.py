"""Which element of an operand a NaN comes from, and the carries that a loop had before each step.

    y = where(m, 0, v), a NaN at y[2]     ->  v[2], whatever else of v is NaN
    y = sum(v, axis=1), a NaN at y[0]     ->  v[0, 3], if that one alone makes y[0] NaN

Elementwise ops read the element of the same index, and movement ops that of another one. A REDUCE
reads those along its axes, and any NaN among them reaches the result. Of all others one rule holds:
the op is evaluated again with fewer and fewer of the NaNs of its operands, the rest replaced by 1,
until one is left that reaches the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import low_precision, ops
from fnx.core.ir.dtypes import NUMPY_DTYPES, NDArray, as_dtype
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp

Index = tuple[int, ...]
Values = Sequence[NDArray]
MAX_BYTES = 256 << 20  # of carries that are kept
_HOST = frozenset({ops.CALLBACK, ops.COLLECTIVE})  # not done again


def is_bad(value: Any, check: str) -> Any:
    """Return where a value is NaN, or for the check "inf" also infinite."""
    if not isinstance(value, np.ndarray | np.generic):
        return np.False_
    value = decode_values(value)
    if value.dtype.kind not in "fc":
        return np.False_
    return np.isnan(value) if check == "nan" else ~np.isfinite(value)


def decode_values(value: Any) -> NDArray:
    """Return the values of an array, decoded if its type is storage-only."""
    array = np.asarray(value)
    return low_precision.decode(array,
                                as_dtype(array.dtype)) if array.dtype in NUMPY_DTYPES else array


def first_index(bad: NDArray) -> Index:
    """Return the index of the first element that holds."""
    return tuple([int(i) for i in np.argwhere(bad)[0]])


def source_of(node: UOp, values: Mapping[UOp, Any], index: Index, check: str
              ) -> tuple[UOp, Index] | None:
    """Return an operand and the index of its element that a bad element of a node comes from.

    None if no operand has one that reaches it: the node made it.
    """
    operands = node.src[0].src if node.op is ops.GETTUPLE else node.src
    if node.op is ops.WHERE:
        operands = (node.src[1 if values[node.src[0]][index] else 2],)
    bad = {s: where for s in operands
           if s in values and (where := is_bad(values[s], check)).any()}
    if node.op in ops.ELEMENTWISE:
        return next(((s, index) for s, where in bad.items() if where[index]), None)
    if not bad:
        return None
    if node.op in _MOVED_FROM:
        operand, at = _MOVED_FROM[node.op](node, index)
        return (operand, at) if operand in bad and bad[operand][at] else None
    if node.op is ops.REDUCE and node.arg.monoid in _SPREADING and check == "nan":
        return _first_reduced(node, bad, index)
    if node.op is ops.GETTUPLE and node.src[0].op in _HOST:
        operand, where = next(iter(bad.items()))
        return operand, first_index(where)
    known = {s: values[s] for s in operands if s in values}

    def evaluate(changed: Mapping[UOp, NDArray]) -> Any:
        return is_bad(interp.evaluate([node], {**known, **changed})[0], check)[index]

    return reaching(bad, known, evaluate)


_SPREADING = frozenset({ops.ADD, ops.MUL, ops.MAX, ops.MIN})  # NaN with anything is NaN


def _first_reduced(node: UOp, bad: Mapping[UOp, NDArray], index: Index
                   ) -> tuple[UOp, Index] | None:
    """Return the first bad element that a REDUCE combines into an element of its result."""
    operand, remaining = node.src[0], iter(index)
    starts = [None if axis in node.arg.axes else next(remaining)
              for axis in range(len(operand.shape))]
    read = tuple([slice(None) if i is None else slice(i, i + 1) for i in starts])
    if operand not in bad or not bad[operand][read].any():
        return None
    within = first_index(bad[operand][read])
    return operand, tuple([i + (start or 0) for i, start in zip(within, starts)])


def _before_reshape(node: UOp, index: Index) -> tuple[UOp, Index]:
    at = np.unravel_index(np.ravel_multi_index(index, node.shape), node.src[0].shape) \
        if index and node.src[0].shape else (0,) * len(node.src[0].shape)
    return node.src[0], tuple([int(i) for i in at])


def _before_expand(node: UOp, index: Index) -> tuple[UOp, Index]:
    shape = node.src[0].shape
    return node.src[0], tuple([0 if n == 1 else i for n, i in zip(
        shape, index[len(index) - len(shape):])])


def _before_pad(node: UOp, index: Index) -> tuple[UOp, Index]:
    array, fill = node.src
    at = tuple([i - low for i, (low, _) in zip(index, node.arg)])
    inside = all(0 <= i < n for i, n in zip(at, array.shape))
    return (array, at) if inside else (fill, ())


def _before_concat(node: UOp, index: Index) -> tuple[UOp, Index]:
    axis, at = node.arg, index[node.arg]
    for operand in node.src:
        if at < operand.shape[axis]:
            break
        at -= operand.shape[axis]
    return operand, (*index[:axis], at, *index[axis + 1:])


# The element of an operand that is an element of the result.
_MOVED_FROM: dict[ops.Op, Callable[[UOp, Index], tuple[UOp, Index]]] = {
    ops.RESHAPE: _before_reshape, ops.EXPAND: _before_expand, ops.PAD: _before_pad,
    ops.CONCAT: _before_concat,
    ops.PERMUTE: lambda n, index: (n.src[0], tuple([
        index[n.arg.index(axis)] for axis in range(len(index))])),
    ops.SHRINK: lambda n, index: (n.src[0], tuple([i + low for i, (low, _) in zip(index, n.arg)])),
    ops.FLIP: lambda n, index: (n.src[0], tuple([
        size - 1 - i if axis in n.arg else i
        for axis, (i, size) in enumerate(zip(index, n.shape))])),
    ops.BARRIER: lambda n, index: (n.src[0], index),
    ops.STOP_GRADIENT: lambda n, index: (n.src[0], index)}


def reaching(bad: Mapping[UOp, NDArray], values: Mapping[UOp, Any],
             is_reached: Callable[[Mapping[UOp, NDArray]], Any]) -> tuple[UOp, Index]:
    """Return a bad element of operands that suffices to reach a result, which all of them do.

    Args:
        bad: where each operand is bad.
        values: of the operands.
        is_reached: whether the result is bad with other values of these operands.
    """
    owner = np.repeat(range(len(bad)), [np.count_nonzero(where) for where in bad.values()])
    at = np.concatenate([np.flatnonzero(where) for where in bad.values()])

    def reach(start: int, end: int) -> Any:
        changed = {s: replace_bad(values[s], where) for s, where in bad.items()}
        for k, (s, array) in enumerate(changed.items()):
            some = at[start:end][owner[start:end] == k]
            array.flat[some] = np.asarray(values[s]).flat[some]
        return is_reached(changed)

    start, end = 0, len(at)
    if end > 1 and not reach(0, 0):
        while end - start > 1:
            middle = (start + end) // 2
            start, end = (start, middle) if reach(start, middle) else (middle, end)
    operand = [*bad][owner[start]]
    return operand, tuple([int(i) for i in np.unravel_index(at[start], bad[operand].shape)])


def replace_bad(value: Any, bad: NDArray) -> NDArray:
    """Return a copy of an array with 1 where it is bad.

    >>> replace_bad(np.array([2.0, np.nan]), np.array([False, True]))
    array([2., 1.])
    """
    array = np.array(value)
    one = np.ones((), decode_values(array).dtype)
    array[bad] = low_precision.encode(one, as_dtype(array.dtype)) \
        if array.dtype in NUMPY_DTYPES else one
    return array


class CarriesOfSteps:
    """The carries before each step of a loop, from one with a bad element on.

    While they take more than MAX_BYTES, every second of those that are kept is dropped; the dropped
    ones are computed again, all between two that are kept at once.

    Args:
        advance: computes the carries after a step from those before it.
    """

    def __init__(self, advance: Callable[[int, Values], Values]) -> None:
        self.advance, self.stride, self.start = advance, 1, 0
        self._saved: dict[int, Values] = {}
        self._window: dict[int, Values] = {}

    def save(self, step: int, carries: Values) -> None:
        """Save the carries before a step; steps come in order."""
        if not self._saved:
            self.start = step
        if (step - self.start) % self.stride == 0:
            self._saved[step] = carries
            size = sum([np.asarray(x).nbytes for x in carries]) + 1
            if len(self._saved) * size > MAX_BYTES and len(self._saved) > 2:
                self.stride *= 2
                self._saved = {i: c for i, c in self._saved.items()
                              if (i - self.start) % self.stride == 0}

    def before(self, step: int) -> Values:
        """Return the carries before a step."""
        at = step - (step - self.start) % self.stride
        if at == step:
            return self._saved[step]
        if step not in self._window:
            self._window = {at: self._saved[at]}
            for i in range(at, step):
                self._window[i + 1] = self.advance(i, self._window[i])
        return self._window[step]
