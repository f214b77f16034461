"""``jax.lax.reduce`` and ``reduce_window``: reductions with a user-given function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import axes, tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.array_operators import record
from fnx.core.array.promotion import as_node
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, DTypeError, PytreeError, ShapeError
from fnx.core.support.name_hints import suggestion
from fnx.core.support.process import lazy_import
from fnx.lax import shape_ops

reductions = lazy_import("fnx.transforms.control_flow.reductions")

__all__ = ["reduce", "reduce_window"]

Padding = str | Sequence[tuple[int, int]]


@public_api
def reduce(operands: Any, init_values: Any, computation: Callable[[Any, Any], Any],
           dimensions: Sequence[int]) -> Any:
    """Reduce axes with any associative function.

    Sums, products, maxima, minima and bitwise functions of the two arguments are recognized and as
    fast as ``jnp.sum``; any other function is applied sequentially, from the first element to the
    last.

    Args:
        operands: an Array, or a pytree of Arrays of one shape.
        init_values: a scalar for each operand, the start of the reduction.
        computation: ``computation(accumulator, element)``, of scalars (or pytrees of them);
            associative.
        dimensions: the axes to reduce.

    Returns:
        The operands without the reduced axes.

    Raises:
        PytreeError: ``init_values`` or the result of ``computation`` has another structure.
        ShapeError: the operands differ in shape, or an initial value is not a scalar.
        DTypeError: an initial value or a result of ``computation`` has another dtype.
        AxisError: an axis is out of range or repeated.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> x = jnp.asarray([3, 9, 4])
    >>> lax.reduce(x, 0, lambda a, b: a + b, (0,))
    Array(16, dtype=int32)
    >>> larger = lambda p, q: tuple(jnp.where(p[0] >= q[0], a, b) for a, b in zip(p, q))
    >>> lax.reduce((x, jnp.arange(3)), (-1, -1), larger, (0,))
    (Array(9, dtype=int32), Array(1, dtype=int32))
    """
    arrays, inits, structure = _check_operands(operands, init_values)
    reduce_axes = axes.normalize_axis_tuple(dimensions, len(arrays[0].shape))
    return _reduce(computation, structure, arrays, inits, reduce_axes, "reduce")


def _check_operands(operands: Any, init_values: Any) -> tuple[list[UOp], list[UOp], tree.TreeDef]:
    """Check operands and initial values; return the nodes of each and their tree structure."""
    xs, structure = tree.flatten(operands)
    init_leaves, init_structure = tree.flatten(init_values)
    if not xs:
        raise ArgumentError("expected operands, got none")
    if init_structure != structure:
        raise PytreeError("expected an initial value for each operand: "
                          f"{tree.first_difference(structure, init_structure)}",
                          hint="pass init_values with the structure of the operands")
    arrays, inits = [asarray(x) for x in xs], [asarray(v) for v in init_leaves]
    for x, v in zip(arrays, inits):
        if x.shape != arrays[0].shape:
            raise ShapeError(f"expected operands of equal shape, got {arrays[0].shape} and "
                             f"{x.shape}")
        if v.shape:
            raise ShapeError(f"expected a scalar as initial value, got {v._aval}")
        if v._dtype is not x._dtype and not v.weak:
            raise DTypeError(f"expected an initial value of {x._dtype}, got {v._dtype}",
                             hint=f"convert it with .astype({x._dtype})")
    return ([x._node for x in arrays],
            [as_node(v, x._dtype) for x, v in zip(arrays, inits)], structure)


def _reduce(f: Callable[[Any, Any], Any], structure: tree.TreeDef, arrays: Sequence[UOp],
            inits: Sequence[UOp], reduce_axes: Sequence[int], api_name: str,
            mask: UOp | None = None, first_wins: bool = False) -> Any:
    results = reductions.reduce_axes(
        f, structure, arrays, inits, reduce_axes, api_name, mask, first_wins)
    return structure.unflatten([Array(x) for x in results])


# ---- windows ----------------------------------------------------------------------------------


@public_api
def reduce_window(operand: Any, init_value: Any, computation: Callable[[Any, Any], Any],
                  window_dimensions: Sequence[int], window_strides: Sequence[int] | None = None,
                  padding: str | Sequence[tuple[int, int]] = "VALID",
                  base_dilation: Sequence[int] | None = None,
                  window_dilation: Sequence[int] | None = None) -> Any:
    """Reduce each window of an array with any associative function.

    The derivative of a maximum or minimum goes to the first such element of the window.

    Args:
        operand: an Array, or a pytree of Arrays of one shape.
        init_value: a scalar for each operand, the start of each reduction.
        computation: ``computation(accumulator, element)``, of scalars (or pytrees of them);
            associative.
        window_dimensions: the size of a window along each axis.
        window_strides: the stride of the windows along each axis; by default 1.
        padding: pairs of elements before and after each axis, into which windows may extend; they
            are left out of the reduction. "VALID" means none, "SAME" as many as ceil(n / stride)
            windows need ("SAME_LOWER": the odd one goes in front).
        base_dilation: the distance of the elements of the operand before windows are taken.
        window_dilation: the distance of the elements of a window.

    Returns:
        The operand with one element per window along each axis.

    Raises:
        ArgumentError: a number is missing or below 1, or the padding is unknown.
        PytreeError: ``init_value`` or the result of ``computation`` has another structure.
        ShapeError: the operands differ in shape, or an initial value is not a scalar.
        DTypeError: an initial value or a result of ``computation`` has another dtype.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> x = jnp.asarray([1.0, 5.0, 2.0, 4.0])
    >>> lax.reduce_window(x, -jnp.inf, jnp.maximum, (2,), (2,))
    Array([5., 4.], dtype=float32)
    """
    arrays, inits, structure = _check_operands(operand, init_value)
    rank = len(arrays[0].shape)
    size = ints_per_axis("window_dimensions", window_dimensions, rank)
    strides = ints_per_axis("window_strides", window_strides, rank)
    base_steps = ints_per_axis("base_dilation", base_dilation, rank)
    dilation = ints_per_axis("window_dilation", window_dilation, rank)
    shape = tuple([max(0, (n - 1) * b + 1) for n, b in zip(arrays[0].shape, base_steps)])
    extents = tuple([(k - 1) * d + 1 for k, d in zip(size, dilation)])
    config = [(lo, hi, b - 1) for (lo, hi),
              b in zip(resolve_padding(padding, shape, extents, strides), base_steps)]

    def windows_of(x: UOp, fill: UOp) -> UOp:
        return extract_windows(shape_ops.pad(Array(x), Array(fill), config)._node, size, strides,
                               dilation)

    true, false = (build.const(v, dtypes.bool_) for v in (True, False))
    mask = windows_of(build.expand(true, arrays[0].shape), false) if any(map(any, config)) else None
    out = _reduce(computation, structure, [windows_of(x, v) for x, v in zip(arrays, inits)], inits,
                  range(rank, 2 * rank), "reduce_window", mask, first_wins=True)
    if type(out) is Array and out._node.op is ops.REDUCE and out._node.arg.monoid in _WINDOWS:
        name, by_params = _WINDOWS[out._node.arg.monoid]
        record(out, name, by_params, arrays[0],
               window_dimensions=size, window_strides=strides,
               padding=tuple([(lo, hi) for lo, hi, _ in config]), base_dilation=base_steps,
               window_dilation=dilation)
    return out


def _by_params(monoid: ops.Op, f: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def compute(x: Any, **params: Any) -> Any:
        t = asarray(x)._dtype
        assert monoid.identity is not None
        return reduce_window(x, Array(build.const(monoid.identity(t), t)), f, **params)
    return compute


# of reductions that start from their identity: the primitive, and its function of params
_WINDOWS = {monoid: (f"reduce_window_{name}", _by_params(monoid, f)) for monoid, name, f in (
    (ops.ADD, "sum", jnp.add), (ops.MAX, "max", jnp.maximum), (ops.MIN, "min", jnp.minimum))}
WINDOW_PRIMITIVES = dict(_WINDOWS.values())


def ints_per_axis(name: str, values: Sequence[int] | None, rank: int) -> Shape:
    """Check that there is a number >= 1 for each axis; None means 1 for each."""
    if values is None:
        return (1,) * rank
    try:
        out = tuple([operator.index(n) for n in values])
    except TypeError:
        raise ArgumentError(f"expected {name} as a tuple of ints, got {values!r}",
                            hint=f"pass one for each of {rank} axes") from None
    if len(out) != rank or min(out, default=1) < 1:
        raise ArgumentError(f"expected {name} as {rank} numbers >= 1, got {out}",
                            hint="pass one per axis of the operand")
    return out


def resolve_padding(padding: Any, shape: Shape, extents: Shape,
                    strides: Shape) -> list[tuple[int, int]]:
    """Resolve a padding argument to (before, after) for each axis."""
    if padding == "VALID":
        return [(0, 0)] * len(shape)
    if padding in ("SAME", "SAME_LOWER"):
        out = []
        for n, r, s in zip(shape, extents, strides):
            total = max(0, (-(-n // s) - 1) * s + r - n)
            smaller = total // 2
            out.append((smaller, total - smaller) if padding == "SAME" else
                       (total - smaller, smaller))
        return out
    try:
        pairs = [(operator.index(lo), operator.index(hi)) for lo, hi in padding]
    except (TypeError, ValueError):
        pairs = []
    if len(pairs) != len(shape):
        raise ArgumentError(f"expected padding 'VALID', 'SAME', 'SAME_LOWER' or {len(shape)} pairs "
                            f"(before, after), got {padding!r}",
                            hint=suggestion(padding, ("VALID", "SAME", "SAME_LOWER"))
                            if isinstance(padding, str) else "")
    return pairs


def extract_windows(x: UOp, size: Shape, strides: Shape, dilation: Shape,
                    axes: Sequence[int] | None = None) -> UOp:
    """Return all windows of an array: its axes index them, new axes at the end their elements.

    ``axes``: the axes to take windows along; None means all.
    """
    rank = len(x.shape)
    tiled = [n == s and d == 1 for n, s, d in zip(size, strides, dilation)]
    window_shape = tuple([1 if cut else n for n, cut in zip(size, tiled)])
    x = build.expand(build.reshape(x, (*x.shape, *(1,) * len(window_shape))),
                     (*x.shape, *window_shape))
    for i, a in enumerate(range(rank) if axes is None else axes):
        x = _tile_axis(x, a, rank + i, size[i]) if tiled[i] else \
            build.unfold(x, a, rank + i, strides[i], dilation[i])
    return x


def _tile_axis(x: UOp, axis: int, offset: int, size: int) -> UOp:
    """Cut an axis into disjoint windows by reshapes; axis ``offset``, of length 1, receives their
    elements.
    """
    count = x.shape[axis] // size
    x = build.shrink(x, [(0, count * size if a == axis else n) for a, n in enumerate(x.shape)])
    shape = [n for a, n in enumerate(x.shape) if a != offset]
    x = build.reshape(x, (*shape[:axis], count, size, *shape[axis + 1:]))
    order = [a for a in range(len(x.shape)) if a != axis + 1]
    return build.permute(x, [*order[:offset], axis + 1, *order[offset:]])
