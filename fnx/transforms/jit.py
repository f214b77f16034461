"""jit: trace once per signature, lower once, then dispatch.

    each call   -> signature of the arguments (tree, shapes, dtypes, static values)
    first call  -> trace to a FUNCTION, lower to COMMANDS, link on a device
    then        -> storages of arguments and captures, submit, wrap the results

Inside another trace a jitted function is a CALL: traced once, however often it is called.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, overload

from fnx.core.array import array, scope
from fnx.core.array.committed import PlacedAt, commit, device_name
from fnx.core.array.refusal import checked
from fnx.core.array.repeated import placed_on_device
from fnx.core.array.trace import Closed, trace
from fnx.core.cache import emptied
from fnx.core.config import config
from fnx.core.errors import ArgumentError, RetracedError, user_site
from fnx.core.ops import PARAM
from fnx.core.process import load
from fnx.core.uop import UOp
from fnx.core.weak import WeakMemo
from fnx.transforms.link import (
    get_device,
    limits,
    link,
    prepared,
    result_on,
    searched_schedules,
    target_of,
)
from fnx.transforms.replay.captures import Captures
from fnx.transforms.replay.donation import Donation, positions
from fnx.transforms.replay.executable import DeviceFace, Executable, Executables, Replay
from fnx.transforms.replay.launcher import (
    MISS,
    Launcher,
    direct_record,
    kind_of,
    make_launcher,
)
from fnx.transforms.replay.signature import (
    Arguments,
    CallKey,
    both_ways,
    labels,
    place_of_call,
    several,
)
from fnx.transforms.replay.traces import MAX_SIGNATURES, CacheInfo, Traces, Variant
from fnx.transforms.transformed import Transformed, leave, set_lower

if TYPE_CHECKING:
    from fnx.transforms.compiled import Compiled, TracedCall
    from fnx.transforms.replay.lowering import Lowering
    from fnx.transforms.replay.memory_use import MemoryUse
    from fnx.transforms.replay.signed import SignedCall

MAX_LAUNCHERS = 4       # fast paths tried in turn before a key is built
FEW_LAUNCHERS = 2       # ... without first looking at the types of the arguments
MAX_DIRECT = 8          # records for native calls, which run no Python

ArgNums: TypeAlias = int | Sequence[int] | None  # positions of arguments
ArgNames: TypeAlias = str | Sequence[str] | None

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


def _twins() -> ModuleType:
    return load("fnx.transforms.replay.twins")


def _dynamic(key: CallKey, n: int) -> list[int]:
    """Return the positions of the arguments, of n, that are not static."""
    static = {name for name, _ in key[2]}
    return [i for i in range(n) if i not in static]


# ---- calls --------------------------------------------------------------------------------------


class Jitted(Transformed[P, R_co]):
    """A function under ``jit``.

    ``__call__`` is the one below, or a native one of a device: that runs calls whose records are in
    ``_direct``, and falls back to the one below.
    """

    kind = "jit"
    __slots__ = ("_direct",)

    def __init__(self, f: Callable[..., Any], static_argnums: tuple[int, ...] = (),
                 static_argnames: tuple[str, ...] = (), donate_argnums: tuple[int, ...] = (),
                 donate_argnames: tuple[str, ...] = (), device: str | None = None) -> None:
        placed = {} if device is None else {"device": device}
        super().__init__(f, static_argnums=static_argnums, static_argnames=static_argnames,
                         donate_argnums=donate_argnums, donate_argnames=donate_argnames, **placed)
        self._arguments = Arguments(f, self._name, static_argnums, static_argnames)
        self._donation = Donation(*both_ways(f, "donate", donate_argnums, donate_argnames), f)
        self._traces: Traces[Replay] = Traces(lambda: f)
        self._executables = Executables(
            lambda fn, donated, name: link(fn, get_device(name), donated=donated, stored=True),
            MAX_SIGNATURES)
        self._device = device
        self._chosen = None if device is None else PlacedAt(device, user_site(2))
        self._launchers: list[Launcher] = []
        self._by_kind: dict[tuple[Any, ...], list[Launcher]] = {}  # if there are many
        self._hits, self._called = 0, False
        self._direct: tuple[Any, ...] = ()
        self._direct_hits = (ctypes.c_int64 * 1)()
        _all[self] = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        out: R_co
        try:
            if not scope.is_open():
                for launch in self._launchers if not self._by_kind else \
                        self._by_kind.get(kind_of(args), ()):
                    out = launch(args, kwargs)
                    if out is not MISS:
                        self._hits += 1
                        return out
                if not self._called and (out := self._as_twin(args, kwargs)) is not MISS:
                    return out
            out = self._general_call(args, kwargs)
        except Exception as error:
            leave(error, self._f)
            raise
        return out

    def _as_twin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve the first call from a function with equal code that had such a call; else MISS."""
        self._called = True
        family = self._family()
        if family is not None:
            for launch in _twins().launchers(family):
                out = launch(args, kwargs)
                if out is not MISS:
                    self._hits += 1
                    return out
        return MISS

    def _general_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do any call: look up the trace of its signature, or make it."""
        if config.disable_jit:
            return self._f(*args, **kwargs)
        tracing = scope.is_open()
        arrays, key = self._arguments.key(args, kwargs, concrete=not tracing)
        if not tracing:
            self._donation.check(args, kwargs)
            if config.placing:
                place = self._place(key, [x._storage for x in arrays])
                key = (*key[:3], key[3] if place is None else place.device, *key[4:])
        captures, replay = self._replay(key, args, kwargs)
        if tracing:
            return replay.closed.call(arrays)
        if None in replay.storages:  # outside of all traces a leaf has no storage: raise
            for node in replay.closed.captures:
                scope.known(node)
        memory = [*[x._storage for x in arrays], *replay.storages]
        place = self._chosen
        if place is not None:
            placed_on_device(place.device)
        elif config.placing:
            place = self._place(key, memory)
        if place is not None:
            key = (*key[:3], place.device, *key[4:])
        executable = replay.executable or self._link_for_twins(replay, key, captures, len(args))
        outs = executable.run(memory, self._donation.of(args, kwargs))
        if self._chosen is not None:
            outs = [result_on(s, memory, self._chosen) for s in outs]
        if replay.calls_before_launcher and not self._hands_back(replay.closed):
            self._make_launcher(key, captures, replay, executable, len(args))
        commit(outs, place, memory)
        return replay.closed.out_tree.unflatten(
            [array.from_storage(s, *aval) for s, aval in zip(outs, replay.closed.outs)])

    def _place(self, key: CallKey, memory: Sequence[Any]) -> PlacedAt | None:
        """Return the device of a call, from the memory of its arguments and then captures."""
        return None if self._device is not None else place_of_call(self._name, key, memory)

    # ---- tracing and linking

    def _replay(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]
                ) -> Variant[Replay]:
        """Return the trace of a signature, from the cache or made now."""
        made = self._traces.made
        found = self._traces.find(key, lambda: self._trace(key, args, kwargs))
        if made != self._traces.made:  # and older ones may have been evicted
            self._update_launchers()
        return found

    def _trace(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]
               ) -> tuple[Replay, list[UOp]]:
        def f(*dynamic: Any, **named: Any) -> Any:
            return self._f(*self._arguments.filled(args, dynamic), **{**kwargs, **named})

        in_tree, avals = key[:2]
        family = None if scope.is_open() else self._family()
        twin = None if family is None else _twins().find((family, key))
        if twin is not None:
            made = Replay(twin.closed, 0.0, kind_of(args))
            made.executable = twin.executable
            if not self._hands_back(twin.closed):
                _twins().keep_launcher(family, make_launcher(
                    key, _dynamic(key, len(args)), twin.captures.entries, (), twin.closed.out_tree,
                    twin.closed.outs, twin.executable, self._donated(key, len(args)),
                    self._donation.to, key[3], self._chosen))
            self._executables.adopt(twin.closed.function, self._donated(key, len(args)),
                                    twin.executable, self._device or key[3])
            return made, []
        if config.no_tracing and not scope.is_open():
            raise RetracedError(
                f"{self._name} would be traced within no_tracing: "
                f"{(self._traces.misses or ['it was not called before'])[-1]}",
                hint="call it with arguments of these types before; f.cache_info().misses says "
                     "what differed from call to call")
        start = time.perf_counter()
        try:
            closed = trace(f, avals, in_tree, by="jit", name=self._name).close()
        except TypeError:
            self._arguments.check(args, kwargs)
            raise
        spent = (time.perf_counter() - start) * 1e3
        return Replay(closed, spent, kind_of(args), family), closed.captures

    def _hands_back(self, closed: Closed) -> bool:
        """Whether some arguments are results, which may have to be copied to another device first.
        """
        return self._chosen is not None and any(s.op is PARAM for s in closed.function.src)

    def _link(self, replay: Replay, key: CallKey, n: int) -> Executable:
        replay.executable = self._executables.find(replay.closed.function, self._donated(key, n),
                                                   self._device or key[3])
        if config.viz:
            load("fnx.transforms.view.always").offer(
                (self._name, lambda: self._lowering(replay, key, n)))
        return replay.executable

    def _family(self) -> tuple[Any, ...] | None:
        """Return the CodeKey that it shares with functions of equal code, as it is now."""
        found: tuple[Any, ...] | None = _twins().family(self._f, *self._options.items())
        return found

    def _link_for_twins(self, replay: Replay, key: CallKey, captures: Captures, n: int
                        ) -> Executable:
        executable = self._link(replay, key, n)
        if replay.family is not None and replay.family == self._family():
            twins = _twins()
            twins.keep((replay.family, key),
                       twins.Twin(self._f, captures, replay.closed, executable))
        return executable

    def _donated(self, key: CallKey, n: int) -> tuple[int, ...]:
        """Return the leaves of a signature that are donated, for a call with n arguments."""
        return tuple(self._donation.leaves(key[0], _dynamic(key, n), n))

    def _make_launcher(self, key: CallKey, captures: Captures, replay: Replay,
                       executable: Executable, n: int) -> None:
        replay.calls_before_launcher -= 1
        if replay.calls_before_launcher:
            return
        replay.launch = make_launcher(
            key, _dynamic(key, n), captures.entries, replay.storages, replay.closed.out_tree,
            replay.closed.outs, executable, self._donated(key, n), self._donation.to, key[3],
            self._chosen)
        if _is_called_directly(executable.device):
            replay.direct = direct_record(
                key, captures.entries, replay.storages, replay.closed.out_tree,
                replay.closed.outs, executable, self._donated(key, n), self._chosen,
                self._direct_hits)
        self._update_launchers()

    def _update_launchers(self) -> None:
        live = [(v.value.kind, v.value.launch) for v in reversed(self._traces.values())
                if v.value.launch is not None]
        self._launchers = [launch for _, launch in live[:FEW_LAUNCHERS]]
        by_kind: dict[tuple[Any, ...], list[Launcher]] = {}
        for kind, launch in live if len(live) > FEW_LAUNCHERS else ():
            some = by_kind.setdefault(kind, [])
            if len(some) < MAX_LAUNCHERS:
                some.append(launch)
        self._by_kind = by_kind
        direct = [v.value.direct for v in reversed(self._traces.values())]
        self._direct = tuple([record for record in direct if record is not None][:MAX_DIRECT])

    # ---- looking inside

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowering:
        """Return all lowering steps of this signature, for reading: graph, kernels, commands, LLVM
        IR. Arguments are arrays or ``ShapeDtypeStruct``s. The result keeps the arrays, to time the
        program with them."""
        given, key = self._arguments.key(args, kwargs, shapes=True)
        return self._lowering(self._replay(key, args, kwargs).value, key, len(args), given)

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> TracedCall:
        """Trace this signature: the types of arguments and results, the graph, and how to lower it.
        Arguments are arrays or ``ShapeDtypeStruct``s."""
        _, key = self._arguments.key(args, kwargs, shapes=True)
        replay = self._replay(key, args, kwargs).value
        made: TracedCall = load("fnx.transforms.compiled").TracedCall(
            self._signed(replay, key, len(args)),
            lambda: load("fnx.transforms.shapes").Graph(replay.closed, key[1]),
            lambda: self._lowering(replay, key, len(args)))
        return made

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the shapes and dtypes of the result, as ``fnx.eval_shape`` does: nothing runs.
        Arguments are arrays or ``ShapeDtypeStruct``s."""
        return self.trace(*args, **kwargs).out_info

    def _signed(self, replay: Replay, key: CallKey, n: int) -> SignedCall:
        """Return the signature as its stages need it, for a call with n arguments."""
        dynamic = _dynamic(key, n)
        donated = positions(self._donation.numbers, n)
        donation = Donation(tuple([i for i, at in enumerate(dynamic) if at in donated]),
                            tuple(self._donation.names), self._f)
        made: SignedCall = load("fnx.transforms.replay.signed").SignedCall(
            self._name, self._f, replay, key, self._donated(key, n), donation)
        return made

    def _compiled(self, lowering: Lowering, signed: SignedCall, n: int) -> Compiled:
        executable = signed.replay.executable or self._link(signed.replay, signed.key, n)
        made: Compiled = load("fnx.transforms.compiled").Compiled(
            signed, self._arguments, executable, lowering,
            lambda: self._memory(signed.replay, signed.key, n), self._device or signed.key[3],
            self._chosen)
        return made

    def _lowering(self, replay: Replay, key: CallKey, n: int, given: Sequence[Any] = ()
                  ) -> Lowering:
        donated = self._donated(key, n)
        executable = replay.executable or self._link(replay, key, n)
        device = executable.device
        fn = prepared(replay.closed.function, device)
        schedules = searched_schedules(replay.closed.function, device, donated)
        target = target_of(device)

        def again(keep: Callable[[Any], None]) -> None:
            load("fnx.lower.pipeline").lower(fn, target, keep=keep, donated=donated,
                                             schedules=schedules)

        module = load("fnx.transforms.replay.lowering")  # loaded late: only for reading
        made: Lowering = module.Lowering(
            fn, executable.lowered, device, replay.milliseconds, again, labels(self._f, key),
            self._name, lambda: load("fnx.transforms.replay.timeline").timeline(
                replay, executable, key[1], given), limits)
        signed = self._signed(replay, key, n)
        # a compiled function must not keep arguments alive
        made.sign(signed, lambda: self._compiled(
            self._lowering(replay, key, n) if given else made, signed, n))
        return made

    def memory(self, *args: P.args, **kwargs: P.kwargs) -> MemoryUse:
        """Return the peak memory of a call with such arguments, and what is live when, by the
        user's lines. Nothing runs; the program is compiled if it is not yet. Arguments are arrays
        or ``ShapeDtypeStruct``s."""
        _, key = self._arguments.key(args, kwargs, shapes=True)
        return self._memory(self._replay(key, args, kwargs).value, key, len(args))

    def _memory(self, replay: Replay, key: CallKey, n: int) -> MemoryUse:
        module = load("fnx.transforms.replay.memory_use")
        executable = replay.executable or self._link(replay, key, n)
        use: MemoryUse = module.of_call(executable, key[1], replay.storages)
        return use

    def cache_info(self) -> CacheInfo:
        """Return how often it was traced, compiled and dispatched, and why it was retraced."""
        traces = self._traces
        hits = self._hits + self._direct_hits[0] + traces.hits
        return CacheInfo(hits, traces.made, self._executables.made, len(traces),
                         tuple(traces.misses))

    def clear_cache(self) -> None:
        """Drop all traces and programs."""
        self._traces.clear()
        self._executables.clear()
        self._launchers, self._by_kind, self._direct = [], {}, ()


