"""Addresses of the LAPACK and BLAS functions that SciPy exports for Cython.

SciPy is imported with the first kernel that calls one. A kernel calls ``blas_hold`` before and
``blas_release`` after (blas_threads.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from fnx.core.support.errors import DeviceError
from fnx.core.support.process import lazy_import

cython_lapack = lazy_import("scipy.linalg.cython_lapack")
cython_blas = lazy_import("scipy.linalg.cython_blas")

blas_threads = lazy_import("fnx.backends.llvm.blas_threads")


def address(name: str) -> int:
    """Return the address of a function, such as ``lapack_dpotrf``.

    Raises:
        DeviceError: this SciPy lacks it, or its integers are not 32 bits wide.
    """
    library, _, function = name.partition("_")
    functions: Mapping[str, Any] = {"lapack": cython_lapack, "blas": cython_blas}[
        library].__pyx_capi__
    if library == "blas" and function in ("hold", "release"):
        address: int = blas_threads.addresses()[function]
        return address
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
