"""Cumulative reductions (prefix sums) of ``jax.lax``: associative_scan, cumsum and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import fnx.numpy as jnp
from fnx.core import build, ops
from fnx.core.array import arguments, axes, scope, tree
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.documented import Family
from fnx.core.array.promotion import in_domain
from fnx.core.array.public import asarray, public
from fnx.core.array.running import running
from fnx.core.array.trace import name_of
from fnx.core.errors import ArgumentError, DTypeError, PytreeError, ShapeError, user_site
from fnx.core.ops import Op
from fnx.core.uop import UOp

__all__ = ["associative_scan", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"]

T = TypeVar("T")
Fold = Callable[[list[Array], list[Array]], list[Array]]


@public
def associative_scan(fn: Callable[[T, T], T], elems: T, reverse: bool = False, axis: int = 0) -> T:
    """Scan with an associative function, in about 2 n applications and 2 log2(n) parallel steps.

    ``fn`` is called with arrays of many elements and combines them elementwise.

    Args:
        fn: ``fn(accumulator, element)``, of pytrees like ``elems``; associative.
        elems: a pytree of arrays of equal length along the axis.
        reverse: whether to start at the end of the axis.
        axis: the axis to scan.

    Returns:
        A pytree like ``elems``: index i holds the reduction of the elements up to i.

    Raises:
        ArgumentError: there are no arrays.
        ShapeError: the lengths differ, or ``fn`` returns another shape.
        DTypeError: ``fn`` returns another dtype.
        PytreeError: ``fn`` returns another structure.
        AxisError: the axis is out of range.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.associative_scan(lambda a, b: a * b, jnp.asarray([1.0, 2.0, 3.0, 4.0]))
    Array([ 1.,  2.,  6., 24.], dtype=float32)

    Source: Blelloch, Prefix Sums and Their Applications, 1990.
    """
    arguments.flag("reverse", reverse)
    if not callable(fn):
        raise ArgumentError(f"expected a function, got {type(fn).__name__}")
    given, structure = tree.flatten(elems)
    if not given:
        raise ArgumentError("expected arrays, got none")
    xs = [asarray(x) for x in given]
    at = [axes.one(axis, x.ndim) for x in xs]
    lengths = [x.shape[a] for x, a in zip(xs, at)]
    for i, n in enumerate(lengths):
        if n != lengths[0]:
            where = [f"elems{tree.keystr(p)}" for p in tree.paths(structure)]
            raise ShapeError(f"expected one length along axis {axis}, got {lengths[0]} of "
                             f"{where[0]} and {n} of {where[i]}")

    opened, site = f"associative_scan of {name_of(fn)}", user_site(2)

    def combine(a: list[Array], b: list[Array]) -> list[Array]:
        with scope.named(opened, site):
            found, got = tree.flatten(fn(structure.unflatten(a), structure.unflatten(b)))
        if got != structure:
            raise PytreeError("expected fn to return a tree like its arguments: "
                              f"{tree.difference(structure, got)}")
        return [_checked(asarray(x), y) for x, y in zip(found, a)]

    front = [Array(build.permute(x._node, _to_front(a, x.ndim)), x.weak) for x, a in zip(xs, at)]
    if reverse:
        front = [Array(build.flip(x._node, (0,)), x.weak) for x in front]
    found = _prefixes(front, lengths[0], combine)
    if reverse:
        found = [Array(build.flip(x._node, (0,)), x.weak) for x in found]
    out: T = structure.unflatten([Array(build.permute(x._node, _from_front(a, x.ndim)), x.weak)
                                  for x, a in zip(found, at)])
    return out


def _to_front(axis: int, rank: int) -> list[int]:
    return [axis, *[a for a in range(rank) if a != axis]]


def _from_front(axis: int, rank: int) -> list[int]:
    return [*range(1, axis + 1), 0, *range(axis + 1, rank)]


def _checked(got: Array, like: Array) -> Array:
    if got.shape != like.shape:
        raise ShapeError(f"expected fn to return the shape of its arguments, {like.shape}, got "
                         f"{got.shape}", hint="fn combines many pairs at once, element by element")
    if got._dtype is not like._dtype:
        raise DTypeError(f"expected fn to return {like._dtype}, as its arguments, got "
                         f"{got._dtype}", hint=f"convert it with .astype({like._dtype})")
    return got


def _prefixes(xs: list[Array], n: int, combine: Fold) -> list[Array]:
    """Combine pairs, scan these recursively, and combine once more for the even indices."""
    if n < 2:
        return xs
    even, odd = _every_second(xs, 0), _every_second(xs, 1)
    pairs = combine([_first(x, n // 2) for x in even], odd)
    at_odd = _prefixes(pairs, n // 2, combine)
    first = [_first(x, 1) for x in xs]
    between = (n - 1) // 2
    at_even = first if not between else [_joined([a, b]) for a, b in zip(first, combine(
        [_first(x, between) for x in at_odd],
        [Array(_rows(x._node, 1, between + 1), x.weak) for x in even]))]
    return [_interleaved(a, b) for a, b in zip(at_even, at_odd)]


def _rows(x: UOp, start: int, stop: int) -> UOp:
    return build.shrink(x, [(start, stop), *((0, n) for n in x.shape[1:])])


def _first(x: Array, n: int) -> Array:
    return Array(_rows(x._node, 0, n), x.weak)


def _joined(xs: Sequence[Array]) -> Array:
    return Array(build.concat([x._node for x in xs], 0), all(x.weak for x in xs))


def _every_second(xs: list[Array], start: int) -> list[Array]:
    """Return the rows start, start + 2, ... of each array."""
    out = []
    for x in xs:
        n = x.shape[0]
        count = (n - start + 1) // 2
        rest = _rows(x._node, start, n)
        padded = build.pad(rest, [(0, 2 * count - (n - start)), *((0, 0),) * (x.ndim - 1)])
        pairs = _rows_of_pairs(build.reshape(padded, (count, 2, *x.shape[1:])))
        out.append(Array(pairs, x.weak))
    return out


def _rows_of_pairs(x: UOp) -> UOp:
    """Return the first row of each pair."""
    first = build.shrink(x, [(0, x.shape[0]), (0, 1), *((0, n) for n in x.shape[2:])])
    return build.reshape(first, (x.shape[0], *x.shape[2:]))


def _interleaved(even: Array, odd: Array) -> Array:
    """Interleave the rows of two arrays; ``even`` may have one row more."""
    n, m = even.shape[0], odd.shape[0]
    both = build.concat([build.reshape(_rows(x._node, 0, m), (m, 1, *x.shape[1:]))
                         for x in (even, odd)], 1)
    woven = build.reshape(both, (2 * m, *odd.shape[1:]))
    if n > m:
        woven = build.concat([woven, _rows(even._node, m, n)], 0)
    return Array(woven, even.weak and odd.weak)


# ---- known monoids ----------------------------------------------------------------------------


_family = Family(
    operand="an Array or what ``asarray`` takes, of any shape and dtype.",
    axis="along which axis.", reverse="whether to begin at the end of the axis.",
    returns="An Array of the shape of the operand.",
    raises=("AxisError: an axis outside of the array.",), at="fnx.lax as lax, fnx.numpy as jnp")


def _running(x: Array, axis: int, reverse: bool, monoid: Op, name: str) -> Array:
    arguments.flag("reverse", reverse)
    return Array(running(x._node, axes.one(axis, x.ndim), monoid, reverse, name), x.weak)


@_family()
def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return the cumulative sum along an axis, from its end if ``reverse``.

    >>> lax.cumsum(jnp.arange(3), reverse=True)
    Array([3, 3, 2], dtype=int32)
    """
    numbers = Array(in_domain("integer", operand))
    return _running(numbers, axis, reverse, ops.ADD, "cumsum")


