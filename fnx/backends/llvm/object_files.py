"""Object file reader: finds the undefined symbols of compiled code.

LLVM may insert calls that are not in the IR (memset for a loop of stores, fmodf for frem). A kernel
may only call the functions in ``ALLOWED``, and SciPy's LAPACK and BLAS by names such as
``lapack_dpotrf``; anything else is refused before linking.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Iterable

from fnx.core.support.errors import DeviceError
from fnx.core.support.process import lazy_import

# Functions of the C library that compiled kernels may call: they copy or fill memory.
ALLOWED = frozenset({"memset", "memcpy", "memmove"})
_SCIPY_PREFIXES = "lapack_", "blas_"
_PREFIX_BYTES = tuple([prefix.encode() for prefix in _SCIPY_PREFIXES])

scipy_functions = lazy_import("fnx.backends.llvm.scipy_functions")


def undefined_symbols(data: bytes) -> set[str]:
    """Return the undefined symbols of an object file (64-bit ELF or Mach-O).

    >>> from fnx.backends.llvm import binding as llvm
    >>> text = "declare void @g() define void @f() { call void @g() ret void }"
    >>> undefined_symbols(llvm.compile_ir(text, llvm.host_target()))
    {'g'}
    """
    if data[:4] == b"\x7fELF":
        return _elf(data)
    if data[:4] == b"\xcf\xfa\xed\xfe":
        return _mach_o(data)
    raise DeviceError(f"expected an object file, got {data[:4]!r}")


def _name(data: bytes, start: int) -> str:
    return data[start:data.index(0, start)].decode()


def _elf(data: bytes) -> set[str]:
    """Section headers: System V ABI, chapter 4 (type 2 is the symbol table)."""
    sections, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + i * size) for i in range(count)]
    undefined = set()
    for _, kind, _, _, offset, nbytes, link, _, _, _ in headers:
        if kind != 2:
            continue
        strings = headers[link][4]
        for entry in range(offset, offset + nbytes, 24):
            name, _, _, section = struct.unpack_from("<IBBH", data, entry)
            if section == 0 and name:
                undefined.add(_name(data, strings + name))
    return undefined


def _mach_o(data: bytes) -> set[str]:
    """Load commands: mach-o/loader.h (command 2 is the symbol table); names have a leading _."""
    undefined = set()
    offset = 32
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        command, size = struct.unpack_from("<II", data, offset)
        if command == 2:
            symbols, count, strings, _ = struct.unpack_from("<IIII", data, offset + 8)
            for i in range(count):
                name, kind, _, _, _ = struct.unpack_from("<IBBHQ", data, symbols + 16 * i)
                if kind & 0x0F == 0x01:  # external and defined in no section
                    undefined.add(_name(data, strings + name).removeprefix("_"))
        offset += size
    return undefined


def check_undefined(names: set[str], kernel: str) -> None:
    """Refuse a kernel that calls a function that is not allowed.

    Raises:
        DeviceError: names the kernel and the symbols.
    """
    unknown = sorted(n for n in names - ALLOWED if not n.startswith(_SCIPY_PREFIXES))
    if unknown:
        raise DeviceError(
            f"kernel {kernel} calls {', '.join(unknown)}; expected calls of only "
            f"{', '.join(sorted(ALLOWED))}",
            hint="this is a bug in fnx's lowering: the operation must be decomposed")


@functools.cache
def allowed_addresses() -> dict[str, int]:
    """Return the addresses of the allowed functions in this process."""
    process = ctypes.CDLL(None)
    symbol_addresses = {}
    for name in sorted(ALLOWED):
        address = ctypes.cast(getattr(process, name), ctypes.c_void_p).value
        assert address is not None
        symbol_addresses[name] = address
    return symbol_addresses


def imported_addresses(objects: Iterable[bytes]) -> dict[str, int]:
    """Return the addresses of all functions that some objects may call. SciPy is imported if one
    of them calls its LAPACK."""
    addresses = allowed_addresses()
    for data in objects:
        if any(prefix in data for prefix in _PREFIX_BYTES):
            names = [n for n in undefined_symbols(data) if n.startswith(_SCIPY_PREFIXES)]
            addresses = addresses | {n: scipy_functions.address(n) for n in names}
    return addresses
