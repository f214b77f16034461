"""npz: a zip archive with one npy file per array, which ``numpy.load`` reads.

Members are stored uncompressed, and padded so that their elements begin at multiples of 64: they
can be used in the memory-mapped file. Types that NumPy lacks are records of their bits with the
type's name (``[('bfloat16', '<u2')]``). Archives written by others may be compressed; nothing is
ever unpickled.

Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, and PKWARE's
APPNOTE.TXT for the local header of a member.
"""

from __future__ import annotations

import ast
import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from fnx.core import dtypes
from fnx.core.dtypes import DType, NDArray
from fnx.core.errors import CheckpointError, DTypeError
from fnx.saving.arrays import Stretch, array_of, check_layout, flat
from fnx.saving.files import Mapped

_LOCAL = struct.Struct("<4s5H3I2H")  # the fixed part of a member's header
_ENTRY = struct.Struct("<4s6H3I5H2I")  # ... and of its entry in the directory
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q4sIQI")  # ZIP64: end record with 64-bit numbers, and its locator
_STORED, _UTF8, _FIRST_DAY = 0, 1 << 11, 1 << 5 | 1  # method, flag, 1980-01-01
_DESCRIBED, _DESCRIPTOR = 1 << 3, 24  # flag: sum and sizes follow the data; bytes of them
_MAX32, _MAX16 = 0xFFFFFFFF, 0xFFFF  # markers for numbers stored elsewhere
_PADDING = 0x4E46  # the kind of the extra field that holds padding
_LARGE = 1 << 31  # bytes from which numbers are written with 64 bits
_LONGEST = 10_000  # most bytes before the elements: enough for any reasonable header
_LONGEST_DTYPE = 80  # characters: a NumPy dtype, or a record of bits with a dtype name of fnx
_MOST = 1032  # maximum compression ratio of deflate


def check(name: str, t: DType) -> None:
    """Check that a name is valid for a member of an archive; all types can be written."""
    if "\0" in name or len(name.encode(errors="surrogatepass")) > 60_000:
        raise CheckpointError(f"expected a name without NUL of at most 60,000 bytes, got {name!r}")


def write(file: BinaryIO, arrays: Mapping[str, NDArray]) -> None:
    """Write arrays of types that fnx supports."""
    directory = []
    for name, value in arrays.items():
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {
            "descr": np.lib.format.dtype_to_descr(value.dtype), "fortran_order": False,
            "shape": value.shape})
        directory.append(_member(file, f"{name}.npy".encode(), header.getvalue(), flat(value)))
    start = file.tell()
    file.write(b"".join(directory))
    size, count = file.tell() - start, len(directory)
    if max(start, size) >= _LARGE or count >= _MAX16:
        file.write(_END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start,
                               b"PK\6\7", 0, start + size, 1))
        start, size, count = _MAX32, _MAX32, _MAX16
    file.write(_END.pack(b"PK\5\6", 0, 0, count, count, size, start, 0))


def _member(file: BinaryIO, name: bytes, head: bytes, data: Any) -> bytes:
    """Write a member with its elements at a multiple of 64, and return its directory entry."""
    start, size = file.tell(), len(head) + len(data)
    crc = zlib.crc32(data, zlib.crc32(head))
    large = size >= _LARGE
    field = struct.pack("<2H2Q", 1, 16, size, size) if large else b""
    pad = -(start + _LOCAL.size + len(name) + len(field) + 4 + len(head)) % 64
    sizes = (_MAX32, _MAX32) if large else (size, size)
    common = 45, _UTF8, _STORED, 0, _FIRST_DAY, crc, *sizes, len(name)
    file.write(_LOCAL.pack(b"PK\3\4", *common, len(field) + 4 + pad) + name + field
               + struct.pack("<2H", _PADDING, pad) + bytes(pad) + head)
    file.write(data)
    far = start >= _LARGE
    if far:
        field = struct.pack(f"<2H{len(field) // 8 + 1}Q", 1, len(field[4:]) + 8,
                            *([size, size] if large else []), start)
    return _ENTRY.pack(b"PK\1\2", 3 << 8 | 45, *common, len(field), 0, 0, 0, 0o644 << 16,
                       _MAX32 if far else start) + name + field


