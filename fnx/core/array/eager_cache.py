"""The eager dispatch cache: from the signature of a call straight to its program.

    jnp.sum(x, axis=0)   ->   (sum, shape, dtype and weak type of x, "axis", int, 0)
    first call           ->   nodes, closed over memory, to a program; cached under that key
    later calls          ->   the program on the memory of x: no node is created

A key holds everything that a result may depend on: the function, the avals of the Arrays and which
of them share memory, all other operands by value, and the configuration. So a call is cached only
if its operands are Arrays, plain values and functions of fnx (``reduce_window`` with ``lax.max``),
and it reads no array value, gives no warning and has no other side effect (``mark_impure`` reports
one that did). The program must take its memory from the arguments, or from constants that follow
from the key (``constant_array``). A float in arithmetic (``x * rate``) is data: another value hits
the same entry.

>>> import fnx.numpy as jnp
>>> x = jnp.asarray([1.0, 2.0])
>>> [float((x + 1).sum()) for _ in range(2)]
[5.0, 5.0]
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

from fnx.core.array import tree
from fnx.core.array.array import Array, from_numpy, from_storage
from fnx.core.array.aval import Aval
from fnx.core.array.placement import Placement, placed_device
from fnx.core.ir import dtypes, ops
from fnx.core.ir.cache import MEGABYTE, Cache
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp, current_loc
from fnx.core.scope import scope, storage
from fnx.core.scope.storage import constants, impure_events
from fnx.core.support.config import config
from fnx.core.support.errors import FnxError

# the largest number of cached calls, and size of their programs
MAX_CALLS, MAX_BYTES = 1024, 96 * MEGABYTE
MAX_KEY_LENGTH = 256   # the longest key

_placement_active = False  # a copy of ``config.placing``, which takes longer to read

P = ParamSpec("P")
R = TypeVar("R")
Run = Callable[[Sequence[Any]], Sequence[Any]]
_BY_VALUE = frozenset({int, bool, str, type(None), type(Ellipsis)})
_TYPES = (type, np.dtype, DType)
public_functions: weakref.WeakSet[Any] = weakref.WeakSet()  # which compute the same in each call


class CacheMiss:
    """A cache miss: a call that may be cached once its program is known.

    Attributes:
        memory: the storages of its Arrays, in order.
        key: all that its result depends on besides their values; None: it cannot be cached.
    """

    __slots__ = ("key", "memory", "_impure_count")

    def __init__(self, key: tuple[Any, ...] | None, memory: list[Any]) -> None:
        self.key, self.memory, self._impure_count = key, memory, impure_events.count

    def store(self, out: Any, pending: Sequence[Array], captures: Sequence[UOp], ins: Sequence[Any],
             run: Run, nbytes: int) -> None:
        """Cache the program of this call, of ``nbytes`` bytes.

        Run on ``ins``, the memory of ``captures``, it computes the ``pending`` arrays of ``out``.
        """
        if self.key is None or self._impure_count != impure_events.count:
            return
        position = _lifted_position(self.memory, captures)
        if position is False:
            return
        memory_index = {id(s): i for i, s in reversed([*enumerate(self.memory)])}
        bindings: list[tuple[int, int]] = []
        for at, (node, part) in enumerate(zip(captures, ins)):
            if id(part) in memory_index:
                bindings.append((at, memory_index[id(part)]))
            elif node.op is ops.BUFFER:
                if node not in constants:
                    return
                nbytes += part.nbytes
        leaves, out_tree = tree.flatten(out)
        if len(leaves) != len(pending) or any(a is not b for a, b in zip(leaves, pending)):
            return
        if position is not None:
            run = _bind_number(run, position, ins, bindings)
        elif len(ins) != len(self.memory) or bindings != [(i, i) for i in range(len(ins))]:
            run = _bind_memory(run, [None if id(s) in memory_index else s for s in ins], bindings)
        cached = _make_cached_call(run, [x._aval for x in pending], out_tree)
        _call_cache.put(self.key, (cached, nbytes))


UNCACHEABLE = CacheMiss(None, [])
_LIFT_RANGE = 1e-30, 1e30  # magnitudes that are neither 0 nor infinite in the types of _LIFT_DTYPES
_LIFT_DTYPES = (dtypes.float32, dtypes.float64)
_lifting_functions: set[Any] = set()


def lift_floats(f: Any) -> None:
    """Treat a float among the two operands of f as data: the program does not depend on it."""
    _lifting_functions.add(f)


def _lifted_key(f: Any, args: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]] | None:
    """Return key and memory of a call on an Array and a float that is data; None if it is not."""
    a, b = args
    is_float_first = type(a) is float
    x, v = (b, a) if is_float_first else (a, b)
    magnitude = abs(v)
    if type(x) is not Array or x._dtype not in _LIFT_DTYPES or x._storage is None or \
            not _LIFT_RANGE[0] < magnitude < _LIFT_RANGE[1] or -1e-6 < magnitude - 1 < 1e-6:
        return None
    device = placed_device(x._storage) if _placement_active else None
    return (f, id(config.mode), x._shape, x._dtype, x.weak, "number", is_float_first, device), \
        [x._storage, v]


def _lifted_position(memory: Sequence[Any], captures: Sequence[UOp]) -> int | None | Literal[False]:
    """Return the position of the number among the captures.

    None if the call has no lifted number, False if no capture matches it.
    """
    if not memory or type(memory[-1]) is not float:
        return None
    positions = [i for i, node in enumerate(captures) if node.op is ops.CONST]
    if len(positions) != 1:
        return False
    node = captures[positions[0]]
    is_match = node.dtype in _LIFT_DTYPES and node.shape == () and \
        ops.const_value(node) == np.array(memory[-1], node.dtype.np)
    return positions[0] if is_match else False


def _bind_number(run: Run, position: int, ins: Sequence[Any],
                 bindings: Sequence[tuple[int, int]]) -> Run:
    """Wrap a program for calls whose last operand is a number, passed to it at ``position``."""
    kind = np.float32 if ins[position].nbytes == 4 else np.float64

    def lifted(memory: Sequence[Any]) -> Sequence[Any]:
        inputs: list[Any] = [None] * len(ins)
        for slot, i in bindings:
            inputs[slot] = memory[i]
        value = memory[-1]
        number_storage = number_cache.get((value, kind))
        if number_storage is None:
            number_storage = number_cache.put((value, kind), storage.put(np.array(value, kind)))
        inputs[position] = number_storage
        return run(inputs)
    return lifted


CachedCall = Callable[[Sequence[Any]], Any]


def _make_cached_call(run: Run, avals: Sequence[Aval], out_tree: tree.TreeDef) -> CachedCall:
    """Return the function from the memory of a call to its result."""
    if out_tree.pytree_type is None:
        aval, = avals
        shape, dtype, weak = aval

        def single(memory: Sequence[Any]) -> Array:
            return from_storage(run(memory)[0], shape, dtype, weak)
        return single

    def multiple(memory: Sequence[Any]) -> Any:
        return out_tree.unflatten([from_storage(s, *a) for s, a in zip(run(memory), avals)])
    return multiple


def _bind_memory(run: Run, template: list[Any], bindings: Sequence[tuple[int, int]]) -> Run:
    """Wrap a program that has memory of its own; that of a call is filled in at ``bindings``."""
    def run_bound(memory: Sequence[Any]) -> Sequence[Any]:
        ins = template.copy()
        for at, i in bindings:
            ins[at] = memory[i]
        return run(ins)
    return run_bound


_call_cache: Cache[tuple[Any, ...], tuple[CachedCall, int]] = Cache(
    "eager calls", MAX_CALLS, MAX_BYTES, lambda key, entry: entry[1])


# What Python numbers became: arrays of indices, memory of floats, nodes (promotion.py).
number_cache: Cache[tuple[Any, ...], Any] = Cache("numbers", 2048)


def record_placement(placement: Placement) -> None:
    """Record that an array was placed on a device.

    If it is not the first one of the configured platform, keys include the devices of arguments
    from now on.
    """
    global _placement_active
    if not _placement_active and placement.location != config.device:
        config.begin_placement()
        _placement_active = True


def clear_cache() -> None:
    """Clear the cache, when another evaluator is registered."""
    _call_cache.clear()
    number_cache.clear()


def index_array(i: int) -> Array:
    """Return an int as an int32 Array, so that calls with other ints hit the same entry."""
    key = id(config.mode), i
    array: Array | None = number_cache.get(key)
    if array is None:
        array = number_cache.put(key, from_numpy(np.asarray(i, np.int32)))
    return array


_MAX_AXIS = 1 << 30  # the longest axis whose indices are int32
_STATIC_TYPES = frozenset({int, slice})
_BOUND_TYPES = frozenset({int, type(None)})
_LIFTED_INTS = range(-1 << 31, 1 << 31)


def lift_indices(x: Array, index: Any, wrap_negative: bool = True) -> Any:
    """Replace the ints of an index in an eager call by Arrays, so that other ints hit the cache.

    With ``wrap_negative``, ints that count from the end are normalized. Out-of-bounds ints remain,
    as they warn; so do the ints of slices.
    """
    shape = x._shape
    if x._storage is None or scope.is_open() or current_loc.loc is not None:
        return index
    if type(index) is int:
        n = shape[0] if shape else 0
        return index_array(index % n if wrap_negative else index) \
            if -n <= index < n <= _MAX_AXIS else index
    if type(index) is not tuple or not _STATIC_TYPES.issuperset(map(type, index)) \
            or len(index) > len(shape):
        return index
    for i, n in zip(index, shape):
        if type(i) is int and not -n <= i < n <= _MAX_AXIS:
            return index
    return tuple([index_array(i % n if wrap_negative else i) if type(i) is int else i
                  for i, n in zip(index, shape)])


def lift_slices(x: Array, index: Any) -> tuple[tuple[Array | None, ...], tuple[int, ...]] | None:
    """Return the starts of the slices of an index in an eager call as Arrays, and their lengths, so
    that other slices of the same lengths hit the cache. An axis that is whole has no start.

    None for another index, or an empty slice.
    """
    if x._storage is None or scope.is_open() or current_loc.loc is not None:
        return None
    slices = index if type(index) is tuple else (index,)
    shape = x._shape
    if len(slices) > len(shape):
        return None
    starts: list[Array | None] = []
    lengths: list[int] = []
    for s, n in zip(slices, shape):
        if type(s) is not slice or not _BOUND_TYPES.issuperset((type(s.start), type(s.stop))) or \
                s.step not in (None, 1) or n > _MAX_AXIS:
            return None
        start, stop, _ = s.indices(n)
        if start >= stop:
            return None
        starts.append(None if stop - start == n else index_array(start))
        lengths.append(stop - start)
    if all(start is None for start in starts):
        return None
    rest = len(shape) - len(starts)
    return (*starts, *(None,) * rest), (*lengths, *shape[len(starts):])


def lift_ints(**positions: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a public function whose ints for these arguments, by name and position, are data: in
    an eager call they become Arrays, so that other ints hit the cache."""
    def decorate(f: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(f)
        def lifted(*args: P.args, **kwargs: P.kwargs) -> R:
            if scope.is_open() or current_loc.loc is not None:
                return f(*args, **kwargs)
            values: Any = list(args)
            for name, i in positions.items():
                where: Any = kwargs if name in kwargs else values if i < len(values) else {}
                key = name if name in kwargs else i
                if where and type(where[key]) is int and where[key] in _LIFTED_INTS:
                    where[key] = index_array(where[key])
            return f(*values, **kwargs)
        return lifted
    return decorate


def cached_dispatch(f: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the result of a call if it is cached, else an EagerCall."""
    if len(args) == 1 and type(args[0]) is Array and not kwargs:  # most frequent; same as below
        x, = args
        memory = [x._storage]
        key: tuple[Any, ...] = f, id(config.mode), x._shape, x._dtype, x.weak
        if memory[0] is None:
            return UNCACHEABLE
        if _placement_active:
            key = (*key, placed_device(memory[0]))
    elif len(args) == 2 and type(args[0]) is type(args[1]) is Array and not kwargs:  # same as below
        x, y = args
        memory = [x._storage, y._storage]
        if memory[0] is None or memory[1] is None:
            return UNCACHEABLE
        key = (f, id(config.mode), x._shape, x._dtype, x.weak, y._shape, y._dtype, y.weak,
               memory[0] is memory[1])
        if _placement_active:
            key = (*key, placed_device(memory[0]), placed_device(memory[1]))
    elif len(args) == 2 and f in _lifting_functions and \
            float in (type(args[0]), type(args[1])) and \
            (lifted_key := _lifted_key(f, args)) is not None:
        key, memory = lifted_key
    else:
        memory, parts = [], [f, id(config.mode)]
        for x in args:
            if type(x) is Array:
                memory.append(x._storage)
                parts += (x._shape, x._dtype, x.weak)
            elif not _add_operand(x, parts, memory):
                return UNCACHEABLE
        for name, x in kwargs.items():
            parts.append(name)
            if not _add_operand(x, parts, memory):
                return UNCACHEABLE
        if (len(memory) > 1 or None in memory) and not _add_aliasing(parts, memory):
            return UNCACHEABLE
        if _placement_active:
            parts += map(placed_device, memory)
        key = tuple(parts)
    return _run_cached(key, memory)


def dispatch_by_key(key_parts: Sequence[Any], memory: Sequence[Any]) -> Any:
    """Like ``cached_dispatch``, for a call whose key is given instead of computed from its
    arguments."""
    parts = [*key_parts, id(config.mode),
             *(map(placed_device, memory) if _placement_active else ())]
    return _run_cached(tuple(parts), [*memory]) if _add_aliasing(parts, memory) else UNCACHEABLE


def _run_cached(key: tuple[Any, ...], memory: list[Any]) -> Any:
    entry = _call_cache.get(key)
    if entry is None:
        return CacheMiss(key, memory)
    try:
        return entry[0](memory)
    except FnxError:
        return UNCACHEABLE  # the uncached call raises it again, with its location


def _add_aliasing(parts: list[Any], memory: Sequence[Any]) -> bool:
    """Add to a key which of its Arrays share memory; False if one has no memory."""
    first: dict[int, int] = {}
    for i, storage_part in enumerate(memory):
        if storage_part is None:
            return False
        if first.setdefault(id(storage_part), i) != i:
            parts.append((i, first[id(storage_part)]))
    return True


def _add_operand(x: Any, parts: list[Any], memory: list[Any]) -> bool:
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
    elif kind is complex:
        parts += (kind, repr(x))
    elif kind in _KEY_PARTS:
        components = _KEY_PARTS[kind](x)
        if len(components) + len(parts) > MAX_KEY_LENGTH:
            return False
        parts += (kind, len(components))
        for y in components:
            if not _add_operand(y, parts, memory):
                return False
    else:
        if not isinstance(x, _TYPES) and (kind is not FunctionType or x not in public_functions):
            return False
        parts += (kind, x)
    return True


_KEY_PARTS: dict[type, Callable[[Any], Sequence[Any]]] = {
    tuple: tuple, list: tuple, slice: lambda s: (s.start, s.stop, s.step)}


def register_key_parts(kind: type, into: Callable[[Any], Sequence[Any]]) -> None:
    """Let calls with operands of a class be cached: ``into`` returns the parts for the key."""
    _KEY_PARTS[kind] = into
