"""Programs as users write them, once for JAX and fnx: a file per theme, ``PROGRAMS`` has all.

Nothing here is written for one compiler: the functions have no annotations, as users' have none,
and take the modules of the target from ``ns``.
"""

from programs import (
    conv_nets,
    dense_nets,
    features,
    graphs,
    images,
    optimization,
    physics,
    science,
    sequence_nets,
    statistics,
    stencils,
)
from programs.registry import PROGRAMS, Program

__all__ = [
    "PROGRAMS", "Program", "conv_nets", "dense_nets", "features", "graphs", "images",
    "optimization", "physics", "science", "sequence_nets", "statistics",
    "stencils",
]
