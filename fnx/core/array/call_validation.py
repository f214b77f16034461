"""Explain why a call does not match the signature of a public function, after it has failed.

    sum(x, axs=0)  ->  sum: expected keywords a, axis, dtype, ...; got 'axs'
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from fnx.core.support.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    FnxError,
    ShapeError,
    TracedValueError,
)
from fnx.core.support.name_hints import keyword_suggestion
from fnx.core.support.process import lazy_import
from fnx.core.support.traceback_filter import filter_traceback

argument_diagnosis = lazy_import("fnx.core.array.argument_diagnosis")

P = ParamSpec("P")
R = TypeVar("R")

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


# Keywords of JAX that say where results are placed.
PLACEMENT_KWARGS = frozenset({"out_sharding", "sharding", "device"})
# Keywords of JAX that have no effect or are not implemented there, too: None is accepted.
NONE_KWARGS = frozenset({"accuracy", "out", "out_dtype", "where"})


def adapt_call(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
               ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Adapt a call of f, which rejected it, if it is one of JAX's that means the same here.

    Keywords that only place a result (see ``placement_target``), or are None and have no effect,
    are dropped; positional-only parameters that are given by name (``lax.exp(x=1.0)``) are passed
    by position.

    Args:
        f: a public function.
        args: the positional arguments of the call.
        kwargs: its keywords.

    Returns:
        The arguments and keywords of an equal call that f accepts; None if there is none.

    >>> def f(x, y, /, *, axis=None): ...
    >>> adapt_call(f, (1,), {"y": 2, "out_sharding": None, "axis": 1})
    ((1, 2), {'axis': 1})
    >>> adapt_call(f, (1,), {"z": 2})
    """
    parameters = inspect.signature(f).parameters
    remaining = {k: v for k, v in kwargs.items() if k in parameters or not _is_ignored(k, v)}
    ahead = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_ONLY][len(args):]
    named = list(itertools.takewhile(remaining.__contains__, ahead))
    adapted = (*args, *[remaining.pop(name) for name in named]), remaining
    changed = named or len(remaining) < len(kwargs)
    return adapted if changed and fits_signature(f, *adapted) else None


def placement_target(f: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """Return where keywords that f lacks place its results; None: anywhere.

    >>> placement_target(len, {"device": None, "out_sharding": 3, "axis": 1})
    3
    """
    parameters = inspect.signature(f).parameters
    return next((v for k, v in kwargs.items() if k in PLACEMENT_KWARGS and k not in parameters and
                 not (v is None or isinstance(v, str))), None)


def _is_ignored(keyword: str, value: Any) -> bool:
    if keyword in PLACEMENT_KWARGS:
        return type(value).__module__.partition(".")[0] == "fnx" or value in (None, "cpu")
    return keyword in NONE_KWARGS and value is None


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
                                 hint=keyword_suggestion(keyword, keywords) or f"call {call_text}")
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        of_result = len(args) > 1 and callable(args[0]) and not any(
            p.kind is not p.KEYWORD_ONLY for p in unannotated[1:])  # as jit(f, *, ...)
        error = ArgumentError(f"{name}: expected the arguments of {call_text}: {mismatch}",
                              hint=f"write {name}(f)(x), not {name}(f, x)" if of_result else
                              f"help({name.rpartition('.')[2]}) describes each of them")
        explain_misplaced(f, args, kwargs, error)
        return error
    raise AssertionError(f"{call_text} takes these arguments")


def explain_type_error(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
                       error: Exception) -> FnxError | None:
    """Return an error that names the argument which caused a Python error, or None."""
    explained: FnxError | None = argument_diagnosis.explain_type_error(f, args, kwargs, error)
    return explained


def explain_misplaced(f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
                      error: FnxError) -> None:
    """Reword an error, in place, if an argument has the place of another one, or if it is about a
    traced value that was computed from an argument."""
    if isinstance(error, TracedValueError) and error.is_derived:
        argument_diagnosis.name_traced_arguments(f, args, kwargs, error)
    if isinstance(error, (AxisError, ArgumentError, DTypeError, ShapeError)):
        argument_diagnosis.explain_misplaced(f, args, kwargs, error)


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
