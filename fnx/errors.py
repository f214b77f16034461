"""Errors under the names of ``jax.errors``: faces of the classes in fnx/core/errors.py.

>>> import fnx
>>> try:
...     fnx.jit(lambda x: bool(x))(1.0)
... except fnx.errors.TracerBoolConversionError as error:
...     print(type(error).__name__)
TracedValueError
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fnx.core.errors import (
    DeviceError,
    FnxError,
    LeakedTracerError,
    OutOfBoundsError,
    ShapeError,
    TracedValueError,
    module_face,
)

__all__ = [
    "ConcretizationTypeError", "InconclusiveDimensionOperation", "JAXIndexError", "JAXTypeError",
    "JaxRuntimeError", "JaxprTypeError", "KeyReuseError", "NonConcreteBooleanIndexError",
    "TracerArrayConversionError", "TracerBoolConversionError", "TracerIntegerConversionError",
    "UnexpectedTracerError",
]

ConcretizationTypeError = TracedValueError
TracerArrayConversionError = TracedValueError
TracerBoolConversionError = TracedValueError
TracerIntegerConversionError = TracedValueError
NonConcreteBooleanIndexError = TracedValueError
UnexpectedTracerError = LeakedTracerError
JAXTypeError = FnxError
JAXIndexError = OutOfBoundsError
JaxRuntimeError = DeviceError
JaxprTypeError = FnxError
InconclusiveDimensionOperation = ShapeError


class KeyReuseError(FnxError, RuntimeError):
    """A random key that was used twice."""


if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__)
