"""Validation and normalization of the axis and shape arguments of public functions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, TypeAlias

from fnx.core.errors import ArgumentError, AxisError, ShapeError, TracedValueError
from fnx.core.ops import Shape

ShapeLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
AxisLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None

MOST_AXES = 64  # axes of an array at most, as in NumPy
_KNOWN = "shapes and axes are known while tracing: take them from x.shape"


def one(axis: Any, ndim: int) -> int:
    """Normalize an axis to 0..ndim-1; negative axes count from the end.

    >>> one(-1, 3)
    2
    """
    try:
        a = operator.index(axis)
    except TracedValueError as error:
        error.instead(_KNOWN)
        raise
    except TypeError:
        raise AxisError(f"expected an integer axis, got {axis!r}",
                        hint="an axis is an int, or a tuple of ints where several are meant"
                        ) from None
    if not -ndim <= a < ndim:
        has = f"{-ndim} <= axis < {ndim}" if ndim else "no axis of a 0-d array"
        raise AxisError(f"expected {has}, got {a}", hint=f"the array has {ndim} axes")
    return a + ndim if a < 0 else a


def several(axis: Any, ndim: int) -> tuple[int, ...]:
    """Normalize axes and sort them; None means all axes.

    >>> several((0, -1), 3), several(None, 2)
    ((0, 2), (0, 1))
    """
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list)):
        return (one(axis, ndim),)
    return tuple(sorted(listed(axis, ndim)))


def listed(axes: Iterable[Any], ndim: int) -> tuple[int, ...]:
    """Normalize axes in the order given; each may occur once."""
    if not isinstance(axes, Iterable):
        raise AxisError(f"expected axes as a tuple of ints, got {axes!r}",
                        hint="name each axis by its number")
    out = tuple([one(a, ndim) for a in axes])
    if len(set(out)) != len(out):
        raise AxisError(f"expected each axis once, got {tuple(axes)}",
                        hint="name each axis once")
    return out


def shape(given: Any) -> Shape:
    """Normalize a shape argument: an int or a sequence of ints >= 0."""
    if getattr(given, "ndim", None) == 0 or not isinstance(given, Sequence) and \
            not hasattr(given, "__len__"):
        given = (given,)
    try:
        out = tuple([operator.index(n) for n in given])
    except TracedValueError as error:
        error.instead(_KNOWN)
        raise
    except TypeError:
        raise ArgumentError(f"expected a shape of integers, got {given!r}",
                            hint="a shape is an int or a tuple of ints, known while tracing"
                            ) from None
    if any(n < 0 for n in out):
        raise ArgumentError(f"expected lengths >= 0, got shape {out}",
                            hint="no axis is shorter than 0; reshape alone works out a -1")
    return out


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
