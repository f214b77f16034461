"""Tensors of a model file: checked against its size, and mapped into memory where they can be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from fnx.core.support.errors import ModelError
from fnx.core.support.file_map import FileMap
from fnx.core.support.process import lazy_import
from fnx.onnx.types import Value, dtype_of, held

numpy_helper = lazy_import("onnx.numpy_helper")
helper = lazy_import("onnx.helper")

_EXTERNAL = 1  # of TensorProto.data_location
_LARGEST = 1 << 47  # bytes: more than a machine can address


class TensorReader:
    """Reads tensors of one model. ``folder``: where its external data may lie."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.files: dict[Path, FileMap] = {}

    def value(self, proto: Any) -> Value:
        """Return the elements of a tensor, read-only.

        Raises:
            ModelError: the tensor does not fit its data, or has elements that are no numbers.
        """
        dtype_of(proto.data_type)
        if any(d < 0 for d in proto.dims) or math.prod(proto.dims) > _LARGEST:
            raise ModelError(f"expected sizes that fit a machine, got {list(proto.dims)} for "
                             f"tensor {proto.name!r}")
        if proto.data_location == _EXTERNAL:
            data = self._external(proto)
        else:
            data = self._internal(proto)
        if isinstance(data, np.ndarray):
            data.flags.writeable = False
        return held(data, proto.data_type)

    def _internal(self, proto: Any) -> np.ndarray[Any, Any]:
        try:
            return np.asarray(numpy_helper.to_array(proto))
        except (ValueError, TypeError) as e:
            raise ModelError(f"expected the data of {list(proto.dims)} elements for tensor "
                             f"{proto.name!r}: {e}") from None

    def _external(self, proto: Any) -> np.ndarray[Any, Any]:
        entries = {e.key: e.value for e in proto.external_data}
        file = self._mapped(proto.name, entries.get("location", ""))
        try:
            start, declared = int(entries.get("offset", 0)), entries.get("length")
            length = int(declared) if declared is not None else None
        except ValueError:
            raise ModelError(f"expected whole numbers for the external data of tensor "
                             f"{proto.name!r}, got {entries}") from None
        t = np.dtype(helper.tensor_dtype_to_np_dtype(proto.data_type))
        per_byte = {21: 2, 22: 2, 23: 2, 25: 4, 26: 4}.get(proto.data_type, 1)
        count = math.prod(proto.dims)
        size = -(-count // per_byte) if per_byte > 1 else count * t.itemsize
        if length is not None and length != size or start < 0 or start + size > len(file):
            raise ModelError(
                f"expected {size} bytes from {start} on for tensor {proto.name!r}, got a file of "
                f"{len(file)} bytes" + (f" and a length of {length}" if length is not None else ""))
        if per_byte > 1:
            whole = helper.make_tensor(proto.name, proto.data_type, list(proto.dims),
                                       file[start:start + size], raw=True)
            return self._internal(whole)
        if size == 0:
            return np.zeros(tuple(proto.dims), t)
        return np.frombuffer(file, t, count, start).reshape(tuple(proto.dims))

    def _mapped(self, name: str, location: str) -> FileMap:
        """Return the memory of a file with external data, which must lie below the folder."""
        if self.folder is None:
            raise ModelError(f"expected a path, got a model in memory whose tensor {name!r} is in "
                             f"the file {location!r}", hint="pass the path of the model file")
        folder = self.folder.resolve()
        path = (folder / location).resolve()
        if not location or not path.is_relative_to(folder) or path == folder:
            raise ModelError(f"expected external data inside of the folder of the model, got "
                             f"{location!r} for tensor {name!r}")
        if path not in self.files:
            try:
                with path.open("rb") as file:
                    self.files[path] = FileMap.of(file, str(path))
            except (OSError, ValueError) as e:
                raise ModelError(f"expected a file with the data of tensor {name!r}: {e}"
                                 ) from None
        return self.files[path]
