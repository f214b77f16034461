"""Functions under the names of ``jax.scipy``: special functions, densities, linear equations."""

from typing import TYPE_CHECKING

from fnx.core.errors import module_face

if TYPE_CHECKING:  # at their first use
    from fnx.scipy import sparse, special, stats

__all__ = ["sparse", "special", "stats"]

if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(
        __name__, __all__, homes={name: f"fnx.scipy.{name}" for name in __all__})
