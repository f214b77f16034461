"""Functions under the names of ``jax.lax``: on arrays, on shapes, loops, lanes of named axes."""

from typing import TYPE_CHECKING

from fnx.core.errors import module_face
from fnx.lax import (
    collectives,
    contraction,
    convolution,
    elementwise,
    folds,
    implicit,
    indexed,
    loops,
    ordering,
    reductions,
    running,
    shapes,
    slicing,
    sorting,
)
from fnx.lax.collectives import *
from fnx.lax.contraction import *
from fnx.lax.convolution import *
from fnx.lax.elementwise import *
from fnx.lax.folds import *
from fnx.lax.implicit import *
from fnx.lax.indexed import *
from fnx.lax.loops import *
from fnx.lax.ordering import *
from fnx.lax.reductions import *
from fnx.lax.running import *
from fnx.lax.shapes import *
from fnx.lax.slicing import *
from fnx.lax.sorting import *

__all__ = [
    *collectives.__all__, *contraction.__all__, *convolution.__all__, *elementwise.__all__,
    *folds.__all__, *implicit.__all__, *indexed.__all__, *loops.__all__, *ordering.__all__,
    *reductions.__all__, *running.__all__, *shapes.__all__, *slicing.__all__, *sorting.__all__,
]

if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__, frozenset({"reduce_precision"}))
