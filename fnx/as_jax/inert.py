"""Inert versions of internal JAX names that libraries use while they are imported.

>>> api_boundary(identity)(3)
3
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from fnx.jaxprs.primitive import Primitive
from fnx.sharding import Sharding, SingleDeviceSharding

T = TypeVar("T")


class HiPrimitive(Primitive):
    """``jax.experimental.hijax.HiPrimitive``: base of the primitives of flax."""


class Format(SingleDeviceSharding):
    """``jax.experimental.layout.Format``: a sharding and a layout, which fnx chooses itself."""

    def __init__(self, layout: Any = None, sharding: Any = None) -> None:
        super().__init__(next(iter((sharding or Sharding()).device_set)))
        self.layout, self.sharding = layout, sharding


class HiType:
    """``jax.experimental.hijax.MutableHiType``: base of a type of flax."""


def ignore(*args: Any, **kwargs: Any) -> None:
    """Ignore all arguments: a call that only informs JAX."""


def identity(x: T, *args: Any, **kwargs: Any) -> T:
    """Return the first argument unchanged."""
    return x


class _Metadata(contextlib.ContextDecorator):
    """What informs XLA in a block or a function: it does nothing."""

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(self, *exc: object) -> None:
        """Leave the block."""


def set_xla_metadata(x: Any = None, **kwargs: Any) -> Any:
    """Return the value, or a context manager and decorator: there is no XLA to inform.

    >>> with set_xla_metadata(key="value"):
    ...     set_xla_metadata(3, key="value")
    3
    """
    return _Metadata() if x is None else x


def always_false(*args: Any, **kwargs: Any) -> bool:
    """Return False: a test for something that does not exist in fnx."""
    return False


def api_boundary(f: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Return the function unchanged: fnx filters only its own stack frames."""
    return identity if f is None else f
