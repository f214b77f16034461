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
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, overload

from fnx.core.array import array
from fnx.core.array.call_validation import validate_call
from fnx.core.array.eager_cache import record_placement
from fnx.core.array.placement import (
    LocalProgram,
    Placement,
    commit,
    local_program,
    placement_of,
    requested_device,
)
from fnx.core.ir.cache import WeakMemo, clear_hooks
from fnx.core.ir.ops import PARAM
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support import events
from fnx.core.support.config import config
from fnx.core.support.errors import RetracedError, user_location
from fnx.core.support.process import lazy_import
from fnx.core.tracing.state import StateUsedError
from fnx.core.tracing.trace import ClosedFunction, trace
from fnx.transforms.dispatch.captures import Captures
from fnx.transforms.dispatch.executable import CachedTrace, Executable, ExecutableCache
from fnx.transforms.dispatch.fastpath import (
    MISS,
    Fastpath,
    LaunchPlan,
    args_kind,
    installs_native_call,
    launch_by_kind,
    make_fastpath,
    make_native_call,
)
from fnx.transforms.dispatch.signature import (
    ArgFlattener,
    CallKey,
    Donation,
    argnums_and_names,
    as_tuple,
    check_compiler_options,
    check_static_or_donated,
    device_of_call,
    nonstatic,
)
from fnx.transforms.dispatch.trace_cache import (
    MAX_SIGNATURES,
    CacheInfo,
    SharedTrace,
    TraceCache,
    TraceEntry,
    code_key,
    drop_shared,
    find_shared,
    share_fastpath,
    share_trace,
    shared_fastpaths,
)
from fnx.transforms.link import (
    copy_result_to,
    get_device,
    link,
)
from fnx.transforms.transformed import Transformed, annotate_error, register_lower

if TYPE_CHECKING:
    from fnx.transforms.dispatch.bounded_lengths import BoundedTraces
    from fnx.transforms.dispatch.memory_use import MemoryUse
    from fnx.transforms.inspect.lowering import Lowering
    from fnx.transforms.stages import TracedCall

bounded_lengths = lazy_import("fnx.transforms.dispatch.bounded_lengths")
global_page = lazy_import("fnx.transforms.page.global_page")
jit_stages = lazy_import("fnx.transforms.jit_stages")
signature_names = lazy_import("fnx.jaxprs.signature_names")
stateful_calls = lazy_import("fnx.transforms.dispatch.stateful_calls")

MAX_LAUNCHERS = 2       # tried in turn; if there are more, by the kind of the arguments
MAX_NATIVE = 8          # records for native calls, which run no Python

ArgNums: TypeAlias = int | Sequence[int] | None  # positions of arguments
ArgNames: TypeAlias = str | Sequence[str] | None

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


# ---- calls --------------------------------------------------------------------------------------


