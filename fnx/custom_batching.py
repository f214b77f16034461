"""Functions with rules for batches, under the names of ``jax.custom_batching``."""

from typing import TYPE_CHECKING

from fnx.core.errors import module_face
from fnx.transforms.custom.ruled import custom_vmap

__all__ = ["custom_vmap"]

if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__)
