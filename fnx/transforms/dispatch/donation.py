"""Donation: arguments whose memory the caller hands over to a call.

    p = step(p, x)    with p donated: the memory of the old p goes back to the pool once the call
                      has been submitted, and the old p no longer has a value

If a call fails before it is submitted (out of memory, Ctrl-C, an earlier failure), the arguments
stay valid. If it fails later they may be overwritten; they then name the function they went to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.support.errors import DonatedError, format_location
from fnx.core.tracing.trace import function_name


def positions(numbers: Sequence[int], count: int) -> set[Any]:
    """Positions among ``count`` arguments; negative ones count from the end."""
    return {i + count if i < 0 else i for i in numbers}


class Donation:
    """Which arguments of a function are donated, by position and by name."""

    __slots__ = ("numbers", "names", "function", "to")

    def __init__(self, numbers: tuple[int, ...], names: tuple[str, ...], f: Callable[..., Any]
                 ) -> None:
        self.numbers, self.names, self.function = numbers, frozenset(names), function_name(f)
        code = getattr(f, "__code__", None) if numbers or names else None
        self.to = self.function if code is None else \
            f"{self.function} ({format_location((code.co_filename, code.co_firstlineno))})"

    def leaves(self, in_tree: tree.TreeDef, dynamic: list[int], count: int) -> list[int]:
        """Return the numbers of the donated leaves, among those of the dynamic arguments."""
        donated = positions(self.numbers, count) | self.names
        args_tree, kwargs_tree = in_tree.subtrees
        names: Any = kwargs_tree.data  # the keys of a dict
        out: list[int] = []
        first = 0
        for position, child in [*zip(dynamic, args_tree.subtrees),
                                *zip(names, kwargs_tree.subtrees)]:
            if position in donated:
                out += range(first, first + child.num_leaves)
            first += child.num_leaves
        return out

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise if two arguments contain the same donated array."""
        if not self.numbers and not self.names:
            return
        first_use: dict[int, int | str] = {}
        donated = positions(self.numbers, len(args)) | self.names
        arguments: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
        for i, arg in arguments:
            for x in tree.leaves(arg):
                if type(x) is Array:
                    first = first_use.setdefault(id(x._storage), i)
                    if first != i and (i in donated or first in donated):
                        raise DonatedError(
                            f"arguments {first} and {i} of {self.function}: expected donated "
                            "arrays to be given once, got the same array twice",
                            hint="pass x.copy() for one of them")

    def consumer_of(self, args: tuple[Any, ...],
                    kwargs: dict[str, Any]) -> Callable[[], None] | None:
        """Return a function that invalidates the donated arguments. None if there are none."""
        if not self.numbers and not self.names:
            return None
        donated = [args[i] for i in positions(self.numbers, len(args)) if 0 <= i < len(args)]
        donated += [kwargs[name] for name in self.names & kwargs.keys()]
        return lambda: consume_donated([x for x in tree.leaves(donated) if type(x) is Array],
                                       self.to)


def consume_donated(arrays: Sequence[Array], to: str) -> None:
    """Invalidate arrays; their memory goes to a result or back to the pool.

    This is atomic: after Ctrl-C in between, all arrays keep their values.
    """
    saved = [(x, x._storage, x._uop, x._value) for x in arrays]
    try:
        for x in arrays:
            x._storage = x._uop = None
            x._value = to
    except BaseException:
        for x, memory, node, value in saved:
            x._storage, x._uop, x._value = memory, node, value
        raise