def read(file: Mapped, verify: bool) -> dict[str, NDArray]:
    """Return the arrays of a file; uncompressed ones use its memory.

    Raises:
        CheckpointError: names the file, the byte, what is expected there and what is.
    """
    members, start = _directory(file)
    places: dict[str, Stretch] = {}
    contents: list[tuple[zipfile.ZipInfo, int, int]] = []
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in places:
            file.fail(member.header_offset, "names that end in .npy, each once",
                      repr(member.filename)[:80])
        contents.append((member, *_data(file, member)))
        first, behind = member.header_offset, contents[-1][2]
        places[name] = Stretch(name, dtypes.uint8, (behind - first,), first, behind)
    described = {m.header_offset for m in members if m.flag_bits & _DESCRIBED}
    check_layout(file, _with_descriptors(list(places.values()), described, start), 0, start,
                 whole=True)  # checked before decompression: no two members share a byte
    return {name: _array(file, name, *_content(file, *content, verify))
            for name, content in zip(places, contents)}


def _directory(file: Mapped) -> tuple[list[zipfile.ZipInfo], int]:
    """Return the members of an archive and the byte where its directory begins. Check that the
    directory ends where the end record begins, and that both agree on the number of members."""
    try:
        with zipfile.ZipFile(io.BufferedReader(_Raw(file))) as archive:
            members, end = archive.infolist(), file.size - _END.size - len(archive.comment)
    except (zipfile.BadZipFile, ValueError, struct.error, OverflowError, NotImplementedError,
            EOFError, OSError) as error:
        file.fail(max(0, file.size - 22), "the directory of a zip archive", str(error))
    _, disk, of, here, count, size, start, _ = _END.unpack(
        file.bytes(end, end + _END.size, "the directory"))
    wide = file.memory[max(0, end - _END64.size):end].tobytes()
    if len(wide) == _END64.size and (wide[:4], wide[-20:-16]) == (b"PK\6\6", b"PK\6\7"):
        end -= _END64.size
        _, _, _, _, disk, of, here, count, size, start, *_ = _END64.unpack(wide)
    if disk or of or (here, count) != (len(members), len(members)):
        file.fail(end, f"{count:,} members, as the directory says", f"{len(members):,}")
    if start + size != end:
        file.fail(end, f"the directory in front of it, of {size:,} bytes from byte {start:,} on",
                  f"{end - start:,} of them")
    return members, start


def _with_descriptors(places: list[Stretch], described: set[int], end: int) -> list[Stretch]:
    """Extend members by their data descriptors: a copy of the sum and sizes that may follow the
    data."""
    found = sorted(places, key=lambda a: a.start)
    for i, a in enumerate(found):
        if a.start in described:
            behind = found[i + 1].start if i + 1 < len(found) else end
            stop = a.stop + max(0, min(behind - a.stop, _DESCRIPTOR))
            found[i] = Stretch(a.name, a.dtype, (stop - a.start,), a.start, stop)
    return found


class _Raw(io.RawIOBase):
    """The bytes of a mapped file as a raw stream."""

    def __init__(self, file: Mapped) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, self._file.size)[whence]
        if at < 0:
            raise OSError(f"no byte {at}")
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._file.memory[self._at:self._at + len(buffer)]
        buffer[:len(part)] = part.tobytes()
        self._at += len(part)
        return len(part)


def _data(file: Mapped, member: zipfile.ZipInfo) -> tuple[int, int]:
    """Return the byte range of a member's data in the file."""
    at = member.header_offset
    if at < 0:
        file.fail(0, f"{member.filename!r} behind the start of the file", f"byte {at}")
    fixed = _LOCAL.unpack(file.bytes(at, at + _LOCAL.size, f"the header of {member.filename!r}"))
    if fixed[0] != b"PK\3\4":
        file.fail(at, f"the header of {member.filename!r}", repr(fixed[0]))
    name = file.bytes(at + _LOCAL.size, at + _LOCAL.size + fixed[-2], "a name").decode(
        "utf-8" if member.flag_bits & _UTF8 else "cp437", "replace")
    if name != member.orig_filename:
        file.fail(at + _LOCAL.size, f"the name {member.orig_filename!r}, as in the directory",
                  repr(name))
    if member.flag_bits & 1:
        file.fail(at, f"{member.filename!r} not to be encrypted", "that it is")
    start = at + _LOCAL.size + fixed[-2] + fixed[-1]
    stop = start + member.compress_size
    if stop > file.size:
        file.fail(start, f"{member.compress_size:,} bytes of {member.filename!r}",
                  f"the end of the file at byte {file.size:,}")
    return start, stop


