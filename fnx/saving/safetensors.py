"""safetensors: the length of a header (8 bytes), the header (JSON), and the elements, row-major.

    {"__metadata__": {"format": "fnx", "crc32": "..."}, "w": {"dtype": "F32", "shape": [2, 3],
     "data_offsets": [0, 24]}}

Source: https://github.com/huggingface/safetensors, "Format". Choices that it leaves to the writer:
arrays whose sizes are multiples of 64 come first and the header is padded, so that these arrays are
aligned for vectors and can be used where they are mapped; and the metadata hold a checksum of each
array (CRC-32 of name, dtype, shape and elements), in the order of the file.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, BinaryIO

from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.support.errors import CheckpointError
from fnx.saving.arrays import FileSegment, array_from_bytes, check_layout, flat_bytes
from fnx.saving.files import MappedFile

_DTYPES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32,
    "I64": dtypes.int64, "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32,
    "U64": dtypes.uint64, "F8_E4M3": dtypes.float8_e4m3fn, "F8_E5M2": dtypes.float8_e5m2,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
    "C64": dtypes.complex64}
_EXTRA_TYPES = {dtypes.key_fry.name: dtypes.key_fry}  # written as U64, and named in the metadata
_CODES_BY_DTYPE = {t: code for code, t in _DTYPES.items()} | \
    dict.fromkeys(_EXTRA_TYPES.values(), "U64")
_MAX_HEADER_BYTES = 100_000_000  # most bytes of a header, as in other readers
_CHECKSUMS_KEY = "crc32"
_TYPES_KEY = "types"  # metadata key: JSON of name -> type for the arrays in ``_EXTRA_TYPES``
_FORMAT_MARK = {"format": "fnx"}  # marks files that must have sums, so a damaged key is detected
_METADATA_KEY = "__metadata__"


DTYPES = {str(t): t for t in _CODES_BY_DTYPE}


def check(name: str, t: DType) -> None:
    """Reject a type or name that the format does not allow."""
    if t not in _CODES_BY_DTYPE:
        raise CheckpointError(f"expected one of {', '.join(map(str, _CODES_BY_DTYPE))}, which "
                              f"safetensors supports, got {t} at {name}",
                              hint="write an .npz file, or convert with .astype('int8')")
    if name == _METADATA_KEY:
        raise CheckpointError(f"expected another name than {name}, which safetensors reserves")


def write(file: BinaryIO, arrays: Mapping[str, NDArray]) -> None:
    """Write arrays of types that fnx supports."""
    end, tensors, checksums, types = 0, {}, list[str](), dict[str, str]()
    order = sorted(arrays, key=lambda name: arrays[name].nbytes % 64 > 0)
    for name in order:
        value = arrays[name]
        t = dtypes.as_dtype(value.dtype)
        code, shape = _CODES_BY_DTYPE[t], list(value.shape)
        if t.name in _EXTRA_TYPES:
            types[name] = t.name
        tensors[name] = {"dtype": code, "shape": shape, "data_offsets": [end, end + value.nbytes]}
        checksums.append(f"{_checksum(name, t, value):08x}")
        end += value.nbytes
    metadata = {**_FORMAT_MARK, _CHECKSUMS_KEY: " ".join(checksums)} | \
        ({_TYPES_KEY: json.dumps(types)} if types else {})
    header = json.dumps({_METADATA_KEY: metadata, **tensors}, separators=(",", ":"),
                        ensure_ascii=False).encode()
    header += b" " * (-(8 + len(header)) % 64)
    file.write(len(header).to_bytes(8, "little") + header)
    for name in order:
        file.write(flat_bytes(arrays[name]))


def _checksum(name: str, t: DType, value: NDArray) -> int:
    return zlib.crc32(flat_bytes(value), zlib.crc32(f"{name} {t} {value.shape}".encode()))


def read(file: MappedFile, verify: bool) -> dict[str, NDArray]:
    """Return the arrays of a file, in its mapped memory.

    Raises:
        CheckpointError: names the file, the byte, what is expected there and what is.
    """
    length = int.from_bytes(file.bytes(0, 8, "the header's length"), "little")
    if length > min(_MAX_HEADER_BYTES, file.size - 8):
        file.fail(0, f"a header of at most {min(_MAX_HEADER_BYTES, file.size - 8):,} bytes",
                  f"{length:,}")
    header = _parse_header(file, length)
    metadata = header.pop(_METADATA_KEY, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        file.fail(8, f"{_METADATA_KEY} to map names to strings", repr(metadata)[:80])
    data_start = 8 + length
    types = _read_extra_types(file, metadata)
    segments = [_parse_segment(file, name, entry, data_start) for name, entry in header.items()]
    segments = [a.replace(dtype=_EXTRA_TYPES[types[a.name]]) if a.name in types
                and a.dtype is dtypes.uint64 else a for a in segments]
    check_layout(file, segments, data_start, file.size, without_gaps=True)
    arrays = {a.name: array_from_bytes(file, a, file.memory[a.start:a.stop]) for a in segments}
    if verify and (_CHECKSUMS_KEY in metadata or metadata.items() >= _FORMAT_MARK.items()):
        _verify_checksums(file, segments, arrays, metadata.get(_CHECKSUMS_KEY, "").split())
    return arrays


def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict; reject duplicate names."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        name, _ = Counter([name for name, _ in pairs]).most_common(1)[0]
        raise ValueError(f"the name {name[:80]!r} twice")
    return fields


def _reject_constant(text: str) -> Any:
    raise ValueError(text)


def _parse_header(file: MappedFile, length: int) -> dict[str, Any]:
    text = file.bytes(8, 8 + length, "the header")
    if text[:1] != b"{":
        file.fail(8, "a header that begins with {", repr(text[:1]))
    try:
        header: dict[str, Any] = json.loads(text.decode(), object_pairs_hook=reject_duplicates,
                                            parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        file.fail(8 + len(text.decode()[:error.pos].encode()), "a header in JSON", error.msg)
    except UnicodeDecodeError as error:
        file.fail(8 + error.start, "a header in UTF-8", repr(text[error.start:error.end]))
    except (ValueError, RecursionError) as error:
        file.fail(8, "a header in JSON", str(error))
    return header


def _read_extra_types(file: MappedFile, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return name -> type of the arrays whose type the format lacks."""
    if not metadata.items() >= _FORMAT_MARK.items():
        return {}
    try:
        types = json.loads(metadata.get(_TYPES_KEY, "{}"))
    except (ValueError, RecursionError) as error:
        file.fail(8, f"{_TYPES_KEY} in JSON", str(error))
    if not isinstance(types, dict) or not all(t in _EXTRA_TYPES for t in map(str, types.values())):
        file.fail(8, f"{_TYPES_KEY}: {', '.join(_EXTRA_TYPES)} by name", repr(types)[:80])
    return {name: str(t) for name, t in types.items()}


