"""Environment information for bug reports: versions, the machine, settings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from fnx.core.array.call_validation import validate_call
from fnx.core.support import requirements
from fnx.core.support.config import config
from fnx.core.support.errors import lazy_module
from fnx.core.support.process import lazy_import

fnx = lazy_import("fnx")
platform = lazy_import("platform")

__all__ = ["print_environment_info", "show_versions"]


@validate_call
def print_environment_info(return_string: bool = False) -> str | None:
    """Print versions and the machine, for bug reports.

    Args:
        return_string: return the text instead of printing it.

    Returns:
        The text, or None.

    >>> print_environment_info(return_string=True).splitlines()[0].split()[0]
    'fnx:'
    """
    jax = getattr(sys.modules.get("jax"), "__version__", None)  # the one that programs see
    versions = [] if jax is None else [f"jax:    {jax}", f"jaxlib: {jax}"]
    text = "\n".join([
        f"fnx: {fnx.__version__}", f"numpy: {np.__version__}",
        f"llvmlite: {requirements.llvmlite_version() or 'not installed'}",
        f"python: {sys.version}",
        f"device: {config.device}", f"platform: {platform.platform()}", *versions])
    if return_string:
        return text
    print(text)
    return None


def show_versions() -> None:
    """Print environment information for bug reports.

    It has versions, the machine, and the settings that differ from the defaults.

    >>> show_versions()  # doctest: +ELLIPSIS
    fnx: ...
    settings: ...
    """
    print(print_environment_info(return_string=True))
    for name in ("ml_dtypes", "torch", "scipy"):
        if name in sys.modules:
            print(f"{name}: {getattr(sys.modules[name], '__version__', '?')}")
    changed = [line.partition(":")[0] for line in repr(config).splitlines()
               if "(default)" not in line]
    print(f"settings: {'; '.join(changed) or 'the defaults'}")


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
