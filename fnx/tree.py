"""Pytrees under the names of ``jax.tree``: ``fnx.tree.map``, ``flatten``, ``leaves``, ...

>>> import fnx
>>> fnx.tree.map(lambda x: 2 * x, {"a": 1, "b": (2, None)})
{'a': 2, 'b': (4, None)}
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fnx.core.array import containers
from fnx.core.array import tree as core
from fnx.core.array.containers import is_whole
from fnx.core.array.refusal import checked
from fnx.core.array.tree import IsLeaf, TreeDef
from fnx.core.errors import PytreeError, module_face

__all__ = [
    "all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map",
    "map_with_path", "reduce", "reduce_associative", "static", "structure", "transpose",
    "unflatten",
]

P = ParamSpec("P")
R = TypeVar("R")


def _for_users(f: Callable[P, R], place: int | None = None) -> Callable[P, R]:
    """Wrap a tree function so that containers which users see as leaves (float0) are leaves.

    ``place`` is the position of ``is_leaf`` among the positional arguments.
    """
    def or_whole(is_leaf: Any) -> Any:
        return is_whole if is_leaf is None else lambda *where: is_leaf(*where) or is_whole(*where)

    inner = checked(f)  # raises for arguments that do not fit the signature

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given: Any = args
        if place is not None and len(args) > place:
            given = (*args[:place], or_whole(args[place]), *args[place + 1:])
        else:
            kwargs["is_leaf"] = or_whole(kwargs.get("is_leaf"))
        return inner(*given, **kwargs)
    return checked(call)


broadcast = _for_users(core.broadcast, 2)
flatten = _for_users(core.flatten, 1)
flatten_with_path = _for_users(core.flatten_with_path, 1)
leaves = _for_users(core.leaves, 1)
map = _for_users(core.map)
map_with_path = _for_users(core.map_with_path)
structure = _for_users(core.structure, 1)
unflatten = checked(core.unflatten)

_all = all


@checked
def all(tree: Any, *, is_leaf: IsLeaf | None = None) -> bool:
    """Whether all leaves are true.

    Args:
        tree: a pytree: nested tuples, lists, dicts and registered types.
        is_leaf: whether to treat a node as a leaf.

    Returns:
        A bool.

    >>> all([True, {"x": 1}])
    True
    """
    return _all(leaves(tree, is_leaf))


_NOTHING = object()


@checked
def reduce(function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _NOTHING,
           is_leaf: IsLeaf | None = None) -> Any:
    """Reduce the leaves from left to right.

    Args:
        function: a function of (accumulated value, leaf).
        tree: a pytree: nested tuples, lists, dicts and registered types.
        initializer: the initial value; by default the first leaf.
        is_leaf: whether to treat a node as a leaf.

    Returns:
        The final value of the function, or the initializer, or the only leaf.

    Raises:
        PytreeError: no leaf and no initializer.

    >>> reduce(lambda a, b: a + b, [1, {"x": 2}])
    3
    """
    xs = leaves(tree, is_leaf)
    return functools.reduce(function, xs) if initializer is _NOTHING else \
        functools.reduce(function, xs, initializer)


@checked
def reduce_associative(operation: Callable[[Any, Any], Any], tree: Any, *,
                       identity: Any = _NOTHING, is_leaf: IsLeaf | None = None) -> Any:
    """Reduce the leaves pairwise, as a tree of depth log2(n).

    Args:
        operation: an associative function of two leaves or intermediate results.
        tree: a pytree: nested tuples, lists, dicts and registered types.
        identity: the result for no leaves.
        is_leaf: whether to treat a node as a leaf.

    Returns:
        The final value of the operation, or the only leaf.

    Raises:
        PytreeError: no leaf and no identity.

    >>> reduce_associative(lambda a, b: f"({a}{b})", list("abcde"), identity="")
    '(((ab)(cd))e)'
    """
    xs = leaves(tree, is_leaf)
    if not xs and identity is _NOTHING:
        raise PytreeError("expected at least one leaf to fold, got none", hint="give identity=")
    while len(xs) > 1:
        pairs = [operation(a, b) for a, b in zip(xs[::2], xs[1::2])]
        xs = pairs + xs[len(xs) - len(xs) % 2:]
    return xs[0] if xs else identity


class _Static:
    """The names and values of ``static``, compared by value."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).items()))

    def __repr__(self) -> str:
        return f"static({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


containers.register_static(_Static)


def static(**kwargs: Any) -> Any:
    """Create a namespace without leaves: its values are part of the structure.

    Args:
        kwargs: hashable values.

    Returns:
        An object with these attributes.

    >>> leaves({"x": 1, "mode": static(name="fast")}), static(name="fast").name
    ([1], 'fast')
    """
    return _Static(kwargs)


@checked
def leaves_with_path(tree: Any, is_leaf: Callable[..., bool] | None = None,
                     is_leaf_takes_path: bool = False) -> list[tuple[Any, Any]]:
    """Return (path, leaf) pairs.

    Args:
        tree: a pytree: nested tuples, lists, dicts and registered types.
        is_leaf: whether to treat a node as a leaf.
        is_leaf_takes_path: ``is_leaf`` is called with (path, node).

    Returns:
        A list of (path, leaf) pairs.

    >>> [leaf for path, leaf in leaves_with_path({"b": 1, "a": 2})]
    [2, 1]
    """
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


@checked
def transpose(outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: Any
              ) -> Any:
    """Transpose a tree of trees.

    Args:
        outer_treedef: the structure of the outer tree.
        inner_treedef: the structure of each inner tree; None: that of the first.
        pytree_to_transpose: a tree of trees.

    Returns:
        A tree of the inner structure, of trees of the outer structure.

    Raises:
        PytreeError: a tree of another structure.

    >>> transpose(structure([0, 0]), structure({"a": 0}), [{"a": 1}, {"a": 2}])
    {'a': [1, 2]}
    """
    trees = outer_treedef.flatten_up_to(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = structure(trees[0] if trees else None)
    rows = [inner_treedef.flatten_up_to(t) for t in trees]
    columns = [unflatten(outer_treedef, column) for column in zip(*rows)]
    return unflatten(inner_treedef, columns)

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_face(__name__, __all__)
