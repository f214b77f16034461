"""Pytrees: nested containers as a flat list of leaves and a structure.

>>> leaves, structure = flatten({"b": 1, "a": (2, None)})
>>> leaves, structure
([2, 1], TreeDef({'a': (*, None), 'b': *}))
>>> unflatten(structure, [x * 10 for x in leaves])
{'a': (20, None), 'b': 10}

Containers are tuple, list, dict (in the order of sorted keys), OrderedDict, defaultdict,
named tuples, None (which has no leaves), and every type that was registered. Anything else is
a leaf. A container type is one row: how to take it apart, put it together, name its children
and print it. ``flatten`` runs at each call of a jitted function, so its inner loop is kept bare.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from fnx.core.array.equality import same
from fnx.core.errors import NestingError, PytreeError

T = TypeVar("T")
IsLeaf = Callable[[Any], bool]
MAX_DEPTH = 256  # walks over a tree recurse, some with two frames a container


class Key:
    """One step of a path.

    Args:
        key: the index, name or number of a child.
        kind: "item" (x[key]), "attr" (x.key) or "flat" (child number).

    >>> str(Key("w")), str(Key("w", "attr"))
    ("['w']", '.w')
    """

    __slots__ = ("key", "kind")

    def __init__(self, key: Hashable, kind: str = "item") -> None:
        self.key, self.kind = key, kind

    def __str__(self) -> str:
        if self.kind == "attr":
            return f".{self.key}"
        return f"[{self.key!r}]" if self.kind == "item" else f"[<flat index {self.key}>]"

    def __repr__(self) -> str:
        return f"Key({self.key!r}, {self.kind!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and (self.key, self.kind) == (other.key, other.kind)

    def __hash__(self) -> int:
        return hash((self.key, self.kind))


Path = tuple[Key, ...]


class Container:
    """A container type.

    ``take(x) -> (children, data)``: children in order, and hashable data that says the rest.
    ``make(data, children)`` puts it together. ``keys(data, n)`` names n children.
    ``show(data, texts)`` prints it with ``texts`` for the children.
    """

    __slots__ = ("type", "take", "make", "keys", "show")

    def __init__(self, cls: type, take: Callable[[Any], tuple[Sequence[Any], Hashable]],
                 make: Callable[[Any, Sequence[Any]], Any],
                 keys: Callable[[Any, int], Sequence[Key]],
                 show: Callable[[Any, list[str]], str]) -> None:
        self.type, self.take, self.make, self.keys, self.show = cls, take, make, keys, show


class TreeDef:
    """The structure of a pytree: hashable, comparable, printable.

    ``container`` is None for a leaf.

    >>> structure({"a": 1, "b": (2, 3)}).num_leaves
    3
    """

    __slots__ = ("container", "data", "children", "num_leaves", "_hash")
    num_leaves: int

    def __init__(self, container: Container | None, data: Hashable,
                 children: tuple[TreeDef, ...]) -> None:
        self.container, self.data, self.children = container, data, children
        self.num_leaves = 1 if container is None else \
            sum([c.num_leaves for c in children])
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            cls = None if self.container is None else self.container.type
            self._hash = hash((cls, self.data, self.children))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (isinstance(other, TreeDef) and self.container is other.container
                and same(self.data, other.data) and self.children == other.children)

    def __reduce__(self) -> Any:
        if self.container is None:
            return "LEAF"
        return _restored, (self.container.type, self.data, self.children)

    def __deepcopy__(self, memo: Any) -> TreeDef:
        return self

    def __repr__(self) -> str:
        return f"TreeDef({self})"

    def __str__(self) -> str:
        if self.container is None:
            return "*"
        return self.container.show(self.data, [str(c) for c in self.children])

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this structure with these leaves."""
        return unflatten(self, leaves)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of ``tree`` that stand where this structure has leaves."""
        return flatten_up_to(self, tree)


LEAF = TreeDef(None, None, ())


def _restored(cls: type, data: Hashable, children: tuple[TreeDef, ...]) -> TreeDef:
    row = _CONTAINERS.get(cls) or _named_tuple(cls)
    if row is None:
        raise PytreeError(f"expected {cls.__name__} to be a pytree, as where it was pickled",
                          hint="register it before unpickling, in the module that defines it")
    return TreeDef(row, data, children)


# ---- the container types ----------------------------------------------------------------------


def _numbered(data: Any, n: int) -> Sequence[Key]:
    return [Key(i) for i in range(n)]


def _flat(data: Any, n: int) -> Sequence[Key]:
    return [Key(i, "flat") for i in range(n)]


def _named(data: Any, n: int) -> Sequence[Key]:
    return [Key(k) for k in data]


def _show_dict(data: Any, texts: list[str]) -> str:
    return "{" + ", ".join(f"{k!r}: {t}" for k, t in zip(data, texts)) + "}"


def _take_dict(x: dict[Any, Any]) -> tuple[Sequence[Any], Hashable]:
    try:
        keys = sorted(x)
    except TypeError as e:
        raise PytreeError(f"expected dict keys that can be sorted, got {list(x)}",
                          hint="use keys of one type, such as str") from e
    return [x[k] for k in keys], tuple(keys)


def _take_defaultdict(x: Any) -> tuple[Sequence[Any], Hashable]:
    values, keys = _take_dict(x)
    return values, (x.default_factory, keys)


_CONTAINERS: dict[type, Container] = {}


def _add(cls: type, take: Any, make: Any, keys: Any, show: Any) -> None:
    _CONTAINERS[cls] = Container(cls, take, make, keys, show)


def _items(x: Any) -> tuple[Sequence[Any], Hashable]:
    return x, None


_add(tuple, _items, lambda d, xs: tuple(xs), _numbered,
     lambda d, texts: f"({', '.join(texts)}{',' * (len(texts) == 1)})")
_add(list, _items, lambda d, xs: list(xs), _numbered,
     lambda d, texts: f"[{', '.join(texts)}]")
_add(dict, _take_dict, lambda d, xs: dict(zip(d, xs)), _named, _show_dict)
_add(type(None), lambda x: ((), None), lambda d, xs: None, _numbered, lambda d, texts: "None")
_add(collections.OrderedDict, lambda x: (list(x.values()), tuple(x)),
     lambda d, xs: collections.OrderedDict(zip(d, xs)), _named,
     lambda d, texts: f"OrderedDict({_show_dict(d, texts)})")
_add(collections.defaultdict, _take_defaultdict,
     lambda d, xs: collections.defaultdict(d[0], zip(d[1], xs)),
     lambda d, n: _named(d[1], n), lambda d, texts: f"defaultdict({_show_dict(d[1], texts)})")


def _container(x: Any) -> Container | None:
    """The row of a value's type; None for a leaf. Named tuples get theirs when first seen."""
    row = _CONTAINERS.get(type(x))
    return _named_tuple(type(x)) if row is None and isinstance(x, tuple) else row


