"""Pytrees: nested containers, flattened to a list of leaves and a structure.

>>> leaves, structure = flatten({"b": 1, "a": (2, None)})
>>> leaves, structure
([2, 1], PyTreeDef({'a': (*, None), 'b': *}))
>>> unflatten(structure, [x * 10 for x in leaves])
{'a': (20, None), 'b': 10}

Containers are tuple, list, dict (in the order of sorted keys), OrderedDict, defaultdict,
named tuples, None (which has no leaves), and every registered type. Anything else is a leaf. Each
container type has a registry entry, which can flatten it, rebuild it, name its children and print
it. ``flatten`` runs in each call of a jitted function, so its inner loop is minimal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from fnx.core.array.equality import exactly_equal
from fnx.core.array.pytree_registry import (
    PYTREE_TYPES,
    Key,
    KeyedData,
    Path,
    PytreeType,
    is_named_tuple,
    is_opaque,
    pytree_type,
)
from fnx.core.support.errors import NestingError, PytreeError

IsLeaf = Callable[[Any], bool]
MAX_DEPTH = 256  # tree walks recurse, some with two frames per container


class TreeDef:
    """The structure of a pytree: hashable, comparable, printable.

    ``pytree_type`` is None for a leaf.

    >>> structure({"a": 1, "b": (2, 3)}).num_leaves
    3
    """

    __slots__ = ("pytree_type", "data", "subtrees", "num_leaves", "_hash")
    num_leaves: int

    def __init__(self, pytree_type: PytreeType | None, data: Hashable,
                 subtrees: tuple[TreeDef, ...]) -> None:
        self.pytree_type, self.data, self.subtrees = pytree_type, data, subtrees
        self.num_leaves = 1 if pytree_type is None else \
            sum([c.num_leaves for c in subtrees])
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            cls = None if self.pytree_type is None else self.pytree_type.kind
            try:
                self._hash = hash((cls, self.data, self.subtrees))
            except TypeError:  # data with a list in it: compared, not hashed
                self._hash = hash((cls, self.subtrees))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (isinstance(other, TreeDef) and self.pytree_type is other.pytree_type
                and exactly_equal(self.data, other.data) and self.subtrees == other.subtrees)

    def __reduce__(self) -> Any:
        if self.pytree_type is None:
            return "LEAF"
        return _rebuild, (self.pytree_type.kind, self.data, self.subtrees)

    def __deepcopy__(self, memo: Any) -> TreeDef:
        return self

    def __repr__(self) -> str:
        return f"PyTreeDef({self._node_text()})"

    def _node_text(self) -> str:
        """Return the text that JAX prints, which libraries compare and save."""
        entry = self.pytree_type
        inner = [c._node_text() for c in self.subtrees]
        if entry is None or entry.kind in (tuple, list, dict, type(None)):
            return "*" if entry is None else entry.format(self.data, inner)
        if is_named_tuple(entry):
            return f"CustomNode(namedtuple[{entry.kind.__name__}], [{', '.join(inner)}])"
        return f"CustomNode({entry.kind.__name__}[{self.data}], [{', '.join(inner)}])"

    def __format__(self, spec: str) -> str:
        """Format for messages, ``f"{structure}"``: as one writes the tree, with field names."""
        if self.pytree_type is None:
            return "*"
        return self.pytree_type.format(self.data, [format(c) for c in self.subtrees])

    @property
    def num_nodes(self) -> int:
        """The number of containers and leaves."""
        return 1 + sum([c.num_nodes for c in self.subtrees])

    def children(self) -> list[TreeDef]:
        """Return the structures of the children."""
        return list(self.subtrees)

    def node_data(self) -> tuple[type, Any] | None:
        """Return (type, data) of the outermost container; None for a leaf."""
        if self.pytree_type is None:
            return None
        data = self.data.data if isinstance(self.data, KeyedData) else self.data
        return self.pytree_type.kind, list(data) if isinstance(data, tuple) and \
            self.pytree_type.kind is dict else data

    def compose(self, inner: TreeDef) -> TreeDef:
        """Return this structure with each leaf replaced by ``inner``."""
        if self.pytree_type is None:
            return inner
        return TreeDef(self.pytree_type, self.data,
                       tuple([c.compose(inner) for c in self.subtrees]))

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Build the tree of this structure with the given leaves."""
        return unflatten(self, leaves)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Return the subtrees of ``tree`` at the leaves of this structure."""
        return flatten_up_to(self, tree)


LEAF = TreeDef(None, None, ())


def _rebuild(cls: type, data: Hashable, subtrees: tuple[TreeDef, ...]) -> TreeDef:
    entry = pytree_type(cls)
    if entry is None:
        raise PytreeError(f"expected {cls.__name__} to be a pytree, as where it was pickled",
                          hint="register it before unpickling, in the module that defines it")
    return TreeDef(entry, data, subtrees)


# ---- flatten, unflatten, map ------------------------------------------------------------------


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeDef]:
    """Return the leaves of a tree in order, and its structure.

    A container for which ``is_leaf(x)`` is true is a leaf.

    Args:
        tree: a pytree: nested tuples, lists, dicts and registered types.
        is_leaf: whether to treat a node as a leaf.

    Returns:
        (leaves, structure).

    >>> flatten({"b": 2, "a": (1, None)})[0]
    [1, 2]
    """
    out: list[Any] = []
    return out, _flatten(tree, out, is_leaf, 0)


def _flatten(tree: Any, out: list[Any], is_leaf: IsLeaf | None, depth: int) -> TreeDef:
    entry = pytree_type(type(tree))
    if entry is None or (is_leaf is not None and is_leaf(tree)):
        out.append(tree)
        return LEAF
    if depth == MAX_DEPTH:
        raise NestingError(f"expected a tree at most {MAX_DEPTH} containers deep, got a "
                           f"{type(tree).__name__} below that",
                           hint="put the arrays into one list, or stack them")
    children, data = entry.flatten(tree)
    get, defs = PYTREE_TYPES.get, []
    for child in children:
        if get(type(child)) is None and not isinstance(child, tuple):
            out.append(child)
            defs.append(LEAF)
        else:
            defs.append(_flatten(child, out, is_leaf, depth + 1))
    return TreeDef(entry, data, tuple(defs))


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """Build the tree of a structure from its leaves.

    Args:
        treedef: a structure, as ``structure`` returns it.
        leaves: its leaves, from left to right.

    Returns:
        A pytree.

    Raises:
        PytreeError: the number of leaves is not that of the structure.

    >>> unflatten(structure({"a": 0, "b": (0, 0)}), [1, 2, 3])
    {'a': 1, 'b': (2, 3)}
    """
    leaf_list = list(leaves)
    if len(leaf_list) != treedef.num_leaves:
        raise PytreeError(f"expected {treedef.num_leaves} leaves for {treedef}, got "
                          f"{len(leaf_list)}",
                          hint="pass one leaf for each * of the structure, in order")
    return _unflatten(treedef, iter(leaf_list))


def _unflatten(treedef: TreeDef, leaves: Any) -> Any:
    entry = treedef.pytree_type
    if entry is None:
        return next(leaves)
    return entry.unflatten(treedef.data, [next(leaves) if c is LEAF else _unflatten(c, leaves)
                                          for c in treedef.subtrees])


def leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """Return the leaves of a tree, in order.

    Args:
        tree: a pytree: nested tuples, lists, dicts and registered types.
        is_leaf: whether to treat a node as a leaf.

    Returns:
        A list.

    >>> leaves([1, {"x": 2}, None])
    [1, 2]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeDef:
    """Return the structure of a tree.

    Args:
        tree: a pytree: nested tuples, lists, dicts and registered types.
        is_leaf: whether to treat a node as a leaf.

    Returns:
        A TreeDef, which is hashable.

    >>> structure([1, (2, 3)])
    PyTreeDef([*, (*, *)])
    """
    return flatten(tree, is_leaf)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Apply ``f`` to each leaf and the corresponding values of the ``rest``.

    Args:
        f: a function of one leaf of each tree.
        tree: a pytree: nested tuples, lists, dicts and registered types.
        rest: more trees of the structure of the first; they may have subtrees at its leaves.
        is_leaf: whether to treat a node as a leaf.

    Returns:
        A pytree of the structure of the first.

    Raises:
        PytreeError: trees of different structures.

    >>> map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
    {'a': 11, 'b': [22]}
    """
    xs, treedef = flatten(tree, is_leaf)
    if not rest:
        return _unflatten(treedef, iter([f(x) for x in xs]))
    columns = [flatten_up_to(treedef, other) for other in rest]
    return _unflatten(treedef, iter([f(*row) for row in zip(xs, *columns)]))


def flatten_up_to(treedef: TreeDef, tree: Any) -> list[Any]:
    """Return the subtrees of ``tree`` at the leaves of ``treedef``, which must be a prefix of it.

    Raises:
        PytreeError: the structures differ; the message has the path.
    """
    out: list[Any] = []
    _flatten_up_to(treedef, tree, (), out)
    return out


def _flatten_up_to(treedef: TreeDef, tree: Any, path: Path, out: list[Any]) -> None:
    entry = treedef.pytree_type
    if entry is None:
        out.append(tree)
        return
    if pytree_type(type(tree)) is not entry:
        raise PytreeError(f"expected {treedef} at {_describe_path(path)}, got "
                          f"{_describe_tree(tree)}",
                          hint="pass pytrees with the same structure")
    children, data = entry.flatten(tree)
    if data != treedef.data or len(children) != len(treedef.subtrees):
        raise PytreeError(f"expected {treedef} at {_describe_path(path)}, got "
                          f"{_describe_tree(tree)}",
                          hint="pass pytrees with the same structure")
    for key, child_def, child in zip(entry.keys(data, len(children)), treedef.subtrees, children):
        if child_def is LEAF:
            out.append(child)
        else:
            _flatten_up_to(child_def, child, (*path, key), out)


def describe_structure(treedef: TreeDef) -> str:
    """Describe a structure for users.

    >>> describe_structure(structure(1)), describe_structure(structure((1, 2)))
    ('an array', 'arrays in (*, *)')
    """
    return "an array" if treedef is LEAF else "None" if not treedef.num_leaves and \
        treedef == structure(None) else f"arrays in {treedef}"


def _describe_path(path: Path) -> str:
    return f"path {keystr(path)}" if path else "the root"


def _describe_tree(tree: Any) -> str:
    return f"{type(tree).__name__} {structure(tree)}" if pytree_type(type(tree)) is not None else \
        f"a leaf of type {type(tree).__name__}"


# ---- paths ------------------------------------------------------------------------------------


def paths(treedef: TreeDef) -> list[Path]:
    """Return the path of each leaf.

    >>> [keystr(p) for p in paths(structure({"a": [1, 2]}))]
    ["['a'][0]", "['a'][1]"]
    """
    out: list[Path] = []
    _paths(treedef, (), out)
    return out


def _paths(treedef: TreeDef, path: Path, out: list[Path]) -> None:
    if treedef.pytree_type is None:
        out.append(path)
        return
    keys = treedef.pytree_type.keys(treedef.data, len(treedef.subtrees))
    for key, child in zip(keys, treedef.subtrees):
        _paths(child, (*path, key), out)


def keystr(keys: Path, *, simple: bool = False, separator: str = "") -> str:
    """Return a path as one writes it after a variable: ``['layers'][0].w``.

    Args:
        keys: a path, as ``flatten_with_path`` returns it.
        simple: omit brackets and dots.
        separator: the text between the steps.

    Returns:
        A str, such as ``['w'][0]``.

    >>> path = paths(structure({"w": [0, 0]}))[1]
    >>> keystr(path), keystr(path, simple=True, separator="/")
    ("['w'][1]", 'w/1')
    """
    return separator.join([k.name_only if simple and isinstance(k, Key) else str(k) for k in keys])


def flatten_with_path(tree: Any, is_leaf: Callable[..., bool] | None = None,
                      is_leaf_takes_path: bool = False) -> tuple[list[tuple[Path, Any]], TreeDef]:
    """Return (path, leaf) pairs and the structure.

    Args:
        tree: a pytree: nested tuples, lists, dicts and registered types.
        is_leaf: whether to treat a node as a leaf.
        is_leaf_takes_path: ``is_leaf`` is called with (path, node).

    Returns:
        (list of (path, leaf) pairs, structure).

    >>> [(keystr(path), leaf) for path, leaf in flatten_with_path({"a": (1, 2)})[0]]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    if is_leaf is not None and is_leaf_takes_path:
        out: list[tuple[Path, Any]] = []
        return out, _flatten_by_path(tree, (), out, is_leaf)
    xs, treedef = flatten(tree, is_leaf)
    return list(zip(paths(treedef), xs)), treedef


