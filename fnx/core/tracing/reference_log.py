"""What a trace does with references, as a list: the equations that jaxprs have for it.

    r[...] = x; y = r[0]     ->   swap r <- x;  get r[0] -> y

In the trace of a scope with a log, what is read is a new leaf, so that it depends on nothing but
the access, as in a jaxpr. Traces inside have no log: they take the value, and return the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.array.array import Array
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.record import Record


class Operand(Record):
    """An array in an index: the number of the operand."""

    number: int


class Access(Record):
    """An access of a reference.

    Attributes:
        kind: new_ref, get, swap, addupdate or freeze.
        ref: the leaf that stands for the reference; none for new_ref.
        index: the index, in which an array is an Operand; None: the whole array.
        operands: the arrays of the index, then the value.
        result: the leaf of what is read; for new_ref, what stands for the reference.
    """

    kind: str
    ref: UOp | None
    index: tuple[Any, ...] | None
    operands: tuple[Array, ...]
    result: UOp


class ReferenceLog:
    """The accesses of references in one trace, and the leaves that stand for references.

    Args:
        arguments: the leaves that are the values of references among the arguments.
    """

    def __init__(self, arguments: Sequence[UOp] = ()) -> None:
        self._arguments = frozenset(arguments)
        self.accesses: list[Access] = []
        self.leaves: list[UOp] = []  # of references from outside of the trace
        self._of_refs: dict[int, UOp] = {}
        self._refs: list[Any] = []  # so that no other one gets the id of one

    def adopt(self, ref: Any, value: Array) -> None:
        """Let a leaf, its value, stand for a reference from outside."""
        self.leaves.append(value._node)
        self._enter(ref, value._node)

    def create(self, ref: Any, value: Array) -> None:
        """Record that a reference is made of a value, unless it stands for an argument."""
        if value._node in self._arguments:
            self.adopt(ref, value)
            return
        self._enter(ref, self._add("new_ref", None, None, (value,), value))

    def knows(self, ref: Any) -> bool:
        """Return whether a leaf stands for a reference."""
        return id(ref) in self._of_refs

    def read(self, ref: Any, index: Any, like: Array, kind: str = "get") -> Array:
        """Record a read of the part at an index, which is ``like`` an array; return it."""
        entries, arrays = _operands(index)
        return Array(self._add(kind, ref, entries, arrays, like))

    def write(self, ref: Any, index: Any, value: Array, kind: str = "swap") -> Array:
        """Record that a value is written or added at an index; return what was there."""
        entries, arrays = _operands(index)
        return Array(self._add(kind, ref, entries, (*arrays, value), value))

    def arrays(self) -> list[Array]:
        """Return the operands of all accesses."""
        return [x for access in self.accesses for x in access.operands]

    def _enter(self, ref: Any, leaf: UOp) -> None:
        self._of_refs[id(ref)] = leaf
        self._refs.append(ref)

    def _add(self, kind: str, ref: Any, index: tuple[Any, ...] | None,
             operands: Sequence[Array], like: Array) -> UOp:
        trace = scope.innermost()
        assert trace is not None
        leaf = trace.leaf(like._dtype, like.shape)
        of_ref = None if ref is None else self._of_refs[id(ref)]
        self.accesses.append(Access(kind, of_ref, index, tuple(operands), leaf))
        return leaf


def open_log() -> ReferenceLog | None:
    """Return the log of the innermost trace, if it has one."""
    trace = scope.innermost()
    log: ReferenceLog | None = None if trace is None else trace.log
    return log


def _operands(index: Any) -> tuple[tuple[Any, ...] | None, tuple[Array, ...]]:
    """Return an index with Operands in the place of arrays, and the arrays."""
    if index is None or index is Ellipsis or isinstance(index, tuple) and not index:
        return None, ()
    arrays: list[Array] = []
    entries: list[Any] = []
    for entry in index if isinstance(index, tuple) else (index,):
        if type(entry) is Array:
            arrays.append(entry)
            entry = Operand(len(arrays) - 1)
        entries.append(entry)
    return tuple(entries), tuple(arrays)
