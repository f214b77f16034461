"""Element types: one object per type, compared by identity, and JAX's promotion lattice.

>>> promote(int32, False, float32, True)       # int32 with a weak (Python) float
(float32, True)
>>> promote(float64, False, float32, True)
(float64, False)
"""

from __future__ import annotations

from typing import Any, Literal
from zlib import crc32

import numpy as np

from fnx.core.errors import DTypeError

Kind = Literal["bool", "int", "uint", "float", "index", "void"]


class DType:
    """An element type. Interned: compare with ``is``. ``lanes`` > 1 only at program level."""

    __slots__ = ("name", "kind", "bits", "lanes", "scalar", "code", "_np", "_vec")

    def __init__(self, name: str, kind: Kind, bits: int, numpy: str | None = None,
                 lanes: int = 1, scalar: DType | None = None) -> None:
        self.name = name
        self.code = crc32(name.encode())  # equal in every process
        self.kind: Kind = kind
        self.bits = bits
        self.lanes = lanes
        self.scalar: DType = self if scalar is None else scalar
        self._np = None if numpy is None else np.dtype(numpy)
        self._vec: dict[int, DType] = {1: self}

    def vec(self, lanes: int) -> DType:
        """The vector type of ``lanes`` elements (program level)."""
        if lanes not in self._vec:
            self._vec.setdefault(lanes, DType(f"{self.name}x{lanes}", self.kind, self.bits,
                                              None, lanes, self))
        return self._vec[lanes]

    @property
    def dtype(self) -> np.dtype[Any]:
        """So that ``np.dtype(fnx.float32)`` works."""
        return self.np

    @property
    def np(self) -> np.dtype[Any]:
        """The NumPy dtype that holds one element (``index`` is held as int64)."""
        if self._np is None:
            raise DTypeError(f"{self.name} has no NumPy type")
        return self._np

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint", "index")

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return (named, (self.name,))


bool_ = DType("bool", "bool", 1, "bool")
int32 = DType("int32", "int", 32, "int32")
uint32 = DType("uint32", "uint", 32, "uint32")
float32 = DType("float32", "float", 32, "float32")
float64 = DType("float64", "float", 64, "float64")
index = DType("index", "index", 64, "int64")
void = DType("void", "void", 0)

USER: tuple[DType, ...] = (bool_, int32, uint32, float32, float64)
ALL: tuple[DType, ...] = (*USER, index, void)
_BY_NAME = {t.name: t for t in ALL}
_BY_NUMPY = {t.np: t for t in USER}

# 64-bit data that arrives without being asked for (NumPy or Python defaults) becomes 32 bits.
NARROW = {np.dtype("int64"): int32, np.dtype("uint64"): uint32, np.dtype("float64"): float32}


def named(name: str) -> DType:
    """The type with this name; ``float32x16`` names a vector type."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    base, _, lanes = name.rpartition("x")
    return _BY_NAME[base].vec(int(lanes))


def as_dtype(spec: Any) -> DType:
    """A DType from a DType, a NumPy dtype or scalar type, a name, or Python's bool/int/float.

    Python's ``float`` and ``int`` mean the default width (float32, int32); everything else is
    taken at its word.

    Raises:
        DTypeError: for a type that fnx does not hold.
    """
    if isinstance(spec, DType):
        return spec
    if spec is bool:
        return bool_
    if spec is int:
        return int32
    if spec is float:
        return float32
    try:
        np_dtype = np.dtype(spec)
    except TypeError as e:
        raise DTypeError(f"expected a dtype, got {spec!r}",
                         hint="use fnx.numpy.float32, a NumPy dtype or a name") from e
    found = _BY_NUMPY.get(np_dtype)
    if found is None:
        raise DTypeError(f"expected one of {', '.join(t.name for t in USER)}; got {np_dtype}",
                         hint="convert the data with .astype(...) first")
    return found


_LATTICE = {t: i for i, t in enumerate((bool_, int32, uint32, float32, float64))}


def promote(a: DType, a_weak: bool, b: DType, b_weak: bool) -> tuple[DType, bool]:
    """Common type of two operands and whether it stays weak (JAX's lattice, 32-bit default).

    A weak operand (a Python scalar) gives way to the other unless it is of a higher kind.
    uint32 with int32 is int32, as in JAX without 64-bit types.
    """
    if a is b:
        return a, a_weak and b_weak and not a.is_bool
    if a_weak != b_weak:
        weak, strong = (a, b) if a_weak else (b, a)
        if _category(weak) <= _category(strong):
            return strong, False
        return weak, True
    if {a, b} == {int32, uint32}:
        return int32, a_weak and b_weak
    return (a if _LATTICE[a] >= _LATTICE[b] else b), a_weak and b_weak


def _category(t: DType) -> int:
    return 0 if t.is_bool else 1 if t.is_integer else 2
