"""Pytrees under the names of ``jax.tree_util``, including the registration of types."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fnx.core.array import pytree_registry, tree
from fnx.core.array.call_validation import validate_call
from fnx.core.array.pytree_registry import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    Key,
    Path,
    SequenceKey,
)
from fnx.core.array.tree import IsLeaf, TreeDef
from fnx.core.support.errors import PytreeError, lazy_module
from fnx.tree import all as tree_all
from fnx.tree import broadcast as tree_broadcast
from fnx.tree import flatten as tree_flatten
from fnx.tree import flatten_with_path as tree_flatten_with_path
from fnx.tree import leaves as tree_leaves
from fnx.tree import leaves_with_path as tree_leaves_with_path
from fnx.tree import map as tree_map
from fnx.tree import map_with_path as tree_map_with_path
from fnx.tree import reduce as tree_reduce
from fnx.tree import reduce_associative as tree_reduce_associative
from fnx.tree import structure as tree_structure
from fnx.tree import transpose as tree_transpose
from fnx.tree import unflatten as tree_unflatten

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "Key", "KeyEntry", "KeyPath", "Partial", "Path",
    "PyTreeDef", "SequenceKey", "all_leaves", "default_registry", "flatten_one_level",
    "flatten_one_level_with_keys", "is_tree_node", "keystr", "register_dataclass",
    "register_pytree_node", "register_pytree_node_class", "register_pytree_with_keys",
    "register_pytree_with_keys_class", "register_static", "tree_all", "tree_broadcast",
    "tree_flatten", "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map",
    "tree_map_with_path", "tree_reduce", "tree_reduce_associative", "tree_structure",
    "tree_transpose", "tree_unflatten", "treedef_children", "treedef_is_leaf", "treedef_tuple",
]

PyTreeDef = TreeDef
KeyEntry = Key
KeyPath = Path
keystr = validate_call(tree.keystr)
register_dataclass = validate_call(pytree_registry.register_dataclass)
register_pytree_node = validate_call(pytree_registry.register_pytree_node)
register_pytree_node_class = validate_call(pytree_registry.register_pytree_node_class)
register_pytree_with_keys = validate_call(pytree_registry.register_pytree_with_keys)
register_pytree_with_keys_class = validate_call(pytree_registry.register_pytree_with_keys_class)
register_static = validate_call(pytree_registry.register_static)


@validate_call
def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf | None = None) -> bool:
    """Whether no item is a container.

    Args:
        iterable: any values.
        is_leaf: whether to treat an item as a leaf.

    Returns:
        A bool.

    >>> all_leaves([1, 2]), all_leaves([1, (2,)])
    (True, False)
    """
    return all(tree_structure(x, is_leaf) is tree.LEAF for x in iterable)


@validate_call
def is_tree_node(typ: type) -> bool:
    """Whether objects of a type are containers.

    Args:
        typ: a type.

    Returns:
        A bool.

    >>> is_tree_node(dict), is_tree_node(int)
    (True, False)
    """
    return pytree_registry.pytree_type(typ) is not None and typ not in pytree_registry.OPAQUE_TYPES


def _entry_of(tree: Any) -> pytree_registry.PytreeType:
    entry = pytree_registry.pytree_type(type(tree))
    if entry is None or pytree_registry.is_opaque(tree):
        raise PytreeError(f"expected a container, got a leaf of type {type(tree).__name__}",
                          hint="check with is_tree_node(type(x))")
    return entry


@validate_call
def flatten_one_level(tree: Any) -> tuple[list[Any], Any]:
    """Return the children of a container.

    Args:
        tree: a container.

    Returns:
        (children, data).

    Raises:
        PytreeError: a leaf.

    >>> flatten_one_level({"b": [1], "a": 2})
    ([2, [1]], ('a', 'b'))
    """
    children, data = _entry_of(tree).flatten(tree)
    return list(children), data.data if isinstance(data, pytree_registry.KeyedData) else data


@validate_call
def flatten_one_level_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """Return the children of a container with their keys.

    Args:
        tree: a container.

    Returns:
        (list of (key, child) pairs, data).

    Raises:
        PytreeError: a leaf.

    >>> flatten_one_level_with_keys([7])
    ([(SequenceKey(idx=0), 7)], None)
    """
    entry = _entry_of(tree)
    children, data = entry.flatten(tree)
    pairs = list(zip(entry.keys(data, len(children)), children))
    return pairs, data.data if isinstance(data, pytree_registry.KeyedData) else data


@validate_call
def treedef_is_leaf(treedef: TreeDef) -> bool:
    """Whether a structure is that of a leaf.

    Args:
        treedef: a structure, as ``tree_structure`` returns it.

    Returns:
        A bool.

    >>> treedef_is_leaf(tree_structure(1))
    True
    """
    return treedef.pytree_type is None


@validate_call
def treedef_children(treedef: TreeDef) -> list[TreeDef]:
    """Return the structures of the children of a structure.

    Args:
        treedef: a structure, as ``tree_structure`` returns it.

    Returns:
        A list of structures.

    >>> treedef_children(tree_structure((1, [2])))
    [PyTreeDef(*), PyTreeDef([*])]
    """
    return treedef.children()


@validate_call
def treedef_tuple(treedefs: Iterable[TreeDef]) -> TreeDef:
    """Return the structure of a tuple.

    Args:
        treedefs: the structures of its items.

    Returns:
        A structure.

    >>> treedef_tuple([tree_structure(1), tree_structure([2])])
    PyTreeDef((*, [*]))
    """
    entry = pytree_registry.pytree_type(tuple)
    assert entry is not None
    return TreeDef(entry, None, tuple(treedefs))


class Registry:
    """The registry of container types, with the methods of JAX's registry that libraries use.

    >>> default_registry.flatten_one_level([1, 2])
    ([1, 2], None)
    """

    def flatten(self, tree: Any, is_leaf: Callable[[Any], bool] | None = None
                ) -> tuple[list[Any], TreeDef]:
        """Return the leaves of a tree in order, and its structure."""
        return tree_flatten(tree, is_leaf)

    def flatten_one_level(self, tree: Any) -> tuple[list[Any], Any] | None:
        """Return (children, data) of a container; None for a leaf."""
        return flatten_one_level(tree) if is_tree_node(type(tree)) else None

    def register_node(self, cls: type, to_iterable: Callable[[Any], Any],
                      from_iterable: Callable[[Any, Any], Any]) -> None:
        """Register a type as a pytree container."""
        register_pytree_node(cls, to_iterable, from_iterable)


default_registry = Registry()


class Partial(functools.partial[Any]):
    """``functools.partial`` as a container: its arguments are children, its function is data.

    Args:
        func: the function.
        args, keywords: pytrees, its first arguments.

    >>> tree_leaves(Partial(print, 1, sep=2))
    [1, 2]
    """


register_pytree_node(Partial, lambda p: ((p.args, p.keywords), p.func),
                     lambda func, children: Partial(func, *children[0], **children[1]))

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__)
