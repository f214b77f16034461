"""References: arrays that are written in place, under the names of ``jax.ref``.

A reference holds an array. ``r[i]`` reads it and ``r[i] = x`` replaces a part of it; both may stand
in jitted functions, in loops and in branches, which return the next value as one more result.

>>> import fnx, fnx.numpy as jnp
>>> r = fnx.new_ref(jnp.zeros(3))
>>> @fnx.jit
... def add(x):
...     r[1] += x
>>> add(2.0); add(3.0); r
Ref([0., 5., 0.], dtype=float32)
"""

from typing import TYPE_CHECKING

from fnx.core.support.errors import lazy_module
from fnx.core.tracing.references import (
    AbstractRef,
    Ref,
    addupdate,
    empty_ref,
    free_ref,
    freeze,
    get,
    new_ref,
    set,
    swap,
)

__all__ = [
    "AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set",
    "swap",
]

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
