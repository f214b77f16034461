"""Rematerialization under the names of ``jax.ad_checkpoint``."""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.transforms.checkpoint import checkpoint, checkpoint_name

__all__ = ["checkpoint", "checkpoint_name"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
