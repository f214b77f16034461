"""The compilation stages of a jitted function, under the names of ``jax.stages``.

>>> import fnx, fnx.numpy as jnp
>>> isinstance(fnx.jit(jnp.sin).lower(jnp.ones(2)).compile(), Compiled)
True
"""

from typing import TYPE_CHECKING

from fnx.core.errors import module_face
from fnx.transforms.compiled import Compiled
from fnx.transforms.compiled import TracedCall as Traced
from fnx.transforms.jit import Jitted as Wrapped
from fnx.transforms.replay.lowering import Lowering as Lowered
from fnx.transforms.replay.signed import ArgInfo

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__)
