"""Structures of exported arguments and results as JSON, with registered containers by name.

>>> structure = tree.structure({"a": 1, "b": (2, None)})
>>> encode(structure)
['dict', ['a', 'b'], '*', ['tuple', None, '*', ['none', None]]]
>>> decode(encode(structure)) == structure
True
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from fnx.core.array import tree
from fnx.core.array.pytree_registry import KeyedData, PytreeType, is_named_tuple, pytree_type
from fnx.core.array.tree import TreeDef
from fnx.core.support.errors import ArgumentError, CheckpointError
from fnx.core.support.record import Record

_PLAIN: dict[str, type] = {"tuple": tuple, "list": list, "none": type(None)}
_NAMES = {kind: name for name, kind in _PLAIN.items()}


class ContainerType(Record):
    """A registered container.

    Attributes:
        name: the name in files.
        kind: the type.
        write: auxiliary data -> bytes; None for a named tuple.
        read: bytes -> auxiliary data.
    """

    name: str
    kind: type
    write: Callable[[Any], bytes | bytearray] | None
    read: Callable[[bytearray], Any] | None


_by_kind: dict[type, ContainerType] = {}
_by_name: dict[str, ContainerType] = {}


def register(container: ContainerType) -> None:
    """Let a container be exported.

    Raises:
        ArgumentError: its type or its name is registered already.
    """
    known = _by_kind.get(container.kind) or _by_name.get(container.name)
    if known is not None and (known.name, known.kind) != (container.name, container.kind):
        raise ArgumentError(f"expected one serialization of {container.kind.__name__} under one "
                            f"name, got {container.name!r} besides {known.name!r} of "
                            f"{known.kind.__name__}", hint="use a name of the module's own")
    _by_kind[container.kind] = _by_name[container.name] = container


def encode(structure: TreeDef) -> Any:
    """Return a structure as JSON.

    Raises:
        ArgumentError: a container is not registered.
    """
    entry = structure.pytree_type
    if entry is None:
        return "*"
    children = [encode(child) for child in structure.subtrees]
    if entry.kind in _NAMES:
        return [_NAMES[entry.kind], None, *children]
    keys: Any = structure.data
    if entry.kind is dict and all(type(k) is str for k in keys):
        return ["dict", list(keys), *children]
    container = _by_kind.get(entry.kind)
    if container is None:
        raise ArgumentError(
            f"expected containers that can be written, got {entry.kind.__name__}",
            hint="call fnx.exporting.exported.register_namedtuple_serialization or "
                 "register_pytree_node_serialization (those of jax.export)")
    if container.write is None:
        return ["node", [container.name, None], *children]
    data = keys.data if isinstance(keys, KeyedData) else keys
    text = base64.b64encode(bytes(container.write(data))).decode()
    return ["node", [container.name, text], *children]


def decode(value: Any) -> TreeDef:
    """Return the structure that JSON describes; what it names must be registered.

    Raises:
        CheckpointError: it describes none.
    """
    return _decode(value, tree.MAX_DEPTH)


def _decode(value: Any, depth: int) -> TreeDef:
    if value == "*":
        return tree.LEAF
    if type(value) is not list or len(value) < 2 or depth <= 0:
        raise CheckpointError(f"expected a structure, got {repr(value)[:60]}")
    kind, data, *rest = value
    children = tuple([_decode(child, depth - 1) for child in rest])
    if kind in _NAMES.values() and data is None:
        return TreeDef(_entry(_PLAIN[kind]), None, children)
    if kind == "dict" and type(data) is list and len(data) == len(children) and \
            all(type(k) is str for k in data) and data == sorted(set(data)):
        return TreeDef(_entry(dict), tuple(data), children)
    if kind == "node" and type(data) is list and len(data) == 2:
        return _decode_node(data[0], data[1], children)
    raise CheckpointError(f"expected a structure, got {repr(value)[:60]}")


def _decode_node(name: Any, text: Any, children: tuple[TreeDef, ...]) -> TreeDef:
    container = _by_name.get(name) if type(name) is str else None
    if container is None:
        raise CheckpointError(f"expected a registered container, got {repr(name)[:60]}",
                              hint="register its serialization before reading the file")
    entry = _entry(container.kind)
    if container.read is None or text is None:
        if container.read is not None or not is_named_tuple(entry) or \
                len(children) != len(getattr(container.kind, "_fields", ())):
            raise CheckpointError(f"expected the fields of {name}, got {len(children)}")
        return TreeDef(entry, None, children)
    try:
        data = container.read(bytearray(base64.b64decode(text, validate=True)))
        example = entry.unflatten(data, [tree.unflatten(c, [None] * c.num_leaves)
                                         for c in children])
        actual = entry.flatten(example)[1]
    except Exception as error:
        raise CheckpointError(f"expected data of {name}, got what its deserialize_auxdata refuses: "
                              f"{type(error).__name__}: {str(error)[:100]}") from None
    return TreeDef(entry, actual, children)


def _entry(kind: type) -> PytreeType:
    entry = pytree_type(kind)
    assert entry is not None
    return entry