def _named_tuple(cls: type) -> Container | None:
    fields = getattr(cls, "_fields", None)
    if fields is None:
        return None
    row = _CONTAINERS[cls] = Container(
        cls, _items, lambda d, xs: cls(*xs), lambda d, n: [Key(f, "attr") for f in fields],
        lambda d, texts: _show_fields(cls, zip(fields, texts)))
    return row


def is_named_tuple(row: Container) -> bool:
    """Whether the children are all fields in order: not those of a type that was registered."""
    return row.take is _items and row.type not in (tuple, list)


def _show_fields(cls: type, fields: Iterable[tuple[str, str]]) -> str:
    return f"{cls.__name__}({', '.join(f'{k}={t}' for k, t in fields)})"


# ---- registration -----------------------------------------------------------------------------


def _register(row: Container) -> None:
    if row.type in _CONTAINERS:
        raise PytreeError(f"expected a type that is not a pytree yet, got {row.type.__name__}",
                          hint="register each type once")
    _CONTAINERS[row.type] = row


def register_pytree_node(cls: type, flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
                         unflatten_func: Callable[[Any, Any], Any],
                         flatten_with_keys_func: Callable[[Any], Any] | None = None) -> None:
    """Make ``cls`` a container.

    Args:
        cls: the type.
        flatten_func: of a node: (its children, hashable data).
        unflatten_func: of (data, children): the node.
        flatten_with_keys_func: of a node: ((key, child) pairs, data); by default the keys of
            children are their numbers.

    >>> class Pair:
    ...     def __init__(self, a, b): self.a, self.b = a, b
    >>> register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, xs: Pair(*xs))
    >>> leaves(Pair(1, (2, 3)))
    [1, 2, 3]
    """
    def take(x: Any) -> tuple[Sequence[Any], Hashable]:
        if flatten_with_keys_func is None:
            children, data = flatten_func(x)
            return tuple(children), data
        pairs, data = flatten_with_keys_func(x)
        keys = [k if isinstance(k, Key) else Key(k) for k, _ in pairs]
        return tuple(child for _, child in pairs), (tuple(keys), data)

    keyed = flatten_with_keys_func is not None
    _register(Container(
        cls, take, lambda d, xs: unflatten_func(d[1] if keyed else d, tuple(xs)),
        (lambda d, n: d[0]) if keyed else _flat,
        lambda d, texts: f"{cls.__name__}({', '.join(texts)})"))