def _content(file: Mapped, member: zipfile.ZipInfo, start: int, stop: int, verify: bool
             ) -> tuple[NDArray, int]:
    """Return the npy file in a member, and the byte of the file where it begins."""
    data, size = file.memory[start:stop], member.file_size
    if member.compress_type == zipfile.ZIP_DEFLATED:
        if size > _MOST * len(data) + 64:
            file.fail(start, f"{len(data):,} bytes that hold at most {_MOST} times as many",
                      f"{size:,} of them")
        unpack = zlib.decompressobj(-15)
        try:
            data = np.frombuffer(unpack.decompress(flat(data), size + 1), np.uint8)
        except zlib.error as error:
            file.fail(start, f"compressed data of {member.filename!r}", str(error))
        verify = True  # all of it was decompressed
    elif member.compress_type != zipfile.ZIP_STORED:
        file.fail(start, f"{member.filename!r} stored or deflated",
                  f"the method {member.compress_type}")
    if len(data) != size:
        file.fail(start, f"{size:,} bytes of {member.filename!r}", f"{len(data):,}")
    if verify and (found := zlib.crc32(flat(data))) != member.CRC:
        file.fail(start, f"{member.filename!r} with the sum {member.CRC:08x}", f"{found:08x}")
    return data, start


def _array(file: Mapped, name: str, content: NDArray, at: int) -> NDArray:
    """Return the array in an npy file that begins at this byte of the file."""
    try:
        dtype, columns, shape, first = _header(content[:_LONGEST].tobytes())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, struct.error) as error:
        file.fail(at, f"the header of {name!r}", str(error) or type(error).__name__)
    try:
        t = dtypes.as_dtype(dtype.newbyteorder("="))
    except DTypeError:
        file.fail(at, f"a dtype of {name!r} that fnx holds", str(dtype),
                  hint="convert the file with what has written it")
    place = Stretch(name, t, shape, at + first, at + len(content), columns)
    check_layout(file, [place], 0, at + len(content), whole=False)
    data = content[first:]
    if not dtype.isnative:
        data = data.view(dtype).astype(dtype.newbyteorder("=")).view(np.uint8)
    return array_of(file, place, data)


def _header(text: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    """Return (dtype, whether it is column-major, shape, offset of the elements) of an npy file.

    Raises:
        ValueError: it is not an npy header, or its elements are Python objects. Also whatever
            parsing an invalid Python literal raises.
    """
    if text[:6] != b"\x93NUMPY" or text[6:8] not in (b"\1\0", b"\2\0"):
        raise ValueError(f"{text[:8]!r} in place of \\x93NUMPY and a version")
    size = struct.Struct("<H" if text[6] == 1 else "<I")
    length, = size.unpack_from(text, 8)
    first = 8 + size.size + length
    if first > len(text):
        raise ValueError(f"a header of {length:,} bytes")
    fields = ast.literal_eval(text[8 + size.size:first].decode("latin1").strip())
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise ValueError("other fields than descr, fortran_order and shape")
    shape, descr = fields["shape"], fields["descr"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"the shape {shape}")
    if not (isinstance(descr, str) or isinstance(descr, list) and len(descr) == 1) or \
            len(repr(descr)) > _LONGEST_DTYPE:
        raise ValueError(f"the dtype {repr(descr)[:80]}")
    dtype = np.dtype(descr)
    if dtype.hasobject:
        raise ValueError("Python objects, which are never unpickled")
    return dtype, bool(fields["fortran_order"]), shape, first