_all: WeakMemo[Jitted[Any, Any], None] = WeakMemo()


def _forget_all() -> None:
    """Clear all jit caches: fast paths hold programs of traces that were dropped."""
    for jitted in _all.living():
        jitted.clear_cache()


emptied.append(_forget_all)
_called_directly: list[DeviceFace] = []  # the device whose method Jitted has


def _is_called_directly(device: DeviceFace) -> bool:
    """Whether calls on a device run no Python: the first device that can do so installs its
    method."""
    if not _called_directly and \
            (method := device.method(Jitted, "_direct", Jitted.__call__)) is not None:
        Jitted.__call__ = method  # type: ignore[method-assign]
        _called_directly.append(device)
    return device in _called_directly


set_lower(lambda f, args, kwargs: Jitted(f).lower(*args, **kwargs))


@overload
def jit(f: Callable[P, R], *,
        static_argnums: ArgNums = (), static_argnames: ArgNames = (),
        donate_argnums: ArgNums = (), donate_argnames: ArgNames = (),
        keep_unused: bool = False, in_shardings: Any = None, out_shardings: Any = None,
        device: Any = None, backend: str | None = None, inline: bool = False,
        compiler_options: Mapping[str, Any] | None = None
        ) -> Jitted[P, R]: ...


@overload
def jit(f: None = None, *,
        static_argnums: ArgNums = (), static_argnames: ArgNames = (),
        donate_argnums: ArgNums = (), donate_argnames: ArgNames = (),
        keep_unused: bool = False, in_shardings: Any = None, out_shardings: Any = None,
        device: Any = None, backend: str | None = None, inline: bool = False,
        compiler_options: Mapping[str, Any] | None = None
        ) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...


