"""Selection among arrays, scattered writes, and functions applied along axes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

from fnx.core.array import arguments, axes, tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_operands
from fnx.core.ir import build
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.numpy.base import (
    broadcast_arrays,
    broadcast_to,
    clip,
    expand_dims,
    moveaxis,
    ravel,
    remainder,
    reshape,
    stack,
    take_along_axis,
    where,
)
from fnx.numpy.manipulation import require_not_inplace
from fnx.transforms.vmap import vmap

__all__ = [
    "apply_along_axis", "apply_over_axes", "choose", "piecewise", "place", "put", "put_along_axis",
    "select",
]

_docstr = DocTemplate(
    a="an Array or array-like.", arr="an Array or array-like.",
    inplace="must be False: arrays are immutable, and the result is a new one.",
    returns="An Array of the shape and dtype of the first argument.", axis="the axis.",
    condlist="a sequence of bool Arrays, one condition each.",
    raises=("ArgumentError: ``inplace`` is not False, or the mode is unknown.",))


@_docstr("An Array of the common broadcast shape.",
         a="the index of the choice at each position: integers.",
         choices="a sequence of Arrays whose shapes broadcast.",
         mode='what out-of-bounds indices do: "raise" (values must be known), "wrap" or "clip".',
         raises=('ArgumentError: there are no choices, or mode is "raise" and an index is out '
                 "of bounds.",))
def choose(a: ArrayLike, choices: Sequence[ArrayLike], out: None = None,
           mode: Literal["raise", "wrap", "clip"] = "raise") -> Array:
    """Select, at each position, an element of the choice that an index names.

    >>> jnp.choose(jnp.asarray([0, 1]), [jnp.asarray([1, 2]), 10])
    Array([ 1, 10], dtype=int32)
    """
    arguments.check_choice("mode", mode, ("raise", "wrap", "clip"))
    index, arrays = asarray(a), [asarray(c) for c in choices]
    if not arrays:
        raise ArgumentError("expected at least one choice, got none")
    if index._dtype.is_float:
        raise DTypeError(f"expected integer indices of the choices, got {index._dtype}")
    if mode == "raise" and index.size:
        lowest, highest = int(index.min()), int(index.max())
        if not 0 <= lowest <= highest < len(arrays):
            raise ArgumentError(f"expected indices from 0 to {len(arrays) - 1}, got {lowest} to "
                                f"{highest}",
                                hint='use mode="clip" or "wrap"')
    if mode == "wrap":
        index = remainder(index, len(arrays))
    index, *stacked = broadcast_arrays(clip(index, 0, len(arrays) - 1), *arrays)
    return Array(take_along_axis(stack(stacked), index[None], 0)[0]._node)


@_docstr("An Array of the common broadcast shape.", choicelist="the values for each condition.",
         default="the value where no condition holds.",
         raises=("ArgumentError: there are no conditions, or the number of choices differs.",
                 "DTypeError: a condition is not bool."))
def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike],
           default: ArrayLike = 0) -> Array:
    """Return the value of the first condition that holds, at each position.

    >>> x = jnp.arange(4)
    >>> jnp.select([x < 1, x < 3], [-x, 10 * x])
    Array([ 0, 10, 20,  0], dtype=int32)
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise ArgumentError(f"expected as many choices as conditions, at least one; got "
                            f"{len(choicelist)} and {len(condlist)}")
    nodes, weak = promote_operands("any", "select", [*map(asarray, choicelist), default],
                                   broadcast=False)
    *choices, out = [Array(node, weak) for node in nodes]
    for condition, choice in zip(reversed(condlist), reversed(choices)):
        out = where(condition, choice, out)
    return out


@_docstr(x="an Array or array-like of any shape.",
         funclist="one function of x (or number) per condition, and optionally a default.",
         args="passed on to the functions.", kw="passed on to the functions.",
         raises=("ArgumentError: the number of functions is neither that of conditions nor one "
                 "more.",))
def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """Evaluate a piecewise function. Where several conditions hold, the last one wins.

    >>> x = jnp.asarray([-1.0, 2.0])
    >>> jnp.piecewise(x, [x < 0, x >= 0], [lambda x: -x, 10.0])
    Array([ 1., 10.], dtype=float32)
    """
    array = asarray(x)
    tests = _condition_list(condlist, len(funclist))
    if len(funclist) not in (len(tests), len(tests) + 1):
        raise ArgumentError(f"expected {len(tests)} or {len(tests) + 1} functions, got "
                            f"{len(funclist)}")
    otherwise = funclist[-1] if len(funclist) > len(tests) else 0

    def value(f: Any) -> Array:
        result = f(array, *args, **kw) if callable(f) else f
        return broadcast_to(asarray(result).astype(array.dtype), array.shape)
    out = value(otherwise)
    for condition, f in zip(tests, funclist):
        out = where(condition, value(f), out)
    return out


def _condition_list(condlist: Any, functions: int) -> list[Any]:
    """Return the list of conditions: a sequence, the rows of an array, or one array by itself."""
    if isinstance(condlist, list | tuple):
        return list(condlist)
    rows = asarray(condlist)
    if rows.ndim and rows.shape[0] in (functions, functions - 1):
        return [rows[i] for i in range(rows.shape[0])]
    return [condlist]


# ---- scattered writes --------------------------------------------------------------------------


@_docstr(mask="the positions to write; as many elements as arr.",
         vals="the values, written in order and repeated as needed.")
