"""The typed configuration: settings, their bounds, and where each value came from.

>>> config.x64
False
>>> with override(x64=True):
...     config.x64
True
>>> config.workers = -1                                     # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
fnx.core.support.errors.ArgumentError: config.workers: expected an integer from 0 to 1024, got -1

An assignment applies to the whole process. A ``with`` block applies to the thread or task that
entered it and to tasks started inside; others keep the process-wide values. Settings of shared
resources (worker threads, the cache, the web page) are process-wide even in a block.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal

from fnx.core.support.errors import ArgumentError, UnknownNameError
from fnx.core.support.jax_flags import FIELD_OF, FIXED, INERT, check_flag, unknown_flag
from fnx.core.support.name_hints import most_similar, suggestion
from fnx.core.support.record import Record
from fnx.core.support.setting_kinds import Bool, Folder, Number, OneOf


class Field(Record):
    """A setting.

    Attributes:
        kind: the type of its values.
        variable: the environment variable that sets it.
        affects: what depends on it: generated "code", "calls" (what a call does besides running
            that code), or "" for neither.
        doc: a description for users.
    """

    kind: Bool | Number | OneOf | Folder
    default: Any
    variable: str | None
    affects: Literal["code", "calls", ""]
    doc: str


_TERA = 1 << 40
DEVICES = {"cpu": "fnx.backends.cpu.device", "cuda": "fnx.backends.cuda",
           "interp": "fnx.backends.interp", "null": "fnx.backends.null",
           "opencl": "fnx.backends.opencl", "soft": "fnx.backends.soft",
           "trace": "fnx.backends.trace",
           "webgpu": "fnx.backends.webgpu"}  # device -> module
GPUS = "cuda", "opencl", "webgpu"  # the preferred one first
OWN_MEMORY = *GPUS, "soft"  # devices with memory of their own
# Instruction set levels by architecture, and the features that each adds, by LLVM's names: "x86-64
# System V psABI", section 3.1.1; "Arm Architecture Reference Manual", profile A, version 8.0.
INSTRUCTIONS = {
    "x86_64": {"x86-64": "64bit cmov cx8 fxsr mmx sse sse2",
               "x86-64-v2": "cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3",
               "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave",
               "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl"},
    "aarch64": {"armv8-a": "fp-armv8 neon"},
}
# Kinds of fusion that can be disabled: by nodes (lower/fusion/disable_fusion.py), or a pass by its
# name.
FUSIONS = ("prologue", "epilogue", "row", "concat", "recompute", "attention",
           "fuse_loop_into_kernel", "loop_kernels", "row_blocks", "row_epilogues", "all")
FIELDS = {
    "x64": Field(Bool(), False, "FNX_ENABLE_X64", "code",
                 "keep 64-bit data from NumPy and Python at 64 bits"),
    "truncate": Field(Bool(), False, None, "code",
                      "without x64, truncate explicit 64-bit dtypes to 32 bits, as in JAX"),
    "derivatives": Field(OneOf(("all", "jax")), "all", None, "code",
                         "jax: raise an error for derivatives that JAX lacks: the forward mode of "
                         "a custom_vjp, the reverse mode of loops of unknown length"),
    "check": Field(OneOf(("", "nan", "inf")), "", "FNX_CHECK", "calls",
                   "raise an error on NaN (or also infinity) in a result, naming the op that "
                   "produced it"),
    "check_index": Field(Bool(), False, None, "code",
                         "raise an error on out-of-bounds array indices, regardless of mode"),
    "dtype_promotion": Field(OneOf(("standard", "strict")), "standard", None, "code",
                             "strict: raise an error where arrays of two dtypes would be promoted"),
    "rank_promotion": Field(OneOf(("allow", "warn", "raise")), "allow", None, "code",
                            "warn or raise an error where arrays of other ranks would broadcast"),
    "threefry_partitionable": Field(Bool(), True, None, "code",
                                    "count random bits one by one, so that each depends on its own "
                                    "index only; False: in two halves, as JAX before 0.5"),
    "check_spec": Field(Bool(), False, "FNX_CHECK_SPEC", "",
                        "check every graph between all passes"),
    "tracebacks": Field(OneOf(("user", "all")), "user", "FNX_TRACEBACKS", "",
                        "frames shown in tracebacks: those of the user, or also those of fnx"),
    "device": Field(OneOf(tuple(DEVICES)), "cpu", "FNX_DEVICE", "calls",
                    "backend that runs jit and eager calls"),
    "cpu": Field(OneOf(("", *(level for levels in INSTRUCTIONS.values() for level in levels))), "",
                 "FNX_CPU", "code",
                 "instruction set of cpu kernels; '' means all that this processor has"),
    "disable_most_optimizations": Field(
        Bool(), False, "FNX_DISABLE_MOST_OPTIMIZATIONS", "code",
        "compile cpu kernels in less than half the time; they are slower, and have the same bits"),
    "viz": Field(Bool(), False, "FNX_VIZ", "",
                 "serve a local page of compiled functions; its address is printed to stderr"),
    "disable_jit": Field(Bool(), False, "FNX_DISABLE_JIT", "calls",
                         "run jitted functions and loops in Python, step by step"),
    "no_tracing": Field(Bool(), False, None, "",
                        "raise an error if a jitted call would be traced"),
    "cpu_devices": Field(Number(-1, 4096), -1, "FNX_CPU_DEVICES", "",
                         "number of devices that fnx.devices() has on the cpu, which share its "
                         "memory and workers; -1 means one"),
    "workers": Field(Number(0, 1024), 0, "FNX_WORKERS", "",
                     "number of worker threads of the cpu queue; 0 means one per core"),
    "cache_dir": Field(Folder(), None, "FNX_CACHE_DIR", "",
                       "folder in which the object cache has its folder; empty turns it off"),
    "cache_bytes": Field(Number(0, _TERA), 1 << 30, "FNX_CACHE_BYTES", "",
                         "maximum size of the object cache; its oldest entries are evicted first"),
    "flight_bytes": Field(Number(0, _TERA), 0, "FNX_FLIGHT_BYTES", "",
                          "maximum size of results and temporaries of unfinished work; above it a "
                          "call waits; 0 means a quarter of the memory"),
    "idle_seconds": Field(Number(0.0, 1e9), 20.0, "FNX_IDLE_SECONDS", "",
                          "seconds until unused memory is returned to the system; 0 means never"),
    "search": Field(Number(0.0, 1e9), 0.0, "FNX_SEARCH", "code",
                    "maximum seconds to search for a jitted function's schedules by timing; 0 "
                    "means that a model chooses"),
    "unfused": Field(OneOf(("", *FUSIONS)), "", None, "code",
                     "kind of fusion to disable, to measure its benefit; '' means none"),
    "hoist_bytes": Field(Number(0, _TERA), 1 << 28, None, "code",
                         "maximum size that a scan may keep of all steps to hoist work out of "
                         "them"),
    "strip_bytes": Field(Number(0, _TERA), 1 << 20, None, "code",
                         "size of what a scan on the CPU keeps for hoisted work, above which it "
                         "runs by strips of steps"),
    "time_limit": Field(Number(0.0, 1e9), 0.0, None, "",
                        "maximum seconds that a wait may take; 0 means no limit"),
}


# Settings of resources that all threads and tasks share: process-wide even in a block.
_PROCESS_WIDE = frozenset({"viz", "cpu_devices", "workers", "cache_dir", "cache_bytes",
                           "flight_bytes", "idle_seconds"})
_change_count = [0]  # counts changes of any field, to invalidate the modes of blocks
# The fields that a cached call depends on: ``config.mode`` is one object for each combination.
_CALL_FIELDS = tuple([name for name, field in FIELDS.items() if field.affects])


class Config:
    """The configuration of this process: an attribute for each entry of ``FIELDS``.

    Args:
        environment: the mapping in which variables are looked up; None: that of the process.

    Raises:
        ArgumentError: the value of a variable or of an assignment is not valid for its field.

    Attributes:
        mode: the values that cached calls depend on; equal ones are the same object.
        placing: whether an array was ever placed on a device other than the configured one.
    """

    x64: bool
    truncate: bool
    derivatives: str
    check: str
    check_index: bool
    dtype_promotion: str
    rank_promotion: str
    threefry_partitionable: bool
    check_spec: bool
    tracebacks: str
    device: str
    cpu: str
    disable_most_optimizations: bool
    viz: bool
    disable_jit: bool
    no_tracing: bool
    cpu_devices: int
    workers: int
    cache_dir: str | None
    cache_bytes: int
    flight_bytes: int
    idle_seconds: float
    unfused: str
    hoist_bytes: int
    strip_bytes: int
    search: float
    time_limit: float
    mode: tuple[Any, ...]
    placing = False
    _sources: dict[str, str]
    _listeners: dict[str, list[Callable[[], None]]]
    _modes: dict[tuple[Any, ...], tuple[Any, ...]]
    _flags: dict[str, Any]

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        self.__dict__.update(_sources={}, _listeners={}, _modes={}, _flags={})
        for name, field in FIELDS.items():
            text = None if field.variable is None else environment.get(field.variable)
            value = field.default if text is None else field.kind.parse(text.strip())
            if not field.kind.is_valid(value):
                raise ArgumentError(f"{field.variable}: expected {field.kind.description}, "
                                    f"got {text!r}", hint=f"{name}: {field.doc}")
            self._set(name, value, "default" if text is None else str(field.variable))
        self._set("device", self.device, self._sources["device"])  # sets ``mode``: all are known
        _warn_unknown_vars(environment)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIELD_OF or name in FIXED or name in INERT:
            self.update(name, value)
            return
        field = FIELDS.get(name)
        if field is None:
            raise ArgumentError(f"config: expected the name of a setting, got {name!r}",
                                hint=suggestion(name, (*FIELDS, *FIELD_OF))
                                or "print(fnx.config) describes each of them")
        if not field.kind.is_valid(value):
            raise ArgumentError(f"config.{name}: expected {field.kind.description}, got {value!r}",
                                hint=f"{name}: {field.doc}")
        if isinstance(field.kind, Folder) and value:
            value = field.kind.parse(value)
        block = _setting_block(name)
        if block is None:
            self._set(name, value, "assigned")
        else:
            block.values[name] = value
            _change_count[0] += 1

    def update(self, name: str, value: Any) -> None:
        """Set a field by its name here or in JAX, as ``update("jax_enable_x64", True)``.

        Raises:
            ArgumentError: no such field, or a value that it does not take.
        """
        if name in FIXED or name in INERT:
            check_flag(name, value)
            block = _setting_block(name)
            (self._flags if block is None else block.values)[name] = value
            return
        if name.startswith("jax_") and name not in FIELD_OF:
            raise unknown_flag(name)
        field, meanings = FIELD_OF.get(name, (name, {}))
        setattr(self, field, meanings.get(value, value))

    def read(self, name: str) -> Any:
        """Return the value of a field by its name here or in JAX.

        Raises:
            ArgumentError: no such field.
        """
        if name in FIXED or name in INERT:
            block = _setting_block(name)
            default = FIXED[name][0] if name in FIXED else INERT[name]
            return self._flags.get(name, default) if block is None else block.values[name]
        field, meanings = FIELD_OF.get(name, (name, {}))
        if field not in FIELDS:
            raise ArgumentError(f"config: expected the name of a setting, got {name!r}",
                                hint=suggestion(name, (*FIELDS, *FIELD_OF))
                                or "print(fnx.config) describes each of them")
        value = getattr(self, field)
        return value == meanings[True] if meanings else value

    def __getattr__(self, name: str) -> Any:
        """Return the value of a setting by its name in JAX; other fields are plain attributes."""
        if name in FIELD_OF or name in FIXED or name in INERT:
            return self.read(name)
        if name.startswith("jax_"):
            raise unknown_flag(name)
        raise UnknownNameError("config", name, FIELDS, "print(fnx.config) lists all")

    @property
    def values(self) -> dict[str, Any]:
        """The value of each setting of JAX, by its name."""
        return {name: self.read(name) for name in (*FIELD_OF, *FIXED, *INERT)}

    def parse_flags_with_absl(self) -> None:
        """Accept the call of JAX's programs: their settings are read from the environment here.
        Flags of absl, if the program has imported it, have their defaults from here on."""
        absl_flags = sys.modules.get("absl.flags")
        if absl_flags is not None:
            absl_flags.FLAGS([""], known_only=True)

    def read_jax_variables(self, environment: Mapping[str, str] | None = None) -> None:
        """Set what variables such as ``JAX_ENABLE_X64`` say, unless one of fnx's own does, and the
        number of devices of the cpu by XLA's flag.

        Raises:
            ArgumentError: a value that the setting does not take.
        """
        environment = os.environ if environment is None else environment
        count = re.search(r"--xla_force_host_platform_device_count=(\d+)",
                          environment.get("XLA_FLAGS", ""))
        if count is not None and not self._sources["cpu_devices"].startswith("FNX_"):
            self.cpu_devices = int(count[1])
        for name in (*FIELD_OF, *FIXED, *INERT):
            text = environment.get(name.upper())
            field = FIELD_OF.get(name, (name, {}))[0]
            if text is None or self._sources.get(field, "default").startswith("FNX_"):
                continue
            default = self.read(name)
            is_truth = isinstance(default, bool)
            kind = Bool() if is_truth else Number(0, _TERA) if isinstance(default, int) else None
            value = text if kind is None else kind.parse(text.strip())
            if value is None:
                raise ArgumentError(f"{name.upper()}: expected "
                                    f"{Bool().description if is_truth else 'an integer'}, got "
                                    f"{text!r}", hint=f"unset it, or config.update({name!r}, ...)")
            self.update(name, value)

    config_with_absl = parse_flags_with_absl

    @property
    def x64_enabled(self) -> bool:
        """JAX's other name of ``x64``."""
        return self.x64

    def _set(self, name: str, value: Any, source: str) -> None:
        self.__dict__[name] = value
        self._sources[name] = source
        _change_count[0] += 1
        if name in _CALL_FIELDS and len(self._sources) == len(FIELDS):
            self.__dict__["mode"] = self._mode_of(self.__dict__)
        for listener in self._listeners.get(name, ()):
            listener()

    def _mode_of(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the mode of some values; equal modes are the same object in a process."""
        mode = (*[values[n] for n in _CALL_FIELDS], self.placing)
        return self._modes.setdefault(mode, mode)

    def add_listener(self, name: str, listener: Callable[[], None]) -> None:
        """Register a listener that is called whenever a field is set; it is never removed."""
        self._listeners.setdefault(name, []).append(listener)

    def begin_placement(self) -> None:
        """Make calls check the devices of their arguments from now on."""
        if not self.placing:
            self.__dict__["placing"] = True
            self._set("device", self.__dict__["device"], self._sources["device"])

    def _restore(self, saved: dict[str, tuple[Any, str]]) -> None:
        for name, entry in saved.items():
            self._set(name, *entry)

    def _source(self, name: str) -> str:
        """Return where the value of a field came from."""
        return self._sources[name] if _setting_block(name) is None else "assigned"

    def __repr__(self) -> str:
        """List the settings, where each value came from, and what it means."""
        return "\n".join(f"{name} = {getattr(self, name)!r}  ({self._source(name)}): {field.doc}"
                         for name, field in FIELDS.items())

    def key(self) -> tuple[Any, ...]:
        """Return the values that change generated code, for cache keys."""
        return tuple([getattr(self, name) for name, field in FIELDS.items()
                      if field.affects == "code"])


def _warn_unknown_vars(environment: Mapping[str, str]) -> None:
    """Warn of unknown variables, which are most likely misspelled."""
    known = [field.variable for field in FIELDS.values() if field.variable is not None]
    for name in environment:
        if name.startswith("FNX_") and name not in known:
            warnings.warn(f"environment variable {name} is not read by fnx; the nearest that is: "
                          f"{most_similar(known, name)} (all: {', '.join(known)})", stacklevel=2)


config = Config()


# ---- blocks -------------------------------------------------------------------------------------


class _ConfigBlock:
    """The settings of a ``with`` block, nested in those of ``outer``."""

    def __init__(self, outer: _ConfigBlock | None) -> None:
        self.values: dict[str, Any] = {}
        self.outer, self.is_closed = outer, False
        # the cached mode, and ``_change_count`` at that time
        self.cached_mode: tuple[Any, int] = None, -1

    def all_values(self) -> dict[str, Any]:
        """Return the values set by this block and the enclosing ones."""
        values = {} if self.outer is None else self.outer.all_values()
        return values if self.is_closed else {**values, **self.values}

    def mode(self) -> tuple[Any, ...]:
        """Return the mode inside this block."""
        count = _change_count[0]
        mode = config._mode_of({**config.__dict__, **self.all_values()})
        self.cached_mode = mode, count
        return mode


_current_block: ContextVar[_ConfigBlock | None] = ContextVar("fnx settings", default=None)
_open_blocks: set[_ConfigBlock] = set()  # the open blocks of all threads and tasks


def _setting_block(name: str) -> _ConfigBlock | None:
    """Return the innermost block of this thread or task that sets a field, or None."""
    block = _current_block.get()
    while block is not None and (block.is_closed or name not in block.values):
        block = block.outer
    return block


def _field_property(name: str) -> property:
    """Make a property that reads a field from a block of this thread or task, else from the
    process."""
    def read(self: Config) -> Any:
        block = _setting_block(name)
        return self.__dict__[name] if block is None else block.values[name]
    return property(read)


def _current_mode(self: Config) -> tuple[Any, ...]:
    block = _current_block.get()
    mode: tuple[Any, ...]
    if block is None:
        mode = self.__dict__["mode"]
        return mode
    mode, count = block.cached_mode
    return mode if count == _change_count[0] else block.mode()


# The class of ``config`` while any block is open. Otherwise fields are plain attributes, which are
# several times as fast to read: each cached call reads the mode.
_BlockConfig = type("Config", (Config,), {
    "__doc__": Config.__doc__, "__module__": __name__, "mode": property(_current_mode),
    **{name: _field_property(name) for name in FIELDS if name not in _PROCESS_WIDE}})


def _switch_class() -> None:
    """Switch the class of ``config`` according to whether blocks are open.

    No lock is held: a thread repeats until its choice is still right after setting it.
    """
    kind = None
    while kind is not (kind := _BlockConfig if _open_blocks else Config):
        object.__setattr__(config, "__class__", kind)


@contextlib.contextmanager
def override(**fields: Any) -> Iterator[None]:
    """Set fields for the duration of a ``with`` block, in this thread or task.

    Settings of shared resources are set in the whole process.
    """
    block = _ConfigBlock(_current_block.get())
    saved = {name: (getattr(config, name), config._sources[name])
             for name in fields if name in _PROCESS_WIDE}
    fields = {FIELD_OF[name][0] if name in FIELD_OF else name: FIELD_OF[name][1].get(value, value)
              if name in FIELD_OF else value for name, value in fields.items()}
    try:
        _open_blocks.add(block)
        _switch_class()
        _current_block.set(block)
        for name, value in fields.items():
            # so that setattr assigns to this block
            if name not in _PROCESS_WIDE and hasattr(config, name):
                block.values[name] = getattr(config, name)
            setattr(config, name, value)
        yield
    finally:
        try:
            _exit_block(block, saved)
        except BaseException:  # interrupted by Ctrl-C: finish
            _exit_block(block, saved)
            raise


def _exit_block(ended: _ConfigBlock, saved: dict[str, tuple[Any, str]]) -> None:
    """End a block, also for tasks started in it.

    A generator may end it in another context, or late.
    """
    ended.is_closed = True
    _change_count[0] += 1
    current = _current_block.get()
    while current is not None and current.is_closed:
        current = current.outer
    _current_block.set(current)
    _open_blocks.discard(ended)
    _switch_class()
    config._restore(saved)
