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

from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.support.errors import CheckpointError, DTypeError
from fnx.saving.arrays import FileSegment, array_from_bytes, check_layout, flat_bytes
from fnx.saving.files import MappedFile

_LOCAL = struct.Struct("<4s5H3I2H")  # the fixed part of a member's header
_ENTRY = struct.Struct("<4s6H3I5H2I")  # ... and of its entry in the directory
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q4sIQI")  # ZIP64: end record with 64-bit numbers, and its locator
_STORED, _UTF8, _FIRST_DAY = 0, 1 << 11, 1 << 5 | 1  # method, flag, 1980-01-01
# flag: sum and sizes follow the data; bytes of them
_HAS_DESCRIPTOR, _DESCRIPTOR_BYTES = 1 << 3, 24
_MAX32, _MAX16 = 0xFFFFFFFF, 0xFFFF  # markers for numbers stored elsewhere
_PADDING_FIELD = 0x4E46  # the kind of the extra field that holds padding
_ZIP64_THRESHOLD = 1 << 31  # bytes from which numbers are written with 64 bits
_MAX_HEADER_BYTES = 10_000  # most bytes before the elements: enough for any reasonable header
_MAX_DTYPE_LENGTH = 80  # characters: a NumPy dtype, or a record of bits with a dtype name of fnx
_MAX_RATIO = 1032  # maximum compression ratio of deflate


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
        directory.append(_write_member(file, f"{name}.npy".encode(), header.getvalue(),
                                       flat_bytes(value)))
    start = file.tell()
    file.write(b"".join(directory))
    size, count = file.tell() - start, len(directory)
    if max(start, size) >= _ZIP64_THRESHOLD or count >= _MAX16:
        file.write(_END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start,
                               b"PK\6\7", 0, start + size, 1))
        start, size, count = _MAX32, _MAX32, _MAX16
    file.write(_END.pack(b"PK\5\6", 0, 0, count, count, size, start, 0))


def _write_member(file: BinaryIO, name: bytes, npy_header: bytes, data: Any) -> bytes:
    """Write a member with its elements at a multiple of 64, and return its directory entry."""
    start, size = file.tell(), len(npy_header) + len(data)
    crc = zlib.crc32(data, zlib.crc32(npy_header))
    large = size >= _ZIP64_THRESHOLD
    field = struct.pack("<2H2Q", 1, 16, size, size) if large else b""
    padding = -(start + _LOCAL.size + len(name) + len(field) + 4 + len(npy_header)) % 64
    sizes = (_MAX32, _MAX32) if large else (size, size)
    common = 45, _UTF8, _STORED, 0, _FIRST_DAY, crc, *sizes, len(name)
    file.write(_LOCAL.pack(b"PK\3\4", *common, len(field) + 4 + padding) + name + field
               + struct.pack("<2H", _PADDING_FIELD, padding) + bytes(padding) + npy_header)
    file.write(data)
    is_far = start >= _ZIP64_THRESHOLD
    if is_far:
        field = struct.pack(f"<2H{len(field) // 8 + 1}Q", 1, len(field[4:]) + 8,
                            *([size, size] if large else []), start)
    return _ENTRY.pack(b"PK\1\2", 3 << 8 | 45, *common, len(field), 0, 0, 0, 0o644 << 16,
                       _MAX32 if is_far else start) + name + field


def read(file: MappedFile, verify: bool) -> dict[str, NDArray]:
    """Return the arrays of a file; uncompressed ones use its memory.

    Raises:
        CheckpointError: names the file, the byte, what is expected there and what is.
    """
    members, start = _read_directory(file)
    segments: dict[str, FileSegment] = {}
    contents: list[tuple[zipfile.ZipInfo, int, int]] = []
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in segments:
            file.fail(member.header_offset, "unique names that end in .npy",
                      repr(member.filename)[:80])
        contents.append((member, *_data_range(file, member)))
        begin, stop = member.header_offset, contents[-1][2]
        segments[name] = FileSegment(name, dtypes.uint8, (stop - begin,), begin, stop)
    with_descriptor = {m.header_offset for m in members if m.flag_bits & _HAS_DESCRIPTOR}
    check_layout(file, _add_descriptors(list(segments.values()), with_descriptor, start), 0, start,
                 without_gaps=True)  # checked before decompression: no two members share a byte
    return {name: _parse_array(file, name, *_read_member(file, *content, verify))
            for name, content in zip(segments, contents)}


