"""The stages of a jitted function for one signature, each computed from its trace when asked for.

    f.trace(x), f.lower(x), f.memory(x)  ->  SignatureStages of the trace that dispatch would use

Calls do not need them, so that jit.py loads this module when one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fnx.core.array.placement import LocalProgram, Placement, local_program
from fnx.core.support.config import config
from fnx.core.support.process import lazy_import
from fnx.core.tracing.state import StateUsedError
from fnx.transforms import stages
from fnx.transforms.dispatch import memory_use
from fnx.transforms.dispatch.executable import CachedTrace, Executable
from fnx.transforms.dispatch.memory_use import MemoryUse
from fnx.transforms.dispatch.signature import (
    ArgFlattener,
    CallKey,
    Donation,
    leaf_labels,
    nonstatic,
    positions,
)
from fnx.transforms.dispatch.specialized_call import SpecializedCall
from fnx.transforms.dispatch.trace_cache import TraceEntry
from fnx.transforms.inspect import timeline
from fnx.transforms.inspect.lowering import Lowering
from fnx.transforms.link import device_limits, preprocess, search_schedules, target_of
from fnx.transforms.stages import Compiled, TracedCall
from fnx.transforms.stateful_stages import StatefulStages

jaxprs = lazy_import("fnx.jaxprs.make")
pipeline = lazy_import("fnx.lower.pipeline")
stablehlo_text = lazy_import("fnx.jaxprs.stablehlo_text")


class Dispatcher(Protocol):
    """What the stages need of a jitted function."""

    _f: Callable[..., Any]
    _name: str
    _options: dict[str, Any]
    _arguments: ArgFlattener
    _donation: Donation
    _device: str | None
    _chosen: Placement | None
    _keep_unused: bool
    ir_by_default: str | None

    def _find_trace(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]
                    ) -> TraceEntry[CachedTrace]: ...
    def _donated(self, key: CallKey, n: int) -> tuple[int, ...]: ...
    def _executable(self, local: LocalProgram | None, replay: CachedTrace, key: CallKey, n: int
                    ) -> Executable: ...
    def _calls_with_references(self, used: StateUsedError) -> Any: ...


class SignatureStages:
    """The stages of a jitted function for one signature.

    Args:
        jitted: the function.
        replay: the trace of the signature.
        key: the signature.
        n: the number of positional arguments.
    """

    def __init__(self, jitted: Dispatcher, replay: CachedTrace, key: CallKey, n: int) -> None:
        self._jitted, self._replay, self._key, self._n = jitted, replay, key, n

    def jaxpr(self) -> Any:
        """Return the ClosedJaxpr of the trace."""
        return jaxprs.closed_jaxpr(self._replay.closed, self._key, self._jitted._f,
                                   nonstatic(self._key, self._n))

    def local_for(self, arrays: Sequence[Any]) -> LocalProgram | None:
        """Return what this process runs for arrays, or what stands for them."""
        return local_program(self._replay.closed.function, [
            *[getattr(x, "_storage", x) for x in arrays], *self._replay.storages]) \
            if config.placing else None

    def specialized(self) -> SpecializedCall:
        """Return the signature as its stages need it."""
        jitted = self._jitted
        donated = positions(jitted._donation.numbers, self._n)
        donation = Donation(
            tuple([i for i, at in enumerate(nonstatic(self._key, self._n)) if at in donated]),
            tuple(jitted._donation.names), jitted._f)
        return SpecializedCall(jitted._name, jitted._f, self._replay, self._key,
                               jitted._donated(self._key, self._n), donation)

    def _executable(self, local: LocalProgram | None) -> Executable:
        return self._jitted._executable(local, self._replay, self._key, self._n)

    def memory(self) -> MemoryUse:
        """Return the memory that a call takes."""
        return memory_use.memory_use_of_call(self._executable(None), self._key.avals,
                                             self._replay.storages)

    def compiled(self, lowering: Lowering, local: LocalProgram | None, shardings: Sequence[Any]
                 ) -> Compiled:
        """Return the compiled stage of a lowering for arguments with shardings."""
        jitted, signed = self._jitted, self.specialized()
        return stages.Compiled(signed, jitted._arguments, self._executable(local), local, lowering,
                               self.memory, jitted._device or self._key.device, jitted._chosen,
                               shardings)

    def traced(self, local: LocalProgram | None) -> TracedCall:
        """Return the traced stage."""
        return stages.TracedCall(self.specialized(), self.jaxpr, lambda: self.lowering(local))

    def lowering(self, local: LocalProgram | None = None, arrays: Sequence[Any] = ()) -> Lowering:
        """Return the lowered stage; it keeps the arrays, if any, to time the program with them."""
        jitted, replay, key = self._jitted, self._replay, self._key
        donated = jitted._donated(key, self._n)
        executable = self._executable(local)
        device = executable.device
        function = replay.closed.function if local is None else local.function
        fn = preprocess(function, device)
        schedules = search_schedules(function, device, donated)
        target = target_of(device)

        def lower_again(on_pass: Callable[[Any], None]) -> None:
            pipeline.lower(fn, target, on_pass=on_pass, donated=donated, schedules=schedules)

        def module(debug_info: bool) -> Any:
            return stablehlo_text.StableHloModule(stablehlo_text.module_text(
                self.jaxpr(), jitted._name, donated, jitted._keep_unused, debug_info))

        lowering = Lowering(
            fn, executable.lowered, device, replay.milliseconds, lower_again,
            leaf_labels(jitted._f, key), jitted._name,
            lambda most: timeline.record_timelines(replay, executable, key.avals, arrays, most),
            device_limits)
        shardings = [getattr(x, "sharding", None) for x in arrays]
        # a compiled function must not keep arguments alive
        lowering.sign(self.specialized(), lambda: self.compiled(
            self.lowering(local) if arrays else lowering, local, shardings), module,
            jitted.ir_by_default)
        if arrays:
            lowering.arguments = tuple(arrays)
        return lowering


def _of_call(jitted: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]
             ) -> tuple[list[Any], SignatureStages]:
    """Return the arguments and the stages of their signature, for what calls nothing."""
    arrays, key = jitted._arguments.key(args, kwargs, shapes=True)
    return arrays, SignatureStages(jitted, jitted._find_trace(key, args, kwargs).value, key,
                                   len(args))


def _with_references(jitted: Dispatcher, used: StateUsedError, args: tuple[Any, ...],
                     kwargs: dict[str, Any]) -> StatefulStages:
    """Return the stages of a function that used a reference."""
    return StatefulStages(
        jitted._calls_with_references(used), jitted._f, args, kwargs,
        lambda: jaxprs.make_jaxpr(jitted._f, jitted._options["static_argnums"])(*args, **kwargs))


def lower(jitted: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Lowering:
    """Return the lowered stage for arguments, which it keeps."""
    try:
        arrays, of_signature = _of_call(jitted, args, kwargs)
    except StateUsedError as used:
        return _with_references(jitted, used, args, kwargs).lower()
    return of_signature.lowering(of_signature.local_for(arrays), arrays)


def trace(jitted: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedCall:
    """Return the traced stage for arguments."""
    try:
        arrays, of_signature = _of_call(jitted, args, kwargs)
    except StateUsedError as used:
        return _with_references(jitted, used, args, kwargs).trace()
    return of_signature.traced(of_signature.local_for(arrays))


def memory(jitted: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> MemoryUse:
    """Return the memory that a call with such arguments takes."""
    return _of_call(jitted, args, kwargs)[1].memory()
