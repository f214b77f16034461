"""The runtime of runtime.py, compiled and linked, as functions that Python calls."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from fnx.backends.cpu import runtime
from fnx.backends.cpu.call_entry import PYTHON_API, CallEntryFactory
from fnx.backends.cpu.native_call import NativeCallFactory
from fnx.backends.llvm.binding import host_target
from fnx.backends.llvm.kernel_cache import compile_cached
from fnx.core.support.target import Target


class NativeRuntime:
    """The runtime's functions: ``run_held`` and ``submit`` hold the GIL, the others release it."""

    def __init__(self, target: Target) -> None:
        process = ctypes.CDLL(None)
        imports = {}
        for name in runtime.IMPORTS:
            library = ctypes.pythonapi if name in PYTHON_API else process
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            assert address is not None
            imports[name] = address
        self.library = compile_cached(runtime.text(target.triple), runtime.EXPORTS, target, imports)
        self.addresses = self.library.addresses
        word = ctypes.c_int64
        self.entries = CallEntryFactory(self.addresses["enter"])
        self.direct = NativeCallFactory(self.addresses)
        self.run = self._function(ctypes.CFUNCTYPE(word, *[word] * 4), "run")
        self.run_held = self._function(ctypes.PYFUNCTYPE(word, *[word] * 4), "run")
        self.submit = self._function(ctypes.PYFUNCTYPE(word, word, word, word), "submit")
        self.wait = self._function(ctypes.CFUNCTYPE(word, word, word, word), "wait")
        self.abort = self._function(ctypes.CFUNCTYPE(word, word), "abort")
        self.execute = self._function(ctypes.CFUNCTYPE(word, *[word] * 5), "execute")
        self.stop = self._function(ctypes.CFUNCTYPE(word, word), "stop")
        self.create: Any = process.pthread_create
        self.create.argtypes = (ctypes.c_void_p,) * 4
        self.join: Any = process.pthread_join
        self.join.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self.mutex_init: Any = process.pthread_mutex_init
        self.condition_init: Any = process.pthread_cond_init
        self.mutex_init.argtypes = self.condition_init.argtypes = (ctypes.c_void_p,) * 2

    def _function(self, prototype: Callable[[int], Any], name: str) -> Any:
        return prototype(self.addresses[name])


@functools.cache
def native_runtime() -> NativeRuntime:
    """Load the runtime for this machine, once."""
    return NativeRuntime(host_target())
