"""Functions of ``fnx.numpy`` that choose among arrays, write by places, and map along axes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

from fnx.core import build
from fnx.core.array import arguments, axes, tree
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.documented import Family
from fnx.core.array.promotion import promoted
from fnx.core.array.public import asarray
from fnx.core.errors import ArgumentError, DTypeError, ShapeError
from fnx.numpy.arranging import immutable
from fnx.numpy.basic import (
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
from fnx.transforms.vmap import vmap

__all__ = [
    "apply_along_axis", "apply_over_axes", "choose", "piecewise", "place", "put",
    "put_along_axis", "select",
]

_family = Family(
    a="an Array or what ``asarray`` takes.", arr="an Array or what ``asarray`` takes.",
    inplace="False: arrays are immutable, so the result is another one.",
    returns="An Array of the shape and dtype of the first argument.",
    axis="along which axis.", condlist="bool Arrays; the first that is true counts.",
    raises=("ArgumentError: ``inplace`` is not False, or another mode.",))


@_family("An Array of the shape that all broadcast to.", a="which choice, at each place.",
         choices="Arrays of shapes that broadcast.",
         mode='of numbers outside: "raise" (their values are known), "wrap" or "clip".',
         raises=("ArgumentError: no choices, or a number outside where the mode is \"raise\".",))
def choose(a: ArrayLike, choices: Sequence[ArrayLike], out: None = None,
           mode: Literal["raise", "wrap", "clip"] = "raise") -> Array:
    """The element of the choice that a number says, at each place.

    >>> jnp.choose(jnp.asarray([0, 1]), [jnp.asarray([1, 2]), 10])
    Array([ 1, 10], dtype=int32)
    """
    arguments.no_out(out)
    arguments.one_of("mode", mode, ("raise", "wrap", "clip"))
    which, given = asarray(a), [asarray(c) for c in choices]
    if not given:
        raise ArgumentError("expected at least one choice, got none")
    if which._dtype.is_float:
        raise DTypeError(f"expected integers that say which choice, got {which._dtype}")
    if mode == "raise" and which.size:
        low, high = int(which.min()), int(which.max())
        if not 0 <= low <= high < len(given):
            raise ArgumentError(f"expected numbers from 0 to {len(given) - 1}, got {low} to "
                                f"{high}", hint='use mode="clip" or "wrap"')
    if mode == "wrap":
        which = remainder(which, len(given))
    which, *wide = broadcast_arrays(clip(which, 0, len(given) - 1), *given)
    return Array(take_along_axis(stack(wide), which[None], 0)[0]._node)


@_family("An Array of the shape that all broadcast to.", choicelist="a value for each condition.",
         default="where no condition holds.",
         raises=("ArgumentError: not as many choices as conditions, or none.",
                 "DTypeError: conditions that are not bool."))
def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike],
           default: ArrayLike = 0) -> Array:
    """The value of the first condition that holds.

    >>> x = jnp.arange(4)
    >>> jnp.select([x < 1, x < 3], [-x, 10 * x])
    Array([ 0, 10, 20,  0], dtype=int32)
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise ArgumentError(f"expected as many choices as conditions, at least one; got "
                            f"{len(choicelist)} and {len(condlist)}")
    nodes, weak = promoted("any", "select", [*map(asarray, choicelist), default], broadcast=False)
    *choices, out = [Array(node, weak) for node in nodes]
    for test, choice in zip(reversed(condlist), reversed(choices)):
        out = where(test, choice, out)
    return out


@_family(x="of any shape.", funclist="functions of x, or numbers; one more is for no condition.",
         args="handed to the functions.", kw="handed to the functions.",
         raises=("ArgumentError: not as many functions as conditions, or one more.",))
def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """The function whose condition holds; the last one that does counts.

    >>> x = jnp.asarray([-1.0, 2.0])
    >>> jnp.piecewise(x, [x < 0, x >= 0], [lambda x: -x, 10.0])
    Array([ 1., 10.], dtype=float32)
    """
    array = asarray(x)
    tests = _tests(condlist, len(funclist))
    if len(funclist) not in (len(tests), len(tests) + 1):
        raise ArgumentError(f"expected {len(tests)} or {len(tests) + 1} functions, got "
                            f"{len(funclist)}")
    otherwise = funclist[-1] if len(funclist) > len(tests) else 0

    def value(f: Any) -> Array:
        made = f(array, *args, **kw) if callable(f) else f
        return broadcast_to(asarray(made).astype(array.dtype), array.shape)
    out = value(otherwise)
    for test, f in zip(tests, funclist):
        out = where(test, value(f), out)
    return out


def _tests(condlist: Any, functions: int) -> list[Any]:
    """Conditions: a list of them, the rows of an array, or an array that is the only one."""
    if isinstance(condlist, list | tuple):
        return list(condlist)
    rows = asarray(condlist)
    if rows.ndim and rows.shape[0] in (functions, functions - 1):
        return [rows[i] for i in range(rows.shape[0])]
    return [condlist]


# ---- writing by places --------------------------------------------------------------------------


