"""Shapes of exported functions with dimensions, under the names of ``jax.export``.

>>> symbolic_shape("b, 2*t, 8", constraints=("t <= 64",))
(b, 2*t, 8)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.rewriting.dimensions import MAX_LENGTH, Dim, dim
from fnx.core.rewriting.lengths import parse
from fnx.core.support.errors import ArgumentError

__all__ = ["SymbolicScope", "is_symbolic_dim", "symbolic_args_specs", "symbolic_shape"]

_BOUND = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*(\d+)\s*")
_EQUALITY = re.compile(r"\s*([A-Za-z_]\w*)\s*==(.*)")


class SymbolicScope:
    """The bounds of dimensions by name, ``("b >= 2", "t <= 64")``, and those that are determined by
    others, ``("t == 2*b",)``.

    Args:
        constraints: bounds of single dimensions, and dimensions that are equal to a length.

    Raises:
        ArgumentError: another constraint.

    >>> scope = SymbolicScope(("b >= 2", "t == 2*b"))
    >>> scope.dimension("t"), scope.dimension("t").bounds[0]
    (2*b, 4)
    """

    def __init__(self, constraints: Sequence[str] = ()) -> None:
        self._bounds: dict[str, tuple[int, int]] = {}
        self._equal: dict[str, str] = {}
        for text in constraints:
            equality = _EQUALITY.fullmatch(text)
            if equality is not None and not re.search(rf"\b{equality[1]}\b", equality[2]):
                self._equal[equality[1]] = equality[2]
                continue
            match = _BOUND.fullmatch(text)
            if match is None:
                raise ArgumentError(f"expected constraints such as 't >= 2', 't <= 64' and "
                                    f"'t == 2*b', got {text!r}",
                                    hint="write a multiple in the shape: '8*t'")
            name, order, number = match[1], match[2], int(match[3])
            low, high = self._bounds.get(name, (1, MAX_LENGTH))
            if order[0] == ">":
                low = max(low, number + (order == ">"))
            else:
                high = min(high, number - (order == "<"))
            self._bounds[name] = low, high
        for name, length in self._equal.items():
            names = {name, *re.findall(r"[A-Za-z_]\w*", length)}
            if name in self._bounds or len(names & set(self._equal)) > 1:
                raise ArgumentError(f"expected one constraint for {name}, which is"
                                    f"{length.rstrip()}, and none that makes another dimension of "
                                    f"it equal to a length; got {list(constraints)}",
                                    hint="bound the dimensions on the right, and write one "
                                         "equality in terms of them")

    def dimension(self, name: str) -> Any:
        """Return the dimension of a name.

        Args:
            name: of the dimension.

        Returns:
            A Dim with the bounds of this scope, or the length that it is equal to.
        """
        if name in self._equal:
            return parse(self._equal[name], self.dimension)
        return dim(name, *self._bounds.get(name, (1, MAX_LENGTH)))


def symbolic_shape(shape_spec: str | None, *, constraints: Sequence[str] = (),
                   scope: SymbolicScope | None = None, like: Sequence[Any] | None = None
                   ) -> tuple[Any, ...]:
    """Return a shape with dimensions, for ``ShapeDtypeStruct``.

    Args:
        shape_spec: lengths such as ``"b, 2*t, 8"``; ``_`` and ``...`` stand for those of ``like``.
        constraints: bounds of the dimensions, such as ``"t <= 64"``.
        scope: the bounds, in place of constraints.
        like: a shape to complete from.

    Returns:
        A tuple of ints and dimensions.

    Raises:
        ArgumentError: the text is no shape.

    >>> symbolic_shape("b, _", like=(4, 3))
    (b, 3)
    """
    names = scope or SymbolicScope(constraints)
    parts = _split((shape_spec or "...").strip().removeprefix("(").removesuffix(")"))
    if "..." in parts:
        if like is None or parts.count("...") > 1:
            raise ArgumentError(f"expected one ... and a shape to complete, got {shape_spec!r}",
                                hint="pass like=shape")
        at = parts.index("...")
        parts[at:at + 1] = ["_"] * (len(like) - len(parts) + 1)
    if like is not None and len(parts) != len(like) or like is None and "_" in parts:
        raise ArgumentError(f"expected as many lengths as in {like}, got {shape_spec!r}")
    return tuple([like[i] if part == "_" and like is not None else parse(part, names.dimension)
                  for i, part in enumerate(parts)])


def _split(text: str) -> list[str]:
    """Split at the commas outside of parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def symbolic_args_specs(args: Any, shapes_specs: Any, constraints: Sequence[str] = (),
                        scope: SymbolicScope | None = None) -> Any:
    """Return ``ShapeDtypeStruct``s with dimensions for a tree of arguments.

    Args:
        args: arrays, or what has shape and dtype.
        shapes_specs: texts as of ``symbolic_shape``, in a tree that is a prefix of ``args``.
        constraints: bounds of the dimensions.
        scope: the bounds, in place of constraints.

    Returns:
        The tree of structs.

    >>> import fnx.numpy as jnp
    >>> symbolic_args_specs((jnp.ones((4, 3)),), "b, ...")
    (ShapeDtypeStruct(shape=(b, 3), dtype=float32),)
    """
    names = scope or SymbolicScope(constraints)
    leaves, treedef = tree.flatten(args)
    specs = tree.broadcast(shapes_specs, args, is_leaf=lambda x: x is None)
    return treedef.unflatten([
        ShapeDtypeStruct(symbolic_shape(spec, scope=names, like=x.shape), x.dtype)
        for x, spec in zip(leaves, tree.leaves(specs, is_leaf=lambda x: x is None), strict=True)])


def is_symbolic_dim(p: Any) -> bool:
    """Return whether a length is a dimension.

    Args:
        p: a length.

    Returns:
        Whether only a call knows it.

    >>> is_symbolic_dim(3), is_symbolic_dim(dim("b"))
    (False, True)
    """
    return isinstance(p, Dim)
