"""Explain why a call does not match the signature of a public function, after it has failed.

    sum(x, axs=0)  ->  sum: expected keywords a, axis, dtype, ...; got 'axs'
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from fnx.core.errors import ArgumentError, FnxError, suggestion
from fnx.core.process import load
from fnx.core.tracebacks import shorten

P = ParamSpec("P")
R = TypeVar("R")

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


# Keywords of JAX that say where results are placed: meaningless with one device.
_PLACES = frozenset({"out_sharding", "sharding", "device"})


def without_places(f: Callable[..., Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Drop keywords that only place a result and that f does not accept.

    Args:
        f: a public function, which rejected the call.
        kwargs: the keywords that it was called with.

    Returns:
        The remaining keywords; None if none was dropped.

    >>> without_places(len, {"out_sharding": None, "axis": 1}), without_places(len, {"axis": 1})
    ({'axis': 1}, None)
    """
    taken = inspect.signature(f).parameters
    kept = {k: v for k, v in kwargs.items() if k in taken or k not in _PLACES
            or type(v).__module__.partition(".")[0] != "fnx" and v not in (None, "cpu")}
    return kept if len(kept) < len(kwargs) else None


def refusal(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
            ) -> ArgumentError:
    """Return the error for arguments that f does not accept, with the allowed ones and a hint."""
    name = f.__qualname__.rpartition("<locals>.")[2]
    signature = inspect.signature(f)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    keywords = [p.name for p in plain if p.kind in _KEYWORDS]
    spelled = f"{name}{signature.replace(parameters=plain, return_annotation=signature.empty)}"
    for given in kwargs:
        if given not in keywords:
            allowed = f"keywords {', '.join(keywords)}" if keywords else "no keywords"
            return ArgumentError(f"{name}: expected {allowed}; got {given!r}",
                                 hint=suggestion(given, keywords) or f"call {spelled}")
    try:
        signature.bind(*args, **kwargs)
    except TypeError as why:
        return ArgumentError(f"{name}: expected the arguments of {spelled}: {why}",
                             hint=f"help({name.rpartition('.')[2]}) says what each of them is")
    raise AssertionError(f"{spelled} takes these arguments")


def misfit(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
           error: Exception) -> FnxError | None:
    """Return an error that names the argument which caused a Python error, or None."""
    found: FnxError | None = load("fnx.core.array.misfit").misfit(f, args, kwargs, error)
    return found


def checked(f: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function that computes no arrays: ``public``, with its checks only."""
    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return f(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise refusal(call, args, kwargs) from None  # f was never entered
            if (found := misfit(call, args, kwargs, error)) is not None:
                raise found from None
            shorten(error)
            raise
        except Exception as error:
            shorten(error)
            raise
    return call