def register_pytree_node_class(cls: type[T]) -> type[T]:
    """Class decorator: the class has ``tree_flatten(self)`` and ``tree_unflatten(data, xs)``.

    Args:
        cls: has methods ``tree_flatten(self)`` and ``tree_unflatten(cls, data, children)``.

    Returns:
        The class.

    >>> @register_pytree_node_class
    ... class Pair:
    ...     def __init__(self, a, b): self.a, self.b = a, b
    ...     def tree_flatten(self): return (self.a, self.b), None
    ...     @classmethod
    ...     def tree_unflatten(cls, data, children): return cls(*children)
    >>> leaves(Pair(1, [2]))
    [1, 2]
    """
    register_pytree_node(cls, lambda x: x.tree_flatten(),
                         cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def register_dataclass(nodetype: type[T], data_fields: Sequence[str] | None = None,
                       meta_fields: Sequence[str] | None = None) -> type[T]:
    """Make a dataclass a container whose ``data_fields`` are children; also a class decorator.

    Without lists, fields are children except those with ``metadata={"static": True}``.
    ``meta_fields`` hold hashable values that belong to the structure.

    Args:
        nodetype: a dataclass, or a class whose fields are named.
        data_fields: fields that are children; by default all but ``meta_fields``.
        meta_fields: fields that are data.

    Returns:
        The class.

    Raises:
        ArgumentError: fields that the dataclass does not have, or that are named twice.

    >>> import dataclasses
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     w: float
    ...     name: str = dataclasses.field(default="", metadata={"static": True})
    >>> map(lambda x: x + 1, Layer(1.0, "first"))
    Layer(w=2.0, name='first')
    """
    fields = getattr(nodetype, "__dataclass_fields__", {})
    if data_fields is None or meta_fields is None:
        static = {n for n, f in fields.items() if f.metadata.get("static", False)}
        meta_fields = [n for n in fields if n in static] if meta_fields is None else meta_fields
        data_fields = [n for n in fields if n not in meta_fields]
    children, meta = tuple(data_fields), tuple(meta_fields)
    if fields and set(children + meta) != {n for n, f in fields.items() if f.init}:
        raise PytreeError(f"expected the fields of {nodetype.__name__}, {tuple(fields)}; got "
                          f"{children} and {meta}", hint="name each field in one of the lists")

    def make(data: Any, xs: Sequence[Any]) -> Any:
        return nodetype(**dict(zip(children, xs)), **dict(zip(meta, data)))

    _register(Container(
        nodetype,
        lambda x: ([getattr(x, n) for n in children], tuple([getattr(x, n) for n in meta])),
        make, lambda d, n: [Key(c, "attr") for c in children],
        lambda d, texts: _show_fields(nodetype, [*zip(children, texts),
                                                 *zip(meta, [repr(v) for v in d])])))
    return nodetype


# ---- flatten, unflatten, map ------------------------------------------------------------------


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeDef]:
    """The leaves of a tree in order, and its structure.

    ``is_leaf(x)`` true keeps a container whole.

    Args:
        tree: a pytree: nested tuples, lists, dicts and registered types.
        is_leaf: tells of a node that it is taken for a leaf.

    Returns:
        (leaves, structure).

    >>> flatten({"b": 2, "a": (1, None)})[0]
    [1, 2]
    """
    out: list[Any] = []
    return out, _flatten(tree, out, is_leaf, 0)