def _parse_segment(file: MappedFile, name: str, entry: Any, data_start: int) -> FileSegment:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        file.fail(8, f"dtype, shape and data_offsets of {name!r}", repr(entry)[:80])
    shape, offsets = entry["shape"], entry["data_offsets"]
    for field, numbers in (("shape", shape), ("data_offsets", offsets)):
        if not isinstance(numbers, list) or not all(
                type(n) is int and 0 <= n < 1 << 63 for n in numbers):
            file.fail(8, f"{field} of {name!r} as integers from 0 to 2**63 - 1",
                      repr(numbers)[:80])
    if len(offsets) != 2:
        file.fail(8, f"two data_offsets of {name!r}", f"{len(offsets)}")
    t = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if t is None:
        file.fail(8, f"a dtype of {name!r} that fnx supports: {', '.join(_DTYPES)}",
                  repr(entry["dtype"])[:80], hint="convert it with the program that wrote it")
    return FileSegment(name, t, tuple(shape), data_start + offsets[0], data_start + offsets[1])


def _verify_checksums(file: MappedFile, segments: list[FileSegment], arrays: Mapping[str, NDArray],
                      checksums: list[str]
                      ) -> None:
    if len(checksums) != len(segments):
        file.fail(8, f"the checksums of {len(segments)} arrays", f"{len(checksums)}")
    for a, expected in zip(segments, checksums):
        actual = f"{_checksum(a.name, a.dtype, arrays[a.name]):08x}"
        if actual != expected:
            file.fail(a.start, f"{a.name!r} with the checksum {expected}", actual)
