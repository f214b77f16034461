"""``__array_namespace_info__``: what the array API standard lets a library ask about fnx."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.array import convert
from fnx.core.array.api_boundary import public_api
from fnx.core.ir import dtypes
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError
from fnx.core.support.process import lazy_import

device_registry = lazy_import("fnx.sharding.device_registry")

# kind of dtypes in the standard -> kinds of DTypes
_KINDS = {
    "bool": ("bool",), "signed integer": ("int",), "unsigned integer": ("uint",),
    "integral": ("int", "uint"), "real floating": ("float",), "complex floating": ("complex",),
    "numeric": ("int", "uint", "float", "complex"),
    None: ("bool", "int", "uint", "float", "complex")}
_NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float32", "float64", "complex64", "complex128")


class ArrayNamespaceInfo:
    """Devices, dtypes and capabilities, as of the array API standard 2024.12.

    >>> import fnx.numpy as jnp
    >>> info = jnp.__array_namespace_info__()
    >>> info.capabilities()["data-dependent shapes"]
    True
    """

    def capabilities(self) -> dict[str, Any]:
        """Return what the namespace can do.

        Returns:
            A dict: boolean indexing and shapes that depend on values work outside of traces.
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """Return the device on which arrays are created.

        Returns:
            A device.
        """
        return device_registry.devices()[0]

    def devices(self) -> list[Any]:
        """Return the devices.

        Returns:
            A list of devices.
        """
        return list(device_registry.devices())

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """Return the dtypes that results have by default.

        Args:
            device: accepted, as all devices have the same.

        Returns:
            A dict from kind to NumPy dtype; ``config.x64`` decides about the width.
        """
        return {"real floating": convert.default_float().np,
                "complex floating": convert.default_complex().np,
                "integral": convert.default_int().np, "indexing": convert.default_int().np}

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
               ) -> dict[str, np.dtype[Any]]:
        """Return the dtypes of some kinds.

        Args:
            device: accepted, as all devices have the same.
            kind: "bool", "signed integer", "unsigned integer", "integral", "real floating",
                "complex floating" or "numeric", or several; None: all.

        Returns:
            A dict from name to NumPy dtype; 64-bit numbers only with ``config.x64``.

        Raises:
            ArgumentError: an unknown kind.
        """
        kinds = set[str]()
        for k in kind if isinstance(kind, tuple) else (kind,):
            if k not in _KINDS:
                raise ArgumentError(f"expected a kind of {', '.join(filter(None, _KINDS))}, got "
                                    f"{k!r}", hint="leave it out for all dtypes")
            kinds.update(_KINDS[k])
        named = {name: dtypes.dtype_by_name(name) for name in _NAMES}
        return {name: t.np for name, t in named.items()
                if t.kind in kinds and (config.x64 or dtypes.default_width(t) is t)}


@public_api
def __array_namespace_info__() -> ArrayNamespaceInfo:
    """Return what the array API standard lets a library ask.

    Returns:
        An object with the methods of the standard.

    >>> import fnx.numpy as jnp
    >>> sorted(jnp.__array_namespace_info__().dtypes(kind="complex floating"))
    ['complex64']
    """
    return ArrayNamespaceInfo()
