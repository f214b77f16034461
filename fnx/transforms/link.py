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

from fnx.backends.device.base import (
    DeviceBase,
    generic_target,
    get_device,
    on_device_creation,
    transfer_storage,
)
from fnx.backends.device.base import record as record_on_all
from fnx.core.array.placement import Placement
from fnx.core.ir import ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.kernel_code import KernelCode, RunTrace
from fnx.core.ir.uop import UOp, reachable, toposort
from fnx.core.scope import storage
from fnx.core.support.config import config
from fnx.core.support.errors import KernelError
from fnx.core.support.process import lazy_import, load
from fnx.core.support.target import Target
from fnx.core.tracing.trace import preserving_locs, with_gc_disabled
from fnx.transforms.dispatch.executable import (
    DeviceLike,
    EagerEvaluator,
    Executable,
    Lines,
    LoweredLike,
)

if TYPE_CHECKING:
    from fnx.core.rewriting.peak_rates import PeakRates
    from fnx.transforms.dispatch.program_cache import ProgramEntry

axis_lengths = lazy_import("fnx.core.rewriting.lengths")
allocator = lazy_import("fnx.backends.device.allocator")
background_writer = lazy_import("fnx.backends.disk.background_writer")
bounds_check = lazy_import("fnx.lower.tensor.bounds_check")
cache = lazy_import("fnx.backends.disk.cache")
candidates = lazy_import("fnx.lower.candidates")
loop_fission = lazy_import("fnx.transforms.control_flow.loop_fission")
machine_limits = lazy_import("fnx.transforms.dispatch.machine_limits")
pipeline = lazy_import("fnx.lower.pipeline")
partition = lazy_import("fnx.lower.partition.partition", "partition")
combine_sums = lazy_import("fnx.lower.partition.combine", "combine_sums")
preload = lazy_import("fnx.transforms.dispatch.preload")
program_cache = lazy_import("fnx.transforms.dispatch.program_cache")
schedule_search = lazy_import("fnx.transforms.dispatch.schedule_search")

ScheduleLookup = Callable[[UOp], Any]  # KERNEL -> its schedule; None: use the heuristic


def link(fn: UOp, device: DeviceBase, fixed_lengths: frozenset[int] | None = None,
         donated: Sequence[int] = (), use_stored: bool = False, lines: Lines = frozenset()
         ) -> Executable:
    """Compile a FUNCTION and link it for a device. The compiler is half of fnx's code: it is
    loaded only when a program is not found among the stored ones (``use_stored``: look there).
    ``lines`` are the user's lines of its trace: nodes that are equal to those of other functions
    have the lines of these, too."""
    if not use_stored or config.check_index or config.check_spec or not device.target.compiler or \
            _is_searched(fn):
        return _compile(fn, device, fixed_lengths, donated, lines)
    store = program_cache.ProgramEntry(fn, device, disk_cache(), donated, lines)
    compiled = partial(_compile, fn, device, donated=donated, lines=lines)
    executable: Executable | None = preserving_locs(store.restore_program, lambda block: Executable(
        fn, device, block, {}, lambda: compiled().lowered, lines=lines))
    if executable is None:
        executable = compiled()
        background_writer.enqueue(partial(_store_program, store, executable))
    return executable


def _store_program(entry: ProgramEntry, executable: Executable) -> None:
    """Store a program for other processes, if its device can; describing its kernels takes a
    twentieth of a first call, so this runs on the writer thread."""
    commands = executable.buffer.linked(executable.block.commands)
    if commands is not None:
        entry.store(executable.block, commands)


def _compile(fn: UOp, device: DeviceBase, fixed_lengths: frozenset[int] | None = None,
             donated: Sequence[int] = (), lines: Lines = frozenset()) -> Executable:
    """Run all passes on a FUNCTION, and link the result."""
    schedules = search_schedules(fn, device, donated) if fixed_lengths is None else None
    return _start_compile(fn, device, fixed_lengths, donated, schedules, lines=lines)()


def _start_compile(fn: UOp, device: DeviceBase, fixed_lengths: frozenset[int] | None = None,
                   donated: Sequence[int] = (), schedules: ScheduleLookup | None = None,
                   prepare: Callable[[KernelCode], None] | None = None,
                   lines: Lines = frozenset()) -> Callable[[], Executable]:
    """Run all passes on a FUNCTION and start compiling its kernels; return the function that
    links it."""
    checks = ()
    axis_lengths.check_no_dimensions(fn)
    if config.check_index:
        fn, checks = bounds_check.add_bounds_checks(fn)
    fn = preprocess(fn, device)
    stats_before = device.stats()
    lowered = with_gc_disabled(pipeline.lower, fn, target_of(device), fixed_lengths,
                               prepare or device.prepare, None, donated, schedules, lines)

    def linked() -> Executable:
        executable = Executable(fn, device, lowered.block, lowered.code, lambda: lowered, checks,
                                lines)
        after = device.stats()
        lowered.milliseconds.update({k[:-3]: (after[k] - stats_before[k]) / 1e3
                                     for k in after if k.endswith("_us")})
        return executable
    return linked


