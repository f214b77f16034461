"""Rematerialization under the names of ``jax.ad_checkpoint``."""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.transforms.checkpoint import checkpoint, checkpoint_name
from fnx.transforms.saved_residuals import print_saved_residuals

__all__ = ["checkpoint", "checkpoint_name", "print_saved_residuals"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
