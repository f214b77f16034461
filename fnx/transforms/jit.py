"""jit: trace once per signature, lower once, replay. Also how eager calls compute.

This is the one file that sees transforms, lower and backends.

    call   -> signature of the arguments (tree, shapes, dtypes, static values)
    first  -> trace to a FUNCTION, lower to COMMANDS, link on a device
    then   -> storages of arguments and captures, submit, wrap the results

Inside another trace a jitted function is a CALL: traced once, however often it is used.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fnx.backends.base import Device, get_device
from fnx.core import build, ops
from fnx.core.array import array, scope, storage, trace, tree
from fnx.core.array.array import Array
from fnx.core.config import config
from fnx.core.errors import (
    ArgumentError,
    DonatedError,
    DTypeError,
    FnxError,
)
from fnx.core.ops import Shape, const_value
from fnx.core.uop import UOp
from fnx.transforms.replay.captures import Captures
from fnx.transforms.replay.launcher import CONVERTED, MISS, Launch, NamedStatic, make_launcher
from fnx.transforms.replay.signature import (
    Key,
    StaticArguments,
    Traced,
    argument,
    difference,
    key_of,
    path,
    positions,
    short,
    static_arguments,
)

if TYPE_CHECKING:
    from fnx.lower.pipeline import Lowered
    from fnx.transforms.replay.stages import Stages

MAX_ENTRIES = 256       # signatures kept per jitted function
MAX_NUMBERS = 2         # constants of an eager call up to which they are arguments
MAX_EAGER = 1024        # programs kept for eager calls
MAX_MISSES = 32         # explanations kept
MAX_LAUNCHERS = 4       # tried one after the other before a key is built


# ---- programs on a device -----------------------------------------------------------------------


def _compiler() -> Callable[..., Lowered]:
    """The compiler. It is half of fnx's code: loaded with the first program, not by the import."""
    from fnx.lower.pipeline import lower
    return lower


class Executable:
    """A FUNCTION lowered for a device and linked: ``run`` takes and gives storages."""

    __slots__ = ("device", "lowered", "buffer", "sizes", "results", "forwards")

    def __init__(self, fn: UOp, device: Device, runtime_extents: bool) -> None:
        self.device = device
        before = device.stats()
        lower = _compiler()
        with trace.no_collection():
            made = lower(fn, device.target, runtime_extents, device.prepare)
        self.buffer = device.encode(made.block.commands, made.code, made.block.arena)
        self.lowered = made
        after = device.stats()
        made.milliseconds.update({k[:-3]: (after[k] - before[k]) / 1e3
                                  for k in after if k.endswith("_us")})
        self.sizes = [max(1, n.dtype.itemsize * _size(n.shape)) for n in made.block.outs]
        self.results = made.block.results
        self.forwards = any(kind == "in" for kind, _ in self.results) or \
            len(self.results) != len(self.sizes)

    def run(self, ins: Sequence[Any]) -> Sequence[Any]:
        """Submit with argument storages; storages of the results, in order."""
        alloc = self.device.alloc
        outs = [alloc(n) for n in self.sizes]
        self.buffer.submit(ins, outs)
        if not self.forwards:
            return outs
        return [ins[i] if kind == "in" else outs[i] for kind, i in self.results]


def _size(shape: Shape) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


class _Cache(OrderedDict[Any, Executable]):
    """Least recently used programs of eager calls, by FUNCTION."""

    lock = threading.RLock()  # a finalizer may compute, too

    def find(self, fn: UOp) -> Executable:
        key = (fn, config.device, config.key())
        with self.lock:
            found = self.get(key)
            if found is not None:
                self.move_to_end(key)
                return found
        made = Executable(fn, get_device(config.device), runtime_extents=True)
        with self.lock:
            self[key] = made
            if len(self) > MAX_EAGER:
                self.popitem(last=False)
        return made


_eager = _Cache()


