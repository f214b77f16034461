"""What is known of an array before it has a value: shape and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.array import axes, convert
from fnx.core.ops import Shape


class ShapeDtypeStruct:
    """A shape and a dtype, in place of an array.

    >>> ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("shape", "dtype")
    shape: Shape
    dtype: np.dtype[Any]

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.shape = axes.shape("ShapeDtypeStruct", shape)
        self.dtype = convert.dtype_argument(dtype).np

    @property
    def ndim(self) -> int:
        """How many axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and \
            (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))
