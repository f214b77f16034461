"""The cost of untrusted files: loading takes time and memory proportional to their size.

Each case makes much of few bytes; the bounds are those of docs/files.md, which has the
measurements.
"""

from __future__ import annotations

import io
import json
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
from fnx.core.support.errors import CheckpointError

SECONDS, BYTES, FIXED = 4e-6, 30, 1 << 20  # both per byte of the file; bytes for any file
UNPACKED = 2 * 1032 + 30  # for a compressed archive


def _tensors(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _entries(n: int, size: int = 1) -> dict[str, Any]:
    return {f"a{i}": {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]}
            for i in range(n)}


def _twice(n: int) -> bytes:
    text = json.dumps(_entries(n))[:-1]
    return _tensors((text + ', "a0": {}}').encode(), bytes(n))


def _archive(n: int, elements: int, method: int = zipfile.ZIP_STORED) -> bytes:
    out, member = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array(member, np.zeros(elements, "u1"))
    with zipfile.ZipFile(out, "w", method) as archive:
        for i in range(n):
            archive.writestr(f"{i}.npy", member.getvalue())
    return out.getvalue()


CASES: dict[str, tuple[Callable[[], bytes], float]] = {
    "small.safetensors": (lambda: _tensors(_entries(8_000), bytes(8_000)), BYTES),
    "empty.safetensors": (lambda: _tensors(_entries(8_000, 0)), BYTES),
    "twice.safetensors": (lambda: _twice(40_000), BYTES),
    "lists.safetensors": (lambda: _tensors(b'{"a":[' + b",".join([b"[]"] * 300_000) + b"]}"),
                          BYTES),
    "texts.safetensors": (lambda: _tensors({"__metadata__": {str(i): "" for i in range(50_000)}}),
                          BYTES),
    "one place.safetensors": (lambda: _tensors(dict.fromkeys(
        map(str, range(20_000)), _entries(1, 20_000)["a0"]), bytes(20_000)), BYTES),
    "axes.safetensors": (lambda: _tensors(
        {"a": {"dtype": "U8", "shape": [1] * 300_000, "data_offsets": [0, 1]}}, b"1"), BYTES),
    "members.npz": (lambda: _archive(4_000, 0), BYTES),
    "packed members.npz": (lambda: _archive(4_000, 0, zipfile.ZIP_DEFLATED), BYTES),
    "packed zeros.npz": (lambda: _archive(1, 20_000_000, zipfile.ZIP_DEFLATED), UNPACKED),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", CASES)
def test_a_file_costs_at_most_so_many_times_its_size(name: str, tmp_path: Path) -> None:
    make, most = CASES[name]
    data = make()
    path = tmp_path / name
    path.write_bytes(data)
    begun = time.process_time()
    _load(path)
    seconds = time.process_time() - begun
    tracemalloc.start()
    try:
        _load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= most * len(data) + FIXED, peak / len(data)
    assert seconds <= SECONDS * len(data) * most / BYTES + 0.2, seconds / len(data)


def _load(path: Path) -> Any:
    try:
        return fnx.load(path)
    except CheckpointError:
        return None
