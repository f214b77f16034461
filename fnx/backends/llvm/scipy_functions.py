"""Addresses of the LAPACK and BLAS functions that SciPy exports for Cython.

SciPy is imported with the first kernel that calls one. Its BLAS is then limited to one thread:
batches are split over fnx's own workers, and sums do not depend on the load of the machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Mapping
from typing import Any

from fnx.core.support.errors import DeviceError
from fnx.core.support.process import lazy_import

cython_lapack = lazy_import("scipy.linalg.cython_lapack")
cython_blas = lazy_import("scipy.linalg.cython_blas")

_MAPS = "/proc/self/maps"  # the libraries of this process, on Linux
_THREAD_SETTERS = ("scipy_openblas_set_num_threads", "openblas_set_num_threads")


def address(name: str) -> int:
    """Return the address of a function, such as ``lapack_dpotrf``.

    Raises:
        DeviceError: this SciPy lacks it, or its integers are not 32 bits wide.
    """
    library, _, function = name.partition("_")
    functions = _functions(library)
    capsule = functions.get(function)
    if capsule is None:
        raise DeviceError(f"expected SciPy with the function {function}, got one without",
                          hint="install a newer SciPy")
    signature = _capsule_name(capsule)
    if b"int *" not in signature:
        raise DeviceError(f"expected SciPy whose {function} takes integers of 32 bits, got "
                          f"{signature.decode()}", hint="install SciPy from PyPI")
    pointer: int = _capsule_pointer(capsule, signature)
    return pointer


def _functions(library: str) -> Mapping[str, Any]:
    functions: Mapping[str, Any] = {"lapack": cython_lapack, "blas": cython_blas}[
        library].__pyx_capi__
    use_one_thread()
    return functions


def _capsule_name(capsule: Any) -> bytes:
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, [ctypes.py_object]
    name: bytes = get(capsule)
    return name


def _capsule_pointer(capsule: Any, name: bytes) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    pointer: int = get(capsule, name)
    return pointer


@functools.cache
def use_one_thread() -> None:
    """Limit SciPy's BLAS to one thread, if it can be found."""
    with contextlib.suppress(OSError):
        with open(_MAPS) as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if "openblas" in line}
        for path in sorted(p for p in paths if "scipy" in p):
            library = ctypes.CDLL(path)
            for name in _THREAD_SETTERS:
                if hasattr(library, name):
                    getattr(library, name)(1)
