"""Functions with custom batching rules, under the names of ``jax.custom_batching``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fnx.core.array import tree
from fnx.core.array.call_validation import validate_call
from fnx.core.support.errors import lazy_module
from fnx.lax.control_flow import map
from fnx.transforms.custom.vmap import custom_vmap

__all__ = ["custom_vmap", "sequential_vmap"]

P = ParamSpec("P")
R = TypeVar("R")


@validate_call
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
    vmapped: Any = custom_vmap(f)

    def rule(axis_size: int, in_batched: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        leaves, structure = tree.flatten(args)
        flags = tree.leaves(tuple(in_batched))
        rows = [x for x, batched in zip(leaves, flags) if batched]

        def call_one(row: Sequence[Any]) -> Any:
            batched_iter = iter(row)
            filled = [next(batched_iter) if batched else x for x, batched in zip(leaves, flags)]
            call: Callable[..., Any] = f
            return call(*structure.unflatten(filled))
        out = map(call_one, rows)
        return out, tree.map(lambda _: True, out)
    vmapped.def_vmap(rule)

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        result: R = vmapped(*args, **kwargs)
        return result
    return call


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
