"""Pytrees under the names of ``jax.tree``: ``fnx.tree.map``, ``flatten``, ``leaves``, ...

>>> import fnx
>>> fnx.tree.map(lambda x: 2 * x, {"a": 1, "b": (2, None)})
{'a': 2, 'b': (4, None)}
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fnx.core.array import pytree_registry
from fnx.core.array import tree as core
from fnx.core.array.call_validation import validate_call
from fnx.core.array.pytree_registry import is_opaque
from fnx.core.array.tree import IsLeaf, TreeDef
from fnx.core.support.errors import PytreeError, lazy_module

__all__ = [
    "all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map",
    "map_with_path", "reduce", "reduce_associative", "static", "structure", "transpose",
    "unflatten",
]

P = ParamSpec("P")
R = TypeVar("R")


def _public_function(f: Callable[P, R], is_leaf_position: int | None = None) -> Callable[P, R]:
    """Wrap a tree function so that containers which users see as leaves (float0) are leaves.

    ``is_leaf_position`` is the position of ``is_leaf`` among the positional arguments.
    """
    def with_opaque(is_leaf: Any) -> Any:
        return is_opaque if is_leaf is None else lambda *where: is_leaf(*where) or is_opaque(*where)

    inner = validate_call(f)  # raises for arguments that do not fit the signature

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        new_args: Any = args
        if is_leaf_position is not None and len(args) > is_leaf_position:
            new_args = (*args[:is_leaf_position], with_opaque(args[is_leaf_position]),
                        *args[is_leaf_position + 1:])
        else:
            kwargs["is_leaf"] = with_opaque(kwargs.get("is_leaf"))
        return inner(*new_args, **kwargs)
    return validate_call(call)


broadcast = _public_function(core.broadcast, 2)
flatten = _public_function(core.flatten, 1)
flatten_with_path = _public_function(core.flatten_with_path, 1)
leaves = _public_function(core.leaves, 1)
map = _public_function(core.map)
map_with_path = _public_function(core.map_with_path)
structure = _public_function(core.structure, 1)
unflatten = validate_call(core.unflatten)

_all = all


@validate_call
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


_MISSING = object()


@validate_call
def reduce(function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _MISSING,
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
    return functools.reduce(function, xs) if initializer is _MISSING else \
        functools.reduce(function, xs, initializer)


@validate_call
def reduce_associative(operation: Callable[[Any, Any], Any], tree: Any, *,
                       identity: Any = _MISSING, is_leaf: IsLeaf | None = None) -> Any:
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
    if not xs and identity is _MISSING:
        raise PytreeError("expected at least one leaf to fold, got none", hint="give identity=")
    while len(xs) > 1:
        pairs = [operation(a, b) for a, b in zip(xs[::2], xs[1::2])]
        xs = pairs + xs[len(xs) - len(xs) % 2:]
    return xs[0] if xs else identity


class _StaticNamespace:
    """The names and values of ``static``, compared by value."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StaticNamespace) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).items()))

    def __repr__(self) -> str:
        return f"static({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


pytree_registry.register_static(_StaticNamespace)


def static(**kwargs: Any) -> Any:
    """Create a namespace without leaves: its values are part of the structure.

    Args:
        kwargs: hashable values.

    Returns:
        An object with these attributes.

    >>> leaves({"x": 1, "mode": static(name="fast")}), static(name="fast").name
    ([1], 'fast')
    """
    return _StaticNamespace(kwargs)


@validate_call
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


@validate_call
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
    try:
        rows = [inner_treedef.flatten_up_to(t) for t in trees]
    except PytreeError:
        raise PytreeError(f"transpose: expected trees of one structure inside of {inner_treedef}, "
                          f"got {structure(pytree_to_transpose)}",
                          hint="pass the structure that all inner trees have") from None
    columns = [unflatten(outer_treedef, column) for column in zip(*rows)]
    return unflatten(inner_treedef, columns)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__)
