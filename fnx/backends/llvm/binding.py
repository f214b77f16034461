"""Private binding of LLVM: IR text -> object code -> addresses, through llvmlite's own library.

llvmlite wraps each call into LLVM in one process-wide lock, so a thread that emits code blocks
every other thread's LLVM calls. Here, the functions of its shared library are called through
separate ctypes prototypes: the GIL is released, no lock is taken, and each thread has its own
target machine (an LLVM context lives for one compilation). The library is located without importing
llvmlite, and loaded at first use.

    text --compile_ir--> object bytes --link--> Library (addresses; code is freed with it)
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_uint8, c_uint64, c_void_p
from typing import Any

from fnx.backends.device.allocator import require_address_space
from fnx.backends.llvm.host_cpu import (
    cache_bytes,
    cores,
    matrix_units,
    restrict_features,
    vector_registers,
)
from fnx.core.ir.cache import DeathQueue
from fnx.core.support.errors import DeviceError, RequirementError, SpecError
from fnx.core.support.process import at_exit, at_fork, block_at_exit, fork_safe_lock
from fnx.core.support.requirements import LLVMLITE, llvmlite_folder, missing, requirement
from fnx.core.support.target import Target

SUPPORTED = range(20, 23)  # LLVM's major versions that are known to have these prototypes

_CharPtrPtr = POINTER(c_char_p)


class _Element(ctypes.Structure):
    _fields_ = [("kind", c_uint8), ("value", c_char_p), ("size", c_size_t)]


class _Symbol(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("address", c_uint64)]


_OBJECT_IMAGE = 2  # kind of an _Element: bytes of an object file

# name: (result, arguments)
_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "GetVersionInfo": (ctypes.c_uint, ()),
    "DisposeString": (None, (c_char_p,)),
    "InitializeNativeTarget": (c_int, ()),
    "InitializeNativeAsmPrinter": (c_int, ()),
    "InitializeAllTargetInfos": (None, ()),
    "InitializeAllTargets": (None, ()),
    "InitializeAllTargetMCs": (None, ()),
    "InitializeAllAsmPrinters": (None, ()),
    "GetProcessTriple": (None, (_CharPtrPtr,)),
    "GetHostCPUName": (None, (_CharPtrPtr,)),
    "GetHostCPUFeatures": (c_int, (_CharPtrPtr,)),
    "ContextCreate": (c_void_p, ()),
    "ContextDispose": (None, (c_void_p,)),
    "ParseAssembly": (c_void_p, (c_void_p, c_char_p, _CharPtrPtr)),
    "VerifyModule": (c_int, (c_void_p, _CharPtrPtr)),
    "DisposeModule": (None, (c_void_p,)),
    "GetTargetFromTriple": (c_void_p, (c_char_p, _CharPtrPtr)),
    "CreateTargetMachine": (c_void_p, (c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p,
                                       c_char_p, c_int, c_int, c_char_p)),
    "DisposeTargetMachine": (None, (c_void_p,)),
    "TargetMachineEmitToMemory": (c_void_p, (c_void_p, c_void_p, c_int, _CharPtrPtr)),
    "GetBufferStart": (c_void_p, (c_void_p,)),
    "GetBufferSize": (c_size_t, (c_void_p,)),
    "DisposeMemoryBuffer": (None, (c_void_p,)),
    "CreateLLJITCompiler": (c_void_p, (c_void_p, c_bool, c_bool, _CharPtrPtr)),
    "LLJIT_Link": (c_void_p, (c_void_p, c_char_p, POINTER(_Element), c_size_t, POINTER(_Symbol),
                              c_size_t, POINTER(_Symbol), c_size_t, _CharPtrPtr)),
    "LLJIT_Dylib_Tracker_Dispose": (c_bool, (c_void_p, _CharPtrPtr)),
    "LLJITDispose": (None, (c_void_p,)),
}

_HOLDS_GIL = frozenset({"GetBufferStart", "GetBufferSize", "DisposeMemoryBuffer",
                        "DisposeString"})
# address space without which LLVM aborts
_LOAD_ADDRESS_SPACE, _COMPILE_ADDRESS_SPACE = 320 << 20, 144 << 20
_load_lock = fork_safe_lock()


class _LLVM:
    """The loaded library: one attribute for each entry of ``_PROTOTYPES``."""

    def __init__(self) -> None:
        require_address_space(_LOAD_ADDRESS_SPACE, "to load LLVM")
        library = ctypes.CDLL(_library_path())
        gil_library = ctypes.PyDLL(_library_path())  # holds the GIL, for calls that take no time
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(gil_library if name in _HOLDS_GIL else library, f"LLVMPY_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        packed = self.GetVersionInfo()
        self.version = ((packed >> 16) & 255, (packed >> 8) & 255, packed & 255)
        if self.version[0] not in SUPPORTED:
            raise RequirementError(
                f"expected llvmlite with LLVM {SUPPORTED[0]} to {SUPPORTED[-1]}, got one with "
                f"{'.'.join(map(str, self.version))}",
                hint=f"pip install --force-reinstall '{requirement('llvmlite', LLVMLITE)}'")
        self.InitializeNativeTarget()
        self.InitializeNativeAsmPrinter()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _library_path() -> str:
    folder = llvmlite_folder()
    if not folder:
        raise missing("llvmlite")
    name = {"darwin": "libllvmlite.dylib", "win32": "llvmlite.dll"}.get(
        sys.platform, "libllvmlite.so")
    return os.path.join(folder, "binding", name)


_loaded: list[_LLVM] = []


def _llvm() -> _LLVM:
    """Return the library; it is loaded once."""
    if not _loaded:
        with _per_thread.inside, _load_lock:  # the library must not be loaded twice
            if not _loaded:
                _loaded.append(_LLVM())
    return _loaded[0]


@functools.cache
def version() -> str:
    """Return the compiler's version, for cache keys.

    >>> version().startswith("LLVM 2")
    True
    """
    return f"LLVM {'.'.join(map(str, _llvm().version))}"


class _Message:
    """A ``char**`` that LLVM fills with a string that the caller frees."""

    __slots__ = ("pointer", "reference")

    def __init__(self) -> None:
        self.pointer = c_char_p()
        self.reference = byref(self.pointer)

    def take(self) -> str:
        """Return the string, and free it."""
        text = (self.pointer.value or b"").decode("utf-8", "replace").strip()
        if self.pointer:
            _llvm().DisposeString(self.pointer)
            self.pointer.value = None
        return text


# ---- the host -------------------------------------------------------------------------------

_PROCESSORS = ("x86_64", "aarch64", "arm64")  # as LLVM's triples begin


@functools.cache
def host_target(level: str = "", optimize: bool = True) -> Target:
    """Return the machine that this process runs on; ``level``: with no more than these
    instructions; ``optimize``: whether LLVM optimizes kernels.

    >>> host_target().name
    'cpu'

    Raises:
        DeviceError: fnx has no code for this processor, or it lacks a part of the level.
    """
    lib, out = _llvm(), _Message()
    lib.GetProcessTriple(out.reference)
    triple = out.take()
    if not triple.startswith(_PROCESSORS):
        raise DeviceError(f"the cpu device: expected a processor of x86-64 or 64-bit ARM, got "
                          f"{triple}", hint="fnx.config.device = 'interp' computes by NumPy")
    lib.GetHostCPUName(out.reference)
    cpu = out.take()
    lib.GetHostCPUFeatures(out.reference)
    features = sorted(f for f in out.take().split(",") if f)
    if level:
        cpu, features = level if triple.startswith("x86") else "generic", restrict_features(
            level, triple, features)
    if triple.startswith(("x86_64", "i686")):
        features.append("-prefer-256-bit")  # some hosts default to half of their width
    return target_with_features(triple, cpu, features).replace(optimize=optimize)


def target_with_features(triple: str, cpu: str, features: Sequence[str]) -> Target:
    """Return a processor with these features (in LLVM's notation), and this machine's caches and
    cores.

    >>> target_with_features("aarch64-linux-gnu", "generic", ["+neon"]).vector_bits
    128
    """
    feature_set, x86 = set(features), triple.startswith("x86")
    bits, registers = vector_registers(triple, feature_set)
    l1, l2 = cache_bytes(1, 32 << 10), cache_bytes(2, 1 << 20)
    return Target("cpu", triple, cpu, ",".join(features), bits, registers,
                  not x86 or "+fma" in feature_set, l1, l2, cores(), version(),
                  unit_names=matrix_units(bits, feature_set),
                  has_round=not x86 or "+sse4.1" in feature_set,
                  permute_bytes=_permute_granularity(bits, feature_set) if x86 else 1)


def _permute_granularity(bits: int, features: Collection[str]) -> int:
    """Return the bytes of the smallest elements that one x86 instruction permutes arbitrarily:
    pshufb, vpermw and vpermb.

    (Without vpermb, LLVM 22 does not terminate on bytes of 512 bits.)
    """
    if bits == 512:
        return 1 if "+avx512vbmi" in features else 2 if "+avx512bw" in features else 4
    return 1 if "+ssse3" in features else 4


# ---- the process ------------------------------------------------------------------------------

# seconds for one kernel's compilation: during it the process can't end or fork
_EXIT_TIMEOUT = 10.0
_first_entry_lock = fork_safe_lock()  # for threads that were not in LLVM before
_thread_locks: list[weakref.ref[Any]] = []  # one per thread
_exiting: list[bool] = []


class _PerThread(threading.local):
    """Per-thread state. ``inside`` is locked while this thread is in LLVM; ``held``: the locks of
    other threads that it keeps out.
    """

    def __init__(self) -> None:
        if _exiting:
            block_at_exit()
        self.machines: dict[tuple[str, str, str, bool], _Machine] = {}
        self.held: list[Any] = []
        self.inside = fork_safe_lock()
        with _first_entry_lock:
            _thread_locks.append(weakref.ref(self.inside))


_per_thread = _PerThread()


def _block_other_threads(_: float = 0.0) -> None:
    """Keep other threads out of LLVM, and wait for those in it, so that a child finds its locks
    open.
    """
    deadline = time.monotonic() + _EXIT_TIMEOUT
    _acquire(_first_entry_lock, deadline)
    _thread_locks[:] = [ref for ref in _thread_locks if ref() is not None]
    for ref in _thread_locks:
        thread_lock = ref()
        if thread_lock is not None:
            _acquire(thread_lock, deadline)


def _acquire(lock: Any, deadline: float) -> None:
    _per_thread.held.append(lock)  # first: Ctrl-C may come after ``acquire``
    lock.acquire(timeout=max(0.0, deadline - time.monotonic()))


def _unblock_threads() -> None:
    locks = _per_thread.held
    while locks:
        with contextlib.suppress(RuntimeError):  # the thread stayed in too long, or Ctrl-C came
            locks[-1].release()
        locks.pop()


def _in_child() -> None:
    if not all(inside._is_owned() for inside in _per_thread.held):  # a thread may have been linking
        _linkers.clear()
        _dead_libraries.discard()
    _unblock_threads()


def _at_exit() -> None:
    """Keep all threads out of LLVM from now on, as its C++ destructors free its tables at exit."""
    _exiting.append(True)
    _block_other_threads()


at_exit(_at_exit)
at_fork(_block_other_threads, _unblock_threads, _in_child)


# ---- compiling ------------------------------------------------------------------------------


class _Machine:
    """An LLVM target machine; belongs to one thread."""

    __slots__ = ("__weakref__", "ref")

    def __init__(self, target: Target, optimize: bool) -> None:
        lib, error = _llvm(), _Message()
        for ref in _dead_machines.released():
            lib.DisposeTargetMachine(ref)
        triple = target.triple.encode()
        llvm_target = lib.GetTargetFromTriple(triple, error.reference)
        if not llvm_target:  # not the host's target
            error.take()
            for what in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
                getattr(lib, f"InitializeAll{what}")()
            llvm_target = lib.GetTargetFromTriple(triple, error.reference)
        if not llvm_target:
            raise DeviceError(f"LLVM has no target {target.triple!r}: {error.take()}")
        self.ref: int = lib.CreateTargetMachine(
            llvm_target, triple, target.cpu.encode(), target.features.encode(),
            2 if optimize else 0, b"pic", b"small", 0, 0, b"")
        _dead_machines.watch(self, self.ref)


_dead_machines: DeathQueue[int] = DeathQueue()


def _machine(target: Target, optimize: bool) -> int:
    """Return the address of this thread's LLVM target machine."""
    key = (target.triple, target.cpu, target.features, optimize)
    machine = _per_thread.machines.get(key)
    if machine is None:
        machine = _per_thread.machines[key] = _Machine(target, optimize)
    return machine.ref


def _emit(text: str, target: Target, as_object: bool, optimize: bool = True) -> bytes:
    require_address_space(_COMPILE_ADDRESS_SPACE, "to compile")
    with _per_thread.inside:
        return _emit_locked(text, target, as_object, optimize)


def _emit_locked(text: str, target: Target, as_object: bool, optimize: bool) -> bytes:
    lib, error = _llvm(), _Message()
    context = lib.ContextCreate()
    module = None
    try:
        module = lib.ParseAssembly(context, text.encode(), error.reference)
        if not module or lib.VerifyModule(module, error.reference):
            raise SpecError(f"LLVM refuses a kernel's text: {error.take()}")
        machine = _machine(target, optimize and target.optimize)
        buffer = lib.TargetMachineEmitToMemory(machine, module, as_object, error.reference)
        if not buffer:
            raise SpecError(f"LLVM emits no code: {error.take()}")
        return _take_buffer(buffer)
    finally:
        if module:
            lib.DisposeModule(module)
        lib.ContextDispose(context)
        error.take()


def _take_buffer(buffer: int) -> bytes:
    """Return the content of an LLVM memory buffer, and free it."""
    lib = _llvm()
    try:
        return ctypes.string_at(lib.GetBufferStart(buffer), lib.GetBufferSize(buffer))
    finally:
        lib.DisposeMemoryBuffer(buffer)


def compile_ir(text: str, target: Target, optimize: bool = True) -> bytes:
    """Compile LLVM IR text to an object file, position independent: at optimization level 2, or
    at 0, which takes a quarter of the time.

    Raises:
        SpecError: LLVM rejects the text; includes its message.
    """
    return _emit(text, target, True, optimize)


def assembly(text: str, target: Target) -> str:
    """Return the assembly that ``compile_ir`` would encode.

    >>> "ret" in assembly("define void @f() { ret void }", host_target())
    True
    """
    return _emit(text, target, False).decode()


# ---- linking --------------------------------------------------------------------------------


MAX_LIBRARIES = 256      # per linker: LLVM keeps 9 KB of each freed one until the linker goes
LIBRARY_BYTES = 32 << 10   # bytes of a library besides its objects, which are there twice: measured


class _Linker:
    """LLVM's linker, freed when its quota of libraries is used up and all of them are freed."""

    __slots__ = ("ref", "added", "freed")

    def __init__(self) -> None:
        error = _Message()
        # JITLink, which allocates one block of memory per object: the other linker maps sections
        # separately, and ends the process if two are over 2 GB apart.
        self.ref = _llvm().CreateLLJITCompiler(None, True, True, error.reference)
        self.added = self.freed = 0
        if not self.ref:
            raise DeviceError(f"LLVM has no linker for this machine: {error.take()}")


class Library:
    """Linked code. ``addresses`` maps symbols to addresses, valid while this object lives;
    ``nbytes`` is about the memory that it takes.
    """

    __slots__ = ("__weakref__", "addresses", "nbytes")

    def __init__(self, addresses: dict[str, int], nbytes: int, linker: _Linker, tracker: int
                 ) -> None:
        self.addresses, self.nbytes = addresses, nbytes
        _dead_libraries.watch(self, (linker, tracker))


def _free_dead_libraries() -> None:
    """Free the code of dead libraries, and linkers whose quota is used up and freed."""
    lib = _llvm()
    for linker, tracker in _dead_libraries.released():
        error = _Message()
        lib.LLJIT_Dylib_Tracker_Dispose(tracker, error.reference)
        error.take()
        linker.freed += 1
        if linker.freed == linker.added == MAX_LIBRARIES:
            lib.LLJITDispose(linker.ref)


_dead_libraries: DeathQueue[tuple[_Linker, int]] = DeathQueue()
_library_ids = itertools.count()  # a library's name can't be reused
_linkers: list[_Linker] = []          # the current one


def _linker() -> _Linker:
    """Return the linker for the next library."""
    if not _linkers or _linkers[0].added == MAX_LIBRARIES:
        _linkers[:] = [_Linker()]
    _linkers[0].added += 1
    return _linkers[0]


def link(objects: Sequence[tuple[bytes, Sequence[str]]],
         imports: Mapping[str, int] | None = None) -> Library:
    """Load object files as one library.

    Args:
        objects: (object file, symbols to export) each.
        imports: addresses of the symbols that the objects do not define.

    >>> code = compile_ir("define i64 @one() { ret i64 1 }", host_target())
    >>> library = link([(code, ["one"])])
    >>> ctypes.CFUNCTYPE(ctypes.c_int64)(library.addresses["one"])()
    1
    """
    imports = imports or {}
    elements = (_Element * len(objects))(*(
        _Element(_OBJECT_IMAGE, data, len(data)) for data, _ in objects))
    names = [name for _, symbols in objects for name in symbols]
    exports = (_Symbol * len(names))(*(_Symbol(name.encode(), 0) for name in names))
    import_symbols = (_Symbol * len(imports))(*(_Symbol(n.encode(), a) for n, a in imports.items()))
    error = _Message()
    with _per_thread.inside:
        with _load_lock:
            _free_dead_libraries()
            linker = _linker()
        tracker = _llvm().LLJIT_Link(
            linker.ref, f"fnx.{next(_library_ids)}".encode(), elements, len(objects),
            import_symbols, len(imports), exports, len(names), error.reference)
    if not tracker:
        with _load_lock:
            linker.freed += 1
        raise DeviceError(f"LLVM can't link {', '.join(names) or 'an object'}: {error.take()}")
    return Library({name: exports[i].address for i, name in enumerate(names)},
                   LIBRARY_BYTES + 2 * sum(len(data) for data, _ in objects), linker, tracker)