def _evaluate(nodes: Sequence[UOp]) -> Sequence[Any]:
    """Compute nodes over BUFFERs and CONSTs: one graph, one program."""
    if len(nodes) == 1 and nodes[0].op is ops.CONST:  # a Python number among the arguments
        return [_put(const_value(nodes[0]))]
    fn, captures = trace.close(nodes, (), numbers=MAX_NUMBERS)
    return _eager.find(fn).run([c.arg.handle if c.op is ops.BUFFER else _put(const_value(c))
                                for c in captures])


def _put(value: np.ndarray[Any, Any]) -> Any:
    return get_device(config.device).upload(value)


storage.set_evaluator(_evaluate, _put)


class CacheInfo(NamedTuple):
    """Counts of a jitted function. ``misses`` says why each trace after the first happened."""

    hits: int
    traces: int
    compiles: int
    entries: int
    misses: tuple[str, ...]


class Jitted:
    """A function under ``jit``."""

    def __init__(self, f: Callable[..., Any], static_argnums: tuple[int, ...],
                 static_argnames: tuple[str, ...], donate_argnums: tuple[int, ...]) -> None:
        functools.update_wrapper(self, f)
        self._f = f
        self._donate = donate_argnums
        self._name = getattr(f, "__name__", type(f).__name__)
        self._static = StaticArguments(static_argnums, static_argnames, self._name)
        self._entries: OrderedDict[Key, Traced] = OrderedDict()
        self._launchers: list[Launch] = []
        self._lock = threading.RLock()
        self._hits = self._traces = self._compiles = 0
        self._misses: list[str] = []

    def __repr__(self) -> str:
        return f"<jit of {self._name}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    # ---- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not scope.is_open():
            for launch in self._launchers:
                out = launch(args, kwargs)
                if out is not MISS:
                    self._hits += 1
                    return out
        return self._general_call(args, kwargs)

    def _general_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Any call: finds, or makes, the trace of its signature."""
        leaves, in_tree, statics = self._flat(args, kwargs)
        if scope.is_open():
            return self._traced_call(leaves, in_tree, statics, args, kwargs)
        for i, x in enumerate(leaves):
            if type(x) is not Array or x._storage is None:
                leaves[i] = self._concrete(x, in_tree, i)
        self._check_donated(args)
        key = key_of(in_tree, leaves, statics)
        entry = self._entry(key, args, kwargs)
        if None in entry.storages:
            entry.refuse_leaks()
        executable = entry.executable or self._link(entry)
        if entry.calls_before_launcher and entry.keeps:
            self._make_launcher(key, entry, executable, args)
        outs = executable.run([*[x._storage for x in leaves], *entry.storages])
        if self._donate:
            self._give_away(args)
        results = [array.from_storage(s, dtype, shape, weak)
                   for s, (dtype, shape, weak) in zip(outs, entry.outs)]
        return entry.out_tree.unflatten(results)

    def _flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]
              ) -> tuple[list[Any], tree.TreeDef, tuple[NamedStatic, ...]]:
        """Leaves and structure of the dynamic arguments; the static ones."""
        statics: tuple[NamedStatic, ...] = ()
        if self._static:
            args, kwargs, statics = self._static.split(args, kwargs)
        return *tree.flatten((args, kwargs)), statics

    def _make_launcher(self, key: Key, entry: Traced, executable: Executable,
                       args: tuple[Any, ...]) -> None:
        entry.calls_before_launcher -= 1
        if entry.calls_before_launcher:
            return
        in_tree, avals, statics = key[:3]
        static = {name for name, _ in statics}
        dynamic = [i for i in range(len(args)) if i not in static]
        entry.launch = make_launcher(in_tree, avals, statics, dynamic, entry.watch.entries,
                                     entry.storages, entry.outs, entry.out_tree, executable.run,
                                     self._donated_leaves(in_tree, dynamic, len(args)))
        live = [e.launch for e in self._entries.values() if e.launch is not None]
        self._launchers = live[:-MAX_LAUNCHERS - 1:-1]

    def _traced_call(self, leaves: list[Any], in_tree: tree.TreeDef, statics: tuple[Any, ...],
                     args: Any, kwargs: Any) -> Any:
        """Inside another trace: a CALL of the FUNCTION."""
        arrays = [self._named(array.asarray, x, in_tree, i) for i, x in enumerate(leaves)]
        key = key_of(in_tree, arrays, statics)
        entry = self._entry(key, args, kwargs)
        nodes = build.call(entry.fn, [x._node for x in arrays] + entry.captures, self._name)
        results = [Array(n, weak) for n, (_, _, weak) in zip(nodes, entry.outs)]
        return entry.out_tree.unflatten(results)

    def _named(self, convert: Callable[[Any], Array], x: Any, in_tree: tree.TreeDef, i: int
               ) -> Array:
        """An argument as an Array; an error says which one."""
        try:
            return convert(x)
        except FnxError as e:
            raise DTypeError(f"argument {argument(in_tree, i)} of {self._name}: {e.message}",
                             hint="pass arrays or numbers; an argument that is neither goes into "
                             "static_argnums or static_argnames") from None

    def _concrete(self, x: Any, in_tree: tree.TreeDef, i: int) -> Array:
        """An argument as an Array with memory."""
        if type(x) is Array and x.is_deleted():
            raise DonatedError(f"argument {argument(in_tree, i)} of {self._name}: expected an "
                               "array with a value, got one that was donated",
                               hint="use the result of the call it was donated to")
        if type(x) in CONVERTED:
            return self._named(array.concrete, x, in_tree, i)
        made = self._named(array.asarray, x, in_tree, i)
        if made._storage is None:
            array.settle(made)
        return made

    def _donated_leaves(self, in_tree: tree.TreeDef, dynamic: list[int], count: int) -> list[int]:
        """Numbers of the leaves that are donated."""
        donated = positions(self._donate, count)
        out: list[int] = []
        first = 0
        for position, child in zip(dynamic, in_tree.children[0].children):
            if position in donated:
                out += range(first, first + child.num_leaves)
            first += child.num_leaves
        return out

    def _check_donated(self, args: tuple[Any, ...]) -> None:
        """A donated array may be given once: its memory is not the caller's any more."""
        seen: dict[int, int] = {}
        donated = positions(self._donate, len(args))
        for i, arg in enumerate(args if self._donate else ()):
            for x in tree.leaves(arg):
                if type(x) is Array:
                    first = seen.setdefault(id(x._storage), i)
                    if first != i and (i in donated or first in donated):
                        raise DonatedError(
                            f"arguments {first} and {i} of {self._name}: expected donated arrays "
                            "to be given once, got the same array twice",
                            hint="pass x.copy() for one of them")

    def _give_away(self, args: tuple[Any, ...]) -> None:
        """Donated arguments have no value any more; their memory goes back to the pool."""
        for i in positions(self._donate, len(args)):
            if 0 <= i < len(args):
                for x in tree.leaves(args[i]):
                    if type(x) is Array:
                        x._storage = x._uop = x._value = None

    # ---- tracing and linking

    def _entry(self, key: Key, args: Any, kwargs: Any) -> Traced:
        """The trace of a signature: followed, or made anew."""
        with self._lock:
            entry = self._entries.get(key)
            change = None if entry is None else entry.follow()
            if entry is not None and change is None:
                self._entries.move_to_end(key)
                self._hits += 1
                return entry
            self._explain(key, change)
            entry = self._trace(key, args, kwargs)
            if entry.keeps:
                self._entries[key] = entry
                self._entries.move_to_end(key)
                while len(self._entries) > MAX_ENTRIES:
                    self._entries.popitem(last=False)
            return entry

    def _trace(self, key: Key, args: Any, kwargs: Any) -> Traced:
        in_tree, avals = key[0], key[1]
        start = time.perf_counter()
        with trace.tracing(f"jit of {self._name}") as s:
            arrays = [Array(s.leaf(t, shape), weak) for shape, t, weak in avals]
            dynamic, named = in_tree.unflatten(arrays)
            out = self._f(*self._static.filled(args, dynamic), **{**kwargs, **named})
            leaves, out_tree = tree.flatten(out)
            outs = [self._result(x, out_tree, i) for i, x in enumerate(leaves)]
            fn, captures = trace.close([x._node for x in outs], s.leaves, self._name)
        self._traces += 1
        made = Traced(fn, captures, outs, out_tree, Captures(self._f), s.read)
        made.milliseconds = (time.perf_counter() - start) * 1e3
        return made

    def _result(self, x: Any, out_tree: tree.TreeDef, i: int) -> Array:
        try:
            return array.asarray(x)
        except FnxError as e:
            raise ArgumentError(f"result {path(out_tree, i)} of {self._name}: {e.message}",
                                hint="return arrays, numbers or None in tuples, lists and dicts"
                                ) from None

    def _link(self, entry: Traced) -> Executable:
        with self._lock:
            if entry.executable is None:
                entry.executable = Executable(entry.fn, get_device(config.device), False)
                self._compiles += 1
            made: Executable = entry.executable
            return made

    def _explain(self, key: Key, change: tuple[str, Any, Any] | None) -> None:
        if not self._entries:
            return
        if change is not None:
            why = f"{change[0]}: {short(change[1])} -> {short(change[2])}"
        else:
            why = difference(next(reversed(self._entries)), key)
        self._misses = [*self._misses[-MAX_MISSES + 1:], why]

    # ---- looking inside

    def lower(self, *args: Any, **kwargs: Any) -> Stages:
        """All stages of this signature, for reading: graph, kernels, commands, LLVM IR."""
        from fnx.transforms.replay.stages import Stages  # printing is for readers

        leaves, in_tree, statics = self._flat(args, kwargs)
        arrays = [self._named(array.asarray, x, in_tree, i) for i, x in enumerate(leaves)]
        key = key_of(in_tree, arrays, statics)
        entry = self._entry(key, args, kwargs)
        executable = entry.executable or self._link(entry)
        return Stages(entry.fn, executable.lowered, executable.device, entry.milliseconds)

    def cache_info(self) -> CacheInfo:
        """How often it was traced, compiled and replayed, and why it was traced again."""
        return CacheInfo(self._hits, self._traces, self._compiles, len(self._entries),
                         tuple(self._misses))

    def clear_cache(self) -> None:
        """Forget all traces and programs."""
        with self._lock:
            self._entries.clear()
            self._launchers = []


