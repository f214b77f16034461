"""One thread for SciPy's BLAS while kernels call it; then as many as the user has set.

    hold       the first of several holders saves the number of threads, and sets 1
    release    the last of them sets the number back, unless the user has set another one

Batches are split over fnx's own workers, and sums do not depend on the load of the machine. The
user's own calls of SciPy keep their threads, but for those that run at the same time as a kernel.
Both functions are native code, as no kernel waits for Python. They take a lock for nanoseconds;
with another BLAS, whose threads are not known, they do nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools

from fnx.backends.llvm import binding
from fnx.core.support.process import at_fork

_MAPS = "/proc/self/maps"  # the libraries of this process, on Linux
_PREFIXES = "scipy_openblas", "openblas"
_NAMES = "get_num_threads", "set_num_threads"
_State = ctypes.c_int32 * 3  # whether it is locked, holders, the number of threads that was set
_ENTER = """
  br label %spin
spin:
  %pair = cmpxchg ptr @state, i32 0, i32 1 acquire monotonic
  %taken = extractvalue { i32, i1 } %pair, 1
  br i1 %taken, label %locked, label %spin
locked:
  %holders_at = getelementptr i32, ptr @state, i64 1
  %threads_at = getelementptr i32, ptr @state, i64 2
  %holders = load i32, ptr %holders_at, align 4
"""
_LEAVE = """
unlock:
  store atomic i32 0, ptr @state release, align 4
  ret void
}
"""
_TEXT = f"""
@state = external global [3 x i32]
declare i32 @get_num_threads()
declare void @set_num_threads(i32)
define void @hold() {{{_ENTER}
  %more = add i32 %holders, 1
  store i32 %more, ptr %holders_at, align 4
  %is_first = icmp eq i32 %holders, 0
  br i1 %is_first, label %set, label %unlock
set:
  %threads = call i32 @get_num_threads()
  store i32 %threads, ptr %threads_at, align 4
  call void @set_num_threads(i32 1)
  br label %unlock
{_LEAVE}
define void @release() {{{_ENTER}
  %fewer = sub i32 %holders, 1
  store i32 %fewer, ptr %holders_at, align 4
  %is_last = icmp eq i32 %fewer, 0
  br i1 %is_last, label %last, label %unlock
last:
  %now = call i32 @get_num_threads()
  %is_held = icmp eq i32 %now, 1
  br i1 %is_held, label %set, label %unlock
set:
  %threads = load i32, ptr %threads_at, align 4
  call void @set_num_threads(i32 %threads)
  br label %unlock
{_LEAVE}"""
_NO_TEXT = "define void @hold() { ret void } define void @release() { ret void }"


@functools.cache
def addresses() -> dict[str, int]:
    """Return the addresses of both functions."""
    return _library().addresses


@functools.cache
def _library() -> binding.Library:
    functions = thread_functions()
    if functions is None:
        code = binding.compile_ir(_NO_TEXT, binding.host_target())
        return binding.link([(code, ["hold", "release"])])
    state = _state()
    imports = {"state": ctypes.addressof(state)}
    for name, function in zip(_NAMES, functions):
        pointer = ctypes.cast(function, ctypes.c_void_p).value
        assert pointer is not None
        imports[name] = pointer

    def release_in_child() -> None:
        """The holders of the parent are not there."""
        if state[1]:
            functions[1](state[2])
        state[:] = [0] * len(state)
    at_fork(in_child=release_in_child)
    code = binding.compile_ir(_TEXT, binding.host_target())
    return binding.link([(code, ["hold", "release"])], imports)


@functools.cache
def _state() -> ctypes.Array[ctypes.c_int32]:
    """Return the state, which lives as long as the code."""
    return _State()


def thread_functions() -> tuple[ctypes._NamedFuncPointer, ctypes._NamedFuncPointer] | None:
    """Return OpenBLAS's functions that get and set the number of threads, or None: not found."""
    with contextlib.suppress(OSError):
        with open(_MAPS) as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if "openblas" in line}
        for path in sorted(p for p in paths if "scipy" in p):
            library = ctypes.CDLL(path)
            for prefix in _PREFIXES:
                if all(hasattr(library, f"{prefix}_{name}") for name in _NAMES):
                    get, set_ = [getattr(library, f"{prefix}_{name}") for name in _NAMES]
                    return get, set_
    return None