def search_schedules(fn: UOp, device: DeviceLike, donated: Sequence[int] = ()
                     ) -> ScheduleLookup | None:
    """Return the schedules of a FUNCTION's kernels if ``config.search`` asks to find them by
    timing; schedules that were found before are reused. None if the heuristic chooses all of
    them."""
    if not config.search or config.check_index or not device.target.is_compiled:
        return None
    kernels: list[UOp] = []
    with_gc_disabled(pipeline.lower, preprocess(fn, device), target_of(device),
                     None, None, None, donated, kernels.append)
    schedules: dict[UOp, Any] = with_gc_disabled(
        schedule_search.search_kernels, kernels, device, _make_start(device), candidates,
        disk_cache(), config.search, fn.arg.name)
    return schedules.get


def _make_start(device: DeviceLike) -> Callable[[UOp, int], Callable[[], Executable]]:
    """Return a function that starts the compilation of a FUNCTION. ``longest``: the number of
    characters of kernel code above which it is not compiled, because compile time grows with the
    length and cannot be bounded; 0: no limit."""
    backend = get_device(device.target.name)

    def begin(fn: UOp, max_chars: int = 0) -> Callable[[], Executable]:
        def prepare(code: KernelCode) -> None:
            if max_chars and len(code.text()) > max_chars:
                raise KernelError(f"expected code of at most {max_chars} characters, got "
                                  f"{len(code.text())}")
            backend.prepare(code)
        return _start_compile(fn, backend, prepare=prepare)
    return begin


def target_of(device: DeviceLike) -> Target:
    """Return the target that programs of a device are lowered for."""
    target: Target = device.target
    return target.replace(unfused=config.unfused) if config.unfused else target


def lower_for(fn: UOp, target: Target) -> LoweredLike:
    """Run all passes on a FUNCTION for a target that need not be this machine."""
    lowered: LoweredLike = with_gc_disabled(pipeline.lower, fn, target)
    return lowered


def record() -> Callable[[], RunTrace]:
    """Record when each kernel of any device runs, until the returned function is called."""
    return record_on_all(config.device)


def device_limits(beyond: bool = False) -> PeakRates | None:
    """Return what the configured device can do: measured once, and again if a kernel is
    ``beyond`` the measured limits. None on GPUs, on devices that compile nothing, and while the
    device is being recorded."""
    device = _configured_device()
    if device.target.kind != "host" or device.is_recording:
        return None
    result: PeakRates = with_gc_disabled(
        machine_limits.find_limits, device, _make_start(device), disk_cache(), beyond)
    return result


def disk_cache() -> Any:
    """Return the DiskCache that processes share."""
    return cache.DiskCache(cache.directory())


def _is_searched(fn: UOp) -> bool:
    """Whether a schedule is to be found by timing."""
    return any(
        node.op is ops.CALL and node.arg.schedule and schedule_search.needs_search(node)
        for node in toposort([fn], into_functions=True, stop=lambda n: n.op is ops.KERNEL))


def preprocess(fn: UOp, device: DeviceLike) -> UOp:
    """Return the FUNCTION to lower: loop invariants are hoisted out of scans, and kernels have
    the schedules that a search finds."""
    op_kinds = {n.op for n in reachable([fn])}
    if ops.SCAN in op_kinds:
        in_cache = device.target.kind == "host"  # other devices are busy with many steps only
        fn = loop_fission.split_scans(fn, config.strip_bytes if in_cache else None)
    return _apply_search(fn, device) if ops.CALL in op_kinds and _is_searched(fn) else fn


def _apply_search(fn: UOp, device: DeviceLike) -> UOp:
    result: UOp = schedule_search.search_calls(fn, device, _make_start(device), candidates,
                                               disk_cache())
    return result


def copy_result_to(memory: Any, inputs: Sequence[Any], placement: Placement) -> Any:
    """Return a result on the device that a function was jitted for: a result that is an input
    buffer is copied there."""
    if not any(memory is x for x in inputs):
        return memory
    moved_result = transfer_storage(memory, placement.device)
    moved_result.placed = placement
    return moved_result


def _configured_device() -> DeviceBase:
    return get_device(config.device)


@on_device_creation
def _preload(device: str) -> None:
    if device == "cpu" and not allocator.has_address_space_limit():
        load("fnx.backends.disk.cache")  # the disk cache, keyed by digests
        preload.preload_compiler(lambda: get_device(device).warm_up_compiler())


def _upload(value: NDArray) -> Any:
    return get_device(config.device).upload(value)


_eager = EagerEvaluator(lambda fn, _, device, lines: link(fn, get_device(device), frozenset()),
                        _upload, lambda nbytes: _configured_device().zeros(nbytes))
storage.set_evaluator(_eager.evaluate, _eager.put, lambda: _configured_device().synchronize(),
                      lambda value, check: _configured_device().borrow(value, check))

__all__ = [
    "combine_sums",
    "copy_result_to",
    "device_limits",
    "disk_cache",
    "generic_target",
    "get_device",
    "link",
    "lower_for",
    "partition",
    "preprocess",
    "record",
    "search_schedules",
    "target_of",
    "transfer_storage",
]
