"""Context managers for 64-bit defaults, under JAX's names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fnx.core.array import arguments
from fnx.core.support.config import override

__all__ = ["disable_x64", "enable_x64"]


@contextlib.contextmanager
def enable_x64(new_val: bool = True) -> Iterator[None]:
    """Keep 64-bit data from NumPy and Python 64 bits wide in a ``with`` block.

    It sets ``config.x64`` for the thread or task that enters it; functions that were jitted under
    another value are traced again.

    Args:
        new_val: True; False: the data becomes 32 bits wide.

    Returns:
        A context manager.

    Raises:
        ArgumentError: ``new_val`` is not a bool.

    >>> import fnx.experimental
    >>> import fnx.numpy as jnp
    >>> with fnx.experimental.enable_x64():
    ...     jnp.arange(3)
    Array([0, 1, 2], dtype=int64)
    """
    arguments.check_bool("new_val", new_val)
    with override(x64=new_val):
        yield


def disable_x64() -> contextlib.AbstractContextManager[None]:
    """Return ``enable_x64(False)``.

    Returns:
        A context manager.

    >>> import fnx.experimental
    >>> import fnx.numpy as jnp
    >>> with fnx.experimental.disable_x64():
    ...     jnp.arange(3)
    Array([0, 1, 2], dtype=int32)
    """
    return enable_x64(False)
