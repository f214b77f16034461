"""The functions of ``jax.scipy``: special functions, distributions, linear solvers."""

from typing import TYPE_CHECKING

from fnx.core.errors import module_face

if TYPE_CHECKING:  # loaded on first use
    from fnx.scipy import sparse, special, stats

__all__ = ["sparse", "special", "stats"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(
        __name__, __all__, homes={name: f"fnx.scipy.{name}" for name in __all__})
