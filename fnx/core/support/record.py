"""Record: small immutable values that are compared, hashed and printed by their fields.

The fields are the annotations of the class; an assigned value is the default:

>>> class Range(Record):
...     id: int
...     kind: str = "SEQ"
>>> Range(3)
Range(id=3, kind='SEQ')
>>> Range(3) == Range(id=3, kind="SEQ"), Range(3) == Range(4)
(True, False)
>>> match Range(3, "PAR"):
...     case Range(number, "PAR"):
...         print(number)
3

A record unpacks into the values of its fields, and ``replace`` returns a changed copy:

>>> number, kind = Range(3).replace(kind="PAR")
>>> number, kind
(3, 'PAR')

A frozen dataclass has the same meaning, but creating its class compiles five functions from
text, ten times the cost of this one, and importing fnx creates two dozen.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T", bound="Record")


@dataclass_transform(frozen_default=True)
class RecordType(type):
    """Metaclass that turns annotations into slots and stores the defaults separately."""

    _names: tuple[str, ...]
    _defaults: tuple[Any, ...]  # those of the last fields
    _setters: tuple[Any, ...]
    _key: Any

    def __new__(meta, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> RecordType:
        fields = tuple(space.get("__annotations__", ())) if bases else ()
        defaults = tuple([space.pop(f) for f in fields if f in space])
        cls = super().__new__(meta, name, bases, {**space, "__slots__": fields,
                                                  "__match_args__": fields})
        if fields:
            cls._names = fields
            cls._defaults = defaults
            cls._setters = tuple([cls.__dict__[f].__set__ for f in fields])
            cls._key = attrgetter(*fields)
        return cls


class Record(metaclass=RecordType):
    """Base class of records; see the module docstring."""

    def __init__(self, *args: Any, **named: Any) -> None:
        cls = type(self)
        missing = len(cls._setters) - len(args)
        if missing or named:
            args = _bind_args(cls, args, named) if named or not 0 < missing <= len(cls._defaults) \
                else args + cls._defaults[-missing:]
        for put, value in zip(cls._setters, args):
            put(self, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __eq__(self, other: object) -> bool:
        cls = type(self)
        if type(other) is not cls:
            return NotImplemented
        return bool(cls._key(self) == cls._key(other))

    def __hash__(self) -> int:
        return hash(type(self)._key(self))

    def __iter__(self) -> Iterator[Any]:
        return iter(values(self))

    def replace(self: T, **changes: Any) -> T:
        """Return a copy with some fields changed."""
        cls = type(self)
        return cls(**{**dict(zip(cls._names, values(self))), **changes})

    def __repr__(self) -> str:
        fields = ", ".join([f"{f}={getattr(self, f)!r}" for f in type(self)._names])
        return f"{type(self).__qualname__}({fields})"

    def __reduce__(self) -> Any:
        return type(self), values(self)


def values(record: Record) -> tuple[Any, ...]:
    """Return the values of the fields, in order."""
    return tuple([getattr(record, f) for f in type(record)._names])


def _bind_args(cls: RecordType, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values of all fields, in order, from arguments and defaults."""
    fields = cls._names
    positional = dict(zip(fields, args))
    if len(args) > len(fields) or positional.keys() & named.keys() or \
            not named.keys() <= set(fields):
        raise TypeError(f"{cls.__name__}: expected each of the fields {', '.join(fields)} once, "
                        f"got {len(args)} by position and {', '.join(named) or 'none'} by name")
    defaults = zip(fields[len(fields) - len(cls._defaults):], cls._defaults)
    bound = {**dict(defaults), **positional, **named}
    missing = [f for f in fields if f not in bound]
    if missing:
        raise TypeError(f"{cls.__name__}: expected a value for {', '.join(missing)}")
    return tuple([bound[f] for f in fields])