@_family()
def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return the cumulative product along an axis, from its end if ``reverse``.

    >>> lax.cumprod(jnp.arange(1, 4))
    Array([1, 2, 6], dtype=int32)
    """
    numbers = Array(in_domain("integer", operand))
    return _running(numbers, axis, reverse, ops.MUL, "cumprod")


@_family()
def cummax(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return the cumulative maximum along an axis, from its end if ``reverse``.

    >>> lax.cummax(jnp.asarray([1, 3, 2]))
    Array([1, 3, 3], dtype=int32)
    """
    return _running(asarray(operand), axis, reverse, ops.MAX, "cummax")


@_family()
def cummin(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return the cumulative minimum along an axis, from its end if ``reverse``.

    >>> lax.cummin(jnp.asarray([3, 1, 2]))
    Array([3, 1, 1], dtype=int32)
    """
    return _running(asarray(operand), axis, reverse, ops.MIN, "cummin")


@_family(
    operand="an Array or what ``asarray`` takes, of floats.",
    raises=("DTypeError: an operand that is not of floats.",
            "AxisError: an axis outside of the array."))
def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return the cumulative log-sum-exp along an axis, from its end if ``reverse``.

    >>> print(lax.cumlogsumexp(jnp.zeros(1)))
    [0.]
    """
    x = asarray(operand)
    if not x._dtype.is_float:
        raise DTypeError(f"expected an array of floats, got {x._aval}",
                         hint="convert it with .astype(float)")
    return associative_scan(jnp.logaddexp, x, reverse, axis)
