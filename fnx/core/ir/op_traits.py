"""Functions for op table entries: shape rules, monoid identities, sort keys of operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from fnx.core.ir import low_precision
from fnx.core.ir.dtypes import DType
from fnx.core.ir.op import Node, Op, Shape

T = TypeVar("T")

# ---- sort keys of the operands of a commutative op, from an arg --------------------------------

LEAF_BITS = 20  # low bits of a LEAF's id: its position in its trace, the same in every trace


def slot_key(arg: Any) -> int:
    return int(arg.slot)


def id_key(arg: Any) -> int:
    return int(arg.id)


def trace_key(arg: Any) -> int:
    return int(arg.id) & (1 << LEAF_BITS) - 1


def last_key(bits: int) -> int:
    return (1 << 63) + bits


def carry_key(arg: Any) -> int:
    return int(arg.i)


def reduce_key(arg: Any) -> Any:
    return arg.monoid.code, arg.axes, arg.first


def window_key(arg: Any) -> Any:
    return arg.axis, arg.offset, arg.stride, arg.dilation, arg.length


def gather_key(arg: Any) -> Any:
    return arg.axes


def scatter_key(arg: Any) -> Any:
    return arg.axes, combine_key(arg.monoid)


def combine_key(monoid: Op | str | None) -> int:
    """Return the key of how a STORE combines; -1 if it is nontemporal."""
    return 0 if monoid is None else -1 if isinstance(monoid, str) else monoid.code


# ---- shape rules ----------------------------------------------------------------------------


def arg_shape(src: tuple[Node, ...], arg: Any) -> Shape:
    shape: Shape = arg.shape
    return shape


def reduce_shape(src: tuple[Node, ...], arg: Any) -> Shape:
    return tuple(n for i, n in enumerate(src[0].shape) if i not in arg.axes)


def other_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the axes of an array that are not in ``axes``.

    >>> other_axes((1,), 3)
    (0, 2)
    """
    return tuple([a for a in range(rank) if a not in axes])


def inverse_permutation(order: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse of a permutation.

    >>> inverse_permutation((1, 2, 0))
    (2, 0, 1)
    """
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def merge_by_axis(axes: Sequence[int], index: Iterable[T], rest: Iterable[T]) -> tuple[T, ...]:
    """Merge one entry per axis: ``index`` for the axes in ``axes``, ``rest`` for the others.

    >>> merge_by_axis((1,), "i", "ab")
    ('a', 'i', 'b')
    """
    by_axis, others_left = dict(zip(axes, index)), [*rest]
    return tuple([by_axis[a] if a in by_axis else others_left.pop(0)
                  for a in range(len(by_axis) + len(others_left))])


def gather_shape(src: tuple[Node, ...], arg: Any) -> Shape:
    return src[1].shape + tuple([n for a, n in enumerate(src[0].shape) if a not in arg.axes])


def concat_shape(src: tuple[Node, ...], axis: int) -> Shape:
    first = src[0].shape
    return (*first[:axis], sum(s.shape[axis] for s in src), *first[axis + 1:])


def window_shape(src: tuple[Node, ...], arg: Any) -> Shape:
    shape = src[0].shape
    return (*shape[:arg.axis], arg.length, *shape[arg.axis + 1:])


def gettuple_shape(src: tuple[Node, ...], i: int) -> Shape:
    shape: Shape = src[0].arg.outs[i][0]
    return shape


# ---- identities of monoids ------------------------------------------------------------------


def min_value(t: DType) -> Any:
    """Return the smallest value of a type, the identity of MAX."""
    return -_max_float(t) if t.is_float else False if t.is_bool else t.limits[0]


def max_value(t: DType) -> Any:
    """Return the largest value of a type, the identity of MIN."""
    return _max_float(t) if t.is_float else True if t.is_bool else t.limits[1]


def _max_float(t: DType) -> float:
    return low_precision.decode_number(low_precision.infinity_bits(t), t) \
        if t.has_no_inf else np.inf


def zero(t: DType) -> Any:
    return False if t.is_bool else 0


def all_ones(t: DType) -> Any:
    return True if t.is_bool else -1 if t.kind in ("int", "index") else (1 << t.bits) - 1
