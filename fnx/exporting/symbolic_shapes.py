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
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.dimensions import MAX_LENGTH, Dim, dim, length_of, variables
from fnx.core.rewriting.lengths import parse
from fnx.core.support.errors import ArgumentError

__all__ = ["SymbolicScope", "is_symbolic_dim", "symbolic_args_specs", "symbolic_shape"]

# t >= 2, floordiv(t, 4) >= 2
_BOUND = re.compile(r"\s*(floordiv\()?\s*([A-Za-z_]\w*)\s*(?(1),\s*(\d+)\s*\)|())\s*"
                    r"(<=|>=|<|>)\s*(\d+)\s*")
_MULTIPLE = re.compile(r"\s*mod\(\s*([A-Za-z_]\w*)\s*,\s*(\d+)\s*\)\s*==\s*0\s*")
_EQUALITY = re.compile(r"\s*([A-Za-z_]\w*)\s*==(.*)")


class SymbolicScope:
    """Dimensions by name, and what is known of them.

    A bound of one dimension is a bound. By every other constraint one dimension becomes an
    expression of others, which decides comparisons as it stands:

        t == 2*b          t is 2*b
        t >= b            t is b + t_minus_b, of which the second is at least 0
        mod(t, 8) == 0    t is 8*t_by_8

    Args:
        constraints: such texts, with ``==``, ``>=`` and ``<=``.

    Raises:
        ArgumentError: another constraint.

    >>> scope = SymbolicScope(("b >= 2", "t == 2*b"))
    >>> scope.dimension("t"), scope.dimension("t").bounds[0]
    (2*b, 4)
    >>> a, b = symbolic_shape("a, b", constraints=("a >= b",))
    >>> a >= b, a - b >= 0
    (True, True)
    """

    def __init__(self, constraints: Sequence[str] = ()) -> None:
        self._bounds: dict[str, tuple[int, int]] = {}
        self._values: dict[str, Any] = {}
        self._constraints = constraints
        others = [text for text in constraints if not self._bound(text)]
        for text in others:
            if not (self._equality(text) or self._multiple(text) or self._inequality(text)):
                raise ArgumentError(f"expected constraints such as 't >= 2', 't <= 64', 't >= b' "
                                    f"and 't == 2*b', got {text!r}",
                                    hint="compare two lengths that are linear in a dimension which "
                                         "no other constraint determines")

    def _bound(self, text: str) -> bool:
        """Take a bound of one dimension, if a text is one."""
        match = _BOUND.fullmatch(text)
        if match is None:
            return False
        quotient, name, order, number = match[1], match[2], match[5], int(match[6])
        divisor = int(match[3]) if quotient else 1
        low, high = self._bounds.get(name, (1, MAX_LENGTH))
        if order[0] == ">":
            low = max(low, (number + (order == ">")) * divisor)
        else:
            high = min(high, (number + (order == "<=")) * divisor - 1)
        if low > high:
            raise ArgumentError(f"expected bounds of {name} that a length has, got {text!r} beside "
                                f"the others: {low} > {high}")
        self._bounds[name] = low, high
        return True

    def _equality(self, text: str) -> bool:
        match = _EQUALITY.fullmatch(text)
        if match is None or re.search(rf"\b{match[1]}\b", match[2]):
            return False
        if match[1] in self._bounds or match[1] in self._values:
            raise ArgumentError(f"expected one constraint for {match[1]}, which is"
                                f"{match[2].rstrip()}; got {list(self._constraints)}",
                                hint="bound the dimensions on the right")
        self._determine(match[1], parse(match[2], self.dimension))
        return True

    def _multiple(self, text: str) -> bool:
        match = _MULTIPLE.fullmatch(text)
        if match is None or match[1] in self._values:
            return False
        name, divisor = match[1], int(match[2])
        low, high = self._bounds.get(name, (1, MAX_LENGTH))
        self._determine(name, divisor * dim(f"{name}_by_{divisor}", -(-low // divisor),
                                            high // divisor))
        return True

    def _inequality(self, text: str) -> bool:
        """Determine the first dimension of a difference that is not negative in which it is linear.
        """
        left, order, right = re.split(r"\s*(>=|<=)\s*", text.strip(), maxsplit=1) \
            if re.search(">=|<=", text) else ("", "", "")
        if not order:
            return False
        greater, less = [parse(x, self.dimension) for x in (
            (left, right) if order == ">=" else (right, left))]
        difference = greater - less
        for v in variables(difference):
            if symbolic.coefficient(difference.node, v) != 1 or \
                    length_of(v) != self.dimension(v.arg.name):
                continue
            rest = length_of(v) - difference
            names = "_".join(x.arg.name for x in variables(rest)) or "bound"
            value = rest + dim(f"{v.arg.name}_minus_{names}", 0)
            if value.bounds[0] >= v.arg.low and v.arg.high == MAX_LENGTH:  # else bounds are lost
                self._determine(v.arg.name, value)
                return True
        return False

    def _determine(self, name: str, value: Any) -> None:
        """Let a dimension be an expression of others, here and in earlier ones."""
        before = self.dimension(name)
        self._values = {other: x.at({v: value if length_of(v) == before else length_of(v)
                                     for v in variables(x)}) if variables(x) else x
                        for other, x in self._values.items()}
        self._values[name] = value

    def dimension(self, name: str) -> Any:
        """Return the dimension of a name.

        Args:
            name: of the dimension.

        Returns:
            A Dim with the bounds of this scope, or the length that it is equal to.
        """
        if name in self._values:
            return self._values[name]
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
    text = "..." if shape_spec is None else shape_spec.strip()
    parts = _split(text[1:-1] if text[:1] == "(" and text[-1:] == ")" else text)
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
    *inner, last = [part.strip() for part in parts]
    if "" in inner:
        raise ArgumentError(f"expected lengths between commas, got {text!r}")
    return [*inner, last] if last else inner


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