@_family(mask="where to write; as many elements as arr.", vals="written in order, again and again.")
def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """A copy with values where a mask holds.

    >>> jnp.place(jnp.zeros(3), jnp.asarray([True, False, True]), jnp.ones(1), inplace=False)
    Array([1., 0., 1.], dtype=float32)
    """
    immutable("place", inplace)
    x, test, values = asarray(arr), ravel(mask).astype("bool"), ravel(vals)
    if test.size != x.size or not values.size:
        raise ShapeError(f"expected a mask of {x.size} elements and some values, got {test.size} "
                         f"and {values.size}")
    number = remainder(test.astype("int32").cumsum() - 1, values.size)
    return where(test, values[number].astype(x.dtype), ravel(x)).reshape(x.shape)


@_family(ind="places, counted in row-major order.", v="written in order, again and again.",
         mode='of places outside: "clip" (default) or "wrap".')
def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike,
        mode: Literal["clip", "wrap"] | None = None, *, inplace: bool = True) -> Array:
    """A copy with values at some places.

    >>> jnp.put(jnp.zeros(3), jnp.asarray([0, 2]), jnp.ones(1), inplace=False)
    Array([1., 0., 1.], dtype=float32)
    """
    immutable("put", inplace)
    arguments.one_of("mode", mode, ("clip", "wrap", None))
    x, places, values = asarray(a), ravel(ind), ravel(v)
    if not places.size or not values.size:
        return x
    chosen = values[Array(build.iota(places.size)) % values.size]
    at = remainder(places, x.size) if mode == "wrap" else \
        clip(where(places < 0, places + x.size, places), 0, x.size - 1)
    return ravel(x).at[at].set(chosen).reshape(x.shape)


@_family(indices="integers of as many axes as arr.", values="what broadcasts with the indices.",
         axis="along which axis; None flattens arr.",
         mode='of indices outside: "drop" (default) or "clip".')
def put_along_axis(arr: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int | None,
                   inplace: bool = True, *, mode: Literal["drop", "clip", "fill"] | None = None
                   ) -> Array:
    """A copy with values where ``take_along_axis`` would read.

    >>> x = jnp.zeros((2, 2))
    >>> jnp.put_along_axis(x, jnp.asarray([[1], [0]]), 5.0, 1, inplace=False)
    Array([[0., 5.],
           [5., 0.]], dtype=float32)
    """
    immutable("put_along_axis", inplace)
    arguments.one_of("mode", mode, ("drop", "clip", "fill", None))
    x, index = asarray(arr), asarray(indices)
    flat = axis is None
    line, at = (ravel(x), 0) if axis is None else (x, axes.one(axis, x.ndim))
    if line.ndim != index.ndim:
        raise ShapeError(f"expected indices of {line.ndim} axes, got shape {index.shape}")
    shape = tuple([n if i == at else max(n, m) for i, (m, n) in
                   enumerate(zip(line.shape, index.shape))])
    entries: list[Any] = []
    for i, n in enumerate(shape):
        step = build.reshape(build.iota(n), tuple([n if j == i else 1 for j in range(len(shape))]))
        entries.append(index if i == at else Array(step))
    out = line.at[tuple(entries)].set(values, mode=mode)
    return reshape(out, x.shape) if flat else out


# ---- functions along axes -----------------------------------------------------------------------


@_family("What the function returns, its axes in place of ``axis``.",
         func1d="of a vector (and ``args`` and ``kwargs``).", args="handed to the function.",
         kwargs="handed to the function.", raises=("AxisError: an axis outside of the array.",))
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any,
                     **kwargs: Any) -> Any:
    """A function of each vector along an axis.

    >>> jnp.apply_along_axis(lambda v: v[::-1], 0, jnp.asarray([[1, 2], [3, 4]]))
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    x = asarray(arr)
    at = axes.one(axis, x.ndim)
    f: Callable[..., Any] = functools.partial(lambda v: func1d(v, *args, **kwargs))
    for _ in range(x.ndim - 1):
        f = vmap(f)
    out = f(moveaxis(x, at, -1))

    def back(y: Any) -> Array:
        made = asarray(y)
        inner = made.ndim - (x.ndim - 1)
        return moveaxis(made, tuple(range(x.ndim - 1, made.ndim)), tuple(range(at, at + inner)))
    return tree.map(back, out)


@_family("An Array.", func="of (array, axis).", axes="an axis or several.",
         raises=("ShapeError: the function changes the number of axes by more than one.",))
def apply_over_axes(func: Callable[[Array, int], ArrayLike], a: ArrayLike, axes: Sequence[int]
                    ) -> Array:
    """A function of an array and an axis, for one axis after the other.

    >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 3)), [0, 1])
    Array([[6.]], dtype=float32)
    """
    x = asarray(a)
    for axis in [axes] if isinstance(axes, int) else axes:
        made = asarray(func(x, axis))
        if made.ndim == x.ndim - 1:
            made = expand_dims(made, axis)
        if made.ndim != x.ndim:
            raise ShapeError(f"expected {x.ndim} axes, got shape {made.shape}",
                             hint="the function keeps the axis, or takes it away")
        x = made
    return x
