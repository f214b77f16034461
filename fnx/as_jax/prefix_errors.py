"""``prefix_errors`` and other parts of ``jax._src.tree_util``: where a pytree is no prefix of
another.

>>> [error] = prefix_errors({"a": (1, 2)}, {"a": (1, 2, 3)})
>>> print(error("in_axes"))
pytree structure error: different lengths of tuple at key path
    in_axes['a']
At that key path, the prefix pytree in_axes has a subtree of type tuple of length 2, but the full
pytree has a subtree of the same type but of length 3.
>>> broadcast_prefix((1, 2), ((0, 0), 0)), flatten_one_level({"a": 1, "b": [2]})
([1, 1, 2], ((1, [2]), ('a', 'b')))
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from fnx.core.array import tree
from fnx.core.array.pytree_registry import Key, pytree_type
from fnx.core.support.errors import PytreeError

IsLeaf = Callable[[Any], bool] | None
ErrorOf = Callable[[str], ValueError]  # of the name of the prefix


def prefix_errors(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list[ErrorOf]:
    """Return an error for each place at which a pytree is no prefix of another."""
    return list(_errors_at((), prefix_tree, full_tree, is_leaf))


def _errors_at(path: tuple[Key, ...], prefix: Any, full: Any, is_leaf: IsLeaf
               ) -> Iterator[ErrorOf]:
    entry = pytree_type(type(prefix))
    if (entry is None and prefix is not None) or (is_leaf is not None and is_leaf(prefix)):
        return
    if type(prefix) is not type(full):
        yield partial(_error, path, "different types", (
            "has a subtree of type\n    {0}\nbut at the same key path the full pytree has a "
            "subtree of different type\n    {1}."), (type(prefix), type(full)))
        return
    if entry is None:
        return
    (children, data), (others, other_data) = map(entry.flatten, (prefix, full))
    kind = type(prefix)
    if kind in (list, tuple) and len(children) != len(others):
        yield partial(_error, path, f"different lengths of {kind.__name__}", (
            "has a subtree of type {0} of length {1}, but the full pytree has a subtree of the "
            "same type but of length {2}."), (kind.__name__, len(children), len(others)))
        return
    keys, other_keys = entry.keys(data, len(children)), entry.keys(other_data, len(others))
    if len(children) != len(others):
        different = [k for k in (*keys, *other_keys) if (k in keys) != (k in other_keys)]
        yield partial(_error, path, "different numbers of pytree children", (
            "has a subtree of type\n    {0}\nwith {1} child keys\n    {2}\nbut at the same key "
            "path the full pytree has a subtree of the same type but with {3} child keys\n    {4}"
            "\nso the symmetric difference on key sets is\n    {5}"), (
                kind, len(keys), _names(keys), len(other_keys), _names(other_keys),
                _names(different)))
        return
    if data != other_data:
        lines = difflib.ndiff(str(data).splitlines(), str(other_data).splitlines())
        yield partial(_error, path, "different pytree metadata", (
            "has a subtree of type\n    {0}\nwith metadata\n    {1}\nbut at the same key path the "
            "full pytree has a subtree of the same type but with metadata\n    {2}\nso the diff in "
            "the metadata at these pytree nodes is\n    {3}"), (
                kind, data, other_data, "\n    ".join(lines)))
        return
    for key, x, y in zip(keys, children, others):
        yield from _errors_at((*path, key), x, y, is_leaf)


def _error(path: tuple[Key, ...], what: str, text: str, values: Sequence[Any], name: str
           ) -> ValueError:
    return ValueError(f"pytree structure error: {what} at key path\n    {name}{tree.keystr(path)}\n"
                      f"At that key path, the prefix pytree {name} {text.format(*values)}")


def _names(keys: Sequence[Key]) -> str:
    return " ".join(k.name_only for k in keys)


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """Return a leaf of the prefix for each leaf of the full pytree."""
    return tree.structure(full_tree).flatten_up_to(
        tree.broadcast(prefix_tree, full_tree, is_leaf))


def flatten_one_level(pytree: Any) -> tuple[Sequence[Any], Any]:
    """Return the children of a container, and the rest of it."""
    entry = pytree_type(type(pytree))
    if entry is not None:
        children, data = entry.flatten(pytree)
        return tuple(children), data
    if pytree is None:
        return (), None
    raise PytreeError(f"can't tree-flatten type: {type(pytree)}")


Difference = tuple[tuple[Key, ...], str, str, str]


def equality_errors(tree1: Any, tree2: Any, is_leaf: IsLeaf = None) -> Iterator[Difference]:
    """Yield where two pytrees differ in structure: the path, both parts, and an explanation.

    >>> list(equality_errors((1, 2), (1, 2, 3)))
    [((), 'tuple of length 2', 'tuple of length 3', 'the lengths do not match')]
    """
    return _differences((), tree1, tree2, is_leaf)


def equality_errors_pytreedef(tree1: Any, tree2: Any) -> Iterator[Difference]:
    """Yield where two structures differ."""
    one, two = [t.unflatten(range(t.num_leaves)) for t in (tree1, tree2)]
    return _differences((), one, two, None)


def _differences(path: tuple[Key, ...], one: Any, two: Any, is_leaf: IsLeaf
                 ) -> Iterator[Difference]:
    entry, other = [None if is_leaf is not None and is_leaf(x) else pytree_type(type(x))
                    for x in (one, two)]
    if entry is None and other is None and (one is None) is (two is None):
        return
    if type(one) is not type(two):
        yield path, str(type(one)), str(type(two)), "their Python types differ"
        return
    assert entry is not None
    (children, data), (others, other_data) = map(entry.flatten, (one, two))
    kind = type(one)
    if len(children) != len(others):
        if kind in (list, tuple):
            yield (path, f"{kind.__name__} of length {len(children)}",
                   f"{kind.__name__} of length {len(others)}", "the lengths do not match")
        else:
            yield (path, f"{kind} with {len(children)} child{'ren' * (len(children) > 1)}",
                   f"{kind} with {len(others)} child{'ren' * (len(others) > 1)}",
                   "the numbers of children do not match")
        return
    if data != other_data:
        shown: list[Any] = [data, other_data]
        if kind is dict:
            shown = list(map(tuple, shown))
        yield (path, f"{kind} with pytree metadata {shown[0]}",
               f"{kind} with pytree metadata {shown[1]}", "the pytree node metadata does not match")
        return
    for key, x, y in zip(entry.keys(data, len(children)), children, others):
        yield from _differences((*path, key), x, y, is_leaf)


NAMES = {"prefix_errors": prefix_errors, "broadcast_prefix": broadcast_prefix,
         "flatten_one_level": flatten_one_level, "equality_errors": equality_errors,
         "equality_errors_pytreedef": equality_errors_pytreedef}
