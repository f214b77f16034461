"""Abstract values: the shape, dtype and weak type of an array, without its value.

``Aval`` is used in traces, signatures and gradient layouts; ``ShapeDtypeStruct`` is its public
counterpart.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fnx.core.array import axes, convert
from fnx.core.ir import low_precision
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import ArgumentError, FnxError, ShapeError


class Aval(NamedTuple):
    """Shape and dtype; if ``weak``, the dtype yields in promotion like that of a Python scalar.

    A NamedTuple and not a Record: every call off the fast path creates and hashes one per leaf.
    A tuple does both in C, in half and in a quarter of the time.
    """

    shape: Shape
    dtype: DType
    weak: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}{' weak' if self.weak else ''}"


class ShapeDtypeStruct:
    """A shape and a dtype that stand for an array.

    Args:
        shape: an int or a sequence of ints.
        dtype: a dtype.
        sharding: a sharding, stored as an attribute; no array depends on it.
        weak_type: whether the dtype yields in promotion, like that of a Python number.

    >>> ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("_aval", "_sharding")

    def __init__(self, shape: Any, dtype: Any, *, sharding: Any = None, weak_type: bool = False
                 ) -> None:
        self._sharding = sharding
        if isinstance(sharding, str | int | float):
            raise ArgumentError(f"ShapeDtypeStruct: expected a sharding, got {sharding!r}",
                                hint="make one: NamedSharding(mesh, PartitionSpec('x'))")
        if dtype is None:
            raise ArgumentError("ShapeDtypeStruct: expected a dtype, got None",
                                hint='pass one, such as "float32"')
        try:
            self._aval = Aval(axes.normalize_shape(shape), convert.parse_dtype(dtype),
                              bool(weak_type))
        except FnxError as error:
            error.prefix_caller("ShapeDtypeStruct")
            raise

    @property
    def sharding(self) -> Any:
        """The sharding that was given."""
        return self._sharding

    @property
    def shape(self) -> Shape:
        """The lengths of the axes."""
        return self._aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, as a NumPy dtype."""
        return low_precision.public_dtype(self._aval.dtype)

    @property
    def weak_type(self) -> bool:
        """Whether the dtype yields in promotion."""
        return self._aval.weak

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("expected an axis, got shape (), which has no len()")
        return self.shape[0]

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """Return a copy with another shape, dtype, sharding or weak type."""
        return type(self)(**{"shape": self.shape, "dtype": self.dtype, "sharding": self.sharding,
                             "weak_type": self.weak_type, **changes})

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype}{weak})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._aval == other._aval

    def __hash__(self) -> int:
        return hash(self._aval)