def _flatten(tree: Any, out: list[Any], is_leaf: IsLeaf | None, depth: int) -> TreeDef:
    row = _container(tree)
    if row is None or (is_leaf is not None and is_leaf(tree)):
        out.append(tree)
        return LEAF
    if depth == MAX_DEPTH:
        raise NestingError(f"expected a tree at most {MAX_DEPTH} containers deep, got a "
                           f"{type(tree).__name__} below that",
                           hint="put the arrays into one list, or stack them")
    children, data = row.take(tree)
    get, defs = _CONTAINERS.get, []
    for child in children:
        if get(type(child)) is None and not isinstance(child, tuple):
            out.append(child)
            defs.append(LEAF)
        else:
            defs.append(_flatten(child, out, is_leaf, depth + 1))
    return TreeDef(row, data, tuple(defs))


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The tree with this structure and these leaves.

    Args:
        treedef: a structure, as ``structure`` returns it.
        leaves: its leaves, from left to right.

    Returns:
        A pytree.

    Raises:
        PytreeError: more or fewer leaves than the structure has.

    >>> unflatten(structure({"a": 0, "b": (0, 0)}), [1, 2, 3])
    {'a': 1, 'b': (2, 3)}
    """
    given = list(leaves)
    if len(given) != treedef.num_leaves:
        raise PytreeError(f"expected {treedef.num_leaves} leaves for {treedef}, got {len(given)}")
    return _unflatten(treedef, iter(given))


def _unflatten(treedef: TreeDef, leaves: Any) -> Any:
    row = treedef.container
    if row is None:
        return next(leaves)
    return row.make(treedef.data, [next(leaves) if c is LEAF else _unflatten(c, leaves)
                                   for c in treedef.children])


def leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a tree, in order.

    Args:
        tree: a pytree: nested tuples, lists, dicts and registered types.
        is_leaf: tells of a node that it is taken for a leaf.

    Returns:
        A list.

    >>> leaves([1, {"x": 2}, None])
    [1, 2]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeDef:
    """The structure of a tree.

    Args:
        tree: a pytree: nested tuples, lists, dicts and registered types.
        is_leaf: tells of a node that it is taken for a leaf.

    Returns:
        A TreeDef, which is hashable.

    >>> structure([1, (2, 3)])
    TreeDef([*, (*, *)])
    """
    return flatten(tree, is_leaf)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None) -> Any:
    """``f`` applied to each leaf, with the values that stand there in the ``rest``.

    Args:
        f: of one leaf of each tree.
        tree: a pytree: nested tuples, lists, dicts and registered types.
        rest: more trees; they have the structure of the first, or end in trees where it has
            leaves.
        is_leaf: tells of a node that it is taken for a leaf.

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
    """The subtrees of ``tree`` where ``treedef`` has leaves; the tree goes at least so deep.

    Raises:
        PytreeError: names the path at which the structures differ.
    """
    out: list[Any] = []
    _up_to(treedef, tree, (), out)
    return out