class Jitted(Transformed[P, R_co]):
    """A function under ``jit``.

    ``__call__`` is the one below, or a native one of a device: that runs calls whose records are in
    ``_native_calls``, and falls back to the one below.
    """

    kind = "jit"
    ir_by_default: str | None = None  # what ``lower().as_text()`` shows: None for the graph
    __slots__ = ("_native_calls",)

    def __init__(self, f: Callable[..., Any], static_argnums: tuple[int, ...] = (),
                 static_argnames: tuple[str, ...] = (), donate_argnums: tuple[int, ...] = (),
                 donate_argnames: tuple[str, ...] = (), device: str | None = None,
                 inline: bool = False, dynamic: Mapping[Any, Any] | None = None,
                 keep_unused: bool = False) -> None:
        options = {k: v for k, v in (("device", device), ("inline", inline), ("dynamic", dynamic),
                                     ("keep_unused", keep_unused)) if v}
        check_static_or_donated((*static_argnums, *static_argnames),
                                (*donate_argnums, *donate_argnames))
        super().__init__(f, static_argnums=static_argnums, static_argnames=static_argnames,
                         donate_argnums=donate_argnums, donate_argnames=donate_argnames, **options)
        self._arguments = ArgFlattener(f, self._name, static_argnums, static_argnames)
        self._donation = Donation(*argnums_and_names(f, "donate", donate_argnums, donate_argnames),
                                  f)
        bounded = bounded_lengths.BoundedTraces(f, self._name, dynamic) if dynamic else None
        self._bounded: BoundedTraces | None = bounded  # link() has no reference to self
        self._traces: TraceCache[CachedTrace] = TraceCache(lambda: f, explains=not dynamic)
        self._executables = ExecutableCache(lambda fn, donated, name, lines: link(
            fn, get_device(name), None if bounded is None else bounded.fixed_lengths, donated,
            not dynamic, lines), MAX_SIGNATURES)
        self._device, self._inline, self._keep_unused = device, inline, keep_unused
        self._chosen = None if device is None else Placement(device, user_location(2))
        self._launchers: Sequence[Fastpath] = ()
        self._hits, self._called = 0, False
        self._stateful: Any = None
        self._native_calls: tuple[Any, ...] = ()
        self._native_hits = (ctypes.c_int64 * 1)()
        _all_jitted[self] = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        out: R_co
        try:
            if not scope.is_open():
                for launch in self._launchers if self._called else self._first_launchers():
                    out = launch(args, kwargs)
                    if out is not MISS:
                        self._hits += 1
                        return out
            try:
                out = self._slow_path(args, kwargs)
            except StateUsedError as used:
                out = self._calls_with_references(used).call(args, kwargs)
        except Exception as error:
            annotate_error(error, self._f)
            raise
        return out

    def _first_launchers(self) -> Sequence[Fastpath]:
        """Return the launchers of functions with equal code, which may serve the first call."""
        self._called = True
        shared_key = self._code_key()
        return () if shared_key is None else shared_fastpaths(shared_key)

    def _slow_path(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do any call: look up the trace of its signature, or make it."""
        if config.disable_jit or scope.thread_state.watchers:
            return self._f(*args, **kwargs)
        if self._stateful is not None:
            return self._stateful.call(args, kwargs)
        tracing = scope.is_open()
        arrays, key = self._arguments.key(args, kwargs, concrete=not tracing)
        if not tracing:
            self._donation.check(args, kwargs)
            if config.placing:
                placement = self._map_source(key, [x._storage for x in arrays])
                key = key if placement is None else key._replace(device=placement.device)
        captures, replay, _ = self._find_trace(key, args, kwargs)
        if tracing:
            if scope.is_within("make_jaxpr"):
                signature_names.record_names(replay.closed, self._f, key.in_tree, nonstatic(
                    key, len(args)), self._donated(key, len(args)))
            return replay.closed.inline(arrays) if self._inline else replay.closed.call(arrays)
        if None in replay.storages:  # outside of all traces a leaf has no storage: raise
            for node in replay.closed.captures:
                scope.resolve_leaves(node)
        memory = [*[x._storage for x in arrays], *replay.storages]
        placement = self._chosen
        if placement is not None:
            record_placement(placement)
        elif config.placing:
            placement = self._map_source(key, memory)
        if placement is not None:
            key = key._replace(device=placement.device)
        local = local_program(replay.closed.function, memory) if config.placing else None
        executable = self._executable(local, replay, key, len(args)) if local is not None else \
            replay.executable or self._link_and_share(replay, key, captures, len(args))
        placements = [*map(placement_of, memory)] if local is not None else ()
        outs = executable.run(memory, self._donation.consumer_of(args, kwargs))
        if self._chosen is not None and local is None:
            outs = [copy_result_to(s, memory, self._chosen) for s in outs]
        if not self._returns_args(replay.closed) and replay.is_worth_fastpath(local):
            replay.kind = args_kind(args)
            self._make_launcher(replay, self._launch_plan(
                replay, key, captures, len(args), executable).replace(
                    local=local, placements=placements))
        if local is None:
            commit(outs, placement, memory, replay.closed.function)
        else:
            local.commit(outs, memory)
        return replay.closed.out_tree.unflatten(
            [array.from_storage(s, *aval) for s, aval in zip(outs, replay.closed.outs)])

    def _map_source(self, key: CallKey, memory: Sequence[Any]) -> Placement | None:
        """Return the device of a call, from the memory of its arguments and then captures."""
        return None if self._device is not None else device_of_call(self._name, key, memory)

    # ---- tracing and linking

    def _find_trace(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]
                    ) -> TraceEntry[CachedTrace]:
        """Return the trace of a signature, from the cache or made now."""
        n_traces = self._traces.trace_count
        variant = self._traces.find(key, lambda: self._trace(key, args, kwargs))
        variant.value.lines = variant.lines
        if n_traces != self._traces.trace_count:  # and older ones may have been evicted
            self._update_launchers()
        return variant

    def _trace(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]
               ) -> tuple[CachedTrace, list[UOp]]:
        shared_key = None if scope.is_open() else self._code_key()
        if shared_key is not None and (same := find_shared(shared_key, key)) is not None:
            replay = CachedTrace(same.closed, 0.0, executable=same.executable)
            scope.record_lines(*same.lines)
            if not self._returns_args(same.closed):
                share_fastpath(shared_key, make_fastpath(self._launch_plan(
                    replay, key, same.captures, len(args), same.executable)))
            self._executables.insert(same.closed.function, self._donated(key, len(args)),
                                     same.executable, self._device or key.device)
            return replay, []
        if config.no_tracing and not scope.is_open():
            raise RetracedError(
                f"{self._name} would be traced within no_tracing: "
                f"{(self._traces.misses or ['it was not called before'])[-1]}",
                hint="call it with arguments of these types first; f.cache_info().misses lists "
                     "what differed between calls")
        start = time.perf_counter()
        try:
            closed = self._trace_shapes(key, args, kwargs) if self._bounded is None else \
                self._bounded.find(key, lambda key: self._trace_shapes(key, args, kwargs))
        except TypeError:
            self._arguments.check(args, kwargs)
            raise
        milliseconds = (time.perf_counter() - start) * 1e3
        events.record("duration", events.TRACE, milliseconds / 1e3, fun_name=self._name)
        return CachedTrace(closed, milliseconds, shared_key), closed.captures

    def _trace_shapes(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]
                      ) -> ClosedFunction:
        return trace(self._arguments.of_dynamic(args, kwargs), key.avals, key.in_tree,
                     transform="jit", name=self._name).close()

    def _returns_args(self, closed: ClosedFunction) -> bool:
        """Whether some arguments are results, which may have to be copied to a device first."""
        return self._chosen is not None and any(s.op is PARAM for s in closed.function.src)

    def _link(self, replay: CachedTrace, key: CallKey, n: int) -> Executable:
        replay.executable = self._executables.find(replay.closed.function, self._donated(key, n),
                                                   self._device or key.device, replay.lines)
        if config.viz:
            of_signature = jit_stages.SignatureStages(self, replay, key, n)
            global_page.add_function((self._name, of_signature.lowering))
        return replay.executable

    def _executable(self, local: LocalProgram | None, replay: CachedTrace, key: CallKey, n: int
                    ) -> Executable:
        """Return the program of a trace, or that of this process on its blocks."""
        if local is None:
            return replay.executable or self._link(replay, key, n)
        return self._executables.find(local.function, self._donated(key, n),
                                      self._device or key.device, replay.lines)

    def _code_key(self) -> tuple[Any, ...] | None:
        """Return the CodeKey that it shares with functions of equal code, as it is now."""
        return None if self._bounded is not None else code_key(self._f, *self._options.items())

    def _link_and_share(self, replay: CachedTrace, key: CallKey, captures: Captures, n: int
                        ) -> Executable:
        executable = self._link(replay, key, n)
        if replay.code_key is not None and replay.code_key == self._code_key():
            share_trace(replay.code_key, key, SharedTrace(
                self._f, captures, replay.closed, executable, replay.lines))
        return executable

    def _donated(self, key: CallKey, n: int) -> tuple[int, ...]:
        """Return the leaves of a signature that are donated, for a call with n arguments."""
        return tuple(self._donation.leaves(key.in_tree, nonstatic(key, n), n))

    def _launch_plan(self, replay: CachedTrace, key: CallKey, captures: Captures, n: int,
                     executable: Executable) -> LaunchPlan:
        """Describe a linked trace to a launcher, for calls with n arguments."""
        return LaunchPlan(key, nonstatic(key, n), captures.entries, replay.storages,
                          replay.closed, executable, self._donated(key, n), self._donation.to,
                          self._chosen)

    def _make_launcher(self, replay: CachedTrace, plan: LaunchPlan) -> None:
        replay.fastpath = make_fastpath(plan)
        if installs_native_call(plan.program.device, Jitted):
            replay.native_call = make_native_call(plan, self._native_hits)
        self._update_launchers()

    def _update_launchers(self) -> None:
        """Take the launchers of the cached traces, those of the most recently used first."""
        replays = [v.value for v in reversed(self._traces.values())]
        launchers = [(replay.kind, replay.fastpath) for replay in replays
                     if replay.fastpath is not None]
        self._launchers = [launch for _, launch in launchers] \
            if len(launchers) <= MAX_LAUNCHERS else [launch_by_kind(launchers)]
        self._native_calls = tuple([replay.native_call for replay in replays
                                    if replay.native_call is not None][:MAX_NATIVE])

    # ---- looking inside

    def _calls_with_references(self, used: StateUsedError) -> Any:
        if self._stateful is None:
            self._stateful = stateful_calls.stateful(
                used, self._f, lambda f: Jitted(f, **self._options))
        return self._stateful

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowering:
        """Return all lowering steps of this signature, for reading: graph, kernels, commands, LLVM
        IR. Arguments are arrays or ``ShapeDtypeStruct``s. The result keeps the arrays, to time the
        program with them."""
        lowering: Lowering = jit_stages.lower(self, args, kwargs)
        return lowering

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> TracedCall:
        """Trace this signature: the types of arguments and results, the graph, and how to lower it.
        Arguments are arrays or ``ShapeDtypeStruct``s."""
        traced: TracedCall = jit_stages.trace(self, args, kwargs)
        return traced

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the shapes and dtypes of the result, as ``fnx.eval_shape`` does: nothing runs.
        Arguments are arrays or ``ShapeDtypeStruct``s."""
        return self.trace(*args, **kwargs).out_info

    def memory(self, *args: P.args, **kwargs: P.kwargs) -> MemoryUse:
        """Return the peak memory of a call with such arguments, and what is live when, by the
        user's lines. Nothing runs; the program is compiled if it is not yet. Arguments are arrays
        or ``ShapeDtypeStruct``s."""
        use: MemoryUse = jit_stages.memory(self, args, kwargs)
        return use

    def cache_info(self) -> CacheInfo:
        """Return how often it was traced, compiled and dispatched, and why it was retraced."""
        traces = self._traces if self._bounded is None else self._bounded.cache
        hits = self._hits + self._native_hits[0] + traces.hits
        count = (self._bounded or traces).trace_count
        return CacheInfo(hits, count, self._executables.compile_count, len(traces),
                         tuple(traces.misses))

    def _cache_size(self) -> int:
        """Return the number of signatures whose traces are cached, as libraries ask JAX."""
        return len(self._traces)

    def clear_cache(self) -> None:
        """Drop all traces and programs, also those that functions of equal code share."""
        drop_shared(self._code_key())
        self._traces.clear()
        if self._bounded is not None:
            self._bounded.cache.clear()
        self._executables.clear()
        self._launchers, self._native_calls = (), ()


_all_jitted: WeakMemo[Jitted[Any, Any], None] = WeakMemo()


def _clear_all_caches() -> None:
    """Clear all jit caches: fast paths hold programs of traces that were dropped."""
    for jitted in _all_jitted.live_keys():
        jitted.clear_cache()


clear_hooks.append(_clear_all_caches)

register_lower(lambda f, args, kwargs: Jitted(f).lower(*args, **kwargs))
_sharded_kinds: list[Callable[..., Jitted[..., Any]]] = []


def register_sharded(make: Callable[..., Jitted[..., Any]]) -> None:
    """Register what makes a Jitted with in_shardings and out_shardings, its first arguments."""
    _sharded_kinds.append(make)


@overload
def jit(f: Callable[P, R], *,
        static_argnums: ArgNums = (), static_argnames: ArgNames = (),
        donate_argnums: ArgNums = (), donate_argnames: ArgNames = (),
        keep_unused: bool = False, in_shardings: Any = None, out_shardings: Any = None,
        device: Any = None, backend: str | None = None, inline: bool = False,
        compiler_options: Mapping[str, Any] | None = None,
        dynamic: Mapping[Any, Mapping[int, Any]] | None = None
        ) -> Jitted[P, R]: ...


@overload
def jit(f: None = None, *,
        static_argnums: ArgNums = (), static_argnames: ArgNames = (),
        donate_argnums: ArgNums = (), donate_argnames: ArgNames = (),
        keep_unused: bool = False, in_shardings: Any = None, out_shardings: Any = None,
        device: Any = None, backend: str | None = None, inline: bool = False,
        compiler_options: Mapping[str, Any] | None = None,
        dynamic: Mapping[Any, Mapping[int, Any]] | None = None
        ) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...


@validate_call
def jit(f: Callable[..., Any] | None = None, *,
        static_argnums: ArgNums = (), static_argnames: ArgNames = (),
        donate_argnums: ArgNums = (), donate_argnames: ArgNames = (),
        keep_unused: bool = False, in_shardings: Any = None, out_shardings: Any = None,
        device: Any = None, backend: str | None = None, inline: bool = False,
        compiler_options: Mapping[str, Any] | None = None,
        dynamic: Mapping[Any, Mapping[int, Any]] | None = None) -> Any:
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
        keep_unused: whether the text of a lowering as StableHLO has arguments that f does not
            read, which cost nothing.
        in_shardings: shardings of the arguments by position, a tree or a prefix of one:
            uncommitted arguments are moved there.
        out_shardings: shardings of the results, in the same form.
        device: the name of the device that runs it when it is called outside of all traces, or
            one of ``fnx.devices()``; None: ``config.device``. Arguments are copied there, and
            results are committed there, as by ``device_put``.
        backend: as ``device``.
        inline: whether a call in another traced function is in its jaxpr as the equations of f. In
            both cases f is traced once, and its kernels are fused with those around it.
        compiler_options: None, as there are no XLA options here.
        dynamic: axes of arguments whose length differs from call to call: {name or position of an
            argument: {axis: fnx.dim(name, low, high)}}. f is traced once with these dimensions,
            and its kernels take lengths as arguments (docs/guide/dimensions.md).

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
    check_compiler_options("jit", compiler_options)
    if f is None:
        return functools.partial(
            jit, static_argnums=static_argnums, static_argnames=static_argnames,
            donate_argnums=donate_argnums, donate_argnames=donate_argnames,
            in_shardings=in_shardings, out_shardings=out_shardings, device=device, backend=backend,
            inline=inline, dynamic=dynamic, keep_unused=keep_unused)
    has_shardings = _sharded_kinds and (in_shardings is not None or out_shardings is not None)
    make = functools.partial(_sharded_kinds[-1], in_shardings, out_shardings) if has_shardings \
        else Jitted
    return make(f, as_tuple(static_argnums), as_tuple(static_argnames),
                  as_tuple(donate_argnums), as_tuple(donate_argnames),
                  requested_device(backend if device is None else device), inline, dynamic,
                  keep_unused)


__all__ = ["CacheInfo", "Jitted", "jit"]
