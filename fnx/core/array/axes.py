"""Validation and normalization of the axis and shape arguments of public functions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, TypeAlias

from fnx.core.ir.dtypes import array_words
from fnx.core.ir.ops import Shape
from fnx.core.rewriting.dimensions import Dim
from fnx.core.support.errors import ArgumentError, AxisError, ShapeError, TracedValueError

ShapeLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
AxisLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None

MAX_AXES = 64  # axes of an array at most, as in NumPy
_STATIC_HINT = "shapes and axes must be concrete: take them from x.shape"


def normalize_axis(axis: Any, ndim: int) -> int:
    """Normalize an axis to 0..ndim-1; negative axes count from the end.

    >>> normalize_axis(-1, 3)
    2
    """
    try:
        a = operator.index(axis)
    except TracedValueError as error:
        error.set_hint(_STATIC_HINT)
        raise
    except TypeError:
        raise AxisError(f"expected an integer axis, got {array_words(axis)}",
                        hint="pass an int, or a tuple of ints for several axes"
                        ) from None
    if not -ndim <= a < ndim:
        expected = f"{-ndim} <= axis < {ndim}" if ndim else "no axis of a 0-d array"
        raise AxisError(f"expected {expected}, got {a}", hint=f"the array has {ndim} axes")
    return a + ndim if a < 0 else a


def sorted_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Normalize axes and sort them; None means all axes.

    >>> sorted_axes((0, -1), 3), sorted_axes(None, 2)
    ((0, 2), (0, 1))
    >>> sorted_axes(range(2), 3)
    (0, 1)
    """
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, Sequence) or isinstance(axis, str):
        return (normalize_axis(axis, ndim),)
    return tuple(sorted(normalize_axis_tuple(axis, ndim)))


def normalize_axis_tuple(axes: Iterable[Any], ndim: int) -> tuple[int, ...]:
    """Normalize axes in the order given; each may occur once."""
    if not isinstance(axes, Iterable):
        raise AxisError(f"expected axes as a tuple of ints, got {axes!r}",
                        hint="pass each axis as an int")
    result = tuple([normalize_axis(a, ndim) for a in axes])
    if len(set(result)) != len(result):
        raise AxisError(f"expected each axis once, got {tuple(axes)}",
                        hint="name each axis once")
    return result


def normalize_shape(value: Any) -> Shape:
    """Normalize a shape argument: an int or a sequence of ints >= 0."""
    if getattr(value, "ndim", None) == 0 or not isinstance(value, Sequence) and \
            not hasattr(value, "__len__"):
        value = (value,)
    try:
        lengths: tuple[Any, ...] = tuple([n if type(n) is Dim else operator.index(n)
                                          for n in value])
    except TracedValueError as error:
        error.set_hint(_STATIC_HINT)
        raise
    except TypeError:
        raise ArgumentError(f"expected a shape of integers, got {value!r}",
                            hint="pass an int or a tuple of ints; a shape must be concrete"
                            ) from None
    if any(n < 0 for n in lengths):
        raise ArgumentError(f"expected lengths >= 0, got shape {lengths}",
                            hint="use lengths >= 0; only reshape infers a -1")
    return lengths


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the shape that shapes broadcast to, by NumPy's rule.

    Raises:
        ShapeError: the shapes do not broadcast; the message names them.
    """
    rank = max((len(s) for s in shapes), default=0)
    out = [1] * rank
    for s in shapes:
        for i, n in enumerate(s, rank - len(s)):
            if n != 1:
                if out[i] not in (1, n):
                    raise ShapeError("expected shapes that broadcast, got "
                                     f"{' and '.join(str(t) for t in shapes)}",
                                     hint="insert axes with x[:, None] or reshape one of them")
                out[i] = n
    return tuple(out)