def _up_to(treedef: TreeDef, tree: Any, path: Path, out: list[Any]) -> None:
    row = treedef.container
    if row is None:
        out.append(tree)
        return
    if _container(tree) is not row:
        raise PytreeError(f"expected {treedef} at {_place(path)}, got {_short(tree)}",
                          hint="give trees of one structure")
    children, data = row.take(tree)
    if data != treedef.data or len(children) != len(treedef.children):
        raise PytreeError(f"expected {treedef} at {_place(path)}, got {_short(tree)}",
                          hint="give trees of one structure")
    for key, child_def, child in zip(row.keys(data, len(children)), treedef.children, children):
        if child_def is LEAF:
            out.append(child)
        else:
            _up_to(child_def, child, (*path, key), out)


def _place(path: Path) -> str:
    return f"path {keystr(path)}" if path else "the root"


def _short(tree: Any) -> str:
    return f"{type(tree).__name__} {structure(tree)}" if _container(tree) is not None else \
        f"a leaf of type {type(tree).__name__}"


# ---- paths ------------------------------------------------------------------------------------


def paths(treedef: TreeDef) -> list[Path]:
    """The path of each leaf.

    >>> [keystr(p) for p in paths(structure({"a": [1, 2]}))]
    ["['a'][0]", "['a'][1]"]
    """
    out: list[Path] = []
    _paths(treedef, (), out)
    return out


def _paths(treedef: TreeDef, path: Path, out: list[Path]) -> None:
    if treedef.container is None:
        out.append(path)
        return
    keys = treedef.container.keys(treedef.data, len(treedef.children))
    for key, child in zip(keys, treedef.children):
        _paths(child, (*path, key), out)


def keystr(path: Path) -> str:
    """A path as one writes it behind a variable: ``['layers'][0].w``.

    Args:
        path: as ``flatten_with_path`` returns it.

    Returns:
        A str, such as ``['w'][0]``.

    >>> keystr(paths(structure({"w": [0, 0]}))[1])
    "['w'][1]"
    """
    return "".join([str(k) for k in path])


def flatten_with_path(tree: Any, is_leaf: IsLeaf | None = None
                      ) -> tuple[list[tuple[Path, Any]], TreeDef]:
    """(path, leaf) pairs and the structure.

    Args:
        tree: a pytree: nested tuples, lists, dicts and registered types.
        is_leaf: tells of a node that it is taken for a leaf.

    Returns:
        (list of (path, leaf) pairs, structure).

    >>> [(keystr(path), leaf) for path, leaf in flatten_with_path({"a": (1, 2)})[0]]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    xs, treedef = flatten(tree, is_leaf)
    return list(zip(paths(treedef), xs)), treedef


def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any,
                  is_leaf: IsLeaf | None = None) -> Any:
    """``f(path, leaf, ...)`` applied to each leaf.

    Args:
        f: of a path and one leaf of each tree.
        tree: a pytree: nested tuples, lists, dicts and registered types.
        rest: more trees of the same structure.
        is_leaf: tells of a node that it is taken for a leaf.

    Returns:
        A pytree of the structure of the first.

    Raises:
        PytreeError: trees of different structures.

    >>> map_with_path(lambda p, x: keystr(p), {"a": [1]})
    {'a': ["['a'][0]"]}
    """
    xs, treedef = flatten(tree, is_leaf)
    columns = [flatten_up_to(treedef, other) for other in rest]
    rows = zip(paths(treedef), xs, *columns)
    return _unflatten(treedef, iter([f(*row) for row in rows]))


def difference(want: TreeDef, got: TreeDef, path: Path = ()) -> str:
    """Where two structures first differ, in words; empty where they do not.

    >>> difference(structure({"a": [1, 2]}), structure({"a": [1]}))
    "at ['a']: expected [*, *], got [*]"
    """
    if want == got:
        return ""
    same_kind = want.container is not None and want.container is got.container \
        and want.data == got.data and len(want.children) == len(got.children)
    if same_kind and want.container is not None:
        keys = want.container.keys(want.data, len(want.children))
        for key, a, b in zip(keys, want.children, got.children):
            if a != b:
                return difference(a, b, (*path, key))
    return f"at {keystr(path) or 'the root'}: expected {want}, got {got}"