def _read_directory(file: MappedFile) -> tuple[list[zipfile.ZipInfo], int]:
    """Return the members of an archive and the byte where its directory begins. Check that the
    directory ends where the end record begins, and that both agree on the number of members."""
    try:
        with zipfile.ZipFile(io.BufferedReader(_RawReader(file))) as archive:
            members, end = archive.infolist(), file.size - _END.size - len(archive.comment)
    except (zipfile.BadZipFile, ValueError, struct.error, OverflowError, NotImplementedError,
            EOFError, OSError) as error:
        file.fail(max(0, file.size - 22), "the directory of a zip archive", str(error))
    _, disk, start_disk, disk_count, count, size, start, _ = _END.unpack(
        file.bytes(end, end + _END.size, "the directory"))
    zip64_record = file.memory[max(0, end - _END64.size):end].tobytes()
    if len(zip64_record) == _END64.size and \
            (zip64_record[:4], zip64_record[-20:-16]) == (b"PK\6\6", b"PK\6\7"):
        end -= _END64.size
        _, _, _, _, disk, start_disk, disk_count, count, size, start, *_ = _END64.unpack(
            zip64_record)
    if disk or start_disk or (disk_count, count) != (len(members), len(members)):
        file.fail(end, f"{count:,} members, as the directory says", f"{len(members):,}")
    if start + size != end:
        file.fail(end, f"a directory of {size:,} bytes from byte {start:,} to here",
                  f"{end - start:,} bytes")
    return members, start


def _add_descriptors(places: list[FileSegment], described: set[int], end: int) -> list[FileSegment]:
    """Extend members by their data descriptors: a copy of the sum and sizes that may follow the
    data."""
    segments = sorted(places, key=lambda a: a.start)
    for i, a in enumerate(segments):
        if a.start in described:
            next_start = segments[i + 1].start if i + 1 < len(segments) else end
            stop = a.stop + max(0, min(next_start - a.stop, _DESCRIPTOR_BYTES))
            segments[i] = FileSegment(a.name, a.dtype, (stop - a.start,), a.start, stop)
    return segments


