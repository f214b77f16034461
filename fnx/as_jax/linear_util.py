"""``jax.extend.linear_util`` and ``jax.api_util``: functions of leaves, wrapped by generators.

>>> @transformation
... def twice(*args):
...     out = yield args, {}
...     yield 2 * out
>>> twice(wrap_init(lambda x: x + 1)).call_wrapped(4)
10
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

from fnx.core.array import tree

__all__ = ["StoreException", "WrappedFun", "transformation", "transformation2",
           "transformation_with_aux", "transformation_with_aux2", "wrap_init"]

Steps = Generator[Any, Any, None]


class WrappedFun:
    """A function with transformations around it; ``f`` is the function itself."""

    def __init__(self, f: Callable[..., Any], call: Callable[..., Any], debug_info: Any = None
                 ) -> None:
        self.f, self.call_wrapped, self.debug_info = f, call, debug_info
        self.__name__ = getattr(f, "__name__", "<unnamed wrapped function>")


def wrap_init(f: Callable[..., Any], params: Any = None, *, debug_info: Any = None) -> WrappedFun:
    """Wrap a function as in ``linear_util``, with ``params`` as keywords."""
    return WrappedFun(f, partial(f, **(params or {})), debug_info)


def transformation2(transform: Callable[..., Any], *args: Any) -> Any:
    """Make a function of WrappedFuns of one that takes the inner call, then the arguments."""
    def apply(fun: WrappedFun, *static: Any) -> WrappedFun:
        return WrappedFun(fun.f, partial(transform, fun.call_wrapped, *static), fun.debug_info)
    return apply(*args) if args else apply


def transformation_with_aux2(transform: Callable[..., Any], *args: Any) -> Any:
    """Like ``transformation2``, for one that also takes a store of an auxiliary result.

    Each application returns the WrappedFun and a function that reads the store.
    """
    def apply(fun: WrappedFun, *static: Any, **options: Any
              ) -> tuple[WrappedFun, Callable[[], Any]]:
        store = Store()
        call = partial(transform, fun.call_wrapped, store, *static)
        return WrappedFun(fun.f, call, fun.debug_info), lambda: store.val
    return apply(*args) if args else apply


class Store:
    """The place of an auxiliary result; empty until the function has run."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def store(self, value: Any) -> None:
        """Keep a value in place of an earlier one."""
        self._values[:] = [value]

    @property
    def val(self) -> Any:
        """The value; an error if the function has not run."""
        if not self._values:
            raise StoreException("the function has not run, so there is no auxiliary result")
        return self._values[0]


class StoreException(Exception):
    """An auxiliary result was read before its function ran."""


def _resume(steps: Steps, call: Callable[..., Any]) -> Any:
    """Give a generator the result of the call whose arguments it yields; return what it yields."""
    args, kwargs = next(steps)
    return steps.send(call(*args, **kwargs))


def transformation(steps: Callable[..., Steps], *args: Any) -> Any:
    """Make a function of WrappedFuns of a generator, which yields arguments, then the result."""
    return transformation2(lambda call, *inner, **kwargs: _resume(steps(*inner, **kwargs), call),
                           *args)


def transformation_with_aux(steps: Callable[..., Steps], *args: Any) -> Any:
    """Like ``transformation``, for a generator that yields (result, auxiliary result) at last."""
    def call_and_store(call: Callable[..., Any], store: Store, *inner: Any, **kwargs: Any) -> Any:
        result, aux = _resume(steps(*inner, **kwargs), call)
        store.store(aux)
        return result
    return transformation_with_aux2(call_and_store, *args)


@transformation_with_aux2
def flatten_fun(call: Callable[..., Any], store: Store, in_tree: tree.TreeDef, *leaves: Any
                ) -> Sequence[Any]:
    """Flatten a function of (args, kwargs).

    Returns:
        The function of leaves, and a function that gives the structure of its last result.
    """
    args, kwargs = tree.unflatten(in_tree, leaves)
    out, structure = tree.flatten(call(*args, **kwargs))
    store.store(structure)
    return out


@transformation_with_aux2
def flatten_fun_nokwargs(call: Callable[..., Any], store: Store, in_tree: tree.TreeDef,
                         *leaves: Any) -> Sequence[Any]:
    """Like ``flatten_fun``, for a function of args only."""
    out, structure = tree.flatten(call(*tree.unflatten(in_tree, leaves)))
    store.store(structure)
    return out


def infer_argnums_and_argnames(
        sig: inspect.Signature, argnums: int | Iterable[int] | None,
        argnames: str | Iterable[str] | None) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return numbers and names of the same parameters, given one or both of them."""
    nums = (argnums,) if isinstance(argnums, int) else tuple(argnums or ())
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames or ())
    if argnums is not None and argnames is not None:
        return nums, names
    positional = [name for name, p in sig.parameters.items()
                  if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    order = list(sig.parameters)
    return (nums or tuple(order.index(n) for n in positional if n in names),
            names or tuple(n for n in positional if order.index(n) in nums))
