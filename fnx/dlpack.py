"""Arrays of other libraries and ours in the same memory: the names of ``jax.dlpack``.

>>> import numpy as np, fnx.numpy as jnp
>>> x = jnp.asarray([1.0, 2.0])
>>> np.from_dlpack(x)                                   # read-only, without a copy
array([1., 2.], dtype=float32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fnx.core import dtypes
from fnx.core.array import arguments
from fnx.core.array.array import Array
from fnx.core.array.convert import DTypeLike
from fnx.core.array.dlpack import received
from fnx.core.array.refusal import checked
from fnx.core.errors import ArgumentError, module_face
from fnx.core.process import load

__all__ = ["from_dlpack", "is_supported_dtype"]


@checked
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array of another library, in its memory where that is possible.

    It must be in rows, at an address that is a multiple of 64, and of a type that stays what it
    is: 64 bits become 32 unless ``config.x64``. Whoever writes that memory later changes the
    Array, so do not.

    Args:
        x: what has ``__dlpack__`` and ``__dlpack_device__``: a NumPy array, a tensor of PyTorch.
        device: None, or a device of this process.
        copy: True for memory of its own; False to be refused where a copy is needed.

    Returns:
        An Array.

    Raises:
        ArgumentError: no array of such a library; no device.
        ExchangeError: memory of another device, a type that fnx does not hold, or a copy where
            none is wanted.

    >>> import numpy as np, fnx.dlpack
    >>> fnx.dlpack.from_dlpack(np.array([[1, 2], [3, 4]], np.int32).T)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    if copy is not None:
        arguments.flag_or_none("copy", copy)
    if device is not None:
        load("fnx.placing").check_place(device)
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(f"expected an array with __dlpack__, got {type(x).__name__}",
                            hint="fnx.numpy.asarray takes lists and numbers")
    return received(x, copy)


@checked
def is_supported_dtype(dtype: DTypeLike) -> bool:
    """Whether arrays of a type can be exchanged.

    Args:
        dtype: a type.

    Returns:
        A bool: true of all but int4 and uint4, which DLPack packs by two.

    >>> import fnx.dlpack
    >>> fnx.dlpack.is_supported_dtype("bfloat16"), fnx.dlpack.is_supported_dtype("int4")
    (True, False)
    """
    t = dtypes.as_dtype(dtype)
    return t.storage is None or t.is_float


if not TYPE_CHECKING:
    __getattr__, __dir__ = module_face(__name__, __all__)
