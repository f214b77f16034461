"""Functions for op table entries: shape rules, monoid identities, sort keys of operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from fnx.core import narrow
from fnx.core.dtypes import DType
from fnx.core.op import Node, Op, Shape

T = TypeVar("T")

# ---- sort keys of the operands of a commutative op, from an arg --------------------------------

LEAF_BITS = 20  # low bits of a LEAF's id: its position in its trace, the same in every trace


def slot(arg: Any) -> int:
    return int(arg.slot)


def own_id(arg: Any) -> int:
    return int(arg.id)


def in_trace(arg: Any) -> int:
    return int(arg.id) & (1 << LEAF_BITS) - 1


def last(bits: int) -> int:
    return (1 << 63) + bits


def carried(arg: Any) -> int:
    return int(arg.i)


def fold(arg: Any) -> Any:
    return arg.monoid.code, arg.axes, arg.first


def window(arg: Any) -> Any:
    return arg.axis, arg.offset, arg.stride, arg.dilation, arg.length


def indexed(arg: Any) -> Any:
    return arg.axes


def scattered(arg: Any) -> Any:
    return arg.axes, combine(arg.monoid)


def combine(monoid: Op | str | None) -> int:
    """Return the key of how a STORE combines; -1 if it is nontemporal."""
    return 0 if monoid is None else -1 if isinstance(monoid, str) else monoid.code


# ---- shape rules ----------------------------------------------------------------------------


def shape_of_arg(src: tuple[Node, ...], arg: Any) -> Shape:
    shape: Shape = arg.shape
    return shape


def reduced(src: tuple[Node, ...], arg: Any) -> Shape:
    return tuple(n for i, n in enumerate(src[0].shape) if i not in arg.axes)


def others(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the axes of an array that are not in ``axes``.

    >>> others((1,), 3)
    (0, 2)
    """
    return tuple([a for a in range(rank) if a not in axes])


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse of a permutation.

    >>> inverse((1, 2, 0))
    (2, 0, 1)
    """
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def interleaved(axes: Sequence[int], index: Iterable[T], rest: Iterable[T]) -> tuple[T, ...]:
    """Merge one entry per axis: ``index`` for the axes in ``axes``, ``rest`` for the others.

    >>> interleaved((1,), "i", "ab")
    ('a', 'i', 'b')
    """
    at, found = dict(zip(axes, index)), [*rest]
    return tuple([at[a] if a in at else found.pop(0) for a in range(len(at) + len(found))])


def gathered(src: tuple[Node, ...], arg: Any) -> Shape:
    return src[1].shape + tuple([n for a, n in enumerate(src[0].shape) if a not in arg.axes])


def concatenated(src: tuple[Node, ...], axis: int) -> Shape:
    first = src[0].shape
    return (*first[:axis], sum(s.shape[axis] for s in src), *first[axis + 1:])


def windowed(src: tuple[Node, ...], arg: Any) -> Shape:
    shape = src[0].shape
    return (*shape[:arg.axis], arg.length, *shape[arg.axis + 1:])


def gotten(src: tuple[Node, ...], i: int) -> Shape:
    shape: Shape = src[0].arg.outs[i][0]
    return shape


# ---- identities of monoids ------------------------------------------------------------------


def lowest(t: DType) -> Any:
    """Return the smallest value of a type, the identity of MAX."""
    return -_most(t) if t.is_float else False if t.is_bool else t.limits[0]


def highest(t: DType) -> Any:
    """Return the largest value of a type, the identity of MIN."""
    return _most(t) if t.is_float else True if t.is_bool else t.limits[1]


def _most(t: DType) -> float:
    return narrow.number(narrow.infinity(t), t) if t.finite else np.inf


def zero(t: DType) -> Any:
    return False if t.is_bool else 0


def all_ones(t: DType) -> Any:
    return True if t.is_bool else -1 if t.kind in ("int", "index") else (1 << t.bits) - 1
