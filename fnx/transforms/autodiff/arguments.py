"""Arguments of a derivative: their float leaves, and the stand-ins for the others."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.abstract_values import FLOAT0
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.convert import non_array_hint
from fnx.core.array.pytree_registry import OPAQUE_TYPES, register_pytree_node
from fnx.core.ir import build, build_named_axes
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.errors import (
    ArgumentError,
    DTypeError,
    FnxError,
    GradError,
    PytreeError,
    ShapeError,
)
from fnx.core.support.record import Record


class Float0(np.ndarray[Any, Any]):
    """The gradient of an array of integers: a leaf to users. To transforms it is a pytree without
    leaves, so it passes through them.

    >>> Float0.like((3,)).dtype == FLOAT0
    True
    """

    @staticmethod
    def like(shape: Shape) -> Float0:
        """Return the gradient of integers of a shape."""
        return np.zeros(shape, FLOAT0).view(Float0)


register_pytree_node(Float0, lambda x: ((), x.shape), lambda shape, _: Float0.like(shape))
OPAQUE_TYPES.add(Float0)


class Layout(Record):
    """The tree ``((differentiated arguments), {})``, and the avals of its leaves.

    ``of_integers``: its integers are mapped, too, as those of a transpose of integers.
    """

    tree: tree.TreeDef
    avals: tuple[Aval, ...]
    of_integers: bool = False

    def is_mapped(self, aval: Aval) -> bool:
        """Whether a leaf of it has a tangent or cotangent."""
        return aval.dtype.is_inexact or self.of_integers

    def floats(self, leaves: Sequence[Array]) -> list[Any]:
        """Return the leaves, with an Aval in place of each that is traced (the floats)."""
        return [a if a.dtype.is_inexact else x for x, a in zip(leaves, self.avals)]

    def path(self, i: int) -> str:
        """Return the path of leaf i, for messages."""
        _, position, *rest = tree.paths(self.tree)[i]
        return f"args{position}{tree.keystr(tuple(rest))}"

    def fill(self, floats: Iterable[Array]) -> Any:
        """Return the tree with these float leaves, and float0 for the others."""
        remaining = iter(floats)
        return self.tree.unflatten(
            [next(remaining) if self.is_mapped(a) else Float0.like(a.shape) for a in self.avals])

    def gradients(self, grads: Iterable[Array]) -> tuple[Any, ...]:
        """Return the arguments tuple, built from the gradients of its float leaves."""
        args: tuple[tuple[Any, ...], Any] = self.fill(grads)
        return args[0]


def flatten_args(args: Sequence[Any], argnums: Sequence[int], allow_int: bool
                  ) -> tuple[list[Array], Layout]:
    """Return all leaves of the chosen arguments as Arrays, which must be floats unless
    ``allow_int``."""
    leaves, in_tree = tree.flatten((tuple([args[i] for i in argnums]), {}))

    def where(i: int) -> str:
        _, position, *rest = tree.paths(in_tree)[i]
        return f"args[{argnums[position.idx]}]{tree.keystr(tuple(rest))}"

    arrays = [_leaf(x, where, i, allow_int) for i, x in enumerate(leaves)]
    return arrays, Layout(in_tree, tuple([x._aval for x in arrays]))


def _leaf(x: Any, where: Callable[[int], str], i: int, allow_int: bool) -> Array:
    try:
        array = asarray(x)
    except FnxError as e:
        raise GradError(f"expected a float array as differentiated argument {where(i)}, got "
                        f"{type(x).__name__}{f' {x!r}' if type(x) is str else ''}",
                        hint=non_array_hint(x, where(i), "choose the arguments to differentiate "
                                            "with argnums", e)) from e
    if not array._dtype.is_inexact and not allow_int:
        raise GradError(f"expected a float array as differentiated argument {where(i)}, got "
                        f"{array._aval}",
                        hint=(f"write {float(x)}" if type(x) is int else
                              "convert it with .astype(float32)") +
                        ", choose other arguments with argnums, or pass allow_int=True")
    return array


def check_like(x: Any, aval: Aval, what: str, of: str) -> UOp:
    """Return ``what``, a tangent or a cotangent, as a node, checked to match the aval of ``of``."""
    shape, dtype, _ = aval
    array = asarray(x)
    if array.shape != shape:
        raise ShapeError(f"expected {what} of shape {shape}, got {array.shape}",
                         hint=f"pass an array with one element for each element of {of}")
    if array._dtype is not dtype and not (array.weak and array._dtype.is_inexact):
        raise DTypeError(f"expected {what} of {dtype}, got {array._dtype}",
                         hint=f"convert it with .astype({dtype})")
    return build.cast(array._node, dtype)


def is_no_derivative(x: Any) -> bool:
    """Whether x stands for the tangent or cotangent of an integer: None, or float0."""
    return x is None or getattr(x, "dtype", None) == FLOAT0


def resolve_argnums(argnums: int | Sequence[int], n: int, kind: str, name: str) -> list[int]:
    """Return the positional arguments, of ``n``, to differentiate with respect to."""
    out: list[int] = []
    for number in argnums if isinstance(argnums, Sequence) else (argnums,):
        try:
            i = operator.index(number)
        except TypeError:
            raise ArgumentError(f"{kind} of {name}: expected an integer, or several, as argnums; "
                                f"got {argnums!r}", hint="argument positions start at 0") from None
        if not -n <= i < n:
            raise ArgumentError(f"{kind} of {name}: expected argnums among {n} positional "
                                f"arguments, got {argnums}",
                                hint=f"positions start at 0, so the last one is {n - 1}; an "
                                     "argument that is passed by name has none" if n else
                                     "pass an argument by position, not by name")
        if i % n in out:
            raise ArgumentError(f"{kind} of {name}: expected argnums that differ, got {argnums} "
                                f"of {n} arguments", hint="name each argument once")
        out.append(i % n)
    return out


def fix_others(f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any],
               argnums: Sequence[int]) -> Callable[..., Any]:
    """Return f as a function of the chosen arguments, with the others fixed.

    >>> fix_others(pow, (2, 3, 5), {}, [1])(4)
    1
    """
    fixed = args

    def g(*args: Any) -> Any:  # errors call its arguments by this name
        filled = list(fixed)
        for i, x in zip(argnums, args):
            filled[i] = x
        return f(*filled, **kwargs)
    return g


def with_summed_cotangents(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return f, with cotangents of arguments and results that vary along the axes of a
    ``shard_map`` exactly where the values do: others are summed, or are the same for each shard."""
    axes = scope.summing_axes()
    if not axes:
        return f

    def identity(x: Any) -> Any:
        if not isinstance(x, Array) or not x._dtype.is_inexact:
            return x
        node = x._node
        for axis in axes:
            node = build_named_axes.pvary_like(node, node, axis)
        return Array(node, x.weak)

    def g(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree.map(identity, (args, kwargs))
        return tree.map(identity, f(*args, **kwargs))
    return g


def check_inputs(kind: str, holomorphic: bool, layout: Layout, only_real: bool = False) -> None:
    """Check that the arguments to differentiate fit ``holomorphic``: complex if it is set; else
    real if the transform asks for that.

    Raises:
        GradError: they do not.
    """
    for i, aval in enumerate(layout.avals):
        if holomorphic and not aval.dtype.is_complex:
            raise GradError(f"{kind} with holomorphic=True: expected complex arguments, got {aval} "
                            f"at {layout.path(i)}",
                            hint="convert it with .astype(complex64), or leave out holomorphic")
        if only_real and not holomorphic and aval.dtype.is_complex:
            raise GradError(f"{kind}: expected real arguments, got {aval} at {layout.path(i)}",
                            hint="pass holomorphic=True if the function is holomorphic, else "
                                 "differentiate with respect to the real and imaginary parts")


def check_outputs(kind: str, holomorphic: bool, outs: Sequence[Array]) -> None:
    """Check that results to differentiate fit ``holomorphic``: complex if it is set, else real.

    Raises:
        GradError: they do not.
    """
    for out in outs:
        if holomorphic and not out._dtype.is_complex:
            raise GradError(f"{kind} with holomorphic=True: expected complex results, got "
                            f"{out._aval}", hint="leave out holomorphic")
        if not holomorphic and out._dtype.is_complex:
            raise GradError(f"{kind}: expected real results, got {out._aval}",
                            hint="return a real number, such as abs(z) or z.real, or pass "
                                 "holomorphic=True if the function is holomorphic")


def tangent_nodes(layout: Layout, tangents: Sequence[Any]) -> list[UOp]:
    """Return the tangents of the float leaves of arguments, checked against these."""
    try:
        leaves = tree.flatten_up_to(layout.tree, (tuple(tangents), {}))
    except PytreeError:
        raise PytreeError("expected tangents of the structure of the primals, "
                          f"{layout.tree.subtrees[0]}; got {tree.structure(tuple(tangents))}",
                          hint="pass a tangent for each array") from None
    out = []
    for i, (x, aval) in enumerate(zip(leaves, layout.avals)):
        if not aval.dtype.is_inexact:
            if not is_no_derivative(x):
                raise DTypeError(f"expected None or float0 as the tangent at {layout.path(i)}, "
                                 f"which is {aval}, got {type(x).__name__}",
                                 hint="integers and bools have no derivative")
            continue
        if tree.structure(x) != tree.LEAF or is_no_derivative(x):
            raise PytreeError(f"expected a tangent for {layout.path(i)}, which is {aval}, got "
                              f"{'float0' if x is not None and is_no_derivative(x) else repr(x)}",
                              hint="pass zeros where the tangent is zero")
        out.append(check_like(x, aval, f"a tangent at {layout.path(i)}", "the primal"))
    return out
