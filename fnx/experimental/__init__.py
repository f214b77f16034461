"""Functions under the names of ``jax.experimental``."""

from typing import TYPE_CHECKING

from fnx.callbacks import io_callback
from fnx.core.errors import module_face
from fnx.experimental.widths import disable_x64, enable_x64

__all__ = ["disable_x64", "enable_x64", "io_callback"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__)
