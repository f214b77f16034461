"""Eager calls that were made before: from the signature straight to the program.

    jnp.sum(x, axis=0)   ->   (sum, shape, dtype and weak type of x, "axis", int, 0)
    first                ->   nodes, closed over memory, to a program; kept under that key
    then                 ->   the program on the memory of x: no node is made

A key holds all that a result may depend on: the function, the kinds of the Arrays and which of
them share memory, everything else by value, the configuration. So only calls are kept whose
operands are Arrays and plain values, that read no value of an array, warn of nothing and do
nothing besides their results: ``note`` says that one did, and the program must take its memory
from the arguments only.

>>> import fnx.numpy as jnp
>>> x = jnp.asarray([1.0, 2.0])
>>> [float((x + 1).sum()) for _ in range(2)]
[5.0, 5.0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core import ops
from fnx.core.array import tree
from fnx.core.array.array import Array, from_numpy, from_storage
from fnx.core.array.aval import Aval
from fnx.core.array.storage import noted
from fnx.core.cache import MEGABYTE, Cache
from fnx.core.config import config
from fnx.core.dtypes import DType
from fnx.core.errors import FnxError
from fnx.core.uop import UOp

LIMIT, BYTES = 1024, 96 * MEGABYTE  # calls that are kept, and of their programs
PARTS = 256   # of a key

Run = Callable[[Sequence[Any]], Sequence[Any]]
_BY_VALUE = frozenset({int, bool, str, type(None), type(Ellipsis)})
_TYPES = (type, np.dtype, DType)


class EagerCall:
    """A call that may be kept once it is known what it computes.

    Attributes:
        memory: storages of its Arrays, in order.
        key: what its result depends on besides their values; None: on more than can be said.
    """

    __slots__ = ("key", "memory", "_noted")

    def __init__(self, key: tuple[Any, ...] | None, memory: list[Any]) -> None:
        self.key, self.memory, self._noted = key, memory, noted.count

    def keep(self, out: Any, pending: Sequence[Array], captures: Sequence[UOp], ins: Sequence[Any],
             run: Run, nbytes: int) -> None:
        """Remember the program of this call, of so many bytes: run on ``ins``, of ``captures``,
        it gives what is ``pending`` in the result."""
        if self.key is None or self._noted != noted.count:
            return
        number = {id(s): i for i, s in reversed([*enumerate(self.memory)])}
        places: list[tuple[int, int]] = []
        for at, (node, storage) in enumerate(zip(captures, ins)):
            if id(storage) in number:
                places.append((at, number[id(storage)]))
            elif node.op is ops.BUFFER:
                return
        leaves, out_tree = tree.flatten(out)
        if len(leaves) != len(pending) or any(a is not b for a, b in zip(leaves, pending)):
            return
        if len(ins) != len(self.memory) or places != [(i, i) for i in range(len(ins))]:
            run = _with_given(run, [None if id(s) in number else s for s in ins], places)
        made = _repeated(run, [x._aval for x in pending], out_tree)
        _calls.keep(self.key, (made, nbytes))


UNKEPT = EagerCall(None, [])
Repeated = Callable[[Sequence[Any]], Any]


def _repeated(run: Run, avals: Sequence[Aval], out_tree: tree.TreeDef) -> Repeated:
    """From memory of a call to its result."""
    if out_tree.container is None:
        aval, = avals
        shape, dtype, weak = aval

        def one(memory: Sequence[Any]) -> Array:
            return from_storage(run(memory)[0], shape, dtype, weak)
        return one

    def several(memory: Sequence[Any]) -> Any:
        return out_tree.unflatten([from_storage(s, *a) for s, a in zip(run(memory), avals)])
    return several


def _with_given(run: Run, given: list[Any], places: Sequence[tuple[int, int]]) -> Run:
    """A program on memory of its own, with that of a call put in places."""
    def filled(memory: Sequence[Any]) -> Sequence[Any]:
        ins = given.copy()
        for at, i in places:
            ins[at] = memory[i]
        return run(ins)
    return filled


_calls: Cache[tuple[Any, ...], tuple[Repeated, int]] = Cache(
    "eager calls", LIMIT, BYTES, lambda key, entry: entry[1])


_numbers: Cache[tuple[int, int], Array] = Cache("numbers of indices", 1024)


def forget() -> None:
    """Keep no call: for who registers another evaluator."""
    _calls.clear()
    _numbers.clear()


def number(i: int) -> Array:
    """An int32 in memory: with it in place of i, a call with another one is the same call."""
    key = id(config.mode), i
    found = _numbers.get(key)
    return _numbers.keep(key, from_numpy(np.asarray(i, np.int32))) if found is None else found


def repeat(f: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of a call, where one like it was kept; else an EagerCall."""
    if len(args) == 1 and type(args[0]) is Array and not kwargs:  # most often; as below
        x, = args
        memory = [x._storage]
        key: tuple[Any, ...] = f, id(config.mode), x._shape, x._dtype, x.weak
        if memory[0] is None:
            return UNKEPT
    else:
        memory, parts = [], [f, id(config.mode)]
        for x in args:
            if type(x) is Array:
                memory.append(x._storage)
                parts += (x._shape, x._dtype, x.weak)
            elif not _add(x, parts, memory):
                return UNKEPT
        for name, x in kwargs.items():
            parts.append(name)
            if not _add(x, parts, memory):
                return UNKEPT
        if (len(memory) > 1 or None in memory) and not _add_sharing(parts, memory):
            return UNKEPT
        key = tuple(parts)
    found = _calls.get(key)
    if found is None:
        return EagerCall(key, memory)
    try:
        return found[0](memory)
    except FnxError:
        return UNKEPT  # done again, it says where


def _add_sharing(parts: list[Any], memory: Sequence[Any]) -> bool:
    """Add to a key which of its Arrays have the same memory; False where one has none."""
    first: dict[int, int] = {}
    for i, storage in enumerate(memory):
        if storage is None:
            return False
        if first.setdefault(id(storage), i) != i:
            parts.append((i, first[id(storage)]))
    return True


def _add(x: Any, parts: list[Any], memory: list[Any]) -> bool:
    """Add an operand to a key; False where it is of a kind that keys cannot hold."""
    kind = type(x)
    if kind is Array:
        memory.append(x._storage)
        parts += (x._shape, x._dtype, x.weak)
    elif kind in _BY_VALUE:
        parts += (kind, x)
    elif kind is float:
        if x != x:
            return False
        parts += (kind, x or str(x))  # either zero
    elif kind in _TAKEN_APART:
        inside = _TAKEN_APART[kind](x)
        if len(inside) + len(parts) > PARTS:
            return False
        parts += (kind, len(inside))
        for y in inside:
            if not _add(y, parts, memory):
                return False
    else:
        if not isinstance(x, _TYPES):
            return False
        parts += (kind, x)
    return True


_TAKEN_APART: dict[type, Callable[[Any], Sequence[Any]]] = {
    tuple: tuple, list: tuple, slice: lambda s: (s.start, s.stop, s.step)}


def take_apart(kind: type, into: Callable[[Any], Sequence[Any]]) -> None:
    """Let calls be kept whose operands are of a class: it is what it is made of."""
    _TAKEN_APART[kind] = into