def _flatten_by_path(tree: Any, path: Path, out: list[tuple[Path, Any]],
                     is_leaf: Callable[..., bool]) -> TreeDef:
    entry = pytree_type(type(tree))
    if entry is None or is_leaf(path, tree):
        out.append((path, tree))
        return LEAF
    if len(path) == MAX_DEPTH:
        raise NestingError(f"expected a tree at most {MAX_DEPTH} containers deep",
                           hint="put the arrays into one list, or stack them")
    children, data = entry.flatten(tree)
    return TreeDef(entry, data, tuple([
        _flatten_by_path(child, (*path, key), out, is_leaf)
        for key, child in zip(entry.keys(data, len(children)), children)]))


def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any,
                  is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
                  ) -> Any:
    """Apply ``f(path, leaf, ...)`` to each leaf.

    Args:
        f: a function of a path and one leaf of each tree.
        tree: a pytree: nested tuples, lists, dicts and registered types.
        rest: more trees of the same structure.
        is_leaf: whether to treat a node as a leaf.
        is_leaf_takes_path: ``is_leaf`` is called with (path, node).

    Returns:
        A pytree of the structure of the first.

    Raises:
        PytreeError: trees of different structures.

    >>> map_with_path(lambda p, x: keystr(p), {"a": [1]})
    {'a': ["['a'][0]"]}
    """
    pairs, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = [flatten_up_to(treedef, other) for other in rest]
    return _unflatten(treedef, iter([f(*pair, *more) for pair, *more in zip(pairs, *columns)]))


