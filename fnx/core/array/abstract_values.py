"""Abstract value types of JAX that libraries use in ``isinstance`` tests.

>>> import fnx
>>> seen = []
>>> _ = fnx.jit(lambda x: seen.append(isinstance(x, Tracer)) or x)(1.0)
>>> seen, isinstance(fnx.numpy.ones(2), Tracer)
([True], False)
"""

from __future__ import annotations

from typing import Any

from fnx.core.array.array import Array
from fnx.core.array.aval import Aval, ShapeDtypeStruct


class _TracerMeta(type):
    """The metaclass of Tracer: an Array without memory is an instance."""

    def __instancecheck__(cls, x: Any) -> bool:
        return type(x) is Array and x._storage is None and x._uop is not None


class Tracer(metaclass=_TracerMeta):
    """An Array whose trace is open, for ``isinstance(x, Tracer)``; it has no class of its own.

    >>> isinstance(1.0, Tracer)
    False
    """


class AbstractValue:
    """The base class of abstract values."""


class ShapedArray(ShapeDtypeStruct, AbstractValue):
    """Shape, dtype and weak type that stand for an array.

    Args:
        shape: an int or a sequence of ints.
        dtype: a dtype.
        weak_type: whether the dtype yields in promotion, like that of a Python number.
        sharding: a sharding, stored as an attribute.

    >>> ShapedArray((2, 3), "float32")
    ShapedArray(float32[2,3])
    """

    def __init__(self, shape: Any, dtype: Any, weak_type: bool = False, *,
                 sharding: Any = None) -> None:
        super().__init__(shape, dtype, sharding=sharding, weak_type=weak_type)

    @classmethod
    def of(cls, aval: Aval) -> ShapedArray:
        """Wrap the Aval of an Array without checks."""
        result = cls.__new__(cls)
        result.sharding, result._aval = None, aval
        return result

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short()}{weak})"

    def str_short(self) -> str:
        """Return dtype and shape as text: ``float32[2,3]``."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def update(self, **changes: Any) -> ShapedArray:
        """Return a copy with another shape, dtype or weak type."""
        return ShapedArray(**{"shape": self.shape, "dtype": self.dtype,
                              "weak_type": self.weak_type, **changes})


def get_aval(x: Any) -> ShapedArray:
    """Return the shape, dtype and weak type of an array.

    >>> import fnx
    >>> get_aval(fnx.numpy.ones(2))
    ShapedArray(float32[2])
    """
    return ShapedArray(x.shape, x.dtype, getattr(x, "weak_type", False))
