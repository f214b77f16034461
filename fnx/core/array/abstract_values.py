"""Abstract value types of JAX that libraries use in ``isinstance`` tests.

>>> import fnx
>>> seen = []
>>> _ = fnx.jit(lambda x: seen.append(isinstance(x, Tracer)) or x)(1.0)
>>> seen, isinstance(fnx.numpy.ones(2), Tracer)
([True], False)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.array.array import Array, unsharded
from fnx.core.array.aval import Aval, ShapeDtypeStruct
from fnx.core.ir.uop import toposort
from fnx.core.scope import scope

# The dtype of the gradient of an integer, which carries no information.
FLOAT0 = np.dtype([("float0", np.void, 0)])


class _TracerMeta(type):
    """The metaclass of Tracer: an Array without memory is an instance."""

    def __instancecheck__(cls, x: Any) -> bool:
        return type(x) is Array and x._storage is None and x._uop is not None


class Tracer(metaclass=_TracerMeta):
    """An Array whose trace is open, for ``isinstance(x, Tracer)``; it has no class of its own.

    >>> isinstance(1.0, Tracer)
    False
    """


class _JVPTracerMeta(type):
    """The metaclass of JVPTracer."""

    def __instancecheck__(cls, x: Any) -> bool:
        trace = scope.innermost()
        return type(x) is Array and isinstance(x, Tracer) and trace is not None and \
            not set(trace.leaves).isdisjoint(toposort([x._node]))


class JVPTracer(metaclass=_JVPTracerMeta):
    """An Array that depends on the arguments of the innermost open trace, for ``isinstance``."""


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
    >>> ShapedArray((2, 3), "float32").sharding.is_fully_replicated
    True
    """

    def __init__(self, shape: Any, dtype: Any, weak_type: bool = False, *,
                 sharding: Any = None) -> None:
        super().__init__(shape, dtype, sharding=sharding, weak_type=weak_type)

    @classmethod
    def of(cls, aval: Aval) -> ShapedArray:
        """Wrap the Aval of an Array without checks."""
        result = cls.__new__(cls)
        result._sharding, result._aval = None, aval
        return result

    @property
    def sharding(self) -> Any:
        """The sharding: by default over a mesh without axes."""
        return unsharded(self.ndim) if self._sharding is None else self._sharding

    def to_tangent_aval(self) -> ShapedArray | Float0Aval:
        """Return the type of its tangents: of dtype float0 for integers."""
        return ShapedArray(self.shape, self.dtype) if self._aval.dtype.is_inexact else \
            Float0Aval(self.shape)

    at_least_vspace = to_tangent_aval

    def strip_weak_type(self) -> ShapedArray:
        """Return the same type with a dtype that is not weak."""
        return ShapedArray(self.shape, self.dtype, sharding=self._sharding)

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short()}{weak})"

    def __str__(self) -> str:
        return f"{'~' * self.weak_type}{self.str_short()}"

    def str_short(self, short_dtypes: bool = False, **_: Any) -> str:
        """Return dtype and shape as text: ``float32[2,3]``, or ``f32[2,3]``."""
        name = short_name(self.dtype) if short_dtypes else self.dtype
        return f"{name}[{','.join(map(str, self.shape))}]"


_SHORT_NAMES = (("bfloat", "bf"), ("float", "f"), ("complex", "c"), ("uint", "u"), ("int", "i"))


def short_name(dtype: Any) -> str:
    """Return the name of a dtype as jaxprs print it.

    >>> short_name("float32"), short_name("bool"), short_name("bfloat16")
    ('f32', 'bool', 'bf16')
    """
    name = str(dtype)
    for long, short in _SHORT_NAMES:
        if name.startswith(long) and name[len(long):len(long) + 1].isdigit():
            return short + name[len(long):]
    return name


class Float0Aval:
    """The type of the tangent of an integer."""

    dtype, weak_type = FLOAT0, False

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def str_short(self) -> str:
        """Return dtype and shape as text."""
        return f"float0[{','.join(map(str, self.shape))}]"

    __str__ = str_short

    def __repr__(self) -> str:
        return f"ShapedArray({self.str_short()})"


def get_aval(x: Any) -> ShapedArray:
    """Return the shape, dtype and weak type of an array.

    >>> import fnx
    >>> get_aval(fnx.numpy.ones(2))
    ShapedArray(float32[2])
    """
    return ShapedArray(x.shape, x.dtype, getattr(x, "weak_type", False))
