"""All errors that users may catch: the classes of fnx/core/support/errors.py, with ``jax.errors``
aliases.

>>> import fnx
>>> try:
...     fnx.load("of_yesterday.npz")
... except (FileNotFoundError, fnx.errors.CheckpointError) as error:
...     print(type(error).__name__)
MissingPathError

The names of ``jax.errors`` are aliases of these classes:

>>> import fnx
>>> try:
...     fnx.jit(lambda x: bool(x))(1.0)
... except fnx.errors.TracerBoolConversionError as error:
...     print(type(error).__name__)
TracedValueError
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fnx.core.support.errors import (
    ArgumentError,
    AxisError,
    AxisNameError,
    BatchSizeError,
    CallbackError,
    CheckpointError,
    DeviceError,
    DistributedError,
    DonatedError,
    DTypeError,
    ExchangeError,
    FnxError,
    FormatStringError,
    GradError,
    InconclusiveDimensionError,
    JaxprTypeError,
    KernelError,
    LeakedTracerError,
    MeshError,
    MissingPathError,
    ModelError,
    MutationError,
    NestingError,
    NotBatchedError,
    NotBuiltError,
    NotFiniteError,
    NotRegisteredError,
    OutOfBoundsError,
    OutOfBoundsWarning,
    OutOfMemoryError,
    OverflowedError,
    PlacementError,
    PytreeError,
    RequirementError,
    RetracedError,
    RuleError,
    ShapeError,
    SpecError,
    StaticArgumentError,
    TracedMaskError,
    TracedValueError,
    TypePromotionError,
    UnknownDeviceError,
    UnknownNameError,
    lazy_module,
)

__all__ = [
    "ArgumentError", "AxisError", "AxisNameError", "BatchSizeError", "CallbackError",
    "CheckpointError", "ConcretizationTypeError", "DTypeError", "DeviceError",
    "DistributedError", "DonatedError", "ExchangeError", "FnxError", "FormatStringError",
    "GradError", "InconclusiveDimensionError", "InconclusiveDimensionOperation", "JAXIndexError",
    "JAXTypeError", "JaxRuntimeError",
    "JaxprTypeError", "KernelError", "KeyReuseError",
    "LeakedTracerError", "MeshError", "MissingPathError", "ModelError", "MutationError",
    "NestingError",
    "NonConcreteBooleanIndexError",
    "NotBatchedError", "NotBuiltError", "NotFiniteError", "NotRegisteredError",
    "OutOfBoundsError", "OutOfBoundsWarning", "OutOfMemoryError", "OverflowedError",
    "PlacementError", "PytreeError", "RequirementError", "RetracedError", "RuleError",
    "ShapeError", "SpecError",
    "StaticArgumentError", "TracedMaskError", "TracedValueError", "TracerArrayConversionError",
    "TracerBoolConversionError", "TracerIntegerConversionError", "TypePromotionError",
    "UnexpectedTracerError", "UnknownDeviceError", "UnknownNameError",
]

ConcretizationTypeError = TracedValueError
TracerArrayConversionError = TracedValueError
TracerBoolConversionError = TracedValueError
TracerIntegerConversionError = TracedValueError
NonConcreteBooleanIndexError = TracedMaskError
UnexpectedTracerError = LeakedTracerError
JAXTypeError = FnxError
JAXIndexError = OutOfBoundsError
JaxRuntimeError = DeviceError
InconclusiveDimensionOperation = InconclusiveDimensionError


class KeyReuseError(FnxError, RuntimeError):
    """A random key was used twice."""


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