def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """Return a copy with values written where a mask is true.

    >>> jnp.place(jnp.zeros(3), jnp.asarray([True, False, True]), jnp.ones(1), inplace=False)
    Array([1., 0., 1.], dtype=float32)
    """
    require_not_inplace("place", inplace)
    x, flat, values = asarray(arr), ravel(mask).astype("bool"), ravel(vals)
    if flat.size != x.size or not values.size:
        raise ShapeError(f"expected a mask of {x.size} elements and at least one value, got "
                         f"{flat.size} and {values.size}")
    value_index = remainder(flat.astype("int32").cumsum() - 1, values.size)
    return where(flat, values[value_index].astype(x.dtype), ravel(x)).reshape(x.shape)


@_docstr(ind="row-major flat indices.", v="the values, written in order and repeated as needed.",
         mode='how out-of-bounds indices write: "clip" (default) or "wrap".')
def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike,
        mode: Literal["clip", "wrap"] | None = None, *, inplace: bool = True) -> Array:
    """Return a copy with values written at flat indices.

    Negative indices count from the end, and those out of bounds write the nearest element; in mode
    "clip" negative ones write the first element, as in NumPy, and "wrap" takes remainders.

    >>> jnp.put(jnp.zeros(3), jnp.asarray([0, 2]), jnp.ones(1), inplace=False)
    Array([1., 0., 1.], dtype=float32)
    """
    require_not_inplace("put", inplace)
    arguments.check_choice("mode", mode, ("clip", "wrap", None))
    x, flat_index, values = asarray(a), ravel(ind), ravel(v)
    if not x.size or not flat_index.size or not values.size:
        return x
    repeated = values[Array(build.iota(flat_index.size)) % values.size]
    if mode == "wrap":
        target = remainder(flat_index, x.size)
    else:
        counted = flat_index if mode == "clip" else \
            where(flat_index < 0, flat_index + x.size, flat_index)
        target = clip(counted, 0, x.size - 1)
    return ravel(x).at[target].set(repeated).reshape(x.shape)


@_docstr(indices="integers with as many axes as arr.",
         values="values that broadcast with the indices.",
         axis="the axis; None flattens arr first.",
         mode='how out-of-bounds indices write: "drop" (default) or "clip".')
def put_along_axis(arr: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int | None,
                   inplace: bool = True, *, mode: Literal["drop", "clip", "fill"] | None = None
                   ) -> Array:
    """Return a copy with values written at the positions ``take_along_axis`` would read.

    >>> x = jnp.zeros((2, 2))
    >>> jnp.put_along_axis(x, jnp.asarray([[1], [0]]), 5.0, 1, inplace=False)
    Array([[0., 5.],
           [5., 0.]], dtype=float32)
    """
    require_not_inplace("put_along_axis", inplace)
    arguments.check_choice("mode", mode, ("drop", "clip", "fill", None))
    x, index = asarray(arr), asarray(indices)
    flat = axis is None
    array, ax = (ravel(x), 0) if axis is None else (x, axes.normalize_axis(axis, x.ndim))
    if array.ndim != index.ndim:
        raise ShapeError(f"expected indices of {array.ndim} axes, got shape {index.shape}")
    shape = tuple([n if i == ax else max(n, m) for i, (m, n) in
                   enumerate(zip(array.shape, index.shape))])
    entries: list[Any] = []
    for i, n in enumerate(shape):
        step = build.reshape(build.iota(n), tuple([n if j == i else 1 for j in range(len(shape))]))
        entries.append(index if i == ax else Array(step))
    out = array.at[tuple(entries)].set(values, mode=mode)
    return reshape(out, x.shape) if flat else out


# ---- functions along axes -----------------------------------------------------------------------


@_docstr("The results of the function, with their axes in place of ``axis``.",
         func1d="a function of a vector, and of ``args`` and ``kwargs``.",
         args="passed on to the function.", kwargs="passed on to the function.",
         raises=("AxisError: the axis is out of range.",))
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any,
                     **kwargs: Any) -> Any:
    """Apply a function to each 1-D slice along an axis.

    >>> jnp.apply_along_axis(lambda v: v[::-1], 0, jnp.asarray([[1, 2], [3, 4]]))
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    x = asarray(arr)
    ax = axes.normalize_axis(axis, x.ndim)
    f: Callable[..., Any] = functools.partial(lambda v: func1d(v, *args, **kwargs))
    for _ in range(x.ndim - 1):
        f = vmap(f)
    out = f(moveaxis(x, ax, -1))

    def restore_axes(y: Any) -> Array:
        result = asarray(y)
        inner = result.ndim - (x.ndim - 1)
        return moveaxis(result, tuple(range(x.ndim - 1, result.ndim)), tuple(range(ax, ax + inner)))
    return tree.map(restore_axes, out)


@_docstr("An Array.", func="a function of (array, axis).", axes="the axis or axes.",
         raises=("ShapeError: the function changes the number of axes by more than one.",))
def apply_over_axes(func: Callable[[Array, int], ArrayLike], a: ArrayLike, axes: Sequence[int]
                    ) -> Array:
    """Apply a function of an array and an axis, for each axis in turn.

    >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 3)), [0, 1])
    Array([[6.]], dtype=float32)
    """
    x = asarray(a)
    for axis in [axes] if isinstance(axes, int) else axes:
        result = asarray(func(x, axis))
        if result.ndim == x.ndim - 1:
            result = expand_dims(result, axis)
        if result.ndim != x.ndim:
            raise ShapeError(f"expected {x.ndim} axes, got shape {result.shape}",
                             hint="the function must keep the axis or reduce over it")
        x = result
    return x
