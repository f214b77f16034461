"""Zero-copy exchange of arrays with other libraries, under the names of ``jax.dlpack``.

>>> import numpy as np, fnx.numpy as jnp
>>> x = jnp.asarray([1.0, 2.0])
>>> np.from_dlpack(x)                                   # read-only, without a copy
array([1., 2.], dtype=float32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fnx.core.array import arguments
from fnx.core.array.array import Array
from fnx.core.array.call_validation import validate_call
from fnx.core.array.convert import DTypeLike
from fnx.core.array.dlpack import import_array
from fnx.core.ir import dtypes
from fnx.core.support.errors import ArgumentError, lazy_module
from fnx.core.support.process import lazy_import

device_transfer = lazy_import("fnx.device_transfer")

__all__ = ["from_dlpack", "is_supported_dtype"]


@validate_call
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """Convert an array of another library, sharing its memory if possible.

    Sharing needs row-major memory at a 64-byte aligned address, and a dtype that is not converted:
    64-bit types become 32 bits wide unless ``config.x64``. Do not write to shared memory
    afterwards, as that would change the Array.

    Args:
        x: an object with ``__dlpack__`` and ``__dlpack_device__``: a NumPy array, a PyTorch tensor.
        device: None, or a device of this process.
        copy: True: always copy; False: raise if a copy is needed.

    Returns:
        An Array.

    Raises:
        ArgumentError: x has no ``__dlpack__``, or ``device`` is not a device.
        ExchangeError: memory of another device, an unsupported dtype, or a copy is needed and
            ``copy=False``.

    >>> import numpy as np, fnx.dlpack
    >>> fnx.dlpack.from_dlpack(np.array([[1, 2], [3, 4]], np.int32).T)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    if copy is not None:
        arguments.check_optional_bool("copy", copy)
    if device is not None:
        device_transfer.check_device(device)
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(f"expected an array with __dlpack__, got {type(x).__name__}",
                            hint="use fnx.numpy.asarray for lists and numbers")
    return import_array(x, copy)


@validate_call
def is_supported_dtype(dtype: DTypeLike) -> bool:
    """Whether arrays of a dtype can be exchanged.

    Args:
        dtype: a dtype.

    Returns:
        A bool: True for all but int4 and uint4, which DLPack packs in pairs.

    >>> import fnx.dlpack
    >>> fnx.dlpack.is_supported_dtype("bfloat16"), fnx.dlpack.is_supported_dtype("int4")
    (True, False)
    """
    t = dtypes.as_dtype(dtype)
    return t.storage is None or t.is_float


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__)
