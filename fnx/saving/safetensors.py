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

from fnx.core import dtypes
from fnx.core.dtypes import DType, NDArray
from fnx.core.errors import CheckpointError
from fnx.saving.arrays import Stretch, array_of, check_layout, flat
from fnx.saving.files import Mapped

_CODES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32,
    "I64": dtypes.int64, "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32,
    "U64": dtypes.uint64, "F8_E4M3": dtypes.float8_e4m3fn, "F8_E5M2": dtypes.float8_e5m2,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64}
_OTHERS = {dtypes.key_fry.name: dtypes.key_fry}  # written as U64, and named in the metadata
_CODE_OF = {t: code for code, t in _CODES.items()} | dict.fromkeys(_OTHERS.values(), "U64")
_LONGEST = 100_000_000  # most bytes of a header, as in other readers
_SUMS = "crc32"
_TYPES = "types"  # metadata key: JSON of name -> type for the arrays in ``_OTHERS``
_FORMAT = {"format": "fnx"}  # marks files that must have sums, so a damaged key is detected
_METADATA = "__metadata__"


def check(name: str, t: DType) -> None:
    """Reject a type or name that the format does not allow."""
    if t not in _CODE_OF:
        raise CheckpointError(f"expected one of {', '.join(map(str, _CODE_OF))}, which safetensors "
                              f"holds, got {t} at {name}",
                              hint="write an .npz file, or convert with .astype('int8')")
    if name == _METADATA:
        raise CheckpointError(f"expected another name than {name}, which safetensors uses itself")


def write(file: BinaryIO, arrays: Mapping[str, NDArray]) -> None:
    """Write arrays of types that fnx supports."""
    end, tensors, sums, types = 0, {}, list[str](), dict[str, str]()
    order = sorted(arrays, key=lambda name: arrays[name].nbytes % 64 > 0)
    for name in order:
        value = arrays[name]
        t = dtypes.as_dtype(value.dtype)
        code, shape = _CODE_OF[t], list(value.shape)
        if t.name in _OTHERS:
            types[name] = t.name
        tensors[name] = {"dtype": code, "shape": shape, "data_offsets": [end, end + value.nbytes]}
        sums.append(f"{_sum(name, t, value):08x}")
        end += value.nbytes
    metadata = {**_FORMAT, _SUMS: " ".join(sums)} | ({_TYPES: json.dumps(types)} if types else {})
    header = json.dumps({_METADATA: metadata, **tensors}, separators=(",", ":"),
                        ensure_ascii=False).encode()
    header += b" " * (-(8 + len(header)) % 64)
    file.write(len(header).to_bytes(8, "little") + header)
    for name in order:
        file.write(flat(arrays[name]))


def _sum(name: str, t: DType, value: NDArray) -> int:
    return zlib.crc32(flat(value), zlib.crc32(f"{name} {t} {value.shape}".encode()))


def read(file: Mapped, verify: bool) -> dict[str, NDArray]:
    """Return the arrays of a file, in its mapped memory.

    Raises:
        CheckpointError: names the file, the byte, what is expected there and what is.
    """
    length = int.from_bytes(file.bytes(0, 8, "the header's length"), "little")
    if length > min(_LONGEST, file.size - 8):
        file.fail(0, f"a header of at most {min(_LONGEST, file.size - 8):,} bytes", f"{length:,}")
    header = _header(file, length)
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        file.fail(8, f"{_METADATA} to be texts by name", repr(metadata)[:80])
    first = 8 + length
    types = _others(file, metadata)
    stretches = [_stretch(file, name, entry, first) for name, entry in header.items()]
    stretches = [a.replace(dtype=_OTHERS[types[a.name]]) if a.name in types
                 and a.dtype is dtypes.uint64 else a for a in stretches]
    check_layout(file, stretches, first, file.size, whole=True)
    found = {a.name: array_of(file, a, file.memory[a.start:a.stop]) for a in stretches}
    if verify and (_SUMS in metadata or metadata.items() >= _FORMAT.items()):
        _verify(file, stretches, found, metadata.get(_SUMS, "").split())
    return found


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict; reject duplicate names."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name, _ = Counter([name for name, _ in pairs]).most_common(1)[0]
        raise ValueError(f"the name {name[:80]!r} twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(text)


def _header(file: Mapped, length: int) -> dict[str, Any]:
    text = file.bytes(8, 8 + length, "the header")
    if text[:1] != b"{":
        file.fail(8, "a header that begins with {", repr(text[:1]))
    try:
        found: dict[str, Any] = json.loads(text.decode(), object_pairs_hook=unique,
                                           parse_constant=_no_number)
    except json.JSONDecodeError as error:
        file.fail(8 + len(text.decode()[:error.pos].encode()), "a header in JSON", error.msg)
    except UnicodeDecodeError as error:
        file.fail(8 + error.start, "a header in UTF-8", repr(text[error.start:error.end]))
    except (ValueError, RecursionError) as error:
        file.fail(8, "a header in JSON", str(error))
    return found


def _others(file: Mapped, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return name -> type of the arrays whose type the format lacks."""
    if not metadata.items() >= _FORMAT.items():
        return {}
    try:
        types = json.loads(metadata.get(_TYPES, "{}"))
    except (ValueError, RecursionError) as error:
        file.fail(8, f"{_TYPES} in JSON", str(error))
    if not isinstance(types, dict) or not all(t in _OTHERS for t in map(str, types.values())):
        file.fail(8, f"{_TYPES}: {', '.join(_OTHERS)} by name", repr(types)[:80])
    return {name: str(t) for name, t in types.items()}


def _stretch(file: Mapped, name: str, entry: Any, first: int) -> Stretch:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        file.fail(8, f"dtype, shape and data_offsets of {name!r}", repr(entry)[:80])
    shape, places = entry["shape"], entry["data_offsets"]
    for what, numbers in (("shape", shape), ("data_offsets", places)):
        if not isinstance(numbers, list) or not all(
                type(n) is int and 0 <= n < 1 << 63 for n in numbers):
            file.fail(8, f"{what} of {name!r} as whole numbers from 0 to 2**63 - 1",
                      repr(numbers)[:80])
    if len(places) != 2:
        file.fail(8, f"two data_offsets of {name!r}", f"{len(places)}")
    t = _CODES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if t is None:
        file.fail(8, f"a dtype of {name!r} that fnx holds: {', '.join(_CODES)}",
                  repr(entry["dtype"])[:80], hint="convert the file with what has written it")
    return Stretch(name, t, tuple(shape), first + places[0], first + places[1])


def _verify(file: Mapped, stretches: list[Stretch], found: Mapping[str, NDArray], sums: list[str]
            ) -> None:
    if len(sums) != len(stretches):
        file.fail(8, f"the sums of {len(stretches)} arrays", f"{len(sums)}")
    for a, expected in zip(stretches, sums):
        have = f"{_sum(a.name, a.dtype, found[a.name]):08x}"
        if have != expected:
            file.fail(a.start, f"{a.name!r} with the sum {expected}", have)
