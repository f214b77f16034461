"""Compile and link a FUNCTION for a device, for jit and for eager calls.

    FUNCTION  ->  prepared: loop invariants hoisted, searched schedules applied
              ->  lowered: COMMANDS and kernel code
              ->  Executable, which runs on memory of the device

Only this file and jit.py import all of transforms, lower and backends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fnx.backends.base import DeviceBase, before_each, get_device, moved, row_of
from fnx.backends.base import record as record_on_all
from fnx.core import ops
from fnx.core.array import storage
from fnx.core.array.committed import PlacedAt
from fnx.core.array.trace import apart, rewriting
from fnx.core.config import config
from fnx.core.dtypes import NDArray
from fnx.core.errors import KernelError
from fnx.core.process import load
from fnx.core.program import KernelCode, Recorded
from fnx.core.target import Target
from fnx.core.uop import UOp, kinds, toposort
from fnx.transforms.replay.executable import DeviceFace, Eager, Executable, LoweredFace

if TYPE_CHECKING:
    from fnx.core.limits import Limits

Schedules = Callable[[UOp], Any]  # KERNEL -> its schedule; None: use the heuristic


def link(fn: UOp, device: DeviceBase, runtime_extents: bool = False, donated: Sequence[int] = (),
         stored: bool = False) -> Executable:
    """Compile a FUNCTION and link it for a device. The compiler is half of fnx's code: it is
    loaded only when a program is not found among the stored ones (``stored``: look there)."""
    if not stored or config.check_index or config.check_spec or not device.target.compiler or \
            _is_searched(fn):
        return _compiled(fn, device, runtime_extents, donated)
    place = load("fnx.transforms.replay.stored").StoredExecutable(fn, device, disk(), donated)
    found: Executable | None = rewriting(place.restored, lambda block: Executable(
        fn, device, block, {}, lambda: _compiled(fn, device, donated=donated).lowered))
    if found is None:
        found = _compiled(fn, device, donated=donated)
        commands = found.buffer.linked(found.block.commands)
        if commands is not None:
            load("fnx.backends.write_behind").later(
                partial(place.keep, found.block, commands))
    return found


def _compiled(fn: UOp, device: DeviceBase, runtime_extents: bool = False,
              donated: Sequence[int] = ()) -> Executable:
    """Run all passes on a FUNCTION, and link the result."""
    schedules = None if runtime_extents else searched_schedules(fn, device, donated)
    return _begun(fn, device, runtime_extents, donated, schedules)()


def _begun(fn: UOp, device: DeviceBase, runtime_extents: bool = False,
           donated: Sequence[int] = (), schedules: Schedules | None = None,
           prepare: Callable[[KernelCode], None] | None = None) -> Callable[[], Executable]:
    """Run all passes on a FUNCTION and start compiling its kernels; return the function that
    links it."""
    checks = ()
    if config.check_index:
        fn, checks = load("fnx.lower.tensor.check_index").check_index(fn)
    fn = prepared(fn, device)
    before = device.stats()
    made = apart(load("fnx.lower.pipeline").lower, fn, target_of(device), runtime_extents,
                 prepare or device.prepare, None, donated, schedules)

    def linked() -> Executable:
        executable = Executable(fn, device, made.block, made.code, lambda: made, checks)
        after = device.stats()
        made.milliseconds.update({k[:-3]: (after[k] - before[k]) / 1e3
                                  for k in after if k.endswith("_us")})
        return executable
    return linked


def searched_schedules(fn: UOp, device: DeviceFace, donated: Sequence[int] = ()
                       ) -> Schedules | None:
    """Return the schedules of a FUNCTION's kernels if ``config.search`` asks to find them by
    timing; schedules that were found before are reused. None if the heuristic chooses all of
    them."""
    if not config.search or config.check_index or not device.target.has_code:
        return None
    kernels: list[UOp] = []
    apart(load("fnx.lower.pipeline").lower, prepared(fn, device), target_of(device), False, None,
          None, donated, kernels.append)
    found: dict[UOp, Any] = apart(
        load("fnx.transforms.replay.search").schedules, kernels, device, _beginning(device),
        load("fnx.lower.schedule.candidates"), disk(), config.search, fn.arg.name)
    return found.get


def _beginning(device: DeviceFace) -> Callable[[UOp, int], Callable[[], Executable]]:
    """Return a function that starts the compilation of a FUNCTION. ``longest``: the number of
    characters of kernel code above which it is not compiled, because compile time grows with the
    length and cannot be bounded; 0: no limit."""
    found = get_device(device.target.name)

    def begin(fn: UOp, longest: int = 0) -> Callable[[], Executable]:
        def prepare(code: KernelCode) -> None:
            if longest and len(code.text()) > longest:
                raise KernelError(f"expected code of at most {longest} characters, got "
                                  f"{len(code.text())}")
            found.prepare(code)
        return _begun(fn, found, prepare=prepare)
    return begin


def target_of(device: DeviceFace) -> Target:
    """Return the target that programs of a device are lowered for."""
    target: Target = device.target
    return target.replace(unfused=config.unfused) if config.unfused else target


def lowered_for(fn: UOp, target: Target) -> LoweredFace:
    """Run all passes on a FUNCTION for a target that need not be this machine."""
    made: LoweredFace = apart(load("fnx.lower.pipeline").lower, fn, target)
    return made


def record() -> Callable[[], Recorded]:
    """Record when each kernel of any device runs, until the returned function is called."""
    return record_on_all(config.device)


def limits(beyond: bool = False) -> Limits | None:
    """Return what the configured device can do: measured once, and again if a kernel is
    ``beyond`` the measured limits. None on GPUs, on devices that compile nothing, and while the
    device is being recorded."""
    device = _device()
    if device.target.kind != "host" or device.is_recording:
        return None
    found: Limits = apart(load("fnx.transforms.replay.limits").limits, device, _beginning(device),
                          disk(), beyond)
    return found


def disk() -> Any:
    """Return the DiskCache that processes share."""
    module = load("fnx.backends.cache")
    return module.DiskCache(module.directory())


def _is_searched(fn: UOp) -> bool:
    """Whether a schedule is to be found by timing."""
    return ops.CALL in kinds([fn]) and any(
        node.op is ops.CALL and node.arg.schedule
        and load("fnx.transforms.replay.search").is_searched(node)
        for node in toposort([fn], into_functions=True, stop=lambda n: n.op is ops.KERNEL))


def prepared(fn: UOp, device: DeviceFace) -> UOp:
    """Return the FUNCTION to lower: loop invariants are hoisted out of scans, and kernels have
    the schedules that a search finds."""
    found = kinds([fn])
    if ops.SCAN in found:
        fn = load("fnx.transforms.loops.hoist").hoist(fn)
    return _searched(fn, device) if ops.CALL in found and _is_searched(fn) else fn


def _searched(fn: UOp, device: DeviceFace) -> UOp:
    search = load("fnx.transforms.replay.search")
    found: UOp = search.searched(fn, device, _beginning(device),
                                 load("fnx.lower.schedule.candidates"), disk())
    return found


def result_on(memory: Any, given: Sequence[Any], place: PlacedAt) -> Any:
    """Return a result on the device that a function was jitted for: a result that is an input
    buffer is copied there."""
    if not any(memory is x for x in given):
        return memory
    made = moved(memory, place.device)
    made.placed = place
    return made


def _device() -> DeviceBase:
    return get_device(config.device)


@before_each
def _load_ahead(device: str) -> None:
    if device == "cpu" and not load("fnx.backends.allocator").address_space_is_limited():
        load("fnx.backends.cache")  # the disk cache, keyed by digests
        load("fnx.transforms.replay.ahead").begin(lambda: get_device(device).expect())


def _put(value: NDArray) -> Any:
    return get_device(config.device).upload(value)


_eager = Eager(lambda fn, _, device: link(fn, get_device(device), True), _put,
               lambda nbytes: _device().zeros(nbytes))
storage.set_evaluator(_eager.evaluate, _eager.put, lambda: _device().synchronize(),
                      lambda value: _device().borrow(value))

__all__ = ["disk", "get_device", "limits", "link", "lowered_for", "moved", "prepared", "record",
           "result_on", "row_of", "searched_schedules", "target_of"]