@checked
def jit(f: Callable[..., Any] | None = None, *,
        static_argnums: ArgNums = (), static_argnames: ArgNames = (),
        donate_argnums: ArgNums = (), donate_argnames: ArgNames = (),
        keep_unused: bool = False, in_shardings: Any = None, out_shardings: Any = None,
        device: Any = None, backend: str | None = None, inline: bool = False,
        compiler_options: Mapping[str, Any] | None = None) -> Any:
    """Compile a function: it is traced once per signature, then dispatched.

    What f reads besides its arguments is checked again at each call: the variables of the
    enclosing functions and the globals that it names, also through the Python functions that it
    calls. If one is a different object (numbers, strings: a different value), f is traced again;
    up to 8 such traces are cached per signature. Changes inside an object are not seen: an
    attribute, an item of a dict or list, the content of a NumPy array. Pass these as arguments.

    Args:
        f: a pure function of pytrees of arrays. Omit it to use ``jit`` as a decorator.
        static_argnums: positions of arguments that are static values of the trace (hashable),
            compared by value at each call.
        static_argnames: the same by keyword.
        donate_argnums: positions of arguments that the caller does not use again: their memory
            is free once the call has run.
        donate_argnames: the same by name.
        keep_unused: accepted for JAX's sake: an argument that f does not read costs nothing.
        in_shardings: accepted for JAX's sake: on one device all shardings are the same.
        out_shardings: as ``in_shardings``.
        device: the name of the device that runs it when it is called outside of all traces, or
            one of ``fnx.devices()``; None: ``config.device``. Arguments are copied there, and
            results are committed there, as by ``device_put``.
        backend: as ``device``.
        inline: accepted for JAX's sake: a jitted function within another one is traced once, and
            its kernels are fused with those around it.
        compiler_options: None, as there are no XLA options here.

    Returns:
        A function like f, with ``lower(*args)``, ``cache_info()`` and ``clear_cache()``.

    Raises:
        StaticArgumentError: a static argument is not hashable, or names no parameter.
        ArgumentError: options for XLA, or a device that does not exist.
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
    if compiler_options:
        raise ArgumentError(f"jit: expected no compiler_options, got {sorted(compiler_options)}",
                            hint="they are XLA's; print(fnx.config) says what can be set here")
    if f is None:
        return functools.partial(
            jit, static_argnums=static_argnums, static_argnames=static_argnames,
            donate_argnums=donate_argnums, donate_argnames=donate_argnames, device=device,
            backend=backend)
    return Jitted(f, several(static_argnums), several(static_argnames),
                  several(donate_argnums), several(donate_argnames),
                  device_name(backend if device is None else device))


__all__ = ["CacheInfo", "Jitted", "jit"]
