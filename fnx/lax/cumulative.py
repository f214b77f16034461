"""Cumulative reductions (prefix sums) of ``jax.lax``: associative_scan, cumsum and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import fnx.numpy as jnp
from fnx.core.array import axes, tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import record
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import domain_node
from fnx.core.ir import build, ops
from fnx.core.ir.op import inverse_permutation, other_axes
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.errors import (
    ArgumentError,
    DTypeError,
    PytreeError,
    ShapeError,
    user_location,
)
from fnx.core.tracing.trace import function_name
from fnx.numpy.reductions import cumulative_along

__all__ = ["associative_scan", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"]

T = TypeVar("T")
Combine = Callable[[list[Array], list[Array]], list[Array]]


@public_api
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
    if not callable(fn):
        raise ArgumentError(f"expected a function, got {type(fn).__name__}")
    leaves, structure = tree.flatten(elems)
    if not leaves:
        raise ArgumentError("expected arrays, got none")
    xs = [asarray(x) for x in leaves]
    at = [axes.normalize_axis(axis, x.ndim) for x in xs]
    lengths = [x.shape[a] for x, a in zip(xs, at)]
    for i, n in enumerate(lengths):
        if n != lengths[0]:
            where = [f"elems{tree.keystr(p)}" for p in tree.paths(structure)]
            raise ShapeError(f"expected equal lengths along axis {axis}, got {lengths[0]} of "
                             f"{where[0]} and {n} of {where[i]}")

    scope_name, site = f"associative_scan of {function_name(fn)}", user_location(2)

    def combine(a: list[Array], b: list[Array]) -> list[Array]:
        with scope.named_region(scope_name, site):
            results, result_structure = tree.flatten(
                fn(structure.unflatten(a), structure.unflatten(b)))
        if len(results) != len(a):  # containers may be others, as in JAX
            raise PytreeError("expected fn to return a tree like its arguments: "
                              f"{tree.first_difference(structure, result_structure)}")
        return [_check_result(asarray(x), y) for x, y in zip(results, a)]

    orders = [(a, *other_axes((a,), x.ndim)) for x, a in zip(xs, at)]
    rows = [Array(build.permute(x._node, order), x.weak) for x, order in zip(xs, orders)]
    if reverse:
        rows = [Array(build.flip(x._node, (0,)), x.weak) for x in rows]
    scanned = _prefix_scan(rows, lengths[0], combine)
    if reverse:
        scanned = [Array(build.flip(x._node, (0,)), x.weak) for x in scanned]
    out: T = structure.unflatten([
        Array(build.permute(x._node, inverse_permutation(order)), x.weak)
        for x, order in zip(scanned, orders)])
    return out


def _check_result(result: Array, arg: Array) -> Array:
    if result.shape != arg.shape:
        raise ShapeError(f"expected fn to return the shape of its arguments, {arg.shape}, got "
                         f"{result.shape}",
                         hint="fn must combine many pairs at once, elementwise")
    if result._dtype is not arg._dtype:
        raise DTypeError(f"expected fn to return {arg._dtype}, as its arguments, got "
                         f"{result._dtype}", hint=f"convert it with .astype({arg._dtype})")
    return result


def _prefix_scan(xs: list[Array], n: int, combine: Combine) -> list[Array]:
    """Combine pairs, scan these recursively, and combine once more for the even indices."""
    if n < 2:
        return xs
    even, odd = _stride_two(xs, 0), _stride_two(xs, 1)
    pairs = combine([_take_rows(x, n // 2) for x in even], odd)
    odd_prefixes = _prefix_scan(pairs, n // 2, combine)
    first = [_take_rows(x, 1) for x in xs]
    inner_count = (n - 1) // 2
    even_prefixes = first if not inner_count else [
        _concat_rows([a, b]) for a, b in zip(first, combine(
            [_take_rows(x, inner_count) for x in odd_prefixes],
            [Array(_slice_rows(x._node, 1, inner_count + 1), x.weak) for x in even]))]
    return [_interleave(a, b) for a, b in zip(even_prefixes, odd_prefixes)]


def _slice_rows(x: UOp, start: int, stop: int) -> UOp:
    return build.shrink(x, [(start, stop), *((0, n) for n in x.shape[1:])])


def _take_rows(x: Array, n: int) -> Array:
    return Array(_slice_rows(x._node, 0, n), x.weak)


def _concat_rows(xs: Sequence[Array]) -> Array:
    return Array(build.concat([x._node for x in xs], 0), all(x.weak for x in xs))


def _stride_two(xs: list[Array], start: int) -> list[Array]:
    """Return the rows start, start + 2, ... of each array."""
    out = []
    for x in xs:
        n = x.shape[0]
        count = (n - start + 1) // 2
        tail = _slice_rows(x._node, start, n)
        padded = build.pad(tail, [(0, 2 * count - (n - start)), *((0, 0),) * (x.ndim - 1)])
        pairs = _first_of_pairs(build.reshape(padded, (count, 2, *x.shape[1:])))
        out.append(Array(pairs, x.weak))
    return out


def _first_of_pairs(x: UOp) -> UOp:
    """Return the first row of each pair."""
    first = build.shrink(x, [(0, x.shape[0]), (0, 1), *((0, n) for n in x.shape[2:])])
    return build.reshape(first, (x.shape[0], *x.shape[2:]))


def _interleave(even: Array, odd: Array) -> Array:
    """Interleave the rows of two arrays; ``even`` may have one row more."""
    n, m = even.shape[0], odd.shape[0]
    pairs = build.concat([build.reshape(_slice_rows(x._node, 0, m), (m, 1, *x.shape[1:]))
                          for x in (even, odd)], 1)
    merged = build.reshape(pairs, (2 * m, *odd.shape[1:]))
    if n > m:
        merged = build.concat([merged, _slice_rows(even._node, m, n)], 0)
    return Array(merged, even.weak and odd.weak)


# ---- known monoids ----------------------------------------------------------------------------


_docstr = DocTemplate(
    operand="an Array or array-like.",
    axis="the axis.", reverse="whether to start at the end.",
    returns="An Array of the shape of the operand.",
    raises=("AxisError: the axis is out of range.",), imports="fnx.lax as lax, fnx.numpy as jnp")


@_docstr.family()
def _cumulative(kind: tuple[Op, str], operand: ArrayLike, axis: int = 0, reverse: bool = False
                ) -> Array:
    monoid, name = kind
    x = asarray(operand) if monoid in (ops.MAX, ops.MIN) else Array(domain_node("integer", operand))
    at = axes.normalize_axis(axis, x.ndim)
    return Array(cumulative_along(x._node, at, monoid, reverse, name), x.weak)


cumsum = _cumulative(
    (ops.ADD, "cumsum"), "cumsum",
    "Return the cumulative sum along an axis, from its end if ``reverse``.",
    "lax.cumsum(jnp.arange(3), reverse=True)", "Array([3, 3, 2], dtype=int32)")
cumprod = _cumulative(
    (ops.MUL, "cumprod"), "cumprod",
    "Return the cumulative product along an axis, from its end if ``reverse``.",
    "lax.cumprod(jnp.arange(1, 4))", "Array([1, 2, 6], dtype=int32)")
cummax = _cumulative(
    (ops.MAX, "cummax"), "cummax",
    "Return the cumulative maximum along an axis, from its end if ``reverse``.",
    "lax.cummax(jnp.asarray([1, 3, 2]))", "Array([1, 3, 3], dtype=int32)")
cummin = _cumulative(
    (ops.MIN, "cummin"), "cummin",
    "Return the cumulative minimum along an axis, from its end if ``reverse``.",
    "lax.cummin(jnp.asarray([3, 1, 2]))", "Array([3, 1, 1], dtype=int32)")


@_docstr(
    operand="an Array or array-like of floats.",
    raises=("DTypeError: the operand is not floats.",
            "AxisError: the axis is out of range."))
def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Return the cumulative log-sum-exp along an axis, from its end if ``reverse``.

    >>> print(lax.cumlogsumexp(jnp.zeros(1)))
    [0.]
    """
    x = asarray(operand)
    if not x._dtype.is_float:
        raise DTypeError(f"expected an array of floats, got {x._aval}",
                         hint="convert it with .astype(float)")
    out: Array = associative_scan(jnp.logaddexp, x, reverse, axis)
    return record(out, "cumlogsumexp", cumlogsumexp, x._node,
                  axis=axes.normalize_axis(axis, x.ndim), reverse=bool(reverse))
