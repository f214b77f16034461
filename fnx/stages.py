"""The compilation stages of a jitted function, under the names of ``jax.stages``.

>>> import fnx, fnx.numpy as jnp
>>> isinstance(fnx.jit(jnp.sin).lower(jnp.ones(2)).compile(), Compiled)
True
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.transforms.dispatch.specialized_call import ArgInfo
from fnx.transforms.inspect.lowering import Lowering as Lowered
from fnx.transforms.jit import Jitted as Wrapped
from fnx.transforms.stages import Compiled
from fnx.transforms.stages import TracedCall as Traced

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