def jit(f: Callable[..., Any] | None = None, *, static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (), donate_argnums: int | Sequence[int] = ()
        ) -> Any:
    """Compile a function: traced once per signature, then replayed.

    Args:
        f: a pure function of pytrees of arrays. Left out: a decorator.
        static_argnums: positions of arguments that are values of the trace (hashable), compared
            by value at each call.
        static_argnames: the same by keyword.
        donate_argnums: positions of arguments that are not used again by the caller: their
            memory is free once the call has run.

    Returns:
        A function like f, with ``lower(*args)``, ``cache_info()`` and ``clear_cache()``.

    Raises:
        StaticArgumentError: a static argument cannot be hashed, or names no parameter.
        DonatedError: a donated array is used again.

    >>> import fnx
    >>> @fnx.jit
    ... def f(x):
    ...     return x * 2 + 1
    >>> f(fnx.numpy.asarray([1.0, 2.0]))
    Array([3., 5.], dtype=float32)
    >>> f.cache_info().traces
    1
    """
    if f is None:
        return functools.partial(jit, static_argnums=static_argnums,
                                 static_argnames=static_argnames, donate_argnums=donate_argnums)
    if not callable(f):
        raise ArgumentError(f"jit: expected a function, got {type(f).__name__}",
                            hint="write jit(f)(x), not jit(f(x))")
    nums, names = static_arguments(f, _tuple(static_argnums), _tuple(static_argnames))
    return Jitted(f, nums, names, _tuple(donate_argnums))


def _tuple(x: Any) -> tuple[Any, ...]:
    return (x,) if isinstance(x, (int, str)) else tuple(x)


__all__ = ["CacheInfo", "Executable", "Jitted", "jit"]
