"""Functions with custom batching rules, under the names of ``jax.custom_batching``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fnx.core.array import tree
from fnx.core.array.refusal import checked
from fnx.core.errors import module_face
from fnx.lax.loops import map
from fnx.transforms.custom.ruled import custom_vmap

__all__ = ["custom_vmap", "sequential_vmap"]

P = ParamSpec("P")
R = TypeVar("R")


@checked
def sequential_vmap(f: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that ``vmap`` calls it sequentially, once per batch element.

    Args:
        f: a function of pytrees of arrays.

    Returns:
        The decorated function.

    >>> import fnx, fnx.numpy as jnp
    >>> @sequential_vmap
    ... def f(x):
    ...     fnx.debug.print("{}", x)
    ...     return x + 1
    >>> print(fnx.vmap(f)(jnp.arange(2)))
    0
    1
    [1 2]
    """
    ruled: Any = custom_vmap(f)

    def rule(axis_size: int, in_batched: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        leaves, structure = tree.flatten(args)
        flags = tree.leaves(tuple(in_batched))
        rows = [x for x, batched in zip(leaves, flags) if batched]

        def one(row: Sequence[Any]) -> Any:
            found = iter(row)
            given = [next(found) if batched else x for x, batched in zip(leaves, flags)]
            again: Callable[..., Any] = f
            return again(*structure.unflatten(given))
        out = map(one, rows)
        return out, tree.map(lambda _: True, out)
    ruled.def_vmap(rule)

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        made: R = ruled(*args, **kwargs)
        return made
    return call


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = module_face(__name__, __all__)
