"""The functions of ``jax.scipy``: special functions, distributions, solvers, signals and others."""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module

if TYPE_CHECKING:  # loaded on first use
    from fnx.scipy import (
        cluster,
        fft,
        integrate,
        interpolate,
        linalg,
        ndimage,
        optimize,
        signal,
        sparse,
        spatial,
        special,
        stats,
    )

__all__ = ["cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize",
           "signal", "sparse", "spatial", "special", "stats"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(
        __name__, __all__, modules={name: f"fnx.scipy.{name}" for name in __all__})