def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Broadcast the leaves of a prefix tree to all leaves of a full tree.

    Args:
        prefix_tree: a pytree whose structure is a prefix of that of ``full_tree``.
        full_tree: a pytree.
        is_leaf: whether to treat a node of ``prefix_tree`` as a leaf.

    Returns:
        A pytree of the structure of ``full_tree``.

    Raises:
        PytreeError: trees of different structures.

    >>> broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": 0})
    {'a': [1, 1], 'b': 2}
    """
    return map(lambda x, below: map(lambda _: x, below, is_leaf=is_opaque), prefix_tree, full_tree,
               is_leaf=is_leaf)


def first_difference(expected: TreeDef, actual: TreeDef, path: Path = ()) -> str:
    """Describe where two structures first differ; empty if they are equal.

    >>> first_difference(structure({"a": [1, 2]}), structure({"a": [1]}))
    "at ['a']: expected [*, *], got [*]"
    """
    if expected == actual:
        return ""
    same_kind = expected.pytree_type is not None and expected.pytree_type is actual.pytree_type \
        and expected.data == actual.data and len(expected.subtrees) == len(actual.subtrees)
    if same_kind and expected.pytree_type is not None:
        keys = expected.pytree_type.keys(expected.data, len(expected.subtrees))
        for key, a, b in zip(keys, expected.subtrees, actual.subtrees):
            if a != b:
                return first_difference(a, b, (*path, key))
    return f"at {keystr(path) or 'the root'}: expected {expected}, got {actual}"
