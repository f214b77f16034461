"""Explain why a call does not match the signature of a public function, after it has failed.

    sum(x, axs=0)  ->  sum: expected keywords a, axis, dtype, ...; got 'axs'
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from fnx.core.support.errors import ArgumentError, FnxError, suggestion
from fnx.core.support.process import lazy_import
from fnx.core.support.traceback_filter import filter_traceback

argument_diagnosis = lazy_import("fnx.core.array.argument_diagnosis")

P = ParamSpec("P")
R = TypeVar("R")

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


# Keywords of JAX that say where results are placed: meaningless with one device.
_PLACEMENT_KWARGS = frozenset({"out_sharding", "sharding", "device"})


def drop_placement_kwargs(f: Callable[..., Any],
                          kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Drop keywords that only place a result and that f does not accept.

    Args:
        f: a public function, which rejected the call.
        kwargs: the keywords that it was called with.

    Returns:
        The remaining keywords; None if none was dropped.

    >>> drop_placement_kwargs(len, {"out_sharding": None, "axis": 1})
    {'axis': 1}
    >>> drop_placement_kwargs(len, {"axis": 1})
    """
    parameters = inspect.signature(f).parameters
    remaining = {k: v for k, v in kwargs.items() if k in parameters or k not in _PLACEMENT_KWARGS
                 or type(v).__module__.partition(".")[0] != "fnx" and v not in (None, "cpu")}
    return remaining if len(remaining) < len(kwargs) else None


def fits_signature(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether f accepts the arguments.

    >>> fits_signature(signature_error, (len, ()), {"kwargs": {}})
    True
    >>> fits_signature(signature_error, (len, ()), {"keywords": {}})
    False
    """
    try:
        inspect.signature(f).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def signature_error(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
                    ) -> ArgumentError:
    """Return the error for arguments that f does not accept, with the allowed ones and a hint."""
    name = f.__qualname__.rpartition("<locals>.")[2]
    signature = inspect.signature(f)
    unannotated = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    keywords = [p.name for p in unannotated if p.kind in _KEYWORDS]
    call_text = f"{name}" \
        f"{signature.replace(parameters=unannotated, return_annotation=signature.empty)}"
    for keyword in kwargs:
        if keyword not in keywords:
            allowed = f"keywords {', '.join(keywords)}" if keywords else "no keywords"
            return ArgumentError(f"{name}: expected {allowed}; got {keyword!r}",
                                 hint=suggestion(keyword, keywords) or f"call {call_text}")
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        return ArgumentError(f"{name}: expected the arguments of {call_text}: {mismatch}",
                             hint=f"help({name.rpartition('.')[2]}) describes each of them")
    raise AssertionError(f"{call_text} takes these arguments")


def explain_type_error(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
                       error: Exception) -> FnxError | None:
    """Return an error that names the argument which caused a Python error, or None."""
    explained: FnxError | None = argument_diagnosis.explain_type_error(f, args, kwargs, error)
    return explained


def validate_call(f: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function that computes no arrays: ``public``, with its checks only."""
    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return f(*args, **kwargs)
        except TypeError as error:
            if not fits_signature(call, args, kwargs):
                raise signature_error(call, args, kwargs) from None
            if (explained := explain_type_error(call, args, kwargs, error)) is not None:
                raise explained from None
            filter_traceback(error)
            raise
        except Exception as error:
            filter_traceback(error)
            raise
    return call
