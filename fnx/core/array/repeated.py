"""The eager dispatch cache: from the signature of a call straight to its program.

    jnp.sum(x, axis=0)   ->   (sum, shape, dtype and weak type of x, "axis", int, 0)
    first call           ->   nodes, closed over memory, to a program; cached under that key
    later calls          ->   the program on the memory of x: no node is created

A key holds everything that a result may depend on: the function, the avals of the Arrays and which
of them share memory, all other operands by value, and the configuration. So a call is cached only
if its operands are Arrays and plain values, and it reads no array value, gives no warning and has
no other side effect (``note`` reports one that did). The program must take its memory from the
arguments only. A float in arithmetic (``x * rate``) is data: another value hits the same entry.

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

LIMIT, BYTES = 1024, 96 * MEGABYTE  # the largest number of cached calls, and size of their programs
PARTS = 256   # the longest key

_placing = False  # a copy of ``config.placing``, which takes longer to read

Run = Callable[[Sequence[Any]], Sequence[Any]]
_BY_VALUE = frozenset({int, bool, str, type(None), type(Ellipsis)})
_TYPES = (type, np.dtype, DType)


class EagerCall:
    """A cache miss: a call that may be cached once its program is known.

    Attributes:
        memory: the storages of its Arrays, in order.
        key: all that its result depends on besides their values; None: it cannot be cached.
    """

    __slots__ = ("key", "memory", "_noted")

    def __init__(self, key: tuple[Any, ...] | None, memory: list[Any]) -> None:
        self.key, self.memory, self._noted = key, memory, noted.count

    def keep(self, out: Any, pending: Sequence[Array], captures: Sequence[UOp], ins: Sequence[Any],
             run: Run, nbytes: int) -> None:
        """Cache the program of this call, of ``nbytes`` bytes.

        Run on ``ins``, the memory of ``captures``, it computes the ``pending`` arrays of ``out``.
        """
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
_MIDDLE = 1e-30, 1e30  # magnitudes that are neither 0 nor infinite in the types of _LIFTING
_LIFTING = (dtypes.float32, dtypes.float64)
_arithmetic: set[Any] = set()


def lift_numbers(f: Any) -> None:
    """Treat a float among the two operands of f as data: the program does not depend on it."""
    _arithmetic.add(f)


def _with_lifted(f: Any, args: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]] | None:
    """Return key and memory of a call on an Array and a float that is data; None if it is not."""
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
    """Return the position of the number among the captures.

    None if the call has no lifted number, False if no capture matches it.
    """
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
    """Wrap a program for calls whose last operand is a number, passed to it at ``at``."""
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
    """Return the function from the memory of a call to its result."""
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
    """Wrap a program that has memory of its own; that of a call is filled in at ``places``."""
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
    """Record that an array was placed on a device.

    If it is not the configured device, keys include the devices of arguments from now on.
    """
    global _placing
    if not _placing and name != config.device:
        config.begin_placing()
        _placing = True


def forget() -> None:
    """Clear the cache, when another evaluator is registered."""
    _calls.clear()
    _numbers.clear()
    _floats.clear()


def number(i: int) -> Array:
    """Return an int as an int32 Array, so that calls with other ints hit the same entry."""
    key = id(config.mode), i
    found = _numbers.get(key)
    return _numbers.keep(key, from_numpy(np.asarray(i, np.int32))) if found is None else found


_LONGEST = 1 << 30  # the longest axis whose indices are int32
_STATIC = frozenset({int, slice})


def numbers_as_data(x: Array, index: Any, wrapped: bool = True) -> Any:
    """Replace the ints of an index in an eager call by Arrays, so that other ints hit the cache.

    With ``wrapped``, ints that count from the end are normalized. Out-of-bounds ints remain, as
    they warn; so do the ints of slices.
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
    """Return the result of a call if it is cached, else an EagerCall."""
    if len(args) == 1 and type(args[0]) is Array and not kwargs:  # most frequent; same as below
        x, = args
        memory = [x._storage]
        key: tuple[Any, ...] = f, id(config.mode), x._shape, x._dtype, x.weak
        if memory[0] is None:
            return UNKEPT
        if _placing:
            key = (*key, placed_on(memory[0]))
    elif len(args) == 2 and type(args[0]) is type(args[1]) is Array and not kwargs:  # same as below
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
    """Like ``repeat``, for a call whose key is given instead of computed from its arguments."""
    parts = [*what, id(config.mode), *(map(placed_on, memory) if _placing else ())]
    return _again(tuple(parts), [*memory]) if _add_sharing(parts, memory) else UNKEPT


def _again(key: tuple[Any, ...], memory: list[Any]) -> Any:
    found = _calls.get(key)
    if found is None:
        return EagerCall(key, memory)
    try:
        return found[0](memory)
    except FnxError:
        return UNKEPT  # the uncached call raises it again, with its location


def _add_sharing(parts: list[Any], memory: Sequence[Any]) -> bool:
    """Add to a key which of its Arrays share memory; False if one has no memory."""
    first: dict[int, int] = {}
    for i, part in enumerate(memory):
        if part is None:
            return False
        if first.setdefault(id(part), i) != i:
            parts.append((i, first[id(part)]))
    return True


def _add(x: Any, parts: list[Any], memory: list[Any]) -> bool:
    """Add an operand to a key; False if its type cannot be part of a key."""
    kind = type(x)
    if kind is Array:
        memory.append(x._storage)
        parts += (x._shape, x._dtype, x.weak)
    elif kind in _BY_VALUE:
        parts += (kind, x)
    elif kind is float:
        if x != x:
            return False
        parts += (kind, x or str(x))  # distinguishes 0.0 from -0.0
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
    """Let calls with operands of a class be cached: ``into`` returns the parts for the key."""
    _TAKEN_APART[kind] = into