class _RawReader(io.RawIOBase):
    """The bytes of a mapped file as a raw stream."""

    def __init__(self, file: MappedFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        position = offset + (0, self._at, self._file.size)[whence]
        if position < 0:
            raise OSError(f"no byte {position}")
        self._at = position
        return position

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._file.memory[self._at:self._at + len(buffer)]
        buffer[:len(part)] = part.tobytes()
        self._at += len(part)
        return len(part)


def _data_range(file: MappedFile, member: zipfile.ZipInfo) -> tuple[int, int]:
    """Return the byte range of a member's data in the file."""
    offset = member.header_offset
    if offset < 0:
        file.fail(0, f"{member.filename!r} after the start of the file", f"byte {offset}")
    fields = _LOCAL.unpack(file.bytes(offset, offset + _LOCAL.size,
                                      f"the header of {member.filename!r}"))
    if fields[0] != b"PK\3\4":
        file.fail(offset, f"the header of {member.filename!r}", repr(fields[0]))
    name = file.bytes(offset + _LOCAL.size, offset + _LOCAL.size + fields[-2], "a name").decode(
        "utf-8" if member.flag_bits & _UTF8 else "cp437", "replace")
    if name != member.orig_filename:
        file.fail(offset + _LOCAL.size, f"the name {member.orig_filename!r}, as in the directory",
                  repr(name))
    if member.flag_bits & 1:
        file.fail(offset, f"{member.filename!r} without encryption", "an encrypted member")
    start = offset + _LOCAL.size + fields[-2] + fields[-1]
    stop = start + member.compress_size
    if stop > file.size:
        file.fail(start, f"{member.compress_size:,} bytes of {member.filename!r}",
                  f"the end of the file at byte {file.size:,}")
    return start, stop


def _read_member(file: MappedFile, member: zipfile.ZipInfo, start: int, stop: int, verify: bool
                 ) -> tuple[NDArray, int]:
    """Return the npy file in a member, and the byte of the file where it begins."""
    data, size = file.memory[start:stop], member.file_size
    if member.compress_type == zipfile.ZIP_DEFLATED:
        if size > _MAX_RATIO * len(data) + 64:
            file.fail(start, f"at most {_MAX_RATIO} times {len(data):,} bytes after decompression",
                      f"{size:,} bytes")
        decompressor = zlib.decompressobj(-15)
        try:
            data = np.frombuffer(decompressor.decompress(flat_bytes(data), size + 1), np.uint8)
        except zlib.error as error:
            file.fail(start, f"compressed data of {member.filename!r}", str(error))
        verify = True  # all of it was decompressed
    elif member.compress_type != zipfile.ZIP_STORED:
        file.fail(start, f"{member.filename!r} stored or deflated",
                  f"compression method {member.compress_type}")
    if len(data) != size:
        file.fail(start, f"{size:,} bytes of {member.filename!r}", f"{len(data):,}")
    if verify and (checksum := zlib.crc32(flat_bytes(data))) != member.CRC:
        file.fail(start, f"{member.filename!r} with the checksum {member.CRC:08x}",
                  f"{checksum:08x}")
    return data, start


def _parse_array(file: MappedFile, name: str, content: NDArray, offset: int) -> NDArray:
    """Return the array in an npy file that begins at this byte of the file."""
    try:
        dtype, column_major, shape, data_offset = _parse_header(
            content[:_MAX_HEADER_BYTES].tobytes())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, struct.error) as error:
        file.fail(offset, f"the header of {name!r}", str(error) or type(error).__name__)
    try:
        t = dtypes.as_dtype(dtype.newbyteorder("="))
    except DTypeError:
        file.fail(offset, f"a dtype of {name!r} that fnx supports", str(dtype),
                  hint="convert it with the program that wrote it")
    segment = FileSegment(name, t, shape, offset + data_offset, offset + len(content), column_major)
    check_layout(file, [segment], 0, offset + len(content), without_gaps=False)
    data = content[data_offset:]
    if not dtype.isnative:
        data = data.view(dtype).astype(dtype.newbyteorder("=")).view(np.uint8)
    return array_from_bytes(file, segment, data)


def _parse_header(text: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    """Return (dtype, whether it is column-major, shape, offset of the elements) of an npy file.

    Raises:
        ValueError: it is not an npy header, or its elements are Python objects. Also whatever
            parsing an invalid Python literal raises.
    """
    if text[:6] != b"\x93NUMPY" or text[6:8] not in (b"\1\0", b"\2\0"):
        raise ValueError(f"{text[:8]!r} instead of \\x93NUMPY and a version")
    size = struct.Struct("<H" if text[6] == 1 else "<I")
    length, = size.unpack_from(text, 8)
    data_offset = 8 + size.size + length
    if data_offset > len(text):
        raise ValueError(f"a header of {length:,} bytes")
    fields = ast.literal_eval(text[8 + size.size:data_offset].decode("latin1").strip())
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise ValueError("fields other than descr, fortran_order and shape")
    shape, descr = fields["shape"], fields["descr"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"the shape {shape}")
    if not (isinstance(descr, str) or isinstance(descr, list) and len(descr) == 1) or \
            len(repr(descr)) > _MAX_DTYPE_LENGTH:
        raise ValueError(f"the dtype {repr(descr)[:80]}")
    dtype = np.dtype(descr)
    if dtype.hasobject:
        raise ValueError("Python objects, which are never unpickled")
    return dtype, bool(fields["fortran_order"]), shape, data_offset
