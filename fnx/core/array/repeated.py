"""Eager calls that were made before: from the signature straight to the program.

    jnp.sum(x, axis=0)   ->   (sum, shape, dtype and weak type of x, "axis", int, 0)
    first                ->   nodes, closed over memory, to a program; kept under that key
    then                 ->   the program on the memory of x: no node is made

A key holds all that a result may depend on: the function, the kinds of the Arrays and which of
them share memory, everything else by value, the configuration. So only calls are kept whose
operands are Arrays and plain values, that read no value of an array, warn of nothing and do
nothing besides their results: ``note`` says that one did, and the program must take its memory
from the arguments only. A number in arithmetic (``x * rate``) is data: another one is the same
call.

>>> import fnx.numpy as jnp
>>> x = jnp.asarray([1.0, 2.0])
>>> [float((x + 1).sum()) for _ in range(2)]
[5.0, 5.0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fnx.core import dtypes, ops
from fnx.core.array import scope, storage, tree
from fnx.core.array.array import Array, from_numpy, from_storage
from fnx.core.array.aval import Aval
from fnx.core.array.committed import placed_on
from fnx.core.array.storage import noted
from fnx.core.cache import MEGABYTE, Cache
from fnx.core.config import config
from fnx.core.dtypes import DType
from fnx.core.errors import FnxError
from fnx.core.uop import UOp, current_site

LIMIT, BYTES = 1024, 96 * MEGABYTE  # calls that are kept, and of their programs
PARTS = 256   # of a key

_placing = False  # as ``config.placing``, which takes longer to read

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
        lifted = _lifted_place(self.memory, captures)
        if lifted is False:
            return
        number = {id(s): i for i, s in reversed([*enumerate(self.memory)])}
        places: list[tuple[int, int]] = []
        for at, (node, part) in enumerate(zip(captures, ins)):
            if id(part) in number:
                places.append((at, number[id(part)]))
            elif node.op is ops.BUFFER:
                return
        leaves, out_tree = tree.flatten(out)
        if len(leaves) != len(pending) or any(a is not b for a, b in zip(leaves, pending)):
            return
        if lifted is not None:
            run = _with_number(run, lifted, ins, places)
        elif len(ins) != len(self.memory) or places != [(i, i) for i in range(len(ins))]:
            run = _with_given(run, [None if id(s) in number else s for s in ins], places)
        made = _repeated(run, [x._aval for x in pending], out_tree)
        _calls.keep(self.key, (made, nbytes))


UNKEPT = EagerCall(None, [])
_MIDDLE = 1e-30, 1e30  # sizes of numbers that are neither 0 nor infinite in these types
_LIFTING = (dtypes.float32, dtypes.float64)
_arithmetic: set[Any] = set()


def lift_numbers(f: Any) -> None:
    """Let a float among the two operands of f be data: its meaning does not hang on the value."""
    _arithmetic.add(f)


def _with_lifted(f: Any, args: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]] | None:
    """Key and memory of a call of an Array and a number that may be any; None: it may not be."""
    a, b = args
    first = type(a) is float
    x, v = (b, a) if first else (a, b)
    size = abs(v)
    if type(x) is not Array or x._dtype not in _LIFTING or x._storage is None or \
            not _MIDDLE[0] < size < _MIDDLE[1] or -1e-6 < size - 1 < 1e-6:
        return None
    where = placed_on(x._storage) if _placing else None
    return (f, id(config.mode), x._shape, x._dtype, x.weak, "number", first, where), \
        [x._storage, v]


def _lifted_place(memory: Sequence[Any], captures: Sequence[UOp]) -> int | None | Literal[False]:
    """Which capture is the number of a call: None where it has none, False where none is."""
    if not memory or type(memory[-1]) is not float:
        return None
    places = [i for i, node in enumerate(captures) if node.op is ops.CONST]
    if len(places) != 1:
        return False
    node = captures[places[0]]
    same = node.dtype in _LIFTING and node.shape == () and \
        ops.const_value(node) == np.array(memory[-1], node.dtype.np)
    return places[0] if same else False


def _with_number(run: Run, at: int, ins: Sequence[Any],
                 places: Sequence[tuple[int, int]]) -> Run:
    """A program on the memory of a call whose last part is a number, which goes to ``at``."""
    kind = np.float32 if ins[at].nbytes == 4 else np.float64

    def lifted(memory: Sequence[Any]) -> Sequence[Any]:
        filled: list[Any] = [None] * len(ins)
        for place, i in places:
            filled[place] = memory[i]
        value = memory[-1]
        found = _floats.get((value, kind))
        if found is None:
            found = _floats.keep((value, kind), storage.put(np.array(value, kind)))
        filled[at] = found
        return run(filled)
    return lifted


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
_floats: Cache[tuple[float, type], Any] = Cache("numbers among operands", 256)


def placed_on_device(name: str) -> None:
    """An array was placed there: where that is not the configured device, a call is another one
    from now on where its arguments were placed elsewhere."""
    global _placing
    if not _placing and name != config.device:
        config.begin_placing()
        _placing = True


def forget() -> None:
    """Keep no call: for who registers another evaluator."""
    _calls.clear()
    _numbers.clear()
    _floats.clear()


def number(i: int) -> Array:
    """An int32 in memory: with it in place of i, a call with another one is the same call."""
    key = id(config.mode), i
    found = _numbers.get(key)
    return _numbers.keep(key, from_numpy(np.asarray(i, np.int32))) if found is None else found


_LONGEST = 1 << 30  # axis whose numbers are int32
_STATIC = frozenset({int, slice})


def numbers_as_data(x: Array, index: Any, wrapped: bool = True) -> Any:
    """An index of an eager call with its numbers as Arrays, so that others are the same call.

    ``wrapped``: those that count from the end become those that they mean.

    Those outside of their axis stay, and are told of; so do those of which slices are made.
    """
    shape = x._shape
    if x._storage is None or scope.is_open() or current_site.site is not None:
        return index
    if type(index) is int:
        n = shape[0] if shape else 0
        return number(index % n if wrapped else index) if -n <= index < n <= _LONGEST else index
    if type(index) is not tuple or not _STATIC.issuperset(map(type, index)) \
            or len(index) > len(shape):
        return index
    for i, n in zip(index, shape):
        if type(i) is int and not -n <= i < n <= _LONGEST:
            return index
    return tuple([number(i % n if wrapped else i) if type(i) is int else i
                  for i, n in zip(index, shape)])


def repeat(f: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of a call, where one like it was kept; else an EagerCall."""
    if len(args) == 1 and type(args[0]) is Array and not kwargs:  # most often; as below
        x, = args
        memory = [x._storage]
        key: tuple[Any, ...] = f, id(config.mode), x._shape, x._dtype, x.weak
        if memory[0] is None:
            return UNKEPT
        if _placing:
            key = (*key, placed_on(memory[0]))
    elif len(args) == 2 and type(args[0]) is type(args[1]) is Array and not kwargs:  # as below
        x, y = args
        memory = [x._storage, y._storage]
        if memory[0] is None or memory[1] is None:
            return UNKEPT
        key = (f, id(config.mode), x._shape, x._dtype, x.weak, y._shape, y._dtype, y.weak,
               memory[0] is memory[1])
        if _placing:
            key = (*key, placed_on(memory[0]), placed_on(memory[1]))
    elif len(args) == 2 and f in _arithmetic and float in (type(args[0]), type(args[1])) and \
            (lifted := _with_lifted(f, args)) is not None:
        key, memory = lifted
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
        if _placing:
            parts += map(placed_on, memory)
        key = tuple(parts)
    return _again(key, memory)


def repeat_known(what: Sequence[Any], memory: Sequence[Any]) -> Any:
    """As ``repeat``, of a call that is known by something else than its arguments."""
    parts = [*what, id(config.mode), *(map(placed_on, memory) if _placing else ())]
    return _again(tuple(parts), [*memory]) if _add_sharing(parts, memory) else UNKEPT


def _again(key: tuple[Any, ...], memory: list[Any]) -> Any:
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
    for i, part in enumerate(memory):
        if part is None:
            return False
        if first.setdefault(id(part), i) != i:
            parts.append((i, first[id(part)]))
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
