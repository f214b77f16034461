"""The registry of pytree container types, built in or registered by users.

An entry says how to flatten a container, rebuild it, name its children and print it. Named
tuples are registered when first seen; an object of a type without an entry is a leaf.

>>> pytree_type(dict).flatten({"b": 1, "a": 2})
([2, 1], ('a', 'b'))
>>> print(pytree_type(int))
None
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from fnx.core.array.equality import exactly_equal
from fnx.core.support.errors import PytreeError
from fnx.core.support.record import Record, values

T = TypeVar("T")


class Key(Record):
    """One step of a path. Its ``str`` is what one writes after a variable.

    >>> str(DictKey("w")), str(GetAttrKey("w"))
    ("['w']", '.w')
    """

    @property
    def name_only(self) -> str:
        """The step without brackets or dot."""
        return str(values(self)[0])


class SequenceKey(Key):
    """The index of a child of a tuple or list.

    Args:
        idx: the index.

    >>> str(SequenceKey(1))
    '[1]'
    """

    idx: int

    def __init__(self, idx: int) -> None:
        super().__init__(idx)

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


class DictKey(Key):
    """The key of a child of a dict.

    Args:
        key: the key.

    >>> str(DictKey("w"))
    "['w']"
    """

    key: Hashable

    def __init__(self, key: Hashable) -> None:
        super().__init__(key)

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class GetAttrKey(Key):
    """The name of a field that is a child.

    Args:
        name: the name.

    >>> str(GetAttrKey("w"))
    '.w'
    """

    name: str

    def __init__(self, name: str) -> None:
        super().__init__(name)

    def __str__(self) -> str:
        return f".{self.name}"


class FlattenedIndexKey(Key):
    """The index of a child of a type that does not name its children.

    Args:
        key: the index.

    >>> str(FlattenedIndexKey(0))
    '[<flat index 0>]'
    """

    key: int

    def __init__(self, key: int) -> None:
        super().__init__(key)

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


Path = tuple[Any, ...]  # of Keys, or of the keys that a registered type gives its children


class KeyedData:
    """The data of a node whose type names its children, and their keys.

    The keys do not take part in comparison or hashing.
    """

    __slots__ = ("data", "keys")

    def __init__(self, data: Hashable, keys: tuple[Any, ...]) -> None:
        self.data, self.keys = data, keys

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyedData) and exactly_equal(self.data, other.data)

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return repr(self.data)

    def __reduce__(self) -> Any:
        return KeyedData, (self.data, self.keys)


class PytreeType(Record):
    """The registry entry of a container type.

    ``take(x) -> (children, data)`` flattens one level: the children in order, and hashable data
    for everything else. ``make(data, children)`` rebuilds the container. ``keys(data, n)`` returns
    the keys of n children. ``show(data, texts)`` prints it with ``texts`` for the children.
    """

    kind: type
    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    unflatten: Callable[[Any, Sequence[Any]], Any]
    keys: Callable[[Any, int], Sequence[Any]]
    format: Callable[[Any, list[str]], str]


PYTREE_TYPES: dict[type, PytreeType] = {}
# containers that users see as leaves; transforms see their children
OPAQUE_TYPES: set[type] = set()


def is_opaque(*where: Any) -> bool:
    """Whether a node, the last argument, is a leaf for users."""
    return type(where[-1]) in OPAQUE_TYPES


def _register(kind: type, take: Any, make: Any, keys: Any, show: Any) -> None:
    if kind in PYTREE_TYPES:
        raise PytreeError(f"expected a type that is not a pytree yet, got {kind.__name__}",
                          hint="register each type once")
    PYTREE_TYPES[kind] = PytreeType(kind, take, make, keys, show)


# ---- the container types ----------------------------------------------------------------------


def _index_keys(data: Any, n: int) -> Sequence[Key]:
    return [SequenceKey(i) for i in range(n)]


def _flat_index_keys(data: Any, n: int) -> Sequence[Key]:
    return [FlattenedIndexKey(i) for i in range(n)]


def _dict_keys(data: Any, n: int) -> Sequence[Key]:
    return [DictKey(k) for k in data]


def _format_dict(data: Any, texts: list[str]) -> str:
    return "{" + ", ".join(f"{k!r}: {t}" for k, t in zip(data, texts)) + "}"


def _flatten_dict(x: dict[Any, Any]) -> tuple[Sequence[Any], Hashable]:
    try:
        keys = sorted(x)
    except TypeError as e:
        raise PytreeError(f"expected dict keys that can be sorted, got {list(x)}",
                          hint="use keys of one type, such as str") from e
    return [x[k] for k in keys], tuple(keys)


def _flatten_defaultdict(x: Any) -> tuple[Sequence[Any], Hashable]:
    values, keys = _flatten_dict(x)
    return values, (x.default_factory, keys)


def _flatten_sequence(x: Any) -> tuple[Sequence[Any], Hashable]:
    return x, None


_register(tuple, _flatten_sequence, lambda d, xs: tuple(xs), _index_keys,
     lambda d, texts: f"({', '.join(texts)}{',' * (len(texts) == 1)})")
_register(list, _flatten_sequence, lambda d, xs: list(xs), _index_keys,
     lambda d, texts: f"[{', '.join(texts)}]")
_register(dict, _flatten_dict, lambda d, xs: dict(zip(d, xs)), _dict_keys, _format_dict)
_register(type(None), lambda x: ((), None), lambda d, xs: None, _index_keys, lambda d,
          texts: "None")
_register(collections.OrderedDict, lambda x: (list(x.values()), tuple(x)),
     lambda d, xs: collections.OrderedDict(zip(d, xs)), _dict_keys,
     lambda d, texts: f"OrderedDict({_format_dict(d, texts)})")
_register(collections.defaultdict, _flatten_defaultdict,
     lambda d, xs: collections.defaultdict(d[0], zip(d[1], xs)),
     lambda d, n: _dict_keys(d[1], n), lambda d, texts: f"defaultdict({_format_dict(d[1], texts)})")


def pytree_type(kind: type) -> PytreeType | None:
    """Return the entry of a type; None for a leaf type. Registers named tuples on first use."""
    entry = PYTREE_TYPES.get(kind)
    fields = getattr(kind, "_fields", None) if entry is None and issubclass(kind, tuple) else None
    if fields is not None:
        entry = PYTREE_TYPES[kind] = PytreeType(
            kind, _flatten_sequence, lambda d, xs: kind(*xs), lambda d,
            n: [GetAttrKey(f) for f in fields], lambda d,
            texts: _format_fields(kind, zip(fields, texts)))
    return entry


def is_named_tuple(entry: PytreeType) -> bool:
    """Whether an entry is that of an unregistered named tuple: its children are its fields."""
    return entry.flatten is _flatten_sequence and entry.kind not in (tuple, list)


def _format_fields(cls: type, fields: Iterable[tuple[str, str]]) -> str:
    return f"{cls.__name__}({', '.join(f'{k}={t}' for k, t in fields)})"


# ---- registration -----------------------------------------------------------------------------


def register_pytree_node(nodetype: type, flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
                         unflatten_func: Callable[[Any, Any], Any],
                         flatten_with_keys_func: Callable[[Any], Any] | None = None) -> None:
    """Register a type as a pytree container.

    Args:
        nodetype: the type.
        flatten_func: maps a node to (its children, hashable data).
        unflatten_func: maps (data, children) to the node.
        flatten_with_keys_func: maps a node to ((key, child) pairs, data); by default the keys of
            children are their indices.

    >>> from fnx.tree import leaves
    >>> class Pair:
    ...     def __init__(self, a, b): self.a, self.b = a, b
    >>> register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, xs: Pair(*xs))
    >>> leaves(Pair(1, (2, 3)))
    [1, 2, 3]
    """
    def flatten(x: Any) -> tuple[Sequence[Any], Hashable]:
        if flatten_with_keys_func is None:
            children, data = flatten_func(x)
            return tuple(children), data
        pairs, data = flatten_with_keys_func(x)
        pairs = list(pairs)
        return [child for _, child in pairs], KeyedData(data, tuple([key for key, _ in pairs]))

    has_keys = flatten_with_keys_func is not None
    _register(nodetype, flatten, lambda d, xs: unflatten_func(d.data if has_keys else d, tuple(xs)),
              (lambda d, n: d.keys) if has_keys else _flat_index_keys,
              lambda d, texts: f"{nodetype.__name__}({', '.join(texts)})")


def register_pytree_with_keys(
        nodetype: type, flatten_with_keys: Callable[[Any], tuple[Iterable[Any], Any]],
        unflatten_func: Callable[[Any, Any], Any],
        flatten_func: Callable[[Any], tuple[Iterable[Any], Any]] | None = None) -> None:
    """Register a type as a pytree container that names its children.

    Args:
        nodetype: the type.
        flatten_with_keys: maps a node to ((key, child) pairs, hashable data).
        unflatten_func: maps (data, children) to the node.
        flatten_func: maps a node to (its children, data); ``flatten_with_keys`` alone is enough.

    >>> import fnx
    >>> class Pair:
    ...     def __init__(self, a, b): self.a, self.b = a, b
    >>> register_pytree_with_keys(
    ...     Pair, lambda p: (((GetAttrKey("a"), p.a), (GetAttrKey("b"), p.b)), None),
    ...     lambda _, xs: Pair(*xs))
    >>> [fnx.tree_util.keystr(path) for path, _ in fnx.tree.leaves_with_path(Pair(1, [2]))]
    ['.a', '.b[0]']
    """
    register_pytree_node(nodetype, flatten_func or flatten_with_keys, unflatten_func,
                         flatten_with_keys)


def register_pytree_with_keys_class(cls: type[T]) -> type[T]:
    """Class decorator that registers a class with ``tree_flatten_with_keys``.

    Args:
        cls: has methods ``tree_flatten_with_keys(self)``, which returns ((key, child) pairs,
            data), and ``tree_unflatten(cls, data, children)``.

    Returns:
        The class.

    >>> from fnx.tree import leaves
    >>> @register_pytree_with_keys_class
    ... class Pair:
    ...     def __init__(self, a, b): self.a, self.b = a, b
    ...     def tree_flatten_with_keys(self):
    ...         return ((GetAttrKey("a"), self.a), (GetAttrKey("b"), self.b)), None
    ...     @classmethod
    ...     def tree_unflatten(cls, data, children): return cls(*children)
    >>> leaves(Pair(1, [2]))
    [1, 2]
    """
    register_pytree_with_keys(cls, lambda x: x.tree_flatten_with_keys(),
                              cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def register_static(cls: type[T]) -> type[T]:
    """Register a type as a container without children: its objects are part of the structure.

    Args:
        cls: a type whose objects are hashable and comparable.

    Returns:
        The class.

    >>> from fnx.tree import leaves
    >>> @register_static
    ... class Name(str): pass
    >>> leaves([Name("first"), 1])
    [1]
    """
    register_pytree_node(cls, lambda x: ((), x), lambda data, _: data)
    return cls


def register_pytree_node_class(cls: type[T]) -> type[T]:
    """Class decorator that registers a class with ``tree_flatten`` and ``tree_unflatten``.

    Args:
        cls: has methods ``tree_flatten(self)`` and ``tree_unflatten(cls, data, children)``.

    Returns:
        The class.

    >>> from fnx.tree import leaves
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
                       meta_fields: Sequence[str] | None = None,
                       drop_fields: Sequence[str] = ()) -> type[T]:
    """Register a dataclass whose ``data_fields`` are children; also a class decorator.

    By default fields are children, except those with ``metadata={"static": True}``.
    ``meta_fields`` hold hashable values that are part of the structure.

    Args:
        nodetype: a dataclass, or a class whose fields are listed.
        data_fields: fields that are children; by default all but ``meta_fields``.
        meta_fields: fields that are data.
        drop_fields: fields that are neither; they get their defaults.

    Returns:
        The class.

    Raises:
        PytreeError: the lists do not name each field of the dataclass exactly once, or are missing
            for a class that is none.

    >>> import dataclasses, fnx
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     w: float
    ...     name: str = dataclasses.field(default="", metadata={"static": True})
    >>> fnx.tree.map(lambda x: x + 1, Layer(1.0, "first"))
    Layer(w=2.0, name='first')
    """
    fields = getattr(nodetype, "__dataclass_fields__", {})
    if (data_fields is None or meta_fields is None) and not fields:
        raise PytreeError(f"register_dataclass: expected data_fields and meta_fields, as "
                          f"{nodetype!r} is not a dataclass", hint="list its fields")
    if data_fields is None or meta_fields is None:
        static = {n for n, f in fields.items() if f.metadata.get("static", False)}
        meta_fields = [n for n in fields if n in static] if meta_fields is None else meta_fields
        data_fields = [n for n in fields if n not in meta_fields]
    children, meta = tuple(data_fields), tuple(meta_fields)
    if fields and set(children + meta) != {n for n, f in fields.items() if f.init} - {*drop_fields}:
        raise PytreeError(f"expected the fields of {nodetype.__name__}, {tuple(fields)}; got "
                          f"{children} and {meta}", hint="name each field in one of the lists")

    def unflatten(data: Any, xs: Sequence[Any]) -> Any:
        return nodetype(**dict(zip(children, xs)), **dict(zip(meta, data)))

    _register(
        nodetype,
        lambda x: ([getattr(x, n) for n in children], tuple([getattr(x, n) for n in meta])),
        unflatten, lambda d, n: [GetAttrKey(c) for c in children],
        lambda d, texts: _format_fields(nodetype, [*zip(children, texts),
                                                   *zip(meta, [repr(v) for v in d])]))
    return nodetype
