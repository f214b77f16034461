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


class SymbolicScope:
    """The bounds of dimensions by name: ``("b >= 2", "t <= 64")``.

    Args:
        constraints: bounds of single dimensions.

    Raises:
        ArgumentError: another constraint.

    >>> SymbolicScope(("b >= 2",)).dimension("b").bounds[0]
    2
    """

    def __init__(self, constraints: Sequence[str] = ()) -> None:
        self._bounds: dict[str, tuple[int, int]] = {}
        for text in constraints:
            match = _BOUND.fullmatch(text)
            if match is None:
                raise ArgumentError(f"expected constraints such as 't >= 2' and 't <= 64', got "
                                    f"{text!r}", hint="write a multiple in the shape: '8*t'")
            name, order, number = match[1], match[2], int(match[3])
            low, high = self._bounds.get(name, (1, MAX_LENGTH))
            if order[0] == ">":
                low = max(low, number + (order == ">"))
            else:
                high = min(high, number - (order == "<"))
            self._bounds[name] = low, high

    def dimension(self, name: str) -> Dim:
        """Return the dimension of a name.

        Args:
            name: of the dimension.

        Returns:
            A Dim with the bounds of this scope.
        """
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
