"""The functions of ``jax.scipy.spatial``: rotations."""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module

if TYPE_CHECKING:  # loaded on first use
    from fnx.scipy.spatial import transform

__all__ = ["transform"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__,
                                       modules={"transform": "fnx.scipy.spatial.transform"})
